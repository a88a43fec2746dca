"""Checks that a replication cohort does not contain the first cohort's patients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sage.core.errors import InputError
from sage.core.hashes import hash_file
from validation.cohort.copies import find_shared_patients
from validation.cohort.ids import BARCODE
from validation.contracts.contract import FrozenContract

if TYPE_CHECKING:
    from validation.cohort.cohort import Cohort

DESCRIPTION = "cohort.toml"


def require_other_patients(
    frozen: FrozenContract, second: Cohort, first: Cohort | None = None
) -> None:
    """Check that a second cohort is not the contract's own under another name.

    A file shared by both cohorts is recognized by its content, regardless of its name and the
    cohort's id and description. Cohorts may share a file from which each reads its own rows
    (`where`); their patients are then compared if the first cohort is given. TCGA barcodes
    are always compared. Edited, pooled and noisy copies are recognized by
    `validation.cohort.copies`.

    Raises `InputError` if the same patients would be read again.
    """
    known = set(frozen.data_hashes.values())
    _require_other_files(known, frozen.contract.cohort, second, first)
    if first is not None:
        _refuse_shared(second, first)


def require_other_cohort(first: Cohort, second: Cohort) -> None:
    """Check that two cohorts have different patients, before a contract exists.

    Raises `InputError` if the same patients would be read again.
    """
    _require_other_files(set(first.hashes().values()), first.id, second, first)
    _refuse_shared(second, first)


def _require_other_files(known: set[str], name: str, second: Cohort, first: Cohort | None) -> None:
    shared = [
        file for file, digest in second.hashes().items() if file != DESCRIPTION and digest in known
    ]
    base = second.spec.patient.table
    whole = not second.spec.tables[base].where
    again = bool(shared) and whole and hash_file(second.tables[base].path) in known
    if first is not None:
        again = again or bool(shared and set(first.patients) & set(second.patients))
    if again:
        raise InputError(
            f'a second cohort must have other patients: "{second.id}" reads the same patients as '
            f'"{name}" ({", ".join(shared)} is the same file). Use data from other '
            "patients"
        )


def _refuse_barcodes(second: Cohort, first: Cohort) -> None:
    both = set(first.patients) & set(second.patients)
    barcodes = [name for name in both if BARCODE.match(name)]
    if barcodes:
        raise InputError(
            f"a second cohort must have other patients: {len(barcodes)} patients in "
            f'"{second.id}" are also in "{first.id}" (such as {min(barcodes)}). Remove '
            "them from one of the cohorts"
        )


def _refuse_shared(second: Cohort, first: Cohort) -> None:
    _refuse_barcodes(second, first)
    if (found := find_shared_patients(first, second)) is not None:
        raise InputError(
            f"a second cohort must have other patients: {len(found.pairs)} patients in "
            f'"{second.id}" match a patient in "{first.id}" far more closely than '
            f"expected by chance (p = {found.p:.1g}), like copies. Use data from other "
            "patients"
        )
