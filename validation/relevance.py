"""How an effect stands to what its contract expects: direction, relevance, precision."""

from __future__ import annotations

import math
from statistics import NormalDist

from validation.contract import Contract
from validation.hypothesis import Direction
from validation.results import Effect


def expected_direction(contract: Contract, effect: Effect) -> bool:
    """True when an effect lies on the side that the hypothesis names."""
    distance = effect.signed(effect.value)
    return distance > 0 if contract.direction is Direction.HIGHER_RISK else distance < 0


def _relevant(contract: Contract, effect: Effect) -> float:
    """The smallest relevant effect as a signed distance."""
    size = (
        contract.rules.relevant_difference
        if effect.scale == "difference (SD)"
        else math.log(contract.rules.relevant_ratio)
    )
    return size if contract.direction is Direction.HIGHER_RISK else -size


def excludes_relevant(contract: Contract, effect: Effect) -> bool:
    """True when the interval leaves out the smallest relevant effect on the side named."""
    relevant = _relevant(contract, effect)
    if relevant > 0:
        return effect.signed(effect.upper) < relevant
    return effect.signed(effect.lower) > relevant


def is_precise(contract: Contract, effect: Effect) -> bool:
    """Whether the estimate is precise enough to find the relevant effect with 80% power.

    Its standard error (a quarter of the interval's width, nearly) may be at most the relevant
    effect over the sum of the normal quantiles of the level and of the power.
    """
    low, high = effect.signed(effect.lower), effect.signed(effect.upper)
    if not (math.isfinite(low) and math.isfinite(high)):
        return False
    normal = NormalDist()
    se = (high - low) / (2 * normal.inv_cdf(0.975))
    z = normal.inv_cdf(1 - contract.rules.alpha / 2) + normal.inv_cdf(0.8)
    # The planned number of events counts on the null; estimates near it scatter by a few percent.
    return se <= 1.05 * abs(_relevant(contract, effect)) / z


def relevant_text(contract: Contract, effect: Effect) -> str:
    """The smallest relevant effect in words."""
    value = _relevant(contract, effect)
    if effect.scale == "difference (SD)":
        return f"a difference of {value:.2f} SD"
    return f"a {effect.scale} of {math.exp(value):.2f}"
