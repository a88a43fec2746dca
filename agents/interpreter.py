"""The results interpreter: what the numbers say, by key, and how far (SAGE, 3.3, Table 8).

It explains the verdict that `validation.verdict` reached; it cannot change it. Numbers appear in
its prose only as `[[key]]`, which the report replaces from `results.json`.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from agents.base import Agent, Resources, Role, View, prompt_file
from agents.types import ExpandedHypothesis
from agents.wording import KEYED, free_numbers
from validation.keys import Key


class KeyedNumber(View):
    """One number of `results.json` as the report may quote it."""

    key: str
    text: str
    label: str = ""


class ContractView(View):
    """What was registered, in words."""

    sha256: str
    statements: tuple[str, ...]


class ResultsView(View):
    """Aggregated results: numbers by key, the verdict and its reasons; never a patient."""

    verdict: Literal["supported", "not_supported", "inconclusive"]
    badge: str = ""
    reasons: tuple[str, ...]
    limits: tuple[str, ...]
    numbers: tuple[KeyedNumber, ...]
    figures: tuple[str, ...]
    simulated: bool = False


class InterpreterInput(View):
    """The expanded hypothesis, the contract, the results and figures; no ontology, no paths."""

    expanded: ExpandedHypothesis
    contract: ContractView
    results: ResultsView
    pictures: tuple[str, ...] = Field(default=(), description="the figures as PNG, base64")


class Interpretation(View):
    """Significance, size, assumptions and limits in words, with a feasibility score of 1 to 10."""

    headline: str
    findings: tuple[str, ...] = Field(min_length=1, max_length=10)
    assumptions: tuple[str, ...] = Field(default=(), max_length=6)
    limits: tuple[str, ...] = Field(min_length=1, max_length=8)
    feasibility_score: int = Field(ge=1, le=10)
    feasibility_reason: str


VERDICT_WORDS = {
    "supported": "is supported by",
    "not_supported": "is not supported by",
    "inconclusive": "could not be decided on",
}
SCORE = {"supported": 8, "inconclusive": 5, "not_supported": 3}


def interpret(given: InterpreterInput, resources: Resources) -> Interpretation:
    """State the verdict, then each registered result with its numbers by key."""
    results = given.results
    subject = "simulated data" if results.simulated else "this cohort"
    headline = f"The hypothesis {VERDICT_WORDS[results.verdict]} {subject}."
    keys = {one.key for one in results.numbers}
    secondary = [
        (f"{key} (secondary): ", f"{key}.secondary")
        for key in given.expanded.hypothesis.secondary_endpoints
    ]
    findings = [
        _effect("Primary comparison: ", "primary", keys),
        _line("Median time to event: exposed {} months, reference {} months.", keys,
              "kaplan_meier.exposed.median", "kaplan_meier.reference.median"),
        _line("Cumulative incidence by three years: exposed {}, reference {} (Gray's test p {}).",
              keys, "cumulative_incidence.exposed.at_36", "cumulative_incidence.reference.at_36",
              "gray.p"),
        _effect("Fine and Gray's model of the incidence: ", "fine_gray", keys),
        _effect("Adjusted for the registered covariates: ", "adjusted", keys),
        *(_effect(words, prefix, keys) for words, prefix in secondary),
        _effect("In the second cohort: ", "replicate.primary", keys),
        _prediction(keys),
        _line("Controls: with the outcome permuted {} times the result had p {}; the known"
              " positive gave a hazard ratio of {} (p {}).", keys,
              Key.PERMUTED_DRAWS, Key.PERMUTED_P, Key.KNOWN_POSITIVE_HR, Key.KNOWN_POSITIVE_P),
        _line("Over {} defensible specifications the sign was as expected in {}.", keys,
              Key.SPECIFICATIONS, Key.EXPECTED_SIGN),
    ]  # fmt: skip
    assumptions = [
        _line("Proportional hazards: global test p {}.", keys, "schoenfeld.global_p"),
        "Censoring is independent of the exposure; the data cannot show it.",
    ]
    limits = list(results.limits) or ["One cohort; no external validation was run."]
    said = tuple(one for one in findings if one)
    return Interpretation(
        headline=headline,
        findings=said[:10] or ("No number was computed; see the reasons of the verdict.",),
        assumptions=tuple(one for one in assumptions if one),
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


def _effect(words: str, prefix: str, known: set[str]) -> str:
    sentence = _line(words + "{} (p {})", known, f"{prefix}.summary", f"{prefix}.p")
    if not sentence:
        return ""
    sentence += _line("; q {} after error control over the ledger", known, f"{prefix}.q")
    sentence += _line("; {} patients, {} events", known, f"{prefix}.n", f"{prefix}.events")
    return sentence + "."


def _prediction(keys: set[str]) -> str:
    """How the adjusted model predicts, with where that was judged: the strictest place wins."""
    for words, prefix in (
        ("Applied to the second cohort with nothing fitted again", "replicate.calibration"),
        ("Applied to the held-back patients with nothing fitted again", "calibration"),
    ):
        found = _line(
            words + ", the adjusted model has calibration slope {} and concordance {}; {} observed"
            " events for each expected one.", keys, f"{prefix}.slope", f"{prefix}.harrell",
            f"{prefix}.ratio",
        )  # fmt: skip
        if found:
            return found
    return _line(
        "Within the cohort, corrected for optimism, the adjusted model has calibration slope {} and"
        " concordance {}.", keys, "calibration.slope", "calibration.harrell",
    )  # fmt: skip


def check_interpretation(given: InterpreterInput, answer: Interpretation) -> list[str]:
    """No free number, no unknown key, no contradiction of the verdict, no claim of causation."""
    problems = []
    known = {one.key for one in given.results.numbers}
    texts = [answer.headline, *answer.findings, *answer.assumptions, *answer.limits]
    texts.append(answer.feasibility_reason)
    quoted = given.expanded.hypothesis.statement
    for text in texts:
        for found in KEYED.findall(text):
            if found not in known:
                problems.append(f"[[{found}]] is no key of the results")
        strange = [one for one in free_numbers(text) if one not in quoted]
        # Limits and reasons that the validation package wrote may quote its own figures.
        if strange and text not in given.results.limits:
            problems.append(f'"{strange[0]}" is a bare number; write its key as [[key]]')
    if given.results.verdict != "supported" and _claims_support(answer.headline):
        problems.append(f"the verdict is {given.results.verdict}; the headline says otherwise")
    return problems


def _claims_support(headline: str) -> bool:
    lowered = headline.lower()
    positive = any(word in lowered for word in ("is supported", "confirm", "validates", "proves"))
    return positive and "not" not in lowered


def pictures_of(given: InterpreterInput) -> tuple[str, ...]:
    """The figures, for a model that can see."""
    return given.pictures


INTERPRETER = Agent(
    name="interpreter",
    role=Role.HIGH,
    reads=InterpreterInput,
    returns=Interpretation,
    prompt=prompt_file(__file__, "interpreter.md"),
    rule=interpret,
    check=check_interpretation,
    images=pictures_of,
)
