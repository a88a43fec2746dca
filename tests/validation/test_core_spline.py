"""The curve of a spline, and what a reader is told of patients and strata that count otherwise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.validation.core_help import claim, frozen_for, load, patients
from validation.inputs.population import exposure_values, find_cut
from validation.inputs.study import Study
from validation.methods.regression import fit_spline

CURVED = claim(
    exposures=[{"variable": "clinical:marker", "label": "marker", "cut": "spline", "level": "low"}],
    comparison="per_sd",
    direction="lower_risk",
    covariates=["clinical:stage"],
    strata=["clinical:sex"],
)


def natural(x: np.ndarray, knots: np.ndarray) -> np.ndarray:
    """Natural cubic splines as Hastie, Tibshirani and Friedman write them (2009, eq. 5.4)."""

    def d(at: int) -> np.ndarray:
        ends = np.maximum(x - knots[at], 0) ** 3 - np.maximum(x - knots[-1], 0) ** 3
        return ends / (knots[-1] - knots[at])

    return np.column_stack([x, *(d(at) - d(len(knots) - 2) for at in range(len(knots) - 2))])


def test_the_curve_is_that_of_another_basis_in_another_library(tmp_path: Path) -> None:
    from lifelines import CoxPHFitter

    cohort = load(tmp_path / "c", patients(300, log_hr=0.9))
    contract = frozen_for(cohort, CURVED.model_copy(update={"strata": ()})).contract
    table = cohort.table(contract.keys(), ["OS"])
    use = contract.exposures[0]
    study = Study.build(contract, table, (find_cut(exposure_values(table, use), use),))
    found = fit_spline(study, contract.test("primary"))
    grid = np.linspace(-1.5, 1.5, 13)
    ratio, lower, upper = found.curve(grid, 0.2)
    t, e = study.follow_up("OS", found.keep)
    frame = pd.DataFrame(natural(found.x, found.knots)).assign(t=t, e=e)
    other = CoxPHFitter().fit(frame, "t", "e")
    apart = natural(grid, found.knots) - natural(np.array([0.2]), found.knots)
    log = apart @ other.params_.to_numpy()
    half = 1.959964 * np.sqrt(((apart @ other.variance_matrix_.to_numpy()) * apart).sum(axis=1))
    assert np.log(ratio) == pytest.approx(log, abs=2e-4)
    assert np.log(upper) == pytest.approx(log + half, abs=2e-4)
    assert np.log(lower) == pytest.approx(log - half, abs=2e-4)
