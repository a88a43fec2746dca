"""Statements that a result supports, derived from its typed fields; no text is parsed."""

from __future__ import annotations

from collections.abc import Iterator

from agents.findings import render as say
from agents.findings.types import (
    AddedValue,
    AdjustedEffect,
    AlternativeExplanation,
    Assumption,
    BesideOther,
    Control,
    Direction,
    Effect,
    Finding,
    Generalization,
    Held,
    Interaction,
    MissingData,
    NextStep,
    NotAdjustedFor,
    NotMeasured,
    Replication,
    Sample,
    SecondaryEndpoint,
    Sensitivity,
    Significance,
    SubgroupEffect,
)
from sage.core.printable import within_sentence
from validation.contracts.contract import (
    DIFFERENCE_SOURCE,
    INDIRECT_SOURCE,
    RATIO_SOURCE,
    Contract,
)
from validation.core.hypothesis import Direction as Side
from validation.results.controls import Controls
from validation.results.results import Results, TestOutcome
from validation.verdict.relevance import (
    describe_side,
    expected_direction,
    side_of,
    unit_text,
)
from validation.verdict.verdict import adjusted_for, adjusted_plan


def hold(results: Results, contract: Contract) -> tuple[Held, ...]:
    """List every statement that the results support, with its sentence."""
    names = names_of(results, contract)
    found = dict.fromkeys(_list_held(results, contract, names))
    return tuple(Held(finding=item, sentence=say.render(item, names)) for item in found)


def names_of(results: Results, contract: Contract) -> say.Names:
    """Collect the phrases and number keys needed for the sentences."""
    labels = {endpoint.key: endpoint.label or endpoint.key for endpoint in contract.endpoints}
    labels |= {
        plan.id: plan.note
        for plan in contract.tests
        if plan.note and (plan.role == "subgroup" or plan.method == "fine_gray")
    }
    positive = contract.controls.known_positive
    known = next(
        (within_sentence(use.label) for use in contract.variables if use.role == "known_positive"),
        "",
    )
    return say.Names(
        numbers=results.numbers,
        labels=labels,
        primary_endpoint=labels.get(contract.primary_test.endpoint, ""),
        beside=describe_covariates(results, contract),
        per=unit_text(contract),
        part=results.tests[0].part if results.tests else "all",
        features=tuple(use.label for use in contract.claimed),
        drawn=tuple(
            found.describe(use.key)
            for use, found in zip(
                contract.claimed, (results.controls or Controls()).random, strict=False
            )
        ),
        compared=tuple(
            f"{use.level} {within_sentence(use.label)}"
            if use.kind != "binary"
            else within_sentence(use.label)
            for use in contract.exposures
        ),
        relevant=_name_relevant(contract),
        simulated=results.simulated,
        known=f"{known} with {within_sentence(labels[positive.endpoint])}" if positive else "",
        sides={
            results.key(test): describe_side(contract, side_of(test.effect), test.endpoint)
            for test in results.tests
            if test.effect is not None and test.role in KINDS
        },
        either=contract.direction is Side.EITHER,
        absent=adjusted.absent if (adjusted := results.test("adjusted")) else (),
        base=", ".join(use.label for use in contract.exposures if use not in contract.claimed),
    )


def _name_relevant(contract: Contract) -> str:
    """Describe the smallest relevant effect, noting when it is SAGE's convention."""
    sources = (RATIO_SOURCE, DIFFERENCE_SOURCE, INDIRECT_SOURCE)
    named = contract.relevant is not None and contract.relevant.source not in sources
    which = "by the contract" if named else "by SAGE's default"
    return (
        f"a {contract.effect_name} of {{}}{unit_text(contract)}, {which} the smallest that matters,"
    )


def describe_covariates(results: Results, contract: Contract) -> str:
    """Describe the covariates in the adjusted model and the estimation method."""
    plan, outcome = adjusted_plan(contract), results.test("adjusted")
    if plan is None:
        return ""
    beside = adjusted_for(contract, plan, outcome.absent if outcome else ())
    return beside + outcome.estimation_note if beside and outcome else beside


def _list_held(results: Results, contract: Contract, names: say.Names) -> Iterator[Finding]:
    # Of a score's calibration, the answer and the verdict's reasons state what was found.
    compared = list(_list_compared(results, contract)) if contract.associates else []
    yield from compared
    yield from _list_added_value(results)
    yield from _list_beside_other(results, contract)
    replication = _replication(results)
    yield replication
    yield from _list_controls(results, contract)
    if contract.primary_test.endpoint in {
        item.key for item in contract.endpoints if item.kind in ("survival", "competing")
    }:
        if (p := _p(results, "schoenfeld")) is not None:
            holds = p >= contract.rules.proportionality_alpha
            yield Assumption(subject=say.PROPORTIONAL, outcome="holds" if holds else "fails")
        yield Assumption(subject=say.CENSORING, outcome="untestable")
    sample = _sample(results, contract)
    if sample is not None:
        yield sample
    yield from _list_missing(results, contract)
    unadjusted = list(_list_unadjusted(results, contract, names)) if contract.associates else []
    yield from unadjusted
    for part in contract.hypothesis.untested:
        yield NotMeasured(subject=part)
    if contract.associates:
        yield from _list_alternatives(results, contract, compared)
    second = any(test.part == "replication" for test in results.tests)
    where = "simulated" if results.simulated else "two_cohorts" if second else "one_cohort"
    yield Generalization(subject=results.cohort, outcome=where)
    yield from _list_steps(contract, compared, replication, sample, unadjusted)


def _list_compared(results: Results, contract: Contract) -> Iterator[Finding]:
    """Yield the comparisons, omitting exploration patients if other patients confirm."""
    confirmed = any(test.part == "confirmation" for test in results.tests)
    for test in results.tests:
        if (
            test.status != "ok"
            or test.p is None
            or test.effect is None
            or test.role not in KINDS
            or test.part == "replication"
            or (confirmed and test.part == "discovery")
        ):
            continue
        kind = KINDS[test.role]
        if test.role == "secondary" and test.endpoint == contract.primary_test.endpoint:
            kind = Effect
        if test.role == "primary" and contract.hypothesis.comparison.is_product:
            kind = Interaction
        yield kind(
            subject=results.key(test),
            direction=_direction(test, contract),
            outcome=_significance(results, test, contract),
        )


KINDS: dict[
    str,
    type[Effect | Interaction | AdjustedEffect | SecondaryEndpoint | SubgroupEffect],
] = {
    "primary": Effect,
    "adjusted": AdjustedEffect,
    "secondary": SecondaryEndpoint,
    "subgroup": SubgroupEffect,
}
"""Kind of statement for each test role."""


def _direction(test: TestOutcome, contract: Contract) -> Direction:
    if test.effect is None:
        return "unknown"
    if contract.direction is Side.EITHER:
        shown = test.p is not None and test.p < contract.rules.alpha
        higher = side_of(test.effect) is Side.HIGHER_RISK
        return "unknown" if not shown else "higher" if higher else "lower"
    return "expected" if expected_direction(contract, test.effect) else "opposite"


def _significance(results: Results, test: TestOutcome, contract: Contract) -> Significance:
    """Return a test's significance; "open" if error control over the ledger revokes it."""
    alpha = contract.rules.alpha
    if test.p is None or test.p >= alpha:
        return "not_significant"
    q = results.numbers.get(f"{results.key(test)}.q")
    return "open" if q is not None and q.value is not None and q.value >= alpha else "significant"


def _p(results: Results, name: str) -> float | None:
    found = results.test(name)
    return found.p if found is not None and found.status == "ok" else None


def _value(results: Results, key: str) -> float | None:
    found = results.numbers.get(key)
    return None if found is None or found.value is None else float(found.value)


def _list_added_value(results: Results) -> Iterator[Finding]:
    low, high = (_value(results, f"concordance.gain_{end}") for end in ("lower", "upper"))
    if low is None or high is None:
        return
    outcome = "better" if low > 0 else "worse" if high < 0 else "open"
    yield AddedValue.model_validate({"subject": say.DISCRIMINATION, "outcome": outcome})


def _list_beside_other(results: Results, contract: Contract) -> Iterator[Finding]:
    for use, place in zip(contract.exposures, ("first", "second"), strict=False):
        if (p := _value(results, f"joint_groups.{place}.beside.p")) is not None:
            outcome = "adds" if p < contract.rules.alpha else "open"
            yield BesideOther.model_validate({"subject": use.label, "outcome": outcome})


def _replication(results: Results) -> Replication:
    said = {item.outcome for item in results.verdict.reasons if item.rule == "replication"}
    if not said:
        return Replication(subject=say.SECOND_COHORT, outcome="not_run")
    outcome = "replicated" if said == {"for"} else "not_replicated"
    return Replication.model_validate({"subject": say.SECOND_COHORT, "outcome": outcome})


def _list_controls(results: Results, contract: Contract) -> Iterator[Finding]:
    controls, rules = results.controls or Controls(), contract.rules
    prevented = {item.rule for item in results.verdict.reasons if item.outcome == "prevents"}

    def outcome(subject: str, passed: bool) -> Control:
        return Control(subject=subject, outcome="passed" if passed else "failed")

    permuted, known, negative = controls.permuted, controls.known_positive, controls.negative
    if permuted is not None and permuted.p is not None:
        yield outcome(say.PERMUTED, permuted.p < rules.alpha)
    for use, found in zip(contract.claimed, controls.random, strict=False):
        if found.percentile is not None:
            yield outcome(use.label, found.percentile >= rules.random_percentile)
    if known is not None and known.p is not None:
        yield outcome(say.KNOWN, known.p < rules.alpha and "known positive" not in prevented)
    if negative is not None and negative.p is not None:
        yield outcome(say.NEGATIVE, "negative control" not in prevented)
    curve = controls.specification
    if curve is not None and curve.ran and curve.stable is not None:
        stable = curve.stable >= rules.sign_stability
        yield Sensitivity(subject=say.CURVE, outcome="stable" if stable else "unstable")


def _sample(results: Results, contract: Contract) -> Sample | None:
    primary, needed = results.test(contract.primary), contract.power.required_events
    if primary is None or primary.events is None or needed is None:
        return None
    enough = primary.events >= needed
    return Sample(subject="events", outcome="enough" if enough else "too_few")


def _list_missing(results: Results, contract: Contract) -> Iterator[Finding]:
    found = (results.controls or Controls()).missingness
    if found is not None and found.missing is not None:
        outcome = "none" if found.missing == 0 else "some"
        if found.p is not None:
            outcome = "related" if found.p < contract.rules.alpha else "unrelated"
            ends, ratio = (found.lower, found.upper), contract.rules.relevant_ratio
            inside = all(end is None or 1 / ratio <= end <= ratio for end in ends)
            outcome = "unclear" if outcome == "unrelated" and not inside else outcome
        yield MissingData.model_validate({"subject": say.EXPOSURE, "outcome": outcome})
    if (share := _value(results, "missing_data.complete")) is not None:
        yield MissingData(subject=say.COVARIATES, outcome="none" if share >= 1 else "some")


def _list_unadjusted(
    results: Results, contract: Contract, names: say.Names
) -> Iterator[NotAdjustedFor]:
    adjusted = results.test("adjusted")
    if not names.beside and not contract.strata:
        yield NotAdjustedFor(subject=say.COVARIATES)
    for label in adjusted.absent if adjusted is not None else ():
        yield NotAdjustedFor(subject=label)
    for use in contract.variables:
        if use.role == "unadjusted":
            yield NotAdjustedFor(subject=use.label)


def _list_alternatives(
    results: Results, contract: Contract, compared: list[Finding]
) -> Iterator[Finding]:
    primary = [item for item in compared if item.subject == "primary"]
    if not any(getattr(item, "outcome", "") == "significant" for item in primary):
        yield AlternativeExplanation(subject="chance")
    if not any(exposure.randomized for exposure in contract.hypothesis.exposures):
        yield AlternativeExplanation(subject="confounding")
    missingness = (results.controls or Controls()).missingness
    if missingness is not None and missingness.missing:
        yield AlternativeExplanation(subject="selection")
    yield AlternativeExplanation(subject="measurement")
    kinds = {item.key: item.kind for item in contract.endpoints}
    if kinds.get(contract.primary_test.endpoint) in ("binary", "continuous"):
        yield AlternativeExplanation(subject="reverse_causation")


def _list_steps(
    contract: Contract,
    compared: list[Finding],
    replication: Replication,
    sample: Sample | None,
    unadjusted: list[NotAdjustedFor],
) -> Iterator[NextStep]:
    primary = next((item for item in compared if item.subject == "primary"), None)
    turned = getattr(primary, "direction", "") == "opposite"
    if turned and getattr(primary, "outcome", "") == "significant":
        yield NextStep(subject="direction", design="turn_round")
    if replication.outcome == "not_run":
        yield NextStep(subject=say.NEW_COHORT, design="repeat")
    unclear = getattr(primary, "outcome", "") != "significant"
    if sample is not None and sample.outcome == "too_few" and unclear:
        yield NextStep(subject="events", design="enlarge")
    if any(item.subject == say.COVARIATES for item in unadjusted):
        yield NextStep(subject=say.COVARIATES, design="adjust")
    for part in contract.hypothesis.untested:
        yield NextStep(subject=part, design="measure")
    for found in compared:
        if isinstance(found, SecondaryEndpoint) and found.outcome == "significant":
            yield NextStep(subject=found.subject.rpartition(".")[0], design="test_endpoint")
