"""The results interpreter: what the numbers say, by key, and how far (SAGE, 3.3, Table 8).

It explains the verdict that `validation.verdict.verdict` reached; it cannot change it. Numbers
appear in its prose only as `[[key]]`, which the report replaces from `results.json`.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from agents.core.base import Agent, Resources, Role, View, Wording, prompt_file
from agents.core.types import ExpandedHypothesis
from agents.prose.check import (
    Problem,
    check_result,
    replace_refused,
    replace_text,
    without_reasons,
    words_of,
)
from agents.prose.facts import ResultFacts
from agents.prose.wording import KEYED, free_numbers
from validation.controls.keys import Key
from validation.core.hypothesis import Hypothesis
from validation.results.results import Part


class KeyedNumber(View):
    """A number of `results.json` as the report may quote it."""

    key: str
    text: str
    label: str = ""


class ContractView(View):
    """The registered contract as sentences."""

    sha256: str
    statements: tuple[str, ...]


class ResultsView(View):
    """Aggregated results: numbers by key, the verdict, its reasons and facts; never a patient.

    `part` says of which patients they are, `beside` which covariates have a term in the adjusted
    model, and `per` what an estimate is per (" per standard deviation"; empty for groups).
    """

    verdict: Literal["supported", "not_supported", "inconclusive"]
    badge: str
    facts: ResultFacts
    reasons: tuple[str, ...]
    limits: tuple[str, ...]
    numbers: tuple[KeyedNumber, ...]
    figures: tuple[str, ...]
    simulated: bool = False
    part: Part = "all"
    beside: str = ""
    per: str = ""


class InterpreterInput(View):
    """The expanded hypothesis, the contract, the results and figures; no ontology, no paths."""

    expanded: ExpandedHypothesis
    contract: ContractView
    results: ResultsView
    pictures: tuple[str, ...] = Field(default=(), description="the figures as PNG, base64")


class Interpretation(View):
    """Significance, size, assumptions and limits, with a feasibility score of 1 to 10."""

    headline: str
    findings: tuple[str, ...] = Field(min_length=1, max_length=12)
    assumptions: tuple[str, ...] = Field(default=(), max_length=6)
    limits: tuple[str, ...] = Field(min_length=1, max_length=8)
    feasibility_score: int = Field(ge=1, le=10)
    feasibility_reason: str


NOT_REACHED = "not reached"
"""How the results print a median that the curve does not come down to."""
VERDICT_WORDS = {
    "supported": "is supported by",
    "not_supported": "is not supported by",
    "inconclusive": "could not be decided on",
}
SCORE = {"supported": 8, "inconclusive": 5, "not_supported": 3}
HIGHEST_SCORE = {"supported": 10, "inconclusive": 7, "not_supported": 5}
"""How feasible a translation may be called at most, by verdict."""


def verdict_sentence(verdict: str, *, simulated: bool) -> str:
    """The verdict as a sentence, as SAGE itself says it."""
    subject = "simulated data" if simulated else "this cohort"
    return f"The hypothesis {VERDICT_WORDS[verdict]} {subject}."


def interpret(given: InterpreterInput, resources: Resources) -> Interpretation:
    """State the verdict, then each registered result with its numbers by key."""
    return write_interpretation(given)


def write_interpretation(given: InterpreterInput) -> Interpretation:
    """SAGE's own interpretation: every sentence made from a typed fact."""
    results, per = given.results, given.results.per
    primary = given.expanded.hypothesis.endpoint
    headline = verdict_sentence(results.verdict, simulated=results.simulated)
    keys = {number.key for number in results.numbers}
    secondary = [
        (f"{key} (secondary, in patients whose {primary} is known): ", f"{key}.secondary")
        for key in given.expanded.hypothesis.secondary_endpoints
    ]
    findings = [
        _effect(f"Primary comparison{PATIENTS[results.part]}: ", "primary", keys, per),
        _line(f"Median time to event: exposed {_months(results, 'exposed')}, reference"
              f" {_months(results, 'reference')}.", keys,
              "kaplan_meier.exposed.median", "kaplan_meier.reference.median"),
        _line("Cumulative incidence by three years: exposed {}, reference {} (Gray's test p {}).",
              keys, "cumulative_incidence.exposed.at_36", "cumulative_incidence.reference.at_36",
              "gray.p"),
        _effect("Fine and Gray's model of the incidence: ", "fine_gray", keys, per),
        _effect(f"Adjusted for {results.beside or 'the registered covariates'}: ", "adjusted",
                keys, per),
        *(_effect(words, prefix, keys, per) for words, prefix in secondary),
        _effect("In the second cohort: ", "replicate.primary", keys, per),
        _prediction(keys),
        _line("Controls: with the outcome permuted {} times the result had p {}.", keys,
              Key.PERMUTED_DRAWS, Key.PERMUTED_P),
        _line("The known positive gave a hazard ratio of {} per standard deviation (p {}; {} events"
              " in the patients who have it).", keys, Key.KNOWN_POSITIVE_HR, Key.KNOWN_POSITIVE_P,
              Key.KNOWN_POSITIVE_EVENTS),
        _line("Over {} registered specifications the sign was as expected in {}.", keys,
              Key.SPECIFICATIONS, Key.EXPECTED_SIGN),
        _line("Of {} estimates without one site at a time, under each set of covariates, {} have"
              " the expected sign.", keys, Key.SITES_LEFT_OUT, Key.LEFT_OUT_SIGN),
    ]  # fmt: skip
    assumptions = [
        _line("Proportional hazards: global test p {}.", keys, "schoenfeld.global_p"),
        "Censoring is taken to be independent of the exposure; the data cannot show it.",
    ]
    limits = list(results.limits) or ["One cohort; no external validation was run."]
    said = tuple(finding for finding in findings if finding)
    return Interpretation(
        headline=headline,
        findings=said[:12] or ("No number was computed; see the reasons of the verdict.",),
        assumptions=tuple(assumption for assumption in assumptions if assumption),
        limits=tuple(limits[:8]),
        feasibility_score=SCORE[results.verdict],
        feasibility_reason=(
            "Set from the verdict alone (supported high, inconclusive middle, not supported low);"
            " no judgment of clinical translatability was made."
        ),
    )


def _line(template: str, known: set[str], *keys: str) -> str:
    """The sentence with its keys in place, or nothing when a number does not exist."""
    if not set(keys) <= known:
        return ""
    return template.format(*(f"[[{key}]]" for key in keys))


def _months(results: ResultsView, group: str) -> str:
    """Place of a group's median in a sentence; a median that was not reached has no unit."""
    key = f"kaplan_meier.{group}.median"
    reached = not any(item.key == key and item.text == NOT_REACHED for item in results.numbers)
    return "{} months" if reached else "{}"


PATIENTS: dict[Part, str] = {
    "all": "",
    "discovery": ", in the exploring patients",
    "confirmation": ", in the patients held back to confirm it",
    "replication": "",
}
"""Whose results they are."""


def _effect(words: str, prefix: str, known: set[str], per: str) -> str:
    sentence = _line(f"{words}{{}}{per} (p {{}})", known, f"{prefix}.summary", f"{prefix}.p")
    if not sentence:
        return ""
    if prefix == "primary":
        # The ledger controls errors over primary comparisons alone.
        sentence += _line("; q {} after error control over the ledger", known, f"{prefix}.q")
    sentence += _line("; {} patients, {} events", known, f"{prefix}.n", f"{prefix}.events")
    return sentence + "."


def _prediction(keys: set[str]) -> str:
    """Report the adjusted model's prediction in the strictest set of patients."""
    for words, prefix in (
        ("Applied to the second cohort with nothing fitted again", "replicate.calibration"),
        ("Applied to the held-back patients with nothing fitted again", "calibration"),
    ):
        found = _line(
            words + ", the adjusted model has by {} months calibration slope {} and {} observed"
            " events for each expected one; its concordance is {} ({} patients, {} events).", keys,
            f"{prefix}.horizon", f"{prefix}.slope", f"{prefix}.ratio", f"{prefix}.harrell",
            f"{prefix}.n", f"{prefix}.events",
        )  # fmt: skip
        if found:
            return found
    return _line(
        "Within the cohort, corrected for optimism, the adjusted model has calibration slope {}"
        " (events by {} months) and concordance {} (all follow-up); {} patients, {} events.", keys,
        "calibration.slope", "calibration.horizon", "calibration.harrell", "calibration.n",
        "calibration.events",
    )  # fmt: skip


def check_interpretation(given: InterpreterInput, answer: Interpretation) -> list[str]:
    """No free number, no unknown key, no better score than the verdict allows."""
    texts = [answer.headline, *answer.findings, *answer.assumptions, *answer.limits]
    problems = [
        str(problem)
        for text in (*texts, answer.feasibility_reason)
        for problem in _number_problems(given, text)
    ]
    highest = HIGHEST_SCORE[given.results.verdict]
    if answer.feasibility_score > highest:
        problems.append(
            f"feasibility_score is at most {highest} where the verdict is {given.results.verdict}"
        )
    return problems


def _number_problems(given: InterpreterInput, text: str) -> list[Problem]:
    known = {number.key for number in given.results.numbers}
    problems = [
        Problem(text, "it names a key that the results do not hold", found)
        for found in KEYED.findall(text)
        if found not in known
    ]
    quoted = given.expanded.hypothesis.statement
    beside = given.results.beside
    strange = [number for number in free_numbers(text, beside) if number not in quoted]
    # Limits and reasons that the validation package wrote may quote its own figures.
    if strange and without_reasons(text) not in given.results.limits:
        problems.append(Problem(text, "it states a number without its key", strange[0]))
    return problems


def names_of(hypothesis: Hypothesis, statements: tuple[str, ...] = ()) -> frozenset[str]:
    """Words of the claim and its contract that a sentence about the result may use."""
    return words_of(
        [
            hypothesis.statement,
            hypothesis.population.description,
            *(exposure.label for exposure in hypothesis.exposures),
            *(exposure.variable for exposure in hypothesis.exposures),
            hypothesis.endpoint,
            *hypothesis.secondary_endpoints,
            *hypothesis.covariates,
            *hypothesis.strata,
            *statements,
        ]
    )


def find_problems(
    given: InterpreterInput, text: str, *, results_only: bool = False
) -> list[Problem]:
    """Problems of a sentence of the interpretation; empty if the facts support it."""
    hypothesis = given.expanded.hypothesis
    return _number_problems(given, text) + check_result(
        text,
        given.results.facts,
        names=names_of(hypothesis, given.contract.statements),
        quoted=(
            hypothesis.statement,
            *given.results.limits,
            *given.results.reasons,
            *given.results.facts.sentences(),
        ),
        results_only=results_only,
    )


def unborne(given: InterpreterInput, answer: Interpretation) -> list[str]:
    """List sentences that the facts do not support."""
    results = (answer.headline, *answer.findings)
    remarks = (*answer.assumptions, *answer.limits, answer.feasibility_reason)
    problems = [
        problem for result in results for problem in find_problems(given, result, results_only=True)
    ]
    return [
        str(problem)
        for problem in problems
        + [each for remark in remarks for each in find_problems(given, remark)]
    ]


def in_own_words(given: InterpreterInput, answer: Interpretation) -> Interpretation:
    """The interpretation with SAGE's own sentences in place of refused sentences."""
    plain = write_interpretation(given)

    def judge(text: str) -> list[Problem]:
        return find_problems(given, text)

    def judge_result(text: str) -> list[Problem]:
        return find_problems(given, text, results_only=True)

    score, reason = answer.feasibility_score, answer.feasibility_reason
    if judge(reason) or score > HIGHEST_SCORE[given.results.verdict]:
        score = plain.feasibility_score
        reason = replace_text(reason, plain.feasibility_reason, judge)
    return Interpretation(
        headline=replace_text(answer.headline, plain.headline, judge_result),
        findings=replace_refused(answer.findings, plain.findings, judge_result),
        assumptions=replace_refused(answer.assumptions, plain.assumptions, judge),
        limits=replace_refused(answer.limits, plain.limits, judge),
        feasibility_score=score,
        feasibility_reason=reason,
    )


INTERPRETER = Agent(
    name="interpreter",
    role=Role.HIGH,
    reads=InterpreterInput,
    returns=Interpretation,
    prompt=prompt_file(__file__, "interpreter.md"),
    rule=interpret,
    check=check_interpretation,
    images=lambda given: given.pictures,
    wording=Wording(problems=unborne, replace=in_own_words),
)
