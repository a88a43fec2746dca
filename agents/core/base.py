"""Agents as data, and the reasoner protocol.

An agent is data: its input, its output, its prompt file and its rule. It has no model
client, accesses no files and does not know any other agent. A reasoner fills the output
schema from the agent and its input, with a model (`agents.core.chat`) or by rules
(`agents.core.rules`).
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
    """Model size that an agent needs; settings map roles to models (SAGE, Table 5)."""

    NANO = "nano"
    MINI = "mini"
    HIGH = "high"


class View(Strict):
    """Base class for agent inputs and outputs: frozen, without extra fields."""


@dataclass(frozen=True)
class Resources:
    """Resources available to a rule besides its input; independent of earlier agents in the run."""

    ontology: Ontology
    seed: int = 0


I = TypeVar("I", bound=BaseModel)  # noqa: E741
O = TypeVar("O", bound=BaseModel)  # noqa: E741


@dataclass(frozen=True)
class PromptFile:
    """A versioned prompt stored next to its agent.

    The file starts with `version: N`, followed by `## system` and `## user` sections; in the
    user section, `{{ name }}` is replaced by a field of the input (jinja2, sandboxed;
    undefined names raise an error). `more` is a second file appended to the first, so that
    agents with the same material share the beginning of their prompts.
    """

    path: Path
    more: Path | None = None

    @cached_property
    def text(self) -> str:
        """Content of the files, read once."""
        files = (self.path, self.more) if self.more else (self.path,)
        return "\n".join(file.read_text(encoding="utf-8") for file in files)


def prompt_file(module_file: str, name: str, more: str | None = None) -> PromptFile:
    """Return the prompt `name` in the `prompts/` folder next to the module."""
    folder = Path(module_file).parent / "prompts"
    return PromptFile(folder / name, folder / more if more else None)


@dataclass(frozen=True)
class Agent(Generic[I, O]):
    """An agent: its input, its output, its prompt and its rule.

    `check`, if given, returns the reasons why an output is not acceptable for this input (for
    example, a citation that was not retrieved). A chat reasoner sends them back to the model;
    if that does not help, it keeps the part of the output that `mend` returns. `images`, if
    given, returns PNGs as base64 text, which a reasoner adds if its model accepts images.

    `spare` names fields with several items that may be left out individually if the prompt
    does not fit a model's context (`agents.core.fitting`).

    An agent with `tools` works in turns within its `bounds`; the caller binds the tools to
    their data. A rule that uses the tools is given as a `policy`, which calls the same tools;
    `rule` is then used only if the agent has no tools.
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
    spare: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reply(Generic[O]):
    """An agent's output and its cost."""

    output: O
    reasoner: str
    model: str | None
    spent: Spent


class Reasoner(Protocol):
    """Protocol for reasoners, which fill an agent's output schema from its input."""

    name: str

    def ask(self, agent: Agent[I, O], given: I) -> Reply[O]:
        """Return the agent's output for `given`."""
        ...
