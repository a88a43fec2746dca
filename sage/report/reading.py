"""What a reader asks of a report first and last.

What would change the verdict, and what of a study's reporting is missing.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from sage.report.facts import Facts
from validation.results.results import Reason, Verdict
from validation.verdict.verdict import TURNED_ROUND

OBJECTIONS = {
    "permuted outcome": "an effect that permuted outcomes do not give as often",
    "random features": "an exposure that does better than random features of its kind",
    "known positive": "a cohort in which what is known to be associated is seen",
    "negative control": "an effect that is absent where it cannot be",
    "missingness": "values that are not missing by outcome",
    "timing": "an exposure that was known before follow-up began",
    "declared timing": "a declaration of when each of them became known",
    "specification curve": "an effect that other defensible choices show as well",
    "proportional hazards": "an effect that lasts over follow-up, or a claim about part of it",
    "replication": "a second cohort that agrees",
    "registration": "data that were not looked at before the claim was written",
    "data": "a primary test that can be computed",
}
"""By the rule that objects, what would end its objection."""
CONTROLS = ("permuted outcome", "random features", "known positive", "negative control")
NOT_RUN = ("the registered control was", "the contract switches")
"""Beginnings of the texts of a control that decided nothing."""
ANSWERED = ("adjusted model", "relevant effect", "primary", "power", "direction")
"""Rules that are answers of the verdict themselves."""
CLOSED = ("control", "data", "reproduction", "registration")
"""What forbids a verdict whatever the answers are: no other estimate changes it."""
MANY_MISSING = 0.05
"""Patients whom the adjusted model loses for missing covariates; a smaller share hardly matters
(Schafer 1999, Statistical Methods in Medical Research)."""


@dataclass(frozen=True)
class Reached:
    """A verdict as its lines on what would change it see it.

    `missing` is the share of the primary test's patients that the adjusted model lacks.
    """

    verdict: Verdict
    simulated: bool = False
    missing: float = 0.0

    def answers(self, question: str, *answers: str) -> bool:
        """Return True if the question has any of these answers."""
        found = next((row for row in self.verdict.answers if row.question == question), None)
        return found is not None and found.answer in answers

    def prevented_by(self, rule: str) -> bool:
        """Return True if this rule blocks another verdict."""
        found = self.verdict.reasons
        return any(reason.rule == rule and reason.outcome == "prevents" for reason in found)

    @property
    def turned(self) -> bool:
        """True if the association contradicts the claimed direction."""
        return TURNED_ROUND in self.verdict.qualifiers

    @property
    def adjusted_decides(self) -> bool:
        """True if relevance was judged on another estimate than the association."""
        effects = {row.question: row.effect for row in self.verdict.answers}
        return effects.get("association") != effects.get("relevance")

    @property
    def dependent(self) -> bool:
        """True if the verdict requires only that the effect holds beside the covariates."""
        return self.answers("association", "yes") and self.prevented_by("adjusted model")


CHANGES: tuple[tuple[str, Callable[[Reached], bool]], ...] = (
    ("Other patients in whom the difference is absent, or runs the other way.",
     lambda it: it.verdict.verdict == "supported" and not it.simulated),
    ("A confounder that was not measured and is at least as strong as the E-value says.",
     lambda it: it.verdict.verdict == "supported" and it.answers("independence", "yes")),
    ("A smaller effect in patients who were not used to find it: estimates that pass a threshold"
     " tend to shrink.",
     lambda it: it.verdict.verdict == "supported" and it.answers("relevance", "yes")
     and not it.simulated),
    ("A narrower interval, if it leaves out the effects that matter: it holds such effects and"
     " smaller ones.",
     lambda it: it.verdict.verdict == "supported" and it.answers("relevance", "unclear")),
    ("Other patients, as many as the contract's power asks for, in whom the difference is seen in"
     " the direction that was registered.",
     lambda it: it.verdict.verdict == "not_supported" and not it.simulated),
    ("Other patients, for whom the direction that was seen here is registered before they are"
     " looked at.",
     lambda it: it.verdict.verdict == "not_supported" and it.turned and not it.simulated),
    ("An interval that reaches the smallest effect that matters.",
     lambda it: (it.verdict.verdict == "not_supported" and not it.turned)
     or (it.prevented_by("relevant effect") and not it.adjusted_decides)),
    ("An adjusted estimate whose interval reaches the smallest effect that matters.",
     lambda it: it.prevented_by("relevant effect") and it.adjusted_decides),
    ("More events: the primary comparison's interval holds no effect as well as one that matters.",
     lambda it: it.prevented_by("power")),
    ("More events: the association is seen in the claim alone, and not among all claims of the"
     " ledger.",
     lambda it: it.verdict.because == "multiplicity" and it.answers("association", "unclear")),
    ("A claim about the shape of the association: one was found, and no slope in one direction.",
     lambda it: it.prevented_by("direction")),
    ("Tests without and with the covariates that agree: the effect shows only beside them.",
     lambda it: it.answers("association", "no") and it.prevented_by("adjusted model")),
    ("The adjusted model with more events.",
     lambda it: it.dependent and it.answers("independence", "unclear")
     and it.missing < MANY_MISSING),
    ("The adjusted model with more events, or with fewer missing covariates.",
     lambda it: it.dependent and it.answers("independence", "unclear")
     and it.missing >= MANY_MISSING),
    ("A reason, given before the data are seen, why a covariate lies between exposure and outcome"
     " and should not be adjusted for.",
     lambda it: it.dependent and it.answers("independence", "no")),
    ("An adjusted model, with the covariates measured.",
     lambda it: it.dependent and it.answers("independence", "not answered")),
)  # fmt: skip
"""What new evidence would change a verdict, each with the verdicts that it could change."""


def would_change(reached: Reached) -> tuple[str, ...]:
    """Get changes that would alter the verdict: its objections, and what would turn its answers."""
    verdict = reached.verdict
    said = [_objecting(reason) for reason in verdict.reasons if _objects(reason, verdict)]
    if verdict.because not in CLOSED:
        said += [line for line, could in CHANGES if could(reached)]
    return tuple(dict.fromkeys(said))


def _objects(reason: Reason, verdict: Verdict) -> bool:
    """Return True if a reason blocks another verdict and no answer states it."""
    answered = (*ANSWERED, "ledger") if verdict.because == "multiplicity" else ANSWERED
    return reason.outcome == "prevents" and reason.rule not in answered


def _objecting(reason: Reason) -> str:
    what = "control" if reason.rule.startswith(CONTROLS) else "check"
    ends = OBJECTIONS.get(reason.rule, "this to be resolved")
    if reason.text.startswith(NOT_RUN):
        ends = "this control, run"
    return f"The {what} “{reason.rule}” objects: {reason.text}. It would take {ends}."


@dataclass(frozen=True)
class Item:
    """A checklist item: its demand, whether the report holds it, and where.

    `lacks` names what of it the report does not hold; the item is then reported in part.
    """

    number: str
    asks: str
    held: bool
    where: str
    lacks: str = ""

    @property
    def reported(self) -> bool:
        """True if the report holds all of it."""
        return self.held and not self.lacks

    @property
    def in_part(self) -> bool:
        """True if the report holds some of it."""
        return self.held and bool(self.lacks)


class Reported(Protocol):
    """Parts of a hypothesis page that checklists read."""

    id: str
    contract: Any
    results: Any
    limits: tuple[str, ...]
    summary: Any


CALIBRATION = "Calibration of the adjusted model"
CONCORDANCE = "Discrimination without and with the exposure (apparent)"


def _is_held(page: Reported, facts: Facts, held: str) -> bool:
    """Return True if a page holds what a checklist's item asks for.

    Parameters
    ----------
    held : the column `held` of a checklist: a part of the page; `text:`, `table:` or `key:` with
        words of the contract's statements, titles of tables (separated by `|`), or the key of a
        number; empty for what no run can hold
    """
    kind, _, words = held.partition(":")
    contract = page.contract
    match kind:
        case "contract":
            return contract is not None
        case "names":
            return bool(contract and contract.names)
        case "summary":
            return page.summary is not None
        case "limits":
            return bool(page.limits)
        case "text":
            return bool(contract and any(words in line for line in contract.statements))
        case "table":
            return any(table.title in words.split("|") for table in page.results.tables)
        case "key":
            return facts.contains(f"{page.id}.{words}")
    return False


@cache
def read_items(name: str) -> tuple[dict[str, str], ...]:
    """Items of a checklist: number, what it asks, where a report has it, what holds it, what lacks.

    `remark` are the items of REMARK (McShane et al., Journal of the National Cancer Institute);
    `lacks` is what of an item no run can hold: it appears in the paper of the cohort. `tripod_ai`
    are those of TRIPOD+AI (Collins et al., BMJ, 2024) in short; most of what it asks of a model's
    use no run can know.
    """
    with (Path(__file__).parent / "checklists" / f"{name}.tsv").open(encoding="utf-8") as file:
        return tuple(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


@dataclass(frozen=True)
class Checklist:
    """A completed reporting guideline."""

    name: str
    about: str
    items: tuple[Item, ...]

    @property
    def reported(self) -> int:
        """Count items that the report holds."""
        return sum(item.reported for item in self.items)

    @property
    def in_part(self) -> int:
        """Count items that the report holds in part."""
        return sum(item.in_part for item in self.items)


def checklists(page: Reported, facts: Facts) -> list[Checklist]:
    """Return the checklists of a hypothesis, filled from its contract, tables and keys.

    TRIPOD+AI accompanies REMARK where predictions of a model are judged.
    """

    def fill(file: str, name: str, about: str) -> Checklist:
        return Checklist(
            name,
            about,
            tuple(
                Item(
                    row["number"],
                    row["asks"],
                    _is_held(page, facts, row["held"]),
                    row["where"],
                    row["lacks"],
                )
                for row in read_items(file)
            ),
        )

    found = [
        fill(
            "remark",
            "REMARK",
            "Reporting recommendations for tumor marker prognostic studies (McShane et al., Journal"
            " of the National Cancer Institute, 2005).",
        )
    ]
    # A model whose predictions are judged.
    if any(table.title in (CALIBRATION, CONCORDANCE) for table in page.results.tables):
        found.append(
            fill(
                "tripod_ai",
                "TRIPOD+AI",
                "Reporting of clinical prediction models (Collins et al., BMJ, 2024), for the"
                " adjusted model whose predictions are judged above.",
            )
        )
    return found
