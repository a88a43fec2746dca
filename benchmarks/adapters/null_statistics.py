"""Is the machinery honest? False claims on null data, power against theory, interval coverage.

Every rate comes with its exact (Clopper and Pearson 1934) interval, so that "at most nominal" is a
statement about evidence: a rate is compatible with its nominal level when the interval's lower end
does not exceed it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
from scipy.special import betaincinv

from validation.simulate.sample import (
    CompetingSample,
    SurvivalSample,
    competing_sample,
    survival_sample,
)
from validation.statistics.base import FloatArray
from validation.statistics.binary import fisher, logistic
from validation.statistics.competing import cause_specific, gray_test
from validation.statistics.continuous import linear, rank_test
from validation.statistics.cox import cox
from validation.statistics.cutpoint import maximally_selected
from validation.statistics.errors import StatisticsError
from validation.statistics.fine_gray import fine_gray
from validation.statistics.power import power_at
from validation.statistics.survival import logrank, rmst_difference


@dataclass(frozen=True)
class Rate:
    """A share of runs with its exact 95% interval. `refused` runs gave no number at all."""

    name: str
    hits: int
    runs: int
    refused: int
    rate: float
    lower: float
    upper: float

    def at_most(self, nominal: float) -> bool:
        """Whether the rate is compatible with being at most `nominal`."""
        return self.lower <= nominal


def rate(name: str, outcomes: Iterable[bool | None]) -> Rate:
    """Count true outcomes; None is a refusal and counts as a run without a claim."""
    found = list(outcomes)
    hits, runs = sum(1 for o in found if o), len(found)
    refused = sum(1 for o in found if o is None)
    lower = float(betaincinv(hits, runs - hits + 1, 0.025)) if hits else 0.0
    upper = float(betaincinv(hits + 1, runs - hits, 0.975)) if hits < runs else 1.0
    return Rate(name, hits, runs, refused, hits / runs if runs else float("nan"), lower, upper)


Sample = TypeVar("Sample")


def _tried(
    runs: int, seed: int, draw: Callable[..., Sample], claims: Callable[[Sample], bool]
) -> list[bool | None]:
    """What each run found in a sample of its own seed; None where it was refused."""
    outcomes: list[bool | None] = []
    for run in range(runs):
        sample = draw(seed=seed * 1_000_003 + run)
        try:
            outcomes.append(claims(sample))
        except StatisticsError:
            outcomes.append(None)
    return outcomes


Test = Callable[[SurvivalSample], float]


def _names(s: SurvivalSample) -> list[str]:
    return [f"x{i}" for i in range(s.X.shape[1])]


def _half_time(s: SurvivalSample) -> float:
    groups = s.X[:, 0]
    return float(0.8 * min(s.time[groups == g].max() for g in np.unique(groups)))


def _by_half(s: SurvivalSample) -> FloatArray:
    """A 0/1 outcome without follow-up: dead by the median time (for a complete sample)."""
    return np.asarray(s.time < np.median(s.time), dtype=np.float64)


def _fisher(s: SurvivalSample) -> float:
    y, g = _by_half(s), s.X[:, 0] > 0
    return fisher([[y[g].sum(), (1 - y[g]).sum()], [y[~g].sum(), (1 - y[~g]).sum()]]).p


TESTS: dict[str, Test] = {
    "log-rank": lambda s: logrank(s.time, s.event, s.X[:, 0]).p,
    "cox, Wald": lambda s: float(cox(s.time, s.event, s.X[:, :1], ["x0"]).p[0]),
    "cox, adjusted": lambda s: float(cox(s.time, s.event, s.X, _names(s)).p[0]),
    "cox, Firth": lambda s: float(cox(s.time, s.event, s.X, _names(s), penalty="firth").p[0]),
    "restricted mean": lambda s: rmst_difference(s.time, s.event, s.X[:, 0], _half_time(s)).p,
    "Fisher": _fisher,
    "logistic, adjusted": lambda s: float(logistic(_by_half(s), s.X, _names(s)).p[0]),
    "Mann-Whitney": lambda s: rank_test(s.time, s.X[:, 0]).test.p,
    "linear, HC3": lambda s: float(linear(np.log(s.time), s.X, _names(s), robust=True).p[0]),
    "best cut, corrected": lambda s: maximally_selected(s.time, s.event, s.X[:, 1]).p,
}
DISHONEST: dict[str, Test] = {
    "best cut, uncorrected": lambda s: maximally_selected(s.time, s.event, s.X[:, 1]).p_uncorrected,
}


def false_claims(
    name: str,
    *,
    runs: int,
    n: int = 200,
    alpha: float = 0.05,
    seed: int = 0,
    censored: float = 0.5,
    prevalence: float = 0.3,
) -> Rate:
    """How often a test of `TESTS` (or `DISHONEST`) claims an effect where there is none.

    The exposure (first covariate) has no effect; the third covariate has one and is correlated with
    it, so that adjusted models have something to adjust for (unadjusted tests see no correlation).

    Parameters
    ----------
    name : of the test
    runs : samples that are drawn
    n : patients of each
    alpha : two-sided level
    seed : of the first sample; the others follow
    censored : share of the patients
    prevalence : share of the patients that is exposed, or has the outcome
    """
    test = (TESTS | DISHONEST)[name]
    adjusted = "adjusted" in name or "Firth" in name or "linear" in name
    draw = partial(
        survival_sample,
        n,
        [0.0, 0.0, 0.6 if adjusted else 0.0],
        prevalence=prevalence,
        censored=censored,
        correlation=0.4 if adjusted else 0.0,
    )
    return rate(name, _tried(runs, seed, draw, lambda sample: test(sample) < alpha))


def coverage(
    *,
    runs: int,
    hr: float = 1.6,
    n: int = 200,
    seed: int = 0,
    prevalence: float = 0.4,
    censored: float = 0.4,
    penalty: bool = False,
) -> Rate:
    """How often the 95% interval of an adjusted hazard ratio holds the true one.

    Parameters
    ----------
    runs : samples that are drawn
    hr : the true hazard ratio
    n : patients of each sample
    seed : of the first sample; the others follow
    prevalence : share of the patients that is exposed
    censored : share of the patients
    penalty : fit with Firth's
    """
    truth = float(np.log(hr))
    draw = partial(
        survival_sample,
        n,
        [truth, 0.4],
        prevalence=prevalence,
        censored=censored,
        correlation=0.3,
    )

    def holds(s: SurvivalSample) -> bool:
        fit = cox(s.time, s.event, s.X, _names(s), penalty="firth" if penalty else None)
        return bool(fit.lower[0] <= hr <= fit.upper[0])

    return rate("Firth, profile" if penalty else "Cox, Wald", _tried(runs, seed, draw, holds))


def competing_coverage(*, runs: int, shr: float = 1.6, n: int = 200, seed: int = 0) -> Rate:
    """How often Fine and Gray's 95% interval, adjusted, holds the true subdistribution ratio.

    Parameters
    ----------
    runs : samples that are drawn
    shr : the true subdistribution hazard ratio
    n : patients of each sample
    seed : of the first sample; the others follow
    """
    draw = partial(competing_sample, n, float(np.log(shr)), other=-0.5)

    def holds(s: CompetingSample) -> bool:
        fit = fine_gray(s.time, s.status, s.X, ["exposed", "z"])
        return bool(fit.lower[0] <= shr <= fit.upper[0])

    return rate("Fine and Gray", _tried(runs, seed, draw, holds))


COMPETING = ("Gray's test", "Fine and Gray", "cause-specific (another null: for contrast)")


def competing_false_claims(
    name: str, *, runs: int, n: int = 200, alpha: float = 0.05, seed: int = 0, other: float = 0.8
) -> Rate:
    """How often a test of `COMPETING` claims that the groups differ where their incidence of the
    cause is the same and only the competing event comes sooner (log hazard ratio `other`).

    The cause's own hazard then does differ, so that its test claims more: it asks something else.

    Parameters
    ----------
    name : of the test
    runs : samples that are drawn
    n : patients of each
    alpha : two-sided level
    seed : of the first sample; the others follow
    other : log hazard ratio of the competing event
    """

    def claims(s: CompetingSample) -> bool:
        group = s.X[:, :1]
        if name == COMPETING[0]:
            return gray_test(s.time, s.status, group[:, 0]).p < alpha
        model = fine_gray if name == COMPETING[1] else cause_specific
        return bool(model(s.time, s.status, group, ["x"]).p[0] < alpha)

    return rate(name, _tried(runs, seed, partial(competing_sample, n, 0.0, other=other), claims))


@dataclass(frozen=True)
class PowerPoint:
    """Power found at one hazard ratio, and what Schoenfeld's formula says for the same events."""

    hr: float
    events: float
    found: Rate
    analytic: float


def power_curve(
    hazard_ratios: Iterable[float],
    *,
    runs: int,
    n: int = 200,
    alpha: float = 0.05,
    seed: int = 0,
    prevalence: float = 0.5,
    censored: float = 0.4,
) -> list[PowerPoint]:
    """Power of the log-rank test in simulated samples, beside the analytic value.

    Parameters
    ----------
    hazard_ratios : one point for each
    runs : samples that are drawn for each
    n : patients of each sample
    alpha : two-sided level
    seed : of the first sample; the others follow
    prevalence : share of the patients that is exposed
    censored : share of the patients
    """
    points = []
    for hr in hazard_ratios:
        hits: list[bool | None] = []
        events = 0
        for run in range(runs):
            s = survival_sample(
                n,
                [float(np.log(hr))],
                seed=seed * 1_000_003 + run,
                prevalence=prevalence,
                censored=censored,
            )
            events += int(s.event.sum())
            hits.append(logrank(s.time, s.event, s.X[:, 0]).p < alpha)
        mean = events / runs
        points.append(
            PowerPoint(
                hr,
                mean,
                rate(f"HR {hr:g}", hits),
                power_at(hr, round(mean), fraction_exposed=prevalence, alpha=alpha),
            )
        )
    return points
