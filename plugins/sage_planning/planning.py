"""Sample size planning for a study whose cohort does not exist yet.

Schoenfeld 1983 (Biometrics) for the number of events in a two-group hazard comparison,
Hsieh and Lavori 2000 (Controlled Clinical Trials) for continuous exposures, Peterson and
George 1993 (Controlled Clinical Trials) for interactions, and Riley et al. 2020 (BMJ) for
prediction models.
"""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field, model_validator

from sage.core.errors import InputError
from sage.core.models import Strict
from validation.statistics.power import events_needed, power_at

Design = Literal["groups", "per_sd", "interaction"]


class Accrual(Strict):
    """Accrual and follow-up of patients, in months, assuming exponential survival.

    `lost` is the fraction of patients lost to follow-up per year.
    """

    median_survival: float = Field(gt=0)
    recruitment: float = Field(ge=0)
    follow_up: float = Field(gt=0)
    lost: float = Field(default=0.0, ge=0, lt=1)

    def event_share(self, hazard_ratio: float = 1.0) -> float:
        """Compute the fraction of patients with an observed event, given uniform recruitment.

        The integral over entry times of the probability that the event comes first, before loss
        and before the end: h / (h + l) * (1 - mean of exp(-(h + l) * time under observation)).
        """
        hazard = math.log(2) / self.median_survival * hazard_ratio
        leaving = -math.log(1 - self.lost) / 12
        rate = hazard + leaving
        if self.recruitment == 0:
            kept = math.exp(-rate * self.follow_up)
        else:
            kept = (
                math.exp(-rate * self.follow_up)
                - math.exp(-rate * (self.follow_up + self.recruitment))
            ) / (rate * self.recruitment)
        return hazard / rate * (1 - kept)


class Question(Strict):
    """Effect that a study should be able to detect.

    `exposed` is the fraction of exposed patients (for interactions, the product of both
    margins); `r_squared` is the fraction of the exposure's variance that the covariates
    explain; `claims` is the number of primary claims that share the error rate (Bonferroni);
    `confirmation` is the fraction of patients held back, in whom a discovery must be
    replicated.
    """

    hazard_ratio: float = Field(gt=0)
    design: Design = "groups"
    exposed: float = Field(default=0.5, gt=0, lt=1)
    power: float = Field(default=0.8, gt=0.05, lt=1)
    alpha: float = Field(default=0.05, gt=0, le=0.2)
    r_squared: float = Field(default=0.0, ge=0, lt=1)
    claims: int = Field(default=1, ge=1, le=100_000)
    confirmation: float = Field(default=0.0, ge=0, lt=1)
    missing: float = Field(default=0.0, ge=0, lt=1)
    event_share: float | None = Field(default=None, gt=0, le=1)
    accrual: Accrual | None = None

    @model_validator(mode="after")
    def _is_answerable(self) -> Question:
        if self.hazard_ratio == 1:
            raise ValueError(
                "a hazard ratio of 1 means no effect, so no study can be planned for it"
            )
        if (self.event_share is None) == (self.accrual is None):
            raise ValueError("give the share of patients with the event, or accrual and survival")
        return self


class Row(Strict):
    """Numbers required for one effect size, and the power at the chosen number."""

    hazard_ratio: float
    events: int
    patients: int
    power: float


class Plan(Strict):
    """Events and patients needed; `rows` give the numbers for other effect sizes."""

    question: Question
    alpha: float
    event_share: float
    events: int
    patients: int
    rows: tuple[Row, ...]
    assumptions: tuple[str, ...]


def plan(question: Question) -> Plan:
    """Compute events and patients for the requested power, which both halves of a split must reach.

    Raises `InputError` if no number of patients is sufficient.
    """
    alpha = question.alpha / question.claims
    events = _events(question, question.hazard_ratio, alpha)
    share = _event_share(question)
    patients = _patients(question, events, share)
    nearby = sorted({round(question.hazard_ratio ** (part / 4), 2) for part in range(2, 9)} - {1.0})
    rows = [
        Row(
            hazard_ratio=ratio,
            events=(needed := _events(question, ratio, alpha)),
            patients=_patients(question, needed, share),
            power=power_at(
                ratio, events, alpha=alpha, r_squared=question.r_squared, **_spread(question)
            ),
        )
        for ratio in nearby
    ]
    return Plan(
        question=question,
        alpha=alpha,
        event_share=share,
        events=events,
        patients=patients,
        rows=tuple(rows),
        assumptions=_assumptions(question, alpha, share),
    )


def _spread(question: Question) -> dict[str, float | None]:
    """Return the exposure's variance in the form that the power formulas use."""
    q = question.exposed
    if question.design == "groups":
        return {"fraction_exposed": q}
    if question.design == "per_sd":
        return {"fraction_exposed": None, "sd": 1.0}
    return {"fraction_exposed": None, "sd": q * (1 - q)}


def _events(question: Question, ratio: float, alpha: float) -> int:
    return events_needed(
        ratio, alpha=alpha, power=question.power, r_squared=question.r_squared, **_spread(question)
    )


def _event_share(question: Question) -> float:
    if question.event_share is not None:
        return question.event_share
    assert question.accrual is not None
    if question.design != "groups":
        return question.accrual.event_share()
    q = question.exposed
    return (1 - q) * question.accrual.event_share() + q * question.accrual.event_share(
        question.hazard_ratio
    )


def _patients(question: Question, events: int, share: float) -> int:
    smaller = 1.0
    if question.confirmation:
        smaller = min(question.confirmation, 1 - question.confirmation)
    found = math.ceil(events / share / smaller / (1 - question.missing))
    if found > 10_000_000:
        raise InputError(
            f"{events} events would require {found:,} patients; plan for a larger effect, or for "
            "patients with more events"
        )
    return found


def _assumptions(question: Question, alpha: float, share: float) -> tuple[str, ...]:
    found = [
        f"two-sided level {alpha:.3g}"
        + (
            f" ({question.alpha:g} shared by {question.claims} claims)"
            if question.claims > 1
            else ""
        ),
        f"the event is observed in {100 * share:.0f}% of patients",
        "proportional hazards",
    ]
    if question.accrual is not None:
        found.append("exponential survival, uniform recruitment, loss independent of the outcome")
    if question.r_squared:
        found.append(f"covariates explain {100 * question.r_squared:.0f}% of the exposure")
    if question.confirmation:
        found.append("discovery and confirmation patients each reach the power on their own")
    if question.missing:
        found.append(f"{100 * question.missing:.0f}% of patients cannot be analyzed")
    if question.design == "interaction":
        found.append("two independent exposures of the same prevalence")
    return tuple(found)
