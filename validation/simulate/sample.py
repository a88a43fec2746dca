"""Arrays with a known hazard ratio, for calibrating statistics rather than pipelines."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from validation.statistics.base import BoolArray, FloatArray
from validation.statistics.errors import ShapeError


@dataclass(frozen=True)
class SurvivalSample:
    """Simulated follow-up. `X` is (n, k), `coef` the log hazard ratios that made it."""

    time: FloatArray
    event: BoolArray
    X: FloatArray
    coef: FloatArray


def survival_sample(
    n: int,
    coef: FloatArray | list[float],
    *,
    seed: int,
    prevalence: float | None = None,
    censored: float = 0.4,
    correlation: float = 0.0,
    shape: float = 1.0,
) -> SurvivalSample:
    """Weibull proportional hazards with uniform censoring.

    Parameters
    ----------
    coef : log hazard ratio per covariate (per unit; covariates have mean 0 and sd 1, except the
        first, which is 0/1 with `prevalence` when that is given)
    censored : expected share of censored patients under coef = 0, reached by the censoring range
    correlation : of every pair of covariates, before the first is cut
    """
    beta = np.asarray(coef, dtype=np.float64)
    if n < 2 or beta.ndim != 1 or not 0.0 <= censored < 1.0:
        raise ShapeError("survival_sample: n of at least 2, one coefficient per covariate")
    rng = np.random.default_rng(seed)
    shared = rng.standard_normal((n, 1))
    X = np.sqrt(correlation) * shared + np.sqrt(1.0 - correlation) * rng.standard_normal(
        (n, len(beta))
    )
    if prevalence is not None:
        cut = np.quantile(X[:, 0], 1.0 - prevalence)
        X[:, 0] = X[:, 0] > cut
    hazard = np.exp((X - X.mean(axis=0)) @ beta)
    death = (rng.exponential(size=n) / hazard) ** (1.0 / shape)
    limit = np.inf
    if censored > 0.0:
        limit = _censoring_range(censored, shape)
    leave = rng.random(n) * limit if np.isfinite(limit) else np.full(n, np.inf)
    return SurvivalSample(np.minimum(death, leave), death <= leave, X, beta)


def _censoring_range(share: float, shape: float) -> float:
    """c such that a uniform(0, c) censoring time precedes a unit Weibull with chance `share`."""
    grid = (np.arange(4000) + 0.5) / 4000.0
    low, high = 1e-6, 1e6
    for _ in range(200):
        middle = float(np.sqrt(low * high))
        if float(np.exp(-((middle * grid) ** shape)).mean()) > share:
            low = middle
        else:
            high = middle
    return middle
