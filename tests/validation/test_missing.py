"""Tipping points of missing covariates, against missing_reference/reference.R and by command."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.validation.core_help import patients, validate, write
from validation.results.results import Results
from validation.statistics.cox import cox
from validation.statistics.imputation import impute, outcome_predictors, pool

HERE = Path(__file__).parent / "missing_reference"
R = {
    line.split(",")[0]: np.array(line.strip(",").split(",")[1:], dtype=float)
    for line in (HERE / "figures.csv").read_text().splitlines()
}
D = pd.read_csv(HERE / "patients.csv")
SHIFTS = {"plain": 0.0, "alike": 1.0, "exposed": -0.5}


def completed(shift: np.ndarray | None = None) -> list[np.ndarray]:
    """Impute the covariate of R's patients."""
    outcome = np.column_stack([D.g, outcome_predictors(D.time, D.event)])
    return impute(D[["x"]], ["x"], outcome=outcome, m=20, cycles=1, seed=0, shift=shift)


def shift_of(name: str) -> np.ndarray:
    by = D.g.to_numpy(float) if name == "exposed" else np.ones(len(D))
    return np.asarray(SHIFTS[name] * by[:, None])


def test_r_was_given_these_imputations() -> None:
    copies = np.column_stack([copy[:, 0] for copy in completed()])
    np.testing.assert_allclose(copies, pd.read_csv(HERE / "copies.csv"), atol=1e-9)


@pytest.mark.parametrize("name", list(SHIFTS))
def test_shifted_imputations_are_pooled_as_by_r(name: str) -> None:
    fits = [
        cox(D.time, D.event, np.column_stack([D.g, copy]), ["g", "x"])
        for copy in completed(shift_of(name))
    ]
    found = pool(
        [fit.coef for fit in fits], [fit.se**2 for fit in fits],
        complete_df=float(D.event.sum()) - 2,
    )  # fmt: skip
    ours = [found.value[0], found.se[0], found.df[0], found.p[0]]
    np.testing.assert_allclose(ours, R[name], rtol=1e-7)


def test_a_shift_of_log_odds_multiplies_the_odds_of_a_missing_level() -> None:
    rng = np.random.default_rng(8)
    level = np.where(rng.random(4000) < 0.4, np.nan, rng.random(4000) < 0.3)[:, None]
    shift = np.full((4000, 1), np.log(3.0))
    shares = [
        np.mean([copy[np.isnan(level)] for copy in impute(level, ["level"], m=4, shift=given)])
        for given in (None, shift)
    ]
    odds = [share / (1 - share) for share in shares]
    assert odds[1] / odds[0] == pytest.approx(3.0, rel=0.1)


def test_the_command_reports_how_far_missing_covariates_may_lie(tmp_path: Path) -> None:
    raw, rng = patients(300, log_hr=0.9), np.random.default_rng(5)
    raw["stage"] = raw["stage"].where(rng.random(300) > 0.33)
    folder = write(tmp_path / "toy", raw)
    validate(tmp_path, folder, covariates=["clinical:stage", "clinical:sex"])
    found = Results.load(tmp_path / "out" / "marker-os" / "results.json")
    test = found.test("tipping_covariates")
    assert test is not None and test.status == "ok" and not test.claim
    assert test.p is not None and test.p < 0.05
    assert "tipping_covariates" in found.tables
    tips = [
        found.numbers[f"tipping_covariates.stage.{side}.{way}"].value
        for side, way in product(("alike", "exposed"), ("higher", "lower"))
    ]
    limits = [limit for limit in found.verdict.limits if "missing covariates" in limit]
    near = [tip for tip in tips if tip is not None and tip < 0.5]
    assert len(limits) == (1 if near else 0)


def test_the_tipping_point_of_the_command_is_where_r_finds_p_at_alpha(tmp_path: Path) -> None:
    raw = D.rename(columns={"time": "months", "event": "dead", "g": "marker", "x": "stage"})
    raw = raw.assign(patient=[f"P{row:03d}" for row in range(len(D))], sex=0)
    folder = write(tmp_path / "toy", raw)
    validate(
        tmp_path, folder, covariates=["clinical:stage"],
        exposures=[{"variable": "clinical:marker", "label": "marker", "cut": "fixed",
                    "threshold": 0.5}],
    )  # fmt: skip
    found = Results.load(tmp_path / "out" / "marker-os" / "results.json")
    number = found.numbers["tipping_covariates.stage.exposed.higher"]
    assert number.value == pytest.approx(R["tip"][0], abs=1 / 32)
