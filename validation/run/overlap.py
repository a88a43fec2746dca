"""Checks that a replication cohort does not contain the first cohort's patients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sage.core.errors import InputError
from sage.core.hashes import hash_file
from validation.cohort.ids import BARCODE
from validation.contracts.contract import FrozenContract

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from validation.cohort.cohort import Cohort

DESCRIPTION = "cohort.toml"
DISTINCT = 0.9
"""Minimum share of the first cohort's patients with unique records for these to be conclusive."""
ALIKE = 0.5
"""Share of a cohort's patients whose record occurs in the other from which it counts as a copy.

Strangers may share a sex and a stage by chance, but hardly ever a measured exposure as well.
"""

ALTERED = 0.6
"""Ratio of distances to the other cohort and to their own below which patients count as copies.

In halves, small parts, subgroups and pairs of four cohorts, the median was never below 0.97; with
noise of a tenth of a standard deviation on every value, it was 0.1 to 0.5.
"""
COLUMNS, MANY_VALUES, PATIENTS, GENES = 3, 20, 20, 200
"""Minimum columns, distinct values per column and patients, and most genes that are compared."""


def require_other_patients(
    frozen: FrozenContract, second: Cohort, first: Cohort | None = None
) -> None:
    """Check that a second cohort is not the contract's own under another name.

    A file shared by both cohorts is recognized by its content, whatever its name and the cohort's
    id and description. Cohorts may share a file from which each reads its own rows (`where`); their
    patients are then compared, if the first cohort is given. TCGA barcodes are always compared. An
    edited or pooled copy is recognized by its records: the exposures and covariates of most
    patients in one cohort equal those of patients in the other.

    Raises `InputError` if the same patients would be read again.
    """
    known = set(frozen.data_hashes.values())
    _require_other_files(known, frozen.contract.cohort, second, first)
    if first is not None:
        _refuse_copy(frozen, second, first)


def require_other_cohort(first: Cohort, second: Cohort) -> None:
    """Check by files and barcodes, before a contract exists, that cohorts have different patients.

    Raises `InputError` if the same patients would be read again.
    """
    _require_other_files(set(first.hashes().values()), first.id, second, first)
    _refuse_barcodes(second, first)
    if altered_copy(first, second) < ALTERED:
        raise InputError(
            f'a second cohort must have other patients: those of "{second.id}" are far more '
            f'similar to single patients of "{first.id}" than to one another, like an altered '
            "copy. Use the data of other patients"
        )


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
            f'"{name}" ({", ".join(shared)} is the same file). Use the data of other patients'
        )


def _refuse_barcodes(second: Cohort, first: Cohort) -> None:
    both = set(first.patients) & set(second.patients)
    barcodes = [name for name in both if BARCODE.match(name)]
    if barcodes:
        raise InputError(
            f"a second cohort must have other patients: {len(barcodes)} patients of "
            f'"{second.id}" are also in "{first.id}" (such as {min(barcodes)}). Remove them from '
            "one of the cohorts"
        )


def _refuse_copy(frozen: FrozenContract, second: Cohort, first: Cohort) -> None:
    _refuse_barcodes(second, first)
    share = copied_share(frozen, second, first)
    if share > ALIKE:
        raise InputError(
            f"a second cohort must have other patients: {share:.0%} of the patients of "
            f'"{second.id}", or of "{frozen.contract.cohort}", have exactly the exposures and '
            "covariates of a patient of the other. Use the data of other patients"
        )


def altered_copy(first: Cohort, second: Cohort) -> float:
    """Compute how close the second cohort's patients are to the first's, relative to each other.

    For each patient of the second cohort, the distance to the nearest patient of the first cohort
    is divided by the distance to the nearest other patient of the second; the result is the median
    ratio. Distances use variables that both cohorts measure with many distinct values. The result
    is about 1 for different patients from anywhere, 0 for a copy, and small for a copy with some
    noise. A larger first cohort has nearer patients by chance, so its distances are scaled as in at
    most three dimensions. The result is NaN if fewer than `COLUMNS` columns or `PATIENTS` patients
    are available.
    """
    tables = _measured_alike(first, second)
    if tables is None:
        return float("nan")
    return nearness(*(table.to_numpy(float) for table in tables))


def nearness(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> float:
    """Compute `altered_copy` for (patients, columns) arrays without missing values."""
    from scipy.spatial import KDTree

    scale = np.std(ours, axis=0)
    ours, theirs = ours / scale, theirs / scale
    there = KDTree(ours).query(theirs)[0] * max(1.0, len(ours) / len(theirs)) ** (1 / 3)
    here = KDTree(theirs).query(theirs, k=2)[0][:, 1]
    apart = here > 0
    return float(np.median(there[apart] / here[apart])) if apart.any() else float("nan")


def _measured_alike(first: Cohort, second: Cohort) -> tuple[pd.DataFrame, pd.DataFrame] | None:
    """Select complete records on variables that both cohorts measure with many distinct values."""
    known = [cohort.dictionary() for cohort in (first, second)]
    amounts = [
        {variable.key for variable in table.variables if variable.kind == "continuous"}
        for table in known
    ]
    genes = sorted(set(known[0].expression) & set(known[1].expression))
    keys = sorted(amounts[0] & amounts[1])
    keys += [f"expression:{gene}" for gene in genes[:: max(1, len(genes) // GENES)]]
    tables = [cohort.table(keys, []) for cohort in (first, second)]
    kept = [
        key
        for key in keys
        if all(
            table[key].nunique() >= MANY_VALUES and table[key].notna().mean() > ALIKE
            for table in tables
        )
    ]
    ours, theirs = (table[kept].dropna() for table in tables)
    if len(kept) < COLUMNS or min(len(ours), len(theirs)) < PATIENTS:
        return None
    return ours, theirs


def copied_share(frozen: FrozenContract, second: Cohort, first: Cohort) -> float:
    """Compute the share of a cohort's patients whose record occurs in the other.

    The share is computed in both directions, and the larger is returned. A record consists of the
    exposures and covariates that both cohorts have, without the outcome (a newer export may have
    longer follow-up) or with it, whichever identifies more. The share is zero if the first cohort's
    records hardly differ from each other, because equal records are then not a sign of a copy.
    """
    contract = frozen.contract
    endpoint = contract.primary_test.endpoint
    wanted = [exposure.key for exposure in contract.exposures] + list(contract.covariates)
    has = {*second.keys(), *(key for key in wanted if key.startswith("expression:"))}
    keys = [key for key in dict.fromkeys(wanted) if key in has]
    try:
        tables = [cohort.table(keys, [endpoint]) for cohort in (first, second)]
    except InputError:
        return 0.0  # Missing variables are reported when the second cohort is prepared.
    found = 0.0
    for columns in (keys, [column for column in tables[0].columns if column in tables[1].columns]):
        ours, theirs = (_records(table, columns) for table in tables)
        if len(theirs) and len(ours) and ours.nunique() >= DISTINCT * len(ours):
            there, here = theirs.isin(set(ours)).mean(), ours.isin(set(theirs)).mean()
            found = max(found, float(there), float(here))
    return found


def _records(table: pd.DataFrame, columns: list[str]) -> pd.Series:
    """Render complete records as text, with numbers to six digits, as exports round them."""
    table = table[columns].dropna()
    texts = table.map(
        lambda value: f"{value:.6g}" if isinstance(value, float | int) else str(value)
    )
    return texts.agg("|".join, axis=1) if len(table) else table.index.to_series()
