"""Cohorts: what is read, what is refused, and what the data dictionary tells."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sage.core.errors import InputError
from sage.core.hashes import hash_file
from tests.validation.core_help import load, patients, write
from validation import cohort as cohorts
from validation.cohort.derive import log2_cpm


def test_rows_leave_a_cohort_under_pseudonyms_only(tmp_path: Path) -> None:
    cohort = load(tmp_path, patients())
    table = cohort.table(["clinical:marker"], ["OS"])
    assert table.index[0] == "P0001"
    assert not table.index.str.contains("ID").any()
    assert "ID0" not in cohort.dictionary().model_dump_json()


def test_levels_under_five_are_pooled_in_the_dictionary(tmp_path: Path) -> None:
    raw = patients()
    raw.loc[:2, "sex"] = "unrecorded"
    raw.loc[3:5, "sex"] = "other"
    levels = next(
        variable
        for variable in load(tmp_path, raw).dictionary().variables
        if variable.key == "clinical:sex"
    ).levels
    assert "unrecorded" not in levels
    assert levels["other (pooled)"] == 6


def test_a_missing_column_is_named_with_the_one_that_was_meant(tmp_path: Path) -> None:
    folder = write(tmp_path, patients().rename(columns={"months": "OS.months"}))
    with pytest.raises(InputError, match=r'"months".*"OS\.months"'):
        cohorts.load(folder)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dead": [1, 2] * 120}, r"2 \(120 rows\)"),
        ({"months": ["420"] + ["10"] * 239}, "420"),
        ({"months": ["-3"] + ["10"] * 239}, "negative"),
        ({"marker": ["high"] + ["1.5"] * 239}, "high"),
        ({"patient": ["ID0"] * 240}, "several rows"),
    ],
)
def test_bad_values_are_refused_by_name(
    tmp_path: Path, change: dict[str, list[object]], words: str
) -> None:
    cohort = load(tmp_path, patients().assign(**change))
    with pytest.raises(InputError, match=words):
        cohort.table(["clinical:marker"], ["OS"])


def test_implausible_times_can_be_excluded_by_the_cohort_s_own_rule(tmp_path: Path) -> None:
    raw = patients()
    raw.loc[0, "months"] = 420
    cohort = load(tmp_path, raw, endpoint='invalid_times = "exclude"')
    assert len(cohort.outcome("OS")) == 239


def test_event_strings_and_both_polarities_are_read_as_declared(tmp_path: Path) -> None:
    raw = patients()
    raw["status"] = np.where(raw["dead"] == 1, "1:DECEASED", "0:LIVING")
    raw["censoring"] = 1 - raw["dead"]
    more = """
[endpoints.strings]
kind = "survival"
table = "clinical"
time = "months"
time_unit = "months"
event = "status"
event_values = ["1:DECEASED"]
censored_values = ["0:LIVING"]
[endpoints.inverted]
kind = "survival"
table = "clinical"
time = "months"
time_unit = "months"
event = "censoring"
event_values = [0]
censored_values = [1]
"""
    cohort = load(tmp_path, raw, more=more)
    deaths = int(raw["dead"].sum())
    assert int(cohort.outcome("strings")["event"].sum()) == deaths
    assert int(cohort.outcome("inverted")["event"].sum()) == deaths


def test_files_outside_the_root_are_refused_also_through_links(tmp_path: Path) -> None:
    folder = write(tmp_path / "cohort", patients())
    (tmp_path / "secret.csv").write_text("patient\nA\n", encoding="utf-8")
    (folder / "clinical.csv").unlink()
    (folder / "clinical.csv").symlink_to(tmp_path / "secret.csv")
    with pytest.raises(InputError):
        cohorts.load(folder)


def test_expression_duplicates_and_normals_follow_the_written_rules(tmp_path: Path) -> None:
    ids = [f"TCGA-AA-{at:04d}" for at in range(40)]
    raw = patients(40).assign(patient=ids)
    samples = [f"{item}-01A" for item in ids] + [f"{ids[0]}-01B", f"{ids[1]}-11A"]
    rng = np.random.default_rng(0)
    counts = rng.poisson(200, size=(4, len(samples)))
    counts[:, -1] = 100_000  # the normal sample would stand out
    table = pd.DataFrame(counts, columns=samples)
    table.insert(0, "symbol", ["AAA", "BBB", "BBB", ""])
    more = """
[expression]
file = "counts.csv"
symbol = "symbol"
scale = "counts"
transform = "log2cpm"
"""
    folder = write(tmp_path, raw, more=more)
    text = (folder / "cohort.toml").read_text()
    text = text.replace('patient = { table = "clinical" }',
                        'patient = { table = "clinical", ids = "tcga" }')  # fmt: skip
    (folder / "cohort.toml").write_text(text)
    table.to_csv(folder / "counts.csv", index=False)
    cohort = cohorts.load(folder)
    matrix = cohort.expression
    assert matrix is not None
    assert matrix.genes == ["AAA", "BBB"]
    assert len(matrix.patients) == 40
    expected = log2_cpm(counts.astype(float), counts.sum(axis=0).astype(float))
    twice = (expected[0, 0] + expected[0, 40]) / 2
    assert matrix.column("AAA")[ids[0]] == pytest.approx(twice, rel=1e-6)
    higher = expected[1:3].mean(axis=1).argmax() + 1
    assert matrix.column("BBB")[ids[5]] == pytest.approx(expected[higher, 5], rel=1e-6)


def test_a_matrix_that_was_written_again_under_its_old_date_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from validation.cohort import expression

    hashed: list[Path] = []

    def counted(path: Path) -> str:
        hashed.append(path)
        return hash_file(path)

    monkeypatch.setattr(expression, "hash_file", counted)
    path, cache = tmp_path / "matrix.csv", tmp_path / "cache"
    path.write_text("a,1")
    first = expression._digest(path, cache)
    assert expression._digest(path, cache) == first and len(hashed) == 2  # it may still change
    monkeypatch.setattr(expression, "SETTLED_S", -1.0)
    assert expression._digest(path, cache) == first and len(hashed) == 3
    assert expression._digest(path, cache) == first and len(hashed) == 3
    at = path.stat()
    time.sleep(0.02)
    path.write_text("a,2")
    os.utime(path, ns=(at.st_atime_ns, at.st_mtime_ns))
    assert expression._digest(path, cache) == hash_file(path) != first


@pytest.mark.parametrize(
    ("orientation", "number"),
    [("genes_by_samples", "float32"), ("genes_by_samples", "str"), ("samples_by_genes", "Int64")],
)
def test_a_parquet_matrix_gives_what_the_same_table_gives_as_text(
    tmp_path: Path, orientation: str, number: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from validation.cohort import expression, matrix
    from validation.cohort.model import ExpressionSpec

    # Blocks smaller than the table, so that their seams are crossed.
    monkeypatch.setattr(matrix, "COLUMNS_AT_ONCE", 3)
    monkeypatch.setattr(expression, "GENES_AT_ONCE", 4)
    rng = np.random.default_rng(5)
    values = rng.integers(0, 400, size=(11, 9))
    genes = [f"G{at}" for at in range(9)] + ["G2", ""]
    samples = ["TCGA-AA-0001-01A", "TCGA-AA-0001-01B", "TCGA-AA-0001-11A"]
    samples += [f"TCGA-AA-00{at:02d}-01A" for at in range(9, 3, -1)]
    table = pd.DataFrame(values, columns=samples).astype(number)
    table.insert(0, "name", genes)
    if orientation == "samples_by_genes":
        table = pd.DataFrame(values[:9].T, columns=genes[:9]).astype(number)
        table.insert(0, "name", samples)
    table.to_csv(tmp_path / "m.csv", index=False)
    table.to_parquet(tmp_path / "m.parquet", engine="fastparquet", index=False)
    found = []
    for name, cache in (("m.csv", None), ("m.parquet", None), ("m.parquet", tmp_path / "kept")):
        spec = ExpressionSpec(
            file=name, orientation=orientation, symbol="name", sample="name", scale="counts",
            transform="log2cpm", duplicate_samples="mean", duplicate_genes="highest_mean",
        )  # fmt: skip
        found.append(expression.load_expression(spec, tmp_path, "tcga", cache))
    first, *others = found
    assert first.values.shape == (9, 7) and first.values.dtype == np.float32
    for other in others:
        assert (other.genes, other.patients) == (first.genes, first.patients)
        assert (other.reports, other.notes) == (first.reports, first.notes)
        np.testing.assert_array_equal(other.values, first.values)


def test_a_parquet_matrix_with_words_or_cut_short_is_refused_by_name(tmp_path: Path) -> None:
    from validation.cohort.expression import load_expression
    from validation.cohort.model import ExpressionSpec

    table = pd.DataFrame({"symbol": ["A", "B"], "P1": ["1.5", "high"], "P2": ["2", "3"]})
    path = tmp_path / "m.parquet"
    table.to_parquet(path, engine="fastparquet", index=False)
    spec = ExpressionSpec(file=path.name, symbol="symbol", scale="log2")
    with pytest.raises(InputError, match="P1"):
        load_expression(spec, tmp_path, "exact", None)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match=r"m\.parquet"):
        load_expression(spec, tmp_path, "exact", tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("first", ["derived:one", "derived:two"])
def test_a_variable_derived_from_itself_is_refused(tmp_path: Path, first: str) -> None:
    more = "".join(
        f'\n[derived.{name}]\nformula = "ratio"\nof = ["{part}", "clinical:marker"]\n'
        for name, part in (("one", first), ("two", "derived:one"))
    )
    with pytest.raises(InputError, match="derived:one"):
        load(tmp_path, patients(30), more=more)


def test_features_computed_on_slides_become_imaging_variables(tmp_path: Path) -> None:
    cohort = load(tmp_path / "cohort", patients(60))
    rows = "patient,slide,status,lymphoid_density,note\n"
    for at in range(50):
        rows += f"ID{at:04d},s{at},ok,{at},fine\nID{at:04d},t{at},ok,{at + 2},fine\n"
    rows += "ID0050,s50,failed,,unreadable slide\nSTRANGER,s,ok,1,fine\n"
    path = tmp_path / "out" / "lymphoid_aggregates.csv"
    path.parent.mkdir()
    path.write_text(rows)
    found = cohort.with_features(path)
    key = "imaging:lymphoid_aggregates_lymphoid_density"
    column = found.column(key)
    assert column["ID0003"] == 4.0
    assert int(column.notna().sum()) == 50
    assert found.dictionary().has_variable(key)
    assert not cohort.dictionary().has_variable(key)
    assert "features/lymphoid_aggregates.csv" in found.hashes()


# -- check ---------------------------------------------------------------------------------------


def test_a_broken_description_hides_no_other_cohort(tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "cohort.toml").write_text("id = [")
    found = {summary.id: summary.title for summary in cohorts.available([tmp_path])}
    assert {"broken", "gbsg2"} <= found.keys()
