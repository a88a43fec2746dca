"""Statistics on simulated arrays: false claims on null data, interval coverage, power.

Each rate has an exact interval (Clopper and Pearson 1934); a rate is compatible with its
nominal level if the lower bound does not exceed it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, TypeVar

import numpy as np
import typer

from benchmarks.runner import Rate, Report, Row, rate
from benchmarks.simulate.samples import (
    CompetingSample,
    SurvivalSample,
    competing_sample,
    survival_sample,
)
from validation.statistics.base import FloatArray
from validation.statistics.binary import fisher, logistic
from validation.statistics.competing import gray_test
from validation.statistics.continuous import linear, rank_test
from validation.statistics.cox import cox
from validation.statistics.cutpoint import maximally_selected
from validation.statistics.errors import StatisticsError
from validation.statistics.fine_gray import fine_gray
from validation.statistics.power import power_at
from validation.statistics.survival import logrank, rmst_difference

Sample = TypeVar("Sample")
ALPHA = 0.05


def _try_samples(
    runs: int, seed: int, draw: Callable[..., Sample], claims: Callable[[Sample], bool]
) -> list[bool | None]:
    """Apply a test to one sample per run; None if the test refused the sample."""
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
    """Return a 0/1 outcome without follow-up: death by the median time (for a complete sample)."""
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
    seed: int = 0,
    censored: float = 0.5,
) -> Rate:
    """Estimate the false-claim rate of a test from `TESTS` or `DISHONEST` on null data.

    The exposure (first covariate) has no effect; the third covariate has an effect and is
    correlated with it, so that adjusted models have something to adjust for (unadjusted tests
    see no correlation).
    """
    test = (TESTS | DISHONEST)[name]
    adjusted = "adjusted" in name or "Firth" in name or "linear" in name
    draw = partial(
        survival_sample,
        n,
        [0.0, 0.0, 0.6 if adjusted else 0.0],
        prevalence=0.3,
        censored=censored,
        correlation=0.4 if adjusted else 0.0,
    )
    return rate(name, _try_samples(runs, seed, draw, lambda sample: test(sample) < ALPHA))


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
    """Estimate the coverage of the 95% interval of an adjusted hazard ratio."""
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

    return rate("Firth, profile" if penalty else "Cox, Wald", _try_samples(runs, seed, draw, holds))


def competing_coverage(*, runs: int, shr: float = 1.6, n: int = 200, seed: int = 0) -> Rate:
    """Estimate the coverage of Fine and Gray's 95% interval of the subdistribution hazard ratio."""
    draw = partial(competing_sample, n, float(np.log(shr)), other=-0.5)

    def holds(s: CompetingSample) -> bool:
        fit = fine_gray(s.time, s.status, s.X, ["exposed", "z"])
        return bool(fit.lower[0] <= shr <= fit.upper[0])

    return rate("Fine and Gray", _try_samples(runs, seed, draw, holds))


COMPETING = ("Gray's test", "Fine and Gray", "cause-specific (another null: for contrast)")


def competing_false_claims(name: str, *, runs: int, n: int = 200, seed: int = 0) -> Rate:
    """Estimate the false-claim rate of a test from `COMPETING` if only the competing event differs.

    The groups have the same incidence of the cause; the competing event occurs sooner in the
    second (log hazard ratio 0.8). The cause-specific hazard does differ in this case, so its
    test makes more claims.
    """

    def claims(s: CompetingSample) -> bool:
        group = s.X[:, :1]
        if name == COMPETING[0]:
            return gray_test(s.time, s.status, group[:, 0]).p < ALPHA
        if name == COMPETING[1]:
            return bool(fine_gray(s.time, s.status, group, ["x"]).p[0] < ALPHA)
        return bool(cox(s.time, s.status == 1, group, ["x"]).p[0] < ALPHA)

    return rate(
        name, _try_samples(runs, seed, partial(competing_sample, n, 0.0, other=0.8), claims)
    )


@dataclass(frozen=True)
class PowerPoint:
    """Simulated power at a hazard ratio, and Schoenfeld's power for the same events."""

    hr: float
    events: float
    found: Rate
    analytic: float


def power_curve(
    hazard_ratios: Iterable[float],
    *,
    runs: int,
    n: int = 200,
    seed: int = 0,
) -> list[PowerPoint]:
    """Estimate the power of the log-rank test in simulated samples, and the analytic value."""
    points = []
    for hr in hazard_ratios:
        hits: list[bool | None] = []
        events = 0
        for run in range(runs):
            s = survival_sample(
                n, [float(np.log(hr))], seed=seed * 1_000_003 + run, prevalence=0.5, censored=0.4
            )
            events += int(s.event.sum())
            hits.append(logrank(s.time, s.event, s.X[:, 0]).p < ALPHA)
        mean = events / runs
        points.append(
            PowerPoint(
                hr,
                mean,
                rate(f"HR {hr:g}", hits),
                power_at(hr, round(mean), fraction_exposed=0.5, alpha=ALPHA),
            )
        )
    return points


COVERED = ((False, 200, 1.6, 0.4, 0.4), (False, 400, 2.0, 0.25, 0.5), (True, 200, 1.6, 0.4, 0.4),
           (True, 60, 2.5, 0.15, 0.7))  # fmt: skip
"""Settings of the coverage runs: Firth's penalty, patients, hazard ratio, prevalence, censoring."""


def run(
    runs: Annotated[int, typer.Option(min=10, help="Simulated samples per figure.")] = 1000,
) -> Report:
    """Simulate samples and count false claims, coverage and power."""
    rows = [
        _row(false_claims(name, runs=runs, seed=7), "false claims on null data", "5% nominal")
        for name in (*TESTS, *DISHONEST)
    ]
    for penalty, n, hr, prevalence, censored in COVERED:
        found = coverage(runs=runs, hr=hr, n=n, prevalence=prevalence, censored=censored,
                         penalty=penalty, seed=3)  # fmt: skip
        rows.append(_row(found, f"coverage, n {n}, HR {hr}", "95% nominal"))
    for point in power_curve([1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.5], runs=runs, seed=5):
        rows.append(_row(point.found, f"power, {point.events:.0f} events",
                         f"{point.analytic:.1%} (Schoenfeld)"))  # fmt: skip
    for n in (100, 400):
        for name in COMPETING:
            found = competing_false_claims(name, runs=runs, n=n, seed=7)
            rows.append(_row(found, f"competing event differs, n {n}", "5% nominal"))
    for n, shr in ((100, 1.6), (200, 1.6), (400, 2.5)):
        found = competing_coverage(runs=runs, shr=shr, n=n, seed=3)
        rows.append(_row(found, f"coverage, n {n}, sHR {shr}", "95% nominal"))
    return Report(command=f"statistics --runs {runs} --json", rows=tuple(rows))


def _row(found: Rate, measured: str, baseline: str) -> Row:
    return Row(benchmark=found.name, measured=f"{measured}; {found.runs} samples",
               baseline=baseline, sage=str(found))  # fmt: skip
