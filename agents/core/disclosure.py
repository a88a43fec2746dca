"""Disclosure gate before every prompt: bounded, typed, aggregate data pass; patient rows do not.

Types keep rows out (an agent's input has no field for them); this module checks again
before the text is sent. `validation.disclosure` decides which aggregates may be included.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from pydantic import BaseModel

from sage.core.errors import FaultError

LONGEST_TEXT = 120_000
LONGEST_SERIES = 50
"""Maximum length of a numeric series; a longer field is assumed to have a value per patient."""
SHORTEST_IDENTIFIER = 5
_WORD = re.compile(r"[A-Za-z0-9_.:-]+")

Withheld = Callable[[], Collection[str]]


def identifiers(values: Iterable[object]) -> frozenset[str]:
    """Return the patient identifiers to keep out of prompts, omitting short, ambiguous strings."""
    texts = {str(value) for value in values}
    return frozenset(
        text
        for text in texts
        if len(text) >= SHORTEST_IDENTIFIER and not (text.isdigit() and len(text) < 7)
    )


def require_disclosable(
    agent: str, given: BaseModel, prompt: str, withheld: Collection[str]
) -> None:
    """Check that a prompt discloses no patient data, or raise an error that stops the run.

    Parameters
    ----------
    withheld : identifiers of patients (see `identifiers`)

    Raises
    ------
    FaultError
        If a field is too long, contains as many numbers as a patient table would, or the text
        names a patient. The message repeats none of the content.
    """
    _require_bounded(agent, given.model_dump(), "input")
    if len(prompt) > 4 * LONGEST_TEXT:
        raise FaultError(f"{agent}: blocked a prompt of {len(prompt)} characters")
    words = {word.strip(".:-") for word in _WORD.findall(prompt)}
    odd = [item for item in withheld if _WORD.fullmatch(item) is None]
    if not words.isdisjoint(withheld) or any(item in prompt for item in odd):
        raise FaultError(
            f"{agent}: blocked a prompt that names a patient in the cohort; look for the "
            "identifier in cohort.toml, in the hypothesis, or in the instructions"
        )


def _require_bounded(agent: str, value: Any, name: str) -> None:
    if isinstance(value, str):
        # Images are SAGE's own figures as base64, whose length depends on the figure.
        if len(value) > LONGEST_TEXT and not name.endswith("pictures"):
            raise FaultError(f"{agent}: prompt blocked because {name} has {len(value)} characters")
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            _require_bounded(agent, inner, f"{name}.{key}"[:200])
    elif isinstance(value, list | tuple | set | frozenset):
        numbers = sum(isinstance(item, int | float) for item in value)
        if numbers > LONGEST_SERIES:
            raise FaultError(f"{agent}: prompt blocked because {name} contains {numbers} numbers")
        for inner in value:
            _require_bounded(agent, inner, name)


def require_bounded(tool: str, result: BaseModel) -> None:
    """Check that a tool's result has no overlong text or patient table, or raise an error.

    Raises
    ------
    FaultError
        If the result contains an overlong text or a patient table; the message repeats none
        of the content.
    """
    _require_bounded(tool, result.model_dump(), "result")
