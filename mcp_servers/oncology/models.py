"""Survival model tools: Cox regression, concordance of a risk score, and feature screening."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import BaseModel, Field

from mcp_servers.context import ToolContext
from mcp_servers.formats.tables import write_rows
from mcp_servers.oncology.common import (
    EXPLORATORY,
    CohortInput,
    Key,
    admit_choices,
    analysis_table,
    design_matrix,
    entry_of,
    finite,
    open_cohort,
    require_spread,
    strata_of,
)
from mcp_servers.spec import OutputName, Resources, Validity, tool
from sage.core.errors import InputError
from validation.disclosure import (
    find_spread,
    round_count,
    round_ratio,
    round_to_error,
    shown_p,
)

if TYPE_CHECKING:
    from validation.cohort.cohort import Cohort

MODELS = Validity(
    known_failures=(
        "Nonproportional hazards: check the test that comes with the model",
        "Fewer than ten events per covariate: use the penalty",
    )
)


class CoxInput(CohortInput):
    """Covariates for a model; only patients with values for all of them are analyzed."""

    covariates: list[Key] = Field(min_length=1, max_length=30)
    strata: Key | None = None
    penalty: Literal["firth"] | None = Field(
        default=None, description="Firth's penalty, for few events or separation"
    )
    standardize: bool = Field(
        default=False,
        description="Report hazard ratios per standard deviation of numeric covariates",
    )


class CoxTerm(BaseModel):
    """A covariate's hazard ratio with its 95% interval, and the test of proportionality."""

    name: str
    hazard_ratio: float
    lower: float
    upper: float
    p: float
    proportionality_p: float | None


class CoxResult(BaseModel):
    """A fitted model."""

    endpoint: str
    n: int | None
    events: int | None
    terms: list[CoxTerm]
    concordance: float | None
    likelihood_ratio_p: float | None
    proportionality_p: float | None
    events_per_covariate: float
    penalty: str | None
    notes: list[str]


@tool(
    "cox",
    "oncology",
    "1.0.0",
    "Fit a Cox proportional hazards model: hazard ratios with intervals, concordance, and a test "
    "of proportional hazards.",
    Resources(cpu=1, memory_mb=1024, seconds_per_item=2),
    MODELS,
    title="Cox regression",
)
def cox(given: CoxInput, context: ToolContext) -> CoxResult:
    """Fit a Cox model on complete cases; text covariates become indicators of their levels."""
    from validation.statistics.cox import cox as fit_cox
    from validation.statistics.proportional import schoenfeld

    cohort = open_cohort(given, context)
    keys = list(dict.fromkeys(given.covariates))
    used = [*keys, *([given.strata] if given.strata else [])]
    table = analysis_table(cohort, given, context, used, entered=True)
    matrix, names, notes = design_matrix(table, keys)
    if given.standardize:
        for column, name in enumerate(names):
            if "=" not in name and matrix[:, column].std() > 0:
                matrix[:, column] /= matrix[:, column].std(ddof=1)
                notes.append(f"{name}: per standard deviation")
    time, event = table["time"].to_numpy(), table["event"].to_numpy()
    strata = strata_of(table, given.strata)
    require_spread(names, matrix, strata)
    context.progress(0.4, "fitting")
    entry = entry_of(table)
    fit = fit_cox(time, event, matrix, names, strata=strata, entry=entry, penalty=given.penalty)
    test = schoenfeld(time, event, matrix, fit, strata=strata, entry=entry)
    return CoxResult(
        endpoint=given.endpoint,
        n=round_count(fit.n),
        events=round_count(fit.events),
        terms=[
            CoxTerm(
                name=name,
                **dict(
                    zip(
                        ("hazard_ratio", "lower", "upper"),
                        round_ratio(float(fit.hr[at]), float(fit.lower[at]), float(fit.upper[at])),
                        strict=True,
                    )
                ),
                p=shown_p(float(fit.p[at])),
                proportionality_p=_p(test.tests[at].p),
            )
            for at, name in enumerate(names)
        ],
        concordance=_two_digits(fit.concordance),
        likelihood_ratio_p=_p(fit.likelihood_ratio.p) if fit.likelihood_ratio else None,
        proportionality_p=_p(test.global_test.p),
        events_per_covariate=float(f"{fit.events_per_covariate:.1g}"),
        penalty=given.penalty,
        notes=[*notes, EXPLORATORY],
    )


def _p(p: float | None) -> float | None:
    found = finite(p)
    return None if found is None else shown_p(found)


def _two_digits(value: float | None) -> float | None:
    """Round a concordance without its own interval to the precision its standard error supports."""
    found = finite(value)
    return None if found is None else round(found, 2)


class ConcordanceInput(CohortInput):
    """A variable to evaluate as a risk score."""

    risk: Key
    higher_is: Literal["worse", "better"] = "worse"
    bootstrap: int = Field(default=500, ge=100, le=5000)
    seed: int = 0


class ConcordanceResult(BaseModel):
    """Concordance; 0.5 means chance."""

    endpoint: str
    risk: str
    n: int | None
    events: int | None
    harrell: float
    harrell_lower: float
    harrell_upper: float
    uno: float | None
    note: str = EXPLORATORY


@tool(
    "concordance",
    "oncology",
    "1.0.0",
    "Measure how well a variable orders patients by survival: Harrell's C with a bootstrap "
    "interval, and Uno's C.",
    Resources(cpu=1, memory_mb=1024, seconds_per_item=4),
    MODELS,
    title="Concordance of a variable with survival",
)
def concordance(given: ConcordanceInput, context: ToolContext) -> ConcordanceResult:
    """Compute Harrell's and Uno's C for a numeric variable."""
    import pandas as pd

    from validation.statistics.bootstrap import bootstrap
    from validation.statistics.concordance import harrell, uno
    from validation.statistics.errors import StatisticsError

    cohort = open_cohort(given, context)
    table = analysis_table(cohort, given, context, [given.risk])
    risk = pd.to_numeric(table[given.risk], errors="coerce")
    if risk.isna().any():
        raise InputError(f'risk "{given.risk}" is not numeric')
    require_spread([given.risk], risk.rank().to_numpy()[:, None])
    score = (risk if given.higher_is == "worse" else -risk).to_numpy(dtype=float)
    time, event = table["time"].to_numpy(), table["event"].to_numpy()
    context.progress(0.2, "resampling")
    interval = bootstrap(harrell, time, event, score, times=given.bootstrap, seed=given.seed)
    error = (interval.upper - interval.lower) / 3.92
    try:
        other: float | None = uno(time, event, score)
    except StatisticsError:  # no censoring beyond the last event: Uno's weights do not exist
        other = None
    return ConcordanceResult(
        endpoint=given.endpoint,
        risk=given.risk,
        n=round_count(len(table)),
        events=round_count(int((event == 1).sum())),
        harrell=round_to_error(interval.value, error),
        harrell_lower=round_to_error(interval.lower, error),
        harrell_upper=round_to_error(interval.upper, error),
        uno=None if other is None else round_to_error(other, error),
    )


class ScreenInput(CohortInput):
    """Features to rank: every gene, or a list."""

    features: list[Key] | Literal["expression"] = Field(
        default="expression", description='"expression" for all genes, or a list of variables'
    )
    covariates: list[Key] = Field(default_factory=list, max_length=20)
    top: int = Field(default=20, ge=1, le=200)


class ScreenRow(BaseModel):
    """A feature's hazard ratio per standard deviation, and its q-value over all features."""

    name: str
    hazard_ratio: float | None
    lower: float | None
    upper: float | None
    p: float | None
    q: float | None


class ScreenToolResult(BaseModel):
    """A ranking; the table contains every feature."""

    endpoint: str
    n: int | None
    events: int | None
    tested: int
    refused: dict[str, int]
    significant_at_5_percent: int
    top: list[ScreenRow]
    table: OutputName
    note: str = EXPLORATORY


@tool(
    "screen",
    "oncology",
    "1.0.0",
    "Rank many features (all genes, or a list) by their relation to survival: one Cox model "
    "each, with covariates, corrected for the number of features.",
    Resources(cpu=1, memory_mb=2048, seconds_per_item=10),
    MODELS,
    title="Screen many features for survival",
)
def screen(given: ScreenInput, context: ToolContext) -> ScreenToolResult:
    """Rank by hazard ratio per standard deviation, with q-values over all requested features."""
    from validation.screening.rank import screen as screen_features

    cohort = open_cohort(given, context)
    time, event, values, names, covariates, covariate_names = _features(cohort, given, context)
    context.progress(0.3, f"fitting {len(names)} models")
    found = screen_features(
        time,
        event,
        values,
        covariates,
        names,
        covariate_names=covariate_names,
        workers=context.threads,
    )
    rows = [_row(found, int(at)) for at in found.ranking()]
    with context.writing("screen.csv") as path:
        write_rows(path, [row.model_dump() for row in rows])
    return ScreenToolResult(
        endpoint=given.endpoint,
        n=round_count(found.n),
        events=round_count(found.events),
        tested=len(names),
        refused=found.count_refused(),
        significant_at_5_percent=sum(row.q is not None and row.q < 0.05 for row in rows),
        top=rows[: given.top],
        table="screen.csv",
    )


def _features(
    cohort: Cohort, given: ScreenInput, context: ToolContext
) -> tuple[Any, Any, Any, list[str], Any, list[str] | None]:
    """Return outcome, features and covariates for the patients that the model can use."""
    import pandas as pd

    from validation.inputs.population import apply_filters

    table = analysis_table(cohort, given, context, list(given.covariates))
    if given.features == "expression":
        if cohort.expression is None:
            raise InputError(f'cohort "{cohort.id}" has no expression matrix; list the features')
        names = [f"expression:{gene}" for gene in cohort.expression.genes]
        block, patients = cohort.block(cohort.expression.genes)
        place = {patient: row for row, patient in enumerate(patients)}
        table = table.loc[[item for item in table.index if item in place]]
        values = block[[place[item] for item in table.index]]
    else:
        names = list(dict.fromkeys(given.features))
        wanted = [*names, *(condition.variable for condition in given.filters)]
        raw = cohort.table(list(dict.fromkeys(wanted)))
        chosen = apply_filters(raw, tuple(given.filters))
        admit_choices(cohort, given, context, raw, names, chosen)
        raw = raw.loc[table.index, names]
        numbers = raw.apply(pd.to_numeric, errors="coerce")
        text = [name for name in names if (numbers[name].isna() & raw[name].notna()).any()]
        if text:
            raise InputError(f"features must be numeric; not numeric: {', '.join(text[:5])}")
        values = numbers.to_numpy(dtype=float)
    covariates, covariate_names = None, None
    if given.covariates:
        covariates, covariate_names, _ = design_matrix(table, list(given.covariates))
        require_spread(covariate_names, covariates)
    time, event = np.asarray(table["time"]), np.asarray(table["event"])
    # features on which a few patients outweigh all others are treated as having no spread
    values = np.where(find_spread(values, covariates), values, 0.0)
    return time, event, values, names, covariates, covariate_names


def _row(found: Any, at: int) -> ScreenRow:
    ratio = round_ratio(float(found.hr[at]), float(found.lower[at]), float(found.upper[at]))
    return ScreenRow(
        name=found.names[at],
        hazard_ratio=finite(ratio[0]),
        lower=finite(ratio[1]),
        upper=finite(ratio[2]),
        p=_p(float(found.p[at])),
        q=_p(float(found.q[at])) if found.status[at] == "ok" else None,
    )
