"""The verdict: supported, not supported, or inconclusive, by the rules on this page alone.

1. Data. The primary test was refused or crashed: inconclusive (data).
2. Known positive. An association that must appear did not, with at least `KNOWN_EVENTS` events:
   inconclusive (control).
   A discovery part that did not reach its level is judged by rules 5 to 7; nothing is unlocked.
3. Negative control. The exposure moves an endpoint that it should not: inconclusive (control).
4. Evidence for. The primary test is significant after control over the ledger (q below alpha), in
   the expected direction. Then it is
   - inconclusive (control) if the permutation p is not below alpha, or the contract switched the
     permutations off;
   - inconclusive (control) if features of the same kind do as well (below the contract's
     percentile for an exposure);
   - inconclusive (assumption) if the sign is not stable over the specification curve, or the curve
     has no estimate for the claim's own choices;
   - inconclusive (assumption) if hazards are not proportional and the restricted mean survival
     difference does not agree;
   - inconclusive (assumption) if the adjusted effect points the other way, or p tests any
     association (spline, searched cut) and the interval of the slope includes none;
   - inconclusive (replication) if a second cohort contradicts it;
   - inconclusive (registration) if the contract was written after another one on the same
     exposures and endpoint (an earlier version, seed, cut, or name) gave results in these patients;
   - supported otherwise.
5. Evidence against. Significant in the other direction, or the interval excludes the smallest
   relevant effect in the expected direction, or not significant (nor before control over the
   ledger) although the events sufficed to find that effect with 80% power and the estimate is as
   precise as that takes (its standard error; strata, interactions and rare groups make events
   count for less): not supported; inconclusive (assumption) if hazards are not proportional and the
   restricted mean survival difference agrees with the claim.
6. Below alpha alone, but not after control over the ledger: inconclusive (multiplicity).
7. Otherwise inconclusive (power).

"Not supported" is a result, not a failure.
"""

from __future__ import annotations

from dataclasses import dataclass

from validation.contract import Contract
from validation.hypothesis import Direction
from validation.relevance import (
    excludes_relevant,
    expected_direction,
    is_precise,
    relevant_text,
)
from validation.results import (
    AnalysisResult,
    Reason,
    TestOutcome,
    Verdict,
    effect_text,
    p_is,
)

KNOWN_EVENTS = 50


@dataclass(frozen=True)
class Evidence:
    """All that the rules read.

    `q` is the primary p after control over the ledger; `seen` the hash of another version of the
    contract whose results came first.
    """

    contract: Contract
    analysis: AnalysisResult
    q: float | None
    family: int
    replicate: AnalysisResult | None = None
    locked: bool = False
    seen: str | None = None


def judge(evidence: Evidence) -> Verdict:
    """Apply the rules in order; the first that decides gives the verdict, all that spoke stay."""
    contract, analysis = evidence.contract, evidence.analysis
    limits = _limits(evidence)
    primary = analysis.test(contract.primary)
    if primary is None or primary.status != "ok" or primary.effect is None or primary.p is None:
        why = primary.reason if primary is not None else "the primary test did not run"
        return _verdict("inconclusive", "data", [_prevents("data", why)], limits)
    blocked = _controls_block(evidence)
    if blocked is not None:
        return _verdict("inconclusive", "control", [blocked], limits)
    expected = expected_direction(contract, primary.effect)
    again = _replication(evidence)
    q = evidence.q if evidence.q is not None else primary.p
    if evidence.locked:
        found = _under_hazards(evidence, _if_not(evidence, primary, q, expected, limits))
        text = (
            f"the discovery part ({p_is(primary.p)}) did not reach the registered level "
            f"{contract.split.unlock_alpha:g} in the expected direction; the confirmation patients "
            "stay locked"
        )
        reasons = (*found.reasons, _against("discovery", text))
        return found.model_copy(update={"reasons": reasons})
    if q < contract.rules.alpha and expected:
        return _if_significant(evidence, primary, q, limits)
    found = _under_hazards(evidence, _if_not(evidence, primary, q, expected, limits))
    if again is None:
        return found
    # Without a claim in the first cohort there is nothing to replicate; the second is reported.
    beside = Reason(rule="replication", outcome="limits", text=again.text)
    return found.model_copy(update={"reasons": (*found.reasons, beside)})


def _if_significant(
    evidence: Evidence, primary: TestOutcome, q: float, limits: list[str]
) -> Verdict:
    contract, analysis, rules = evidence.contract, evidence.analysis, evidence.contract.rules
    assert primary.effect is not None
    reasons = [
        _for(
            "primary",
            f"{effect_text(primary.effect)}, {p_is(primary.p)}; {p_is(q, 'q')} over "
            f"{_count(evidence.family, 'claim')} of the ledger",
        )
    ]
    doubts: list[tuple[str, Reason]] = []
    if _undirected(primary):
        text = "associated, but the interval of the slope includes none: no direction is shown"
        doubts.append(("assumption", _prevents("direction", text)))
    permuted = analysis.test("control.permuted")
    if permuted is not None and permuted.p is not None:
        if permuted.p >= rules.alpha:
            text = f"permutation {p_is(permuted.p)}: chance does as well"
            doubts.append(("control", _prevents("permuted outcome", text)))
        else:
            reasons.append(_for("permuted outcome", f"permutation {p_is(permuted.p)}"))
    elif not contract.controls.permutations:
        text = "the contract switches the permutations off: without them nothing is supported"
        doubts.append(("control", _prevents("permuted outcome", text)))
    for at, use in enumerate(contract.exposures, start=1):
        share = analysis.numbers.get(f"control.random.{at}.percentile")
        if share is None or share.value is None:
            continue
        draws = analysis.numbers.get(f"control.random.{at}.draws")
        shuffled = draws is not None and draws.unit == "permuted feature"
        kind = "permutations of" if shuffled else "comparable features in place of"
        text = f"stronger than {100 * share.value:.0f}% of {kind} "
        if share.value < rules.random_percentile:
            doubts.append(("control", _prevents("random features", f"only {text}{use.label}")))
        else:
            reasons.append(_for("random features", text + use.label))
    sign = analysis.numbers.get("specification.expected_sign")
    if sign is not None and sign.value is not None:
        text = f"expected sign in {100 * sign.value:.0f}% of the specifications"
        own, failed = (analysis.numbers.get(f"specification.{name}") for name in ("own", "failed"))
        if failed is not None and failed.value:
            limits.append(f"{failed.text} specifications could not be estimated")
        if sign.value < rules.sign_stability:
            doubts.append(("assumption", _prevents("specification curve", f"only {text}")))
        elif own is not None and not own.value:
            text += ", but the claim's own choices could not be estimated"
            doubts.append(("assumption", _prevents("specification curve", text)))
        else:
            reasons.append(_for("specification curve", text))
    hazard = _proportionality(contract, analysis)
    if hazard is not None:
        (doubts.append(("assumption", hazard)) if hazard.outcome == "prevents"
         else reasons.append(hazard))  # fmt: skip
    adjusted = analysis.test("adjusted")
    if adjusted is not None and adjusted.status != "ok":
        limits.append(f"the adjusted model gave no result ({adjusted.reason})")
    if adjusted is not None and adjusted.effect is not None:
        text = f"adjusted: {effect_text(adjusted.effect)}"
        if not expected_direction(contract, adjusted.effect):
            doubts.append(("assumption", _prevents("adjusted model", f"{text}: the other way")))
        elif (adjusted.p or 0) >= rules.alpha:
            text += ": the interval includes no effect"
            reasons.append(Reason(rule="adjusted model", outcome="limits", text=text))
            limits.append("not shown to be independent of the covariates")
        else:
            reasons.append(_for("adjusted model", text))
    incidence = analysis.test("fine_gray")
    if incidence is not None and incidence.effect is not None:
        text = f"with the competing event: {effect_text(incidence.effect)}"
        same = expected_direction(contract, incidence.effect)
        shown = "for" if same and (incidence.p or 0) < rules.alpha else "limits"
        reasons.append(Reason(rule="incidence", outcome=shown, text=text))
        if not same:
            limits.append(
                "the hazard of this cause and its cumulative incidence point in different "
                "directions: the claim is about the hazard alone"
            )
    again = _replication(evidence)
    if again is not None:
        if again.outcome == "prevents":
            doubts.append(("replication", again))
        else:
            reasons.append(again)
            if not _was_tested(evidence.replicate, contract):
                limits.append("no external validation: the second cohort could not be tested")
            elif again.outcome == "limits":
                limits.append("the second cohort points the same way without reaching alpha")
    elif evidence.replicate is None:
        limits.append("one cohort only; no external validation")
    if evidence.seen is not None:
        text = (
            f"written after contract {evidence.seen[:12]} gave results on the same claim in these "
            "patients: exploratory until it is tested in others, under a contract of their own"
        )
        doubts.append(("registration", _prevents("registration", text)))
    if doubts:
        return _verdict(
            "inconclusive", doubts[0][0], [*reasons, *(one for _, one in doubts)], limits
        )
    return _verdict("supported", "evidence", reasons, limits)


def _undirected(primary: TestOutcome) -> bool:
    """True where p tests any association (spline, best cut) and the slope's interval spans none."""
    effect, searched = primary.effect, primary.method in ("spline", "maximally_selected")
    assert effect is not None
    return searched and effect.signed(effect.lower) < 0 < effect.signed(effect.upper)


def _if_not(
    evidence: Evidence, primary: TestOutcome, q: float, expected: bool, limits: list[str]
) -> Verdict:
    contract = evidence.contract
    rules, effect = contract.rules, primary.effect
    assert effect is not None
    numbers = f"{effect_text(effect)}, {p_is(primary.p)}, {p_is(q, 'q')}"
    if not expected and (primary.p or 1) < rules.alpha and not _undirected(primary):
        text = f"significant in the other direction: {numbers}"
        return _verdict("not_supported", "evidence", [_against("primary", text)], limits)
    if excludes_relevant(contract, effect):
        text = (
            f"{numbers}: the interval excludes the smallest relevant effect "
            f"({relevant_text(contract, effect)})"
        )
        return _verdict("not_supported", "evidence", [_against("relevant effect", text)], limits)
    if expected and (primary.p or 1) < rules.alpha and not evidence.locked:
        text = (
            f"{numbers}: below {rules.alpha:g} alone, but not among the "
            f"{_count(evidence.family, 'claim')} of the ledger"
        )
        return _verdict("inconclusive", "multiplicity", [_prevents("ledger", text)], limits)
    needed = contract.power.required_events
    enough = needed is not None and (primary.events or 0) >= needed
    if enough and is_precise(contract, effect):
        text = (
            f"{numbers}, with {primary.events} events where {needed} suffice to find "
            f"{relevant_text(contract, effect)}"
        )
        return _verdict("not_supported", "evidence", [_against("power", text)], limits)
    text = f"{numbers}; neither shown nor excluded"
    if enough:
        text += (
            f": {primary.events} events would suffice to find {relevant_text(contract, effect)}, "
            "but they inform this comparison less (its interval is wider than that takes)"
        )
    elif needed is not None:
        text += (
            f": {primary.events} events, {needed} are needed to find "
            f"{relevant_text(contract, effect)} with 80% power"
        )
    return _verdict("inconclusive", "power", [_prevents("power", text)], limits)


def _controls_block(evidence: Evidence) -> Reason | None:
    """A control that makes any reading of the primary test unsafe."""
    contract, analysis = evidence.contract, evidence.analysis
    positive = analysis.test("control.known_positive")
    plan = contract.controls.known_positive
    if positive is not None and plan is not None and positive.status == "ok":
        hr = analysis.numbers["control.known_positive.hr"].value or 1.0
        right = (hr > 1) == (plan.direction is Direction.HIGHER_RISK)
        enough = (positive.events or 0) >= KNOWN_EVENTS
        if enough and (not right or positive.p is None or positive.p >= contract.rules.alpha):
            return _prevents(
                "known positive",
                f"{plan.label or plan.variable} does not show in these data (HR per SD {hr:.2f}, "
                f"{p_is(positive.p)}): the outcome data are in doubt",
            )
    negative = analysis.test("control.negative")
    if negative is not None and negative.p is not None and negative.p < contract.rules.alpha:
        return _prevents(
            "negative control",
            f"the exposure also moves {negative.endpoint}, which it should not "
            f"({p_is(negative.p)})",
        )
    return None


def _proportionality(contract: Contract, analysis: AnalysisResult) -> Reason | None:
    """Non-proportional hazards send the claim to the restricted mean survival difference."""
    test, rmst = analysis.test("schoenfeld"), analysis.test("rmst")
    if test is None or test.p is None:
        return None
    if test.p >= contract.rules.proportionality_alpha:
        return _for("proportional hazards", f"no sign against them ({p_is(test.p)})")
    text = f"hazards are not proportional ({p_is(test.p)})"
    if rmst is None or rmst.p is None or rmst.statistic is None:
        return Reason(
            rule="proportional hazards",
            outcome="limits",
            text=f"{text}: the hazard ratio is an average over follow-up",
        )
    months = analysis.numbers["rmst.horizon"].text
    detail = f"mean survival to {months} months differs by {rmst.statistic:.1f}"
    worse = rmst.statistic < 0
    agrees = worse == (contract.direction is Direction.HIGHER_RISK)
    if agrees and rmst.p < contract.rules.alpha:
        return _for("proportional hazards", f"{text}; {detail} ({p_is(rmst.p)}), which agrees")
    return _prevents(
        "proportional hazards", f"{text}, and {detail} ({p_is(rmst.p)}) does not bear it out"
    )


def _under_hazards(evidence: Evidence, found: Verdict) -> Verdict:
    """A ratio averaged over hazards that are not proportional refutes nothing by itself."""
    contract, analysis = evidence.contract, evidence.analysis
    test, hazard = analysis.test("schoenfeld"), _proportionality(contract, analysis)
    if test is None or hazard is None or (test.p or 0) >= contract.rules.proportionality_alpha:
        return found
    if hazard.outcome == "for" and found.verdict == "not_supported":
        reasons = [_prevents(hazard.rule, f"{hazard.text} with the claim"), *found.reasons]
        return _verdict("inconclusive", "assumption", reasons, list(found.limits))
    beside = Reason(rule=hazard.rule, outcome="limits", text=hazard.text)
    return found.model_copy(update={"reasons": (*found.reasons, beside)})


def _was_tested(second: AnalysisResult | None, contract: Contract) -> bool:
    found = second.test(contract.primary) if second is not None else None
    return found is not None and found.effect is not None


def _replication(evidence: Evidence) -> Reason | None:
    if evidence.replicate is None:
        return None
    contract = evidence.contract
    found = evidence.replicate.test(contract.primary)
    if found is None or found.effect is None or found.p is None:
        why = found.reason if found is not None else "the test did not run"
        return Reason(
            rule="replication",
            outcome="limits",
            text=f'cohort "{evidence.replicate.cohort}" could not be tested: {why}',
        )
    text = f'cohort "{evidence.replicate.cohort}": {effect_text(found.effect)}, {p_is(found.p)}'
    if not expected_direction(contract, found.effect):
        return _prevents("replication", f"{text}: the other direction")
    outcome = found.p < contract.rules.alpha
    return (
        _for("replication", text)
        if outcome
        else Reason(rule="replication", outcome="limits", text=text)
    )


def _limits(evidence: Evidence) -> list[str]:
    contract = evidence.contract
    limits = []
    if contract.simulated:
        limits.append("SIMULATED data: nothing follows for patients")
    limits += [f"not tested: {one}" for one in contract.untested]
    if contract.version > 1:
        limits.append(f"contract amended, version {contract.version}: {contract.amendment}")
    if evidence.seen is not None:
        limits.append(f"registered after contract {evidence.seen[:12]} gave results on this claim")
    elif contract.version > 1:
        limits.append("no results of another version in this ledger")
    for name in ("exposed", "reference"):
        events = evidence.analysis.numbers.get(f"{contract.primary}.{name}.events")
        if events is not None and events.value == 0:
            limits.append("no event in one of the groups: the effect's size rests on a penalty")
    for one in evidence.analysis.flow:
        if one.step in ("exposure", "outcome") and one.after < 0.5 * one.before:
            limits.append(f"{one.reason} in {one.after} of {one.before} patients only")
    for name, reason in sorted(evidence.analysis.controls.items()):
        if reason != "ran":
            limits.append(f"control {name} did not run: {reason}")
    return limits


def _verdict(verdict: str, because: str, reasons: list[Reason], limits: list[str]) -> Verdict:
    return Verdict.model_validate(
        {"verdict": verdict, "because": because, "reasons": reasons, "limits": limits}
    )


def _for(rule: str, text: str) -> Reason:
    return Reason(rule=rule, outcome="for", text=text)


def _against(rule: str, text: str) -> Reason:
    return Reason(rule=rule, outcome="against", text=text)


def _prevents(rule: str, text: str) -> Reason:
    return Reason(rule=rule, outcome="prevents", text=text)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
