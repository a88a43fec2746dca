"""Rendering of a statement as a sentence from the results, with numbers as `[[key]]`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agents.findings.types import (
    AddedValue,
    AdjustedEffect,
    AlternativeExplanation,
    Assumption,
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
    """Words from the results for the subjects of statements.

    Parameters
    ----------
    keys : keys of the numbers in the results
    reached : keys of the numbers with a value; a median that was not reached has none
    labels : labels by endpoint, or by test for tests in a subgroup
    beside : covariates with a term in the adjusted model
    per : unit of an estimate (" per standard deviation"; empty for groups)
    features : labels of the exposures, in the order of their random features
    known : the known association of the contract's positive control
    sides : where the effect of a test points ("with shorter overall survival"), by key
    either : the claim names no direction
    base : label of the exposure to which the claim's exposure is added
    """

    keys: frozenset[str]
    reached: frozenset[str] = frozenset()
    labels: Mapping[str, str] = field(default_factory=dict)
    primary_endpoint: str = ""
    beside: str = ""
    per: str = ""
    part: Part = "all"
    features: tuple[str, ...] = ()
    known: str = ""
    simulated: bool = False
    sides: Mapping[str, str] = field(default_factory=dict)
    either: bool = False
    base: str = ""

    @property
    def measured(self) -> str:
        """The compared variables, for use within a sentence."""
        return join_names(within_sentence(label) for label in self.features) or "the exposure"

    @property
    def lacking(self) -> str:
        """The compared variables, of which a patient lacks at least one."""
        *first, last = [f"{within_sentence(label)}" for label in self.features] or ["the exposure"]
        return f"{', '.join(first)} or {last}" if first else last

    def name_of(self, subject: str) -> str:
        """Return the label of an endpoint or test, for use within a sentence."""
        return within_sentence(self.labels.get(subject, subject))

    def write(self, text: str, *keys: str) -> str:
        """Fill the keys into the text; return an empty text if the results lack one of them."""
        if not set(keys) <= self.keys:
            return ""
        for key in keys:
            text = text.replace("{}", f"[[{key}]]", 1)
        return text


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
                " (apparent; change {}, 95% CI {} to {})",
                "concordance.gain", "concordance.gain_lower", "concordance.gain_upper",
            )  # fmt: skip
            # Changes that are not clear have no "from … to".
            base = "" if outcome == "open" else base
            return f"Adding the claimed variables to {beside} {verb[outcome]}{base}{change}."
        case Control():
            return _control(finding, names)
        case Sensitivity(outcome=outcome):
            sign = "direction of the primary comparison" if names.either else "expected direction"
            which = "The" if outcome == "stable" else "Not all"
            said = names.write(
                f"{{}} of the {{}} registered variants of the analysis point in the {sign}",
                Key.EXPECTED_SIGN, Key.SPECIFICATIONS,
            )  # fmt: skip
            said = said or f"{which} registered variants of the analysis agree in direction"
            said += names.write(
                ", and so do {} of {} estimates that leave out a site",
                Key.LEFT_OUT_SIGN, Key.SITES_LEFT_OUT,
            )  # fmt: skip
            return f"{said}."
        case Assumption(outcome=outcome):
            if subject == CENSORING:
                return "Censoring is assumed to be unrelated to prognosis within each group."
            shown = names.write(" (p {})", "schoenfeld.p")
            if outcome == "holds":
                return f"The data are compatible with proportional hazards{shown}."
            mean = names.write(
                " Restricted mean survival to {} months differs by {} months (95% CI {} to {}).",
                "rmst.horizon", "rmst.difference", "rmst.lower", "rmst.upper",
            )  # fmt: skip
            return (
                f"The hazards are not clearly proportional{shown}: read the hazard ratio as an"
                f" average over follow-up.{mean}"
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
            return f"The comparison is not adjusted for {within_sentence(subject)}."
        case Sample(outcome=outcome):
            short = "reaching" if outcome == "enough" else "short of"
            seen = names.write("{} events were observed", "primary.events")
            needed = names.write("the {} that give", "power.required_events")
            return (
                f"{seen or 'Events were observed'}, {short} {needed or 'the number that gives'} 80%"
                " power for the smallest relevant effect."
            )
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
                "repeat": f"Repeat the registered analysis in {subject}.",
                "enlarge": names.write(
                    "Repeat the analysis in a cohort with at least {} events.",
                    "power.required_events",
                )
                or "Repeat the analysis in a cohort with more events.",
                "adjust": f"Adjust for {within_sentence(subject)}, in a new contract.",
                "measure": f"Design a test of {subject}.",
                "test_endpoint": f"Test {names.name_of(subject)} as the primary endpoint, in other"
                " patients.",
                "turn_round": "Register the opposite direction, and test it in other patients.",
            }[design]


def _compared(finding: Compared, names: Names) -> str:
    key = finding.subject
    endpoint = key.rpartition(".")[0]
    about = names.labels.get(key) or names.labels.get(endpoint, endpoint)
    match finding:
        case SubgroupEffect():
            words = f"In a subgroup ({about})"
        case AdjustedEffect():
            beside = names.beside or "the registered covariates"
            words = f"{about}, adjusted for {beside}" if about else f"Adjusted for {beside}"
        case _ if key == "primary":
            words = f"{names.primary_endpoint or 'Primary comparison'}{PATIENTS[names.part]}"
        case SecondaryEndpoint():
            words = f"{about or key} (secondary endpoint)"
        case _:
            words = about or key
    shown = names.write(" {}" + names.per + ", p {}", f"{key}.summary", f"{key}.p")
    shown += names.write("; {} patients, {} events", f"{key}.n", f"{key}.events") if shown else ""
    tail = OUTCOMES[finding.outcome]
    if finding.direction in ("higher", "lower"):
        tail += f", {names.sides[key]}"
    elif finding.direction == "opposite":
        tail += ", opposite to the claim"
    return f"{words}:{shown}{tail}."


def _control(finding: Control, names: Names) -> str:
    passed = finding.outcome == "passed"
    if finding.subject == PERMUTED:
        often = "rarely gives" if passed else "also gives"
        times = names.write(" {} times", Key.PERMUTED_DRAWS)
        shown = names.write(" (p {})", Key.PERMUTED_P)
        return f"Shuffling the outcomes{times} {often} an effect as large{shown}."
    if finding.subject == KNOWN:
        effect = names.write(
            " (hazard ratio {} per standard deviation, p {})",
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
    share = (
        names.write(
            "{} of {} comparable features predict at least as well",
            random_key(place, "as_good"),
            random_key(place, "draws"),
        )
        or f"{'few' if passed else 'too many'} comparable features predict at least as well"
    )
    return f"In place of {within_sentence(finding.subject)}, {share}."


def _missing(finding: MissingData, names: Names) -> str:
    if finding.subject == COVARIATES:
        if finding.outcome == "none":
            return "Every patient has all covariates."
        return names.write("{} of the patients have all covariates.", "missing_data.complete") or (
            "Some patients lack a covariate."
        )
    lacking = names.write("{}", Key.MISSING) or "Some"
    lack = f"{lacking} patients lack {names.lacking}"
    shown = names.write(" (p {})", Key.MISSING_P)
    return {
        "none": f"Every patient with the outcome has a measurement of {names.measured}.",
        "some": f"{lack}, too few to compare with the others.",
        "unrelated": f"{lack}; their outcomes do not clearly differ{shown}.",
        "related": f"{lack}; their outcomes differ{shown}.",
    }[finding.outcome]


def _alternative(subject: str, names: Names) -> str:
    if subject == "confounding":
        model = "adjusted" if "adjusted.e_value" in names.keys else "primary"
        needed = names.write(
            " would need risk ratios of at least {} ({} for the confidence limit; E-values) with"
            " both the groups and the outcome to explain",
            f"{model}.e_value", f"{model}.e_value_limit",
        )  # fmt: skip
        about = "adjusted" if model == "adjusted" else "unadjusted"
        return f"An unmeasured confounder{needed or ' could explain'} the {about} association away."
    return {
        "chance": "Chance remains a plausible explanation.",
        "selection": "Patients with complete measurements may not represent all patients.",
        "measurement": f"Error in measuring {names.measured} may distort the estimate.",
        "reverse_causation": f"The outcome may have influenced {names.measured}.",
    }[subject]
