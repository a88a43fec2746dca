"""Rendering of a statement as a sentence from the results, with numbers as `[[key]]`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import log

from agents.findings.types import (
    AddedValue,
    AdjustedEffect,
    AlternativeExplanation,
    Assumption,
    BesideOther,
    Compared,
    Control,
    Effect,
    Finding,
    Generalization,
    Interaction,
    MissingData,
    NextStep,
    NotAdjustedFor,
    NotMeasured,
    Replication,
    Sample,
    SecondaryEndpoint,
    Sensitivity,
    SubgroupEffect,
)
from sage.core.printable import join_names, within_sentence
from validation.controls.keys import Key, random_key
from validation.core.types import Number
from validation.results.results import Part

OUTCOMES = {
    "significant": "",
    "not_significant": ", no clear difference",
    "open": ", not clear when all claims tested on these patients are counted",
}
PATIENTS: dict[Part, str] = {
    "all": "",
    "discovery": ", in the patients used to explore",
    "confirmation": ", in the patients held back for confirmation",
    "replication": "",
}
"""Descriptions of the patients to whom the results refer."""
PROPORTIONAL, CENSORING = "proportional hazards", "independent censoring"
PERMUTED, KNOWN, NEGATIVE = "permuted outcome", "known positive", "negative endpoint"
COVARIATES, EXPOSURE = "covariates", "exposure"
CURVE, DISCRIMINATION = "specification curve", "discrimination"
SECOND_COHORT, NEW_COHORT = "second cohort", "an independent cohort"


@dataclass(frozen=True)
class Names:
    """Phrases from the results for the subjects of statements.

    Parameters
    ----------
    numbers : numbers in the results, by key; a median that was not reached has no value
    labels : labels by endpoint, or by test for subgroup tests
    beside : covariates with a term in the adjusted model
    per : unit of an estimate (" per standard deviation"; empty for groups)
    features : labels of the exposures, in the order of their random features
    drawn : descriptions of the random features that replace each exposure
    compared : exposure groups being compared ("low CCL21 expression")
    relevant : the smallest relevant effect ("a hazard ratio of {}, …")
    known : the known association used as the contract's positive control
    sides : direction of each test's effect ("with shorter overall survival"), by key
    either : whether the claim leaves the direction open
    base : label of the exposure to which the claim's exposure is added
    absent : covariates without a term in the adjusted model
    """

    numbers: Mapping[str, Number]
    labels: Mapping[str, str] = field(default_factory=dict)
    primary_endpoint: str = ""
    beside: str = ""
    per: str = ""
    part: Part = "all"
    features: tuple[str, ...] = ()
    drawn: tuple[str, ...] = ()
    compared: tuple[str, ...] = ()
    relevant: str = ""
    known: str = ""
    simulated: bool = False
    sides: Mapping[str, str] = field(default_factory=dict)
    either: bool = False
    base: str = ""
    absent: tuple[str, ...] = ()

    @property
    def measured(self) -> str:
        """The compared variables joined with "and", for use within a sentence."""
        return join_names(within_sentence(label) for label in self.features) or "the exposure"

    @property
    def lacking(self) -> str:
        """The compared variables joined with "or", for sentences on missing values."""
        *first, last = [f"{within_sentence(label)}" for label in self.features] or ["the exposure"]
        return f"{', '.join(first)} or {last}" if first else last

    def name_other(self, place: int) -> str:
        """Name the other of two exposures, given the index `place` of the first."""
        return within_sentence(self.features[1 - place])

    def name_of(self, subject: str) -> str:
        """Return the label of an endpoint or test, for use within a sentence."""
        return within_sentence(self.labels.get(subject, subject))

    def write(self, text: str, *keys: str) -> str:
        """Substitute the keys in the text; return empty text if the results lack any of them."""
        if not set(keys) <= self.numbers.keys():
            return ""
        for key in keys:
            number = self.numbers[key]
            equal = "= " if number.unit == "p-value" and not number.text.startswith("<") else ""
            text = text.replace("{}", f"{equal}[[{key}]]", 1)
        return text

    def value(self, key: str) -> float | None:
        """Return a number's value; None if the results lack it."""
        return self.numbers[key].value if key in self.numbers else None


def render(finding: Finding, names: Names) -> str:
    """Render a statement as a sentence."""
    subject = finding.subject
    match finding:
        case Effect() | Interaction() | AdjustedEffect() | SecondaryEndpoint() | SubgroupEffect():
            return _compared(finding, names)
        case AddedValue(outcome=outcome):
            beside = f"{names.base} and the covariates" if names.base else "the covariates"
            verb = {
                "better": "raises Harrell's concordance",
                "worse": "lowers Harrell's concordance",
                "open": "does not clearly change Harrell's concordance",
            }
            base = names.write(
                " from {} to {}", "concordance.without.harrell", "concordance.with.harrell"
            )
            change = names.write(
                " (change {}, 95% CI {} to {}; apparent, in the compared patients)",
                "concordance.gain", "concordance.gain_lower", "concordance.gain_upper",
            )  # fmt: skip
            # Changes that are not clear have no "from … to".
            base = "" if outcome == "open" else base
            return f"Adding the exposure to {beside} {verb[outcome]}{base}{change}."
        case BesideOther(outcome=outcome):
            place = names.features.index(subject)
            key = f"joint_groups.{('first', 'second')[place]}"
            result = "improves it" if outcome == "adds" else "does not clearly improve it"
            other = names.name_other(place)
            return (
                f"In all patients, adding {names.compared[place]} to a model with {other}"
                + (" and the covariates " if names.beside else " ")
                + result
                + names.write(" (likelihood ratio p {})", f"{key}.beside.p")
                + names.write(f": HR {{}} without {other}", f"{key}.effect")
                + names.write(
                    ", {} (95% CI {} to {}) with both",
                    f"{key}.beside.effect", f"{key}.beside.lower", f"{key}.beside.upper",
                )
                + "."
            )  # fmt: skip
        case Control():
            return _control(finding, names)
        case Sensitivity(outcome=outcome):
            sign = "direction of the primary comparison" if names.either else "expected direction"
            which = "The" if outcome == "stable" else "Not all"
            said = names.write(
                f"{{}} prespecified variants of the analysis point in the {sign}, with estimates"
                " from {} to {}",
                Key.EXPECTED_SIGN, Key.SPECIFICATION_LOWEST, Key.SPECIFICATION_HIGHEST,
            )  # fmt: skip
            said = said or f"{which} prespecified variants of the analysis agree in direction"
            said += names.write("; so do {} estimates that leave out a site", Key.LEFT_OUT_SIGN)
            return f"{said}."
        case Assumption(outcome=outcome):
            if subject == CENSORING:
                return "Censoring is assumed to be unrelated to prognosis within each group."
            shown = names.write(" (p {})", "schoenfeld.p")
            if outcome == "holds":
                return f"The data are compatible with proportional hazards{shown}."
            periods = names.write(
                " (HR {} in the first {} months, {} later)",
                "period_hazards.early.effect", "period_hazards.cut", "period_hazards.late.effect",
            )  # fmt: skip
            early, late = (
                names.value(f"period_hazards.{period}.effect") for period in ("early", "late")
            )
            change = "changes"
            if early and late:
                change = "shrinks" if abs(log(late)) < abs(log(early)) else "grows"
                change = change if (early > 1) == (late > 1) else "reverses"
            mean = names.write(
                "; the difference in restricted mean survival to {} months is {} months (95% CI {}"
                " to {})",
                "rmst.horizon", "rmst.difference", "rmst.lower", "rmst.upper",
            )  # fmt: skip
            return (
                f"Hazards are not proportional{shown}: the effect {change} over time{periods}, and"
                f" the hazard ratio is an average{mean}."
            )
        case Replication(outcome=outcome):
            again = names.write(" ({}, p {})", "replicate.primary.summary", "replicate.primary.p")
            return {
                "replicated": f"The claim was replicated in a second cohort{again}.",
                "not_replicated": f"A second cohort did not confirm the claim{again}.",
                "not_run": "The result has not been replicated in another cohort.",
            }[outcome]
        case NotMeasured():
            return f"This cohort cannot test {subject}."
        case NotAdjustedFor():
            if subject == COVARIATES:
                return "The comparison is not adjusted for any covariate."
            if subject in names.absent:
                return (
                    f"The model has no term for {within_sentence(subject)}: too few patients"
                    " differ in it."
                )
            return name_unadjusted((subject,))
        case Sample(outcome=outcome):
            needed = names.write(" needs {} events", "power.required_events")
            seen = names.write("; {} occurred", "primary.events")
            reached = "was" if outcome == "enough" else "was not"
            effect = names.write(f" for {names.relevant}", "rules.relevant")
            return f"80% power{effect}{needed or f' {reached} reached'}{seen}."
        case MissingData():
            return _missing(finding, names)
        case Generalization(outcome=outcome):
            return {
                "simulated": f"The patients of {subject} are simulated: nothing follows from them.",
                "one_cohort": f"All patients come from one cohort, {subject}.",
                "two_cohorts": f"The patients come from {subject} and from a second cohort.",
            }[outcome]
        case AlternativeExplanation():
            return _alternative(subject, names)
        case NextStep(design=design):
            return {
                "repeat": f"Repeat the prespecified analysis in {subject}.",
                "enlarge": names.write(
                    "Repeat the analysis in a cohort with at least {} events.",
                    "power.required_events",
                )
                or "Repeat the analysis in a cohort with more events.",
                "adjust": f"Adjust for {within_sentence(subject)}, in a new contract.",
                "measure": f"Design a test of {subject}.",
                "test_endpoint": f"Test {names.name_of(subject)} as the primary endpoint, in other"
                " patients.",
                "turn_round": "State the opposite direction in advance, and test it in other"
                " patients.",
            }[design]


def _compared(finding: Compared, names: Names) -> str:
    key = finding.subject
    endpoint = key.rpartition(".")[0]
    about = names.labels.get(key) or names.labels.get(endpoint, endpoint)
    match finding:
        case SubgroupEffect():
            words = f"In a subgroup ({about})"
        case AdjustedEffect():
            beside = names.beside or "the prespecified covariates"
            words = f"{about}, adjusted for {beside}" if about else f"Adjusted for {beside}"
        case _ if key == "primary":
            words = f"{names.primary_endpoint or 'Primary comparison'}{PATIENTS[names.part]}"
        case SecondaryEndpoint():
            words = f"{about or key} (secondary endpoint, nominal)"
        case _:
            words = about or key
    shown = names.write(" {}" + names.per + ", p {}", f"{key}.summary", f"{key}.p")
    counted = (
        "; {} events" if isinstance(finding, SecondaryEndpoint) else "; {} events, {} patients"
    )
    sizes = (f"{key}.events", f"{key}.n")[: counted.count("{}")]
    shown += names.write(counted, *sizes) if shown else ""
    tail = OUTCOMES[finding.outcome]
    if finding.direction in ("higher", "lower"):
        tail += f", {names.sides[key]}"
    elif finding.direction == "opposite":
        tail += ", opposite to the claim"
    return f"{words}:{shown}{tail}."


def _control(finding: Control, names: Names) -> str:
    passed = finding.outcome == "passed"
    if finding.subject == PERMUTED:
        none = names.value(Key.PERMUTED_AS_GOOD) == 0
        draws = names.write("{} shuffles", Key.PERMUTED_DRAWS)
        count = names.write("{}", Key.PERMUTED_AS_GOOD)
        count = f"{'None' if none else count} of {draws}" if draws and count else ""
        count = count or ("Few shuffles" if passed else "Too many shuffles")
        return f"{count} of the outcome gave an effect as large."
    if finding.subject == KNOWN:
        effect = names.write(
            " (HR {} per level, p {})", Key.KNOWN_POSITIVE_LEVEL, Key.KNOWN_POSITIVE_P
        ) or names.write(
            " (linear trend, HR {} per standard deviation, p {})",
            Key.KNOWN_POSITIVE_HR, Key.KNOWN_POSITIVE_P,
        )  # fmt: skip
        known = f" ({names.known})" if names.known else ""
        seen = f"is {'' if passed else 'not '}seen"
        return f"As a check, a known association{known} {seen}{effect}."
    if finding.subject == NEGATIVE:
        verb = "is not" if passed else "is, though it should not be,"
        shown = names.write(" (p {})", Key.NEGATIVE_P)
        return f"The negative-control endpoint {verb} associated with {names.measured}{shown}."
    place = names.features.index(finding.subject)
    counts = random_key(place, "as_good"), random_key(place, "draws")
    share = names.write("{} of {}", *counts) or ("few" if passed else "too many")
    label, others = within_sentence(finding.subject), f"{share} {names.drawn[place]}"
    start = f"In place of {label}" if passed else f"Not specific to {label}: in its place"
    return f"{start}, {others} give a test at least as strong."


MISSING = tuple(f"{Key.MISSING_EFFECT}.{end}" for end in ("effect", "lower", "upper"))


def name_unadjusted(labels: Sequence[str]) -> str:
    """Name the related cohort variables that are not adjusted for."""
    listed = join_names(within_sentence(label) for label in labels)
    only, relate, are = ("only ", "relates", "is") if len(labels) == 1 else ("", "relate", "are")
    return (
        f"Of the cohort's other variables, {only}{listed} {relate} to the groups and"
        f" {are} not adjusted for."
    )


def _missing(finding: MissingData, names: Names) -> str:
    if finding.subject == COVARIATES:
        if finding.outcome == "none":
            return "Every patient has all covariates."
        return names.write("{} of patients have all covariates.", "missing_data.complete") or (
            "Some patients lack a covariate."
        )
    lacking = names.write("{}", Key.MISSING) or "Some"
    lack = f"{lacking} patients lack {names.lacking}"
    shown = names.write(" (p {})", Key.MISSING_P)
    return {
        "none": f"Every patient with the outcome has a measurement of {names.measured}.",
        "some": f"{lack}, too few to compare with the others.",
        "unclear": f"{lack}; it is unclear whether their outcomes differ"
        + names.write(" (HR {}, 95% CI {} to {})", *MISSING)
        + ".",
        "unrelated": f"{lack}; their outcomes do not clearly differ{shown}.",
        "related": f"{lack}; their outcomes differ{shown}.",
    }[finding.outcome]


def _alternative(subject: str, names: Names) -> str:
    if subject == "confounding":
        model = "adjusted" if "adjusted.e_value" in names.numbers else "primary"
        shown = names.write(
            " with risk ratios of {} (E-value; {} for the confidence limit)",
            f"{model}.e_value", f"{model}.e_value_limit",
        )  # fmt: skip
        about = "adjusted" if model == "adjusted" else "unadjusted"
        return (
            f"A confounder{shown or ' left out'}, with both exposure and outcome, could explain the"
            f" {about} association away."
        )
    return {
        "chance": "Chance remains a plausible explanation.",
        "selection": "Patients with complete measurements may not represent all patients.",
        "measurement": f"Error in measuring {names.measured} may distort the estimate.",
        "reverse_causation": f"The outcome may have influenced {names.measured}.",
    }[subject]
