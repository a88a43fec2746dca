"""Result types and input checks that every statistic shares."""

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


@dataclass(frozen=True)
class TestResult:
    """A test statistic, its degrees of freedom (None for exact tests) and its p-value."""

    __test__ = False  # not a test class for pytest

    statistic: float
    df: int | None
    p: float
    method: str = ""


@dataclass(frozen=True)
class Estimate:
    """An effect with its interval (95% unless `level` says otherwise) and two-sided p-value."""

    value: float
    lower: float
    upper: float
    p: float
    se: float = float("nan")
    level: float = 0.95
    method: str = ""


@dataclass(frozen=True)
class HazardRatios:
    """Summary of a hazards model: arrays have an entry per covariate, in the order of `names`.

    `lower` and `upper` are limits of the hazard ratio `hr`.
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
    """Two-sided p-value of a standard normal statistic."""
    return float(2.0 * ndtr(-abs(z)))


def chi2_p(statistic: float, df: int) -> float:
    """Upper tail of the chi-squared distribution with `df` degrees of freedom."""
    return float(chdtrc(df, max(statistic, 0.0)))


def difference_test(difference: FloatArray, covariance: FloatArray, method: str) -> TestResult:
    """Chi-squared test that observed minus expected events of k groups are all zero.

    Raises `EmptyGroupError` when no two groups were ever at risk together.
    """
    if np.trace(covariance) <= 0.0:
        raise EmptyGroupError("at no event time are two groups at risk: they cannot be compared")
    # The rows sum to zero up to rounding that grows with the number of events; a tolerance at
    # machine precision would take that rounding for a further degree of freedom.
    inverse = np.linalg.pinv(covariance, rcond=1e-9, hermitian=True)
    statistic = float(difference @ inverse @ difference)
    tolerance = 1e-9 * float(np.abs(covariance).max())
    df = int(np.linalg.matrix_rank(covariance, tol=tolerance, hermitian=True))
    return TestResult(statistic, df, chi2_p(statistic, df), method)


def z_of(level: float) -> float:
    """Return normal quantile for a two-sided interval of this level (1.96 for 0.95)."""
    return float(ndtri(0.5 + level / 2.0))


def ranks(x: FloatArray) -> FloatArray:
    """(n,) ranks from 1, ties sharing their mean; all NaN if any is, as `scipy.stats.rankdata`.

    Written out, since importing `scipy.stats` takes longer than most analyses need ranks for.
    """
    if np.isnan(x).any():
        return np.full(len(x), np.nan)
    _, which, counts = np.unique(x, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[which], dtype=np.float64)


def as_float(values: npt.ArrayLike, what: str) -> FloatArray:
    """Values as a float array; strings in a numeric column are refused by name."""
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as err:
        raise ShapeError(f"{what}: holds a value that is not a number ({err})") from None


def survival_arrays(
    time: npt.ArrayLike,
    event: npt.ArrayLike,
    *,
    need_events: bool = True,
    longest: float | None = None,
) -> tuple[FloatArray, BoolArray]:
    """Check follow-up times and event flags.

    Parameters
    ----------
    time : (n,) follow-up, in any unit, never negative
    event : (n,) 0/1 or False/True; 1/2 coding is refused, because which is the event is unknown
    need_events : refuse a sample without any event
    longest : longest plausible follow-up in the unit of `time`, if known

    Raises
    ------
    ShapeError, MissingValuesError, BadTimesError, BadEventsError, NoEventsError
    """
    t = as_float(time, "time")
    e = as_float(event, "event")
    if t.ndim != 1 or e.ndim != 1 or len(t) != len(e):
        raise ShapeError(f"time has shape {t.shape} and event {e.shape}: give one of each a row")
    if len(t) == 0:
        raise ShapeError("no patients: the population filters leave nobody")
    bad = ~np.isfinite(t)
    if bad.any():
        raise MissingValuesError(
            f"time: {int(bad.sum())} of {len(t)} values are missing or infinite"
            f" (first at row {int(np.argmax(bad))}): drop or impute them first"
        )
    if np.isnan(e).any():
        raise MissingValuesError(
            f"event: {int(np.isnan(e).sum())} of {len(e)} flags are missing: drop those rows first"
        )
    if (t < 0).any():
        raise BadTimesError(
            f"time: {int((t < 0).sum())} negative values (lowest {t.min():g}): correct or drop them"
        )
    if longest is not None and (t > longest).any():
        raise BadTimesError(
            f"time: {int((t > longest).sum())} values above {longest:g} (largest {t.max():g}),"
            " which is implausible: check the unit"
        )
    values = np.unique(e)
    if not np.isin(values, (0.0, 1.0)).all():
        shown = ", ".join(f"{v:g}" for v in values[:5])
        raise BadEventsError(f"event: flags must be 0 or 1, found {shown}: state the event coding")
    flags = e == 1.0
    if need_events and not flags.any():
        raise NoEventsError(f"no events among {len(t)} patients: nothing can be estimated")
    return t, flags


def group_codes(
    group: npt.ArrayLike, n: int, *, at_least: int = 2
) -> tuple[IntArray, tuple[str, ...]]:
    """Group labels as codes 0..k-1 in sorted order, with their names.

    Raises `EmptyGroupError` when fewer than `at_least` groups have a patient.
    """
    g = np.asarray(group)
    if g.shape != (n,):
        raise ShapeError(f"group has shape {g.shape} for {n} patients")
    if g.dtype.kind == "f" and np.isnan(g).any():
        raise MissingValuesError(f"group: {int(np.isnan(g).sum())} patients have no group")
    labels, codes = np.unique(g, return_inverse=True)
    if len(labels) < at_least:
        raise EmptyGroupError(
            f"only a single group ({labels[0]}) has patients: a comparison needs {at_least}"
        )
    return codes.astype(np.int64), tuple(str(label) for label in labels)


def design(
    X: npt.ArrayLike, names: Sequence[str], n: int, *, constant: bool = False
) -> tuple[FloatArray, tuple[str, ...]]:
    """Check a design matrix: (n, k), complete, no constant column unless `constant`.

    Parameters
    ----------
    X : (n, k) values of the covariates, or (n,) of a single covariate; no missing value
    n : number of patients that the outcome has
    constant : accept columns that do not vary

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
        raise ShapeError("no covariate given")
    if len(names) != x.shape[1]:
        raise ShapeError(f"{len(names)} names for {x.shape[1]} covariates")
    finite = np.isfinite(x).all(axis=0)
    if not finite.all():
        column = int(np.argmin(finite))
        missing = int((~np.isfinite(x[:, column])).sum())
        raise MissingValuesError(
            f'covariate "{names[column]}": {missing} of {n} values are missing:'
            " use complete cases or imputation as the contract states"
        )
    if not constant:
        flat = np.ptp(x, axis=0) == 0.0
        if flat.any():
            column = int(np.argmax(flat))
            raise ConstantFeatureError(
                f'covariate "{names[column]}" is constant ({x[0, column]:g}) in the {n} analyzed'
                " patients: it cannot be related to the outcome"
            )
    return x, tuple(names)
