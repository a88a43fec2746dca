"""Tool that describes the contents of a cohort without showing patients' rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel, Field

from mcp_servers.context import ToolContext
from mcp_servers.oncology.common import SMALLEST, CohortChoice, finite, open_cohort, safe_count
from mcp_servers.spec import Resources, tool

if TYPE_CHECKING:
    from validation.core.dictionary import DataDictionary


class DescribeInput(CohortChoice):
    """A cohort, and a part of its dictionary."""

    search: str = Field(
        default="", description="List only variables and genes that contain this", max_length=100
    )
    genes: int = Field(
        default=50, ge=0, le=2000, description="Maximum number of gene symbols to list"
    )


class VariableRow(BaseModel):
    """A variable. `levels` omits those under five patients."""

    key: str
    label: str
    kind: str
    unit: str | None
    n: int | None
    missing: float
    levels: dict[str, int]
    note: str


class EndpointRow(BaseModel):
    """An outcome; counts under five are null."""

    key: str
    label: str
    kind: str
    unit: str | None
    n: int | None
    events: int | None
    median_follow_up: float | None
    coding: str
    note: str


class FindingRow(BaseModel):
    """A problem of the cohort that could mislead an analysis."""

    severity: str
    code: str
    where: str
    message: str


class DescribeResult(BaseModel):
    """A cohort in aggregate."""

    cohort: str
    title: str
    simulated: bool
    n_patients: int
    endpoints: list[EndpointRow]
    variables: list[VariableRow]
    expression_genes: int
    expression_patients: int | None
    expression_unit: str | None
    genes: list[str]
    losses: list[str]
    findings: list[FindingRow]
    license: str
    notes: list[str]


@tool(
    "describe_cohort",
    "oncology",
    "1.1.0",
    "Describe a patient cohort without relating anything to its outcomes: variables with units "
    "and missingness, endpoints with events and follow-up, patients lost in joining its tables, "
    "and problems that could mislead an analysis.",
    Resources(cpu=1, memory_mb=1024, seconds_per_item=2),
    title="Describe a cohort",
)
def describe_cohort(given: DescribeInput, context: ToolContext) -> DescribeResult:
    """Return the data dictionary and the findings of a cohort; levels under five are omitted."""
    from validation.cohort.findings import check_cohort

    cohort = open_cohort(given, context)
    context.progress(0.3, "reading the data dictionary")
    book = cohort.dictionary()
    context.progress(0.7, "checking the cohort")
    findings = check_cohort(cohort)
    word = given.search.casefold()
    genes = [name for name in book.expression if word in f"expression:{name}".casefold()]
    return DescribeResult(
        cohort=book.cohort,
        title=book.title,
        simulated=book.simulated,
        n_patients=book.n_patients,
        endpoints=[
            EndpointRow.model_validate(endpoint, from_attributes=True).model_copy(
                update={
                    "n": safe_count(endpoint.n),
                    "events": safe_count(endpoint.events),
                    "median_follow_up": finite(endpoint.median_follow_up),
                }
            )
            for endpoint in book.endpoints
        ],
        variables=[
            VariableRow.model_validate(variable, from_attributes=True).model_copy(
                update={
                    "n": safe_count(variable.n),
                    "missing": round(variable.missing, 2),
                    "levels": {level: n for level, n in variable.levels.items() if n >= SMALLEST},
                }
            )
            for variable in book.variables
            if word in variable.key.casefold() or word in variable.label.casefold()
        ],
        expression_genes=len(book.expression),
        expression_patients=safe_count(book.expression_n) if book.expression else None,
        expression_unit=book.expression_unit,
        genes=genes[: given.genes],
        losses=[
            f"{join.step}: {_count_lost(join.before - join.after)} lost ({join.reason})"
            for join in book.joins
            if join.before != join.after
        ],
        findings=[
            FindingRow(
                severity=finding.severity,
                code=finding.code,
                where=finding.where,
                message=_without_small_counts(finding.code, finding.where, finding.message, book),
            )
            for finding in findings
        ],
        license=book.license,
        notes=list(book.notes),
    )


def _without_small_counts(code: str, where: str, message: str, book: DataDictionary) -> str:
    """Return the message of a finding, withholding numbers of events under five."""
    events = {f"endpoints.{endpoint.key}": endpoint.events for endpoint in book.endpoints}
    if code == "few_events" and safe_count(events.get(where)) is None:
        return f"fewer than {SMALLEST} events: no model is reliable"
    return message


def _count_lost(count: int) -> str:
    return f"fewer than {SMALLEST}" if 0 < count < SMALLEST else str(count)
