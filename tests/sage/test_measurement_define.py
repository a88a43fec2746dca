"""`measurement_define`: a scientist measures on the maps, and the run's cohort has the variable."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from agents.scientist.agent import at_the_bench
from agents.scientist.blind import BlindCohort
from agents.scientist.looks import MeasurementDefine
from agents.scientist.tools import Workbench
from benchmarks.adapters.measures import COHORT, simulate
from kg.literature.search import Literature
from kg.paths.find import PathOptions
from mcp_servers.measures.formula import parse
from mcp_servers.measures.maps import MapsOnDisk, write_maps
from mcp_servers.measures.table import measure_patients
from sage.core.errors import InputError
from sage.run.folder import Manifest, RunFolder
from sage.run.services import Services
from sage.run.spec import RunSpec
from sage.settings import Settings
from tests.agents.bench import EMBEDDER, ONTOLOGY, bladder, graph, index
from tests.agents.test_scientist_chat import Answer, Played, answering, calling, candidate

GOOD = "mean(ripley_l(cells.b_cell, 30))"
KEY = "imaging:defined1_mean_ripley_l_cells_b_cell_30"


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cohort of 24 patients with maps of cells."""
    place = tmp_path_factory.mktemp("simulated")
    slides, _ = simulate(8, 42)
    for maps in slides[:24]:
        write_maps(maps, place / "maps" / maps.slide)
    rows = [f"{maps.patient},{60 + i % 9},{100 + i},{i % 2}" for i, maps in enumerate(slides[:24])]
    (place / "clinical.csv").write_text("patient,age,days,dead\n" + "\n".join(rows) + "\n")
    (place / "cohort.toml").write_text(
        COHORT.replace("simulated = true", 'simulated = true\nmaps = "maps"')
    )
    return place


@pytest.fixture
def services(simulated: Path, tmp_path: Path) -> Services:
    place = Path(shutil.copytree(simulated, tmp_path / "cohort"))
    manifest = Manifest(
        id="r",
        run_id="r",
        created="2026-01-01",
        reasoner="rules",
        kg="k",
        spec=RunSpec(prompt="q", cohort=str(place)),
    )
    (tmp_path / "run" / "outputs").mkdir(parents=True)
    settings = Settings(cache_dir=tmp_path / "cache")
    return Services(RunFolder(tmp_path / "run"), manifest, settings)


def bench(services: Services) -> Workbench:
    return Workbench(
        graph=graph(bladder()),
        literature=Literature((), None, local=index()),
        cohort=BlindCohort(services.cohort, 5),
        ontology=ONTOLOGY,
        embedder=lambda: EMBEDDER,
        paths=PathOptions(),
        measures=services._measures(),
    )


def define(there: Workbench, *formulas: str) -> Any:
    return there.measurement_define(MeasurementDefine(formulas=formulas)).checks


def test_a_stable_measurement_becomes_a_variable_of_the_run(services: Services) -> None:
    there = bench(services)
    good, unknown, wrong = define(there, GOOD, "mean(count(cells.nk_cell))", "mean(count(")
    assert good.variable == KEY and not good.refused and good.score.n == 24
    assert good.unit == "µm" and good.stability["jitter"] > 0.75
    assert "NK cells" in unknown.refused and not unknown.variable and wrong.refused
    assert there.cohort.dictionary.has_variable(KEY) and services.dictionary.has_variable(KEY)
    assert there.cohort.find_variables("spatial arrangement of B cells") == (KEY,)
    # the value is that of the maps, and a run that goes on finds it
    again = Services(services.folder, services.manifest, services.settings).cohort
    slides = MapsOnDisk(again.maps or Path(), set(again.patients))
    expected = measure_patients([parse(GOOD)], slides)
    column = again.column(KEY)
    assert [column[p] for p in expected.patients] == pytest.approx(list(expected.table[:, 0]))
    (second,) = define(there, "mean(hotspot(cells.b_cell, 30))")
    assert second.variable.startswith("imaging:defined2_") and services.dictionary.has_variable(KEY)


def test_no_outcome_changes_what_is_said(services: Services) -> None:
    said = define(bench(services), GOOD)
    table = Path(services.spec.cohort) / "clinical.csv"
    rows = [line.split(",") for line in table.read_text().splitlines()]
    turned = [
        rows[0],
        *([*row[:2], str(2000 - int(row[2])), str(1 - int(row[3]))] for row in rows[1:]),
    ]
    table.write_text("\n".join(",".join(row) for row in turned) + "\n")
    for path in (services.folder.root / "outputs" / "defined").iterdir():
        path.unlink()
    services.reload_cohorts()
    assert define(bench(services), GOOD) == said


def test_a_model_defines_and_claims(services: Services, tmp_path: Path) -> None:
    def script(told: list[dict[str, Any]]) -> Answer:
        if not told:
            return calling(("measurement_define", {"formulas": [GOOD]}))
        assert told[0]["checks"][0]["variable"] == KEY
        return answering(candidate(KEY, concepts=["B cells"]))

    played = Played(tmp_path, services.cohort, bench(services), script)
    assert played.variables == [{KEY}] and not played.errors


def test_there_is_no_tool_where_there_are_no_maps(services: Services) -> None:
    there = bench(services)
    with_maps = {tool.name for tool in at_the_bench(there).tools}
    there.measures = None
    assert with_maps - {tool.name for tool in at_the_bench(there).tools} == {"measurement_define"}
    with pytest.raises(InputError, match="maps"):
        define(there, GOOD)


def test_a_run_defines_a_bounded_number(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sage.run.measuring.MOST", 1)
    there = bench(services)
    assert define(there, GOOD)[0].variable == KEY
    assert "1 measurements" in define(there, "mean(hotspot(cells.b_cell, 30))")[0].refused
