"""E-values: the strength of unmeasured confounding needed to explain away an association.

VanderWeele and Ding 2017 (Annals of Internal Medicine), with their approximations of the
risk ratio from hazard ratios, odds ratios and standardized differences.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from validation.results.results import Book, Effect, TestOutcome

COMMON = 0.15
"""Share of patients with the outcome above which other ratios no longer approximate risk ratios."""


class EValue(NamedTuple):
    """Risk ratios that a confounder needs with both exposure and outcome (1: none needed).

    `estimate` is the risk ratio that would move the estimate to the null; `limit` is the risk
    ratio that would move the confidence limit nearest the null to the null.
    """

    estimate: float
    limit: float


def e_value(effect: Effect, share: float) -> EValue:
    """Compute the E-values for an effect and for its confidence limit closest to the null.

    Parameters
    ----------
    share : share of patients with the outcome by the end of follow-up, 0 to 1; above `COMMON`,
        the formulas for common outcomes are used
    """
    low, value, high = (
        _risk_ratio(part, effect.scale, common=share > COMMON)
        for part in (effect.lower, effect.value, effect.upper)
    )
    if low <= 1.0 <= high:
        return EValue(_e_value(value), 1.0)
    return EValue(_e_value(value), _e_value(low if value > 1.0 else high))


def _e_value(ratio: float) -> float:
    ratio = 1.0 / ratio if 0.0 < ratio < 1.0 else ratio
    if not math.isfinite(ratio) or ratio <= 0.0:
        return math.inf
    return ratio + math.sqrt(ratio * (ratio - 1.0))


def _risk_ratio(value: float, scale: str, *, common: bool) -> float:
    """Approximate the risk ratio that corresponds to an effect on its own scale."""
    if scale == "difference (SD)":
        return math.exp(0.91 * value) if math.isfinite(value) else (0.0 if value < 0 else math.inf)
    if value <= 0.0 or not math.isfinite(value):
        return max(value, 0.0)
    if not common:
        return value
    if scale == "odds ratio":
        return math.sqrt(value)
    return float((1.0 - 0.5 ** math.sqrt(value)) / (1.0 - 0.5 ** math.sqrt(1.0 / value)))


def put_e_value(outcome: TestOutcome, book: Book) -> None:
    """Record the E-values for a finished test and its confidence limit under `<test>.e_value`."""
    without = ("mediation", "recalibration")
    if outcome.effect is None or not outcome.n or outcome.method in without:
        return
    found = e_value(outcome.effect, (outcome.events or 0) / outcome.n)
    book.add(f"{outcome.id}.e_value", found.estimate, "risk ratio")
    book.add(f"{outcome.id}.e_value_limit", found.limit, "risk ratio")
