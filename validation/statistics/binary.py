"""Binary outcomes: Fisher's exact test and logistic regression.

Fisher 1935; Firth 1993 (Biometrika) and Heinze and Schemper 2002 (Statistics in Medicine) for the
penalized fit under separation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.special import expit, ndtr

from validation.statistics.base import (
    Z95,
    BoolArray,
    Estimate,
    FloatArray,
    TestResult,
    as_float,
    chi2_test,
    design,
)
from validation.statistics.errors import (
    BadEventsError,
    CollinearError,
    ConvergenceError,
    EmptyGroupError,
    NoEventsError,
    SeparationError,
    ShapeError,
    TooManyCovariatesError,
)
from validation.statistics.newton import Likelihood, Maximum, maximize


def fisher(table: npt.ArrayLike) -> Estimate:
    """Run Fisher's exact test on [[exposed with, without], [unexposed with, without]].

    The estimate is the conditional maximum likelihood odds ratio with its exact interval. The
    p-value is two-sided: it sums all tables no more probable than the observed one. If a cell is
    empty, the odds ratio may be 0 or infinite, and its interval is then one-sided.

    Raises
    ------
    EmptyGroupError, NoEventsError
    """
    from scipy.stats import fisher_exact
    from scipy.stats.contingency import odds_ratio

    counts = as_float(table, "table")
    if counts.shape != (2, 2) or (counts < 0).any() or (counts != np.round(counts)).any():
        raise ShapeError("Fisher's test requires a 2 x 2 table of counts")
    if (counts.sum(axis=1) == 0).any():
        raise EmptyGroupError("one group has no patients, so there is nothing to compare")
    if (counts.sum(axis=0) == 0).any():
        raise NoEventsError("all patients have the same outcome, so there is nothing to compare")
    whole = counts.astype(np.int64)
    found = odds_ratio(whole, kind="conditional")
    limits = found.confidence_interval()
    return Estimate(
        float(found.statistic),
        float(limits.low),
        float(limits.high),
        float(fisher_exact(whole).pvalue),
    )


@dataclass(frozen=True)
class LogisticFit:
    """A fitted logistic model. Arrays have one entry per covariate; the intercept is separate."""

    names: tuple[str, ...]
    coef: FloatArray
    se: FloatArray
    odds_ratio: FloatArray
    lower: FloatArray
    upper: FloatArray
    p: FloatArray
    intercept: float
    n: int
    events: int
    converged: bool
    loglik: float
    loglik_null: float
    likelihood_ratio: TestResult
    penalty: str | None = None


def outcome(y: npt.ArrayLike) -> BoolArray:
    """Check that an outcome is coded 0/1 and that both values occur."""
    values = as_float(y, "outcome")
    if values.ndim != 1 or len(values) == 0:
        raise ShapeError("outcome: one value per patient is required")
    if np.isnan(values).any():
        raise BadEventsError(f"outcome: {int(np.isnan(values).sum())} values are missing")
    if not np.isin(values, (0.0, 1.0)).all():
        raise BadEventsError("outcome: values must be 0 or 1; specify the coding")
    flags: BoolArray = np.equal(values, 1.0)
    if flags.all() or not flags.any():
        raise NoEventsError("all patients have the same outcome, so nothing can be estimated")
    return flags


def _fit(x: FloatArray, y: FloatArray, *, firth: bool, null: bool = False) -> Maximum:
    """Fit the design x, whose first column is the intercept, or only the intercept if `null`."""

    def evaluate(beta: FloatArray) -> Likelihood:
        eta = x @ beta
        fitted = expit(eta)
        weight = fitted * (1.0 - fitted)
        information = (x.T * weight) @ x
        value, residual = float((y * eta - np.logaddexp(0.0, eta)).sum()), y - fitted
        if firth:
            sign, logdet = np.linalg.slogdet(information)
            if sign <= 0:
                return Likelihood(-np.inf, x.T @ residual, information)
            value += 0.5 * float(logdet)
            leverage = weight * np.einsum("ij,jk,ik->i", x, np.linalg.inv(information), x)
            residual = residual + leverage * (0.5 - fitted)
        return Likelihood(value, x.T @ residual, information)

    free = np.arange(x.shape[1]) < (1 if null else x.shape[1])
    return maximize(evaluate, np.zeros(x.shape[1]), x, free=free, penalized=firth)


def logistic(
    y: npt.ArrayLike,
    X: npt.ArrayLike,
    names: Sequence[str],
    *,
    penalty: Literal["firth"] | None = None,
) -> LogisticFit:
    """Fit a logistic regression with an intercept; return odds ratios with Wald intervals.

    Parameters
    ----------
    y : (n,) outcome, 0 or 1
    X : (n, k) covariates in their own units, without an intercept
    penalty : "firth" for the penalized likelihood (few events or separation)

    Returns
    -------
    Log odds ratios per unit of each covariate, odds ratios, limits and p-values; the intercept is
    separate.

    Raises
    ------
    NoEventsError, BadEventsError, ConstantFeatureError, TooManyCovariatesError, CollinearError,
    SeparationError (which suggests penalty="firth"), ConvergenceError
    """
    flags = outcome(y)
    x, labels = design(X, names, len(flags))
    k, rarer = x.shape[1], int(min(flags.sum(), (~flags).sum()))
    if k >= rarer:
        raise TooManyCovariatesError(
            f"{k} covariates for {rarer} patients with the rarer outcome; use fewer covariates"
        )
    center, scale = x.mean(axis=0), x.std(axis=0)
    z = np.column_stack((np.ones(len(flags)), (x - center) / scale))
    if np.linalg.matrix_rank(z) < k + 1:
        raise CollinearError(
            f"covariates {', '.join(labels)} are linearly dependent; drop at least one"
        )
    target = flags.astype(np.float64)
    firth = penalty == "firth"
    best = _fit(z, target, firth=firth)
    if best.ended == "infinite":
        worst = labels[int(np.argmax(np.abs(best.step[1:]) * np.ptp(z[:, 1:], axis=0)))]
        raise SeparationError(
            f'covariate "{worst}" separates the outcomes (infinite odds ratio); use penalty="firth"'
        )
    if best.ended != "converged":
        raise ConvergenceError(f"the logistic model for {', '.join(labels)} did not converge")
    beta, information, loglik = best.beta, best.at.information, best.at.value
    loglik_null = _fit(z, target, firth=firth, null=True).at.value
    covariance = np.linalg.inv(information)
    se_z = np.sqrt(np.diag(covariance))[1:]
    slope = beta[1:]
    half = Z95 * se_z
    ratio = 2.0 * (loglik - loglik_null)
    with np.errstate(over="ignore"):
        limits = [np.exp(v / scale) for v in (slope, slope - half, slope + half)]
    return LogisticFit(
        names=labels,
        coef=slope / scale,
        se=se_z / scale,
        odds_ratio=limits[0],
        lower=limits[1],
        upper=limits[2],
        p=2.0 * ndtr(-np.abs(slope / se_z)),
        intercept=float(beta[0] - (slope / scale * center).sum()),
        n=len(flags),
        events=int(flags.sum()),
        converged=True,
        loglik=loglik,
        loglik_null=loglik_null,
        likelihood_ratio=chi2_test(ratio, k),
        penalty=penalty,
    )
