"""Patient and sample identifiers.

A TCGA barcode is project-site-patient[-sample+vial[-...]]; the two digits of the sample field are
its type (01 primary tumor, 06 metastasis, 11 solid tissue normal; GDC code tables).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from sage.core.errors import InputError

BARCODE = re.compile(r"^(TCGA-[A-Z0-9]{2}-[A-Z0-9]{4})(?:-(\d{2})([A-Z])?.*)?$")
SAMPLE_NAMES = {
    "01": "primary tumor",
    "02": "recurrent tumor",
    "03": "blood-derived tumor",
    "05": "additional primary",
    "06": "metastasis",
    "10": "blood normal",
    "11": "solid tissue normal",
}


def patient_of(identifier: str, rule: str) -> str | None:
    """Return the patient named by an identifier, or None if the rule cannot parse it."""
    text = identifier.strip()
    if not text:
        return None
    if rule == "exact":
        return text
    match = BARCODE.match(text.replace(".", "-").upper())
    return match.group(1) if match else None


def require_one_row_each(identifiers: Iterable[str], cluster: str | None) -> None:
    """Reject slides or samples counted as patients: barcodes with the same patient part.

    Raises `InputError` if there are any and the cohort declares no cluster.
    """
    people = [
        match.group(1) for identifier in identifiers if (match := BARCODE.match(identifier.upper()))
    ]
    if cluster is None and len(set(people)) < len(people):
        raise InputError(
            f"{len(people)} rows belong to {len(set(people))} patients according to their TCGA "
            'barcodes, but each counts as a patient: set `ids = "tcga"` with a rule that merges '
            "them, or give the variable that identifies the patient as `cluster` under [patient]"
        )


def sample_type_of(identifier: str) -> str | None:
    """Return the two-digit sample type of a TCGA sample barcode, or None if it has none."""
    match = BARCODE.match(identifier.strip().replace(".", "-").upper())
    return match.group(2) if match else None
