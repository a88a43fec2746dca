"""Tool for competing risks: cumulative incidence by group, Gray's test, and both hazard ratios."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field

from mcp_servers.context import ToolContext
from mcp_servers.oncology.common import (
    EXPLORATORY,
    GroupedInput,
    Key,
    analysis_table,
    assign_groups,
    design_matrix,
    open_cohort,
    pick_points,
    require_spread,
    show_curve,
)
from mcp_servers.spec import OutputName, Resources, Validity, tool
from validation.disclosure import MIN_COUNT, round_count, round_ratio, shown_p

if TYPE_CHECKING:
    import pandas as pd

    from validation.statistics.competing import CumulativeIncidence

COMPETING = Validity(
    known_failures=(
        "Informative censoring biases every estimate here",
        "Causes of death that were inferred or misclassified shift events between the curves",
        "A hazard ratio for the cause alone does not determine the number of events",
    ),
    accuracy="Equals R's cmprsk (crr, cuminc) to 9 digits (tests of this suite); shown rounded",
)


class CompetingInput(GroupedInput):
    """Groups to compare on a "competing" endpoint, with covariates for the models."""

    covariates: list[Key] = Field(default_factory=list, max_length=20)
    every: float = Field(
        default=12.0, ge=1, le=120, description="Months between reported points, at least"
    )


class IncidencePoint(BaseModel):
    """Shares with the event and with a competing one: at least five at risk, and no step of few."""

    months: float
    event: float
    lower: float
    upper: float
    competing: float
    at_risk: int


class IncidenceCurve(BaseModel):
    """Cumulative incidence in a group; counts under five are null."""

    group: str
    n: int | None
    events: int | None
    competing: int | None
    points: list[IncidencePoint]


class GrayRow(BaseModel):
    """Gray's test of equal cumulative incidence."""

    of: str
    statistic: float
    df: int | None
    p: float


class HazardRow(BaseModel):
    """Term in both models: the cause-specific hazard and the subdistribution hazard (incidence)."""

    name: str
    cause_specific_hr: float
    cause_specific_lower: float
    cause_specific_upper: float
    cause_specific_p: float
    subdistribution_hr: float | None
    subdistribution_lower: float | None
    subdistribution_upper: float | None
    subdistribution_p: float | None


class CompetingResult(BaseModel):
    """Incidence by group, its test, and models for the event."""

    endpoint: str
    grouping: str
    n: int | None
    events: int | None
    competing: int | None
    curves: list[IncidenceCurve]
    gray: list[GrayRow]
    terms: list[HazardRow]
    figure: OutputName
    notes: list[str]


@tool(
    "competing_risks",
    "oncology",
    "1.1.0",
    "Compare groups by an event with competing events: cumulative incidence (Aalen-Johansen) "
    "with a figure, Gray's test, cause-specific and Fine-Gray hazard ratios.",
    Resources(cpu=1, memory_mb=1024, seconds_per_item=4),
    COMPETING,
)
def competing_risks(given: CompetingInput, context: ToolContext) -> CompetingResult:
    """Treat the endpoint's own event as the event of interest and pool competing events."""
    from validation.figures.cumulative_incidence import Incidences, cumulative_incidence_figure
    from validation.figures.curves import at_risk
    from validation.figures.style import p_text
    from validation.statistics.competing import aalen_johansen

    cohort = open_cohort(given, context)
    keys = list(dict.fromkeys([given.group, *given.covariates]))
    others = [key for key in keys if key != given.group]
    table = analysis_table(cohort, given, context, keys, ("competing",), optional=others)
    groups, words = assign_groups(
        table[given.group], given.cut, given.threshold, table["event"] == 1
    )
    time, status = table["time"].to_numpy(), table["event"].to_numpy().astype(int)
    context.progress(0.3, "estimating")
    tests, notes = _gray(time, status, groups.to_numpy())
    terms, more = _terms(groups, given.group, table, others)
    last = float(time.max())
    curves, shown = [], {}
    for name in sorted(groups.unique()):
        mine = (groups == name).to_numpy()
        happened = [time[mine & (status == number)] for number in (1, 2)]
        fits = [
            aalen_johansen(time[mine], status[mine], number, need_events=False) for number in (1, 2)
        ]
        both = [show_curve(fit, "incidence", partial(at_risk, fit), happened, last) for fit in fits]
        curves.append(_curve(str(name), fits, both, given.every))
        shown[f"{given.group.rpartition(':')[2]} {name}"] = Incidences(
            both[0], both[1] if fits[1].n_events else None
        )
    context.progress(0.7, "drawing")
    label = cohort.spec.endpoints[given.endpoint].label or given.endpoint
    with context.writing("cumulative_incidence.png") as path:
        cumulative_incidence_figure(
            shown,
            path,
            time_unit="months",
            title=f"{label}: cumulative incidence",
            subtitle=cohort.spec.title,
            event=label,
            annotation=[f"Gray's test {p_text(tests[0].p)}"],
            simulated=cohort.simulated,
            smallest=MIN_COUNT,
            until=12 * math.ceil(last / 12),
        )
    return CompetingResult(
        endpoint=given.endpoint,
        grouping=words,
        n=round_count(len(table)),
        events=round_count(int((status == 1).sum())),
        competing=round_count(int((status == 2).sum())),
        curves=curves,
        gray=tests,
        terms=terms,
        figure="cumulative_incidence.png",
        notes=[*notes, *more, EXPLORATORY],
    )


def _gray(
    time: NDArray[Any], status: NDArray[Any], groups: NDArray[Any]
) -> tuple[list[GrayRow], list[str]]:
    """Run Gray's test for the event (required), and for the competing event if possible."""
    from validation.statistics.competing import gray_test
    from validation.statistics.errors import StatisticsError

    def row(of: str, cause: int) -> GrayRow:
        found = gray_test(time, status, groups, cause)
        statistic = float(f"{found.statistic:.2g}")
        return GrayRow(of=of, statistic=statistic, df=found.df, p=shown_p(found.p))

    rows = [row("event", 1)]
    if not (status == 2).any():
        return rows, ["Nobody had a competing event: this is ordinary survival analysis"]
    try:
        return [*rows, row("competing event", 2)], []
    except StatisticsError as error:
        return rows, [f"Gray's test of the competing event: {error}"]


def _terms(
    groups: pd.Series, group: str, table: pd.DataFrame, covariates: list[str]
) -> tuple[list[HazardRow], list[str]]:
    """Fit both models with the same terms to the patients who have values for all of them.

    A model that cannot be fitted becomes a note.
    """
    from validation.statistics.cox import cox
    from validation.statistics.errors import SeparationError, StatisticsError
    from validation.statistics.fine_gray import FineGray, fine_gray

    table = table.dropna(subset=covariates)
    groups = groups[table.index]
    time, status = table["time"].to_numpy(), table["event"].to_numpy().astype(int)
    matrix, names, notes = design_matrix(table, covariates)
    ordered = sorted(set(groups))
    reference = "low" if "low" in ordered else ordered[0]
    levels = [item for item in ordered if item != reference]
    sides = [(groups == level).to_numpy(dtype=float) for level in levels]
    matrix = np.column_stack([*sides, matrix])
    names = [*(f"{group}={level}" for level in levels), *names]
    require_spread(names, matrix)
    notes.append(f"{group}: reference level {reference}")
    if covariates:
        notes.append(f"models of {round_count(len(table))} patients with all covariates")
    try:
        hazard = cox(time, status == 1, matrix, names)
    except SeparationError as error:
        hazard = cox(time, status == 1, matrix, names, penalty="firth")
        notes.append(f"cause-specific model with Firth's penalty: {error}")
    subdistribution: FineGray | None = None
    try:
        subdistribution = fine_gray(time, status, matrix, names)
    except StatisticsError as error:
        notes.append(f"no Fine-Gray model: {error}")

    rows = []
    for at, name in enumerate(names):
        cause = round_ratio(*(float(part[at]) for part in (hazard.hr, hazard.lower, hazard.upper)))
        other: tuple[float | None, ...] = (None, None, None)
        if subdistribution is not None:
            parts = (subdistribution.hr, subdistribution.lower, subdistribution.upper)
            other = round_ratio(*(float(part[at]) for part in parts))
        rows.append(
            HazardRow(
                name=name,
                cause_specific_hr=cause[0],
                cause_specific_lower=cause[1],
                cause_specific_upper=cause[2],
                cause_specific_p=shown_p(float(hazard.p[at])),
                subdistribution_hr=other[0],
                subdistribution_lower=other[1],
                subdistribution_upper=other[2],
                subdistribution_p=shown_p(float(subdistribution.p[at]))
                if subdistribution
                else None,
            )
        )
    return rows, notes


def _curve(
    name: str,
    fits: list[CumulativeIncidence],
    shown: list[CumulativeIncidence],
    every: float,
) -> IncidenceCurve:
    event, other = shown
    return IncidenceCurve(
        group=name,
        n=round_count(fits[0].n),
        events=round_count(fits[0].n_events),
        competing=round_count(fits[1].n_events),
        points=[
            IncidencePoint(
                months=float(event.times[at]),
                event=float(event.incidence[at]),
                lower=float(event.lower[at]),
                upper=float(event.upper[at]),
                competing=float(other.incidence[at]),
                at_risk=int(event.at_risk[at]),
            )
            for at in pick_points(event.times, every)
        ],
    )
