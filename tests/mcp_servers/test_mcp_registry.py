"""The registry: typed tools, explicit registration, clear errors."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from pydantic import BaseModel, Field

from mcp_servers import catalog
from mcp_servers.context import ToolContext
from mcp_servers.registry import Registry
from mcp_servers.roots import Roots
from mcp_servers.spec import InputPath, OutputName, ToolSpec, tool
from sage.core.errors import FaultError, InputError


class CountInput(BaseModel):
    text: InputPath = Field(description="Text file")
    letter: str = Field(default="a", min_length=1, max_length=1)


class CountResult(BaseModel):
    count: int
    table: OutputName


@tool("count_letter", "test", "1.0.0", "Count a letter in a text file.")
def count_letter(given: CountInput, context: ToolContext) -> CountResult:
    count = context.input(given.text, "file").read_text().count(given.letter)
    with context.writing("count.csv") as path:
        path.write_text(f"letter,count\n{given.letter},{count}\n")
    return CountResult(count=count, table="count.csv")


def spec_of(function: object) -> ToolSpec:
    spec = getattr(function, "__sage_tool__")  # noqa: B009
    assert isinstance(spec, ToolSpec)
    return spec


@pytest.fixture
def registry(roots: Roots) -> Registry:
    (roots.inputs[0] / "banana.txt").write_text("banana")
    made = Registry()
    made.add(spec_of(count_letter))
    return made


def test_a_run_returns_result_outputs_and_provenance(registry: Registry, roots: Roots) -> None:
    run = registry.run("count_letter", {"text": "banana.txt"}, ToolContext(roots))
    assert run.result == {"count": 3, "table": "count.csv"}
    assert [(output.name, output.mime) for output in run.outputs] == [("count.csv", "text/csv")]
    assert run.provenance.tool == "count_letter"
    assert run.provenance.version == "1.0.0"
    assert list(run.provenance.inputs) == [str(roots.inputs[0] / "banana.txt")]
    assert json.loads(run.model_dump_json())["provenance"]["arguments"]["letter"] == "a"


def test_a_tool_that_breaks_is_a_fault_that_names_it(roots: Roots) -> None:
    @tool("breaks", "test", "1.0.0", "Breaks.")
    def breaks(given: CountInput, context: ToolContext) -> CountResult:
        raise ZeroDivisionError("by zero")

    made = Registry()
    made.add(spec_of(breaks))
    with pytest.raises(FaultError, match=r"breaks .*ZeroDivisionError"):
        made.run("breaks", {"text": "banana.txt"}, ToolContext(roots))


def test_listing_tools_imports_nothing_heavy() -> None:
    code = (
        "import sys; from mcp_servers.registry import load; load('all');"
        "print([n for n in ('torch','cv2','pandas','numba','openslide','skimage','sklearn',"
        "'lifelines','tifffile','transformers','mcp','ray') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_plugin_adds_to_a_suite_by_the_name_of_its_entry_point(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = {"pathology.extra": "extra", "own": "own_tools"}
    points = {key: EntryPoint(key, module, "sage.tools") for key, module in names.items()}
    monkeypatch.setattr(catalog, "find_plugins", lambda group: points)
    assert catalog.suites() == {
        "pathology": ["mcp_servers.pathology", "extra"],
        "oncology": ["mcp_servers.oncology"],
        "knowledge": ["mcp_servers.knowledge"],
        "own": ["own_tools"],
    }


def test_a_plugin_whose_tools_cannot_be_imported_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "unfinished_tools.py").write_text("def f(:\n")
    monkeypatch.syspath_prepend(tmp_path)
    point = EntryPoint("own", "unfinished_tools", "sage.tools")
    monkeypatch.setattr(catalog, "find_plugins", lambda group: {"own": point})
    with pytest.raises(InputError, match=r"unfinished_tools .*SyntaxError"):
        list(catalog.modules("own"))
