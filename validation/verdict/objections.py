"""Objections from controls against a claim, as pure functions of contract and results.

1. A registered control that did not run counts against any conclusion from the data,
   since its result is unknown. A control that an analysis leaves out counts as not run.
2. Known positive. An association that must appear did not, with at least `KNOWN_EVENTS`
   events, and the data exclude the smallest relevant effect (between groups, converted to
   a ratio per standard deviation): the outcome data are in doubt. If the association is
   neither shown nor excluded, only "not supported" is ruled out (`unshown_positive`):
   mixed-up outcomes hide associations but do not create them.
3. Negative control. The exposure affects an endpoint that it should not affect.
4. Timing. An exposure, covariate, stratum or filter reveals which patients have the
   event, or grew with follow-up, which no baseline variable can do
   (`validation.statistics.leakage`): the data cannot answer the question. This control
   does not apply to a time-dependent exposure, which counts from the time it occurred.
5. Permuted outcome. The exposure performs as well after permutation as before (p not
   below alpha), or the contract turned the permutations off.
6. Random features. Fewer than the contract's share of comparable features perform worse.
   This null is competitive: the question is not whether the exposure is associated with
   the outcome, but whether it is more strongly associated than comparable features. If a
   fifth of all genes are prognostic, as in TCGA-BLCA (21% of 18,032 genes have p < 0.05
   adjusted for age), a gene needs a p of about 0.012.
7. Specification curve. The sign is not stable over the registered choices, or the curve
   has no estimate for the claim's own choices.
8. Missingness. Patients without the exposure have different outcomes than patients with
   it (p below `MISSING_ALPHA`, within strata): the complete cases were selected by their
   course. From `MISSING_ALPHA` to alpha, the report states this as a limitation. The
   control also objects if patients without the outcome have different exposures: exposed
   patients who were lost may have fared differently.
9. Undeclared timing. The time at which an exposure, covariate, stratum or filter became
   known is not declared: a variable known only after the start of follow-up favors
   patients who survived until then (`timing_objections`).
10. Confounding. If a related variable that the contract leaves out is added to the model,
    or all of them are, the effect is not significant in the expected direction, or its
    interval excludes the smallest relevant effect that it reached before, or no
    comparison remains possible. A variable that changes neither the estimate nor its
    precision by a tenth does not confound it (Maldonado and Greenland 1993, American
    Journal of Epidemiology), regardless of the resulting p-value. "Not supported" is
    ruled out if a relevant effect appears. The variables are selected only by their
    relation to the exposure (`validation.drafting.balance`).

Rules 1 to 4 rule out any conclusion; rules 5 to 10 rule out only "supported".
"""

from __future__ import annotations

from collections.abc import Iterator

from sage.core.printable import join_names, within_sentence
from validation.cohort.model import declaration_remedy
from validation.contracts.contract import Contract
from validation.core.hypothesis import Direction
from validation.results.controls import (
    ControlResult,
    Controls,
    ControlStatus,
    KnownPositiveResult,
    Specifications,
)
from validation.results.results import (
    Effect,
    Objection,
    Reason,
    Word,
    effect_text,
    p_is,
    percent,
)
from validation.statistics.power import HALVES
from validation.verdict.relevance import allows_relevant, expected_direction

KNOWN_EVENTS = 50
READINGS = {
    "supported": "an effect appears",
    "small_effect": "the effect is too small to matter",
    "not_supported": "no effect is shown",
}
"""Interpretations of an estimate with an unadjusted variable in the model."""
AGREES = {
    "supported": ("supported",),
    "small_effect": ("supported", "small_effect"),
    "not_supported": ("small_effect", "not_supported"),
}
"""Readings that are compatible with each verdict."""
MISSING_ALPHA = 0.01
"""Significance level for missingness.

It is lower than usual, since values are often missing for unimportant reasons.
"""


def registered_controls(
    contract: Contract, controls: Controls
) -> Iterator[tuple[str, ControlResult | None]]:
    """Yield every control requested by the contract, with its result (None if there is none)."""
    plan = contract.controls
    if plan.known_positive is not None:
        yield "known positive", controls.known_positive
    if plan.negative_endpoint is not None:
        yield "negative control", controls.negative
    if plan.permutations > 0:
        yield "permuted outcome", controls.permuted
    if plan.random_features > 0:
        for at, use in enumerate(contract.redrawn):
            found = controls.random[at] if at < len(controls.random) else None
            yield f"random features in place of {use.label}", found
    if contract.associates:
        yield "specification curve", controls.specification
    if not contract.hypothesis.time_dependent:
        yield "timing", controls.timing
        if plan.missingness:
            yield "missingness", controls.missingness


def control_objections(contract: Contract, controls: Controls | None) -> list[Objection]:
    """List the controls' objections, with those that rule out any conclusion first."""
    controls = controls or Controls()
    found = [
        _did_not_run(name, result)
        for name, result in registered_controls(contract, controls)
        if result is None or not result.ran
    ]
    found += _known_positive(contract, controls)
    found += _negative_control(contract, controls)
    found += _timing(controls)
    found += _permuted_outcome(contract, controls)
    found += _random_features(contract, controls)
    found += _specification_curve(contract, controls)
    found += _missingness(controls)
    return found


def timing_objections(contract: Contract) -> list[Objection]:
    """List objections to variables with undeclared timing."""
    compared = ("exposure", "covariate", "stratum", "filter")
    unsaid = {
        use.key: use.label
        for use in contract.variables
        if use.known_at == "unknown" and use.role in compared
    }
    if not unsaid:
        return []
    words = f"it is not declared when {join_names(unsaid.values())} became known"
    text = f"{words}: {declaration_remedy(unsaid)}"
    return [Objection("timing", "declared timing", words, text)]


def confounding_objections(
    contract: Contract, controls: Controls | None, word: Word
) -> Iterator[Objection]:
    """Yield an objection to a verdict for each unadjusted variable that invalidates it."""
    curve = (controls or Controls()).specification
    for found in curve.unadjusted if curve is not None else ():
        names = join_names(within_sentence(label) for label in found.labels)
        words, text = f"the exposure cannot be told apart from {names}", found.reason
        turns = found.inseparable and word != "not_supported"
        if found.value is not None:
            assert found.p is not None
            given = {name: getattr(found, name) for name in ("value", "lower", "upper")}
            effect = Effect.model_validate({**given, "scale": contract.scale})
            shown = found.p < contract.rules.alpha and expected_direction(contract, effect)
            reading: Word = "not_supported"
            if shown:
                reading = "supported" if allows_relevant(contract, effect) else "small_effect"
            turns = reading not in AGREES[word] and found.moved
            words = f"with {names} in the model, {READINGS[reading]}"
            text = f"{words}: {effect_text(effect)}, {p_is(found.p)}"
        if turns:
            yield Objection("confounding", "unadjusted variables", words, text)


def control_reasons(contract: Contract, controls: Controls | None) -> list[Reason]:
    """List reasons from controls that ran and do not object."""
    controls = controls or Controls()
    against = {objection.rule for objection in control_objections(contract, controls)}
    reasons = []
    if controls.permuted is not None and controls.permuted.ran:
        reasons.append(("permuted outcome", f"permutation {p_is(controls.permuted.p)}"))
    reasons += [
        ("random features", text)
        for _, share, text in _random_texts(contract, controls)
        if share >= contract.rules.random_percentile
    ]
    if controls.specification is not None and controls.specification.ran:
        reasons.append(("specification curve", _sign_text(contract, controls.specification)))
    return [
        Reason(rule=rule, outcome="for", text=text)
        for rule, text in reasons
        if rule == "random features" or rule not in against
    ]


def _did_not_run(name: str, result: ControlResult | None) -> Objection:
    status = result.status if result is not None else "not run"
    why = f": {result.reason}" if result is not None else ""
    if status == ControlStatus.OFF:
        status = "switched off, against the contract"
    return Objection(
        because="control",
        rule=name,
        words=f"the control {name} {_describe_end(status)}",
        text=f"the prespecified control was {status}{why}",
        any_reading=True,
    )


def _describe_end(status: str) -> str:
    return "crashed" if status == ControlStatus.CRASHED else f"was {status}"


def _known_positive(contract: Contract, controls: Controls) -> Iterator[Objection]:
    plan, found = contract.controls.known_positive, controls.known_positive
    if plan is None or found is None or not found.ran:
        return
    assert found.hr is not None
    assert found.p is not None
    assert found.events is not None
    as_expected = found.hr > 1 if plan.direction is Direction.HIGHER_RISK else found.hr < 1
    shown = as_expected and found.p < contract.rules.alpha
    if found.events >= KNOWN_EVENTS and not shown and not _may_be_relevant(contract, found):
        yield Objection(
            because="control",
            rule="known positive",
            words=f"{plan.label or plan.variable}, a known association, is not seen",
            text=(
                f"{plan.label or plan.variable} does not show in these data (HR per SD "
                f"{found.hr:.2f}, {p_is(found.p)}): the outcome data are in doubt"
            ),
            any_reading=True,
        )


def _may_be_relevant(contract: Contract, found: KnownPositiveResult) -> bool:
    """Check whether the known positive's interval reaches the smallest relevant effect."""
    plan, ratio = contract.controls.known_positive, contract.rules.relevant_ratio
    assert plan is not None
    per_sd = ratio ** (1 / HALVES)
    if plan.direction is Direction.HIGHER_RISK:
        return found.upper is not None and found.upper >= per_sd
    return found.lower is not None and found.lower <= 1 / per_sd


def unshown_positive(contract: Contract, controls: Controls | None) -> Objection | None:
    """Object to refuting a claim if the known positive is not shown either."""
    found = controls.known_positive if controls is not None else None
    if contract.controls.known_positive is None or found is None or found.p is None:
        return None
    assert found.events is not None
    if found.events < KNOWN_EVENTS or found.p < contract.rules.alpha:
        return None
    text = f"the known positive is not shown in these data either ({p_is(found.p)})"
    words = "a known association is not seen in these patients either"
    return Objection("control", "known positive", words, text)


def _negative_control(contract: Contract, controls: Controls) -> Iterator[Objection]:
    found = controls.negative
    if found is None or not found.ran:
        return
    assert found.p is not None
    if not found.p >= contract.rules.alpha:
        yield Objection(
            because="control",
            rule="negative control",
            words=f"the exposure also goes with {found.endpoint}, which it should not affect",
            text=(
                f"the exposure also moves {found.endpoint}, which it should not ({p_is(found.p)})"
            ),
            any_reading=True,
        )


def _timing(controls: Controls) -> Iterator[Objection]:
    found = controls.timing
    if found is None or not (found.leaks or found.beside):
        return
    what = "the exposure" if found.leaks else "a covariate, stratum or filter"
    yield Objection(
        because="data",
        rule="timing",
        words=f"{what} was not known at baseline",
        text="; ".join((*found.leaks, *found.beside)),
        any_reading=True,
    )


def _permuted_outcome(contract: Contract, controls: Controls) -> Iterator[Objection]:
    if contract.controls.permutations == 0 and contract.associates:
        yield _switched_off("permuted outcome", "the permutations")
        return
    found = controls.permuted
    if found is None or not found.ran:
        return
    assert found.p is not None
    if not found.p < contract.rules.alpha:
        yield Objection(
            because="control",
            rule="permuted outcome",
            words="shuffled outcomes give as strong an effect too often",
            text=f"permuted outcomes do as well too often (permutation {p_is(found.p)})",
        )


def _random_features(contract: Contract, controls: Controls) -> Iterator[Objection]:
    if contract.controls.random_features == 0 and contract.associates:
        yield _switched_off("random features", "the random features")
        return
    for words, share, text in _random_texts(contract, controls):
        if not share >= contract.rules.random_percentile:
            yield Objection(
                because="control",
                rule="random features",
                words=words,
                text=f"only {text}",
            )


def _random_texts(contract: Contract, controls: Controls) -> Iterator[tuple[str, float, str]]:
    """Yield the objection's words, share and text for each exposure's random features."""
    for use, found in zip(contract.claimed, controls.random, strict=False):
        if found.ran:
            assert found.percentile is not None
            assert found.draws is not None
            permuted = found.kind == "permuted feature"
            label = (
                f"all {len(contract.claimed)} markers"
                if contract.hypothesis.penalty
                else within_sentence(use.label)
            )
            weaker = round(found.percentile * found.draws)
            kind = "permutations of" if permuted else "matched genes for"
            either = contract.hypothesis.direction is Direction.EITHER
            which = "either" if either else "the claimed"
            text = f"stronger in {which} direction than {weaker} of {found.draws} {kind} {label}"
            words = (
                f"not specific to {label}: in its place, {found.draws - weaker} of {found.draws}"
                f" {found.describe(use.key)} predict at least as well"
            )
            yield words, found.percentile, text


def _specification_curve(contract: Contract, controls: Controls) -> Iterator[Objection]:
    found = controls.specification
    if found is None or not found.ran:
        return
    assert found.stable is not None
    text = _sign_text(contract, found)
    words = "the direction depends on analytical choices"
    if not found.stable >= contract.rules.sign_stability:
        text = f"only {text}"
    elif not found.own:
        words = "the claim's own choices could not be estimated in the curve"
        text += ", but the claim's own choices could not be estimated"
    else:
        return
    yield Objection(because="assumption", rule="specification curve", words=words, text=text)


def _missingness(controls: Controls) -> Iterator[Objection]:
    found = controls.missingness
    if found is None:
        return
    if found.unseen_p is not None and not found.unseen_p >= MISSING_ALPHA:
        yield Objection(
            because="assumption",
            rule="missingness",
            words="patients with a missing outcome had other exposures",
            text=(
                f"the exposure of the {found.unseen} patients without the outcome differs from "
                f"that of the others ({p_is(found.unseen_p)})"
            ),
        )
    if found.p is not None and not found.p >= MISSING_ALPHA:
        yield Objection(
            because="assumption",
            rule="missingness",
            words="patients with a missing exposure had different outcomes",
            text=(
                f"the outcome of the {found.missing} patients without the exposure differs from "
                f"that of the {(found.n or 0) - (found.missing or 0)} with it ({p_is(found.p)})"
            ),
        )


def missingness_limit(contract: Contract, controls: Controls | None) -> list[str]:
    """List the limitation about patients without the exposure if rule 8 does not object."""
    found = controls.missingness if controls is not None else None
    if found is None or found.p is None or not MISSING_ALPHA <= found.p < contract.rules.alpha:
        return []
    return [
        f"the outcome of the {found.missing} patients without the exposure may differ from that of"
        f" the others ({p_is(found.p)})"
    ]


def _sign_text(contract: Contract, found: Specifications) -> str:
    either = contract.hypothesis.direction is Direction.EITHER
    text = "sign of the primary test" if either else "expected sign"
    text += f" in {percent(found.expected_sign or 0)} of the {found.n} specifications"
    if found.left_out_sign is not None:
        share = percent(found.left_out_sign)
        text += f" and in {share} of the {found.left_out} estimates leaving out a site"
    return text


def _switched_off(rule: str, what: str) -> Objection:
    return Objection(
        because="control",
        rule=rule,
        words=f"{what} are switched off",
        text=f"the contract switches {what} off: without them nothing is supported",
    )
