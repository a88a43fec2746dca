"""Whether a second cohort holds other patients than the first: a replication needs that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from validation.contract import FrozenContract
from validation.errors import InputError
from validation.types import sha256_file

if TYPE_CHECKING:
    import pandas as pd

    from validation.cohort.cohort import Cohort

DESCRIPTION = "cohort.toml"
DISTINCT = 0.9
"""Share of patients of the first cohort whose record no other shares, for records to tell."""
ALIKE = 0.5
"""Share of the second cohort's patients whose record stands in the first, from which on it is a
copy. Strangers share a time and an event by chance, hardly the exposures and covariates as well."""


def require_other_patients(
    frozen: FrozenContract, second: Cohort, first: Cohort | None = None
) -> None:
    """Check that a second cohort is not the contract's own under another name.

    A file that both read counts by its content, whatever it is called; its name, the cohort's id
    and its description do not. Cohorts may share a file of which each takes its own rows (`where`):
    then their patients are compared, where the first cohort is given. An edited copy is known by
    its records: outcome, exposures and covariates of most patients are those of the first.

    Raises
    ------
    InputError
        If the same patients would be read again.
    """
    known = {digest for name, digest in frozen.data_hashes.items() if name != DESCRIPTION}
    shared = [name for name, one in second.hashes().items() if name != DESCRIPTION and one in known]
    if not shared:
        if first is not None:
            _refuse_copy(frozen, second, first)
        return
    base = second.spec.patient.table
    whole = not second.spec.tables[base].where
    again = whole and sha256_file(second.tables[base].path) in known
    if first is not None:
        again = again or bool(set(first.patients) & set(second.patients))
    if again:
        raise InputError(
            f'a replication needs another cohort: "{second.id}" reads the same patients as '
            f'"{frozen.contract.cohort}" ({", ".join(shared)} is the same file). Give the data of '
            "other patients"
        )


def _refuse_copy(frozen: FrozenContract, second: Cohort, first: Cohort) -> None:
    share = copied(frozen, second, first)
    if share > ALIKE:
        raise InputError(
            f'a replication needs another cohort: {share:.0%} of the patients of "{second.id}" '
            "have the very outcome, exposures and covariates of a patient of "
            f'"{frozen.contract.cohort}". Give the data of other patients'
        )


def copied(frozen: FrozenContract, second: Cohort, first: Cohort) -> float:
    """Share of the second cohort's patients whose record stands in the first.

    A record is the primary outcome with those exposures and covariates that both cohorts have.
    Zero where the first cohort's records hardly differ from one another, so that equal ones are
    no sign of a copy.
    """
    contract = frozen.contract
    endpoint = contract.primary_test.endpoint
    wanted = [one.key for one in contract.exposures] + list(contract.covariates)
    has = {*second.keys(), *(key for key in wanted if key.startswith("expression:"))}
    keys = [key for key in dict.fromkeys(wanted) if key in has]
    try:
        ours, theirs = (_records(one, keys, endpoint) for one in (first, second))
    except InputError:
        return 0.0  # What the second cohort lacks is said where its patients are prepared.
    if not len(ours) or not len(theirs) or ours.nunique() < DISTINCT * len(ours):
        return 0.0
    return float(theirs.isin(set(ours)).mean())


def _records(cohort: Cohort, keys: list[str], endpoint: str) -> pd.Series:
    """One text per patient with the outcome; numbers to six digits, as an export may round them."""
    table = cohort.table(keys, [endpoint])
    known = table[[one for one in table.columns if one.startswith(f"{endpoint}.")]].notna()
    table = table[known.all(axis=1)]
    texts = table.map(lambda one: f"{one:.6g}" if isinstance(one, float | int) else str(one))
    return texts.agg("|".join, axis=1) if len(table) else table.index.to_series()
