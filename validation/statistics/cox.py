"""Cox proportional hazards with Efron ties, strata, delayed entry and Firth's penalty.

The model is h(t | x) = h0(t) exp(x'beta); beta maximizes the partial likelihood (Cox
1972) by Newton's method on standardized covariates. The plain model has Wald intervals
and tests; with Firth's penalty, intervals and tests come from the profile of the
penalized likelihood.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.special import chdtri, ndtr

from validation.statistics.base import (
    Z95,
    BoolArray,
    FloatArray,
    HazardRatios,
    IntArray,
    TestResult,
    chi2_p,
    chi2_test,
    design,
    entry_array,
    group_codes,
    survival_arrays,
)
from validation.statistics.concordance import harrell
from validation.statistics.errors import (
    CollinearError,
    ConstantFeatureError,
    ConvergenceError,
    SeparationError,
    TooManyCovariatesError,
)
from validation.statistics.newton import Likelihood, Maximum, maximize
from validation.statistics.partial_likelihood import (
    RiskSets,
    likelihood,
    martingale_residuals,
    risk_sets,
    score_residuals,
)

# A profile limit beyond this log hazard ratio per standard deviation is reported as infinite.
_FARTHEST = 60.0


@dataclass(frozen=True)
class CoxFit(HazardRatios):
    """A fitted Cox model.

    `p` is the Wald p-value, or that of the penalized likelihood ratio with Firth's penalty;
    `interval` names the method used for `lower` and `upper`, the limits of the hazard ratio.
    `converged` is False, with a `reason`, if the numbers must not be reported.
    """

    converged: bool
    loglik: float
    loglik_null: float = float("nan")
    likelihood_ratio: TestResult | None = None
    covariance: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))
    penalty: str | None = None
    interval: Literal["wald", "profile"] = "wald"
    reason: str = ""
    iterations: int = 0
    clusters: int = 0
    score_test: TestResult | None = None
    robust_score: TestResult | None = None
    ranked: tuple[FloatArray, BoolArray, FloatArray] | None = field(
        default=None, repr=False, compare=False
    )

    @cached_property
    def concordance(self) -> float:
        """Return Harrell's C of the linear predictor; NaN with strata or delayed entry."""
        return float("nan") if self.ranked is None else harrell(*self.ranked)

    @property
    def events_per_covariate(self) -> float:
        """Return events per covariate.

        Under ten, prefer Firth's penalty (Peduzzi and others 1995).
        """
        return self.events / len(self.names)

    def index(self, name: str) -> int:
        """Return the position of a covariate."""
        return self.names.index(name)


def _prepare(
    time: npt.ArrayLike,
    event: npt.ArrayLike,
    strata: npt.ArrayLike | None,
    entry: npt.ArrayLike | None,
) -> tuple[FloatArray, BoolArray, list[RiskSets]]:
    """Return checked times and flags, and one `RiskSets` per stratum with an event."""
    t, e = survival_arrays(time, event)
    started = entry_array(entry, t)
    layer = np.zeros(len(t), dtype=np.int64)
    if strata is not None:
        layer, _ = group_codes(strata, len(t), at_least=1)
    sets = [risk_sets(t, e, np.flatnonzero(layer == s), started) for s in np.unique(layer)]
    return t, e, [s for s in sets if len(s.who)]


def _refuse_hopeless(
    x: FloatArray, e: BoolArray, names: Sequence[str], penalty: str | None
) -> None:
    """Reject data for which no likelihood can be estimated, before fitting."""
    n_events, k = int(e.sum()), x.shape[1]
    if k >= n_events:
        raise TooManyCovariatesError(
            f"{k} covariates for {n_events} events would overfit the model; use fewer "
            "covariates (ten events per covariate is the usual minimum)"
        )
    if np.linalg.matrix_rank((x - x.mean(axis=0)) / x.std(axis=0)) < k:
        raise CollinearError(
            f"covariates {', '.join(names)} are linearly dependent; remove one of them"
        )
    if penalty is None:
        for column, name in enumerate(names):
            values = np.unique(x[:, column])
            for value in values if len(values) == 2 else ():
                if not e[x[:, column] == value].any():
                    raise SeparationError(
                        f'covariate "{name}": no events among patients with value {value:g}, so its'
                        ' hazard ratio is infinite or zero; use penalty="firth"'
                    )


def cox(
    time: npt.ArrayLike,
    event: npt.ArrayLike,
    X: npt.ArrayLike,
    names: Sequence[str],
    *,
    strata: npt.ArrayLike | None = None,
    penalty: Literal["firth"] | None = None,
    entry: npt.ArrayLike | None = None,
    cluster: npt.ArrayLike | None = None,
    interval: Literal["wald", "profile"] | None = None,
    start: FloatArray | None = None,
) -> CoxFit:
    """Fit a Cox model.

    Parameters
    ----------
    time, event : (n,) follow-up and 0/1 flags
    X : (n, k) covariates, complete; names : their k names
    strata : (n,) labels; each stratum has its own baseline hazard
    penalty : "firth" for few events or separation
    entry : (n,) delayed entry, in the unit of time
    cluster : (n,) labels of rows that belong together (slides of a patient, patients at a
        site); standard errors, limits and p-values use the sandwich estimator of Lin and Wei
        1989, and `robust_score` is its score test; the likelihood ratio still treats rows as
        independent
    interval : by default Wald for the plain model, profile for Firth's
    start : (k,) coefficients near the maximum, if known

    Raises
    ------
    NoEventsError, ConstantFeatureError, CollinearError, TooManyCovariatesError,
    SeparationError, ConvergenceError, MissingValuesError, BadTimesError, BadEventsError
    """
    t, e, sets = _prepare(time, event, strata, entry)
    x, labels = design(X, names, len(t))
    _refuse_hopeless(x, e, labels, penalty)
    firth = penalty == "firth"
    center, scale = x.mean(axis=0), x.std(axis=0)
    z = (x - center) / scale
    k = x.shape[1]

    def evaluate(beta: FloatArray) -> Likelihood:
        return likelihood(sets, z, beta, firth=firth)

    null = evaluate(np.zeros(k))
    _refuse_unidentified(null.information, labels)
    begin = np.zeros(k) if start is None else start * scale
    best = maximize(evaluate, begin, z, penalized=firth)
    _refuse_divergence(best, z, labels)
    covariance_z = np.linalg.inv(best.at.information)
    robust_score = None
    if cluster is not None:
        codes, groups = group_codes(cluster, len(t), at_least=k + 1)
        covariance_z, robust_score = sandwich(sets, z, best, codes, len(groups))
    se_z = np.sqrt(np.diag(covariance_z))
    kind = interval or ("profile" if firth and cluster is None else "wald")
    if kind == "wald":
        half = Z95 * se_z
        low, high = best.beta - half, best.beta + half
        p = 2.0 * ndtr(-np.abs(best.beta / se_z))
    else:
        low, high, p = _profile(evaluate, z, best, se_z)
    coef, se = best.beta / scale, se_z / scale
    with np.errstate(over="ignore"):
        hr, lower, upper = np.exp(coef), np.exp(low / scale), np.exp(high / scale)
    ratio = 2.0 * (best.at.value - null.value)
    # Row by row, not as a matrix product: patients with equal covariates must tie exactly.
    score = (x * coef).sum(axis=1)
    rao = None
    if not firth:
        rao = chi2_test(float(null.score @ np.linalg.solve(null.information, null.score)), k)
    return CoxFit(
        names=labels,
        coef=coef,
        se=se,
        hr=hr,
        lower=lower,
        upper=upper,
        p=p,
        n=len(t),
        events=int(e.sum()),
        converged=True,
        loglik=best.at.value + (float(np.log(scale).sum()) if firth else 0.0),
        loglik_null=null.value + (float(np.log(scale).sum()) if firth else 0.0),
        likelihood_ratio=chi2_test(ratio, k),
        covariance=covariance_z / np.outer(scale, scale),
        score_test=rao,
        penalty=penalty,
        interval=kind,
        iterations=best.iterations,
        clusters=0 if cluster is None else len(groups),
        robust_score=robust_score,
        ranked=(t, e, score) if entry is None and strata is None else None,
    )


def null_scores(
    time: npt.ArrayLike,
    event: npt.ArrayLike,
    X: npt.ArrayLike,
    names: Sequence[str],
    strata: npt.ArrayLike | None = None,
) -> FloatArray:
    """Return the (n,) martingale residuals of a model with only the covariates.

    Their sum weighted by another variable is the score statistic for adding that variable. A
    patient in a stratum without events has 0. Parameters and errors are those of `cox`.
    """
    fit = cox(time, event, X, names, strata=strata)
    _, _, sets = _prepare(time, event, strata, None)
    x, _ = design(X, names, fit.n)
    return martingale_residuals(sets, x - x.mean(axis=0), fit.coef)


def sandwich(
    sets: list[RiskSets], z: FloatArray, best: Maximum, codes: IntArray, groups: int
) -> tuple[FloatArray, TestResult]:
    """Compute the coefficients' covariance from the clusters' score residuals, and the score test.

    Firth's penalty shifts the estimate but does not change the residuals.
    """

    def by_cluster(beta: FloatArray) -> FloatArray:
        residual = score_residuals(sets, z, beta)
        return np.stack([np.bincount(codes, item, minlength=groups) for item in residual.T], axis=1)

    inverse = np.linalg.inv(best.at.information)
    shares = by_cluster(best.beta) @ inverse
    covariance = np.asarray(shares.T @ shares, dtype=np.float64)
    if float(np.diag(covariance).min()) <= 1e-20:
        raise ConvergenceError("too few clusters with events for a robust variance")
    null = by_cluster(np.zeros(z.shape[1]))
    total = null.sum(axis=0)
    statistic = float(total @ np.linalg.pinv(null.T @ null, hermitian=True) @ total)
    return covariance, chi2_test(statistic, z.shape[1])


def _refuse_unidentified(information: FloatArray, names: Sequence[str]) -> None:
    """Reject covariates that are constant or collinear among patients at risk at event times."""
    own = np.diag(information)
    if (own < 1e-9).any():
        raise ConstantFeatureError(
            f'covariate "{names[int(np.argmin(own))]}" does not vary among the patients at risk '
            "at event times (within strata), so it cannot be related to the outcome"
        )
    scaled = information / np.sqrt(np.outer(own, own))
    # Spline terms may come near 1e-10; below this the inverse has no correct digits.
    if float(np.linalg.eigvalsh(scaled)[0]) < 1e-12:
        raise CollinearError(
            f"covariates {', '.join(names)} cannot be distinguished among the patients at risk "
            "at event times; remove one of them"
        )


def _refuse_divergence(best: Maximum, z: FloatArray, names: Sequence[str]) -> None:
    if best.ended == "infinite":
        worst = int(np.argmax(np.abs(best.step) * np.ptp(z, axis=0)))
        raise SeparationError(
            f'covariate "{names[worst]}" separates the events (its coefficient grows without'
            ' bound); use penalty="firth"'
        )
    if best.ended != "converged":
        raise ConvergenceError(
            f"the Cox model for {', '.join(names)} did not converge in {best.iterations} steps;"
            " check for collinear or extreme covariates"
        )


def _profile(
    evaluate: Callable[[FloatArray], Likelihood],
    z: FloatArray,
    best: Maximum,
    se: FloatArray,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Find profile likelihood limits, where twice its drop reaches chi-squared, and LR p-values.

    The slope of the profile is the fixed coefficient's score (envelope theorem), so each
    limit is found by Newton's method, kept inside a bracket.
    """
    k = len(best.beta)
    target = best.at.value - float(chdtri(1, 0.05)) / 2.0
    low, high, p = np.zeros(k), np.zeros(k), np.zeros(k)
    for j in range(k):
        free = np.ones(k, dtype=bool)
        free[j] = False

        def maximize_profile(
            value: float, start: FloatArray, j: int = j, free: BoolArray = free
        ) -> Maximum:
            at = start.copy()
            at[j] = value
            return maximize(evaluate, at, z, free=free, penalized=True)

        for side, limits in ((-1.0, low), (1.0, high)):
            limits[j] = _root(maximize_profile, best.beta, j, side * Z95 * float(se[j]), target)
        p[j] = chi2_p(2.0 * (best.at.value - maximize_profile(0.0, best.beta).at.value), 1)
    return low, high, p


def _root(
    maximize_profile: Callable[[float, FloatArray], Maximum],
    beta: FloatArray,
    j: int,
    reach: float,
    target: float,
) -> float:
    """Find where the profile of coefficient j drops to `target` toward `reach`; may be infinite."""
    inside, outside = float(beta[j]), float("nan")
    value, start = inside + reach, beta
    for _ in range(60):
        found = maximize_profile(value, start)
        start = found.beta
        gap = found.at.value - target
        if abs(gap) < 1e-9:
            return value
        if gap > 0.0:
            inside = value
        else:
            outside = value
        slope = float(found.at.score[j])
        step = -gap / slope if slope != 0.0 else reach
        step = float(np.clip(step, -2.0 * abs(reach), 2.0 * abs(reach)))
        proposed = value + step
        bracketed = not np.isnan(outside)
        ends = sorted((inside, outside)) if bracketed else [-np.inf, np.inf]
        if bracketed and not ends[0] < proposed < ends[1]:
            proposed = (inside + outside) / 2.0
        elif not bracketed and (proposed - value) * reach <= 0.0:
            proposed = value + reach
        if abs(proposed) > _FARTHEST:
            return float(np.sign(reach) * np.inf)
        if abs(proposed - value) < 1e-10:
            return proposed
        value = proposed
    return value
