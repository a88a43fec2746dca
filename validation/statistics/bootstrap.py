"""Percentile and bias-corrected accelerated (BCa) bootstrap intervals.

Efron 1987 (J Am Stat Assoc). Patients are resampled, within strata if strata are given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

from sage.core.progress import report_progress
from sage.core.seeds import generator
from validation.statistics.base import FloatArray, IntArray
from validation.statistics.errors import ConvergenceError, ShapeError, StatisticsError


@dataclass(frozen=True)
class Bootstrap:
    """The statistic on all patients, its interval, and the number of failed resamples."""

    value: float
    lower: float
    upper: float
    se: float
    replicates: FloatArray
    failed: int
    method: str
    level: float


def resamples(n: int, times: int, seed: int, strata: npt.ArrayLike | None = None) -> IntArray:
    """Draw (times, n) row numbers with replacement, within each stratum if strata are given.

    Parameters
    ----------
    n : number of rows to draw from, and size of each resample
    strata : (n,) labels; each resample keeps every stratum's size
    """
    rng = generator(seed)
    if strata is None:
        return rng.integers(0, n, size=(times, n))
    labels = np.asarray(strata)
    picked = np.empty((times, n), dtype=np.int64)
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        picked[:, rows] = rows[rng.integers(0, len(rows), size=(times, len(rows)))]
    return picked


def bootstrap(
    statistic: Callable[..., float],
    *arrays: npt.ArrayLike,
    times: int = 1000,
    seed: int = 0,
    strata: npt.ArrayLike | None = None,
    method: Literal["percentile", "bca"] = "percentile",
    level: float = 0.95,
    most_failed: float = 0.05,
) -> Bootstrap:
    """Compute a bootstrap interval of `statistic(*arrays)`, resampling rows of all arrays together.

    A resample on which the statistic raises an error (for example because it has no events) counts
    as failed. If more than the share `most_failed` of the resamples fail, an error is raised, since
    the interval would ignore the difficult samples.

    Parameters
    ----------
    statistic : function of the resampled arrays, in their order, that returns a number
    arrays : arrays of n rows each, resampled together
    strata : (n,) labels within which rows are drawn
    method : "percentile", or "bca" (corrected for bias and skewness by the jackknife)
    most_failed : share of the resamples that may fail

    Returns
    -------
    The statistic on the original data and its limits, in the unit of the statistic.

    Raises
    ------
    ConvergenceError
        If too many resamples failed.
    """
    data = [np.asarray(a) for a in arrays]
    n = len(data[0])
    if any(len(a) != n for a in data):
        raise ShapeError("bootstrap: arrays of different length")
    value = float(statistic(*data))
    found, failed = [], 0
    for done, rows in enumerate(resamples(n, times, seed, strata)):
        report_progress("bootstrap resamples", done, times)
        try:
            found.append(float(statistic(*(a[rows] for a in data))))
        except StatisticsError:
            failed += 1
    if failed > most_failed * times:
        raise ConvergenceError(
            f"bootstrap: the statistic could not be computed in {failed} of {times} resamples"
        )
    replicates = np.array(found)
    tail = (1.0 - level) / 2.0
    ends = np.array([tail, 1.0 - tail])
    if method == "bca":
        ends = _bca_ends(statistic, data, value, replicates, ends)
    lower, upper = np.quantile(replicates, ends)
    return Bootstrap(
        value,
        float(lower),
        float(upper),
        float(replicates.std(ddof=1)),
        replicates,
        failed,
        method,
        level,
    )


def _bca_ends(
    statistic: Callable[..., float],
    data: list[npt.NDArray[np.generic]],
    value: float,
    replicates: FloatArray,
    ends: FloatArray,
) -> FloatArray:
    """Compute quantiles corrected for median bias and, by the jackknife, for acceleration."""
    n = len(data[0])
    below = float((replicates < value).mean() + 0.5 * (replicates == value).mean())
    bias = float(ndtri(np.clip(below, 1.0 / len(replicates), 1.0 - 1.0 / len(replicates))))
    keep = ~np.eye(n, dtype=bool)
    left_out = np.array([float(statistic(*(a[keep[i]] for a in data))) for i in range(n)])
    gap = left_out.mean() - left_out
    spread = float((gap**2).sum())
    acceleration = float((gap**3).sum()) / (6.0 * spread**1.5) if spread > 0.0 else 0.0
    z = bias + ndtri(ends)
    return np.asarray(ndtr(bias + z / (1.0 - acceleration * z)), dtype=np.float64)
