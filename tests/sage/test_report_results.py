"""The report's tables of results: what a clinical reader looks for is there, and can be read."""

from __future__ import annotations

import base64
import csv
import io
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from sage.report.facts import Facts
from sage.report.results import ResultsPage, Table, read_results
from tests.validation.core_help import claim, patients, run_once
from validation.results.results import Figure, Results


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> tuple[ResultsPage, Results]:
    place = tmp_path_factory.mktemp("page")
    raw = patients(200, log_hr=0.7)
    raw.loc[::9, "stage"] = None
    results = run_once(place, raw, hypothesis=claim(covariates=["clinical:stage"]))
    home = place / "home"
    (home / "results").mkdir(parents=True)
    bare = results.model_copy(update={"figures": {}})
    (home / "results" / "results.json").write_text(bare.model_dump_json())
    found = read_results(home, "h1", Facts())
    assert found is not None
    return found, results


def table(page: ResultsPage, title: str) -> Table:
    return next(table for table in page.tables if table.title == title)


def test_flow_cut_points_e_values_and_notes_of_the_tests_are_shown(
    page: tuple[ResultsPage, Results],
) -> None:
    flow = table(page[0], "Flow of patients")
    assert [cell.text for cell in flow.rows[-1]] == ["OS known", "200", "200"]
    for step, following in pairwise(flow.rows):
        assert step[2].text == following[1].text, "each step goes on from the one before"
    single = {row[0].text: row[1].key for row in table(
        page[0], "Cut-points, assumptions, unmeasured confounding").rows}  # fmt: skip
    assert single["cut-point of the first exposure"] == "h1.cut.1.upper"
    assert single["E-value of the adjusted effect"] == "h1.adjusted.e_value"
    tests = table(page[0], "All tests")
    adjusted = next(row for row in tests.rows if row[0].text == "Adjusted model")
    assert adjusted[1].key == "h1.adjusted.n"
    assert tests.rows[0][4].key == "h1.primary.p"
    assert "23 patients" in (tests.note or "")


def test_an_exposure_that_was_refused_still_has_its_page(tmp_path: Path) -> None:
    """A claim that a leak ended has no numbers of groups; its reason must be read."""
    raw = patients(200)
    raw["marker"] = raw["dead"] + np.arange(200) / 1000
    results = run_once(tmp_path / "run", raw)
    home = tmp_path / "home"
    (home / "results").mkdir(parents=True)
    bare = results.model_copy(update={"figures": {}})
    (home / "results" / "results.json").write_text(bare.model_dump_json())
    assert "population.in_comparison" not in results.numbers
    found = read_results(home, "h1", Facts())
    assert found is not None
    basis = table(found, "What the verdict rests on")
    assert any("outcome" in row[2].text for row in basis.rows)


def test_a_figures_numbers_are_its_tables_and_no_cell_is_a_formula(
    page: tuple[ResultsPage, Results], tmp_path: Path
) -> None:
    results = page[1]
    evil = {"term": "=cmd()", "hazard ratio": "-1.5", "p": "@x", "95% CI": "-x"}
    tables = {**results.tables, "adjusted": (*results.tables.get("adjusted", ()), evil)}
    home = tmp_path / "home"
    (home / "results" / "figures").mkdir(parents=True)
    (home / "results" / "figures" / "forest.svg").write_text("<svg/>")
    drawn = {"forest": Figure(file="figures/forest.svg", title="Forest", caption="Effects.")}
    (home / "results" / "results.json").write_text(
        results.model_copy(update={"tables": tables, "figures": drawn}).model_dump_json()
    )
    found = read_results(home, "h1", Facts())
    assert found is not None
    (forest,) = found.figures
    assert (forest.name, forest.file) == ("h1-forest", "hypotheses/h1/results/figures/forest.svg")
    text = base64.b64decode(forest.data.partition(",")[2]).decode()
    rows = list(csv.DictReader(io.StringIO(text)))
    primary = next(row for row in rows if row["table"] == "primary")
    assert primary["hazard ratio"] == results.tables["primary"][0]["hazard ratio"]
    attacked = rows[-1]
    assert [attacked[name] for name in evil] == ["'=cmd()", "-1.5", "'@x", "'-x"]
