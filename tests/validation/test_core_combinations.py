"""Options that meet: strata and negative controls, mixed cuts, imputation and competing risks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sage.core.errors import InputError
from tests.validation.core_help import NODE, cause_of_death, patients, validate, write

MARKER = {"variable": "clinical:marker", "label": "marker"}
CENTER = """
[variables.center]
table = "clinical"
column = "center"
kind = "categorical"
label = "Center"

[endpoints.accident]
kind = "survival"
table = "clinical"
time = "months_to_accident"
time_unit = "months"
event = "accident"
event_values = [1]
censored_values = [0]
label = "Accident"
"""
CAUSE = cause_of_death(1, 2, 0)


def test_a_negative_control_is_compared_within_the_claims_strata(tmp_path: Path) -> None:
    """Where centers differ in marker and accidents, only a comparison within them is clean."""
    from lifelines import CoxPHFitter

    raw = patients(400)
    rng = np.random.default_rng(8)
    center = np.where(raw["marker"] + rng.normal(size=400) > 0, "north", "south")
    time = rng.exponential(np.where(center == "north", 12, 60))
    raw = raw.assign(
        center=center,
        months_to_accident=np.round(np.minimum(time, 90) + 0.1, 2),
        accident=(time < 90).astype(int),
    )
    cohort = write(tmp_path / "cohort", raw, more=CENTER)
    found = validate(
        tmp_path, cohort, strata=["clinical:center"], negative_endpoint="accident"
    )  # fmt: skip
    high = (raw["marker"] > raw["marker"].median()).astype(float)
    theirs = CoxPHFitter().fit(
        raw[["months_to_accident", "accident", "center"]].assign(high=high),
        "months_to_accident",
        "accident",
        strata=["center"],
    )
    assert found["numbers"]["control.negative.effect"]["value"] == pytest.approx(
        float(theirs.hazard_ratios_["high"]), rel=1e-3
    )
    assert found["numbers"]["control.negative.p"]["value"] > 0.05
    assert found["verdict"]["because"] != "control"


@pytest.mark.parametrize(("cut", "endpoint"), [("optimal", "node"), ("spline", "cause")])
def test_a_cut_rule_that_an_endpoint_lacks_is_refused_and_never_replaced(
    tmp_path: Path, cut: str, endpoint: str
) -> None:
    raw = patients(120).assign(cause=lambda table: table["dead"])
    cohort = write(tmp_path / "cohort", raw, more=NODE + CAUSE)
    with pytest.raises(InputError, match=f'"{cut}".*"{endpoint}"'):
        validate(tmp_path, cohort, exposures=[MARKER | {"cut": cut}], endpoint=endpoint)
    assert not (tmp_path / "out").exists()


def test_a_u_shaped_association_is_of_no_direction(tmp_path: Path) -> None:
    raw = patients(500, seed=4)
    rng = np.random.default_rng(3)
    time = rng.exponential(40 / np.exp(0.9 * raw["marker"].abs()))
    raw = raw.assign(
        months=np.round(np.minimum(time, 60) + 0.1, 2), dead=(time < 60).astype(int), stage=1
    )
    cohort = write(tmp_path / "cohort", raw)
    found = validate(tmp_path, cohort, comparison="per_sd", exposures=[MARKER | {"cut": "spline"}])
    assert found["numbers"]["primary.p"]["value"] < 0.01
    low, high = (found["numbers"][f"primary.{item}"]["value"] for item in ("lower", "upper"))
    assert low < 1 < high
    assert found["verdict"]["verdict"] == "inconclusive"
