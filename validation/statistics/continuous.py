"""Linear models and rank tests for continuous outcomes.

White 1980 and MacKinnon and White 1985 (J Econometrics) for HC3 standard errors; Mann and Whitney
1947; Kruskal and Wallis 1952.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import stdtr, stdtrit

from validation.statistics.base import FloatArray, TestResult, as_float, design, group_codes
from validation.statistics.errors import (
    CollinearError,
    ConstantFeatureError,
    MissingValuesError,
    ShapeError,
    TooManyCovariatesError,
)


@dataclass(frozen=True)
class LinearFit:
    """A fitted linear model. Arrays have one entry per covariate; the intercept is separate."""

    names: tuple[str, ...]
    coef: FloatArray
    se: FloatArray
    lower: FloatArray
    upper: FloatArray
    p: FloatArray
    intercept: float
    n: int
    r_squared: float


def _outcome(y: npt.ArrayLike) -> FloatArray:
    values = as_float(y, "outcome")
    if values.ndim != 1 or len(values) == 0:
        raise ShapeError("outcome: one value per patient is required")
    if not np.isfinite(values).all():
        raise MissingValuesError(f"outcome: {int((~np.isfinite(values)).sum())} values are missing")
    if np.ptp(values) == 0.0:
        raise ConstantFeatureError(f"the outcome is {values[0]:g} for all patients")
    return values


def linear(
    y: npt.ArrayLike,
    X: npt.ArrayLike,
    names: Sequence[str],
    *,
    robust: bool = False,
) -> LinearFit:
    """Fit least squares with an intercept and t intervals; `robust` gives HC3 standard errors.

    Parameters
    ----------
    y : (n,) outcome, in its own unit
    X : (n, k) covariates, without an intercept
    robust : use standard errors that remain valid under heteroscedasticity

    Returns
    -------
    Coefficients in units of the outcome per unit of each covariate, with limits and p-values; the
    intercept is separate.

    Raises
    ------
    ConstantFeatureError, CollinearError, TooManyCovariatesError, MissingValuesError
    """
    target = _outcome(y)
    x, labels = design(X, names, len(target))
    n, k = x.shape
    df = n - k - 1
    if df < 1:
        raise TooManyCovariatesError(f"{k} covariates for {n} patients leave no residual variation")
    centered = x - x.mean(axis=0)
    length = np.linalg.norm(centered, axis=0)
    # Scale columns to unit length, so that no covariate's scale decides what counts as collinear.
    z = np.column_stack((np.full(n, 1.0 / np.sqrt(n)), centered / length))
    if np.linalg.svd(z, compute_uv=False)[-1] < 1e-7:
        raise CollinearError(
            f"covariates {', '.join(labels)} are linearly dependent; drop at least one"
        )
    inverse = np.linalg.inv(z.T @ z)
    beta = inverse @ z.T @ target
    residual = target - z @ beta
    variance = float(residual @ residual) / df
    spread = target - target.mean()
    if variance * df <= 1e-20 * float(spread @ spread):
        raise CollinearError(
            f"the outcome is an exact linear function of {', '.join(labels)}, so standard errors "
            "cannot be estimated"
        )
    covariance = variance * inverse
    if robust:
        leverage = np.einsum("ij,jk,ik->i", z, inverse, z)
        if leverage.max() > 1.0 - 1e-9:
            raise CollinearError(
                f"a single patient determines a coefficient for {', '.join(labels)}; drop the"
                " covariate or the patient"
            )
        scaled = z * (residual / (1.0 - leverage))[:, None]
        covariance = inverse @ (scaled.T @ scaled) @ inverse
    se = np.sqrt(np.diag(covariance))[1:] / length
    slope = beta[1:] / length
    half = float(stdtrit(df, 0.975)) * se
    return LinearFit(
        names=labels,
        coef=slope,
        se=se,
        lower=slope - half,
        upper=slope + half,
        p=2.0 * stdtr(df, -np.abs(slope / se)),
        intercept=float(target.mean() - slope @ x.mean(axis=0)),
        n=n,
        r_squared=1.0 - float(residual @ residual) / float(spread @ spread),
    )


@dataclass(frozen=True)
class RankResult:
    """Result of a rank test and, for two groups, the probability that the second is higher."""

    test: TestResult
    superiority: float


def rank_test(y: npt.ArrayLike, group: npt.ArrayLike) -> RankResult:
    """Run the Mann-Whitney (two groups) or Kruskal-Wallis (more groups) test, corrected for ties.

    The Mann-Whitney p-value is exact for up to eight patients per group without ties; otherwise it
    uses the normal approximation with continuity correction.
    """
    from scipy.stats import kruskal, mannwhitneyu

    values = _outcome(y)
    codes, labels = group_codes(group, len(values))
    parts = [values[codes == c] for c in range(len(labels))]
    if len(parts) > 2:
        found = kruskal(*parts)
        test = TestResult(float(found.statistic), len(parts) - 1, float(found.pvalue))
        return RankResult(test, float("nan"))
    found = mannwhitneyu(parts[1], parts[0], alternative="two-sided")
    test = TestResult(float(found.statistic), None, float(found.pvalue))
    return RankResult(test, float(found.statistic) / (len(parts[0]) * len(parts[1])))
