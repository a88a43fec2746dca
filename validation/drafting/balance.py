"""Relation between an exposure and its cohort's baseline variables, without any outcome.

A variable can confound only if it is associated with the exposure. This association is
tested in the claim's patients (rank correlation, or the Kruskal-Wallis test over levels)
before an outcome is read, so that no choice based on it favors a result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sage.core.errors import InputError
from validation.inputs.population import apply_filters
from validation.inputs.variables import describe_use, find_variable

if TYPE_CHECKING:
    import pandas as pd

    from validation.cohort.cohort import Cohort
    from validation.contracts.contract import Contract, VariableUse
    from validation.core.hypothesis import Hypothesis

UNBALANCED = 0.01
"""Level over all baseline variables; a randomized exposure is falsely doubted 1% of the time."""
RELATED = 0.2
"""Level for each variable. At 0.05, confounders are missed (Mickey and Greenland 1989)."""
SAME = 0.95
"""Rank correlation above which two variables count as one measurement, as in the ledger."""
FEWEST = 20


def relate(hypothesis: Hypothesis, cohort: Cohort) -> dict[str, float]:
    """Return each baseline variable's p-value for no relation to the exposures.

    With several exposures it is the smallest, times their number. Variables are left out if
    they are declared late, are read from an outcome's or an exposure's columns, are
    correlated with one by at least `SAME`, or have levels determined by those of an earlier
    variable; declared risk factors come first.
    """
    import pandas as pd

    dictionary = cohort.dictionary()
    own = [exposure.variable for exposure in hypothesis.exposures]
    parts = frozenset().union(*(cohort.parts_of(key) for key in own))
    named = (hypothesis.endpoint, *hypothesis.secondary_endpoints)
    barred = frozenset().union(
        *(cohort.columns_read(key) for key in own),
        *(
            cohort.outcome_columns(name)
            for name, spec in cohort.spec.endpoints.items()
            if spec.kind in ("survival", "competing") or name in named
        ),
    )
    filters = hypothesis.population.filters
    read = {*own, *(item.variable for item in filters)}
    known = {key: cohort.column(find_variable(dictionary, key).key) for key in sorted(read)}
    keep = apply_filters(pd.DataFrame(known), filters)
    found, seen = {}, list[pd.Series]()
    factors = dictionary.risk_factors
    for variable in sorted(dictionary.variables, key=lambda item: item.key not in factors):
        key = variable.key
        if variable.late or cohort.parts_of(key) & parts or cohort.columns_read(key) & barred:
            continue
        try:
            values = cohort.column(key)[keep]
        except InputError:
            continue  # reported where the column is used
        if variable.kind != "continuous":
            if any(_follows(values, other) for other in seen):
                continue
            seen.append(values)
        ps = [_compare(known[exposure][keep], values, variable.kind) for exposure in own]
        if compared := [p for p in ps if p is not None]:
            found[key] = min(1.0, min(compared) * len(own))
    return found


def weigh_declaration(
    contract: Contract, cohort: Cohort, relation: dict[str, float]
) -> dict[str, Any]:
    """Return the contract fields that follow from the baseline relation of its exposures.

    If the declared reason for not adjusting is contradicted by a variable that differs beyond
    chance, the declaration is dropped and the claim counts as not adjusted. Clinical
    variables that are related to the exposure but neither in the model nor in the claim's
    causal diagram are listed as unadjusted.
    """
    labels = {variable.key: variable.label for variable in cohort.dictionary().variables}
    notes, fields = [], dict[str, Any]()
    declared = contract.hypothesis.unadjusted_because
    if declared and not relation:
        notes.append("balance: no baseline variable to compare with")
    elif declared:
        key, p = min(relation.items(), key=lambda item: item[1])
        p = min(1.0, p * len(relation))
        text = f"balance: over {len(relation)} baseline variables, the smallest corrected p is"
        text += f" {p:.2g} ({labels[key]})"
        if p < UNBALANCED:
            text += f'; "{declared}" is not accepted: adjust for {labels[key]}'
            open_claim = contract.hypothesis.model_copy(update={"unadjusted_because": ""})
            fields["hypothesis"] = open_claim
        notes.append(text)
    uses = _unadjusted(contract, cohort, relation) if contract.associates else ()
    if uses:
        named = ", ".join(f"{use.label} (p {relation[use.key]:.2g})" for use in uses)
        notes.append(f"related to the exposure and not in the model: {named}")
    kept = tuple(use for use in contract.variables if use.role != "unadjusted")
    return fields | {"variables": (*kept, *uses), "notes": (*contract.notes, *notes)}


def _unadjusted(
    contract: Contract, cohort: Cohort, relation: dict[str, float]
) -> tuple[VariableUse, ...]:
    """Return the related clinical variables without a role in the claim, the most related first."""
    from validation.drafting.adjustment import read_arrows

    dictionary = cohort.dictionary()
    part = {use.key for use in contract.variables if use.role in ("covariate", "stratum")}
    part |= {item.variable for item in contract.filters if item.op == "eq"}
    part |= {name for arrow in read_arrows(contract.hypothesis.causes) for name in arrow}
    endpoint = dictionary.endpoint(contract.primary_test.endpoint)
    part |= set(endpoint.contained_in if endpoint is not None else ())
    clinical = {item.key for item in dictionary.variables if item.modality == "clinical"}
    found = [
        key
        for key, p in sorted(relation.items(), key=lambda item: item[1])
        if p < RELATED and key in clinical - part - {contract.cluster}
    ]
    return tuple(describe_use(dictionary, key, "unadjusted") for key in found)


def _follows(values: pd.Series, other: pd.Series) -> bool:
    """Check whether either of two columns of levels determines the other, where both are known."""
    both = (values.notna() & other.notna()).to_numpy()
    sizes = [column[both].nunique() for column in (values, other)]
    pairs = len(set(zip(values[both], other[both], strict=True)))
    return min(sizes) > 1 and pairs == max(sizes) < FEWEST


def _compare(exposure: pd.Series, baseline: pd.Series, kind: str) -> float | None:
    """Return the p-value for no association; None with too few patients or a constant column."""
    from scipy.stats import kruskal, spearmanr

    known = exposure.notna() & baseline.notna()
    first, second = _as_numbers(exposure)[known], _as_numbers(baseline)[known]
    if known.sum() < FEWEST or min(first.nunique(), second.nunique()) < 2:
        return None
    if kind != "categorical":
        found = spearmanr(first, second)
        return None if abs(found.statistic) >= SAME else float(found.pvalue)
    groups = [group.to_numpy() for _, group in first.groupby(second.to_numpy())]
    return float(kruskal(*groups).pvalue) if len(groups) <= len(first) / 2 else None


def _as_numbers(column: pd.Series) -> pd.Series:
    """Return numbers unchanged, and text as the position of its level."""
    import pandas as pd

    if pd.api.types.is_numeric_dtype(column.dtype):
        return column.astype(float)
    codes = pd.Series(pd.factorize(column, sort=True)[0], index=column.index, dtype=float)
    return codes.where(codes >= 0, np.nan)
