"""Find what would mislead an analysis of a cohort.

Each rule looks for a trap that real cohorts held: event flags of either polarity, follow-up that
is older than another table's, normal samples among tumors, a detector's own training slides.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sage.core.errors import InputError
from validation.cohort.findings_outcomes import find_outdated, of_endpoints, of_flags
from validation.cohort.findings_timing import of_timing
from validation.cohort.findings_variables import of_expression, of_variables
from validation.cohort.ids import BARCODE
from validation.cohort.tables import Loaded
from validation.core.types import Finding, Severity, finding

if TYPE_CHECKING:
    from validation.cohort.cohort import Cohort

TRAINING = {"train", "training"}
TRAINING_COLUMN = re.compile(r"(slide_?set|split|partition|subset|^set$)", re.IGNORECASE)
ORDER = {"error": 0, "warning": 1, "info": 2}


def check_cohort(cohort: Cohort) -> list[Finding]:
    """All findings, errors first."""
    findings: list[Finding] = []
    findings += of_endpoints(cohort)
    for table in cohort.tables.values():
        findings += _identifiers(cohort, table)
        findings += _headers(table)
        findings += _training(cohort, table)
        findings += _several_rows(table)
        findings += of_flags(cohort, table)
    findings += find_outdated(cohort)
    findings += of_expression(cohort)
    findings += of_variables(cohort)
    findings += of_timing(cohort)
    unique = {(finding.code, finding.where, finding.message): finding for finding in findings}
    return sorted(
        unique.values(), key=lambda finding: (ORDER[finding.severity], finding.code, finding.where)
    )


def _identifiers(cohort: Cohort, table: Loaded) -> list[Finding]:
    """Short ids that look like the tail of a barcode, and tables that hardly join."""
    everybody = set(cohort.patients)
    if table.name == cohort.spec.patient.table:
        return _find_case_variants(cohort, table)
    forms = _other_forms(set(table.patient), everybody)
    if forms:
        return [_in_another_form(f"tables.{table.name}", forms, cohort.spec.patient.table)]
    shared = len(everybody & set(table.patient)) / max(len(set(table.patient)), 1)
    where = f"tables.{table.name}"
    raw = table.rows[table.spec.key].str.strip()
    short = raw.str.fullmatch(r"[A-Za-z0-9]{4}(-\d{2}[A-Z]?)?")
    tails = {person[-4:] for person in everybody if BARCODE.match(person)}
    if shared < 0.5 and short.mean() > 0.8 and tails & set(raw[short].str[:4]):
        return [
            finding(
                "error",
                "short_ids",
                where,
                f"{int(short.sum())} identifiers have four characters, the tail of a barcode; "
                f"only {shared:.0%} join",
                "map them to full barcodes first: tails are not unique across sites",
            )
        ]
    if shared < 0.5:
        return [
            finding(
                "warning",
                "weak_join",
                where,
                f"only {shared:.0%} of its patients are in {cohort.spec.patient.table}",
                "check the key column and its form",
            )
        ]
    return []


def _plain(identifier: str) -> str:
    """An identifier without what clerks change: case, separators, zeros in front of a number."""
    return re.sub(r"(?<!\d)0+(?=\d)", "", re.sub(r"[\s._/-]+", "-", identifier.casefold()))


def _other_forms(ids: set[str], everybody: set[str]) -> list[tuple[str, str]]:
    """Identifiers that are nobody's, but would be somebody's in another spelling."""
    by_form = {_plain(person): person for person in everybody}
    strangers = sorted(ids - everybody)
    return [
        (stranger, by_form[_plain(stranger)])
        for stranger in strangers
        if _plain(stranger) in by_form
    ]


def _in_another_form(where: str, forms: list[tuple[str, str]], base: str) -> Finding:
    mine, theirs = forms[0]
    text = (
        f"{len(forms)} identifiers are those of {base} in another spelling ({mine!r} for "
        f"{theirs!r}); their rows are not joined"
    )
    return finding("error", "ids_in_another_form", where, text, "write them alike in both files")


def _find_case_variants(cohort: Cohort, table: Loaded) -> list[Finding]:
    """Patients who differ in the case of their identifier alone, and samples of such."""
    found = []
    folded: dict[str, set[str]] = {}
    for patient in cohort.patients:
        folded.setdefault(patient.casefold(), set()).add(patient)
    twice = sorted(tuple(sorted(same)) for same in folded.values() if len(same) > 1)
    if twice:
        text = f"{len(twice)} patients differ from another in case alone ({' and '.join(twice[0])})"
        remedy = "spell each patient's identifier in the same way: they count as different patients"
        found.append(finding("error", "ids_twice", f"tables.{table.name}", text, remedy))
    if cohort.spec.expression is not None:
        try:
            matrix = cohort.expression
        except InputError:
            return found  # of_expression says why
        assert matrix is not None
        forms = _other_forms(set(matrix.patients), set(cohort.patients))
        if forms:
            found.append(_in_another_form("expression", forms, table.name))
    return found


def _headers(table: Loaded) -> list[Finding]:
    """Rows that repeat the header (TCGA biotab writes it three times)."""
    columns = [str(column).casefold() for column in table.rows.columns]
    first = table.rows.head(3)
    repeated = 0
    for _, row in first.iterrows():
        values = [str(item).strip().casefold() for item in row]
        same = sum(a == b for a, b in zip(values, columns, strict=True))
        codes_row = sum(value.startswith("cde_id") for value in values)
        repeated += same >= max(2, len(columns) // 3) or codes_row >= 2
    if not repeated:
        return []
    return [
        finding(
            "error",
            "repeated_header",
            f"tables.{table.name}",
            f"{table.path.name}: {repeated} data rows repeat the header",
            f"set header_rows = {table.spec.header_rows + repeated}",
        )
    ]


def _training(cohort: Cohort, table: Loaded) -> list[Finding]:
    """Rows on which an imaging detector was trained."""
    for column in table.rows.columns:
        if not TRAINING_COLUMN.search(str(column)):
            continue
        values = table.rows[column].str.strip().str.casefold()
        count = int(values.isin(TRAINING).sum())
        used = [
            key
            for key, spec in cohort.spec.variables.items()
            if spec.table == table.name and spec.modality == "imaging"
        ]
        if count and used:
            return [
                finding(
                    "warning",
                    "training_slides",
                    f"tables.{table.name}.{column}",
                    f"{count} of {len(values)} rows are the detector's own training slides; "
                    f"used by {', '.join(used)}",
                    f"keep the test rows with where = {{ {column} = ... }}, or use these "
                    "variables for sensitivity analyses only",
                )
            ]
        excluded = table.spec.where.get(str(column))
        if excluded is not None:
            return [
                finding(
                    "info",
                    "training_slides",
                    f"tables.{table.name}.{column}",
                    f"training slides are left out ({column} = {excluded})",
                )
            ]
    return []


def _several_rows(table: Loaded) -> list[Finding]:
    repeated = int(table.patient[table.patient.duplicated()].nunique())
    if not repeated:
        return []
    rule = table.spec.rows_per_patient
    severity: Severity = "error" if rule == "error" else "info"
    return [
        finding(
            severity,
            "several_rows",
            f"tables.{table.name}",
            f"{repeated} patients have several rows ({table.path.name}); rule: {rule}",
            "" if rule != "error" else 'set rows_per_patient = "identical", "first", "last" …',
        )
    ]
