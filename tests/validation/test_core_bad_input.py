"""Data that cannot bear a number: a named refusal or an inconclusive verdict."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sage.core.errors import InputError
from tests.validation.core_help import claim, patients, run_once


def fixed(threshold: float) -> dict[str, object]:
    cut = {"variable": "clinical:marker", "label": "m", "cut": "fixed", "threshold": threshold}
    return {"exposures": [cut]}


RAW = patients()
FIFTH = float(RAW["marker"].nlargest(5).min()) - 1e-6


@pytest.mark.parametrize(
    ("changed", "claimed"),
    [
        ({"dead": 0}, {}),
        ({"dead": (RAW.index < 6).astype(int)}, {}),
        ({"marker": 1.0}, {}),
        ({"marker": RAW["marker"].where(RAW.index % 20 == 0)}, {}),
        ({}, fixed(99.0)),
        ({}, fixed(FIFTH)),
    ],
    ids=["no events", "few events", "constant", "missing", "empty group", "small group"],
)
def test_data_that_bear_no_number_give_none(
    tmp_path: Path, changed: dict[str, object], claimed: dict[str, object]
) -> None:
    try:
        found = run_once(tmp_path, RAW.assign(**changed), hypothesis=claim(**claimed))
    except InputError:
        return
    assert found.verdict.verdict == "inconclusive", found.verdict
    assert "primary.p" not in found.numbers


def test_an_outcome_that_contradicts_the_known_positive_is_in_doubt(tmp_path: Path) -> None:
    raw = patients(400, log_hr=1.0)
    order = np.random.default_rng(1).permutation(len(raw))
    raw["stage"] = raw["stage"].to_numpy()[order]
    found = run_once(tmp_path, raw)
    assert (found.verdict.verdict, found.verdict.because) == ("inconclusive", "control")
