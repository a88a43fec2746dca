"""Survival tools: Kaplan-Meier curves, the log-rank test, and restricted mean survival times."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from pydantic import BaseModel, Field

from mcp_servers.context import ToolContext
from mcp_servers.oncology.common import (
    EXPLORATORY,
    CohortInput,
    Cut,
    GroupedInput,
    Key,
    analysis_table,
    assign_groups,
    entry_of,
    finite,
    open_cohort,
    pick_points,
    require_spread,
    show_curve,
    strata_of,
)
from mcp_servers.spec import OutputName, Resources, Validity, tool
from sage.core.errors import InputError
from validation.disclosure import MIN_COUNT, round_count, round_to_error, shown_p

if TYPE_CHECKING:
    from validation.statistics.base import FloatArray
    from validation.statistics.survival import KaplanMeier

SURVIVAL = Validity(
    known_failures=(
        "Informative censoring biases every estimate here",
        "A cut-point chosen by its relation to the outcome makes the p-value too small",
    ),
    accuracy="Equals lifelines on GBSG2 to 6 digits (tests of this suite); shown rounded",
)


class CurveInput(CohortInput):
    """A curve for all patients, or for each group."""

    group: Key | None = None
    cut: Cut | None = Field(default=None, description="How to turn a number into groups")
    threshold: float | None = Field(default=None, description="Fixed cut-point instead")
    every: float = Field(
        default=12.0, ge=1, le=120, description="Months between reported points, at least"
    )
    tau: float | None = Field(
        default=None,
        gt=0,
        description="Compare mean survival up to the last month, shown in both curves, before this",
    )


class Point(BaseModel):
    """A point of a curve: five at risk, and no or five events since the last one."""

    months: float
    survival: float
    lower: float
    upper: float
    at_risk: int


class Curve(BaseModel):
    """Survival in a group; medians are null if the curve does not reach 0.5."""

    group: str
    n: int | None
    events: int | None
    median_months: float | None
    median_lower: float | None
    median_upper: float | None
    points: list[Point]


class CurvesResult(BaseModel):
    """Curves, with a figure."""

    endpoint: str
    grouping: str
    n: int | None
    curves: list[Curve]
    restricted_mean_difference: float | None = None
    restricted_mean_lower: float | None = None
    restricted_mean_upper: float | None = None
    tau: float | None = None
    figure: OutputName
    note: str = EXPLORATORY


class LogrankInput(GroupedInput):
    """Groups to compare, within strata if given."""

    strata: Key | None = None


class GroupRow(BaseModel):
    """Group size; event counts under five are null."""

    group: str
    n: int | None
    events: int | None


class LogrankResult(BaseModel):
    """A log-rank test."""

    endpoint: str
    grouping: str
    statistic: float
    df: int | None
    p: float
    groups: list[GroupRow]
    strata: str | None
    note: str = EXPLORATORY


@tool(
    "kaplan_meier",
    "oncology",
    "1.1.0",
    "Estimate survival curves (Kaplan-Meier) of a cohort or of groups in it, with medians, numbers "
    "at risk, restricted mean survival and a figure.",
    Resources(cpu=1, memory_mb=1024, seconds_per_item=3),
    SURVIVAL,
    title="Kaplan-Meier curves",
)
def kaplan_meier(given: CurveInput, context: ToolContext) -> CurvesResult:
    """Estimate curves, shown at months between which no or at least five patients have events."""
    import pandas as pd

    from validation.statistics import survival
    from validation.statistics.survival import numbers_at_risk

    cohort = open_cohort(given, context)
    keys = [given.group] if given.group else []
    table = analysis_table(cohort, given, context, keys, entered=given.tau is None)
    if given.group is None:
        groups, words = pd.Series("all", index=table.index), "everybody"
    else:
        groups, words = assign_groups(
            table[given.group], given.cut, given.threshold, table["event"]
        )
    context.progress(0.4, "estimating")
    last = float(table["time"].max())
    curves, shown = [], []
    for name, rows in table.groupby(groups):
        time, event, entry = rows["time"].to_numpy(), rows["event"].to_numpy(), entry_of(rows)
        at_risk = partial(numbers_at_risk, time, entry=entry)
        fit = survival.kaplan_meier(time, event, entry)
        gated = show_curve(fit, "survival", at_risk, [time[event == 1]], last)
        curves.append(_curve(str(name), fit, gated, given.every))
        shown.append((str(name), gated))
    difference, tau = None, None
    if given.tau is not None:
        if len(curves) != 2:
            raise InputError(
                "restricted mean survival requires exactly two groups; omit tau or use two groups"
            )
        ends = set(shown[0][1].times) & set(shown[1][1].times)
        tau = max((float(end) for end in ends if 0 < end <= given.tau), default=None)
        if tau is None:
            raise InputError("no month up to tau is shown in both curves; choose a later tau")
        codes = (groups == sorted(groups.unique())[1]).astype(int)
        difference = survival.rmst_difference(
            table["time"].to_numpy(), table["event"].to_numpy(), codes.to_numpy(), tau
        )
    context.progress(0.7, "drawing")
    parts: tuple[float | None, ...] = (None, None, None)
    if difference is not None:
        parts = (difference.value, difference.lower, difference.upper)
        error = (difference.upper - difference.lower) / 3.92
        parts = tuple(round_to_error(part, error) for part in parts if part is not None)
    with context.writing("kaplan_meier.png") as path:
        _draw(path, shown, cohort.spec.title, given.endpoint)
    return CurvesResult(
        endpoint=given.endpoint,
        grouping=words,
        n=round_count(len(table)),
        curves=curves,
        restricted_mean_difference=parts[0],
        restricted_mean_lower=parts[1],
        restricted_mean_upper=parts[2],
        tau=tau,
        figure="kaplan_meier.png",
    )


def _curve(name: str, fit: KaplanMeier, shown: KaplanMeier, every: float) -> Curve:
    died = np.repeat(fit.times, fit.events)
    return Curve(
        group=name,
        n=round_count(fit.n),
        events=round_count(fit.n_events),
        median_months=_median(fit.median, died),
        median_lower=_median(fit.median_lower, died),
        median_upper=_median(fit.median_upper, died),
        points=[
            Point(
                months=float(shown.times[at]),
                survival=float(shown.survival[at]),
                lower=float(shown.lower[at]),
                upper=float(shown.upper[at]),
                at_risk=int(shown.at_risk[at]),
            )
            for at in pick_points(shown.times, every)
        ],
    )


def _median(value: float, died: FloatArray) -> float | None:
    """Return the mean of the event times around a median, which is one patient's own."""
    if finite(value) is None or len(died) < MIN_COUNT:
        return None
    at = int(np.searchsorted(died, value))
    first = min(max(at - MIN_COUNT // 2, 0), len(died) - MIN_COUNT)
    return round(float(died[first : first + MIN_COUNT].mean()) * 2) / 2


def _draw(path: Path, curves: list[tuple[str, KaplanMeier]], title: str, endpoint: str) -> None:
    """Draw the shown steps of the curves with their confidence intervals."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for name, fit in curves:
        axes.step(fit.times, fit.survival, where="post", label=f"{name} (n={fit.n})")
        axes.fill_between(fit.times, fit.lower, fit.upper, step="post", alpha=0.15)
    axes.set(xlabel="months", ylabel=f"{endpoint}", ylim=(0, 1.02), xlim=(0, None))
    axes.set_title(title, fontsize=9)
    axes.legend(frameon=False)
    figure.savefig(path, format="png", dpi=120)


@tool(
    "logrank",
    "oncology",
    "1.0.0",
    "Compare the survival of groups by the log-rank test, optionally within strata.",
    Resources(cpu=1, memory_mb=1024, seconds_per_item=1),
    SURVIVAL,
    title="Log-rank test",
)
def logrank(given: LogrankInput, context: ToolContext) -> LogrankResult:
    """Compute the chi-squared statistic and p-value, with the group sizes."""
    import pandas as pd

    from validation.statistics import survival

    cohort = open_cohort(given, context)
    keys = [given.group, *([given.strata] if given.strata else [])]
    table = analysis_table(cohort, given, context, keys, entered=True)
    groups, words = assign_groups(table[given.group], given.cut, given.threshold, table["event"])
    strata = strata_of(table, given.strata)
    sides = pd.get_dummies(groups, dtype=float)
    require_spread([str(name) for name in sides], sides.to_numpy(), strata, jointly=False)
    time, event = table["time"].to_numpy(), table["event"].to_numpy()
    test = survival.logrank(time, event, groups.to_numpy(), strata, entry_of(table))
    return LogrankResult(
        endpoint=given.endpoint,
        grouping=words,
        statistic=float(f"{test.statistic:.2g}"),
        df=test.df,
        p=shown_p(test.p),
        groups=[
            GroupRow(
                group=str(name),
                n=round_count(len(rows)),
                events=round_count(int((rows["event"] == 1).sum())),
            )
            for name, rows in table.groupby(groups)
        ],
        strata=given.strata,
    )
