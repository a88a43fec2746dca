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
from validation.controls.keys import Key, random_key
from validation.results.results import Part

VERDICT_WORDS = {
    "supported": "is supported by",
    "not_supported": "is not supported by",
    "inconclusive": "could not be decided on",
}
OUTCOMES = {
    "significant": "significant",
    "not_significant": "not significant",
    "open": "not settled after error control",
}
PATIENTS: dict[Part, str] = {
    "all": "",
    "discovery": ", in the exploring patients",
    "confirmation": ", in the patients held back to confirm it",
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
    sides : where the effect of a test points ("with shorter overall survival"), by key
    either : the claim names no direction
    """

    keys: frozenset[str]
    reached: frozenset[str] = frozenset()
    labels: Mapping[str, str] = field(default_factory=dict)
    primary_endpoint: str = ""
    beside: str = ""
    per: str = ""
    part: Part = "all"
    features: tuple[str, ...] = ()
    simulated: bool = False
    sides: Mapping[str, str] = field(default_factory=dict)
    either: bool = False

    def write(self, text: str, *keys: str) -> str:
        """Fill the keys into the text; return an empty text if the results lack one of them."""
        if not set(keys) <= self.keys:
            return ""
        return text.format(*(f"[[{key}]]" for key in keys))


def verdict_sentence(verdict: str, *, simulated: bool) -> str:
    """Write the verdict as a sentence."""
    subject = "simulated data" if simulated else "this cohort"
    return f"The hypothesis {VERDICT_WORDS[verdict]} {subject}."


def render(finding: Finding, names: Names) -> str:
    """Render a statement as a sentence."""
    subject = finding.subject
    match finding:
        case Effect() | Interaction() | AdjustedEffect() | SecondaryEndpoint() | SubgroupEffect():
            return _compared(finding, names)
        case AddedValue(outcome=outcome):
            told = {
                "better": "The exposure adds to the prediction by the covariates",
                "worse": "The exposure takes away from the prediction by the covariates",
                "open": "Whether the exposure adds to the prediction by the covariates is open",
            }
            change = names.write(
                " (change in concordance {}, {} to {})",
                "concordance.gain", "concordance.gain_lower", "concordance.gain_upper",
            )  # fmt: skip
            return f"{told[outcome]}{change}."
        case Control():
            return _control(finding, names)
        case Sensitivity(outcome=outcome):
            told = {"stable": "is stable", "unstable": "depends on analytical choices"}
            sign = "as in the primary comparison" if names.either else "as expected"
            shares = names.write(
                f": {sign} in {{}} of {{}} registered specifications",
                Key.EXPECTED_SIGN, Key.SPECIFICATIONS,
            )  # fmt: skip
            shares += names.write(
                ", and in {} of {} estimates without one site",
                Key.LEFT_OUT_SIGN, Key.SITES_LEFT_OUT,
            )  # fmt: skip
            return f"The sign {told[outcome]}{shares}."
        case Assumption(outcome=outcome):
            if subject == CENSORING:
                return "Censoring is taken to be independent of the exposure; no data show it."
            told = {"holds": "No departure from", "fails": "A departure from"}
            shown = names.write(" (p {})", "schoenfeld.p")
            return f"{told[outcome]} proportional hazards was seen{shown}."
        case Replication(outcome=outcome):
            again = names.write(" ({}, p {})", "replicate.primary.summary", "replicate.primary.p")
            return {
                "replicated": f"The claim was replicated in a second cohort{again}.",
                "not_replicated": f"A second cohort does not confirm the claim{again}.",
                "not_run": "The result has not been replicated in another cohort.",
            }[outcome]
        case NotMeasured():
            return f"Not tested, because this cohort cannot: {subject}."
        case NotAdjustedFor():
            if subject == COVARIATES:
                return "Nothing was adjusted for."
            return f"Not adjusted for: {subject}, which has no term in the model."
        case Sample(outcome=outcome):
            needed = names.write(
                ": {} in the comparison, where the registered power needs {}",
                "primary.events", "power.required_events",
            )  # fmt: skip
            enough = "enough" if outcome == "enough" else "too few"
            return f"The events are {enough}{needed}."
        case MissingData():
            return _missing(finding, names)
        case Generalization(outcome=outcome):
            return {
                "simulated": f"The patients of {subject} are simulated, so nothing follows.",
                "one_cohort": f"All patients are of one cohort, {subject}.",
                "two_cohorts": f"The patients are of {subject} and of a second cohort.",
            }[outcome]
        case AlternativeExplanation():
            return _alternative(subject, names)
        case NextStep(design=design):
            return {
                "repeat": f"Repeat the registered analysis in {subject}.",
                "enlarge": "Enlarge the sample until it has the events that the power needs"
                + names.write(" ({})", "power.required_events")
                + ".",
                "adjust": f"Adjust for {subject} in a contract of its own.",
                "measure": f"Design a test of {subject}.",
                "test_endpoint": f"Register {names.labels.get(subject, subject)} as the primary"
                " endpoint of a contract of its own.",
                "turn_round": "Register the opposite direction, and test it in other patients.",
            }[design]


def _compared(finding: Compared, names: Names) -> str:
    key = finding.subject
    endpoint = key.rpartition(".")[0]
    about = names.labels.get(key) or names.labels.get(endpoint, endpoint)
    match finding:
        case SubgroupEffect():
            words = f"In a part of the patients ({about})"
        case SecondaryEndpoint():
            words = f"{about} (secondary, in patients whose {names.primary_endpoint} is known)"
        case AdjustedEffect():
            beside = names.beside or "the registered covariates"
            words = f"{about}, adjusted for {beside}" if about else f"Adjusted for {beside}"
        case _ if key == "primary":
            words = f"Primary comparison{PATIENTS[names.part]}"
        case _:
            words = about or key
    shown = names.write("{}" + names.per + " (p {}", f"{key}.summary", f"{key}.p")
    if shown and key == "primary":
        # The ledger controls errors over primary comparisons alone.
        shown += names.write(", q {} after error control over the ledger", f"{key}.q")
    if shown:
        shown += names.write("; {} patients, {} events", f"{key}.n", f"{key}.events") + "), "
    told = OUTCOMES[finding.outcome]
    if finding.direction in ("higher", "lower"):
        told += f", {names.sides[key]}"
    elif finding.direction != "unknown":
        told += f", in the {finding.direction} direction"
    return f"{words}: {shown}{told}{_groups(names) if key == 'primary' else ''}."


def _groups(names: Names) -> str:
    """Write the medians and incidences of the two groups, to follow the primary comparison."""
    medians = [f"kaplan_meier.{group}.median" for group in ("exposed", "reference")]
    months = [" months" if key in names.reached else "" for key in medians]
    text = names.write(
        "; median time to event {}" + months[0] + " in the exposed, {}" + months[1]
        + " in the reference group", *medians,
    )  # fmt: skip
    return text + names.write(
        "; cumulative incidence by three years {} and {} (Gray's test p {})",
        "cumulative_incidence.exposed.at_36", "cumulative_incidence.reference.at_36", "gray.p",
    )  # fmt: skip


def _control(finding: Control, names: Names) -> str:
    passed = finding.outcome == "passed"
    if finding.subject == PERMUTED:
        told = "Permuted outcomes do not do as well" if passed else "Permuted outcomes do as well"
        return (
            f"{told}{names.write(' (p {}, {} permutations)', Key.PERMUTED_P, Key.PERMUTED_DRAWS)}."
        )
    if finding.subject == KNOWN:
        effect = names.write(
            ": hazard ratio {} per standard deviation (p {}, {} events)",
            Key.KNOWN_POSITIVE_HR, Key.KNOWN_POSITIVE_P, Key.KNOWN_POSITIVE_EVENTS,
        )  # fmt: skip
        return f"The known positive was {'' if passed else 'not '}seen{effect}."
    if finding.subject == NEGATIVE:
        told = "was not touched" if passed else "was touched, which it should not be"
        return f"The negative endpoint {told}{names.write(' (p {})', Key.NEGATIVE_P)}."
    place = names.features.index(finding.subject)
    told = "few comparable features do" if passed else "too many comparable features do"
    share = names.write(
        ": it is stronger than {} of {}",
        random_key(place, "percentile"),
        random_key(place, "draws"),
    )
    return f"For {finding.subject}, {told} as well{share}."


def _missing(finding: MissingData, names: Names) -> str:
    if finding.subject == COVARIATES:
        if finding.outcome == "none":
            return "Every patient has all covariates."
        return names.write("{} of the patients have all covariates.", "missing_data.complete") or (
            "Some patients lack a covariate."
        )
    told = {
        "none": "Every patient with the outcome has the exposure.",
        "some": "Some patients lack the exposure, too few to compare",
        "unrelated": "Patients without the exposure fare like those with it",
        "related": "Patients without the exposure fare otherwise than those with it",
    }[finding.outcome]
    if finding.outcome == "none":
        return told
    shown = names.write("{} lack it", Key.MISSING) + names.write(", p {}", Key.MISSING_P)
    return f"{told}{f' ({shown})' if shown else ''}."


def _alternative(subject: str, names: Names) -> str:
    if subject == "confounding":
        needed = names.write(
            "; to explain the estimate away it would need a risk ratio of {} with both",
            "adjusted.e_value" if "adjusted.e_value" in names.keys else "primary.e_value",
        )
        return f"An unmeasured confounder may stand behind an association{needed}."
    return {
        "chance": "Chance remains a plausible explanation.",
        "selection": "Who has the exposure measured may not have been left to chance.",
        "measurement": "Error in measuring the exposure may weaken or distort the estimate.",
        "reverse_causation": "The outcome may have led to the exposure.",
    }[subject]
