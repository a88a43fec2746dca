"""Comparison of an effect with its contract's expectation of direction and relevance.

For a contract whose direction is still `EITHER`, both directions count as expected.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from validation.contracts.contract import DIFFERENCES, Contract
from validation.core.hypothesis import Direction, describe_outcome
from validation.results.results import Computed, Effect, TestOutcome, amount_text

SIGNS = {Direction.HIGHER_RISK: (1,), Direction.LOWER_RISK: (-1,), Direction.EITHER: (1, -1)}
"""Signs of the effects expected for a direction."""
NEAR = 0.4
"""Share of the smallest relevant effect above which an estimate is not close to no effect.

If an interval only just excludes both the smallest relevant effect and no effect, its
estimate is at one half. Below one half, an estimate may be refuted; 0.4 leaves a range
between.
"""


def settle_direction(contract: Contract, tests: Iterable[TestOutcome]) -> Contract:
    """Replace `EITHER` by the direction found; the hypothesis keeps the claimed direction.

    It is the direction in the discovery part if another part confirms, or else that of the
    primary test if its p is below alpha. If neither shows a direction, the contract is
    unchanged.
    """
    primary = {test.part: test for test in tests if test.id == contract.primary}
    found = primary.get("discovery" if "confirmation" in primary else "all")
    if contract.direction is not Direction.EITHER or found is None or found.effect is None:
        return contract
    if found.part == "all" and (found.p is None or not found.p < contract.rules.alpha):
        return contract
    return contract.model_copy(update={"direction": side_of(found.effect)})


def side_of(effect: Effect) -> Direction:
    """Return the direction of an effect."""
    higher = effect.distance_from_null(effect.value) > 0
    return Direction.HIGHER_RISK if higher else Direction.LOWER_RISK


def describe_side(contract: Contract, direction: Direction, endpoint: str) -> str:
    """Describe an effect's direction on an endpoint: "with shorter overall survival"."""
    if contract.comparison.is_product:
        more = "higher" if direction is Direction.HIGHER_RISK else "lower"
        return f"with a {more} {contract.scale}"
    found = contract.endpoint(endpoint)
    return f"with {describe_outcome(direction, found.kind, found.label)}"


def direction_found(contract: Contract) -> str:
    """Describe the settled direction of a claim that named none ("with shorter overall survival").

    The text is empty if the claim named a direction or none was found.
    """
    if contract.direction is contract.hypothesis.direction:
        return ""
    return describe_side(contract, contract.direction, contract.primary_test.endpoint)


def expected_direction(contract: Contract, effect: Effect) -> bool:
    """Check whether an effect has a direction that the contract expects."""
    distance = effect.distance_from_null(effect.value)
    return any(sign * distance > 0 for sign in SIGNS[contract.direction])


def smallest_relevant(contract: Contract) -> tuple[float, ...]:
    """Return the smallest relevant effects as signed distances from no effect (log for ratios)."""
    return tuple(sign * contract.relevant_effect for sign in SIGNS[contract.direction])


def allows_relevant(contract: Contract, effect: Effect) -> bool:
    """Check whether the interval reaches the smallest relevant effect in an expected direction.

    An interval whose limits cannot be compared (NaN) does not reach it.
    """
    return _reaches(contract, effect, effect.lower, effect.upper)


def refutes_relevant(contract: Contract, effect: Effect) -> bool:
    """Check whether the interval excludes a relevant effect and the estimate is close to none."""
    distance = effect.distance_from_null(effect.value)
    near = all(distance / relevant < NEAR for relevant in smallest_relevant(contract))
    return near and not allows_relevant(contract, effect)


def shows_relevant(contract: Contract, effect: Effect) -> bool:
    """Check whether the whole interval is at least as large as the smallest relevant effect."""
    return _reaches(contract, effect, effect.upper, effect.lower)


def _reaches(contract: Contract, effect: Effect, below: float, above: float) -> bool:
    """Check whether these limits reach a relevant effect below or above no effect."""
    return any(
        effect.distance_from_null(above) >= relevant
        if relevant > 0
        else effect.distance_from_null(below) <= relevant
        for relevant in smallest_relevant(contract)
    )


def rejects_proportional(contract: Contract, found: Computed) -> bool:
    """Check whether the test of proportional hazards ran and rejects them."""
    test = found.test("schoenfeld")
    return test is not None and test.p is not None and test.p < contract.rules.proportionality_alpha


def reverses(contract: Contract, found: Computed) -> bool:
    """Check whether the hazards cross, so that no single hazard ratio describes the association.

    Proportional hazards are rejected, and the hazard ratios before and after the median event
    time are on opposite sides of 1, each at a distance of at least `NEAR` times the smallest
    relevant effect.
    """
    bound = math.exp(NEAR * contract.relevant_effect)
    given = [found.numbers.get(f"period_hazards.{name}.effect") for name in ("early", "late")]
    ratios = [number.value for number in given if number is not None and number.value is not None]
    return (
        rejects_proportional(contract, found)
        and any(ratio >= bound for ratio in ratios)
        and any(ratio <= 1 / bound for ratio in ratios)
    )


def unit_text(contract: Contract) -> str:
    """Return the unit of an estimate (" per doubling", " for the interaction"); "" for groups."""
    if contract.comparison.is_product:
        return " for the interaction"
    found = re.search(r"\((per [^()]+)\)$", contract.exposed)
    return f" {found[1]}" if found else ""


def relevant_text(contract: Contract) -> str:
    """Describe the smallest relevant effect per unit of the effect."""
    scale = contract.scale
    values = smallest_relevant(contract)
    if scale in DIFFERENCES:
        return f"a {' or '.join(amount_text(scale, value) for value in values)}"
    ratios = " or ".join(f"{math.exp(value):.2f}" for value in values)
    if contract.comparison.is_product:
        return f"a ratio of {ratios}"
    article = "an" if scale[0] in "aeiou" else "a"
    return f"{article} {scale} of {ratios}"
