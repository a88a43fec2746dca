"""What a contract's primary test can see, from counts alone; no outcome value is read."""

from __future__ import annotations

import math

from validation.contract import Power, Rules
from validation.dictionary import DataDictionary, Endpoint
from validation.errors import InputError
from validation.hypothesis import Comparison, CutRule, Filter, Hypothesis
from validation.registered import uses_groups
from validation.variables import find_variable


def exposed_fraction(hypothesis: Hypothesis) -> tuple[float, float]:
    """Expected share of patients in the exposed and in the reference group.

    Exposures count as independent here; `freeze` replaces this by the observed sizes.
    """
    share = 1.0
    for one in hypothesis.exposures:
        share *= 1 / 3 if one.cut is CutRule.TERTILE else 0.5
    if hypothesis.comparison is Comparison.EXTREMES:
        return share, share
    return share, 1 - share


def planned_power(
    hypothesis: Hypothesis, dictionary: DataDictionary, endpoint: Endpoint, rules: Rules
) -> Power:
    """Power from the dictionary's counts: complete patients, expected events, expected groups."""
    share = 1.0
    for one in hypothesis.population.filters:
        share *= _kept_by(dictionary, one)
    known = [find_variable(dictionary, one.variable).n for one in hypothesis.exposures]
    n = int(min([endpoint.n, *known]) * share)
    exposed, reference = exposed_fraction(hypothesis)
    grouped = uses_groups(hypothesis)
    analyzed = int(n * (exposed + reference)) if grouped else n
    events = None if endpoint.events is None else endpoint.events / max(endpoint.n, 1) * analyzed
    fraction = exposed / (exposed + reference) if grouped else None
    return power_of(
        analyzed, events, fraction, endpoint.kind, rules, hypothesis.comparison, "dictionary"
    )


def power_of(
    n: int,
    events: float | None,
    fraction: float | None,
    kind: str,
    rules: Rules,
    comparison: Comparison,
    basis: str,
) -> Power:
    """Minimum detectable effect and required events for given sizes (no outcome values)."""
    from validation.statistics.power import (
        events_needed,
        minimum_detectable_hr,
        minimum_detectable_or,
    )

    note = ""
    sd = None if fraction is not None else 1.0
    if comparison is Comparison.INTERACTION:
        fraction, sd = None, 0.5
        note = "interaction of two halves: the product term's standard deviation is about one half"
    detectable: float | None = None
    required: int | None = None
    if kind in ("survival", "competing") and events:
        count = max(1, round(events))
        detectable = minimum_detectable_hr(count, fraction, rules.alpha, 0.8, sd=sd)
        required = events_needed(rules.relevant_ratio, fraction, rules.alpha, 0.8, sd=sd)
    elif kind == "binary" and events and 0 < round(events) < n:
        share = fraction if fraction is not None else 0.5
        detectable = minimum_detectable_or(n, round(events), share, rules.alpha, 0.8)
        note = note or ("" if fraction is not None else "as for two halves")
    elif kind == "continuous" and n > 4:
        share = fraction if fraction is not None else 0.5
        detectable = 2.8016 / math.sqrt(n * share * (1 - share))
        note = "difference in standard deviations, normal approximation at 5% two-sided"
    return Power.model_validate(
        {
            "n": n,
            "events": None if events is None else round(events, 1),
            "fraction_exposed": None if fraction is None else round(fraction, 4),
            "minimum_detectable": None if detectable is None else round(detectable, 4),
            "required_events": required,
            "basis": basis,
            "note": note,
        }
    )


def _kept_by(dictionary: DataDictionary, one: Filter) -> float:
    """Share of patients that a filter keeps, as far as the dictionary's levels tell."""
    found = find_variable(dictionary, one.variable)
    total = sum(found.levels.values())
    if not total:
        return 1 - found.missing
    values = one.value if isinstance(one.value, tuple) else (one.value,)
    texts = {_text(value) for value in values}
    matched = sum(count for level, count in found.levels.items() if level in texts)
    if one.op in ("eq", "in"):
        if not matched:
            raise InputError(
                f"the population keeps nobody: {one.variable} {one.op} {one.value!r}; levels are "
                f"{', '.join(f'{level} ({count})' for level, count in found.levels.items())}"
            )
        return matched / total * (1 - found.missing)
    if one.op == "ne":
        return (total - matched) / total * (1 - found.missing)
    return 1 - found.missing


def _text(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
