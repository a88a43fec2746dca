"""Checks on prose that a reasoner wrote: no number without a source (SAGE, 4.2 and E.3)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from agents.prose.check import Judge, replace_text
from validation.core.hypothesis import Comparison, Direction, Exposure, Hypothesis

KEYED = re.compile(r"\[\[([a-z0-9_.\-]+)\]\]", re.IGNORECASE)
# A free-standing number: not part of a name (FABP5, CD8, 12-chemokine, PD-1, T2, γH2AX).
NUMBER = re.compile(r"(?<![\w.\-/])[<>≤≥~≈]?\d+(?:[.,]\d+)*\s?(?:%|x\b|×)?(?![\w\-])")
EFFECT = re.compile(
    r"\b(?:HR|OR|RR|hazard ratio|odds ratio|p(?:-value)?)\s*(?:of|=|:|<|>|≈|~)?\s*\d", re.IGNORECASE
)


def names_pattern(names: Iterable[str]) -> str:
    """A pattern that finds these names in a sentence, the longest first.

    A bare number is no name, nor is what is too short to distinguish from a word.
    """
    known = {name for name in names if len(name) >= 3 and any(char.isalpha() for char in name)}
    ordered = sorted(known, key=lambda name: (-len(name), name))
    return "|".join(rf"(?<!\w){re.escape(name)}(?!\w)" for name in ordered)


def free_numbers(text: str, *names: str) -> list[str]:
    """Numbers in `text` that state a quantity: not part of a name, nor a reference to a result.

    `names` are what the run was given by name (labels, titles, a reviewed statement): digits in
    them are part of the name.
    """
    if names:
        pattern = names_pattern(names)
        text = re.sub(pattern, " ", text, flags=re.IGNORECASE) if pattern else text
    bare = KEYED.sub(" ", text)
    return [found.group().strip() for found in NUMBER.finditer(bare)] + [
        found.group().strip() for found in EFFECT.finditer(bare)
    ]


def unsupported_numbers(field: str, text: str, *names: str) -> list[str]:
    """Report the first quantity of a text that nothing has measured yet."""
    found = free_numbers(text, *names)
    if not found:
        return []
    return [
        f'{field} states a number ("{found[0]}") that no evidence gives; write it without numbers'
    ]


def hypothesis_texts(hypothesis: Hypothesis) -> list[str]:
    """Free texts of a hypothesis; its statement is made from its fields."""
    return [name for name in (hypothesis.rationale, hypothesis.feasibility) if name] + list(
        hypothesis.untested
    )


def replace_wording(hypothesis: Hypothesis, judge: Judge) -> Hypothesis:
    """The hypothesis with refused sentences replaced or, where nothing can be said, left out."""
    rationale = "It rests on the relationships that are listed with their sources."
    design = describe_design(hypothesis)
    return hypothesis.model_copy(
        update={
            "rationale": replace_text(hypothesis.rationale, rationale, judge),
            "feasibility": replace_text(
                hypothesis.feasibility, f"The comparison is of {design}.", judge
            ),
            "untested": tuple(name for name in hypothesis.untested if not judge(name)),
        }
    )


def describe_exposure(exposure: Exposure) -> str:
    """Describe an exposure, e.g. "high FABP5 expression"."""
    return f"{exposure.level} {exposure.label}"


def describe_design(hypothesis: Hypothesis) -> str:
    """Describe the groups that are compared."""
    exposed = " and ".join(describe_exposure(exposure) for exposure in hypothesis.exposures)
    opposite = {"high": "low", "low": "high"}
    other = " and ".join(
        f"{opposite[exposure.level]} {exposure.label}" for exposure in hypothesis.exposures
    )
    match hypothesis.comparison:
        case Comparison.EXPOSED_VS_REST:
            return f"patients with {exposed} against all others"
        case Comparison.EXTREMES:
            return f"patients with {exposed} against patients with {other}"
        case Comparison.INTERACTION:
            return f"the interaction of {exposed}"
        case Comparison.PER_SD:
            return f"each standard deviation of {hypothesis.exposures[0].label}"
        case Comparison.PER_DOUBLING:
            return f"each doubling of {hypothesis.exposures[0].label}"
        case Comparison.TREND:
            return f"ordered groups of {hypothesis.exposures[0].label}, step by step"
        case Comparison.MEDIATION:
            exposure, mediator = hypothesis.exposures
            return f"the effect of {exposure.label} through {mediator.label}"
        case Comparison.COMBINED:
            return f"{exposed} jointly"
        case Comparison.PREDICTIVE:
            marker, treatment = hypothesis.exposures
            return f"the effect of {treatment.label} by {marker.label}"
        case Comparison.MODIFICATION:
            exposure, modifier = hypothesis.exposures
            return f"the association of {exposure.label} by {modifier.label}"


def describe_direction(hypothesis: Hypothesis, kind: str) -> str:
    """Describe the expected direction, for an endpoint of `kind`."""
    worse = hypothesis.direction is Direction.HIGHER_RISK
    if kind == "competing":
        return "sooner (higher hazard)" if worse else "later (lower hazard)"
    if kind == "survival":
        return "shorter survival (higher hazard)" if worse else "longer survival (lower hazard)"
    if kind == "binary":
        return "more frequent" if worse else "less frequent"
    return "higher values" if worse else "lower values"
