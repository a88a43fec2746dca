"""Tests of proportional hazards, and effects to report if hazards are not proportional.

The test asks whether beta(t) = beta + theta * g(t) improves on a constant beta: Grambsch
and Therneau 1994 (Biometrika), as a score test with the full information matrix (the form
used by the R package survival since version 3). If hazards are not proportional, report
hazard ratios by period, or a difference in restricted mean survival
(`validation.statistics.survival.rmst_difference`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt

from validation.statistics.base import (
    HazardRatios,
    TestResult,
    chi2_test,
    design,
    entry_array,
    group_codes,
    survival_arrays,
)
from validation.statistics.cox import CoxFit, cox
from validation.statistics.errors import BadTimesError
from validation.statistics.partial_likelihood import moments, risk_sets
from validation.statistics.survival import kaplan_meier


@dataclass(frozen=True)
class NonProportionality:
    """Tests for a constant hazard ratio, for each covariate and for all together."""

    tests: tuple[TestResult, ...]
    global_test: TestResult


def schoenfeld(
    time: npt.ArrayLike,
    event: npt.ArrayLike,
    X: npt.ArrayLike,
    fit: HazardRatios,
    *,
    strata: npt.ArrayLike | None = None,
    entry: npt.ArrayLike | None = None,
) -> NonProportionality:
    """Test the proportional hazards of a fitted Cox model, per covariate and globally.

    Coefficients may vary with one minus the Kaplan-Meier estimate just before each event.

    Parameters
    ----------
    time : (n,) follow-up, in any unit
    event : (n,) 1 if follow-up ends in the event
    X : (n, k) covariates in the fitted model, in its order
    fit : fitted Cox model
    strata : (n,) stratum labels in the model
    entry : (n,) delayed entry, in the unit of time

    Returns
    -------
    A chi-squared test with one degree of freedom for each covariate, and a global test for
    all k.
    """
    t, e = survival_arrays(time, event)
    started = entry_array(entry, t)
    x, names = design(X, fit.names, len(t))
    layer = np.zeros(len(t), dtype=np.int64)
    if strata is not None:
        layer, _ = group_codes(strata, len(t), at_least=1)
    x = x - x.mean(axis=0)
    means, covariances, rows = [], [], []
    for s in np.unique(layer):
        sets = risk_sets(t, e, np.flatnonzero(layer == s), started)
        if len(sets.who):
            m = moments(sets, x, fit.coef)
            means.append(m.mean)
            covariances.append(m.covariance)
            rows.append(m.event_rows)
    row = np.concatenate(rows)
    residual = x[row] - np.concatenate(means)
    v = np.concatenate(covariances)
    curve = kaplan_meier(t, e, started)
    before = np.searchsorted(curve.times, t[row], side="left") - 1
    g = np.where(before >= 0, 1.0 - curve.survival[np.maximum(before, 0)], 0.0)
    if np.ptp(g) == 0.0:
        raise BadTimesError(
            "all events occur at the same time, so proportional hazards cannot be tested"
        )
    g = g - g.mean()
    u = g @ residual
    v0, v1, v2 = v.sum(axis=0), np.tensordot(g, v, 1), np.tensordot(g**2, v, 1)
    inverse = np.linalg.inv(v0)
    adjusted = v2 - v1 @ inverse @ v1
    scale = np.sqrt(np.outer(np.diag(v2), np.diag(v2)))
    if np.any(np.diag(v2) <= 0) or np.linalg.matrix_rank(adjusted / scale, tol=1e-10) < len(names):
        raise BadTimesError(
            "a covariate varies among the patients at risk at only one event time, so proportional"
            " hazards cannot be tested"
        )
    overall = float(u @ np.linalg.solve(adjusted, u))
    each = [float(u[j] ** 2 / adjusted[j, j]) for j in range(len(names))]
    return NonProportionality(
        tests=tuple(chi2_test(q, 1) for q in each),
        global_test=chi2_test(overall, len(names)),
    )


@dataclass(frozen=True)
class Period:
    """A Cox model for the follow-up between `start` and `stop` only."""

    start: float
    stop: float
    fit: CoxFit


def cox_by_period(
    time: npt.ArrayLike,
    event: npt.ArrayLike,
    X: npt.ArrayLike,
    names: Sequence[str],
    cuts: Sequence[float],
    *,
    penalty: Literal["firth"] | None = None,
    entry: npt.ArrayLike | None = None,
    cluster: npt.ArrayLike | None = None,
) -> tuple[Period, ...]:
    """Compute hazard ratios by follow-up period: a step-function form of a time-varying effect.

    Patients still followed at the start of a period enter it there; those followed beyond its
    end are censored at the end.

    Parameters
    ----------
    time : (n,) follow-up, in any unit
    event : (n,) 1 if follow-up ends in the event
    X : (n, k) covariates
    cuts : ends of all periods except the last, distinct and above 0, in the unit of `time`
    penalty : "firth" for few events or separation
    entry : (n,) delayed entry, in the unit of `time`
    cluster : (n,) person for each row; standard errors are robust within persons

    Returns
    -------
    One fit per period; the first starts at time 0 and the last is open-ended. Raises the
    errors of `cox` if any fit fails.

    Raises
    ------
    BadTimesError
        If cuts repeat or are not above 0.
    """
    t, e = survival_arrays(time, event)
    started = entry_array(entry, t)
    x, labels = design(X, names, len(t))
    edges = (0.0, *sorted(float(c) for c in cuts), float("inf"))
    if len(set(edges)) != len(edges) or edges[1] <= 0.0:
        raise BadTimesError("cuts must be distinct and positive")
    periods = []
    for start, stop in pairwise(edges):
        inside = t > start if start > 0.0 else np.ones(len(t), dtype=bool)
        inside &= True if started is None else started < stop
        fit = cox(
            np.minimum(t, stop)[inside],
            (e & (t <= stop))[inside],
            x[inside],
            labels,
            penalty=penalty,
            entry=None if started is None else np.maximum(started, start)[inside],
            cluster=None if cluster is None else np.asarray(cluster)[inside],
        )
        periods.append(Period(start, stop, fit))
    return tuple(periods)
