"""Lasso and ridge scores: against R, lifelines and the conditions of a maximum, and by command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from lifelines import CoxPHFitter

from sage.core.seeds import generator
from tests.validation.core_help import claim, patients, validate, write
from validation.results.results import Results
from validation.statistics.errors import ConvergenceError
from validation.statistics.penalized import OUTER, _folds, _Partial, out_of_fold, penalized_cox

HERE = Path(__file__).parent
RNG = np.random.default_rng(0)
N, K = 240, 8
X = RNG.normal(size=(N, K)) + 0.5 * RNG.normal(size=(N, 1))
X = (X - X.mean(axis=0)) / X.std(axis=0, ddof=1)
HAZARD = np.exp(0.6 * X[:, 0] - 0.4 * X[:, 1])
DIED, STOP = RNG.exponential(1 / HAZARD), RNG.exponential(1.5, N)
TIME, EVENT = np.minimum(DIED, STOP), DIED <= STOP


@pytest.mark.parametrize("row", (HERE / "penalized_reference" / "figures.csv").read_text().split())
def test_ridge_models_are_those_of_r(row: str) -> None:
    size, *coefs = map(float, row.split(","))
    d = pd.read_csv(HERE / "absolute_reference" / "patients.csv")
    markers = d[["g", "x", "b"]]
    markers = (markers - markers.mean()) / markers.std()
    found = penalized_cox(d.time, d.event, markers, "ridge", size)
    np.testing.assert_allclose(found, coefs, atol=1e-8)


@pytest.mark.parametrize(("penalty", "share"), [("ridge", 0.0), ("lasso", 1.0)])
@pytest.mark.parametrize("size", [0.02, 0.1])
def test_models_are_those_of_lifelines(penalty: Any, share: float, size: float) -> None:
    table = pd.DataFrame(X).assign(time=TIME, event=EVENT)
    theirs = CoxPHFitter(penalizer=size, l1_ratio=share)
    theirs.fit(table, "time", "event", fit_options={"precision": 1e-12})
    found = penalized_cox(TIME, EVENT, X, penalty, size)
    np.testing.assert_allclose(found, theirs.params_, atol=1e-5)


def test_the_lasso_meets_the_conditions_of_its_maximum() -> None:
    beta = penalized_cox(np.ceil(TIME * 10), EVENT, X, "lasso", 0.05)
    slope = _Partial(np.ceil(TIME * 10), EVENT, X[None]).derivatives(beta[None])[0][0]
    kept = beta != 0
    assert 0 < kept.sum() < K
    np.testing.assert_allclose(slope[kept], 0.05 * np.sign(beta[kept]), atol=1e-8)
    assert np.all(np.abs(slope[~kept]) <= 0.05 + 1e-8)


def test_a_model_that_does_not_converge_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("validation.statistics.penalized._STEPS", 1)
    with pytest.raises(ConvergenceError):
        penalized_cox(TIME, EVENT, X, "ridge", 0.01)


@pytest.mark.parametrize("penalty", ["ridge", "lasso"])
def test_no_patient_is_scored_by_their_own_outcome_or_another_set(penalty: Any) -> None:
    folds = _folds(EVENT, OUTER, generator(3, N, 17))
    held = folds == 2
    other = TIME.copy()
    other[held] = np.random.default_rng(1).permutation(other[held])
    both = np.array([X, X[::-1]])
    plain = out_of_fold(TIME, EVENT, both, penalty, 3).scores
    moved = out_of_fold(other, EVENT, X[None], penalty, 3).scores[0]
    np.testing.assert_allclose(moved[held], plain[0, held], atol=1e-7)
    assert not np.allclose(moved[~held], plain[0, ~held], atol=1e-4)
    apart = out_of_fold(TIME, EVENT, X[None, ::-1], penalty, 3).scores[0]
    np.testing.assert_allclose(apart, plain[1], atol=1e-7)


MARKERS = [
    {"variable": f"clinical:m{at}", "label": f"M{at}", "cut": "continuous"} for at in range(9)
]


def with_markers(folder: Path, effect: float) -> Path:
    raw, rng = patients(220), np.random.default_rng(7)
    signal = rng.normal(size=220)
    died = rng.exponential(40 / np.exp(effect * signal + 0.4 * (raw["stage"] - 2.5)))
    raw["dead"] = (died <= 60).astype(int)
    raw["months"] = np.round(np.minimum(died, 60 + rng.uniform(size=220)) + 0.1, 2)
    for at in range(9):
        raw[f"m{at}"] = np.round((signal if at < 3 else 0) + rng.normal(size=220), 4)
    more = "".join(
        f'[variables.m{at}]\ntable = "clinical"\ncolumn = "m{at}"\nkind = "continuous"\n'
        for at in range(9)
    )
    return write(folder, raw, more=more)


def test_the_command_tests_a_score_of_nine_markers(tmp_path: Path) -> None:
    folder = with_markers(tmp_path / "toy", 0.9)
    validate(
        tmp_path, folder, exposures=MARKERS, comparison="combined", penalty="lasso",
        covariates=["clinical:stage"],
    )  # fmt: skip
    found = Results.load(tmp_path / "out" / "marker-os" / "results.json")
    primary, adjusted = found.test("primary"), found.test("adjusted")
    assert primary is not None and adjusted is not None and primary.method == "penalized"
    assert primary.p == adjusted.p == pytest.approx(1 / 200)
    assert primary.effect is not None and primary.effect.lower > 1
    assert found.verdict.verdict == "supported"
    assert found.controls is not None and len(found.controls.random) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"comparison": "per_sd", "exposures": MARKERS[:1]},
        {"direction": "lower_risk"},
        {"penalty": None},
        {"subgroups": [{"variable": "clinical:sex", "op": "eq", "value": "male"}]},
    ],
)
def test_a_penalty_is_for_scores_alone(changes: dict[str, Any]) -> None:
    whole = {"exposures": MARKERS, "comparison": "combined", "penalty": "ridge"}
    claim(**whole)
    with pytest.raises(ValueError, match="penalty"):
        claim(**(whole | changes))
