"""Absolute risks by a horizon in two groups, standardized or adjusted for censoring.

Every risk comes with each patient's contribution to its error (influence function);
variances are sums of squared contributions.

- Standardized risks (g-formula: Robins 1986; Ozenne and others 2020, Biometrical
  Journal): risks predicted by a model for all patients, once as exposed and once as not,
  then averaged.
- Weights for censoring (Robins and Finkelstein 2000, Biometrics): patients still followed
  represent similar patients who were censored.
- Risks if censored patients do better or worse than similar patients who are still
  followed (delta adjustment: Jackson and others 2014, Statistics in Medicine), in the
  limit of infinitely many imputations: censored patients count as events in proportion
  to their expected risk (Efron 1967).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from validation.statistics.base import (
    Z95,
    BoolArray,
    Estimate,
    FloatArray,
    HazardRatios,
    two_sided,
)
from validation.statistics.binary import LogisticFit
from validation.statistics.cox import cox, sandwich
from validation.statistics.errors import ConvergenceError
from validation.statistics.newton import maximize
from validation.statistics.partial_likelihood import (
    RiskSets,
    cumulative_hazard,
    likelihood,
    risk_sets,
    score_residuals,
)

MOST_INTERVALS = 100
"""Maximum number of times at which censoring weights are updated (event times or quantiles)."""
MOST_DELTA = 10.0
"""Largest change in the censored patients' hazard in the search for a tipping point."""


@dataclass(frozen=True)
class Risks:
    """Risks in exposed and reference patients, (2,), and each patient's (n, 2) share in errors."""

    value: FloatArray
    error: FloatArray

    def estimate(self, contrast: tuple[float, float]) -> Estimate:
        """Estimate a contrast between the two risks, with a 95% interval."""
        value = float(self.value @ contrast)
        se = float(np.linalg.norm(self.error @ contrast))
        half = Z95 * se
        return Estimate(value, value - half, value + half, two_sided(value / se), se)

    @property
    def difference(self) -> Estimate:
        """Risk in exposed patients minus risk in reference patients."""
        return self.estimate((1.0, -1.0))


def standardize(
    predict: Callable[[FloatArray], tuple[FloatArray, FloatArray, FloatArray]], X: FloatArray
) -> Risks:
    """Average predicted risks over all patients, once as exposed and once as not.

    Parameters
    ----------
    predict : function of the (n, k) design that returns each patient's risk (n,), its derivative
        (n, m) with respect to the model's parameters, and each patient's (n, m) contribution to
        their error
    X : (n, k) design; the first column is 1 for exposed patients, else 0
    """
    values, errors = [], []
    for side in (1.0, 0.0):
        risk, slope, error = predict(np.column_stack([np.full(len(X), side), X[:, 1:]]))
        values.append(risk.mean())
        errors.append((risk - risk.mean()) / len(X) + error @ slope.mean(axis=0))
    return Risks(np.array(values), np.column_stack(errors))


def standardized_hazards(
    time: FloatArray,
    event: BoolArray,
    X: FloatArray,
    fit: HazardRatios,
    horizon: float,
    entry: FloatArray | None = None,
) -> Risks:
    """Standardize a Cox model's predicted risks by the horizon over the covariates.

    Parameters
    ----------
    time, event, entry : (n,) follow-up, event flags and delayed entry
    X : (n, k) design of the fitted model; the first column is 1 for exposed patients, else 0
    """
    center, beta = X.mean(axis=0), fit.coef
    sets = risk_sets(time, event, np.arange(len(time)), entry)
    z = X - center
    information = likelihood([sets], z, beta).information
    shift = score_residuals([sets], z, beta) @ np.linalg.inv(information)
    hazard, slope, error = cumulative_hazard(sets, z, beta, horizon)
    parameters = np.column_stack([shift, error + shift @ slope])

    def predict(design: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        z = design - center
        r = np.exp(z @ beta)
        alive = np.exp(-hazard * r)
        change = alive * r
        return 1.0 - alive, np.column_stack([(change * hazard)[:, None] * z, change]), parameters

    return standardize(predict, X)


def standardized_odds(y: FloatArray, X: FloatArray, fit: LogisticFit) -> Risks:
    """Standardize a logistic model's predicted risks over the covariates, as for hazards."""

    def risk_of(design: FloatArray) -> tuple[FloatArray, FloatArray]:
        M = np.column_stack([np.ones(len(design)), design])
        return 1.0 / (1.0 + np.exp(-fit.intercept - design @ fit.coef)), M

    p, M = risk_of(X)
    parameters = (M * (y - p)[:, None]) @ np.linalg.inv((M.T * (p * (1.0 - p))) @ M)

    def predict(design: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        risk, M = risk_of(design)
        return risk, (risk * (1.0 - risk))[:, None] * M, parameters

    return standardize(predict, X)


def weigh_censoring(
    time: FloatArray,
    event: BoolArray,
    censored: BoolArray,
    X: FloatArray,
    names: list[str],
) -> tuple[list[RiskSets], float]:
    """Weight patients by the inverse of their probability of being uncensored so far.

    The probability comes from a Cox model for censoring with all columns of X; it is divided
    by the probability from the first column only, so that weights vary around one. Patients
    with an event count as followed until then.

    Parameters
    ----------
    time, event : (n,) follow-up in any unit and event flags
    censored : (n,) whether follow-up ends in censoring, other than at the end of the study
    X : (n, k) exposure and covariates

    Returns
    -------
    Weighted risk sets, one per time interval, and the largest weight.
    """
    everyone = risk_sets(time, censored, np.arange(len(time)))
    z = X - X.mean(axis=0)
    moments = np.unique(time[event])
    if len(moments) > MOST_INTERVALS:
        grid = np.linspace(0.0, 1.0, MOST_INTERVALS, endpoint=False)
        moments = np.unique(np.quantile(moments, grid, method="lower"))
    log_weight = np.zeros((len(time), len(moments)))
    for columns, sign in ((X.shape[1], 1.0), (1, -1.0)):
        coef = cox(time, censored, X[:, :columns], names[:columns]).coef
        linear = z[:, :columns] @ coef
        before = [
            cumulative_hazard(everyone, z[:, :columns], coef, np.nextafter(moment, -np.inf))[0]
            for moment in moments
        ]
        log_weight += sign * np.exp(linear)[:, None] * np.array(before)
    followed = time[:, None] >= moments
    weight = np.exp(np.where(followed, log_weight, 0.0))
    interval = np.searchsorted(moments, time, side="right") - 1
    sets = [
        risk_sets(
            time,
            event & (interval == at),
            np.flatnonzero(time >= moment),
            case=weight[:, at],
        )
        for at, moment in enumerate(moments)
    ]
    return sets, float(weight[followed].max())


def weighted_hazards(sets: list[RiskSets], X: FloatArray, names: list[str]) -> Estimate:
    """Fit the weighted Cox model and return its first term as a hazard ratio, robust by patient.

    Raises `ConvergenceError` if the weighted model has no maximum.
    """
    n, scale = len(X), X.std(axis=0)
    z = (X - X.mean(axis=0)) / scale
    best = maximize(lambda beta: likelihood(sets, z, beta), np.zeros(z.shape[1]), z)
    if best.ended != "converged":
        raise ConvergenceError(f"the weighted model for {', '.join(names)} did not converge")
    covariance, _ = sandwich(sets, z, best, np.arange(n), n)
    coef, se = float(best.beta[0] / scale[0]), float(np.sqrt(covariance[0, 0]) / scale[0])
    half = Z95 * se
    value, lower, upper = (float(end) for end in np.exp([coef, coef - half, coef + half]))
    return Estimate(value, lower, upper, two_sided(coef / se), se)


def weighted_risks(weighed: list[RiskSets], exposed: FloatArray, horizon: float) -> Risks:
    """Estimate weighted Kaplan-Meier risks by the horizon, exposed (1) and reference (0)."""
    values, errors = [], []
    for side in (1.0, 0.0):
        log_survival, error = 0.0, np.zeros(len(exposed))
        for sets in weighed:
            assert sets.case is not None
            mine = np.where(exposed == side, sets.case, 0.0)[sets.order]
            events = np.add.reduceat(mine[sets.who], sets.starts)
            due = (sets.event_times <= horizon) & (events > 0.0)
            at_risk = np.cumsum(mine)[sets.last]
            left = np.where(due, at_risk - events, 1.0)
            log_survival += float(np.log(left[due] / at_risk[due]).sum())
            # Times descend: patients are at risk at the event times up to their own position.
            per_time = np.where(due, events / (np.where(due, at_risk, 1.0) * left), 0.0)
            ahead = np.append(np.cumsum(per_time[::-1])[::-1], 0.0)
            place = np.searchsorted(sets.last, np.arange(len(mine)), side="left")
            error[sets.order] += mine * ahead[place]
            size = np.diff(np.append(sets.starts, len(sets.who)))
            own = np.repeat(np.where(due, 1.0 / left, 0.0), size)
            error[sets.order[sets.who]] -= mine[sets.who] * own
        values.append(1.0 - np.exp(log_survival))
        errors.append(-np.exp(log_survival) * error)
    return Risks(np.array(values), np.column_stack(errors))


def doubted_risks(
    time: FloatArray,
    event: BoolArray,
    exposed: FloatArray,
    horizon: float,
    deltas: tuple[float, float],
) -> Risks:
    """Estimate risks if the two groups' hazards change by these factors after censoring.

    With factors of 1 these are the Kaplan-Meier risks. Patients whose outcome is unknown are
    censored at time 0.

    Parameters
    ----------
    deltas : factors for exposed and reference patients; 0 and infinity give the extremes
    """
    values, errors = [], []
    for side, delta in zip((1.0, 0.0), deltas, strict=True):
        mine = exposed == side
        t, e, n = time[mine], event[mine], int(mine.sum())
        times, count = np.unique(t[e & (t <= horizon)], return_counts=True)
        at_risk = n - np.searchsorted(np.sort(t), times, side="left")
        hazard = np.append(-np.log1p(-count / at_risk), 0.0)
        ahead = np.cumsum(hazard[::-1])[::-1]  # from each event time to the horizon
        place = np.searchsorted(times, t, side="right")
        lost = ~e & (t < horizon) & (ahead[place] > 0.0)
        alive = np.where(e & (t <= horizon), 0.0, 1.0)
        alive[lost] = np.exp(-delta * ahead[place][lost])
        risk = 1.0 - alive.mean()
        # Error of the expected risks: those censored before an event time share in its error.
        dose = np.where(lost & (alive > 0.0), min(delta, 1e6) * alive, 0.0)
        left = np.cumsum(np.bincount(place, dose, minlength=len(times) + 1))[:-1]
        share = left / n / (at_risk - count)
        compensator = np.append(0.0, np.cumsum(share * count / at_risk))
        error = -compensator[place]
        died = e & (t <= horizon)
        error[died] += share[place[died] - 1]
        whole = np.zeros(len(time))
        whole[mine] = (1.0 - alive - risk) / n + error
        values.append(risk)
        errors.append(whole)
    return Risks(np.array(values), np.column_stack(errors))


def tipping_delta(
    difference_at: Callable[[float], Estimate], sign: float, *, up: bool
) -> float | None:
    """Find the factor nearest to 1 at which the difference loses its significance.

    Parameters
    ----------
    difference_at : function that returns the difference for a factor
    sign : sign of the difference at factor 1
    up : if True, search among factors above 1, otherwise below 1

    Returns
    -------
    The factor; None if there is none within `MOST_DELTA`.
    """

    def margin(log_delta: float) -> float:
        found = difference_at(float(np.exp(log_delta)))
        return found.lower if sign > 0 else -found.upper

    inside, outside = 0.0, float(np.log(MOST_DELTA)) * (1.0 if up else -1.0)
    if margin(outside) > 0.0:
        return None
    for _ in range(40):
        middle = (inside + outside) / 2.0
        if margin(middle) > 0.0:
            inside = middle
        else:
            outside = middle
    return float(np.exp(outside))
