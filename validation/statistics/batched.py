"""Thousands of Cox models fitted together, one per feature, with shared patients and covariates.

All models share their risk sets, so a Newton step for a block of features is a handful of
array operations over (patients, features). Ties are handled by Efron's method. Blocks run
in threads, since numpy releases the global interpreter lock.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from validation.statistics.base import BoolArray, FloatArray, IntArray
from validation.statistics.newton import maximize
from validation.statistics.partial_likelihood import RiskSets, likelihood, risk_sets

_MOST_STEPS = 25
_TOLERANCE = 1e-7  # of the last step; as Newton converges quadratically, less than 1e-12 is left
_BLOCK, _FEWEST, _CELLS = 160, 16, 40_000
"""Maximum and minimum features per block, and (patients x features) that fit a core's cache."""
# A coefficient is diverging if the extreme patients are this far apart on the log scale and the
# likelihood is so flat that Wald's chi-squared is below the second number.
_FAR = 12.0
_FLAT = 1e-3


@dataclass(frozen=True)
class Batch:
    """Results per feature, on the scale of the standardized feature.

    `score` is the score statistic (chi-squared, 1 df) given the covariates; `converged` is False
    for features whose Newton iteration did not converge; their numbers are NaN. `separated` marks
    those among them whose coefficient was diverging to infinity.
    """

    coef: FloatArray
    se: FloatArray
    score: FloatArray
    score_sign: FloatArray
    converged: BoolArray
    separated: BoolArray


@dataclass(frozen=True)
class _Plan:
    """Patients in descending order of time, split into segments that end at each event time.

    `group` is the segment of each event, `first` each patient's first event at risk. Events that
    share their time have positions `tied` among events and belong to tied `sets`, which begin at
    `starts`; `fraction` is Efron's.
    """

    rows: IntArray
    segments: IntArray
    event_rows: IntArray
    group: IntArray
    first: IntArray
    tied: IntArray
    sets: IntArray
    starts: IntArray
    fraction: FloatArray
    covariates: FloatArray
    null_coef: FloatArray
    event_totals: FloatArray
    covariate_products: FloatArray


def _plan(sets: RiskSets, covariates: FloatArray, null_coef: FloatArray) -> _Plan:
    used = sets.order[: int(sets.last[-1]) + 1]
    c = covariates[used]
    pairs = [c[:, a] * c[:, b] for a in range(c.shape[1]) for b in range(a + 1)]
    tied = np.flatnonzero(np.bincount(sets.group)[sets.group] > 1)
    _, starts, alike = np.unique(sets.group[tied], return_index=True, return_inverse=True)
    return _Plan(
        rows=used,
        segments=np.concatenate(([0], sets.last[:-1] + 1)).astype(np.int64),
        event_rows=sets.who,
        group=sets.group,
        first=sets.starts[np.searchsorted(sets.last, np.arange(len(used)))],
        tied=tied,
        sets=alike,
        starts=starts,
        fraction=sets.fraction[tied, None],
        covariates=c,
        null_coef=null_coef,
        event_totals=c[sets.who].sum(axis=0),
        covariate_products=np.array(pairs).reshape(len(pairs), len(used)),
    )


def _risk_sums(plan: _Plan, values: FloatArray) -> FloatArray:
    """Compute Efron-adjusted sums over the risk set for each event, (events, features)."""
    found: FloatArray = np.cumsum(np.add.reduceat(values, plan.segments, axis=0), axis=0)
    if len(plan.tied):
        found = found[plan.group]
        ties = np.add.reduceat(values[plan.event_rows[plan.tied]], plan.starts, axis=0)
        found[plan.tied] -= plan.fraction * ties[plan.sets]
    return found


def _exposure_sums(plan: _Plan, w: FloatArray, inverse: FloatArray) -> FloatArray:
    """Compute W times each patient's cumulative baseline hazard, (patients, features).

    With these weights, summing risk-set averages over events becomes a single weighted sum over
    patients, so second moments need no running sum.
    """
    hazard = np.cumsum(inverse[::-1], axis=0)[::-1]
    weighted: FloatArray = w * hazard.take(plan.first, axis=0)
    if len(plan.tied):
        rows = plan.event_rows[plan.tied]
        lost = np.add.reduceat(plan.fraction * inverse[plan.tied], plan.starts, axis=0)
        weighted[rows] -= w[rows] * lost[plan.sets]
    return weighted


def _step(
    plan: _Plan, z: FloatArray, z_events: FloatArray, beta: FloatArray, *, first: bool
) -> tuple[FloatArray, FloatArray]:
    """Compute the score (k, features) and information (k, k, features) at beta (k, features).

    At the `first` step no feature has an effect yet, so one column of hazards serves all features.
    """
    k = beta.shape[0]
    c = plan.covariates
    eta = np.zeros((len(z), 1)) if first else z * beta[0]
    if k > 1:
        eta += c @ (beta[1:, :1] if first else beta[1:])
        eta -= eta.max(axis=0)
    w = np.exp(eta)
    inverse = 1.0 / _risk_sums(plan, w)
    v = _exposure_sums(plan, w, inverse)
    score = np.empty((k, z.shape[1]))
    information = np.empty((k, k, z.shape[1]))
    vz = v * z
    means = [_risk_sums(plan, w * z) * inverse]
    score[0] = z_events - vz.sum(axis=0)
    information[0, 0] = np.einsum("ij,ij->j", vz, z) - _dot(means[0], means[0])
    if k > 1:
        score[1:] = plan.event_totals[:, None] - c.T @ v
        crossed = c.T @ vz
        squares = plan.covariate_products @ v
        row = 0
        for a in range(1, k):
            means.append(_risk_sums(plan, w * c[:, a - 1 : a]) * inverse)
            cross = crossed[a - 1] - _dot(means[0], means[a])
            information[0, a] = information[a, 0] = cross
            for b in range(1, a + 1):
                cross = squares[row] - _dot(means[a], means[b])
                information[a, b] = information[b, a] = cross
                row += 1
    return score, information


def _dot(a: FloatArray, b: FloatArray) -> FloatArray:
    """Compute column-wise inner products."""
    return np.asarray(np.einsum("ij,ij->j", a, b), dtype=np.float64)


def _solve_block(plan: _Plan, z: FloatArray, newton: bool) -> tuple[FloatArray, ...]:
    """Run Newton's method for a block of standardized features (patients used, features)."""
    p, k = z.shape[1], 1 + plan.covariates.shape[1]
    beta = np.zeros((k, p))
    beta[1:] = plan.null_coef[:, None]
    z_events = z[plan.event_rows].sum(axis=0)
    converged = np.zeros(p, dtype=bool)
    se = np.full(p, np.nan)
    score_test, sign = np.full(p, np.nan), np.zeros(p)
    span = np.ptp(z, axis=0)
    active = np.arange(p)
    separated = np.zeros(p, dtype=bool)
    # No step moves the extreme patients' log hazard ratio by more than ten: a feature driven by a
    # few patients would overshoot its maximum.
    reach = np.minimum(1.5, 10.0 / np.maximum(span, 1e-9))
    for iteration in range(_MOST_STEPS):
        whole = len(active) == p
        score, information = _step(
            plan,
            z if whole else z[:, active],
            z_events if whole else z_events[active],
            beta[:, active],
            first=iteration == 0,
        )
        matrices = np.moveaxis(information, 2, 0)
        good = np.isfinite(matrices).all(axis=(1, 2)) & (np.linalg.det(matrices) > 1e-12)
        apart = np.abs(beta[0, active]) * span[active]
        outward = score[0] * np.sign(beta[0, active]) > -1e-8
        flat = ~good | (beta[0, active] ** 2 * information[0, 0] < _FLAT)
        lost = outward & flat & (apart > _FAR)
        separated[active[lost]] = True
        keep = good & ~lost
        active, matrices, score = active[keep], matrices[keep], score[:, keep]
        if len(active) == 0:
            break
        inverse = np.linalg.inv(matrices)
        step = np.einsum("pab,bp->ap", inverse, score)
        if iteration == 0:
            score_test[active] = score[0] ** 2 * inverse[:, 0, 0]
            sign[active] = np.sign(score[0])
            if not newton:
                break
        settled = (np.abs(step) < _TOLERANCE).all(axis=0)
        # One factor scales the whole step, which preserves its direction.
        longest = np.maximum(np.abs(step[0]) / reach[active], np.abs(step).max(axis=0) / 1.5)
        beta[:, active] += step / np.maximum(longest, 1.0)
        se[active] = np.sqrt(inverse[:, 0, 0])
        converged[active[settled]] = True
        active = active[~settled]
        if len(active) == 0:
            break
    coef = np.where(converged, beta[0], np.nan)
    return coef, np.where(converged, se, np.nan), score_test, sign, converged, separated


def batched_cox(
    time: FloatArray,
    event: BoolArray,
    features: FloatArray,
    covariates: FloatArray | None = None,
    *,
    newton: bool = True,
    workers: int | None = None,
) -> Batch:
    """Fit `h0(t) exp(feature * b + covariates'g)` for each column of `features`.

    Parameters
    ----------
    features : (n, p) standardized, complete and not constant (ensured by `screening.rank`)
    covariates : (n, q) standardized
    newton : if False, stop after the score test, which needs no iteration
    workers : number of threads (default: the number of cores, at most 8)
    """
    n, p = features.shape
    c = np.zeros((n, 0)) if covariates is None else covariates
    sets = risk_sets(time, event, np.arange(n, dtype=np.int64))
    null_coef = np.zeros(c.shape[1])
    if c.shape[1]:
        null_coef = maximize(lambda beta: likelihood([sets], c, beta), null_coef, c).beta
    plan = _plan(sets, c, null_coef)
    at_once = max(_FEWEST, min(_BLOCK, _CELLS // n))
    blocks = [slice(start, min(start + at_once, p)) for start in range(0, p, at_once)]

    def solve(block: slice) -> tuple[FloatArray, ...]:
        return _solve_block(plan, np.ascontiguousarray(features[plan.rows, block]), newton)

    count = workers or min(os.cpu_count() or 1, 8)
    if count == 1 or len(blocks) == 1:
        parts = [solve(block) for block in blocks]
    else:
        with ThreadPoolExecutor(count) as pool:
            parts = list(pool.map(solve, blocks))
    joined = [np.concatenate([part[i] for part in parts]) for i in range(6)]
    return Batch(
        coef=joined[0],
        se=joined[1],
        score=joined[2],
        score_sign=joined[3],
        converged=joined[4].astype(bool),
        separated=joined[5].astype(bool) & newton,
    )
