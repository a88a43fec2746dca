"""What a reader asks of a report first and last: what would change the verdict, and what of a
study's reporting is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from sage.report.facts import Facts

CHANGES = {
    ("association", "yes"): "Other patients in whom the difference is absent, or runs the other"
    " way.",
    ("association", "no"): "Other patients, as many as the contract's power asks for, in whom the"
    " difference is seen in the direction that was claimed.",
    ("association", "unclear"): "More events: the interval holds no effect as well as one that"
    " matters.",
    ("association", "not answered"): "The primary test, once it can be computed.",
    ("independence", "yes"): "A confounder that was not measured and is at least as strong as the"
    " E-value says.",
    ("independence", "no"): "A reason, given before the data are seen, why a covariate lies between"
    " exposure and outcome and should not be adjusted for.",
    ("independence", "unclear"): "The adjusted model with more events, or with fewer missing"
    " covariates.",
    ("independence", "not answered"): "An adjusted model, with the covariates measured.",
    ("relevance", "yes"): "A smaller effect in patients who were not used to find it: estimates"
    " that pass a threshold tend to shrink.",
    ("relevance", "no"): "An interval that reaches the smallest effect that matters.",
    ("relevance", "unclear"): "A narrower interval: it holds effects that matter and effects that"
    " do not.",
    ("relevance", "not answered"): "An estimate with its interval.",
}
"""By question and answer of a verdict, what new evidence would turn the answer."""


def would_change(answers: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """What would change the mind, from the verdict's answers as (question, answer)."""
    return tuple(dict.fromkeys(CHANGES[question, answer] for question, answer in answers))


@dataclass(frozen=True)
class Item:
    """One item of REMARK: what is asked, whether the report holds it, and where."""

    number: str
    asks: str
    reported: bool
    where: str


class Reported(Protocol):
    """What of a hypothesis' page the checklist looks at."""

    id: str
    contract: Any
    tables: list[Any]
    limits: tuple[str, ...]
    summary: Any


Holds = Callable[[Reported, Callable[[str], bool]], bool]


def _registered(words: str) -> Holds:
    return lambda page, has: bool(
        page.contract and any(words in line for line in page.contract.statements)
    )


def _keyed(*keys: str) -> Holds:
    return lambda page, has: any(has(key) for key in keys)


def _tabled(*titles: str) -> Holds:
    return lambda page, has: any(table.title in titles for table in page.tables)


REMARK: tuple[tuple[str, str, str, Holds], ...] = (
    ("1", "The marker, the objectives and any hypotheses stated before", "Hypothesis",
     lambda page, has: bool(page.contract)),
    ("2", "Patients: source, inclusion and exclusion", "Methods", _registered("Population")),
    ("3", "Treatments received, and how they were chosen", "Methods", _registered("reatment")),
    ("4", "Biological material and its controls", "Methods", _registered("Exposure")),
    ("5", "The assay method, with its quality control", "Methods", _registered("assay")),
    ("6", "Case selection, follow-up and its median", "Methods", _registered("follow-up")),
    ("7", "All endpoints, defined", "Methods", _registered("Endpoint")),
    ("8", "All candidate variables considered", "Candidates",
     lambda page, has: bool(page.contract and page.contract.names)),
    ("9", "The rationale for the sample size", "Methods", _registered("Power")),
    ("10", "All statistical methods", "Methods", _registered("Primary test")),
    ("11", "How marker values were handled and cut-points chosen", "Methods",
     _registered("Exposed")),
    ("12", "The flow of patients, with events", "Results", _tabled("Flow of patients")),
    ("13", "Basic characteristics of the patients", "Results", _tabled("Table 1: patients")),
    ("14", "The marker beside standard prognostic variables", "Results",
     _tabled("Table 1: patients")),
    ("15", "Univariable estimate with interval", "Results", _keyed("primary.effect")),
    ("16", "Multivariable estimate with interval", "Results", _keyed("adjusted.effect")),
    ("17", "Estimates with intervals for all endpoints", "Results", _keyed("primary.lower")),
    ("18", "Further investigations: assumptions, sensitivity, validation", "Robustness",
     _tabled("Controls", "Specification curve")),
    ("19", "Interpretation with the limits of the study", "Interpretation",
     lambda page, has: bool(page.limits)),
    ("20", "Implications for research and clinic", "Next steps",
     lambda page, has: page.summary is not None),
)  # fmt: skip
"""The items of REMARK (McShane et al., Journal of the National Cancer Institute), and what shows
each. What no contract or result of a run holds is said to be missing, for the authors to add."""


def remark(page: Reported, facts: Facts) -> list[Item]:
    """The checklist of one hypothesis, filled from its contract, tables and keys."""

    def has(key: str) -> bool:
        return facts.has(f"{page.id}.{key}")

    return [Item(number, asks, holds(page, has), where) for number, asks, where, holds in REMARK]
