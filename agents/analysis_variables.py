"""Which columns answer a research question, and in which role, from their descriptions alone."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from pydantic import Field

from agents.base import Agent, Resources, Role, View, prompt_file

SMALL_WORDS = frozenset(
    re.findall(
        r"\w+",
        "a an and are as at be by for from has have how if in into is it its of on or over per that"
        " the their this to variable variables was what which whether who with equals otherwise"
        " respondent represents rate rates used data dataset did does do",
    )
)
SAID = 0.25
"""Share of a column's own words that a question says, from which the column is an exposure."""


class VariablesInput(View):
    """A research question, and the columns of the data with what they mean."""

    question: str
    description: str = ""
    columns: dict[str, str]


class Variables(View):
    """Columns by role: the outcome, what may explain it, and what is adjusted for."""

    outcome: str
    exposures: tuple[str, ...] = Field(min_length=1, max_length=20)
    covariates: tuple[str, ...] = Field(default=(), max_length=40)
    reason: str = Field(default="", max_length=3000)


def words_of(text: str) -> set[str]:
    """The words of a text that tell something, by their stems."""
    found = re.findall(r"[a-z]+", text.replace("_", " ").lower())
    return {word[:8].rstrip("s") for word in found} - {w[:8].rstrip("s") for w in SMALL_WORDS}


def overlap(columns: Mapping[str, str], name: str, text: str) -> float:
    """Share of a column's own words that a text says; rare words of the columns weigh more.

    Parameters
    ----------
    columns : descriptions by name
    name : of one of them
    text : say a question
    """
    all_words = {column: words_of(f"{column} {said}") for column, said in columns.items()}
    weight = {
        word: math.log(1 + len(all_words) / sum(word in held for held in all_words.values()))
        for word in all_words[name]
    }
    said = words_of(text)
    whole = math.fsum(weight.values())  # exact, so that ties do not hang on the order of a set
    return math.fsum(w for word, w in weight.items() if word in said) / whole if whole else 0.0


def variables_problems(given: VariablesInput, output: Variables) -> list[str]:
    """Columns that the data does not have, or that stand in two roles."""
    named = (output.outcome, *output.exposures, *output.covariates)
    problems = [f"{name!r} is none of the columns" for name in named if name not in given.columns]
    if len(set(named)) < len(named):
        problems.append("a column stands in one role, once")
    return problems


def choose_by_words(given: VariablesInput, _: Resources) -> Variables:
    """The column that the question says most of is the outcome; others that it says are exposures.

    Where it says only one, the next is the exposure. Nothing is adjusted for.
    """
    share = {name: overlap(given.columns, name, given.question) for name in given.columns}
    order = sorted(given.columns, key=lambda name: -share[name])
    said = [name for name in order[1:] if share[name] >= SAID]
    return Variables(outcome=order[0], exposures=tuple(said[:20] or order[1:2]),
                     reason="by the words of the question")  # fmt: skip


ANALYSIS_VARIABLES = Agent(
    name="analysis_variables", role=Role.HIGH, reads=VariablesInput, returns=Variables,
    prompt=prompt_file(__file__, "analysis_variables.md"), rule=choose_by_words,
    check=variables_problems,
)  # fmt: skip
