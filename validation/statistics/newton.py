"""Newton's method, with step-length control, for likelihoods based on a linear predictor.

The step is the full Newton step times a scalar. It is never clipped coefficient by
coefficient, which would change its direction. It is limited so that the linear predictor
does not move too far, and halved until the likelihood rises enough (Armijo's rule;
Nocedal and Wright 2006, Numerical Optimization).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from validation.statistics.base import BoolArray, FloatArray

_MOST_STEPS = 100
_FULL_STEPS = 20
# A step expected to gain less than this many squared standard errors ends the search. The looser
# bound applies where rounding keeps the score from decreasing further.
_SETTLED, _NEARLY_SETTLED = 1e-18, 1e-11
# No step moves two patients apart by more than this on the scale of the linear predictor.
_REACH = 20.0
# The likelihood has stopped rising, but the next step still moves patients apart by this much: its
# maximum is at infinity (R's coxph warns by the same sign).
_STILL_MOVING, _NO_GAIN = 1e-2, 1e-9
# The same holds if the search breaks off with patients this far apart on the log scale.
_FAR = 12.0


@dataclass(frozen=True)
class Likelihood:
    """A log likelihood, its gradient (k,) and information (k, k) at a coefficient vector."""

    value: float
    score: FloatArray
    information: FloatArray


@dataclass(frozen=True)
class Maximum:
    """Result of the maximization.

    `ended` is "converged" (confirmed by the gradient), "infinite" (the likelihood rises without
    bound along `step`) or "stuck". `step` is the last Newton step, zero for fixed coefficients.
    """

    beta: FloatArray
    at: Likelihood
    ended: Literal["converged", "infinite", "stuck"]
    step: FloatArray
    iterations: int


def maximize(
    evaluate: Callable[[FloatArray], Likelihood],
    start: FloatArray,
    x: FloatArray,
    *,
    free: BoolArray | None = None,
    penalized: bool = False,
) -> Maximum:
    """Maximize a log likelihood of x @ beta.

    Parameters
    ----------
    evaluate : function returning the likelihood at (k,) coefficients; a step to a value that
        is not finite is rejected
    start : (k,) initial coefficients
    x : (n, k) design matrix, used to measure the length of a step
    free : (k,) mask of the coefficients to optimize (default: all)
    penalized : the score includes a penalty that the information lacks, so steps are damped
        after a while, and the maximum is never at infinity
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return _search(
            evaluate, start, x, np.ones(len(start), bool) if free is None else free, penalized
        )


def _search(
    evaluate: Callable[[FloatArray], Likelihood],
    start: FloatArray,
    x: FloatArray,
    moving: BoolArray,
    penalized: bool,
) -> Maximum:
    beta, at = start.copy(), evaluate(start)
    step, gain = np.zeros(len(start)), np.nan
    for iteration in range(1, _MOST_STEPS + 1):
        try:
            step[moving] = np.linalg.solve(at.information[np.ix_(moving, moving)], at.score[moving])
            gain = float(at.score[moving] @ step[moving])
        except np.linalg.LinAlgError:
            gain = np.nan
        if not (np.isfinite(gain) and gain >= 0.0):
            break
        moved = float(np.ptp(x @ step))
        if gain < _NO_GAIN and moved > _STILL_MOVING and not penalized:
            return Maximum(beta, at, "infinite", step, iteration)
        size = 0.5 if penalized and iteration > _FULL_STEPS else 1.0
        if moved > _REACH:
            size = min(size, _REACH / moved)
        while size > 1e-10:
            found = evaluate(beta + size * step)
            least = at.value + 1e-4 * size * gain - 1e-12 * abs(at.value)
            if np.isfinite(found.value) and found.value >= least:
                break
            size /= 2.0
        else:
            break
        beta, at = beta + size * step, found
        if gain < _SETTLED:
            return Maximum(beta, at, "converged", step, iteration)
    if 0.0 <= gain < _NEARLY_SETTLED:
        return Maximum(beta, at, "converged", step, iteration)
    far = not penalized and float(np.ptp(x @ beta)) > _FAR
    return Maximum(beta, at, "infinite" if far else "stuck", step, iteration)
