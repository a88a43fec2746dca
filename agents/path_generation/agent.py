"""Path generation: from the research prompt to a knowledge graph query (SAGE, 3.2.2)."""

from __future__ import annotations

from pydantic import Field

from agents.core.base import Agent, Resources, Role, View, prompt_file
from agents.question.types import PartRole, Question
from kg.types import EntityType
from sage.core.models import Passage


class PathRequest(View):
    """Input to path generation: the prompt and its parts."""

    prompt: Passage
    question: Question = Question(prompt="")
    already: tuple[str, ...] = Field(default=(), description="earlier queries that led to no path")


class PathQuery(View):
    """Start concepts, end concepts, and the disease context for relevance."""

    sources: tuple[str, ...] = Field(
        max_length=6, description="start concepts, each a name or a type word such as 'genes'"
    )
    targets: tuple[str, ...] = Field(max_length=6, description="end concepts, in the same form")
    domain: str = Field(description="disease or research context, e.g. 'bladder cancer'")


def read_prompt(given: PathRequest, resources: Resources) -> PathQuery:
    """Leave the choice of concepts to the graph search and set only the disease context.

    The context is the longest disease name in the ontology that occurs in the prompt, or else
    the whole prompt. A question in another language is converted to a query by the English
    names of its parts.
    """
    if given.question.language != "en":
        return _by_parts(given.question)
    found = [
        entry
        for entry in resources.ontology.entries()
        if entry.type is EntityType.DISEASE
        and _mentions(given.prompt, (entry.name, *entry.synonyms))
    ]
    domain = max(found, key=lambda entry: len(entry.name)).name if found else given.prompt
    return PathQuery(sources=(), targets=(), domain=domain)


def _by_parts(question: Question) -> PathQuery:
    """Build a query from the question's exposures and outcome."""
    ends = tuple(part.name for part in question.list_parts(PartRole.ENDPOINT) if part.name)
    starts = tuple(
        part.graph_node or part.name
        for role in (PartRole.EXPOSURE, PartRole.MODIFIER, PartRole.TREATMENT)
        for part in question.list_parts(role)
        if part.name and not part.negated
    )
    setting = question.setting
    return PathQuery(
        sources=starts[:6],
        targets=ends[:6],
        domain=setting.asked or setting.cohort or question.prompt,
    )


def _mentions(text: str, names: tuple[str, ...]) -> bool:
    padded = f" {''.join(c if c.isalnum() else ' ' for c in text.lower())} "
    padded = " ".join(padded.split())
    return any(
        f" {' '.join(''.join(c if c.isalnum() else ' ' for c in name.lower()).split())} "
        in f" {padded} "
        for name in names
        if name
    )


PATH_GENERATION = Agent(
    name="path_generation",
    role=Role.NANO,
    reads=PathRequest,
    returns=PathQuery,
    prompt=prompt_file(__file__, "path_generation.md"),
    rule=read_prompt,
)
