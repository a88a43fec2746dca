"""Results of a claim's controls as typed fields, the only input to the verdict's rules.

A registered control always has a result here: either it ran and has its numbers, or it
states why it did not. A control that an analysis leaves out counts as not run;
`validation.verdict.objections` counts that against the claim.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from sage.core.models import Strict


class ControlStatus(StrEnum):
    """Status of a control."""

    RAN = "ran"
    REFUSED = "refused"
    """The data do not support the control."""
    CRASHED = "crashed"
    OFF = "switched off"
    """The contract does not request the control."""


class ControlResult(Strict):
    """Result of a control: the numbers in `NEEDED` if it ran, or else a reason."""

    NEEDED: ClassVar[tuple[str, ...]] = ()

    status: ControlStatus
    reason: str = ""

    @model_validator(mode="after")
    def _has_its_numbers(self) -> Self:
        if self.status is ControlStatus.RAN:
            for name in self.NEEDED:
                value = getattr(self, name)
                if value is None or (isinstance(value, float) and not math.isfinite(value)):
                    raise ValueError(f"a control that ran has no {name}")
        elif not self.reason:
            raise ValueError(f"a control that was {self.status} must give the reason")
        return self

    @property
    def ran(self) -> bool:
        """True if the control ran and has its numbers."""
        return self.status is ControlStatus.RAN


class PermutedOutcome(ControlResult):
    """The claim's statistic when exposures are reassigned at random among the patients."""

    NEEDED: ClassVar[tuple[str, ...]] = ("p", "draws")

    p: float | None = None
    draws: int | None = None
    false_positive_rate: float | None = None
    n: int | None = None


class RandomFeatures(ControlResult):
    """Competitive null: an exposure against comparable features.

    The question is not whether the exposure is associated with the outcome, but whether it is
    more strongly associated than comparable features. If many features are prognostic, few
    pass.
    """

    NEEDED: ClassVar[tuple[str, ...]] = ("percentile", "draws", "kind")

    percentile: float | None = None
    """Share of the draws with a weaker statistic in the claim's direction."""
    p: float | None = None
    draws: int | None = None
    kind: Literal["matched genes", "permuted feature"] | None = None
    n: int | None = None

    def describe(self, key: str) -> str:
        """Describe the comparable features that replaced a variable."""
        if self.kind == "permuted feature":
            return "random permutations of it among the patients"
        if key.startswith("expression:"):
            return "genes most like it in mean and spread"
        return "sets of genes most like its own in mean and spread"


class KnownPositiveResult(ControlResult):
    """An association that must appear if the outcome data are sound, per standard deviation.

    `hr_per_level` is the same slope per level of an ordinal variable.
    """

    NEEDED: ClassVar[tuple[str, ...]] = ("hr", "p", "events")

    hr: float | None = None
    hr_per_level: float | None = None
    lower: float | None = None
    upper: float | None = None
    p: float | None = None
    statistic: float | None = None
    events: int | None = None
    n: int | None = None


class NegativeEndpoint(ControlResult):
    """The same exposure on an endpoint that it should not affect."""

    NEEDED: ClassVar[tuple[str, ...]] = ("endpoint", "p")

    endpoint: str | None = None
    p: float | None = None
    n: int | None = None
    events: int | None = None


class Unadjusted(Strict):
    """The claim's adjusted estimate with variables that the contract leaves out, on its scale.

    If some patients lack them, it is the registered estimate, shifted and widened by the same
    amount as in the patients who have them. Without an estimate, `reason` gives the reason.
    """

    labels: tuple[str, ...]
    value: float | None = None
    lower: float | None = None
    upper: float | None = None
    p: float | None = None
    n: int | None = None
    reason: str = ""
    inseparable: bool = False
    """True if the data allow no comparison of the exposure adjusted for the variable."""
    moved: bool = Field(default=True, exclude_if=lambda given: given)
    """False if neither the estimate nor its interval's width changes by a tenth."""


class Specifications(ControlResult):
    """The claim's estimates under every registered choice."""

    NEEDED: ClassVar[tuple[str, ...]] = ("expected_sign", "own", "n", "failed")

    expected_sign: float | None = None
    """Share of the estimated specifications whose effect has the expected sign."""
    own: bool | None = None
    """True if the claim's own choices are among the estimated specifications."""
    n: int | None = None
    failed: int | None = None
    significant: float | None = None
    median: float | None = None
    lowest: float | None = None
    highest: float | None = None
    left_out: int | None = None
    """Number of estimates with a single site left out; None if no site is declared."""
    left_out_lowest: float | None = None
    left_out_highest: float | None = None
    left_out_sign: float | None = None
    """Share of leave-one-site-out estimates whose effect has the expected sign."""
    unadjusted: tuple[Unadjusted, ...] = ()
    """Each related variable that is not in the model, most related first, then all together."""

    @property
    def stable(self) -> float | None:
        """Smaller share of expected signs: among all specifications or those without a site."""
        shares = [s for s in (self.expected_sign, self.left_out_sign) if s is not None]
        return min(shares, default=None)


class Missingness(ControlResult):
    """Comparison of patients with and without the exposure."""

    NEEDED: ClassVar[tuple[str, ...]] = ("missing",)

    missing: int | None = None
    """Number of patients with the outcome but without the exposure."""
    p: float | None = None
    """P-value for the comparison; None if too few patients lack or have the exposure."""
    hr: float | None = None
    """Hazard ratio of patients without the exposure relative to those with it, if estimable."""
    lower: float | None = None
    upper: float | None = None
    n: int | None = None
    unseen: int | None = None
    """Number of patients with the exposure but without the outcome."""
    unseen_p: float | None = None
    """P-value for no relation of the exposure to a missing outcome; None if too few lack it."""


class TimingResult(ControlResult):
    """Result of testing whether the claim's variables reveal the outcome or follow-up length."""

    NEEDED: ClassVar[tuple[str, ...]] = ("n",)

    leaks: tuple[str, ...] = ()
    """For each exposure, the information it reveals that was not known at baseline."""
    beside: tuple[str, ...] = ()
    """The same for covariates, strata and filters, which select and compare the patients."""
    n: int | None = None


class Controls(Strict):
    """The results of all controls in an analysis; None if the analysis has no result for it."""

    permuted: PermutedOutcome | None = None
    random: tuple[RandomFeatures, ...] = ()
    """One result for each exposure, in the contract's order."""
    known_positive: KnownPositiveResult | None = None
    negative: NegativeEndpoint | None = None
    specification: Specifications | None = None
    missingness: Missingness | None = None
    timing: TimingResult | None = None
