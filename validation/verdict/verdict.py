"""The rules for the verdict: supported, small effect, not supported, or inconclusive.

The verdict depends only on the rules below. It is based on three answers, each with its
estimate and 95% interval:

- *Association.* Yes: the primary test is significant after control over the ledger (q
  below alpha), in the expected direction; or the primary test shows a sign of the
  association (p below `CLEAR` times alpha) and the registered adjusted model, with its
  p-value in the ledger in place of the primary p-value, is significant after that
  control. A test that omits other predictors of the outcome underestimates the same
  effect (Gail, Wieand and Piantadosi 1984, Biometrika), so that requiring alpha of both
  tests is stricter than alpha. The two routes to significance share alpha, since each
  counts in either direction. The second route is not available if a cut or a curve was
  searched, because the adjusted p-value does not account for the search, or if the ranks
  of a rank test point in the opposite direction to the means, which define the direction.
  No: the estimate is refuted, that is, the interval excludes the smallest relevant effect
  and the estimate is close to no effect (less than `NEAR` times the smallest relevant
  effect, on the log scale for ratios). Unclear otherwise. In a campaign, the p-value must
  also stay below the level set by its online control (`validation.statistics.online`):
  the p-value in the confirmation patients, or in the second cohort if another cohort
  confirms.
- *Independence.* The registered covariates are in the model together with the exposure.
  Yes: the adjusted effect is significant in the expected direction. No: it is significant
  in the other direction, or its interval excludes the smallest relevant effect. Unclear
  otherwise. Not answered: the contract adjusts for nothing, or the adjusted model gave no
  result. If the contract has strata but no covariates, the primary test compares within
  strata and answers this question too.
- *Relevance.* The adjusted estimate decides if there is one, otherwise the primary
  estimate. Yes: the interval is entirely at or beyond the smallest relevant effect, which
  the contract states on a single scale regardless of how the marker is cut
  (`Contract.relevant`). No: the interval excludes the smallest relevant effect. Unclear
  otherwise.

A claim may state an association without a direction (`Direction.EITHER`). The direction
found then replaces the expected direction for all questions above and below
(`validation.verdict.relevance.settle_direction`):

- If the discovery part unlocked other patients, it is the direction of the discovery
  estimate. The confirmation must show that direction, as if the claim had named it.
- Otherwise it is the direction of the primary estimate, if the primary p-value is below
  alpha. That p-value is two-sided, so that the probability of a false association is
  alpha; it is alpha / 2 if a direction is named. Only the primary test can show this
  association: with the adjusted model as a second route, in either direction, the
  combined error rate could be twice alpha. The adjusted model, the restricted mean, the
  specification curve, sites and a second cohort must agree with the direction found.
- Without a direction found, both are expected: association is answered no only if the
  interval excludes the smallest relevant effect in both directions, and a restricted mean
  in either direction keeps a claim from being "not supported".

Random features are compared by the absolute value of their statistic, because such a
claim would have accepted either sign.

The rules, in order:

1. Data. The primary test gave no effect with interval and p-value: inconclusive (data).
2. Fail closed. A registered control did not run, the known positive is not detected, or
   the exposure affects the negative control (`validation.verdict.objections`, 1 to 3):
   inconclusive (control), regardless of the answers. An exposure that was not known at
   baseline (4): inconclusive (data).
3. Association yes. Supported, or a small effect if relevance is answered no, unless there
   is an objection:
   - timing: the time at which an exposure, covariate, stratum or filter became known is
     not declared (`validation.verdict.objections`, 9);
   - confounding: a related variable that is not in the model overturns the claim
     (`validation.verdict.objections`, 10);
   - independence: independence is not answered yes. A contract may declare that there is
     nothing to adjust for, with the reason (a randomized exposure) or by a causal
     diagram; the verdict then states this instead of independence;
   - control, assumption: a control objects (rules 5 to 8 of
     `validation.verdict.objections`), or the effect is small and the known positive is
     not shown either;
   - objections supplied with the evidence (`Evidence.objections`);
   - assumption: hazards are not proportional and the restricted mean survival difference
     does not support the claim, the hazards cross
     (`validation.verdict.relevance.reverses`), or proportionality was registered and not
     tested;
   - replication: a second cohort contradicts the claim, or does not confirm it if a
     campaign relies on it for confirmation;
   - registration: the contract was written after another contract for the same exposures
     and endpoint gave results in these patients; this does not apply if a second cohort
     confirms.
4. Otherwise, if the primary and the deciding estimate are both refuted: not supported;
   but inconclusive (assumption) if hazards are not proportional and the restricted mean
   survival difference agrees with the claim, or if the hazards cross, inconclusive
   (confounding) if a related variable hides an effect, and inconclusive (control) if the
   known positive is not shown either. This includes an association that is too small to
   matter and encounters an objection.
5. Otherwise, if association is answered yes: inconclusive; the first objection gives the
   verdict its name, and all are listed among the reasons.
6. Otherwise, inconclusive, for the first of these reasons that applies:
   - assumption: a test for any association (spline, searched cut) is significant but the
     slope shows no effect, or a rank test is significant but its ranks and means point in
     opposite directions;
   - independence: an effect appears only after adjustment, or independence is answered
     no;
   - relevance: the interval excludes the smallest relevant effect;
   - independence: the p-value is below alpha in the expected direction, but the adjusted
     p-value is not;
   - multiplicity: the p-value is below alpha in the expected direction, but not after
     control over the ledger;
   - power.

For the calibration of a published score, absence of a difference proves nothing. After
rules 1 and 2, it is supported only if the intervals of observed / expected events and of the
slope both lie within the contract's margins, q is below alpha, and nothing objects. It is not
supported if either interval lies wholly outside, and otherwise inconclusive (power).

A discovery part whose p-value did not reach its level is judged by rules 4 and 6, and
nothing is unlocked.

For the same estimates, no change of q leads from supported to not supported: the former
requires an interval that reaches the smallest relevant effect, the latter intervals that
do not. As an estimate changes, there is always an inconclusive range or a small effect
between them, because a nonsignificant estimate at or beyond `NEAR` times the smallest
relevant effect is not refuted. As patients are added and the estimates stay the same,
supported, small effect and not supported never become inconclusive. Power computed after
the fact decides nothing (Hoenig and Heisey 2001, Am Stat); the interval does.

"Not supported" and "small effect" are results, not failures.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from sage.core.printable import join_names, within_sentence
from validation.contracts.contract import Contract, TestPlan
from validation.core.hypothesis import Direction
from validation.drafting.adjustment import adjust
from validation.methods.absolute import lost_limits
from validation.methods.imputed import covariate_limits
from validation.methods.sites import site_limits
from validation.results.results import (
    AnalysisResult,
    Answer,
    Because,
    Effect,
    Objection,
    Reason,
    TestOutcome,
    Verdict,
    Word,
    effect_text,
    p_is,
)
from validation.verdict.kinds import (
    agreement,
    answer_calibration,
    judge_calibration,
    kind_limits,
    later_endpoints,
    shown_words,
)
from validation.verdict.objections import (
    confounding_objections,
    control_objections,
    control_reasons,
    missingness_limit,
    timing_objections,
    unshown_positive,
)
from validation.verdict.relevance import (
    allows_relevant,
    direction_found,
    expected_direction,
    refutes_relevant,
    rejects_proportional,
    relevant_text,
    reverses,
    settle_direction,
    shows_relevant,
    unit_text,
)

CLEAR = 2.0
"""Multiple of alpha above which a p-value shows no sign of an association."""
TURNED_ROUND = "associated in the other direction"
SIMULATED = "simulated data: nothing follows for patients"
"""Limitation of every result from a simulated cohort."""
SEARCHED = ("spline", "maximally_selected")
"""Methods whose p-value tests for any association found by searching."""
UNDIRECTED = (*SEARCHED, "nested", "mediation")
"""Methods whose p-value tests for an association in any direction; the effect is a slope."""
TOO_SMALL = "too small to matter"
OPEN = "an effect that matters is neither shown nor excluded"
NOT_PROPORTIONAL = "hazards are not proportional"
REVERSES = "the association reverses during follow-up"
CONTRADICTED = "a second cohort contradicts it"
OTHER_CLAIMS = "not significant when all claims tested on these patients are counted"


@dataclass(frozen=True)
class Evidence:
    """All inputs to the rules.

    `q` is the primary p-value after control over the ledger (None if the ledger does not
    contain the claim), and `q_adjusted` is the same for the adjusted model's p-value in its
    place (None if the model gave no p-value). `q_of` has the same for later endpoints in a
    hierarchy, each in place of the primary p-value. `discovery` is the part that unlocked the
    patients of `analysis`. `seen` is the hash of another version of the contract whose
    results came first. `objections` and `qualifiers` come from other parts of the program:
    reasons against "supported", and words that the badge always includes. `family` is the
    number of claims in the ledger, `questions` the number of distinct questions among them.
    """

    contract: Contract
    analysis: AnalysisResult
    q: float | None
    family: int
    replicate: AnalysisResult | None = None
    discovery: AnalysisResult | None = None
    locked: bool = False
    seen: str | None = None
    objections: tuple[Objection, ...] = ()
    qualifiers: tuple[str, ...] = ()
    q_adjusted: float | None = None
    q_of: Mapping[str, float] = field(default_factory=dict)
    questions: int | None = None


@dataclass(frozen=True)
class _Found:
    """A verdict based on the three answers, before applying rules that exclude any conclusion."""

    verdict: Word
    because: Because
    reasons: tuple[Reason, ...]
    words: str


def judge(evidence: Evidence) -> Verdict:
    """Apply the rules in this module to the evidence."""
    analysis = evidence.analysis
    found_before = evidence.discovery.tests if evidence.discovery is not None else ()
    contract = settle_direction(evidence.contract, (*analysis.tests, *found_before))
    evidence = replace(evidence, contract=contract)
    limits = _limits(evidence)
    primary = analysis.test(contract.primary)
    unsafe = [
        objection
        for objection in (*control_objections(contract, analysis.controls), *evidence.objections)
        if objection.any_reading
    ]
    if primary is None or not _is_measured(primary):
        why = "the primary test did not run" if primary is None else primary.reason
        reason = Reason(rule="data", outcome="prevents", text=why or "the primary test has no p")
        found = _Found("inconclusive", "data", (reason,), "the primary test gave no result")
        answers: tuple[Answer, ...] = ()
    elif not contract.associates:
        answers, found = answer_calibration(contract, analysis), _calibration(evidence)
    else:
        answers = (
            answer_association(evidence, primary),
            name_unadjusted(evidence, answer_independence(evidence, primary)),
            answer_relevance(evidence, primary),
        )
        found = _on_answers(evidence, primary, answers, limits)
    if unsafe and answers:
        reasons = (*(objection.reason for objection in unsafe), *found.reasons)
        found = _Found("inconclusive", unsafe[0].because, reasons, unsafe[0].words)
    later = later_endpoints(
        contract,
        analysis,
        evidence.q_of,
        found.verdict,
        measured=_is_measured,
        undirected=_undirected,
    )
    return Verdict(
        verdict=found.verdict,
        because=found.because,
        reasons=(*found.reasons, *later),
        limits=tuple(limits),
        answers=answers,
        qualifiers=(found.words, *evidence.qualifiers),
    )


# -- the three answers ---------------------------------------------------------------------------


def answer_association(evidence: Evidence, primary: TestOutcome) -> Answer:
    """Determine whether the exposure is associated with the outcome in the expected direction."""
    contract, alpha = evidence.contract, evidence.contract.rules.alpha
    effect, p, q = _estimate(primary)[0], _estimate(primary)[1], evidence.q
    expected = expected_direction(contract, effect)
    text = f"{_effect_per_unit(contract, effect)}, {p_is(p)}, {_over_the_ledger(evidence)}"
    if direction := direction_found(contract):
        text = f"{direction}: {text}"
    if contract.online is not None:
        text += f", {p_is(contract.online.level, 'level')} in the campaign"
    if _undirected(primary) and p < alpha:
        answer = "unclear"
    elif expected and not evidence.locked and q is not None and q < alpha and p < _level(evidence):
        answer = "yes"
    elif expected and p < CLEAR * alpha and _shown_beside_covariates(evidence, primary):
        answer = "yes"
        text += f"; with the p adjusted for {independent_of(evidence)} in its place,"
        text += f" {p_is(evidence.q_adjusted, 'q')}"
    elif not refutes_relevant(contract, effect):
        answer = "unclear"
    elif p < alpha:
        answer, text = "no", f"significant in the other direction: {text}"
    else:
        answer = "no"
        text += f": the interval excludes the smallest relevant effect ({relevant_text(contract)})"
    return _answer("association", answer, text, effect, p)


def _shown_beside_covariates(evidence: Evidence, primary: TestOutcome) -> bool:
    """Check whether the adjusted model is significant as expected after control over the ledger."""
    contract, q = evidence.contract, evidence.q_adjusted
    plan = adjusted_plan(contract)
    found = None if plan is None else evidence.analysis.test(plan.id)
    if found is None or not _is_measured(found) or primary.method in SEARCHED or evidence.locked:
        return False
    undirected = contract.hypothesis.direction is Direction.EITHER and evidence.discovery is None
    if _ranks_turn(primary) or undirected:
        return False
    effect, p = _estimate(found)
    enough = q is not None and q < contract.rules.alpha and p < _level(evidence)
    return enough and expected_direction(contract, effect)


def _level(evidence: Evidence) -> float:
    """Return the level below which the p-value in the claim's own patients must stay.

    If a second cohort confirms a campaign's claim, the campaign's level applies to that
    cohort instead.
    """
    contract = evidence.contract
    if contract.online is None or _confirmed_elsewhere(evidence):
        return math.inf
    return contract.online.level


def _confirmed_elsewhere(evidence: Evidence) -> bool:
    contract = evidence.contract
    return (
        contract.online is not None
        and contract.split.policy == "none"
        and evidence.replicate is not None
    )


def _over_the_ledger(evidence: Evidence) -> str:
    if evidence.q is None and evidence.locked:
        return "no q, as no confirmation patient was tested"
    text = f"{p_is(evidence.q, 'q')} over {_count(evidence.family, 'claim')} of the ledger"
    if evidence.questions is not None and evidence.questions != evidence.family:
        text += f" that ask {_count(evidence.questions, 'question')}"
    return text


def answer_independence(evidence: Evidence, primary: TestOutcome) -> Answer:
    """Determine whether the effect adjusted for covariates has the expected direction."""
    contract = evidence.contract
    plan = adjusted_plan(contract)
    if plan is None and not contract.primary_test.strata:
        declared = reason_for_none(contract)
        text = f"nothing to adjust for: {declared}" if declared else "no covariate is prespecified"
        return _answer("independence", "not answered", text)
    found = primary if plan is None else evidence.analysis.test(plan.id)
    if found is None or not _is_measured(found):
        why = "it did not run" if found is None else found.reason
        return _answer("independence", "not answered", f"the adjusted model gave no result ({why})")
    if not independent_of(evidence):
        text = "no prespecified covariate has a term in the model"
        return _answer("independence", "not answered", text)
    effect, p = _estimate(found)
    expected, significant = expected_direction(contract, effect), p < contract.rules.alpha
    if significant and _undirected(found):
        answer = "unclear"
    elif significant:
        answer = "yes" if expected else "no"
    else:
        answer = "unclear" if allows_relevant(contract, effect) else "no"
    lacking = f" (no term for {join_names(absent)})" if (absent := _absent(evidence)) else ""
    beside = f"{independent_of(evidence)}{lacking}{found.estimation_note}"
    text = f"adjusted for {beside}: {_effect_per_unit(contract, effect)}, {p_is(p)}"
    if answer == "no":
        why = "the interval excludes the smallest relevant effect"
        text += f": {'significant in the other direction' if significant else why}"
    return _answer("independence", answer, text, effect, p)


def reason_for_none(contract: Contract) -> str:
    """Return why a contract adjusts for nothing: as declared, or by its causal diagram."""
    claim = contract.hypothesis
    exposures = [use.key for use in contract.exposures]
    if claim.causes and adjust(claim.causes, exposures, claim.endpoint).covariates == ():
        return claim.unadjusted_because or "nothing confounds it in the causal diagram"
    return claim.unadjusted_because


def name_unadjusted(evidence: Evidence, independence: Answer) -> Answer:
    """Add the names of related variables that are not in the model to the independence answer."""
    uses = [use for use in evidence.contract.variables if use.role == "unadjusted"]
    labels = tuple(within_sentence(use.label) for use in uses)
    text = f"{independence.text}; not adjusted for: {', '.join(labels)}"
    return (
        independence.model_copy(update={"text": text, "unadjusted": labels})
        if labels
        else independence
    )


def answer_relevance(evidence: Evidence, primary: TestOutcome) -> Answer:
    """Determine whether the deciding interval reaches the smallest relevant effect."""
    contract = evidence.contract
    effect, p = _estimate(_deciding(evidence, primary))
    if not allows_relevant(contract, effect):
        answer, words = "no", "excludes"
    elif shows_relevant(contract, effect):
        answer, words = "yes", "lies wholly at or beyond"
    else:
        answer, words = "unclear", "reaches"
    text = (
        f"{_effect_per_unit(contract, effect)}: the interval {words} the smallest relevant effect"
    )
    text += f" ({relevant_text(evidence.contract)})"
    return _answer("relevance", answer, text, effect, p)


def _deciding(evidence: Evidence, primary: TestOutcome) -> TestOutcome:
    """Return the adjusted model if it gave a result, otherwise the primary test."""
    plan = adjusted_plan(evidence.contract)
    adjusted = None if plan is None else evidence.analysis.test(plan.id)
    return primary if adjusted is None or not _is_measured(adjusted) else adjusted


def adjusted_plan(contract: Contract) -> TestPlan | None:
    """Return the registered test for the primary endpoint with the covariates in the model."""
    return next((plan for plan in contract.tests if plan.id == "adjusted"), None)


def independent_of(evidence: Evidence) -> str:
    """Name the covariates with terms in the model that tests independence."""
    plan = adjusted_plan(evidence.contract) or evidence.contract.primary_test
    return adjusted_for(evidence.contract, plan, _absent(evidence))


def adjusted_for(contract: Contract, plan: TestPlan, absent: tuple[str, ...] = ()) -> str:
    """Name a test's covariates and strata, except those without a term in the model."""
    labels = {use.key: use.label for use in contract.variables if use.role != "exposure"}
    names = [labels.get(key, key) for key in (*plan.covariates, *plan.strata)]
    return join_names(within_sentence(name) for name in names if name not in absent)


def _absent(evidence: Evidence) -> tuple[str, ...]:
    plan = adjusted_plan(evidence.contract) or evidence.contract.primary_test
    found = evidence.analysis.test(plan.id)
    return found.absent if found is not None else ()


# -- from answers to a verdict -------------------------------------------------------------------


def _on_answers(
    evidence: Evidence, primary: TestOutcome, answers: tuple[Answer, ...], limits: list[str]
) -> _Found:
    association = answers[0]
    refuted = association.answer != "unclear" and all(
        refutes_relevant(evidence.contract, _effect(test))
        for test in (primary, _deciding(evidence, primary))
    )
    if association.answer == "yes":
        found = _if_associated(evidence, answers, limits)
        if not (refuted and found.verdict == "inconclusive"):
            return found
        return _if_refuted(evidence, found.reasons, TOO_SMALL)
    if refuted:
        against = Reason(rule="primary", outcome="against", text=association.text)
        found = _if_refuted(evidence, (against,), _describe_refuted(evidence, primary))
    else:
        found = _if_unclear(evidence, primary, answers)
    reasons = list(found.reasons)
    hazard = _proportionality(evidence.contract, evidence.analysis)
    if hazard is not None and rejects_proportional(evidence.contract, evidence.analysis):
        reasons.append(Reason(rule=hazard.rule, outcome="limits", text=hazard.text))
    if evidence.locked:
        reasons.append(_locked_reason(evidence, primary))
    again = _replication(evidence)
    if again is not None:
        # Without a claim in the first cohort there is nothing to replicate; it is only reported.
        reasons.append(Reason(rule="replication", outcome="limits", text=again.text))
    return _Found(found.verdict, found.because, tuple(reasons), found.words)


def _if_associated(evidence: Evidence, answers: tuple[Answer, ...], limits: list[str]) -> _Found:
    contract, analysis = evidence.contract, evidence.analysis
    association, independence, relevance = answers
    reasons = [_supports("primary", association.text)]
    doubts = timing_objections(contract)
    dependent = _dependence(evidence, independence)
    if dependent is not None:
        doubts.append(dependent)
    elif independence.answer == "yes":
        reasons.append(_supports("adjusted model", independence.text))
    small = relevance.answer == "no"
    word: Word = "small_effect" if small else "supported"
    doubts += confounding_objections(contract, analysis.controls, word)
    outcome = "for" if relevance.answer == "yes" else "against" if small else "limits"
    reasons.append(
        Reason.model_validate(
            {"rule": "relevant effect", "outcome": outcome, "text": relevance.text}
        )
    )
    if small and (unshown := unshown_positive(contract, analysis.controls)) is not None:
        doubts.append(unshown)
    reasons += control_reasons(contract, analysis.controls)
    doubts += _milder(evidence)
    hazard = _proportionality(contract, analysis)
    if hazard is not None and hazard.outcome == "prevents":
        words = REVERSES if reverses(contract, analysis) else NOT_PROPORTIONAL
        doubts.append(Objection("assumption", hazard.rule, words, hazard.text))
    elif hazard is not None:
        reasons.append(hazard)
    reasons += _incidence(evidence, limits)
    again = _replication(evidence)
    if again is not None and again.outcome == "prevents":
        words = CONTRADICTED
        if _confirmed_elsewhere(evidence):
            words = "not confirmed in a second cohort"
        doubts.append(Objection("replication", "replication", words, again.text))
    elif again is not None:
        reasons.append(again)
        if not _was_tested(evidence.replicate, contract):
            limits.append("no external validation: the second cohort could not be tested")
        elif again.outcome == "limits":
            assert evidence.replicate is not None
            second = evidence.replicate.test(contract.primary)
            assert second is not None
            turned = _ranks_turn(second)
            how = "by its means, not by its ranks" if turned else "without reaching alpha"
            limits.append(f"the second cohort points the same way {how}")
    if evidence.seen is not None and not _confirmed_elsewhere(evidence):
        doubts.append(_exploratory(evidence.seen))
        limits.remove(_seen_before(evidence.seen))
    if doubts:
        reasons += [doubt.reason for doubt in doubts]
        return _Found("inconclusive", doubts[0].because, tuple(reasons), doubts[0].words)
    associated = f"associated {direction_found(contract)}".rstrip()
    words = shown_words(contract, associated, independent_of(evidence))
    if independence.answer == "not answered":
        words = f"{associated}; {independence.text}"
    if small:
        words += f"; {TOO_SMALL}"
    elif relevance.answer == "unclear":
        words += "; whether it is large enough to matter is open"
    return _Found(word, "evidence", tuple(reasons), words)


def _milder(evidence: Evidence) -> list[Objection]:
    """List the objections of controls and other parts that rule out only "supported"."""
    found = (*control_objections(evidence.contract, evidence.analysis.controls),
             *evidence.objections)  # fmt: skip
    return [objection for objection in found if not objection.any_reading]


def _exploratory(seen: str) -> Objection:
    text = (
        f"the claim was written after contract {seen[:12]} had compared the same or "
        "nearly the same groups of these patients; it is exploratory until it is tested in "
        "other patients under a new contract"
    )
    words = "the claim was written after results in these patients were seen"
    return Objection("registration", "registration", words, text)


def _calibration(evidence: Evidence) -> _Found:
    contract, again = evidence.contract, _replication(evidence)
    doubts = [*timing_objections(contract), *_milder(evidence)]
    if again is not None and again.outcome == "prevents":
        doubts.append(Objection("replication", "replication", CONTRADICTED, again.text))
    if evidence.seen is not None:
        doubts.append(_exploratory(evidence.seen))
    found = _Found(*judge_calibration(contract, evidence.analysis, evidence.q, doubts))
    more = () if again is None or again in found.reasons else (again,)
    return replace(found, reasons=(*found.reasons, *more))


def _dependence(evidence: Evidence, independence: Answer) -> Objection | None:
    """Return the objection to calling the effect independent; None if there is no objection."""
    if independence.answer == "yes":
        return None
    if independence.answer == "not answered":
        if adjusted_plan(evidence.contract) is None and reason_for_none(evidence.contract):
            return None
        words = f"not adjusted: {independence.text.split(' (')[0]}"
    elif independence.answer == "no":
        words = f"no relevant effect after adjustment for {independent_of(evidence)}"
    else:
        words = f"not shown after adjustment for {independent_of(evidence)}"
    text = f"{words}: {independence.text}" if independence.effect else independence.text
    return Objection("independence", "adjusted model", words, text)


def _if_refuted(evidence: Evidence, against: tuple[Reason, ...], words: str) -> _Found:
    contract, analysis = evidence.contract, evidence.analysis
    hazard = _proportionality(contract, analysis)
    if hazard is not None and reverses(contract, analysis):
        return _Found("inconclusive", "assumption", (hazard, *against), REVERSES)
    if rejects_proportional(contract, analysis) and hazard is not None and hazard.outcome == "for":
        agrees = _prevents(hazard.rule, f"{hazard.text} with the claim")
        return _Found("inconclusive", "assumption", (agrees, *against), NOT_PROPORTIONAL)
    unshown = next(
        confounding_objections(contract, analysis.controls, "not_supported"),
        unshown_positive(contract, analysis.controls),
    )
    if unshown is not None:
        reasons = (unshown.reason, *against)
        return _Found("inconclusive", unshown.because, reasons, unshown.words)
    return _Found("not_supported", "evidence", against, words)


def _describe_refuted(evidence: Evidence, primary: TestOutcome) -> str:
    contract, (effect, p) = evidence.contract, _estimate(primary)
    if contract.direction is Direction.EITHER:
        return "no relevant association in either direction"
    if p < contract.rules.alpha and not expected_direction(contract, effect):
        return TURNED_ROUND
    return "no relevant association in the claimed direction"


def _if_unclear(evidence: Evidence, primary: TestOutcome, answers: tuple[Answer, ...]) -> _Found:
    association, independence, relevance = answers
    contract = evidence.contract
    alpha = contract.rules.alpha
    effect, p = _estimate(primary)
    alone = expected_direction(contract, effect) and p < alpha and not evidence.locked
    dependent = _dependence(evidence, independence)
    because: Because
    if _undirected(primary) and p < alpha:
        because, rule, words = "assumption", "direction", "associated, but no direction is shown"
        why = "the interval of the slope includes none"
        if _ranks_turn(primary):
            why = "p is of ranks, and the ranks point the other way than the means"
        text = f"{association.text}: {why}"
    elif association.answer == "no" and independence.answer == "yes":
        because, rule, text = "independence", "adjusted model", independence.text
        words = f"an effect appears only after adjustment for {independent_of(evidence)}"
    elif independence.answer == "no" and dependent is not None:
        because, rule, words, text = "independence", dependent.rule, dependent.words, dependent.text
    elif relevance.answer == "no":
        because, rule, words = "relevance", "relevant effect", f"if associated, {TOO_SMALL}"
        text = f"{association.text}: the interval excludes {relevant_text(evidence.contract)}"
    elif alone and independence.answer == "unclear" and dependent is not None:
        because, rule, words, text = "independence", dependent.rule, dependent.words, dependent.text
    elif alone:
        because, rule, words = "multiplicity", "ledger", OTHER_CLAIMS
        text = f"{association.text}: below {alpha:g} alone, but not among the claims of the ledger"
    else:
        because, rule, words = "power", "power", OPEN
        text = (
            f"{association.text}; neither shown nor excluded{_describe_needed(evidence, primary)}"
        )
    return _Found("inconclusive", because, (_prevents(rule, text),), words)


def _describe_needed(evidence: Evidence, primary: TestOutcome) -> str:
    needed, sought = evidence.contract.power.required_events, relevant_text(evidence.contract)
    if needed is None:
        return ""
    return f": {primary.events or 0} events, {needed} are needed to find {sought} with 80% power"


def _locked_reason(evidence: Evidence, primary: TestOutcome) -> Reason:
    text = (
        f"the discovery part ({p_is(primary.p)}) did not reach the prespecified level "
        f"{evidence.contract.split.unlock_alpha:g} in {_which(evidence.contract)} direction; the "
        "confirmation patients stay locked"
    )
    return Reason(rule="discovery", outcome="against", text=text)


# -- additional evidence -------------------------------------------------------------------------


def _proportionality(contract: Contract, analysis: AnalysisResult) -> Reason | None:
    """Evaluate a claim with non-proportional hazards by the restricted mean survival difference."""
    rule = "proportional hazards"
    registered = {plan.id for plan in contract.tests}
    if "schoenfeld" not in registered:
        return None
    test, rmst = analysis.test("schoenfeld"), analysis.test("rmst")
    if test is None or test.p is None:
        why = f" ({test.reason})" if test is not None and test.reason else ""
        return _prevents(rule, f"prespecified, and could not be tested{why}")
    if not rejects_proportional(contract, analysis):
        return _supports(rule, f"no sign against proportional hazards ({p_is(test.p)})")
    text = f"hazards are not proportional ({p_is(test.p)}{_by_period(analysis)})"
    if reverses(contract, analysis):
        return _prevents(rule, f"{text}: {REVERSES}")
    if "rmst" not in registered:
        text += ": the hazard ratio is an average over follow-up"
        return Reason(rule=rule, outcome="limits", text=text)
    if rmst is None or rmst.p is None or rmst.statistic is None:
        return _prevents(rule, f"{text}, and the restricted mean difference could not be computed")
    horizon = analysis.numbers.get("rmst.horizon")
    until = f" to {horizon.text} months" if horizon is not None else ""
    worse = rmst.statistic < 0
    more = "shorter" if worse else "longer"
    detail = (
        f"mean time to the event{until} is {abs(rmst.statistic):.1f} months {more} in the exposed"
    )
    agrees = contract.direction is not (Direction.LOWER_RISK if worse else Direction.HIGHER_RISK)
    if agrees and rmst.p < contract.rules.alpha:
        return _supports(rule, f"{text}; {detail} ({p_is(rmst.p)}), which agrees")
    return _prevents(rule, f"{text}; {detail} ({p_is(rmst.p)}), which does not bear the claim out")


def _by_period(analysis: AnalysisResult) -> str:
    """Describe how the effect changes over follow-up; "" if not tested."""
    keys = ("cut", "early.summary", "late.summary")
    found = [analysis.numbers.get(f"period_hazards.{key}") for key in keys]
    texts = [number.text for number in found if number is not None]
    return f"; {texts[1]} up to {texts[0]} months, {texts[2]} after" if len(texts) == 3 else ""


def _incidence(evidence: Evidence, limits: list[str]) -> Iterator[Reason]:
    """Yield the reason that compares a cause-specific claim with the cumulative incidence.

    The incidence is estimated in the presence of the competing event.
    """
    contract = evidence.contract
    incidence = evidence.analysis.test("fine_gray")
    if incidence is None or incidence.effect is None:
        return
    text = f"with the competing event: {effect_text(incidence.effect)}"
    same = expected_direction(contract, incidence.effect)
    shown = same and incidence.p is not None and incidence.p < contract.rules.alpha
    if not same:
        limits.append(
            "the hazard of this cause and its cumulative incidence point in different "
            "directions: the claim is about the hazard alone"
        )
    yield Reason(rule="incidence", outcome="for" if shown else "limits", text=text)


def _was_tested(second: AnalysisResult | None, contract: Contract) -> bool:
    found = second.test(contract.primary) if second is not None else None
    return found is not None and _is_measured(found)


def _replication(evidence: Evidence) -> Reason | None:
    if evidence.replicate is None:
        return None
    contract = evidence.contract
    found = evidence.replicate.test(contract.primary)
    elsewhere = _confirmed_elsewhere(evidence)
    if found is None or not _is_measured(found):
        why = found.reason if found is not None else "the test did not run"
        return Reason(
            rule="replication",
            outcome="prevents" if elsewhere else "limits",
            text=f'cohort "{evidence.replicate.cohort}" could not be tested: {why}',
        )
    effect, p = _estimate(found)
    text = f'cohort "{evidence.replicate.cohort}": {_effect_per_unit(contract, effect)}, {p_is(p)}'
    turned = _ranks_turn(found)
    against = "" if expected_direction(contract, effect) else "the other direction"
    if not contract.associates:
        outside = agreement(answer_calibration(contract, evidence.replicate)) == "no"
        against = "outside the margins" if outside else ""
    if turned:
        text += "; its ranks point the other way than its means"
        against = "no direction is shown" if not against and elsewhere else against
    if not against and contract.online is not None and elsewhere and p >= contract.online.level:
        against = f"not confirmed at the campaign's {p_is(contract.online.level, 'level')}"
    if against:
        return _prevents("replication", f"{text}: {against}")
    outcome = "for" if p < contract.rules.alpha and not turned else "limits"
    return Reason.model_validate({"rule": "replication", "outcome": outcome, "text": text})


def _seen_before(contract: str) -> str:
    return (
        f"written after contract {contract[:12]} gave results on this claim, or on a claim that"
        " sorts these patients nearly alike"
    )


def _limits(evidence: Evidence) -> list[str]:
    contract, plan = evidence.contract, evidence.contract.controls
    limits = []
    if contract.simulated:
        limits.append(SIMULATED)
    limits += [f"not tested: {part}" for part in contract.untested]
    if contract.version > 1:
        limits.append(f"contract amended, version {contract.version}: {contract.amendment}")
    if evidence.seen is not None:
        limits.append(_seen_before(evidence.seen))
    elif contract.version > 1:
        limits.append("no results of another version in this ledger")
    if evidence.replicate is None:
        limits.append("one cohort only; no external validation")
    limits += _contract_notes(contract)
    limits += kind_limits(contract, evidence.analysis)
    for name in ("exposed", "reference"):
        events = evidence.analysis.numbers.get(f"{contract.primary}.{name}.events")
        if events is not None and events.value == 0:
            limits.append("no event in a group: the effect's size rests on a penalty")
    for step in evidence.analysis.joins:
        if step.step in ("exposure", "outcome") and step.after < 0.5 * step.before:
            limits.append(f"{step.reason} in {step.after} of {step.before} patients only")
    curve = evidence.analysis.controls.specification if evidence.analysis.controls else None
    if curve is not None and curve.ran and curve.failed:
        assert curve.n is not None
        total = curve.n + curve.failed
        limits.append(f"{curve.failed} of {total} specifications could not be estimated")
    limits += site_limits(evidence.analysis, contract.rules.alpha)
    limits += lost_limits(evidence.analysis, contract.rules.alpha)
    limits += covariate_limits(evidence.analysis, contract.rules.alpha)
    limits += missingness_limit(contract, evidence.analysis.controls)
    positive = evidence.analysis.controls.known_positive if evidence.analysis.controls else None
    if plan.known_positive is None:
        limits.append("no known positive: the contract names no association that must appear")
    elif positive is not None and positive.p is not None and positive.p >= contract.rules.alpha:
        limits.append(f"the known positive is not significant ({p_is(positive.p)})")
    for name, draws in (
        ("permuted outcome", plan.permutations),
        ("random features", plan.random_features),
    ):
        if draws == 0 and contract.associates:
            limits.append(f"control {name} is switched off in the contract")
    return limits


def _contract_notes(contract: Contract) -> list[str]:
    """Return notes on the cohort, exposures and primary endpoint."""
    labels = [contract.cohort, *(use.label for use in contract.exposures)]
    labels.append(contract.endpoint(contract.primary_test.endpoint).label)
    names = tuple(f"{label}: " for label in labels)
    return [note for note in contract.notes if note.startswith(names)]


def _which(contract: Contract) -> str:
    return "either" if contract.direction is Direction.EITHER else "the expected"


# -- small parts ---------------------------------------------------------------------------------


def _is_measured(outcome: TestOutcome) -> bool:
    """Check whether a test ran, with a numeric effect, interval and p-value."""
    if outcome.status != "ok" or outcome.effect is None or outcome.p is None:
        return False
    effect = outcome.effect
    known = not any(math.isnan(limit) for limit in (effect.lower, effect.upper))
    return known and math.isfinite(effect.value) and 0 <= outcome.p <= 1


def _estimate(outcome: TestOutcome) -> tuple[Effect, float]:
    """Return the effect and p-value of a measured test."""
    assert outcome.effect is not None
    assert outcome.p is not None
    return outcome.effect, outcome.p


def _effect_per_unit(contract: Contract, effect: Effect) -> str:
    """Render an effect with its interval and its unit."""
    return f"{effect_text(effect)}{unit_text(contract)}"


def _effect(outcome: TestOutcome) -> Effect:
    return _estimate(outcome)[0]


def _undirected(primary: TestOutcome) -> bool:
    """Check whether the direction of the test differs from that of its estimate.

    This is the case if the p-value tests for any association (spline, best cut, several
    terms) and the slope's interval includes no effect, or if ranks and means point in
    opposite directions.
    """
    effect, any_direction = _effect(primary), primary.method in UNDIRECTED
    spans = effect.distance_from_null(effect.lower) < 0 < effect.distance_from_null(effect.upper)
    return (any_direction and spans) or _ranks_turn(primary)


def _ranks_turn(primary: TestOutcome) -> bool:
    """Check whether exposed patients have lower ranks but a higher mean, or the reverse."""
    if primary.method != "rank" or primary.statistic is None:
        return False
    effect = _effect(primary)
    higher = effect.distance_from_null(effect.value) > 0
    return primary.statistic < 0.5 if higher else primary.statistic > 0.5


def _answer(
    question: str, answer: str, text: str, effect: Effect | None = None, p: float | None = None
) -> Answer:
    return Answer.model_validate(
        {"question": question, "answer": answer, "text": text, "effect": effect, "p": p}
    )


def _supports(rule: str, text: str) -> Reason:
    return Reason(rule=rule, outcome="for", text=text)


def _prevents(rule: str, text: str) -> Reason:
    return Reason(rule=rule, outcome="prevents", text=text)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
