"""Answers to questions that readers ask before and after reading a report.

They state what would change the verdict, and which reporting-guideline items are missing.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from agents.findings.answer import capitalize
from sage.report.facts import Facts
from validation.results.results import Reason, Verdict
from validation.verdict.verdict import TURNED_ROUND

OBJECTIONS = {
    "permuted outcome": "an effect that shuffled outcomes do not give as often",
    "random features": "a test in other patients of whether these markers predict better than"
    " comparable ones",
    "known positive": "a cohort in which a known association is seen",
    "negative control": "a negative-control endpoint without an association",
    "missingness": "measurements whose absence is unrelated to the outcome",
    "timing": "a marker that was measured before follow-up began",
    "declared timing": "a declaration of when each variable became known",
    "specification curve": "an effect that other defensible analyses show as well",
    "unadjusted variables": "a model with what was left out, or a causal diagram (`causes`) that"
    " says before the data are seen why it stays out",
    "proportional hazards": "an effect that lasts over follow-up, or a claim about part of it",
    "replication": "a second cohort that agrees",
    "registration": "patients whose data were not seen before the claim was written",
    "data": "a primary test that can be computed",
}
"""For each rule that can raise an objection, the evidence that would resolve it."""
RECALIBRATED = {
    "supported": "Other patients in whom predicted and observed risks disagree.",
    "not_supported": "A recalibrated score, claimed to be calibrated in other patients.",
}
"""Evidence that would change a verdict on a score's calibration; more events otherwise."""
ANSWERED = ("adjusted model", "relevant effect", "primary", "power", "direction")
"""Rules that the verdict's own answers already cover."""
CLOSED = ("control", "data", "reproduction", "registration")
"""Reasons that prevent a verdict regardless of the answers, so no new estimate changes it."""
MANY_MISSING = 0.05
"""Share of patients that may lack covariates with little effect on the adjusted model.

Source: Schafer 1999, Statistical Methods in Medical Research.
"""


@dataclass(frozen=True)
class Reached:
    """A verdict, with the facts that determine which evidence would change it.

    `missing` is the share of the primary test's patients who are not in the adjusted model.
    """

    verdict: Verdict
    simulated: bool = False
    missing: float = 0.0

    def answers(self, question: str, *answers: str) -> bool:
        """Check whether the verdict answers the question with any of these answers."""
        found = next((row for row in self.verdict.answers if row.question == question), None)
        return found is not None and found.answer in answers

    def prevented_by(self, rule: str) -> bool:
        """Check whether this rule prevents another verdict."""
        found = self.verdict.reasons
        return any(reason.rule == rule and reason.outcome == "prevents" for reason in found)

    @property
    def turned(self) -> bool:
        """True if the association contradicts the claimed direction."""
        return TURNED_ROUND in self.verdict.qualifiers

    @property
    def dependent(self) -> bool:
        """True if the verdict lacks only an effect that is independent of the covariates."""
        shown = not self.answers("association", "no")
        return shown and self.prevented_by("adjusted model")


CHANGES: tuple[tuple[str, Callable[[Reached], bool]], ...] = (
    ("Other patients in whom the difference is absent, or runs the other way.",
     lambda it: it.verdict.verdict == "supported" and not it.simulated),
    ("A smaller effect in patients who were not used to find it: estimates that pass a threshold"
     " tend to shrink.",
     lambda it: it.verdict.verdict == "supported" and it.answers("relevance", "yes")
     and not it.simulated),
    ("A narrower interval: this one includes effects that matter and smaller ones.",
     lambda it: it.verdict.verdict == "supported" and it.answers("relevance", "unclear")),
    ("Other patients, as many as the contract's power asks for, in whom the difference is seen as"
     " it was claimed.",
     lambda it: it.verdict.verdict == "not_supported" and not it.simulated),
    ("Other patients, for whom the direction that was seen here is claimed before they are"
     " looked at.",
     lambda it: it.verdict.verdict == "not_supported" and it.turned and not it.simulated),
    ("An interval that reaches the smallest effect that matters.",
     lambda it: (it.verdict.verdict in ("small_effect", "not_supported") and not it.turned)
     or it.prevented_by("relevant effect")),
    ("More events: the interval includes both no effect and an effect that matters.",
     lambda it: it.prevented_by("power")),
    ("More events: the association is significant alone, but not when all claims are counted.",
     lambda it: it.verdict.because == "multiplicity" and it.answers("association", "unclear")),
    ("A claim about the shape of the association, which has no slope in one direction.",
     lambda it: it.prevented_by("direction")),
    ("Agreement of the tests with and without covariates: the effect appears only with them.",
     lambda it: it.answers("association", "no") and it.answers("independence", "yes")
     and it.prevented_by("adjusted model")),
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
"""New evidence that could change a verdict, each with a test for the verdicts it applies to."""


def would_change(reached: Reached) -> tuple[str, ...]:
    """List what would change the verdict: resolving its objections or changing its answers."""
    verdict = reached.verdict
    said = [
        f"{capitalize(OBJECTIONS.get(reason.rule, f'this check, resolved: {reason.rule}'))}."
        for reason in verdict.reasons
        if _objects(reason, verdict)
    ]
    if any(row.question == "observed/expected ratio" for row in verdict.answers):
        more = "More events: intervals within the margins of calibration."
        said += [RECALIBRATED.get(verdict.verdict, more)] if verdict.because not in CLOSED else []
    elif verdict.because not in CLOSED:
        said += [line for line, could in CHANGES if could(reached)]
    return tuple(dict.fromkeys(said))


def _objects(reason: Reason, verdict: Verdict) -> bool:
    """Check whether a reason prevents another verdict and is not already stated by an answer."""
    answered = (*ANSWERED, "ledger") if verdict.because == "multiplicity" else ANSWERED
    return reason.outcome == "prevents" and reason.rule not in answered


@dataclass(frozen=True)
class Item:
    """A checklist item: its requirement, and whether and where the report meets it.

    `lacks` names the part of the item that the report does not contain; such an item counts
    as partly reported.
    """

    number: str
    asks: str
    held: bool
    where: str
    lacks: str = ""

    @property
    def reported(self) -> bool:
        """True if the report contains the whole item."""
        return self.held and not self.lacks

    @property
    def in_part(self) -> bool:
        """True if the report contains part of the item."""
        return self.held and bool(self.lacks)


class Reported(Protocol):
    """The parts of a hypothesis page that the checklists evaluate."""

    id: str
    contract: Any
    results: Any
    limits: tuple[str, ...]
    summary: Any


def _is_held(page: Reported, facts: Facts, held: str) -> bool:
    """Check whether a page contains the content that a checklist item requires.

    Parameters
    ----------
    held : the checklist's column `held`: a part of the page; `text:`, `table:` or `key:`
        followed by words from the contract's statements, table titles (separated by `|`), or
        the key of a number; empty for content that no run can contain
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
    """Read a checklist with each item's number, requirement, place in a report, source and gaps.

    `remark` has the REMARK items (McShane et al., Journal of the National Cancer Institute).
    Its `lacks` column names the part of an item that no run can contain, because it appears
    in the cohort's publication. `tripod_ai` has the TRIPOD+AI items (Collins et al., BMJ,
    2024) in abbreviated form; most of its items about using a model cannot be answered from a
    run.
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
        """Number of items reported in full."""
        return sum(item.reported for item in self.items)

    @property
    def in_part(self) -> int:
        """Number of items reported in part."""
        return sum(item.in_part for item in self.items)


def checklists(page: Reported, facts: Facts) -> list[Checklist]:
    """Fill in the checklists for a hypothesis from its contract, tables and keys.

    TRIPOD+AI is added to REMARK if the claim is about a model's predictions.
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
    if page.contract is not None and page.contract.predicts:
        found.append(
            fill(
                "tripod_ai",
                "TRIPOD+AI",
                "Reporting of clinical prediction models (Collins et al., BMJ, 2024), for the"
                " model whose predictions are claimed to be better.",
            )
        )
    return found
