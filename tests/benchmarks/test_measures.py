"""The benchmark of planted spatial truth: its worlds hold what they say, and its path runs."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import NormalDist

import pytest

from benchmarks.adapters import measures
from mcp_servers.measures.formula import parse
from mcp_servers.measures.gate import spearman
from mcp_servers.measures.table import measure_patients


def test_each_planted_arrangement_is_on_the_slides() -> None:
    slides, planted = measures.simulate(3, 40)
    for truth, formula in zip(
        measures.TRUTHS,
        [
            "mean(ripley_l(cells.b_cell, 30))",
            "mean(density(cells.t_cell, within=regions.tumor))",
            "mean(neighbors(cells.b_cell, cells.t_cell, 30))",
        ],
        strict=True,
    ):
        rho = spearman(measure_patients([parse(formula)], slides).table[:, 0], planted[truth])
        assert rho is not None and rho > 0.6, truth


def test_a_planted_and_a_null_cohort_go_the_whole_path(tmp_path: Path) -> None:
    given = measures.prepare(2, discovery=20, confirmation=20)
    assert given.keep and len(given.measured.patients) == 40
    lines = [
        measures.try_cohort(tmp_path, given, seed, truth)
        for seed, truth in enumerate([measures.TRUTHS[0], measures.NULL])
    ]
    assert not list(tmp_path.iterdir())
    assert all(line.variable.removeprefix("imaging:") in given.keep for line in lines)
    assert not lines[1].found and lines[1].along is None
    assert lines[0].along is not None and not (lines[0].found and lines[0].false)
    rows = {row["name"]: row for row in measures.summarize(lines).data}
    assert rows["false claim in a null cohort"]["runs"] == 1


def test_the_confirmation_is_as_large_as_the_power_asks() -> None:
    events = measures.plan_patients() * measures.EVENTS
    z = math.sqrt(events) * measures.CORRELATION * math.log(measures.HAZARD_RATIO)
    assert NormalDist().cdf(z - 1.96) == pytest.approx(0.9, abs=0.01)
    assert measures.DISCOVERY == 2 * measures.CONFIRMATION
