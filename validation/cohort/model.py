"""Schema of `cohort.toml`. Paths are relative to the cohort's root folder.

A cohort names its tables once, then defines variables and endpoints by their columns.
Everything that changes a patient's value (filters, codes for missing values, rules for
merging several rows of a patient) is declared in this file, because an undeclared rule
cannot be reviewed.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, PrivateAttr, ValidationError, model_validator

from sage.core.errors import InputError
from sage.core.models import Name, Passage, Strict
from validation.core.dictionary import Modality

Cell = str | int | float | bool
TimeUnit = Literal["days", "weeks", "months", "years"]
Collapse = Literal["error", "identical", "first", "last", "mean", "max", "min"]
BARCODE_SITE = "barcode"
SOURCE_SITE = "clinical:tissue_source_site"
KEY = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.+-]*$")


class PatientRule(Strict):
    """Table that defines the patients, and the rule for reading identifiers.

    `ids = "tcga"` takes the first twelve characters of a barcode, accepts dots for hyphens,
    and rejects anything else; `ids = "exact"` takes identifiers unchanged.

    `cluster` is the key of a variable that identifies rows of the same person, if the table
    has a row per slide or lesion. `site` is the key of the hospital variable, or "barcode":
    the tissue source site in TCGA barcodes, as variable `clinical:tissue_source_site`.
    """

    table: str
    ids: Literal["exact", "tcga"] = "exact"
    cluster: str | None = None
    site: str | None = None

    @model_validator(mode="after")
    def _barcodes_have_sites(self) -> PatientRule:
        if self.site == BARCODE_SITE and self.ids != "tcga":
            raise ValueError('site = "barcode" requires ids = "tcga"')
        return self


class KnownSpec(Strict):
    """Time after the start of follow-up at which a variable became known, fixed or per patient.

    `time` applies to all patients; `column`, in the variable's table, contains the time per
    patient (empty: never). `before` is the variable's value until then, such as "no" for a
    treatment not yet given.
    """

    time: float | None = Field(default=None, gt=0)
    column: str | None = None
    unit: TimeUnit | None = None
    before: Cell | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> KnownSpec:
        if (self.time is None) == (self.column is None):
            raise ValueError(
                "known_at: give a `time` for all patients, or a `column` with each patient's time"
            )
        if self.time is not None and self.before is not None:
            raise ValueError("known_at: `before` requires a `column`")
        return self


Known = Literal["baseline", "unknown"] | float | KnownSpec
"""Declared timing; numbers, like a `KnownSpec` without `unit`, are in the follow-up unit."""


class TableSpec(Strict):
    """A table file. `where` keeps rows whose columns have any of the given values.

    `known_at` applies to all variables in the table that do not declare their own; without
    it, the cohort's `known_at` applies. The same is true for expression and slides.
    """

    file: str
    key: str
    separator: str | None = None
    header_rows: int = Field(default=1, ge=1, le=10)
    comment: str | None = None
    columns: tuple[str, ...] = ()
    where: dict[str, Cell | tuple[Cell, ...]] = Field(default_factory=dict)
    missing: tuple[str, ...] = ()
    rows_per_patient: Collapse = "error"
    sample_types: tuple[str, ...] = ()
    known_at: Known | None = None
    source: Passage = ""


class ExpressionSpec(Strict):
    """A matrix of genes by samples (or samples by genes).

    `scale` is the scale in the file; `transform` gives the scale for analyses.
    `duplicate_genes` and `duplicate_samples` determine how repeated symbols and a patient's
    repeated samples are merged.
    """

    file: str
    orientation: Literal["genes_by_samples", "samples_by_genes"] = "genes_by_samples"
    separator: str | None = None
    symbol: str | None = None
    sample: str | None = None
    drop: tuple[str, ...] = ()
    sample_split: str | None = None
    comment: str | None = None
    scale: Literal["counts", "cpm", "tpm", "rsem", "log2", "intensity"] = "log2"
    transform: Literal["none", "log2", "log2cpm"] = "none"
    library_sizes: str | None = None
    library_key: str = ""
    library_column: str = "total_counts"
    sample_types: tuple[str, ...] = ("01",)
    duplicate_samples: Literal["mean", "first", "deepest", "error"] = "mean"
    duplicate_genes: Literal["highest_mean", "sum", "mean", "error"] = "highest_mean"
    unit: Name = ""
    known_at: Literal["baseline", "unknown"] | float | None = None
    source: Passage = ""

    @model_validator(mode="after")
    def _transform_fits(self) -> ExpressionSpec:
        if self.transform == "log2cpm" and self.scale != "counts":
            raise ValueError('expression: transform "log2cpm" requires scale = "counts"')
        if self.transform == "log2" and self.scale in ("counts", "log2"):
            raise ValueError(
                f'expression: transform "log2" does not work with scale = "{self.scale}"'
            )
        return self


class VariableSpec(Strict):
    """A variable in a table.

    `values` maps codes in the file to values for the analysis; other codes are rejected
    unless `other = "missing"`.
    """

    table: str
    column: str
    kind: Literal["continuous", "binary", "categorical", "ordinal"]
    label: Name = ""
    unit: Name | None = None
    modality: Modality = "clinical"
    values: dict[str, Cell] = Field(default_factory=dict)
    other: Literal["refuse", "missing"] = "refuse"
    collapse: Collapse | None = None
    known_at: Known | None = None
    synonyms: tuple[Name, ...] = ()
    note: Passage = ""


class RatioSpec(Strict):
    """A derived variable: a ratio of two variables, or their difference on a log scale."""

    formula: Literal["ratio", "log_difference", "mean_z"]
    of: tuple[str, ...] = Field(min_length=1)
    label: Name = ""
    unit: Name | None = None
    synonyms: tuple[Name, ...] = ()
    note: Passage = ""


class TimedSpec(Strict):
    """Time to an event, in a table's columns.

    `entry` is the column of the time from which each patient was followed, on the scale of `time`
    (delayed entry): patients who had the event before it could not be in the cohort. `time_zero`
    names the event from which times count, such as diagnosis.
    """

    table: str
    time: str
    entry: str | None = Field(default=None, exclude_if=lambda given: given is None)
    time_unit: TimeUnit
    event: str
    event_values: tuple[Cell, ...] = Field(min_length=1)
    censored_values: tuple[Cell, ...] = Field(min_length=1)
    label: Name = ""
    max_months: float = 360.0
    time_zero: Name | None = Field(default=None, exclude_if=lambda given: given is None)
    invalid_times: Literal["refuse", "exclude"] = "refuse"
    note: Passage = ""


class SurvivalSpec(TimedSpec):
    """Time to event. Every code that the event column may contain is classified.

    `time_censored` is the time column for patients without the event (days to last contact),
    if it differs.
    """

    kind: Literal["survival"] = "survival"
    time_censored: str | None = None


class CompetingSpec(TimedSpec):
    """Time to the first of several events. `event_values` are coded 1, `competing_values` 2.

    If two flags determine the outcome (death from the tumor, death from any cause),
    `competing` is the second column: patients without an event in the first, but with a value
    in `competing_values` in the second, are coded 2.
    """

    kind: Literal["competing"]
    competing: str | None = None
    competing_values: tuple[Cell, ...] = Field(min_length=1)


class BinarySpec(Strict):
    """A yes/no outcome. Codes that are neither declared nor missing are rejected.

    `contained_in` lists variables that contain this outcome (stage contains pN); models for
    it omit them.
    """

    kind: Literal["binary"]
    table: str
    column: str
    positive_values: tuple[Cell, ...] = Field(min_length=1)
    negative_values: tuple[Cell, ...] = Field(min_length=1)
    missing_values: tuple[Cell, ...] = ()
    contained_in: tuple[str, ...] = ()
    label: Name = ""
    note: Passage = ""


class ContinuousSpec(Strict):
    """A continuous, measured outcome."""

    kind: Literal["continuous"]
    table: str
    column: str
    unit: Name | None = None
    label: Name = ""
    note: Passage = ""


EndpointSpec = Annotated[
    SurvivalSpec | CompetingSpec | BinarySpec | ContinuousSpec, Field(discriminator="kind")
]


class SlideSpec(Strict):
    """Location of the slides: a table with a row per slide, or a folder searched by pattern.

    `known_at` is the time when they were taken; it applies to the features that tools compute
    on them.
    """

    folder: str = "."
    table: str | None = None
    file_column: str | None = None
    pattern: str = "*.svs"
    known_at: Literal["baseline", "unknown"] | float | None = None


class CohortSpec(Strict):
    """A complete cohort description.

    `known_at` applies to every table, and to expression and slides, unless they declare their
    own. `risk_factors` are keys of numeric variables for which higher values are known to
    mean earlier events, most certain first: the first that a claim does not use is its known
    positive. `maps` is the folder with the slides' maps, from which images of measured
    patients are drawn.
    """

    id: Name
    title: Name
    simulated: bool = False
    root: str | None = None
    license: Name = ""
    notes: tuple[Passage, ...] = ()
    min_level: int = Field(default=5, ge=1)
    known_at: Literal["baseline", "unknown"] = "unknown"
    risk_factors: tuple[str, ...] = Field(default=(), exclude_if=lambda given: not given)
    patient: PatientRule
    tables: dict[str, TableSpec]
    expression: ExpressionSpec | None = None
    signatures: tuple[str, ...] = ()
    variables: dict[str, VariableSpec] = Field(default_factory=dict)
    derived: dict[str, RatioSpec] = Field(default_factory=dict)
    endpoints: dict[str, EndpointSpec] = Field(default_factory=dict)
    slides: SlideSpec | None = None
    maps: str | None = None
    truth: dict[str, str | float | bool | tuple[str, ...]] = Field(default_factory=dict)

    _cleaned: int = PrivateAttr(0)

    @model_validator(mode="after")
    def _names_fit(self) -> CohortSpec:
        tables = set(self.tables)
        used = {"patient": self.patient.table}
        used |= {f"variables.{name}": variable.table for name, variable in self.variables.items()}
        used |= {f"endpoints.{name}": endpoint.table for name, endpoint in self.endpoints.items()}
        for where, table in used.items():
            if table not in tables:
                raise ValueError(
                    f'{where} refers to table "{table}"; tables: {", ".join(sorted(tables))}'
                )
        for name in (*self.variables, *self.endpoints, *self.derived):
            if not KEY.match(name):
                raise ValueError(f'"{name}" is not a valid name: use only letters, digits, _ . + -')
        numbers = [
            key_of(name, spec)
            for name, spec in self.variables.items()
            if spec.kind in ("continuous", "ordinal")
        ]
        for key in set(self.risk_factors) - set(numbers):
            raise ValueError(
                f'risk_factors: "{key}" is not a continuous or ordinal variable; available: '
                f"{', '.join(numbers)[:400] or 'none'}"
            )
        try:
            TopologicalSorter(
                {f"derived:{name}": ratio.of for name, ratio in self.derived.items()}
            ).prepare()
        except CycleError as error:
            chain = " of ".join(reversed(error.args[1]))
            raise ValueError(f"a variable is derived from itself: {chain}") from None
        return self

    @property
    def cleaned(self) -> int:
        """Number of texts from the file that are displayed with some characters removed."""
        return self._cleaned

    @property
    def follow_up_unit(self) -> TimeUnit | None:
        """The time unit of all outcomes; None if they differ, or if no outcome has a time."""
        units = {
            endpoint.time_unit
            for endpoint in self.endpoints.values()
            if isinstance(endpoint, TimedSpec)
        }
        return units.pop() if len(units) == 1 else None


def key_of(name: str, spec: VariableSpec) -> str:
    """Build a variable's key in the data dictionary from its modality and name."""
    return f"{spec.modality}:{name}"


def declaration_remedy(keys: Iterable[str]) -> str:
    """Describe the cohort.toml line that declares when variables became known, and its place.

    A single line can cover a whole table, the expression matrix, or the cohort.
    """
    sections = {"expression": "[expression]", "signature": "[expression]"}
    sections["derived"] = "each variable that [derived] takes"
    places = [
        sections.get(kind, f"[variables.{name}]")
        for kind, _, name in (key.partition(":") for key in keys)
    ]
    return (
        'if this was before follow-up began, write known_at = "baseline" in cohort.toml, under '
        f"{', '.join(dict.fromkeys(places))}, or once for all under [tables.NAME] or above the "
        "first section; otherwise write when it became known"
    )


def read_spec(path: Path) -> CohortSpec:
    """Read and validate a `cohort.toml`.

    Raises `InputError` if the file is missing, is not TOML, or is not a valid cohort description.
    """
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise InputError(f"{path}: file not found") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not a readable TOML file: {error}") from None
    for endpoint in raw.get("endpoints", {}).values():
        if isinstance(endpoint, dict):
            endpoint.setdefault("kind", "survival")
    try:
        spec = CohortSpec.model_validate(raw)
        spec._cleaned = _count_cleaned(raw, spec.model_dump())
        return spec
    except ValidationError as error:
        raise InputError(f"{path}: {describe(error)}") from None


def _count_cleaned(raw: object, read: object) -> int:
    """Count texts that were changed by cleaning."""
    if isinstance(raw, dict) and isinstance(read, dict):
        return sum(_count_cleaned(value, read.get(key)) for key, value in raw.items())
    if isinstance(raw, list) and isinstance(read, tuple):
        return sum(map(_count_cleaned, raw, read))
    return isinstance(raw, str) and isinstance(read, str) and raw != read


def describe(error: ValidationError) -> str:
    """Describe the first problems in a validation error, with their locations, on one line."""
    parts = []
    for problem in error.errors()[:3]:
        where = ".".join(str(part) for part in problem["loc"] if part != "survival")
        message = problem["msg"].removeprefix("Value error, ")
        parts.append(f"{where}: {message}" if where else message)
    more = len(error.errors()) - 3
    return "; ".join(parts) + (f" (and {more} more)" if more > 0 else "")
