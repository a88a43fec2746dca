"""Tools that list and describe cohorts, and save measurement tables for use with them."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field, StrictBool, StrictFloat, StrictInt, StrictStr

from mcp_servers.context import ToolContext
from mcp_servers.listing import find_folders
from mcp_servers.oncology.common import CohortChoice, open_cohort
from mcp_servers.spec import OutputName, Resources, tool
from sage.core.errors import InputError
from sage.core.models import Strict
from validation.disclosure import (
    count_text,
    round_count,
    shown_endpoint,
    shown_finding,
    shown_variable,
)

MOST_COHORTS = 200
MOST_ROWS, MOST_COLUMNS, MOST_TEXT = 20_000, 200, 300
FORMULA = ("=", "+", "@", "\t", "\r")
"""Prefixes of text that some spreadsheets execute as formulas."""


class CohortsInput(Strict):
    """Search text for cohorts."""

    search: str = Field(
        default="",
        max_length=100,
        description="List only cohorts whose name or title contains this",
    )


class CohortRow(BaseModel):
    """A cohort in the list."""

    cohort: str = Field(description="Pass this as `cohort` to the oncology tools")
    title: str
    simulated: bool
    endpoints: list[str] = Field(description="Names of its outcomes; see describe_cohort")
    slides: str | None = Field(description="Folder of its slides, if any")


class CohortsResult(BaseModel):
    """The cohorts under the server's roots, and the built-in cohorts."""

    cohorts: list[CohortRow]
    unreadable: list[str] = Field(description="Unreadable descriptions, with the reason")


@tool(
    "list_cohorts",
    "oncology",
    "1.0.0",
    "List the patient cohorts that can be analyzed: name, title, endpoints, folder of slides. "
    "Reads only descriptions, no patient data.",
    Resources(memory_mb=256),
    cacheable=False,
)
def list_cohorts(given: CohortsInput, context: ToolContext) -> CohortsResult:
    """List folders with a `cohort.toml` below the roots, then the built-in cohorts."""
    from validation.cohort.builtin import NAMES, TITLES
    from validation.cohort.model import read_spec

    found: list[CohortRow] = []
    unreadable: list[str] = []
    for name, path in find_folders(context.roots, "cohort.toml"):
        try:
            spec = read_spec(path / "cohort.toml")
        except InputError as error:
            unreadable.append(str(error))
            continue
        slides = None
        if spec.slides is not None and spec.slides.table is None:
            slides = _below_roots((path / (spec.root or ".") / spec.slides.folder), context)
        row = CohortRow(
            cohort=name,
            title=spec.title,
            simulated=spec.simulated,
            endpoints=list(spec.endpoints),
            slides=slides,
        )
        found.append(row)
    found += [
        CohortRow(cohort=name, title=TITLES[name], simulated=False, endpoints=["RFS"], slides=None)
        for name in NAMES
    ]
    word = given.search.casefold()
    found = [row for row in found if word in f"{row.cohort} {row.title}".casefold()]
    return CohortsResult(cohorts=found[:MOST_COHORTS], unreadable=unreadable[:20])


def _below_roots(folder: Path, context: ToolContext) -> str | None:
    """Express a folder as a tool argument, or return None if tools may not read it."""
    resolved = folder.resolve()
    for root in context.roots.readable:
        if resolved.is_relative_to(root) and resolved.is_dir():
            return resolved.relative_to(root).as_posix()
    return None


Value = StrictBool | StrictInt | StrictFloat | Annotated[StrictStr, Field(max_length=MOST_TEXT)]


class TableInput(Strict):
    """Table rows. Every row has a `patient`; absent or null values are missing."""

    name: str = Field(
        pattern=r"^[A-Za-z][A-Za-z0-9_]{0,39}$",
        description="Name of the table; its columns become the variables imaging:NAME_COLUMN",
    )
    rows: list[dict[str, Value | None]] = Field(
        min_length=1,
        max_length=MOST_ROWS,
        description='One object per slide or patient, e.g. {"patient": "P1", "slide": "P1.svs", '
        '"tls_per_mm2": 1.5}; several rows of a patient are averaged',
    )
    units: dict[str, str] = Field(
        default_factory=dict, max_length=MOST_COLUMNS, description="Unit of each numeric column"
    )


class TableResult(BaseModel):
    """A table for the `tables` argument of the oncology tools."""

    table: OutputName = Field(description="Pass this in `tables` to logrank, cox, kaplan_meier ...")
    columns: OutputName = Field(description="Kinds and units of the columns, in the table's folder")
    rows: int
    patients: int
    variables: list[str] = Field(description="Keys of the numeric columns in an analysis")
    missing: dict[str, int] = Field(description="Number of rows without a value, by column")


@tool(
    "save_table",
    "oncology",
    "1.0.0",
    "Save measurements as a table of patients for use in logrank, cox and the other oncology "
    "tools (argument `tables`).",
    Resources(memory_mb=512),
    title="Save a table of measurements",
)
def save_table(given: TableInput, context: ToolContext) -> TableResult:
    """Write a CSV file with a kind per column, and its description."""
    columns = list(dict.fromkeys(column for row in given.rows for column in row))
    _check_columns(columns, given)
    kinds = {column: _kind(column, given.rows) for column in columns if column != "patient"}
    for number, row in enumerate(given.rows, 1):
        if not isinstance(row.get("patient"), str) or not str(row["patient"]).strip():
            raise InputError(f"rows: row {number} has no patient (must be text)")
        for column, value in row.items():
            if isinstance(value, str) and value.startswith(FORMULA):
                raise InputError(
                    f"rows: row {number}, {column}: text must not begin like a spreadsheet "
                    f'formula: "{value}"'
                )
    numbers = [column for column, kind in kinds.items() if kind == "number"]
    if not numbers:
        raise InputError("rows: no numeric column besides patient; measurements must be numbers")
    for column in given.units:
        if column not in numbers:
            raise InputError(
                f'units: "{column}" is not a numeric column; numeric columns: {numbers}'
            )
    ordered = ["patient", *kinds]
    table = io.StringIO()
    writer = csv.DictWriter(table, ordered, restval="")
    writer.writeheader()
    for row in given.rows:
        writer.writerow({key: _cell(row.get(key)) for key in ordered})
    with context.writing(f"{given.name}.csv") as path:
        path.write_text(table.getvalue(), encoding="utf-8")
    about = {
        column: {"kind": kind, "unit": given.units.get(column)} for column, kind in kinds.items()
    }
    with context.writing(f"{given.name}.columns.json") as path:
        path.write_text(json.dumps(about, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return TableResult(
        table=f"{given.name}.csv",
        columns=f"{given.name}.columns.json",
        rows=len(given.rows),
        patients=len({row["patient"] for row in given.rows}),
        variables=[f"imaging:{given.name.strip('_')}_{column.strip('_')}" for column in numbers],
        missing={column: sum(row.get(column) is None for row in given.rows) for column in kinds},
    )


def _check_columns(columns: list[str], given: TableInput) -> None:
    if len(columns) > MOST_COLUMNS:
        raise InputError(f"rows: {len(columns)} columns, but the maximum is {MOST_COLUMNS}")
    for column in columns:
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,59}", column):
            raise InputError(
                f'rows: column "{column[:60]}" must start with a letter, followed by letters, '
                "digits and _"
            )


def _kind(column: str, rows: list[dict[str, Value | None]]) -> str:
    """Determine the kind of a column: "number" or "text".

    Raises `InputError` if the column mixes the two or contains a non-finite number.
    """
    kinds: dict[str, int] = {}
    for number, row in enumerate(rows, 1):
        value = row.get(column)
        if value is None:
            continue
        if isinstance(value, float) and not math.isfinite(value):
            raise InputError(f"rows: row {number}, {column}: not a finite number; use null")
        kinds.setdefault("text" if isinstance(value, str) else "number", number)
    if len(kinds) > 1:
        raise InputError(
            f"rows: {column} is a number in row {kinds['number']} but text in row "
            f"{kinds['text']}; use one type, and null for missing values"
        )
    return next(iter(kinds), "text")


def _cell(value: Value | None) -> str | int | float:
    """Format a value for the table: empty if missing, 0 for no, and 1 for yes."""
    if value is None:
        return ""
    return int(value) if isinstance(value, bool) else value


class DescribeInput(CohortChoice):
    """A cohort, and the part of its dictionary to describe."""

    search: str = Field(
        default="", description="List only variables and genes that contain this", max_length=100
    )
    genes: int = Field(
        default=50, ge=0, le=2000, description="Maximum number of gene symbols to list"
    )


class VariableRow(BaseModel):
    """A variable. Counts are rounded to multiples of five, and smaller levels are pooled."""

    key: str
    label: str
    kind: str
    unit: str | None
    n: int
    missing: float
    levels: dict[str, int]
    note: str


class EndpointRow(BaseModel):
    """An outcome. Counts are rounded to multiples of five; event counts below five are null."""

    key: str
    label: str
    kind: str
    unit: str | None
    n: int
    events: int | None
    median_follow_up: float | None
    coding: str
    note: str


class FindingRow(BaseModel):
    """A problem with the cohort that could mislead an analysis."""

    severity: str
    code: str
    where: str
    message: str


class DescribeResult(BaseModel):
    """Aggregate description of a cohort."""

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
    """Return a cohort's data dictionary and findings; levels with fewer than five are omitted."""
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
            EndpointRow.model_validate(
                shown_endpoint(endpoint, book.n_patients), from_attributes=True
            )
            for endpoint in book.endpoints
        ],
        variables=[
            VariableRow.model_validate(
                shown_variable(variable, book.n_patients), from_attributes=True
            )
            for variable in book.variables
            if word in variable.key.casefold() or word in variable.label.casefold()
        ],
        expression_genes=len(book.expression),
        expression_patients=round_count(book.expression_n) if book.expression else None,
        expression_unit=book.expression_unit,
        genes=genes[: given.genes],
        losses=[
            f"{join.step}: {count_text(join.before - join.after)} lost ({join.reason})"
            for join in book.joins
            if join.before != join.after
        ],
        findings=[
            FindingRow(
                severity=finding.severity,
                code=finding.code,
                where=finding.where,
                message=finding.message,
            )
            for finding in map(shown_finding, findings)
        ],
        license=book.license,
        notes=list(book.notes),
    )
