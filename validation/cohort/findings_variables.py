"""Detection of problems in a cohort's variables: empty, constant, implausible, identifiers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from sage.core.errors import InputError
from sage.core.printable import LONGEST_NAME, ForeignText, count_noun
from validation.cohort.codes import report
from validation.cohort.describe import variable_of
from validation.cohort.findings_values import of_values
from validation.cohort.tables import codes
from validation.core.types import Finding

if TYPE_CHECKING:
    import pandas as pd

    from validation.cohort.cohort import Cohort

MOST_MISSING = 0.5
FEWEST_VALUES = 20
FEWEST_OTHERS = 3
MOSTLY_ZERO = 0.3
FAR = 100.0
"""Distance, in widths of the middle 90%, beyond which a value is considered an error."""
SENTINELS = (-1.0, -9.0, 9.0, -99.0, -999.0, -9999.0, 99.0, 999.0, 9999.0, 99999.0)
APART = 1.5
"""Minimum distance, in widths of the middle 90%, from a missing-value code to other values."""


def of_expression(cohort: Cohort) -> Iterator[Finding]:
    """Report genes lost or merged in the matrix, and patients without expression."""
    try:
        matrix = cohort.expression
    except InputError as error:
        yield report("expression", "expression", str(error))
        return
    if matrix is None:
        return
    texts = {
        "sample types": ("normal_samples", "samples that are not primary tumors"),
        "aliquots": ("several_aliquots", "patients with several samples"),
        "genes": ("duplicate_symbols", "rows without a symbol or with a repeated symbol"),
    }
    for step in matrix.reports:
        code, what = texts[step.step.split(": ")[1]]
        text = f"{what}: {step.before} to {step.after}; {step.reason}"
        yield report(code, "expression", text)
    for note in matrix.notes:
        yield report("versioned_ids", "expression", note)
    missing = sum(patient not in set(matrix.patients) for patient in cohort.patients)
    if missing > 0.5 * len(cohort.patients):
        text = f"{missing} of {len(cohort.patients)} patients have no expression"
        remedy = "check sample identifiers, sample_split and sample_types"
        yield report("weak_join", "expression", text, remedy=remedy)


def of_variables(cohort: Cohort) -> Iterator[Finding]:
    """Find variables that are empty, constant, mostly missing, or have outliers."""
    yield from _report_cleaned("cohort.toml", cohort.spec.cleaned)
    for key in cohort.keys():  # noqa: SIM118 (a method, not a mapping)
        where = f"variables.{key}"
        try:
            values = cohort.column(key)
        except InputError as error:
            yield report("variable", where, str(error))
            continue
        if (spec := cohort.variables.get(key)) is not None and not spec.values:
            raw = codes(cohort.tables[spec.table].column(spec.column, where)).unique()
            changed = sum(ForeignText(level, LONGEST_NAME) != level for level in raw)
            yield from _report_cleaned(where, changed)
        known = values.dropna()
        if known.empty:
            yield report("empty", where, "no patient has a value")
            continue
        share = 1 - len(known) / len(values)
        if known.nunique() == 1:
            yield report("constant", where, f"the same value for all: {known.iloc[0]}")
        elif share > MOST_MISSING:
            yield report("mostly_missing", where, f"missing in {share:.0%}")
        yield from _levels(where, known)
        yield from of_values(where, variable_of(cohort, key), known) or _far_values(where, known)


def _report_cleaned(where: str, changed: int) -> list[Finding]:
    """Report texts that are displayed with some characters removed."""
    if not changed:
        return []
    text = f"{count_noun(changed, 'text')} put on one line, cut, or cleaned of invisible characters"
    return [report("cleaned_text", where, text)]


def _levels(where: str, known: pd.Series) -> list[Finding]:
    """Find text with too many levels for group comparisons: identifiers, dates or free text."""
    import pandas as pd

    if pd.api.types.is_numeric_dtype(known) or len(known) < FEWEST_VALUES:
        return []
    levels = known.nunique()
    if levels <= 0.5 * len(known):
        return []
    text = f"{levels} levels in {len(known)} patients: no group can be compared within them"
    return [report("many_levels", where, text)]


def _far_values(where: str, known: pd.Series) -> list[Finding]:
    """Find common missing-value codes that were read as numbers, and values far out of range."""
    import pandas as pd

    if not pd.api.types.is_numeric_dtype(known):
        return []
    values = known.to_numpy(dtype=float)
    found: list[Finding] = []
    others = values[~np.isin(values, SENTINELS)]
    if len(np.unique(others)) >= FEWEST_OTHERS:
        span = float(np.subtract(*np.quantile(others, [0.95, 0.05])))
        for code in SENTINELS:
            count = int((values == code).sum())
            apart = max(others.min() - code, code - others.max())
            # If no other value is negative, a negative code need not be far from the others.
            unlike = code < 0 <= others.min()
            if count and (unlike or apart > APART * span > 0):
                how = "the only value below zero" if unlike else "far from every other value"
                text = f"{count} patients have {code:g}, {how}"
                remedy = f'if it means missing, add "{code:g}" to the table\'s `missing`'
                found.append(report("missing_code", where, text, remedy=remedy))
    if found:
        return found
    # If zeros are frequent (no aggregate, no metastasis), the other values set the scale.
    usual = values[values != 0] if (values == 0).mean() > MOSTLY_ZERO else values
    if len(np.unique(usual)) < FEWEST_VALUES:
        return []
    low, high = np.quantile(usual, [0.05, 0.95])
    far = usual[(usual < low - FAR * (high - low)) | (usual > high + FAR * (high - low))]
    if not len(far):
        return []
    worst = float(far[np.argmax(np.abs(far))])
    text = (
        f"{len(far)} implausible values (up to {worst:.3g}; 90% are between {low:.3g} and "
        f"{high:.3g})"
    )
    return [report("outlier", where, text)]
