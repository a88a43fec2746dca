"""Calibration of predicted risks against observed outcomes.

Van Houwelingen 2000 (Statistics in Medicine); Graf and others 1999 (Statistics in Medicine) for the
Brier score under censoring.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import expit, logit, ndtr

from validation.statistics.base import (
    Z95,
    Estimate,
    FloatArray,
    IntArray,
    as_float,
    survival_arrays,
    two_sided,
)
from validation.statistics.binary import logistic
from validation.statistics.concordance import censoring_weight
from validation.statistics.cox import cox
from validation.statistics.errors import BadTimesError, EmptyGroupError, ShapeError
from validation.statistics.survival import kaplan_meier


@dataclass(frozen=True)
class Calibration:
    """Predicted and observed risk at a horizon, per group of predicted risk.

    `ratio` is the ratio of observed to expected events by the horizon (Kaplan-Meier risk over mean
    predicted risk; 1 is perfect). `slope` is the coefficient of the complementary log-log predicted
    risk in a Cox model; a slope below 1 means that predictions are too extreme.
    """

    horizon: float
    predicted: FloatArray
    observed: FloatArray
    lower: FloatArray
    upper: FloatArray
    n: IntArray
    ratio: float
    slope: Estimate
    brier: float
    brier_reference: float


def baseline_hazard(
    time: npt.ArrayLike, event: npt.ArrayLike, linear: npt.ArrayLike, when: float
) -> float:
    """Compute Breslow's cumulative baseline hazard at `when`, given the linear predictors.

    H0(t) = sum over events by t of 1 / (sum over those at risk of exp(x'beta)); predicted survival
    is exp(-H0 exp(x'beta)).

    Parameters
    ----------
    time : (n,) follow-up, in any unit
    event : (n,) 1 if follow-up ends in the event
    linear : (n,) linear predictor: log hazard of each patient relative to a baseline patient
    when : time at which to evaluate the hazard, in the unit of `time`
    """
    t, e = survival_arrays(time, event)
    eta = as_float(linear, "linear predictor")
    if eta.shape != t.shape:
        raise ShapeError("the linear predictor must have one value per patient")
    center = float(eta.mean())
    w = np.exp(eta - center)
    order = np.argsort(-t, kind="stable")
    total = np.cumsum(w[order])
    at_risk = total[np.searchsorted(-t[order], -t[e & (t <= when)], side="right") - 1]
    return float((1.0 / at_risk).sum() * np.exp(-center))


def brier(time: npt.ArrayLike, event: npt.ArrayLike, survival: npt.ArrayLike, when: float) -> float:
    """Compute the Brier score at `when`, weighted for censoring; 0 is perfect.

    The score averages S^2 / G(T) for patients with an event by `when` and (1 - S)^2 / G(when)
    for patients followed beyond it, where S is the predicted survival and G the censoring
    survival.

    Parameters
    ----------
    time : (n,) follow-up, in any unit
    event : (n,) 1 if follow-up ends in the event
    survival : (n,) predicted probability of being event-free at `when`
    when : time of the score, in the unit of `time`

    Raises
    ------
    ShapeError
        If a prediction is not a probability.
    BadTimesError
        If no patient is followed beyond `when`.
    """
    t, e = survival_arrays(time, event)
    s = as_float(survival, "survival")
    if s.shape != t.shape or not ((s >= 0.0) & (s <= 1.0)).all():
        raise ShapeError("predicted survival must have one probability per patient")
    died, beyond = e & (t <= when), t > when
    if not beyond.any():
        raise BadTimesError(
            f"nobody is followed beyond {when:g}, so the Brier score cannot be computed"
        )
    g = censoring_weight(t, e, t)
    g_when = float(censoring_weight(t, e, np.array([when]))[0])
    score = np.zeros(len(t))
    score[died] = s[died] ** 2 / g[died]
    score[beyond] = (1.0 - s[beyond]) ** 2 / g_when
    return float(score.mean())


def observed_ratio(
    time: npt.ArrayLike, event: npt.ArrayLike, risk: npt.ArrayLike, when: float
) -> Estimate:
    """Divide the Kaplan-Meier risk at `when` by the mean predicted `risk` (n,), taken as given.

    Limits and `se` are on the logarithmic scale, with Greenwood's variance; without censoring,
    it is that of a binomial share (Debray and others 2017, BMJ).
    """
    curve = kaplan_meier(time, event)
    alive = float(curve.survival_at([when])[0])
    if not 0.0 < alive < 1.0:
        raise EmptyGroupError("all or none of the patients have the event by the horizon")
    used = (curve.times <= when) & (curve.events > 0)
    d, n = curve.events[used].astype(float), curve.at_risk[used]
    se = alive * math.sqrt(float((d / (n * (n - d))).sum())) / (1.0 - alive)
    log = math.log((1.0 - alive) / float(as_float(risk, "risk").mean()))
    low, high = (math.exp(log + side * Z95 * se) for side in (-1, 1))
    return Estimate(math.exp(log), low, high, two_sided(log / se), se)


def calibration_slope(
    time: npt.ArrayLike, event: npt.ArrayLike, risk: npt.ArrayLike, when: float
) -> Estimate:
    """Fit the complementary log-log `risk` (n,) in a Cox model of the events by `when`."""
    t, e = survival_arrays(time, event)
    bounded = np.clip(as_float(risk, "risk"), 1e-9, 1.0 - 1e-9)
    linear = np.log(-np.log1p(-bounded))
    return _only_term(cox(np.minimum(t, when), e & (t <= when), linear, ["predicted risk"]))


def logistic_recalibration(event: npt.ArrayLike, risk: npt.ArrayLike) -> tuple[float, Estimate]:
    """Return the calibration intercept, given a slope of 1, and the slope of the log odds.

    `event` (n,) is 0 or 1. Source: Van Calster and others 2016
    (doi:10.1016/j.jclinepi.2015.12.005).
    """
    y, odds = as_float(event, "event"), logit(np.clip(as_float(risk, "risk"), 1e-9, 1.0 - 1e-9))
    shift = brentq(lambda a: float((y - expit(odds + a)).sum()), -50.0, 50.0, xtol=1e-13)
    return float(shift), _only_term(logistic(y, odds, ["predicted log odds"]))


def _only_term(fit: Any) -> Estimate:
    value, se = float(fit.coef[0]), float(fit.se[0])
    return Estimate(value, value - Z95 * se, value + Z95 * se, float(fit.p[0]), se)


def equivalence_p(value: float, se: float, margins: tuple[float, ...]) -> float:
    """Compute twice the larger p-value of two one-sided tests against the margins.

    It is below alpha if the interval at level 1 - alpha is within them (Schuirmann 1987).
    """
    return float(min(1.0, 2.0 * ndtr(-min(value - margins[0], margins[1] - value) / se)))


def calibration(
    time: npt.ArrayLike,
    event: npt.ArrayLike,
    survival: npt.ArrayLike,
    when: float,
    *,
    groups: int = 5,
) -> Calibration:
    """Compare predicted survival at `when` with Kaplan-Meier in equal-sized risk groups.

    Parameters
    ----------
    time : (n,) follow-up, in any unit
    event : (n,) 1 if follow-up ends in the event
    survival : (n,) predicted probability of being event-free at `when`
    when : time of the prediction, in the unit of `time`
    groups : number of groups of equal size; equal predictions stay together, so there may be
        fewer

    Returns
    -------
    For each group, the patients and the predicted and observed risk at `when`, the latter
    with 95% limits; for all patients together, the ratio, the slope and the Brier score.

    Raises
    ------
    EmptyGroupError
        If all predictions are the same.
    """
    t, e = survival_arrays(time, event)
    s = as_float(survival, "survival")
    score = brier(t, e, s, when)
    edges = np.quantile(s, np.linspace(0.0, 1.0, groups + 1)[1:-1])
    which = np.searchsorted(edges, s, side="left")
    used = np.unique(which)
    if len(used) < 2:
        raise EmptyGroupError(
            "all patients have the same predicted risk, so there is nothing to calibrate"
        )
    predicted, observed, lower, upper, n = [], [], [], [], []
    for item in used:
        here = which == item
        curve = kaplan_meier(t[here], e[here])
        step = int(np.searchsorted(curve.times, when, side="right")) - 1
        survival_, low, high = (
            float(values[step]) for values in (curve.survival, curve.lower, curve.upper)
        )
        reached = int((t[here] >= when).sum())
        if survival_ == 1.0:  # Without events, the rule of three bounds the risk.
            low = 0.025 ** (1.0 / reached) if reached else math.nan
        if not reached and survival_ > 0.0:
            survival_ = low = high = math.nan
        predicted.append(1.0 - float(s[here].mean()))
        observed.append(1.0 - survival_)
        lower.append(1.0 - high)
        upper.append(1.0 - low)
        n.append(int(here.sum()))
    overall = float(1.0 - kaplan_meier(t, e).survival_at([when])[0])
    return Calibration(
        horizon=when,
        predicted=np.array(predicted),
        observed=np.array(observed),
        lower=np.array(lower),
        upper=np.array(upper),
        n=np.array(n, dtype=np.int64),
        ratio=overall / max(1.0 - float(s.mean()), 1e-12),
        slope=calibration_slope(t, e, 1.0 - s, when),
        brier=score,
        brier_reference=brier(t, e, np.full(len(t), 1.0 - overall), when),
    )
