"""Detection of the column that identifies patients."""

from __future__ import annotations

from sage_import.intake.names import BIRTH, IDENTIFIER, tokens, words
from sage_import.intake.values import Column
from validation.cohort.ids import BARCODE

OWNERS = frozenset({"patient", "patientid", "subject", "participant", "pid"})
TRAITS = frozenset({"age", "sex", "gender", "race", "stage", "grade"})
"""Words for traits of a patient, as in `patient_age`, that do not identify one."""


def people_twice(own: list[Column], chosen: Column) -> Column | None:
    """Find a patient column that is empty in many rows while other rows share a patient."""
    if set(tokens(chosen.name)) & OWNERS:
        return None
    for column in own:
        named = set(tokens(column.name))
        names_people = named & OWNERS and named <= OWNERS | set(IDENTIFIER)
        if names_people and 1 < len(column.counts) < len(column.present):
            return column
    return None


def names_patients(column: Column) -> float:
    """Score a column as a patient identifier: 0 if it cannot be one, 5 or more if likely."""
    known = column.present
    if column.is_date or column.absent.mean() > 0.2:
        return 0.0
    if column.numeric and any(value % 1 for value in column.numbers.dropna()):
        return 0.0
    named = set(tokens(column.name))
    score = float(max((IDENTIFIER.get(word, 0) for word in named), default=0))
    score += 3 if len(column.counts) == len(known) else 0
    score += 2 if column.place == 0 else 0
    barcodes = known.map(lambda cell: bool(BARCODE.match(cell.replace(".", "-").upper())))
    if barcodes.mean() > 0.9:
        whole = known.str.len().median() <= 12
        return score + (20 if whole else 18)
    if not column.numeric:
        score += 1
    if (
        len(column.counts) < max(5, 0.01 * len(known))
        or named & {"uuid"}
        or BIRTH.search(words(column.name))
        or named & TRAITS
    ):
        return 0.0
    if column.numeric and not named & set(IDENTIFIER):
        return 0.0
    # If both samples and patients have names, a patient may have several rows.
    return score + (6 if named & OWNERS else 0)
