"""Arrays with a known hazard ratio, for calibrating statistics rather than pipelines."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sage.core.seeds import generator
from validation.statistics.base import BoolArray, FloatArray, IntArray
from validation.statistics.errors import ShapeError


@dataclass(frozen=True)
class SurvivalSample:
    """Simulated follow-up: `X` is (n, k), and `coef` are the log hazard ratios used."""

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
) -> SurvivalSample:
    """Simulate survival with a constant baseline hazard and uniform censoring.

    Parameters
    ----------
    coef : log hazard ratio per covariate (per unit; covariates have mean 0 and sd 1, except the
        first, which is 0/1 with `prevalence` when that is given)
    censored : expected share of censored patients under coef = 0, which determines the censoring
        range
    correlation : correlation of every pair of covariates, before the first is dichotomized
    """
    beta = np.asarray(coef, dtype=np.float64)
    if n < 2 or beta.ndim != 1 or not 0.0 <= censored < 1.0:
        raise ShapeError(
            "survival_sample: requires n >= 2, one coefficient per covariate, and 0 <= censored < 1"
        )
    rng = generator(seed)
    shared = rng.standard_normal((n, 1))
    X = np.sqrt(correlation) * shared + np.sqrt(1.0 - correlation) * rng.standard_normal(
        (n, len(beta))
    )
    if prevalence is not None:
        cut = np.quantile(X[:, 0], 1.0 - prevalence)
        X[:, 0] = X[:, 0] > cut
    hazard = np.exp((X - X.mean(axis=0)) @ beta)
    death = rng.exponential(size=n) / hazard
    limit = np.inf
    if censored > 0.0:
        limit = _censoring_range(censored)
    leave = rng.random(n) * limit if np.isfinite(limit) else np.full(n, np.inf)
    return SurvivalSample(np.minimum(death, leave), death <= leave, X, beta)


@dataclass(frozen=True)
class CompetingSample:
    """Simulated follow-up with two causes: `status` is 0 (censored), 1 or 2, and `X` is (n, 2)."""

    time: FloatArray
    status: IntArray
    X: FloatArray


def competing_sample(
    n: int,
    effect: float,
    *,
    seed: int,
    other: float = 0.0,
    earliest: float = 0.2,
    latest: float = 2.5,
) -> CompetingSample:
    """Simulate proportional subdistribution hazards as in Fine and Gray (1999, section 5).

    F1(t | x) = 1 - (1 - 0.5 (1 - exp(-t))) ** exp(b'x); patients without cause 1 have cause 2
    after an exponential time.

    Parameters
    ----------
    effect : log subdistribution hazard ratio of the first covariate (0/1); the second, standard
        normal, has 0.3
    other : log hazard ratio of the first covariate for the time to cause 2
    earliest, latest : range of the uniform censoring times
    """
    share = 0.5  # of patients who eventually have cause 1, at x = 0
    rng = generator(seed)
    X = np.column_stack((rng.random(n) < 0.4, rng.standard_normal(n))).astype(np.float64)
    ratio = np.exp(X @ [effect, 0.3])
    ever = 1.0 - (1.0 - share) ** ratio
    first = rng.random(n) < ever
    u = rng.random(n) * ever
    one = -np.log(1.0 - (1.0 - (1.0 - u) ** (1.0 / ratio)) / share)
    two = rng.exponential(size=n) / np.exp(other * X[:, 0])
    leave = rng.uniform(earliest, latest, n)
    time = np.where(first, one, two)
    status = np.where(time > leave, 0, np.where(first, 1, 2))
    return CompetingSample(np.minimum(time, leave), status.astype(np.int64), X)


def _censoring_range(share: float) -> float:
    """Find c so that a uniform(0, c) time precedes a unit exponential with probability `share`."""
    grid = (np.arange(4000) + 0.5) / 4000.0
    low, high = 1e-6, 1e6
    for _ in range(200):
        middle = float(np.sqrt(low * high))
        if float(np.exp(-middle * grid).mean()) > share:
            low = middle
        else:
            high = middle
    return middle
