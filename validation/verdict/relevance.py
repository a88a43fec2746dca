"""Comparison of an effect with its contract's expectation of direction and relevance."""

from __future__ import annotations

import math
import re

from validation.contracts.contract import Contract
from validation.core.hypothesis import Direction
from validation.results.results import Effect, amount_text


def expected_direction(contract: Contract, effect: Effect) -> bool:
    """Check whether an effect is on the side that the hypothesis names."""
    distance = effect.distance_from_null(effect.value)
    return distance > 0 if contract.direction is Direction.HIGHER_RISK else distance < 0


def smallest_relevant(contract: Contract, effect: Effect) -> float:
    """Return the smallest relevant effect as a signed distance from no effect (log for ratios)."""
    size = (
        contract.relevant_difference if effect.is_difference else math.log(contract.relevant_ratio)
    )
    return size if contract.direction is Direction.HIGHER_RISK else -size


def allows_relevant(contract: Contract, effect: Effect) -> bool:
    """Check whether the interval reaches the smallest relevant effect on the side named.

    An interval whose limits cannot be compared (NaN) does not reach it.
    """
    relevant = smallest_relevant(contract, effect)
    if relevant > 0:
        return effect.distance_from_null(effect.upper) >= relevant
    return effect.distance_from_null(effect.lower) <= relevant


def shows_relevant(contract: Contract, effect: Effect) -> bool:
    """Check whether the whole interval is at least as large as the smallest relevant effect."""
    relevant = smallest_relevant(contract, effect)
    if relevant > 0:
        return effect.distance_from_null(effect.lower) >= relevant
    return effect.distance_from_null(effect.upper) <= relevant


def unit_text(contract: Contract) -> str:
    """Return the unit of an estimate (" per doubling", " for the interaction"); "" for groups."""
    if contract.comparison.is_product:
        return " for the interaction"
    found = re.search(r"\((per [^()]+)\)$", contract.exposed)
    return f" {found[1]}" if found else ""


def relevant_text(contract: Contract, effect: Effect) -> str:
    """Describe the smallest relevant effect."""
    value = smallest_relevant(contract, effect)
    if effect.is_difference:
        return f"a {amount_text(effect.scale, value)}"
    if contract.comparison.is_product:
        return f"a ratio of {math.exp(value):.2f}"
    article = "an" if effect.scale[0] in "aeiou" else "a"
    return f"{article} {effect.scale} of {math.exp(value):.2f}"
