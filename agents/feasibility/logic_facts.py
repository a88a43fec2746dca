"""Logic and falsifiability: whether the test is a fair comparison that could refute the claim."""

from __future__ import annotations

from agents.feasibility.plan import ContractNumbers
from agents.feasibility.types import FactList
from sage.core.printable import join_names
from validation.core.dictionary import DataDictionary
from validation.core.hypothesis import CutRule, Direction, Hypothesis
from validation.disclosure import count_text, safe_count

EVENTS_PER_TERM = 10.0
"""Events per model term below which a condition is imposed.

Source: Peduzzi et al., 1996, Journal of Clinical Epidemiology.
"""


def logic_facts(
    facts: FactList,
    hypothesis: Hypothesis,
    dictionary: DataDictionary,
    numbers: ContractNumbers,
) -> None:
    """Add the facts for step three: whether a fair comparison could refute the claim."""
    named, refuted = f"a direction ({hypothesis.direction.replace('_', ' ')}), an", "this direction"
    if hypothesis.direction is Direction.EITHER:
        named, refuted = "an", "both directions"
    facts.add(
        "logic",
        "falsifiable",
        f"The claim names {named} endpoint ({hypothesis.endpoint}) and a comparison "
        f"({hypothesis.comparison.value}); an interval that excludes a relevant effect in "
        f"{refuted} would refute it.",
        "hypothesis",
        found=True,
    )
    kinds = {variable.key: variable.kind for variable in dictionary.variables}
    rules = {
        "the two values of a yes or no"
        if kinds.get(exposure.variable) == "binary"
        else exposure.cut.value
        for exposure in hypothesis.exposures
    }
    fixed = CutRule.FIXED.value in rules
    facts.add(
        "logic",
        "groups fixed beforehand",
        "Groups follow rules that do not use the outcome: "
        + ", ".join(sorted(rules))
        + ("; check that the fixed threshold was not tuned on this outcome." if fixed else "."),
        "hypothesis",
        found=True,
        share=0.8 if fixed else 1.0,
    )
    _circular(facts, hypothesis)
    _confounders(facts, hypothesis, numbers)
    _check_statement(facts, hypothesis)
    _terms(facts, numbers)
    if numbers.exposed is None:
        return
    group = round(numbers.exposed * numbers.patients)
    group = min(group, numbers.patients - group)
    facts.add(
        "logic",
        "groups large enough",
        f"The smaller of the two groups has {count_text(group)} of the"
        f" {count_text(numbers.patients, dictionary.n_patients)} patients whom the draft compares.",
        "draft contract",
        found=group >= 20,
        share=min(1.0, group / 50.0),
        value=safe_count(group),
        unit="patients",
        remedy="Join fewer conditions, or cut at the median.",
    )


def _circular(facts: FactList, hypothesis: Hypothesis) -> None:
    exposures = [exposure.variable for exposure in hypothesis.exposures]
    twice = sorted({exposure for exposure in exposures if exposures.count(exposure) > 1})
    both = sorted(set(exposures) & set(hypothesis.covariates))
    ends = [
        exposure for exposure in exposures if exposure.rpartition(":")[2] == hypothesis.endpoint
    ]
    problem = (
        f"{ends[0]} is the endpoint itself"
        if ends
        else f"{twice[0]} is listed twice"
        if twice
        else f"{both[0]} is both exposure and covariate"
        if both
        else ""
    )
    facts.add(
        "logic",
        "not circular",
        f"Circular: {problem}." if problem else "No exposure is also endpoint or covariate.",
        "hypothesis",
        found=not problem,
        blocking=bool(ends or twice),
        remedy=f"Remove the double use: {problem}.",
    )


def _confounders(facts: FactList, hypothesis: Hypothesis, numbers: ContractNumbers) -> None:
    if numbers.unadjusted is None:
        return
    left = join_names(numbers.unadjusted.values())
    facts.add(
        "logic",
        "confounders",
        f"Related to the exposure and not in the draft's adjusted model: {left}."
        if left
        else "What relates to the exposure is in the draft's adjusted model or the population.",
        "draft contract",
        found=not left,
        share=numbers.terms / (numbers.terms + len(numbers.unadjusted)),
        remedy=f"Adjust for {left} in addition to the primary test.",
        # Where the claim names none, the contract adjusts for as many as its events allow.
        adjust_for=tuple(numbers.unadjusted) if hypothesis.covariates else (),
    )


def _check_statement(facts: FactList, hypothesis: Hypothesis) -> None:
    parts = len(hypothesis.exposures) + len(hypothesis.untested)
    text = (
        "Parts of the statement that this cohort cannot test: " + "; ".join(hypothesis.untested)
        if hypothesis.untested
        else "Every part of the statement is tested."
    )
    facts.add(
        "logic",
        "statement covered",
        text,
        "hypothesis",
        found=True,
        share=1.0 - len(hypothesis.untested) / parts,
    )


def _terms(facts: FactList, numbers: ContractNumbers) -> None:
    events = numbers.event_count
    if events is None or numbers.refused:
        return
    per_term = events / numbers.terms
    enough = per_term >= EVENTS_PER_TERM
    facts.add(
        "logic",
        "events per model term",
        f"{per_term:.1f} expected events per model term ({count_text(events)} expected"
        f" events, {numbers.terms} terms of the draft's adjusted model).",
        "draft contract",
        found=enough,
        share=min(1.0, per_term / EVENTS_PER_TERM),
        value=per_term,
        unit="events per term",
        remedy="Use fewer covariates or a penalized model.",
    )
