"""One multiple-choice question: its material, its options, and the letter that is chosen."""

from __future__ import annotations

import re

from pydantic import Field

from agents.base import Agent, Resources, Role, View, prompt_file
from sage_tumor_board.board.types import letter_of

_GC = re.compile(r"\bGC\b.*(percent|content|%)|(percent|content|%).*\bGC\b", re.I | re.S)
_BASES = re.compile(r"\b[ACGT]{12,}\b")
_NUMBER = re.compile(r"\s*(\d{1,3}(?:\.\d+)?)\s*(?:%|percent)?\s*", re.I)


class ChoiceInput(View):
    """The question, what stands beside it, and its options by letter.

    `refusal` is the letter of the option that declines; empty where none does.
    """

    question: str
    material: str = ""
    options: dict[str, str]
    refusal: str = ""


class Choice(View):
    """A letter, or nothing, and why."""

    answer: str = Field(max_length=400)
    reason: str = Field(default="", max_length=3000)


def chosen(answer: str, options: dict[str, str]) -> str | None:
    """The letter that an answer names; one alone is no words, also where an option is "A"."""
    alone = answer.strip().upper()
    return alone if alone in options else letter_of(answer, options)


def choice_problems(given: ChoiceInput, output: Choice) -> list[str]:
    """An answer that names none of the options."""
    if not output.answer.strip() or chosen(output.answer, given.options):
        return []
    return [f"answer: give one letter of {', '.join(given.options)}"]


def gc_percent(question: str, options: dict[str, str]) -> str | None:
    """The letter of the GC content of the one sequence that a question spells out, or None.

    An option fits within half a percent, that is as it is rounded to whole ones.
    """
    sequences = set(_BASES.findall(question.upper()))
    if len(sequences) != 1 or not _GC.search(question):
        return None
    bases = sequences.pop()
    percent = 100 * (bases.count("G") + bases.count("C")) / len(bases)
    numbers = {letter: _NUMBER.fullmatch(words) for letter, words in options.items()}
    near = [n for n, found in numbers.items() if found and abs(float(found[1]) - percent) <= 0.5]
    return near[0] if len(near) == 1 else None


def compute_or_decline(given: ChoiceInput, _: Resources) -> Choice:
    """What arithmetic on the question itself answers; everything else is declined."""
    letter = gc_percent(given.question, given.options)
    if letter is None:
        return Choice(answer=given.refusal, reason="nothing in the question computes its answer")
    return Choice(answer=letter, reason="GC content of the sequence in the question")


MULTIPLE_CHOICE = Agent(
    name="multiple_choice", role=Role.HIGH, reads=ChoiceInput, returns=Choice,
    prompt=prompt_file(__file__, "multiple_choice.md"), rule=compute_or_decline,
    check=choice_problems,
)  # fmt: skip
