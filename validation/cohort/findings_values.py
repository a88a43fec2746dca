"""Detection of impossible values, and of columns that mix units or spellings."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from validation.cohort.codes import report
from validation.core.levels import plain_level
from validation.core.types import Finding

if TYPE_CHECKING:
    import pandas as pd

    from validation.core.dictionary import Variable

RANGES: tuple[tuple[re.Pattern[str], re.Pattern[str] | None, float, float], ...] = (
    (re.compile(r"\bage\b"), re.compile(r"^(years?|yrs?|y)?$"), 0, 120),
    (re.compile(r"\b(bmi|body mass index)\b"), None, 8, 100),
    (re.compile(r"\b(karnofsky|karno|kps)\b"), None, 0, 100),
    (re.compile(r"\b(ecog|zubrod)\b"), None, 0, 5),
    (re.compile(r""), re.compile(r"^(fraction|share|proportion)$"), 0, 1),
    (re.compile(r""), re.compile(r"^(%|percent|per cent)$"), 0, 100),
    (
        re.compile(r""),
        re.compile(r"^(nodes?|counts?|cells?|years?|months|days|mm2?|cm2?|kg|.* per .*|.*/.*)$"),
        0,
        float("inf"),
    ),
)
"""Patterns for name or label and for unit, with the possible range; the first match applies."""
FACTORS = {365.25: "days among years", 30.44: "days among months", 12.0: "months among years",
           7.0: "days among weeks", 10.0: "mm among cm", 1000.0: "thousandths"}  # fmt: skip
SAME_FACTOR = 0.4
"""Tolerance, on the log scale, between a conversion factor and two clusters' median ratio."""
MARGIN = 1.1
"""Factor by which converted values may exceed the range of the other values."""
EMPTY = 2.5
"""Minimum gap between two clusters, as a ratio."""
FEWEST_VALUES = 20
FEWEST_OF_A_UNIT = 3


def of_values(where: str, variable: Variable, known: pd.Series) -> list[Finding]:
    """Check a variable's known values against its kind, its unit and each other."""
    import pandas as pd

    if pd.api.types.is_numeric_dtype(known):
        return _mixture(where, known) or _ranges(where, variable, known)
    return [*_spellings(where, known), *_too_many(where, variable, known)]


def _ranges(where: str, variable: Variable, known: pd.Series) -> list[Finding]:
    name = variable.key.partition(":")[2].replace("_", " ").replace(".", " ")
    words = f"{name} {variable.label}".casefold()
    unit = (variable.unit or "").casefold().strip()
    if variable.modality not in ("clinical", "imaging", "immune"):
        return []
    for word, of_unit, low, high in RANGES:
        if not word.search(words) or (of_unit is not None and not of_unit.match(unit)):
            continue
        bad = known[(known < low) | (known > high)]
        if bad.empty:
            return []
        shown = ", ".join(f"{item:g}" for item in sorted(bad.unique())[:4])
        limits = f"{low:g} to {high:g}" if high != float("inf") else f"at least {low:g}"
        text = f"{len(bad)} values cannot be ({shown}); {variable.label} is {limits}"
        codes = ", ".join(f'"{item:g}"' for item in sorted(bad.unique()))
        remedy = f"correct them, or add missing = [{codes}] to the table"
        return [report("impossible_value", where, text, remedy=remedy)]
    return []


def _mixture(where: str, known: pd.Series) -> list[Finding]:
    """Find two clusters whose medians differ by the conversion factor between two units."""
    values = np.sort(known.to_numpy(dtype=float))
    if values[0] < 0 or len(np.unique(values)) < FEWEST_VALUES:
        return []
    values = values[values > 0]
    logs = np.log(values)
    side = range(FEWEST_OF_A_UNIT, len(values) - FEWEST_OF_A_UNIT + 1)
    at = max(side, key=lambda place: logs[place] - logs[place - 1], default=0)
    if not at or logs[at] - logs[at - 1] < np.log(EMPTY):
        return []
    low, high = values[:at], values[at:]
    few, many = (high, low) if len(high) <= len(low) else (low, high)
    if len(np.unique(few)) == 1:
        return []  # a code, such as 99 for missing
    ratio = float(np.median(high) / np.median(low))
    factor = min(FACTORS, key=lambda factor: abs(np.log(ratio / factor)))
    moved = few / factor if few is high else few * factor
    fits = (moved >= many[0] / MARGIN).all() and (moved <= many[-1] * MARGIN).all()
    if not fits or abs(np.log(ratio / factor)) > SAME_FACTOR:
        return []
    if FACTORS[factor].startswith(("days", "months")) and np.median(high) < 1:
        return []  # shares and densities: nobody writes fractions of a day
    edge = f"from {few[0]:g}" if few is high else f"up to {few[-1]:g}"
    text = (
        f"{len(few)} values ({edge}) are about {factor:g} times off the others, with none between: "
        f"{FACTORS[factor]}"
    )
    return [report("mixed_units", where, text)]


def _spellings(where: str, known: pd.Series) -> list[Finding]:
    """Find levels that differ only in case, spaces, punctuation or abbreviation."""
    levels = sorted({str(item) for item in known})
    if len(levels) > 200:
        return []
    meant = {level: plain_level(level) for level in levels}
    groups: dict[str, list[str]] = {}
    for level in levels:
        groups.setdefault(meant[level], []).append(level)
    twice = {name: same for name, same in groups.items() if len(same) > 1}
    if not twice:
        return []
    shown = "; ".join(" = ".join(repr(name) for name in same) for same in twice.values())
    pairs = ", ".join(f'"{level}" = "{meant[level]}"' for level in levels)
    text = f"spellings of a value count as different values: {shown}"
    return [report("mixed_spelling", where, text, remedy=f"values = {{ {pairs} }}")]


def _too_many(where: str, variable: Variable, known: pd.Series) -> list[Finding]:
    count = known.nunique()
    if variable.kind != "binary" or count <= 2:
        return []
    shown = ", ".join(repr(str(item)) for item in sorted(known.unique())[:5])
    text = f"declared binary, but has {count} values: {shown}"
    return [report("not_binary", where, text)]
