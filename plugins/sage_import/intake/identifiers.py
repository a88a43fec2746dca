"""Detection of the column that identifies patients."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from sage_import.intake.names import BIRTH, IDENTIFIER, tokens, word_set, words
from sage_import.intake.values import Column
from validation.cohort.ids import BARCODE

OWNERS = frozenset({"patient", "patientid", "subject", "participant", "pid", "case", "person"})
PARTS = word_set("slide image file scan wsi block sample aliquot specimen tile section")
"""Words for patient parts, of which there may be several."""
UUID = re.compile(r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
TRAITS = frozenset({"age", "sex", "gender", "race", "stage", "grade"})
"""Words for patient traits, as in `patient_age`, that do not identify a patient."""


def people_twice(own: list[Column], chosen: Column) -> Column | None:
    """Find a patient column that is often empty and whose other rows share patients."""
    if set(tokens(chosen.name)) & OWNERS:
        return None
    for column in own:
        named = set(tokens(column.name))
        names_people = named & OWNERS and named <= OWNERS | set(IDENTIFIER)
        if (
            names_people
            and 1 < len(column.counts) < len(column.present)
            and (len(column.counts) != len(chosen.counts))
        ):
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
    score += 3 if len(column.counts) == len(known) and not named & PARTS else 0
    score += 2 if column.place == 0 else 0
    barcodes = known.map(lambda cell: bool(BARCODE.match(cell.replace(".", "-").upper())))
    if barcodes.mean() > 0.9:
        whole = known.str.len().median() <= 12
        return score + (20 if whole else 18)
    if not column.numeric:
        score += 1
    if (
        known.map(lambda cell: bool(UUID.match(cell))).all()
        or len(column.counts) < max(5, 0.01 * len(known))
        or named & {"uuid"}
        or BIRTH.search(words(column.name))
        or named & TRAITS
    ):
        return 0.0
    if column.numeric and not named & set(IDENTIFIER):
        return 0.0
    # If both samples and patients have names, a patient may have several rows.
    return score + (6 if named & OWNERS and not named & PARTS else 0)


def match_people(theirs: Iterable[str], ours: Iterable[str]) -> tuple[dict[str, str], str]:
    """Match identifiers in one file to those in another file that are written differently.

    Returns
    -------
    Their identifiers mapped to ours, by the form with the most matches, and a description of
    that form; forms under which two of ours coincide are not used.
    """
    names, known = list(dict.fromkeys(theirs)), list(dict.fromkeys(ours))
    best: tuple[dict[str, str], str] = ({name: name for name in names if name in set(known)}, "")
    for form, how in FORMS:
        home = {form(name): name for name in known}
        if len(home) == len(known) and "" not in home:
            found = {name: home[form(name)] for name in names if form(name) in home}
            if len(found) > len(best[0]):
                best = found, how
    if len(best[0]) < 0.5 * len(names):  # samples that begin with their patient
        starts = sorted(known, key=len, reverse=True)
        found = {}
        for name in names:
            plain = _by_r(name)
            owner = next((who for who in starts if re.match(rf"{re.escape(_by_r(who))}(?![0-9a-z])",
                                                            plain)), None)  # fmt: skip
            if owner is not None and len(owner) > 2:
                found[name] = owner
        if len(found) > max(len(best[0]), 0.5 * len(names)):
            best = found, "samples begin with their patient"
    return best


def _by_r(name: str) -> str:
    """Return a name as R's make.names would write it, in lower case."""
    text = re.sub(r"[^a-z0-9._]", ".", name.strip().casefold())
    return text.removeprefix("x") if re.match(r"x[\d.]", text) else text


def _as_number(name: str) -> str:
    text = re.sub(r"\.0+$", "", name.strip())
    return str(int(text)) if text.isdecimal() else text


FORMS: tuple[tuple[Callable[[str], str], str], ...] = (
    (_as_number, "numbers without zeros in front or a decimal point"),
    (_by_r, "names as R writes them, as X1001 for 1001 and BC.1 for BC-1"),
    (lambda name: re.sub(r"[^a-z0-9]", "", _by_r(name)), "letters and digits alone"),
)
"""Alternative forms in which programs write the same identifier."""
