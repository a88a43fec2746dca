"""A function of a reviewed analysis becomes a tool of the user's, with its test."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mcp_servers.context import ToolContext
from mcp_servers.registry import load
from mcp_servers.roots import Roots
from sage.cli.app import app
from sage.core.errors import InputError
from sage_programs.promotion import promote

PROGRAM = '''\
import math
import sys
from pathlib import Path

from validation.analysis.analysis import Analysis

SCALE = 2.0


def halved(value: float) -> float:
    return value / SCALE


def distance(a: list[float], b: list[float], power: int = 2) -> float:
    """Distance between two profiles.

    Minkowski's, halved.
    """
    total = sum(abs(x - y) ** power for x, y in zip(a, b))
    return halved(math.pow(total, 1 / power))


def untyped(table, out: Path) -> None:
    table.to_csv(out)


def many(*values: float) -> float:
    return sum(values)


def main(inputs: Path, out: Path) -> None:
    Analysis.open(inputs).finish(out)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
'''


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    for number, text in ((1, "def distance(a: int) -> int:\n    return a\n"), (2, PROGRAM)):
        folder = tmp_path / "run" / "hypotheses" / "h1" / f"attempt-{number}"
        folder.mkdir(parents=True)
        (folder / "analysis.py").write_text(text)
    return tmp_path / "run"


def test_a_promoted_function_is_in_the_registry_and_runs(run_dir: Path, tmp_path: Path) -> None:
    written = promote(run_dir, "distance", tmp_path / "tools")

    assert written == tmp_path / "tools" / "distance.py"
    registry = load("all", tool_folders=[tmp_path / "tools"])
    (tmp_path / "in").mkdir()
    context = ToolContext(Roots.resolve([tmp_path / "in"], tmp_path / "o"))
    ended = registry.run("distance", {"a": [0.0, 0.0], "b": [3.0, 4.0]}, context)
    assert ended.result == {"value": 2.5}
    assert registry.get("distance").summary == "Distance between two profiles."


def test_its_own_test_passes(run_dir: Path, tmp_path: Path) -> None:
    promote(run_dir, "distance", tmp_path / "tools")
    test = tmp_path / "tools" / "tests" / "test_distance.py"
    found = [made for name, made in runpy.run_path(str(test)).items() if name.startswith("test_")]
    assert len(found) == 2
    for made in found:
        made()


@pytest.mark.parametrize(
    ("function", "says"),
    [
        ("nothing", r"no program .* defines \"nothing\"; defined functions: .*distance"),
        ("untyped", 'parameter "table" needs a plain type'),
        ("many", "without \\* or \\*\\*"),
        ("../evil", "not a valid function name"),
        ("Distance", "not a valid function name"),
    ],
)
def test_what_cannot_be_a_tool_is_refused_with_the_reason(
    function: str, says: str, run_dir: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=says):
        promote(run_dir, function, tmp_path / "tools")
    assert not (tmp_path / "tools").exists()


def test_a_function_that_reaches_for_the_system_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "attempt-1"
    folder.mkdir(parents=True)
    (folder / "analysis.py").write_text(
        "import os\n\ndef sneaky(path: str) -> list[str]:\n    return os.listdir(path)\n"
    )
    with pytest.raises(InputError, match="import of `os` is not allowed"):
        promote(tmp_path / "run", "sneaky", tmp_path / "tools")


def test_nothing_of_the_program_is_run(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "attempt-1"
    folder.mkdir(parents=True)
    canary = tmp_path / "canary"
    (folder / "analysis.py").write_text(
        f"open({str(canary)!r}, 'w')\n\n\ndef plain(x: int) -> int:\n    return x + 1\n"
    )
    promote(tmp_path / "run", "plain", tmp_path / "tools")
    load("all", tool_folders=[tmp_path / "tools"])
    assert not canary.exists()


def test_a_tool_that_is_there_is_not_overwritten(run_dir: Path, tmp_path: Path) -> None:
    promote(run_dir, "distance", tmp_path / "tools")
    with pytest.raises(InputError, match="exists"):
        promote(run_dir, "distance", tmp_path / "tools")


def test_a_link_out_of_the_run_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "analysis.py").write_text(PROGRAM)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "attempt-1").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="no program"):
        promote(tmp_path / "run", "distance", tmp_path / "tools")


def test_a_promoted_function_is_a_tool_like_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "runs" / "r1" / "attempt-1" / "analysis.py"
    program.parent.mkdir(parents=True)
    program.write_text(
        "import math\n\n\n"
        "def joint(first: float, second: float = 2.0) -> float:\n"
        '    """Geometric mean of two densities."""\n'
        "    return math.sqrt(first * second)\n"
    )
    monkeypatch.chdir(tmp_path)

    def answer(*words: str) -> Any:
        done = CliRunner().invoke(app, [*words, "--json"])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    promoting = ["programs", "promote", "runs/r1", "joint", "--into", "mine"]
    assert answer(*promoting)["file"] == "mine/joint.py"
    listed = answer("tools", "list", "--tools", "mine")
    assert "Geometric mean of two densities." in {item["summary"] for item in listed}
    run = ["tools", "run", "joint", "--tools", "mine", "--set", "first=8", "--workers", "1"]
    assert answer(*run)["result"] == {"value": 4.0}
