"""Estimates of a claim under many choices, sorted into a curve.

Simonsohn, Simmons and Nelson 2020 (Nature Human Behaviour). A specification fixes a cut-point, the
covariates, the strata, the follow-up and the exclusions; none of these choices may depend on the
outcome.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np


@dataclass(frozen=True)
class Specification:
    """Estimate for a set of choices. `reason` is set if nothing could be estimated.

    `same` lists further choices that lead to the same fit.
    """

    choices: dict[str, str]
    value: float
    lower: float
    upper: float
    p: float
    n: int
    events: int
    reason: str = ""
    same: tuple[dict[str, str], ...] = ()

    @property
    def ok(self) -> bool:
        """True if there is an estimate."""
        return not self.reason


@dataclass(frozen=True)
class SpecificationCurve:
    """All specifications sorted by estimate, with those that lack an estimate last.

    `null` is the estimate for no effect: 1 for ratios, 0 for differences. `beside` holds the
    fits of the claim's own choices with each site left out, or with variables that the
    contract leaves out; they are not included in any share.
    """

    specifications: tuple[Specification, ...]
    alpha: float
    null: float = 1.0
    beside: tuple[Specification, ...] = ()

    @classmethod
    def of(
        cls, found: Iterable[Specification], alpha: float, null: float = 1.0
    ) -> SpecificationCurve:
        """Sort specifications, merging choices that lead to the same numbers.

        Numbers are the same if they agree to nine digits, as the last digits differ between
        processors.
        """
        fits: dict[tuple[str, ...], Specification] = {}
        failed = []
        for item in found:
            estimates = (item.value, item.lower, item.upper, item.p, item.n, item.events)
            numbers = tuple(f"{number:.9g}" for number in estimates)
            if not item.ok:
                failed.append(item)
            elif numbers in fits:
                same = (*fits[numbers].same, item.choices)
                fits[numbers] = replace(fits[numbers], same=same)
            else:
                fits[numbers] = item
        return cls((*sorted(fits.values(), key=lambda fit: fit.value), *failed), alpha, null)

    @property
    def fitted(self) -> tuple[Specification, ...]:
        """The specifications with an estimate."""
        return tuple(item for item in self.specifications if item.ok)

    @property
    def failed(self) -> int:
        """Number of specifications without an estimate."""
        return len(self.specifications) - len(self.fitted)

    @property
    def median(self) -> float:
        """The median estimate, computed on the log scale for ratios."""
        values = [item.value for item in self.fitted]
        if not values:
            return math.nan
        return float(np.exp(np.median(np.log(values))) if self.null == 1.0 else np.median(values))

    def share(self, *, higher: bool, below: float = math.inf) -> float:
        """Return the share of estimates above the null (or below it) with p less than `below`."""
        agree = [(item.value > self.null) == higher and item.p < below for item in self.fitted]
        return sum(agree) / len(agree) if agree else math.nan

    def table(self) -> list[dict[str, str | float | int]]:
        """Return a row of text per specification, to be written to a file."""
        return [
            {**s.choices, "estimate": s.value, "lower": s.lower, "upper": s.upper, "p": s.p,
             "n": s.n, "events": s.events, "reason": s.reason, "same fit": _further_choices(s)}
            for s in (*self.specifications, *self.beside)
        ]  # fmt: skip


def _further_choices(kept: Specification) -> str:
    """List a fit's further choices by their distinguishing settings: "follow-up 60 months; …"."""
    return "; ".join(
        ", ".join(f"{name} {value}" for name, value in other.items() if value != kept.choices[name])
        for other in kept.same
    )
