"""Result types and input checks shared by all statistics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import chdtrc, ndtr, ndtri

from validation.statistics.errors import (
    BadEventsError,
    BadTimesError,
    ConstantFeatureError,
    EmptyGroupError,
    MissingValuesError,
    NoEventsError,
    ShapeError,
)

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
Z95 = float(ndtri(0.975))
"""Normal quantile for a two-sided 95% interval."""


@dataclass(frozen=True)
class TestResult:
    """A test statistic, its degrees of freedom (None for exact tests) and its p-value."""

    __test__ = False  # keeps pytest from collecting this as a test class

    statistic: float
    df: int | None
    p: float


@dataclass(frozen=True)
class Estimate:
    """An effect with its 95% confidence interval and two-sided p-value."""

    value: float
    lower: float
    upper: float
    p: float
    se: float = float("nan")


@dataclass(frozen=True)
class HazardRatios:
    """Summary of a hazards model. Arrays have one entry per covariate, in the order of `names`.

    `lower` and `upper` are the confidence limits of the hazard ratio `hr`.
    """

    names: tuple[str, ...]
    coef: FloatArray
    se: FloatArray
    hr: FloatArray
    lower: FloatArray
    upper: FloatArray
    p: FloatArray
    n: int
    events: int


def two_sided(z: float) -> float:
    """Compute the two-sided p-value for a standard normal statistic."""
    return float(2.0 * ndtr(-abs(z)))


def chi2_p(statistic: float, df: int) -> float:
    """Compute the upper tail of the chi-squared distribution with `df` degrees of freedom."""
    return float(chdtrc(df, max(statistic, 0.0)))


def chi2_test(statistic: float, df: int) -> TestResult:
    """Return the result of a chi-squared test."""
    return TestResult(statistic, df, chi2_p(statistic, df))


def difference_test(difference: FloatArray, covariance: FloatArray) -> TestResult:
    """Test by chi-squared whether observed minus expected events are zero in all k groups.

    Raises `EmptyGroupError` if no two groups were ever at risk at the same time.
    """
    if np.trace(covariance) <= 0.0:
        raise EmptyGroupError(
            "no two groups are at risk at any event time, so they cannot be compared"
        )
    # The rows sum to zero up to rounding error that grows with the number of events; a tolerance at
    # machine precision would mistake that error for another degree of freedom.
    inverse = np.linalg.pinv(covariance, rcond=1e-9, hermitian=True)
    statistic = float(difference @ inverse @ difference)
    tolerance = 1e-9 * float(np.abs(covariance).max())
    df = int(np.linalg.matrix_rank(covariance, tol=tolerance, hermitian=True))
    return chi2_test(statistic, df)


def ranks(x: FloatArray) -> FloatArray:
    """Rank (n,) values from 1, with ties sharing their mean rank.

    If any value is NaN, all ranks are NaN, as in `scipy.stats.rankdata`. Implemented here because
    importing `scipy.stats` takes longer than most analyses need to compute ranks.
    """
    if np.isnan(x).any():
        return np.full(len(x), np.nan)
    _, which, counts = np.unique(x, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[which], dtype=np.float64)


def as_float(values: npt.ArrayLike, what: str) -> FloatArray:
    """Convert values to a float array, rejecting strings in a numeric column by its name."""
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as err:
        raise ShapeError(f"{what}: contains a value that is not a number ({err})") from None


def survival_arrays(
    time: npt.ArrayLike,
    event: npt.ArrayLike,
    *,
    need_events: bool = True,
) -> tuple[FloatArray, BoolArray]:
    """Check follow-up times and event flags.

    Parameters
    ----------
    time : (n,) non-negative follow-up times, in any unit
    event : (n,) 0/1 or False/True; 1/2 coding is rejected, because it is ambiguous which code is
        the event
    need_events : whether to reject a sample without events

    Raises
    ------
    ShapeError, MissingValuesError, BadTimesError, BadEventsError, NoEventsError
    """
    t = as_float(time, "time")
    e = as_float(event, "event")
    if t.ndim != 1 or e.ndim != 1 or len(t) != len(e):
        raise ShapeError(
            f"time has shape {t.shape} and event {e.shape}; both must have one value per row"
        )
    if len(t) == 0:
        raise ShapeError("no patients left after the population filters")
    bad = ~np.isfinite(t)
    if bad.any():
        raise MissingValuesError(
            f"time: {int(bad.sum())} of {len(t)} values are missing or infinite"
            f" (first at row {int(np.argmax(bad))}); drop or impute them first"
        )
    if np.isnan(e).any():
        raise MissingValuesError(
            f"event: {int(np.isnan(e).sum())} of {len(e)} flags are missing; drop those rows first"
        )
    if (t < 0).any():
        raise BadTimesError(
            f"time: {int((t < 0).sum())} negative values (lowest {t.min():g}); correct or drop them"
        )
    values = np.unique(e)
    if not np.isin(values, (0.0, 1.0)).all():
        shown = ", ".join(f"{v:g}" for v in values[:5])
        raise BadEventsError(f"event: flags must be 0 or 1, got {shown}; specify the event coding")
    flags = e == 1.0
    if need_events and not flags.any():
        raise NoEventsError(f"no events among {len(t)} patients, so nothing can be estimated")
    return t, flags


def entry_array(entry: npt.ArrayLike | None, time: FloatArray) -> FloatArray | None:
    """Check the times from which patients are at risk (delayed entry), in the unit of `time`.

    Raises `BadTimesError` if any patient enters at or after the end of follow-up.
    """
    if entry is None:
        return None
    started = as_float(entry, "entry")
    if started.shape != time.shape or not (started < time).all():
        raise BadTimesError("entry: every patient must enter before the end of follow-up")
    return started


def group_codes(
    group: npt.ArrayLike, n: int, *, at_least: int = 2
) -> tuple[IntArray, tuple[str, ...]]:
    """Encode group labels as codes 0..k-1 in sorted order; return the codes and the names.

    Raises `EmptyGroupError` if fewer than `at_least` groups contain a patient.
    """
    g = np.asarray(group)
    if g.shape != (n,):
        raise ShapeError(f"group has shape {g.shape} for {n} patients")
    if g.dtype.kind == "f" and np.isnan(g).any():
        raise MissingValuesError(f"group: {int(np.isnan(g).sum())} patients have no group")
    labels, codes = np.unique(g, return_inverse=True)
    if len(labels) < at_least:
        raise EmptyGroupError(
            f"only one group ({labels[0]}) has patients; a comparison requires {at_least}"
        )
    return codes.astype(np.int64), tuple(str(label) for label in labels)


def design(X: npt.ArrayLike, names: Sequence[str], n: int) -> tuple[FloatArray, tuple[str, ...]]:
    """Validate an (n, k) design matrix: complete, without constant columns.

    Parameters
    ----------
    X : (n, k) values of the covariates, or (n,) for a single covariate; no missing values
    n : number of patients in the outcome

    Raises
    ------
    ShapeError, MissingValuesError, ConstantFeatureError
    """
    x = as_float(X, "covariates")
    if x.ndim == 1:
        x = x[:, None]
    if x.ndim != 2 or x.shape[0] != n:
        raise ShapeError(f"covariates have shape {x.shape} for {n} patients")
    if x.shape[1] == 0:
        raise ShapeError("no covariates given")
    if len(names) != x.shape[1]:
        raise ShapeError(f"got {len(names)} names for {x.shape[1]} covariates")
    finite = np.isfinite(x).all(axis=0)
    if not finite.all():
        column = int(np.argmin(finite))
        missing = int((~np.isfinite(x[:, column])).sum())
        raise MissingValuesError(
            f'covariate "{names[column]}": {missing} of {n} values are missing;'
            " use complete cases or imputation, as specified in the contract"
        )
    flat = np.ptp(x, axis=0) == 0.0
    if flat.any():
        column = int(np.argmax(flat))
        raise ConstantFeatureError(
            f'covariate "{names[column]}" is constant ({x[0, column]:g}) in the {n} analyzed '
            "patients, so it cannot be related to the outcome"
        )
    return x, tuple(names)
