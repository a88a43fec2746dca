"""What `sage cohort check` finds in tables that are wrong or merely odd."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from tests.validation.core_help import load, patients, write
from validation import cohort as cohorts
from validation.cohort.findings import check_cohort


def codes_of(folder: Path) -> dict[str, str]:
    return {item.code: item.severity for item in cohorts.check(folder)}


def test_check_finds_an_inverted_event_flag(tmp_path: Path) -> None:
    raw = patients()
    raw["vital_status"] = np.where(raw["dead"] == 1, "Alive", "Dead")
    assert codes_of(write(tmp_path, raw))["inverted_event"] == "error"


def test_check_finds_times_that_are_nothing_or_in_another_unit(tmp_path: Path) -> None:
    half = patients()
    half.loc[half.index % 2 == 0, "months"] = 0
    assert codes_of(write(tmp_path / "zero", half))["times_at_zero"] == "warning"
    years = patients().assign(months=lambda table: table["months"] / 12 / 12)
    assert codes_of(write(tmp_path / "years", years))["short_times"] == "warning"
    same = patients().assign(months=60)
    assert codes_of(write(tmp_path / "same", same))["one_time"] == "error"


def test_check_finds_codes_read_as_numbers_and_values_out_of_proportion(tmp_path: Path) -> None:
    coded = patients()
    coded.loc[:4, "marker"] = -99
    found = cohorts.check(write(tmp_path / "coded", coded))
    assert [item.code for item in found] == ["missing_code"]
    assert "-99" in found[0].message
    slip = patients()
    slip.loc[7, "marker"] = 1e12
    found = cohorts.check(write(tmp_path / "slip", slip))
    assert [item.code for item in found] == ["outlier"]
    heavy = patients()
    heavy["marker"] = np.exp(2 * heavy["marker"])
    assert codes_of(write(tmp_path / "heavy", heavy)) == {}


def test_check_finds_a_level_per_patient(tmp_path: Path) -> None:
    named = patients().assign(sex=lambda table: table["patient"] + "x")
    text = write(tmp_path / "named", named) / "cohort.toml"
    text.write_text(text.read_text().replace('kind = "binary"', 'kind = "categorical"'))
    assert codes_of(tmp_path / "named") == {"many_levels": "warning"}


def test_check_finds_repeated_headers(tmp_path: Path) -> None:
    raw = patients().astype(str)
    header = pd.DataFrame([list(raw.columns)] * 2, columns=raw.columns)
    folder = write(tmp_path, pd.concat([header, raw]))
    found = cohorts.check(folder)
    assert any(
        item.code == "repeated_header" and "header_rows = 3" in item.remedy for item in found
    )


def test_header_rows_reads_past_repeated_headers(tmp_path: Path) -> None:
    raw = patients().astype(str)
    header = pd.DataFrame([list(raw.columns)] * 2, columns=raw.columns)
    cohort = load(tmp_path, pd.concat([header, raw]), extra_table="header_rows = 3")
    assert len(cohort.patients) == 240
    assert "repeated_header" not in {item.code for item in check_cohort(cohort)}


def test_check_finds_short_identifiers(tmp_path: Path) -> None:
    ids = [f"TCGA-AA-{at:04d}" for at in range(240)]
    raw = patients().assign(patient=ids)
    more = '[tables.short]\nfile = "short.csv"\nkey = "id"\n'
    folder = write(tmp_path, raw, more=more)
    pd.DataFrame({"id": [item[-4:] for item in ids], "x": 1}).to_csv(
        folder / "short.csv", index=False
    )
    assert codes_of(folder)["short_ids"] == "error"
