"""Balance of an exposure that is declared to need no adjustment, such as a randomized one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sage.core.errors import InputError
from validation.contracts.timing import is_late

if TYPE_CHECKING:
    import pandas as pd

    from validation.cohort.cohort import Cohort
    from validation.contracts.contract import Contract

UNBALANCED = 0.01
"""Level over all baseline variables: a randomized exposure is doubted once in a hundred times."""
FEWEST = 20


def weigh_declaration(contract: Contract, cohort: Cohort) -> dict[str, Any]:
    """Return the fields of a contract that follow from the balance of an unadjusted exposure.

    Each exposure is compared with each baseline variable of the cohort (rank correlation, or
    Kruskal and Wallis' test over levels), without any outcome. If one differs beyond chance, the
    declaration is dropped and the claim counts as not adjusted.
    """
    hypothesis = contract.hypothesis
    if not hypothesis.unadjusted_because:
        return {}
    exposures = [use for use in contract.exposures if not is_late(use)]
    found = {
        (use.label, variable.label): p
        for use in exposures
        for variable in cohort.dictionary().variables
        if not variable.late
        and not cohort.parts_of(variable.key) & cohort.parts_of(use.key)
        and (p := compare_columns(cohort, use.key, variable.key)) is not None
    }
    if not found:
        return {"notes": (*contract.notes, "balance: no baseline variable to compare with")}
    (exposure, variable), p = min(found.items(), key=lambda item: item[1])
    p = min(1.0, p * len(found))
    smallest = f"over {len(found)} comparisons with baseline variables, the smallest corrected p is"
    text = f"balance: {smallest} {p:.2g} ({exposure} by {variable})"
    if p >= UNBALANCED:
        return {"notes": (*contract.notes, text)}
    text += f'; "{hypothesis.unadjusted_because}" is not accepted: adjust for {variable}'
    open_claim = hypothesis.model_copy(update={"unadjusted_because": ""})
    return {"notes": (*contract.notes, text), "hypothesis": open_claim}


def compare_columns(cohort: Cohort, exposure: str, baseline: str) -> float | None:
    """Return the p-value of no association between two variables; None if there are too few."""
    from scipy.stats import kruskal, spearmanr

    try:
        first, second = _as_numbers(cohort.column(exposure)), cohort.column(baseline)
    except InputError:
        return None  # reported where the column is used
    known = first.notna() & second.notna()
    first, second = first[known], second[known]
    if known.sum() < FEWEST or min(first.nunique(), second.nunique()) < 2:
        return None
    if second.dtype != object and second.nunique() > 2:
        return float(spearmanr(first, second).pvalue)
    groups = [group.to_numpy() for _, group in first.groupby(second.to_numpy())]
    return float(kruskal(*groups).pvalue) if len(groups) <= len(first) / 2 else None


def _as_numbers(column: pd.Series) -> pd.Series:
    """Return numbers as they are, and text as the position of its level."""
    import pandas as pd

    if pd.api.types.is_numeric_dtype(column.dtype):
        return column.astype(float)
    codes = pd.Series(pd.factorize(column, sort=True)[0], index=column.index, dtype=float)
    return codes.where(codes >= 0, np.nan)
