"""Percentile bootstrap intervals by resampling patients (Efron 1987, J Am Stat Assoc)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sage.core.progress import report_progress
from sage.core.seeds import generator
from validation.statistics.errors import ConvergenceError, ShapeError, StatisticsError

MOST_FAILED = 0.05
"""Maximum share of resamples that may fail; excluding more would omit the difficult samples."""


@dataclass(frozen=True)
class Bootstrap:
    """A statistic for all patients, with its 95% interval."""

    value: float
    lower: float
    upper: float


def bootstrap(
    statistic: Callable[..., float], *arrays: npt.ArrayLike, times: int = 1000, seed: int = 0
) -> Bootstrap:
    """Compute a bootstrap interval for `statistic(*arrays)`, resampling array rows together.

    A resample on which the statistic raises an error (for example because it has no events)
    counts as failed.

    Parameters
    ----------
    statistic : function that takes the resampled arrays, in their order, and returns a number
    arrays : arrays of n rows each, resampled together

    Raises
    ------
    ConvergenceError
        If more than `MOST_FAILED` of the resamples failed.
    """
    data = [np.asarray(a) for a in arrays]
    n = len(data[0])
    if any(len(a) != n for a in data):
        raise ShapeError("bootstrap: arrays must have the same length")
    value, found = float(statistic(*data)), []
    for done, rows in enumerate(generator(seed).integers(0, n, size=(times, n))):
        report_progress("bootstrap resamples", done, times)
        try:
            found.append(float(statistic(*(a[rows] for a in data))))
        except StatisticsError:
            continue
    if len(found) < (1 - MOST_FAILED) * times:
        raise ConvergenceError(
            f"bootstrap: the statistic could not be computed in {times - len(found)} of {times} "
            "resamples"
        )
    lower, upper = (float(limit) for limit in np.quantile(found, [0.025, 0.975]))
    return Bootstrap(value, lower, upper)
