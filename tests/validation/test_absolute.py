"""Absolute risks by a horizon, against R (absolute_reference/reference.R) and by the command."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.validation.core_help import NODE, STRONG, patients, validate, write
from validation.results.results import Results
from validation.statistics import absolute
from validation.statistics.base import Estimate, FloatArray
from validation.statistics.binary import logistic
from validation.statistics.cox import cox
from validation.statistics.partial_likelihood import RiskSets
from validation.statistics.survival import kaplan_meier

HERE = Path(__file__).parent / "absolute_reference"
R = {
    line.split(",")[0]: np.array(line.strip(",").split(",")[1:], dtype=float)
    for line in (HERE / "figures.csv").read_text().splitlines()
}
D = pd.read_csv(HERE / "patients.csv")
TIME, EXACT, Y, G = (D[key].to_numpy(float) for key in ["time", "exact", "y", "g"])
EVENT, X, NAMES = D["event"].to_numpy() == 1, D[["g", "x", "b"]].to_numpy(float), ["g", "x", "b"]
HORIZON = 24.0


SIDES = ("exposed", "reference")


def estimates(name: str) -> FloatArray:
    """Compute what R computed."""
    if name.startswith("standardized"):
        found = absolute.standardized_hazards(TIME, EVENT, X, cox(TIME, EVENT, X, NAMES), HORIZON)
        return found.value if name == "standardized" else np.array([found.difference.se])
    if name == "ate":
        found = absolute.standardized_hazards(EXACT, EVENT, X, cox(EXACT, EVENT, X, NAMES), HORIZON)
    elif name == "ate_logistic":
        found = absolute.standardized_odds(Y, X, logistic(Y, X, NAMES))
    elif name == "weighted":
        fit = absolute.weighted_hazards(weighed(), X[:, :1], ["g"])
        return np.array([np.log(fit.value), fit.se])
    elif name == "weighted_risk":
        found = absolute.weighted_risks(weighed(), G, HORIZON)
        return np.array([*found.value[::-1], *np.linalg.norm(found.error, axis=0)[::-1]])
    else:
        deltas = [float(delta) for delta in name.split("_")[1:]]
        doubted = absolute.doubted_risks(TIME, EVENT, G, HORIZON, (deltas[0], deltas[1]))
        difference = doubted.difference
        return np.array([difference.value, difference.se])
    return np.array([*found.value[::-1], found.difference.value, found.difference.se])


def weighed() -> list[RiskSets]:
    """Weigh the patients that R weighed."""
    return absolute.weigh_censoring(TIME, EVENT, ~EVENT, X, NAMES)[0]


@pytest.mark.parametrize("name", R)
def test_absolute_risks_equal_those_of_r(name: str) -> None:
    near = 1e-6 if name.startswith(("ate", "standardized_", "doubted")) else 1e-8
    np.testing.assert_allclose(estimates(name), R[name], rtol=near)


def test_without_doubt_risks_are_kaplan_meiers_and_a_tipping_point_has_zero_as_limit() -> None:
    plain = absolute.doubted_risks(TIME, EVENT, G, HORIZON, (1.0, 1.0))
    for side, risk in zip((1.0, 0.0), plain.value, strict=True):
        curve = kaplan_meier(TIME[side == G], EVENT[side == G])
        assert risk == pytest.approx(1 - curve.survival_at([HORIZON])[0], abs=1e-12)
    extremes = [(0.0, np.inf), (1.0, 1.0), (np.inf, 0.0)]
    values = [
        absolute.doubted_risks(TIME, EVENT, G, HORIZON, deltas).difference.value
        for deltas in extremes
    ]
    assert values == sorted(values)

    def at(delta: float) -> Estimate:
        rows = slice(0, 60)
        found = absolute.doubted_risks(TIME[rows], EVENT[rows], G[rows], HORIZON, (1.0, delta))
        return found.difference

    tip = absolute.tipping_delta(at, 1.0, up=True)
    assert tip is not None and at(tip).lower == pytest.approx(0.0, abs=1e-9)
    assert absolute.tipping_delta(at, 1.0, up=False) is None


NUMBERS = {
    "risk_difference": ("exposed.risk", "difference.lower", "p", "summary"),
    "censoring": (
        "weighted.effect",
        "plain.effect",
        "weighted.risks.difference.value",
        "sensitivity",
    ),
    "tipping_point": ("exposed.lost", "reference.delta", "difference.upper", "sensitivity"),
}


@pytest.mark.parametrize(
    ("raw", "refused"),
    [
        (patients(400, log_hr=STRONG), ()),
        (patients(400, log_hr=STRONG).assign(dead=1), ("censoring", "tipping_point")),
    ],
    ids=["censored", "all dead"],
)
def test_the_command_reports_absolute_risks_or_the_reason_why_not(
    raw: pd.DataFrame, refused: tuple[str, ...], tmp_path: Path
) -> None:
    folder = write(tmp_path / "toy", raw)
    validate(tmp_path, folder, covariates=["clinical:stage", "clinical:sex"])
    found = Results.load(tmp_path / "out" / "marker-os" / "results.json")
    for name, numbers in NUMBERS.items():
        test = found.test(name)
        assert test is not None and not test.claim
        assert (test.status == "refused" and bool(test.reason)) == (name in refused), test
        if name not in refused:
            assert all(f"{name}.{number}" in found.numbers for number in numbers)
            assert name in found.tables


def test_a_binary_outcome_has_a_standardized_difference_and_its_own_tipping_points(
    tmp_path: Path,
) -> None:
    raw = patients(500)
    high = raw["marker"] > raw["marker"].median()
    raw["node"] = np.where(np.random.default_rng(2).random(500) < 0.3 + 0.15 * high, "N1", "N0")
    raw.loc[::5, "node"] = ""
    folder = write(tmp_path / "toy", raw, more=NODE)
    validate(tmp_path, folder, endpoint="node", covariates=["clinical:stage", "clinical:sex"])
    found = Results.load(tmp_path / "out" / "marker-os" / "results.json")
    assert found.test("censoring") is None
    assert numbers_of(found, "tipping_point", "lost").sum() == 100
    known = raw["node"] != ""
    high = raw["marker"] > raw.loc[known, "marker"].median()
    crude = [(raw.loc[known & (high == side), "node"] == "N1").mean() for side in (True, False)]
    np.testing.assert_allclose(numbers_of(found, "tipping_point", "risk"), np.array(crude))
    tips = numbers_of(found, "tipping_point", "delta")
    assert not tips[0] >= 1 and not tips[1] <= 1
    limits = [limit for limit in found.verdict.limits if "times the hazard" in limit]
    assert len(limits) == int(((tips > 0.5) & (tips < 2)).sum())
    np.testing.assert_allclose(
        numbers_of(found, "risk_difference", "risk"), np.array(crude), atol=0.02
    )


def numbers_of(found: Results, test: str, name: str) -> FloatArray:
    """Return a number of exposed and reference patients; NaN if there is none."""
    values = [found.numbers[f"{test}.{side}.{name}"].value for side in SIDES]
    return np.array([np.nan if value is None else value for value in values])
