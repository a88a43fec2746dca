"""What a reader asks of a report first and last: what would change the verdict, and what of a
study's reporting is missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
        """True if the question has any of these answers."""
        found = next((row for row in self.verdict.answers if row.question == question), None)
        return found is not None and found.answer in answers

    def prevented_by(self, rule: str) -> bool:
        """True if this rule blocks another verdict."""
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
    """Changes that would alter the verdict: its objections, and what would turn its answers."""
    verdict = reached.verdict
    said = [_objecting(reason) for reason in verdict.reasons if _objects(reason, verdict)]
    if verdict.because not in CLOSED:
        said += [line for line, could in CHANGES if could(reached)]
    return tuple(dict.fromkeys(said))


def _objects(reason: Reason, verdict: Verdict) -> bool:
    """True if a reason blocks another verdict and no answer states it."""
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


Holds = Callable[[Reported, Callable[[str], bool]], bool]


def _registered(words: str) -> Holds:
    return lambda page, has: bool(
        page.contract and any(words in line for line in page.contract.statements)
    )


def _has_key(*keys: str) -> Holds:
    return lambda page, has: any(has(key) for key in keys)


def _has_table(*titles: str) -> Holds:
    return lambda page, has: any(table.title in titles for table in page.results.tables)


REMARK: tuple[tuple[str, str, str, Holds], ...] = (
    ("1", "The marker, the objectives and any hypotheses stated before", "Hypothesis",
     lambda page, has: bool(page.contract)),
    ("2", "Patients: characteristics, source, inclusion and exclusion", "Methods",
     _registered("Population")),
    ("3", "Treatments received, and how they were chosen", "Methods", _registered("reatment")),
    ("4", "Biological material and its controls", "Methods", _registered("Exposure")),
    ("5", "The assay method, with its quality control", "Methods", _registered("assay")),
    ("6", "Case selection, dates, follow-up and its median", "Results",
     _has_table("Table 1: patients")),
    ("7", "All endpoints, defined", "Methods", _registered("Endpoint")),
    ("8", "All candidate variables considered", "Candidates",
     lambda page, has: bool(page.contract and page.contract.names)),
    ("9", "The rationale for the sample size", "Methods", _registered("Power")),
    ("10", "All statistical methods", "Methods", _registered("Primary test")),
    ("11", "How marker values were handled and cut-points chosen", "Methods",
     _registered("Exposed")),
    ("12", "The flow of patients, with events", "Results", _has_table("Flow of patients")),
    ("13", "Basic characteristics of the patients", "Results", _has_table("Table 1: patients")),
    ("14", "The marker beside standard prognostic variables", "Results",
     _has_table("Table 1: patients")),
    ("15", "Univariable estimates with intervals", "Results", _has_key("primary.effect")),
    ("16", "Multivariable estimates with intervals, of all variables of the model", "Results",
     _has_table("Adjusted model")),
    ("17", "The marker with standard variables in one model, significant or not", "Results",
     _has_key("adjusted.effect")),
    ("18", "Further investigations: assumptions, sensitivity, validation", "Robustness",
     _has_table("Controls", "Specification curve")),
    ("19", "Interpretation with other studies and limits", "Interpretation",
     lambda page, has: bool(page.limits)),
    ("20", "Implications for research and clinic", "Next steps",
     lambda page, has: page.summary is not None),
)  # fmt: skip
"""The items of REMARK (McShane et al., Journal of the National Cancer Institute), and what shows
each. What no contract or result of a run holds is reported missing, for the authors to add."""
REMARK_LACKS = {
    "2": "where and by which criteria the study took its patients",
    "3": "how treatments were chosen",
    "4": "the kind of specimen, controls, preservation and storage",
    "5": "the protocol, its quality control and blinding",
    "6": "prospective or retrospective, matching, and the dates",
    "7": "from when time counts, and who judged an event",
}
"""What of an item of REMARK no run can hold: it appears in the paper of the cohort."""


def _prediction(page: Reported) -> bool:
    """A model whose predictions are judged."""
    return any(table.title in (CALIBRATION, CONCORDANCE) for table in page.results.tables)


CALIBRATION = "Calibration of the adjusted model"
CONCORDANCE = "Discrimination without and with the exposure (apparent)"
NEVER: Holds = lambda page, has: False  # noqa: E731 - a cell of the tables below

TRIPOD_AI: tuple[tuple[str, str, str, Holds], ...] = (
    ("1", "A title that names model, population and outcome", "Hypothesis",
     lambda page, has: bool(page.contract)),
    ("2", "A structured abstract", "Result", lambda page, has: page.summary is not None),
    ("3a", "The clinical context, and models there are", "", NEVER),
    ("3b", "Whom the model is for, and what for", "", NEVER),
    ("3c", "Known inequalities between groups", "", NEVER),
    ("4", "The objectives", "Hypothesis", lambda page, has: bool(page.contract)),
    ("5a", "Sources of data, and why they represent whom the model is for", "", NEVER),
    ("5b", "Dates of the data", "", NEVER),
    ("6a", "Setting, and where patients came from", "", NEVER),
    ("6b", "Who was eligible", "Methods", _registered("Population")),
    ("6c", "Treatments received", "Methods", _registered("reatment")),
    ("7", "How data were prepared and checked", "Results", _has_table("What the files hold")),
    ("8a", "The outcome and its time horizon", "Methods", _registered("Endpoint")),
    ("8b", "Who assessed it, with which training", "", NEVER),
    ("8c", "Whether its assessment was blinded", "", NEVER),
    ("9a", "How the first predictors were chosen", "Candidates",
     lambda page, has: bool(page.contract and page.contract.names)),
    ("9b", "All predictors, defined", "Methods", _registered("Exposure")),
    ("9c", "Who measured predictors, with which training", "", NEVER),
    ("10", "How the size of the study was arrived at", "Methods", _registered("Power")),
    ("11", "How missing values were handled", "Methods", _registered("Missing values")),
    ("12a", "How data were split between fitting and judging", "Methods", _registered("Split")),
    ("12b", "How predictors were handled", "Methods", _registered("Exposed")),
    ("12c", "The kind of model, and how it was built", "Methods", _registered("Adjusted for")),
    ("12d", "Differences between hospitals", "Results", _has_table("What the sites explain")),
    ("12e", "Measures of performance", "Methods", _registered("Further tests")),
    ("12f", "Updating of the model", "", NEVER),
    ("12g", "How predictions were computed, where a model is judged", "Results",
     _has_table(CALIBRATION)),
    ("13", "Methods against imbalance of classes", "", NEVER),
    ("14", "Methods for fairness", "", NEVER),
    ("15", "What the model puts out", "Results", _has_table(CALIBRATION)),
    ("16", "Differences between the data for fitting and for judging", "", NEVER),
    ("17", "Ethical approval", "", NEVER),
    ("18a", "Funding", "", NEVER),
    ("18b", "Conflicts of interest", "", NEVER),
    ("18c", "The protocol", "Methods", lambda page, has: bool(page.contract)),
    ("18d", "A public registration", "", NEVER),
    ("18e", "Where the data are", "", NEVER),
    ("18f", "Where the code is", "Run", lambda page, has: bool(page.contract)),
    ("19", "Involvement of patients and the public", "", NEVER),
    ("20a", "The flow of patients", "Results", _has_table("Flow of patients")),
    ("20b", "Characteristics of the patients", "Results", _has_table("Table 1: patients")),
    ("20c", "Patients of fitting and judging compared", "", NEVER),
    ("21", "Patients and events of each analysis", "Results", _has_table("All registered tests")),
    ("22", "The model in full, so that others can use it", "Results", _has_table("Adjusted model")),
    ("23a", "Performance with intervals", "Results", _has_table(CALIBRATION)),
    ("23b", "Performance by groups of patients", "", NEVER),
    ("24", "Results of updating", "", NEVER),
    ("25", "Interpretation", "Interpretation", lambda page, has: page.summary is not None),
    ("26", "Limits of the study", "Interpretation", lambda page, has: bool(page.limits)),
    ("27a", "What to do with poor input when the model is used", "", NEVER),
    ("27b", "Who uses the model, with which expertise", "", NEVER),
    ("27c", "Next steps", "Next steps", lambda page, has: page.summary is not None),
)  # fmt: skip
"""The items of TRIPOD+AI (Collins et al., BMJ, 2024) in short. Most of what it asks of a model's
use no run can know."""


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
    """The checklists of a hypothesis, filled from its contract, tables and keys.

    TRIPOD+AI accompanies REMARK where predictions of a model are judged.
    """

    def has_fact(key: str) -> bool:
        return facts.contains(f"{page.id}.{key}")

    def fill_items(
        rows: tuple[tuple[str, str, str, Holds], ...], lacks: Mapping[str, str]
    ) -> tuple[Item, ...]:
        return tuple(
            Item(number, asks, holds(page, has_fact), to, lacks.get(number, ""))
            for number, asks, to, holds in rows
        )

    found = [
        Checklist(
            "REMARK",
            "Reporting recommendations for tumor marker prognostic studies (McShane et al., Journal"
            " of the National Cancer Institute, 2005).",
            fill_items(REMARK, REMARK_LACKS),
        )
    ]
    if _prediction(page):
        found.append(
            Checklist(
                "TRIPOD+AI",
                "Reporting of clinical prediction models (Collins et al., BMJ, 2024), for the"
                " adjusted model whose predictions are judged above.",
                fill_items(TRIPOD_AI, {}),
            )
        )
    return found
