"""Selection of the population and assignment of exposure groups, without outcome values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from sage.core.errors import InputError
from sage.core.hashes import hash_text
from sage.core.models import Strict
from validation.contracts.contract import Contract, VariableUse
from validation.core.hypothesis import Comparison, CutRule, Filter
from validation.core.levels import is_positive

if TYPE_CHECKING:
    import pandas as pd

    from validation.statistics.base import BoolArray, FloatArray

CONTINUOUS = (CutRule.CONTINUOUS, CutRule.SPLINE, CutRule.OPTIMAL)
UNSCALED = (Comparison.PER_DOUBLING, Comparison.TREND)
"""Comparisons whose effect is per unit rather than per standard deviation."""


class Cut(Strict):
    """The cut-points of an exposure, in its own unit.

    Values at or below `lower` are low, values above `upper` are high. The two differ only for
    tertiles and quartiles. `points` separate the ordered groups of a trend.
    """

    variable: str
    rule: CutRule
    lower: float | None = None
    upper: float | None = None
    mean: float | None = None
    sd: float | None = None
    points: tuple[float, ...] = Field(default=(), exclude_if=lambda given: not given)


def apply_filters(table: pd.DataFrame, filters: tuple[Filter, ...]) -> pd.Series:
    """Return a mask of the patients who pass every filter; missing values never pass."""
    import pandas as pd

    keep = pd.Series(True, index=table.index)
    for condition in filters:
        if condition.variable not in table.columns:
            raise InputError(
                f'filter uses "{condition.variable}", which is not in the analysis table'
            )
        keep &= _matches(table[condition.variable], condition)
    return keep


def _matches(column: pd.Series, condition: Filter) -> pd.Series:
    import pandas as pd

    known = column.notna()
    if condition.op == "present":
        return known
    if condition.op in ("eq", "ne", "in"):
        values = condition.value if isinstance(condition.value, tuple) else (condition.value,)
        texts = {level_text(value).casefold() for value in values}
        same = column.map(level_text).str.casefold().isin(texts)
        return known & (~same if condition.op == "ne" else same)
    if not isinstance(condition.value, int | float):
        raise InputError(
            f"filter {condition.variable} {condition.op} {condition.value!r}: a number is required"
        )
    numbers = pd.to_numeric(column, errors="coerce")
    if (numbers.isna() & known).any():
        raise InputError(f"filter {condition.variable} {condition.op}: the variable is not numeric")
    compare = {"lt": numbers.lt, "le": numbers.le, "gt": numbers.gt, "ge": numbers.ge}
    return known & compare[condition.op](condition.value)


def level_text(value: Any) -> str:
    """Convert a level to text; 1.0 and 1 are the same."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def rescale(values: FloatArray, use: VariableUse) -> FloatArray:
    """Convert values to the scale required by the contract: base-2 logarithms or percentiles.

    Raises `InputError` if a value has no logarithm.
    """
    from validation.statistics.base import ranks

    if use.rescale is None:
        return values
    known = ~np.isnan(values)
    found = np.full(len(values), np.nan)
    if use.rescale == "rank":
        found[known] = (ranks(values[known]) - 0.5) / max(int(known.sum()), 1)
        return found
    least = 0.0 if use.rescale == "log2" else -1.0
    none = int((values[known] <= least).sum())
    if none:
        remedy = 'use transform "log2_plus_1", "rank"' if least == 0.0 else 'use transform "rank"'
        raise InputError(
            f"exposure {use.label} ({use.key}): {none} of {int(known.sum())} patients have "
            f"values of {least:g} or below, which have no logarithm; {remedy}, or use "
            "per_sd"
        )
    found[known] = np.log2(values[known] - least)
    return found


def two_levels(levels: Iterable[str]) -> tuple[str, str] | None:
    """Return the levels of a binary variable, first the level coded 0; None if undetermined."""
    names = sorted(levels)
    if len(names) != 2:
        return None
    try:
        low, high = sorted(names, key=float)
    except ValueError:
        positive = [name for name in names if is_positive(name)]
        absent, present = names
        if absent[:-1].casefold() == present[:-1].casefold() and absent[-1:] + present[-1:] == "01":
            return absent, present  # R0 and R1, pN0 and pN1
        if len(positive) != 1:
            return None
        low, high = sorted(names, key=positive.__contains__)
    return low, high


def exposure_values(table: pd.DataFrame, use: VariableUse) -> FloatArray:
    """Convert an exposure to numbers on the contract's scale.

    Binary text becomes 0 and 1, with 1 for yes, positive, mutated and the like.
    """
    return rescale(_numbers(table, use), use)


def _numbers(table: pd.DataFrame, use: VariableUse) -> FloatArray:
    import pandas as pd

    column = table[use.key]
    if pd.api.types.is_numeric_dtype(column):
        return np.asarray(column.to_numpy(dtype=float))
    numbers = pd.to_numeric(column, errors="coerce")
    if not (numbers.isna() & column.notna()).any():
        return np.asarray(numbers.to_numpy(dtype=float))
    levels = column.dropna().map(str).unique()
    pair = two_levels(levels)
    if pair is None:
        raise InputError(
            f'exposure "{use.key}" has {len(levels)} values instead of yes and no; declare in '
            "the cohort's `values` which value is 1 and which is 0"
        )
    return np.asarray(
        column.map(str, na_action="ignore").map({pair[0]: 0.0, pair[1]: 1.0}), dtype=float
    )


def find_cut(values: FloatArray, use: VariableUse, rule: CutRule | None = None) -> Cut:
    """Find an exposure's cut-points by its rule, from its known values.

    Raises `InputError` if the exposure is constant or always missing, or if a group would be
    empty.
    """
    rule = rule or use.cut or CutRule.MEDIAN
    known = values[~np.isnan(values)]
    if known.size == 0:
        raise InputError(f"exposure {use.label} ({use.key}) is missing for all patients")
    if np.all(known == known[0]):
        raise InputError(
            f"exposure {use.label} ({use.key}) is constant ({known[0]:g}) in the population, "
            "so it cannot be related to any outcome"
        )
    mean, sd = float(known.mean()), float(known.std(ddof=1))
    if rule in CONTINUOUS:
        return Cut(variable=use.key, rule=rule, mean=mean, sd=sd)
    if ((known == 0.0) | (known == 1.0)).all():
        lower = upper = 0.5
    elif rule is CutRule.MEDIAN:
        lower = upper = float(np.median(known))
        if upper == known.max():
            # The median is the highest value, so the low side is everything below it.
            lower = upper = float(known[known < known.max()].max())
    elif rule is CutRule.TERTILE:
        lower, upper = (float(item) for item in np.quantile(known, [1 / 3, 2 / 3]))
        if upper == known.max():
            upper = float(known[known < known.max()].max())
        lower = min(lower, upper)
    elif rule in (CutRule.QUARTILE, CutRule.LEVELS):
        lower = upper = float(np.median(known))
    else:
        assert use.threshold is not None
        lower = upper = use.threshold
    if not (known <= lower).any() or not (known > upper).any():
        raise InputError(
            f"exposure {use.label} ({use.key}): the {rule.value} cut ({upper:g}) leaves one "
            f"group empty; values range from {known.min():g} to {known.max():g}"
        )
    return Cut(variable=use.key, rule=rule, lower=lower, upper=upper, mean=mean, sd=sd)


SHARES = {CutRule.TERTILE: (1 / 3, 2 / 3), CutRule.QUARTILE: (0.25, 0.5, 0.75)}
MOST_GROUPS = 8
"""Maximum number of ordinal values that can each form a trend group."""


def ordered_cut(values: FloatArray, use: VariableUse) -> Cut:
    """Find the cut-points between the ordered groups of a trend, from known values.

    Raises `InputError` if there would be fewer than three groups or, with cut "levels", more than
    `MOST_GROUPS`.
    """
    rule = use.cut or CutRule.TERTILE
    known = values[~np.isnan(values)]
    found = find_cut(values, use, CutRule.CONTINUOUS)
    levels = np.unique(known)
    if rule is CutRule.LEVELS:
        if len(levels) > MOST_GROUPS:
            raise InputError(
                f"exposure {use.label} ({use.key}) has {len(levels)} values; a trend over "
                f'levels supports at most {MOST_GROUPS}. Use cut "tertile" or "quartile"'
            )
        points = tuple(float(level) for level in levels[:-1])
    else:
        points = tuple(float(item) for item in np.quantile(known, SHARES[rule]))
    if len(set(points)) < len(points) or points[-1] >= levels[-1] or len(points) < 2:
        raise InputError(
            f'exposure {use.label} ({use.key}): cut "{rule}" produces fewer groups than its name '
            f"implies, because too many patients share a value ({len(levels)} distinct "
            "values); a trend requires three or more groups"
        )
    return found.model_copy(update={"rule": rule, "points": points})


def cut_for(
    comparison: Comparison, values: FloatArray, use: VariableUse, rule: CutRule | None = None
) -> Cut:
    """Find the cut-points needed for a comparison; raises as `find_cut` and `ordered_cut` do.

    Parameters
    ----------
    values : (n,) values for patients in the population; NaN if missing
    """
    rule = rule or use.cut
    if comparison is Comparison.TREND and rule not in CONTINUOUS:
        return ordered_cut(values, use.model_copy(update={"cut": rule}))
    return find_cut(values, use, rule)


@dataclass
class Exposed:
    """Exposure of each patient: `x` is 1 if exposed, 0 if reference and NaN if neither, or a score.

    `parts` are the single exposures in the same coding. With `product`, `x` is their product,
    and models include them as main effects. With `second`, `x` is the second exposure (a
    mediator, or the added exposure), and models include the first.
    """

    x: FloatArray
    parts: tuple[FloatArray, ...]
    grouped: bool
    product: bool = False
    second: bool = False

    @property
    def model_parts(self) -> tuple[FloatArray, ...]:
        """Parts included in every model in addition to `x`."""
        return self.parts if self.product else self.parts[:1] if self.second else ()

    def select(self, keep: BoolArray) -> Exposed:
        """Restrict the exposure to some of the patients, in the same coding."""
        parts = tuple(part[keep] for part in self.parts)
        return replace(self, x=self.x[keep], parts=parts)


def assign_sides(values: FloatArray, cut: Cut, level: str) -> tuple[FloatArray, FloatArray]:
    """Return indicators for the exposed and the opposite group (1, 0, NaN if unknown)."""
    unknown = np.isnan(values)
    assert cut.lower is not None and cut.upper is not None
    high = np.where(unknown, np.nan, (values > cut.upper).astype(float))
    low = np.where(unknown, np.nan, (values <= cut.lower).astype(float))
    return (high, low) if level == "high" else (low, high)


def expose(
    comparison: Comparison,
    uses: tuple[VariableUse, ...],
    values: tuple[FloatArray, ...],
    cuts: tuple[Cut, ...],
) -> Exposed:
    """Code the exposures as groups or scores, given their values and cuts.

    Parameters
    ----------
    values : (n,) values of each exposure; NaN if missing
    cuts : cuts of each exposure, as found by `cut_for`

    Returns
    -------
    Exposure whose `x` (n,) is 0 or 1, the number of an ordered group, or a score in standard
    deviations or doublings; NaN if undefined.
    """
    if comparison is Comparison.TREND and cuts[0].points:
        step = _step(values[0], cuts[0], uses[0].level or "high")
        return Exposed(x=step, parts=(step,), grouped=False)
    if comparison is Comparison.PER_DOUBLING:
        cuts = tuple(cut.model_copy(update={"rule": CutRule.CONTINUOUS, "sd": 1.0}) for cut in cuts)
    continuous = [cut.rule in CONTINUOUS for cut in cuts]
    coded = tuple(
        _z(item, cut, use.level or "high")
        if flat
        else assign_sides(item, cut, use.level or "high")[0]
        for item, cut, use, flat in zip(values, cuts, uses, continuous, strict=True)
    )
    if comparison.is_product:
        first, second = coded
        return Exposed(x=first * second, parts=coded, grouped=False, product=True)
    if comparison in (Comparison.MEDIATION, Comparison.ADDED):
        return Exposed(x=coded[1], parts=coded, grouped=False, second=True)
    if comparison is Comparison.COMBINED:
        return Exposed(x=_mean_of(coded, uses), parts=coded, grouped=False)
    if comparison is Comparison.CALIBRATED:
        return Exposed(x=values[0], parts=values, grouped=False)
    if comparison.is_slope or continuous[0]:
        cut, use = cuts[0], uses[0]
        return Exposed(x=_z(values[0], cut, use.level or "high"), parts=coded, grouped=False)
    together = np.prod(np.vstack(coded), axis=0)
    unknown = np.isnan(np.vstack(coded)).any(axis=0)
    x = np.where(unknown, np.nan, together)
    if comparison is Comparison.EXTREMES:
        opposite = np.vstack(
            [
                assign_sides(item, cut, use.level or "high")[1]
                for item, cut, use in zip(values, cuts, uses, strict=True)
            ]
        )
        reference = np.prod(opposite, axis=0) == 1
        x = np.where((x == 1) | reference, x, np.nan)
    return Exposed(x=x, parts=coded, grouped=True)


def _z(values: FloatArray, cut: Cut, level: str) -> FloatArray:
    assert cut.mean is not None and cut.sd is not None
    score = (values - cut.mean) / cut.sd
    return score if level == "high" else -score


def _mean_of(parts: tuple[FloatArray, ...], uses: tuple[VariableUse, ...]) -> FloatArray:
    """Average the standardized exposures, and standardize the average."""
    total = np.zeros(len(parts[0]))
    for part, use in zip(parts, uses, strict=True):
        spread = float(np.nanstd(part, ddof=1)) if len(part) > 1 else 0.0
        if not spread > 0:
            raise InputError(f"exposure {use.label} ({use.key}) is the same for all patients")
        total = total + (part - np.nanmean(part)) / spread
    return np.asarray((total - np.nanmean(total)) / np.nanstd(total, ddof=1), dtype=float)


def _step(values: FloatArray, cut: Cut, level: str) -> FloatArray:
    """Return the ordered group of each value, counted from 0 at the unexposed end."""
    step = (values[:, None] > np.asarray(cut.points)).sum(axis=1).astype(float)
    step = step if level == "high" else len(cut.points) - step
    return np.where(np.isnan(values), np.nan, step)


def outcome_mask(table: pd.DataFrame, endpoint: str) -> pd.Series:
    """Return a mask of the patients with a known outcome, without reading its value."""
    columns = [item for item in (f"{endpoint}.time", f"{endpoint}.value") if item in table.columns]
    if not columns:
        raise InputError(f'the analysis table has no outcome "{endpoint}"')
    return table[columns[0]].notna()


def population_mask(table: pd.DataFrame, contract: Contract, *, outcome: bool = True) -> pd.Series:
    """Return a mask of patients who pass the filters, with known exposures and primary outcome.

    Without `outcome`, patients whose primary outcome is unknown are included.
    """
    keep = apply_filters(table, contract.filters)
    for use in contract.exposures:
        keep &= table[use.key].notna()
    return keep & outcome_mask(table, contract.primary_test.endpoint) if outcome else keep


def find_cuts(table: pd.DataFrame, contract: Contract) -> tuple[Cut, ...]:
    """Find the cut-points of every exposure in the analyzed population."""
    rows = table[population_mask(table, contract)]
    if rows.empty:
        raise InputError(f"no patients left to analyze: {describe_losses(table, contract)}")
    compared = contract.comparison
    return tuple(cut_for(compared, exposure_values(rows, use), use) for use in contract.exposures)


def describe_losses(table: pd.DataFrame, contract: Contract) -> str:
    """Describe the number of patients remaining after each condition."""
    parts = [f"{len(table)} patients"]
    keep = apply_filters(table, ())
    for condition in contract.filters:
        keep &= apply_filters(table, (condition,))
        parts.append(
            f"{int(keep.sum())} with {condition.variable} {condition.op} {condition.value}"
        )
    for use in contract.exposures:
        keep &= table[use.key].notna()
        parts.append(f"{int(keep.sum())} with {use.label}")
    keep &= outcome_mask(table, contract.primary_test.endpoint)
    parts.append(f"{int(keep.sum())} with {contract.primary_test.endpoint}")
    return ", ".join(parts)


def confirmation_mask(table: pd.DataFrame, contract: Contract) -> list[bool]:
    """Return a mask of the rows in the confirmation part; a cluster is never split."""
    labels = table.index if contract.cluster is None else table[contract.cluster]
    return [in_confirmation(str(label), contract) for label in labels]


def in_confirmation(patient: str, contract: Contract) -> bool:
    """Check whether a pseudonym is in the confirmation part, by the contract's seed and share."""
    text = f"{contract.seed}:{patient}"
    share = int(hash_text(text, digits=12), 16) / 16**12
    return share < contract.split.confirmation
