"""Reduction of repeated rows per patient by the rule declared in the cohort."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sage.core.errors import InputError

if TYPE_CHECKING:
    import pandas as pd


def collapse(values: pd.Series, patient: pd.Series, rule: str, where: str) -> pd.Series:
    """Reduce rows to a single value per patient, preferring known values over missing values.

    `error` rejects repeated patients; `identical` rejects them only if their values differ;
    `first` and `last` follow the order of the file; `mean`, `max` and `min` apply to numbers.

    Parameters
    ----------
    values : one value per row in a file
    rule : "error", "identical", "first", "last", "mean", "max" or "min"

    Raises
    ------
    InputError
        If the rule rejects the repeated rows, or requires numbers and the values are text.
    """
    if not patient.duplicated().any():
        return values.set_axis(patient.to_numpy())
    if rule == "error":
        repeated = int(patient[patient.duplicated()].nunique())
        raise InputError(
            f"{where}: {repeated} patients have several rows. Specify how to merge them with "
            '`rows_per_patient = "identical" | "first" | "last" | "mean" | "max" | "min"`'
        )
    known = values.notna()
    kept, owner = values[known], patient[known]
    groups = kept.groupby(owner.to_numpy(), sort=False)
    if rule == "identical":
        conflict = int((groups.nunique() > 1).sum())
        if conflict:
            raise InputError(
                f'{where}: {conflict} patients have contradictory rows. Set `collapse = "first" '
                '| "last" | "max" | "min"` to merge them, or correct the rows'
            )
        reduced = groups.first()
    elif rule in ("first", "last"):
        reduced = groups.first() if rule == "first" else groups.last()
    elif kept.dtype == object:
        raise InputError(f'{where}: rule "{rule}" requires numbers; use "first" or "identical"')
    else:
        reduced = groups.agg(rule)
    return reduced.reindex(patient.drop_duplicates().to_numpy())
