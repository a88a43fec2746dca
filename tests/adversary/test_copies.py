"""Patients who stand several times under new identifiers, and honest cohorts that do not.

Sixteen public cohorts (tests/validation/r) are attacked and left alone.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sage.core.errors import InputError
from tests.validation.core_help import frozen_for, load, patients, write
from validation import cohort as cohorts
from validation.cohort.copies import Copies, find_cohort_copies, find_copies, place_patients
from validation.cohort.findings import check_cohort

COHORTS = Path(__file__).parents[1] / "validation" / "r" / "cohorts"
NAMES = sorted(path.name.split(".")[0] for path in COHORTS.glob("*.csv.gz"))
SMALL = ("kidney", "ovarian", "rats")
"""Too few patients, or two coarse columns: a copy there is like any other patient."""
Attack = Callable[[pd.DataFrame, np.random.Generator], pd.DataFrame]


def read(name: str) -> pd.DataFrame:
    return pd.read_csv(COHORTS / f"{name}.csv.gz")


def copies_in(table: pd.DataFrame) -> Copies | None:
    covariates = table[[name for name in table if name.startswith("x.")]]
    owner = table["cluster"].to_numpy() if "cluster" in table else None
    time, event = table["time"].to_numpy(float), table["status"].to_numpy(float)
    return find_copies(place_patients(covariates), time, event, owner)


def repeated(table: pd.DataFrame, more: np.ndarray) -> pd.DataFrame:
    again = table.iloc[np.concatenate([np.arange(len(table)), more])].reset_index(drop=True)
    return again.drop(columns="cluster", errors="ignore")


def three_times(table: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    return repeated(table, np.tile(np.arange(len(table)), 2))


def a_fifth_twice(table: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    return repeated(table, rng.choice(len(table), len(table) // 5, replace=False))


def with_noise(table: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    """Covariates by a twentieth of their deviation, times by two percent."""
    found = three_times(table, rng).astype(float)
    for name in found:
        if name.startswith("x.") and found[name].nunique() > 6:
            found[name] += 0.05 * found[name].std() * rng.normal(size=len(found))
    return found.assign(time=found["time"] * np.exp(0.02 * rng.normal(size=len(found))))


def with_a_random_column(table: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    found = three_times(table, rng)
    return found.assign(**{"x.new": rng.normal(size=len(found))})


ATTACKS = (a_fifth_twice, with_noise, with_a_random_column)


def coarse(table: pd.DataFrame) -> pd.DataFrame:
    """Three columns of two levels and times in a few whole units: honest patients tie."""
    names = [name for name in table if name.startswith("x.")]
    halves = {name: (table[name] > table[name].median()).astype(int) for name in names[:3]}
    time = np.ceil(6 * table["time"] / table["time"].median())
    return table.drop(columns=names).assign(time=time, **halves)


@pytest.mark.parametrize("name", NAMES)
def test_honest_cohorts_hold_no_copies(name: str) -> None:
    table = read(name)
    assert copies_in(table) is None
    assert copies_in(coarse(table)) is None
    assert copies_in(table.assign(time=np.ceil(12 * table["time"] / table["time"].max()))) is None


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
@pytest.mark.parametrize("name", [name for name in NAMES if name not in SMALL][::2])
def test_copies_are_found(name: str, attack: Attack) -> None:
    table = read(name).head(2000)
    found = copies_in(attack(table, np.random.default_rng(1)))
    assert found is not None
    beyond = sum(max(pair) >= len(table) for pair in found.pairs)
    assert beyond > 0.9 * len(found.pairs)


def test_copies_stop_the_check_and_any_contract(tmp_path: Path) -> None:
    raw = patients(120)
    again = [raw.assign(patient=raw["patient"] + f"-{at}") for at in range(3)]
    cohort = load(tmp_path / "c", pd.concat(again, ignore_index=True))
    found = [item for item in check_cohort(cohort) if item.code == "copied_patients"]
    assert [item.severity for item in found] == ["error"]
    assert "360 patients" in found[0].message and "ID0000-" in found[0].message
    with pytest.raises(InputError) as refused:
        frozen_for(cohort)
    assert "ID0000" not in str(refused.value)
    assert "copied_patients" not in {item.code for item in check_cohort(load(tmp_path / "d", raw))}


def test_rows_of_one_patient_are_no_copies(tmp_path: Path) -> None:
    raw = patients(120)
    slides = [raw.assign(patient=raw["patient"] + at, person=raw["patient"]) for at in "ab"]
    more = '[variables.person]\ntable = "clinical"\ncolumn = "person"\nkind = "categorical"\n'
    folder = write(tmp_path, pd.concat(slides, ignore_index=True), more=more)
    assert find_cohort_copies(cohorts.load(folder)) is not None
    description = folder / "cohort.toml"
    base = 'patient = { table = "clinical"'
    text = description.read_text().replace(base, f'{base}, cluster = "clinical:person"')
    description.write_text(text)
    assert find_cohort_copies(cohorts.load(folder)) is None
