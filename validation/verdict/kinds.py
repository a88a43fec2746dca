"""Additions to the verdict by kind of claim: limitations, later endpoints, calibration."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from validation.contracts.contract import Contract
from validation.core.hypothesis import Comparison
from validation.methods.shared import slug
from validation.results.results import (
    AnalysisResult,
    Answer,
    Objection,
    Reason,
    TestOutcome,
    Word,
    effect_text,
    p_is,
)
from validation.verdict.relevance import expected_direction


def later_endpoints(
    contract: Contract,
    analysis: AnalysisResult,
    q_of: Mapping[str, float],
    verdict: Word,
    *,
    measured: Callable[[TestOutcome], bool],
    undirected: Callable[[TestOutcome], bool],
) -> Iterator[Reason]:
    """Yield the later endpoints in a hierarchy, tested in a fixed sequence.

    Each endpoint is tested at the contract's alpha only if the claim is shown for all
    preceding endpoints (Westfall and Krishen 2001, Journal of Statistical Planning and
    Inference). A claim is shown if its own test after control over the ledger and the test
    adjusted for the covariates are both significant in the expected direction.
    """
    if not contract.hypothesis.hierarchy:
        return
    before, open_still = contract.primary_test.endpoint, verdict == "supported"
    registered = {plan.id for plan in contract.tests}
    for number, key in enumerate(contract.hypothesis.secondary_endpoints, start=2):
        rule = f"endpoint {number} of the hierarchy"
        if not open_still:
            text = f"{key} is not tested: the claim on {before} is not shown"
            yield Reason(rule=rule, outcome="limits", text=text)
            continue
        texts: list[str] = []
        for name in [f"{key}.secondary", *({f"{key}.adjusted"} & registered)]:
            test = analysis.test(name)
            if test is None or not measured(test) or test.effect is None or test.p is None:
                why = "it did not run" if test is None else test.reason
                texts, open_still = [*texts, f"no result ({why})"], False
                continue
            adjusted = name.endswith(".adjusted")
            level = test.p if adjusted else q_of.get(key, 1.0)
            right = expected_direction(contract, test.effect) and not undirected(test)
            open_still = open_still and right and level < contract.rules.alpha
            more = "" if adjusted else f", {p_is(level, 'q')}"
            text = f"{effect_text(test.effect)}, {p_is(test.p)}{more}"
            texts.append(f"adjusted {text}" if adjusted else text)
        before = key
        words = "is shown" if open_still else "is not shown"
        outcome = "for" if open_still else "limits"
        text = f"{key} {words}: {'; '.join(texts)}"
        yield Reason.model_validate({"rule": rule, "outcome": outcome, "text": text})


def kind_limits(contract: Contract, analysis: AnalysisResult) -> list[str]:
    """List limitations specific to this kind of claim."""
    assumed = ASSUMED if contract.comparison is Comparison.MEDIATION else ()
    return [
        *_between_the_groups(analysis),
        *_of_a_product(contract),
        *_against_the_others(contract, analysis),
        *assumed,
    ]


ASSUMED = (
    "an indirect effect only if nothing unmeasured confounds exposure and mediator, exposure and "
    "outcome, or mediator and outcome: no data can show that",
    "an indirect effect only if the exposure comes before the mediator, changes none of the "
    "mediator's confounders, and does not change what the mediator does",
)
"""Assumptions behind natural effects (VanderWeele 2015, Explanation in Causal Inference)."""


def shown_words(contract: Contract, associated: str, beside: str) -> str:
    """Describe a supported claim; for mediation, no more than the observed association."""
    if contract.comparison is Comparison.MEDIATION:
        return f"both paths hold after adjustment for {beside}: mediation under its assumptions"
    return f"{associated}, also after adjustment for {beside}"


def _between_the_groups(analysis: AnalysisResult) -> list[str]:
    """Describe the patients in neither group, whom a two-group comparison excludes."""
    neither, n = (analysis.numbers.get(key) for key in ("groups.neither.n", "population.n"))
    if neither is None or n is None or not neither.value:
        return []
    return [
        f"{neither.text} of {n.text} patients are in neither group, and the comparison does not"
        " describe them"
    ]


def _of_a_product(contract: Contract) -> list[str]:
    """List the limitations of an interaction: its scale, and nonrandomized treatment."""
    if contract.comparison not in (Comparison.PREDICTIVE, Comparison.MODIFICATION):
        return []
    limits = []
    if contract.scale != "difference (SD)":
        limits.append(f"interaction of {contract.scale}s: says nothing of differences in risk")
    treatment = contract.hypothesis.exposures[1]
    if contract.comparison is Comparison.PREDICTIVE and not treatment.randomized:
        limits.append(
            f"{treatment.label} was not randomized: who was given it may differ in what decides "
            "the outcome"
        )
    return limits


def _against_the_others(contract: Contract, analysis: AnalysisResult) -> list[str]:
    """List the terms in a combined claim whose own estimates have the opposite direction."""
    primary = analysis.test(contract.primary)
    combined = contract.comparison is Comparison.COMBINED
    if not combined or primary is None or primary.effect is None:
        return []
    found = []
    for use in contract.exposures:
        number = analysis.numbers.get(f"{contract.primary}.terms.{slug(use.label)}.effect")
        if number is None or number.value is None:
            continue
        term = primary.effect.model_copy(update={"value": float(number.value)})
        if not expected_direction(contract, term):
            found.append(f"{use.label} alone points the other way beside the other exposures")
    return found


# -- calibration of a published score ------------------------------------------------------------

UNSHOWN = "an interval reaches beyond the margins of calibration"
ALONE = "within the margins alone, but not when all claims are counted"
SIDES = {
    "primary": ("fewer events than predicted", "more events than predicted"),
    "slope": ("predicted risks are too extreme", "predicted risks are too moderate"),
}
"""Descriptions of an estimate below or above its margins, by test."""


def answer_calibration(contract: Contract, analysis: AnalysisResult) -> tuple[Answer, ...]:
    """Compare the intervals of both tests with their margins; leave out tests without a result."""
    given = contract.hypothesis.calibration
    assert given is not None
    found = []
    for name, (low, high) in (("primary", given.ratio), ("slope", given.slope)):
        test = analysis.test(name)
        if test is None or test.effect is None:
            continue
        effect, answer = test.effect, "unclear"
        text = effect_text(effect).removeprefix(f"{effect.scale} ")
        text += f", margins {low:g} to {high:g}"
        if effect.upper < low or effect.lower > high:
            answer, text = "no", f"{text}: {SIDES[name][effect.lower > high]}"
        elif low < effect.lower and effect.upper < high:
            answer = "yes"
        fields = {"question": effect.scale, "answer": answer, "text": text}
        found.append(Answer.model_validate(fields | {"effect": effect, "p": test.p}))
    return tuple(found)


def judge_calibration(
    contract: Contract, analysis: AnalysisResult, q: float | None, doubts: list[Objection]
) -> tuple[Any, Any, tuple[Reason, ...], str]:
    """Return the word, its basis, its reasons, and the text for the badge."""
    answers = answer_calibration(contract, analysis)
    reasons = [_reason(item.question, item.answer, item.text) for item in answers]
    if (useful := analysis.numbers.get("decision_curve.useful")) is not None:
        text = f"a benefit over acting on everybody or nobody at {useful.text} of the thresholds"
        reasons.append(_reason("decision curve", "yes" if useful.value == 1 else "unclear", text))
    word = agreement(answers)
    if word == "no":
        words = [item.text.rpartition(": ")[2] for item in answers if item.answer == "no"]
        return "not_supported", "evidence", tuple(reasons), "; ".join(words)
    if word == "unclear":
        doubts = [Objection("power", "power", UNSHOWN, UNSHOWN)]
    elif q is None or not q < contract.rules.alpha:
        doubts = [Objection("multiplicity", "ledger", ALONE, f"{ALONE} ({p_is(q, 'q')})"), *doubts]
    reasons += [doubt.reason for doubt in doubts]
    if doubts:
        return "inconclusive", doubts[0].because, tuple(reasons), doubts[0].words
    return "supported", "evidence", tuple(reasons), "calibrated within the margins"


def agreement(answers: tuple[Answer, ...]) -> str:
    """Return "no" if an interval is outside its margins, "yes" if both are within."""
    given = [item.answer for item in answers]
    return "no" if "no" in given else "yes" if given == ["yes", "yes"] else "unclear"


def _reason(rule: str, answer: str, text: str) -> Reason:
    outcome: Any = {"yes": "for", "no": "against"}.get(answer, "limits")
    return Reason(rule=rule, outcome=outcome, text=text)
