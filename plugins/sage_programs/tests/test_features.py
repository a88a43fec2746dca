"""Variables that do not exist yet: computed by a registered tool, then part of the cohort."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel

from mcp_servers.context import ToolContext
from mcp_servers.registry import Registry
from mcp_servers.roots import Roots
from mcp_servers.spec import InputPath, ToolRun, tool
from sage.core.errors import InputError
from sage_programs.features import DataPlan, Extraction, extract_features, resolve_cohort
from validation.cohort.cohort import Cohort
from validation.cohort.model import CohortSpec


class SizeInput(BaseModel):
    slide: InputPath


class SizeResult(BaseModel):
    name: str
    per_mm2: float | None
    sizes: list[float] = []


@tool("dots", "pathology", "2.1.0", "Count the dots of a slide.")
def dots(given: SizeInput, context: ToolContext) -> SizeResult:
    text = context.input(given.slide, "file").read_text()
    if text == "broken":
        raise InputError(f"{given.slide} cannot be read")
    return SizeResult(name="x", per_mm2=float(text.count(".")) if text != "empty" else None)


@pytest.fixture
def registry() -> Registry:
    made = Registry()
    made.add(dots.__sage_tool__)  # type: ignore[attr-defined]
    return made


@pytest.fixture
def cohort(tmp_path: Path) -> Cohort:
    root = tmp_path / "cohort"
    (root / "slides").mkdir(parents=True)
    rows = ["patient,time,event"]
    for number in range(12):
        rows.append(f"A{number:02},{number + 1}.5,{number % 2}")
        (root / "slides" / f"A{number:02}.svs").write_text("." * number)
    (root / "slides" / "A10.svs").write_text("broken")
    (root / "slides" / "A11.svs").write_text("empty")
    (root / "slides" / "stranger.svs").write_text("....")
    (root / "clinical.csv").write_text("\n".join(rows) + "\n")
    spec = CohortSpec.model_validate(
        {
            "id": "dots",
            "title": "Dots",
            "simulated": True,
            "patient": {"table": "clinical"},
            "tables": {"clinical": {"file": "clinical.csv", "key": "patient"}},
            "endpoints": {
                "OS": {
                    "kind": "survival",
                    "table": "clinical", "time": "time", "time_unit": "months", "event": "event",
                    "event_values": ["1"], "censored_values": ["0"],
                }
            },
            "slides": {"folder": "slides", "pattern": "*.svs"},
        }
    )  # fmt: skip
    return Cohort(spec, root)


def runner(registry: Registry, cohort: Cohort, folder: Path):  # type: ignore[no-untyped-def]
    context = ToolContext(Roots.resolve([cohort.root], folder))

    def run(name: str, arguments: dict[str, object]) -> ToolRun:
        return registry.run(name, arguments, context)

    return run


def test_a_missing_imaging_variable_is_computed_and_joins_the_cohort(
    cohort: Cohort, registry: Registry, tmp_path: Path
) -> None:
    before = sorted(cohort.root.rglob("*"))
    heard: list[int] = []

    extended, plan, output = resolve_cohort(
        cohort, ["imaging:dots_density", "imaging:collagen"], registry,
        runner(registry, cohort, tmp_path / "o"), tmp_path / "features",
        on_event=lambda _, what: heard.append(what["done"]),
    )  # fmt: skip

    assert list(extended.column("imaging:dots_density").dropna().sort_values()) == list(range(10))
    assert extended.dictionary().has_variable("imaging:dots_density")
    assert "features/dots_density.csv" in extended.hashes()
    assert sorted(cohort.root.rglob("*")) == before, "the given cohort was written to"
    assert heard[-1] == 12
    assert plan.missing == ("imaging:collagen",)
    said = output[0]
    assert (said.tool, said.version, said.field) == ("dots", "2.1.0", "per_mm2")
    assert (said.patients, said.slides, said.failed, said.without_value) == (10, 12, 1, 2)
    assert "A10" not in said.model_dump_json(), "provenance names a patient"


def test_a_tool_that_gives_nothing_is_an_error_that_says_why(
    cohort: Cohort, registry: Registry, tmp_path: Path
) -> None:
    for path in (cohort.root / "slides").iterdir():
        path.write_text("broken")
    plan = DataPlan(extract=(Extraction(variable="imaging:d", tool="dots", field="per_mm2"),))
    with pytest.raises(InputError, match=r"returned no imaging:d for any patient.*cannot be read"):
        run = runner(registry, cohort, tmp_path / "o")
        extract_features(cohort, plan, registry, run, tmp_path / "features")
