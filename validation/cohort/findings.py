"""Detection of problems that would mislead an analysis of a cohort.

Each rule looks for a trap found in real cohorts: event flags with unexpected polarity,
follow-up older than that in another table, normal samples among tumors, a detector's own
training slides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sage.core.errors import InputError
from validation.cohort.codes import report
from validation.cohort.copies import find_cohort_copies
from validation.cohort.findings_outcomes import find_outdated, of_endpoints, of_flags
from validation.cohort.findings_timing import of_timing
from validation.cohort.findings_variables import of_expression, of_variables
from validation.cohort.ids import BARCODE
from validation.cohort.tables import Loaded
from validation.core.types import Finding

if TYPE_CHECKING:
    from validation.cohort.cohort import Cohort

TRAINING = {"train", "training"}
TRAINING_COLUMN = re.compile(r"(slide_?set|split|partition|subset|^set$)", re.IGNORECASE)
ORDER = {"error": 0, "warning": 1, "info": 2}
NAMED = 12


def of_copies(cohort: Cohort) -> Iterator[Finding]:
    """Find patients who appear in the cohort several times under new identifiers."""
    if (found := find_cohort_copies(cohort)) is None:
        return
    named = [f"{cohort.patients[one]} = {cohort.patients[other]}" for one, other in found.pairs]
    more = f" and {len(named) - NAMED} more" if len(named) > NAMED else ""
    text = (
        f"{len({at for pair in found.pairs for at in pair})} patients agree in outcome and "
        f"covariates with others, far beyond chance (p = {found.p:.1g}): "
        f"{', '.join(named[:NAMED])}{more}"
    )
    yield report("copied_patients", f"tables.{cohort.spec.patient.table}", text)


OF_COHORT = (of_copies, of_endpoints, find_outdated, of_expression, of_variables, of_timing)


def check_cohort(cohort: Cohort) -> list[Finding]:
    """Run all checks and return their findings, errors first."""
    findings = [finding for check in OF_COHORT for finding in check(cohort)]
    for table in cohort.tables.values():
        for check in (_identifiers, _headers, _training, _several_rows, of_flags):
            findings += check(cohort, table)
    unique = {(finding.code, finding.where, finding.message): finding for finding in findings}
    return sorted(
        unique.values(), key=lambda finding: (ORDER[finding.severity], finding.code, finding.where)
    )


def _identifiers(cohort: Cohort, table: Loaded) -> Iterator[Finding]:
    """Find short IDs that look like the tail of a barcode, and tables that hardly join."""
    base, where = cohort.spec.patient.table, f"tables.{table.name}"
    if table.name == base:
        yield from _find_case_variants(cohort, where)
        return
    everybody = set(cohort.patients)
    if forms := _other_forms(set(table.patient), everybody):
        yield _in_another_form(where, forms, base)
        return
    shared = len(everybody & set(table.patient)) / max(len(set(table.patient)), 1)
    if shared >= 0.5:
        return
    raw = table.rows[table.spec.key].str.strip()
    short = raw.str.fullmatch(r"[A-Za-z0-9]{4}(-\d{2}[A-Z]?)?")
    tails = {person[-4:] for person in everybody if BARCODE.match(person)}
    if short.mean() > 0.8 and tails & set(raw[short].str[:4]):
        text = (
            f"{int(short.sum())} identifiers have four characters, the end of a barcode; only "
            f"{shared:.0%} match"
        )
        yield report("short_ids", where, text)
    else:
        yield report("weak_join", where, f"only {shared:.0%} of its patients are in {base}")


def _plain(identifier: str) -> str:
    """Normalize typical data-entry variation in an identifier: case, separators, leading zeros."""
    return re.sub(r"(?<!\d)0+(?=\d)", "", re.sub(r"[\s._/-]+", "-", identifier.casefold()))


def _other_forms(ids: set[str], everybody: set[str]) -> list[tuple[str, str]]:
    """Pair unknown identifiers with the patients they would match in another spelling."""
    by_form = {_plain(person): person for person in everybody}
    return [
        (stranger, by_form[_plain(stranger)])
        for stranger in sorted(ids - everybody)
        if _plain(stranger) in by_form
    ]


def _in_another_form(where: str, forms: list[tuple[str, str]], base: str) -> Finding:
    mine, theirs = forms[0]
    text = (
        f"{len(forms)} identifiers match those of {base} in another spelling ({mine!r} for "
        f"{theirs!r}); their rows are not joined"
    )
    return report("ids_in_another_form", where, text)


def _find_case_variants(cohort: Cohort, where: str) -> Iterator[Finding]:
    """Find patients whose identifiers differ only in case, and samples in another spelling."""
    folded: dict[str, set[str]] = {}
    for patient in cohort.patients:
        folded.setdefault(patient.casefold(), set()).add(patient)
    twice = sorted(tuple(sorted(same)) for same in folded.values() if len(same) > 1)
    if twice:
        text = f"{len(twice)} patients differ from another only in case ({' and '.join(twice[0])})"
        yield report("ids_twice", where, text)
    try:
        matrix = cohort.expression
    except InputError:
        return  # reported by of_expression
    forms = _other_forms(set(matrix.patients), set(cohort.patients)) if matrix is not None else []
    if forms:
        yield _in_another_form("expression", forms, cohort.spec.patient.table)


def _headers(cohort: Cohort, table: Loaded) -> Iterator[Finding]:
    """Find rows that repeat the header, which TCGA biotab files contain three times."""
    columns = [str(column).casefold() for column in table.rows.columns]
    repeated = 0
    for _, row in table.rows.head(3).iterrows():
        values = [str(item).strip().casefold() for item in row]
        same = sum(a == b for a, b in zip(values, columns, strict=True))
        codes_row = sum(value.startswith("cde_id") for value in values)
        repeated += same >= max(2, len(columns) // 3) or codes_row >= 2
    if repeated:
        text = f"{table.path.name}: {repeated} data rows repeat the header"
        remedy = f"set header_rows = {table.spec.header_rows + repeated}"
        yield report("repeated_header", f"tables.{table.name}", text, remedy=remedy)


def _training(cohort: Cohort, table: Loaded) -> Iterator[Finding]:
    """Find rows that were used to train an imaging detector."""
    used = [
        key
        for key, spec in cohort.spec.variables.items()
        if spec.table == table.name and spec.modality == "imaging"
    ]
    for column in map(str, table.rows.columns):
        if not TRAINING_COLUMN.search(column):
            continue
        where = f"tables.{table.name}.{column}"
        values = table.rows[column].str.strip().str.casefold()
        count = int(values.isin(TRAINING).sum())
        if count and used:
            text = (
                f"{count} of {len(values)} rows are the detector's own training slides; "
                f"used by {', '.join(used)}"
            )
            yield report("training_slides", where, text)
            return
        excluded = table.spec.where.get(column)
        if excluded is not None:
            text = f"training slides are excluded ({column} = {excluded})"
            yield report("training_slides", where, text, remedy="", severity="info")
            return


def _several_rows(cohort: Cohort, table: Loaded) -> Iterator[Finding]:
    repeated = int(table.patient[table.patient.duplicated()].nunique())
    rule, where = table.spec.rows_per_patient, f"tables.{table.name}"
    text = f"{repeated} patients have several rows ({table.path.name}); rule: {rule}"
    if repeated and rule == "error":
        yield report("several_rows", where, text)
    elif repeated:
        yield report("several_rows", where, text, remedy="", severity="info")
