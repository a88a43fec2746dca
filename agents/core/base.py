"""Agents as data, and the protocol of a reasoner.

An agent is data: what it reads, what it returns, its prompt file, its rule. It holds no model
client, touches no file and knows no other agent. A reasoner turns an agent and its input into the
output schema, with a model (`agents.core.chat`) or by rules (`agents.core.rules`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from pydantic import BaseModel

from sage.core.llm.turns import DEFAULT_BOUNDS, Bounds, Moves, Spent, Tool
from sage.core.models import Strict

if TYPE_CHECKING:
    from kg.lexicon.ontology import Ontology


class Role(StrEnum):
    """Size of the model that an agent needs; settings map roles to models (SAGE, Table 5)."""

    NANO = "nano"
    MINI = "mini"
    HIGH = "high"


class View(Strict):
    """An agent's input or output: frozen, and closed to fields that it does not list."""


@dataclass(frozen=True)
class Resources:
    """Resources of a rule beside its input; none depends on the run's earlier agents."""

    ontology: Ontology
    seed: int = 0


I = TypeVar("I", bound=BaseModel)  # noqa: E741
O = TypeVar("O", bound=BaseModel)  # noqa: E741


@dataclass(frozen=True)
class PromptFile:
    """A versioned prompt beside its agent.

    The file starts with `version: N`, then `## system` and `## user` sections; `{{ name }}` in the
    user section takes the input's fields (jinja2, sandboxed; strict about undefined names).
    """

    path: Path

    @cached_property
    def text(self) -> str:
        """The file's content, read once."""
        return self.path.read_text(encoding="utf-8")


def prompt_file(module_file: str, name: str) -> PromptFile:
    """Return the prompt `name` in the folder `prompts/` beside the module."""
    return PromptFile(Path(module_file).parent / "prompts" / name)


@dataclass(frozen=True)
class Agent(Generic[I, O]):
    """An agent: its input, its output, its prompt, its rule.

    `check`, if given, returns the reasons why an output is not acceptable for this input (say, a
    citation that was not retrieved); a chat reasoner sends them back to the model, and where that
    does not help keeps what `mend` leaves of the output. `images`, if
    given, returns PNGs as base64 text, which a reasoner adds where its model can see.

    An agent with `tools` works in turns within its `bounds`: whoever asks it binds the tools to
    what they work on. Where a rule is to use them it is a `policy` instead, which drives the same
    tools; `rule` then answers for an agent that was given none.
    """

    name: str
    role: Role
    reads: type[I]
    returns: type[O]
    prompt: PromptFile
    rule: Callable[[I, Resources], O]
    check: Callable[[I, O], list[str]] | None = None
    mend: Callable[[I, O], O] | None = None
    images: Callable[[I], tuple[str, ...]] | None = None
    tools: tuple[Tool[Any], ...] = ()
    bounds: Bounds = DEFAULT_BOUNDS
    policy: Callable[[I, Resources], Moves[O]] | None = None


@dataclass(frozen=True)
class Reply(Generic[O]):
    """An agent's output, and what it cost."""

    output: O
    reasoner: str
    model: str | None
    spent: Spent


class Reasoner(Protocol):
    """Something that can fill an agent's output schema from its input."""

    name: str

    def ask(self, agent: Agent[I, O], given: I) -> Reply[O]:
        """Return the agent's output for `given`."""
        ...
