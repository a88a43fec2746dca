"""Measurements become variables that a cohort takes as they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.adapters.measures import write_table
from mcp_servers.measures.formula import parse
from mcp_servers.measures.table import measure_patients
from tests.mcp_servers.measures.test_gate import patients
from validation import cohort

BASE = """
id = "measured"
title = "Measured"
patient = { table = "clinical", ids = "exact" }

[tables.clinical]
file = "clinical.csv"
key = "patient"

[endpoints.OS]
kind = "survival"
table = "clinical"
time = "days"
time_unit = "days"
event = "dead"
event_values = [1]
censored_values = [0]

"""


def test_a_cohort_takes_them_known_at_baseline(tmp_path: Path) -> None:
    slides = [
        replace(maps, outside_card=("blurred",)) if maps.patient == "P03" else maps
        for maps in patients(12, slides=2)
    ]
    measurements = [
        parse("pooled(density(cells.b))"),
        parse("mean(nearest(cells.a, cells.c, mean))"),
        parse('mean(ripley_l(cells.a, 60) - quantity(60, "µm"))'),
        parse("mean(nearest(cells.a, cells.b, median))"),
    ]
    measured = measure_patients(measurements, slides)
    write_table(measured, tmp_path, [m.name for m in measurements if "cells_c" not in m.name])
    rows = [f"P{i:02},{100 + i},{i % 2}" for i in range(12)]
    (tmp_path / "clinical.csv").write_text("patient,days,dead\n" + "\n".join(rows) + "\n")
    lines = (tmp_path / "measured.toml").read_text()
    (tmp_path / "cohort.toml").write_text(BASE + lines)
    dictionary = cohort.load(str(tmp_path)).dictionary()
    found = {variable.key: variable for variable in dictionary.variables}
    density = found[f"imaging:{measurements[0].name}"]
    assert density.unit == "1/mm²" and density.known_at == "baseline" and density.n == 11
    assert density.label == "number of b cells per mm² of the tissue"
    assert "Formula: pooled(density(cells.b))" in density.note and not density.synonyms
    nearest = found[f"imaging:{measurements[3].name}"]
    assert nearest.synonyms == (
        "spatial arrangement of a cells",
        "spatial arrangement of b cells",
    )
    assert f"imaging:{measurements[1].name}" not in found
    column = cohort.load(str(tmp_path)).column(density.key).dropna()
    assert sorted(column) == pytest.approx(sorted(measured.table[[*range(3), *range(4, 12)], 0]))
