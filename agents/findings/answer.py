"""Answer to a claim: a sentence written from its results, and the strongest objection."""

from __future__ import annotations

from pydantic import Field, computed_field

from agents.core.base import View
from agents.findings.hold import names_of
from agents.findings.render import Names
from sage.core.printable import join_names, within_sentence
from validation.contracts.contract import Contract
from validation.core.hypothesis import Comparison, Exposure, describe_outcome
from validation.results.results import Results, TestOutcome, short_scale
from validation.verdict.relevance import reverses, side_of, unit_text

NOT_TESTED = {
    "infeasible": "Not tested: the claim was judged infeasible.",
    "abandoned": "Not tested: the analysis was given up.",
    "pending": "Not finished.",
}
"""Answers for hypotheses without results, by evaluation outcome."""
VERDICT_WORDS = {
    "supported": "Supported",
    "small_effect": "Small effect",
    "inconclusive": "Inconclusive",
    "not_supported": "Not supported",
    "infeasible": "Not tested",
    "abandoned": "Not tested",
    "pending": "Not finished",
}
"""Text for each verdict or evaluation outcome, in the order of claims in a report."""
MEANING = {
    "supported": "The association is as claimed, also beside the plan's covariates; it may be large"
    " enough to matter, and no check prevents the verdict. It is not proof of a cause.",
    "small_effect": "The association is as claimed, also beside the plan's covariates, and too"
    " small to matter by the prespecified threshold.",
    "inconclusive": "The data neither support nor exclude the claim, or a check prevents a"
    " conclusion.",
    "not_supported": "An effect of the claimed direction that is large enough to matter is"
    " excluded.",
}
"""What each verdict means (`validation.verdict.verdict`)."""
MEANING_OF_CALIBRATION = {
    "supported": "The intervals of observed/expected events and of the calibration slope lie within"
    " the prespecified margins, and no check prevents the verdict.",
    "inconclusive": MEANING["inconclusive"],
    "not_supported": "Observed/expected events or the calibration slope lie outside the"
    " prespecified margins.",
}
SLOPE = ("slope.effect", "slope.lower", "slope.upper")
UNCONFIRMED = "Not yet confirmed in a second cohort."


class Answer(View):
    """The answer to a claim.

    `sentence` states the groups compared, the outcome, the size of the difference and the
    adjustment. `objection` is the strongest reason for doubt. `verdict` is the verdict, or
    the outcome of an evaluation without a verdict. `effect` is the primary estimate with its
    interval, and `figure` is the path to the curve within the run folder. `calibration` is
    true if the claim is about a score's calibration. In text from
    `answer_results`, numbers are written as `[[key]]`.
    """

    verdict: str
    sentence: str
    objection: str = ""
    effect: str = ""
    figure: str = ""
    calibration: bool = Field(default=False, exclude_if=lambda given: not given)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def verdict_words(self) -> str:
        """The verdict as text."""
        return VERDICT_WORDS[self.verdict]

    @property
    def meaning(self) -> str:
        """What the verdict means; empty without a verdict."""
        meaning = MEANING_OF_CALIBRATION if self.calibration else MEANING
        return meaning.get(self.verdict, "")


def answer_results(results: Results, contract: Contract, disease: str = "") -> Answer:
    """Write the answer to the contract's claim from the results, for patients with `disease`."""
    verdict, primary = results.verdict, results.test(contract.primary)
    doubt = ""
    if verdict.verdict == "inconclusive" and verdict.qualifiers:
        doubt = capitalize(verdict.qualifiers[0]) + "."
    elif verdict.verdict in ("supported", "small_effect") and results.replicate is None:
        doubt = UNCONFIRMED
    curve = next(
        (name for name in ("kaplan_meier", "cumulative_incidence") if name in results.figures),
        next(iter(results.figures), ""),
    )
    home = f"hypotheses/{contract.hypothesis.id}/results"
    if primary is None or primary.p is None or primary.effect is None:
        why = primary.reason if primary is not None else ""
        sentence = f"The claim could not be tested{f': {why}' if why else ''}."
        effect = ""
    else:
        names = names_of(results, contract)
        crossed = reverses(contract, results)
        details = "; ".join(_details(primary, contract, names, crossed=crossed))
        patients = "simulated patients" if contract.simulated else "patients"
        who = f"Among {patients} with {disease}, those" if disease else capitalize(patients)
        said = (
            _compare_periods(results, contract, who)
            if crossed
            else _compare(primary, contract, who)
        )
        sentence = f"{said} ({details})."
        effect = _by_period(names) if crossed else _effect(contract.primary, primary, names)
        effect += names.per
    return Answer(
        verdict=verdict.verdict,
        sentence=sentence,
        objection=doubt,
        effect=effect,
        figure=f"{home}/{results.figures[curve].file}" if curve else "",
        calibration=not contract.associates,
    )


def capitalize(text: str) -> str:
    """Return the text with its first letter in upper case."""
    return text[:1].upper() + text[1:]


def _compare(primary: TestOutcome, contract: Contract, patients: str) -> str:
    """Describe the groups compared among `patients` and the outcome, without numbers."""
    assert primary.effect is not None
    assert primary.p is not None
    endpoint = contract.endpoint(contract.primary_test.endpoint)
    label = within_sentence(endpoint.label or endpoint.key)
    differ = primary.p < contract.rules.alpha
    worse = primary.effect.distance_from_null(primary.effect.value) > 0
    first, *others = contract.hypothesis.exposures
    comparison, link = contract.comparison, ("than", "from")
    if comparison in (Comparison.PREDICTIVE, Comparison.MODIFICATION):
        if not differ:
            return (
                f"The {contract.exposed} on {label} did not differ clearly from the"
                f" {contract.reference}"
            )
        return (
            f"The {contract.exposed} on {label} had a {'higher' if worse else 'lower'}"
            f" {primary.effect.scale} than the {contract.reference}"
        )
    if comparison is Comparison.MEDIATION:
        verb = "ran" if differ else "was not clearly shown to run"
        return (
            f"Part of the association of {_side(first)} with {label} {verb} through"
            f" {within_sentence(others[0].label)}"
        )
    if comparison is Comparison.CALIBRATED:
        verb = "agreed" if differ else "were not shown to agree"
        score = within_sentence(first.label)
        return f"Risks of {label} predicted by {score} {verb} with those observed, within margins"
    if comparison is Comparison.ADDED:
        verb = "added" if differ else "did not clearly add"
        base = within_sentence(first.label)
        text = f"{capitalize(f'{within_sentence(others[0].label)}')} {verb} to {base}"
        if not differ:
            return f"{text} in predicting {label}"
        direction = side_of(primary.effect)
        side = _more(others[0]) if unit_text(contract) else _side(others[0])
        outcome = describe_outcome(direction, endpoint.kind, label)
        return f"{text}: at the same {base}, {side} went with {outcome}"
    if comparison is Comparison.COMBINED:
        verb = "improved" if differ else "did not clearly improve"
        sides = join_names(within_sentence(item.label) for item in (first, *others))
        return f"{capitalize(sides)} together {verb} the prediction of {label}"
    if comparison is Comparison.INTERACTION:
        who = " and ".join(_side(item) for item in (first, *others))
        other = "the two effects alone would give"
        link = ("than", "from what")
    elif unit_text(contract):
        who, other = _more(first), "others"
    else:
        who, other = contract.exposed, contract.reference
        other = _name_opposite(contract) if other != "all others" else other
    if not differ:
        return f"{patients} with {who} did not differ clearly in {label} {link[1]} {other}"
    happened = {
        "survival": f"had {'shorter' if worse else 'longer'} {label}",
        "competing": f"had {label} {'sooner' if worse else 'later'}",
        "binary": f"had {label} {'more' if worse else 'less'} often",
        "continuous": f"had {'higher' if worse else 'lower'} {label}",
    }[endpoint.kind]
    return f"{patients} with {who} {happened} {link[0]} {other}"


def _compare_periods(results: Results, contract: Contract, patients: str) -> str:
    """Describe how two groups compare if their hazards cross."""
    early = results.numbers["period_hazards.early.effect"].value
    worse = early is not None and early > 1
    label = within_sentence(contract.endpoint(contract.primary_test.endpoint).label)
    other, (first, then) = contract.reference, ("worse", "better")[:: 1 if worse else -1]
    return (
        f"{patients} with {contract.exposed} did {first} at first and {then} later in"
        f" {label} than {other if other == 'all others' else _name_opposite(contract)}"
    )


def _name_opposite(contract: Contract) -> str:
    """Name the reference group, without exposure labels if all exposures have the same level."""
    levels = {use.level for use in contract.exposures}
    cut = all(use.kind != "binary" for use in contract.exposures)
    if len(contract.exposures) == 1 or len(levels) > 1 or not cut:
        return f"those with {contract.reference}"
    every = "both" if len(contract.exposures) == 2 else "all"
    return f"those with {'high' if levels == {'low'} else 'low'} levels of {every}"


def _side(exposure: Exposure) -> str:
    return f"{exposure.level} {within_sentence(exposure.label)}"


def _more(exposure: Exposure) -> str:
    return f"{exposure.level}er {within_sentence(exposure.label)}"


def _details(primary: TestOutcome, contract: Contract, names: Names, *, crossed: bool) -> list[str]:
    """List medians, effect, sample and adjusted effect, as far as the results contain them.

    If the hazards have `crossed`, the effect is given by period, together with the restricted
    means.
    """
    key = contract.primary
    medians = [f"kaplan_meier.{group}.median" for group in ("exposed", "reference")]
    found = [
        names.write("median {} versus {} months", *medians)
        if all(names.value(key) is not None for key in medians)
        else "",
        _by_period(names) if crossed else _effect(key, primary, names) + names.per,
        names.write("{} events among {} patients", f"{key}.events", f"{key}.n")
        or names.write("{} patients", f"{key}.n"),
    ]
    if crossed:
        found.append("no single hazard ratio describes the difference")
    elif names.beside and "adjusted.effect" in names.numbers:
        interval = names.write(", 95% CI {} to {}", "adjusted.lower", "adjusted.upper")
        scale = short_scale(contract.scale)
        counts = names.write("; {} events among {} patients", "adjusted.events", "adjusted.n")
        found.append(f"adjusted for {names.beside}: {scale} [[adjusted.effect]]{interval}{counts}")
    elif not contract.associates:
        found.append(names.write("calibration slope {}, 95% CI {} to {}", *SLOPE))
    elif not names.beside and not contract.strata:
        found.append("not adjusted")
    return [text for text in found if text]


def _by_period(names: Names) -> str:
    ratios = names.write(
        "HR {} before and {} after {} months",
        "period_hazards.early.effect", "period_hazards.late.effect", "period_hazards.cut",
    )  # fmt: skip
    means = names.write(
        "restricted mean survival to {} months differs by {} months, 95% CI {} to {}",
        "rmst.horizon", "rmst.difference", "rmst.lower", "rmst.upper",
    )  # fmt: skip
    return "; ".join(filter(None, (ratios, means)))


def _effect(key: str, primary: TestOutcome, names: Names) -> str:
    assert primary.effect is not None
    return names.write(
        f"{short_scale(primary.effect.scale)} {{}}, 95% CI {{}} to {{}}",
        f"{key}.effect", f"{key}.lower", f"{key}.upper",
    )  # fmt: skip
