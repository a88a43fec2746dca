"""Agents as data, and the protocol of a reasoner.

An agent is data: its input, its output, its prompt file and its rule. It has no model client,
accesses no files and does not know any other agent. A reasoner turns an agent and its input into
the output schema, with a model (`agents.core.chat`) or by rules (`agents.core.rules`).
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
    """An agent's input or output: frozen, and closed to unlisted fields."""


@dataclass(frozen=True)
class Resources:
    """Resources of a rule in addition to its input; none depends on earlier agents of the run."""

    ontology: Ontology
    seed: int = 0


I = TypeVar("I", bound=BaseModel)  # noqa: E741
O = TypeVar("O", bound=BaseModel)  # noqa: E741


@dataclass(frozen=True)
class PromptFile:
    """A versioned prompt next to its agent.

    The file starts with `version: N`, then `## system` and `## user` sections; `{{ name }}` in the
    user section is replaced by a field of the input (jinja2, sandboxed; strict about undefined
    names). `more` continues it, so that agents who are given the same share its beginning.
    """

    path: Path
    more: Path | None = None

    @cached_property
    def text(self) -> str:
        """Content of the files, read once."""
        files = (self.path, self.more) if self.more else (self.path,)
        return "\n".join(file.read_text(encoding="utf-8") for file in files)


def prompt_file(module_file: str, name: str, more: str | None = None) -> PromptFile:
    """Return the prompt `name` in the folder `prompts/` next to the module."""
    folder = Path(module_file).parent / "prompts"
    return PromptFile(folder / name, folder / more if more else None)


@dataclass(frozen=True)
class Agent(Generic[I, O]):
    """An agent: its input, its output, its prompt and its rule.

    `check`, if given, returns the reasons why an output is not acceptable for this input (say, a
    citation that was not retrieved); a chat reasoner sends them back to the model, and if that does
    not help, keeps the part of the output that `mend` returns. `images`, if given, returns PNGs as
    base64 text, which a reasoner adds if its model accepts images.

    `spare` names fields of several items that may be left out, one by one, where the prompt does
    not fit a model's context (`agents.core.fitting`).

    An agent with `tools` works in turns within its `bounds`: the caller binds the tools to their
    data. A rule that uses the tools is given as a `policy`, which calls the same tools; `rule` then
    answers if the agent has no tools.
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
    """A reasoner, which fills an agent's output schema from the agent's input."""

    name: str

    def ask(self, agent: Agent[I, O], given: I) -> Reply[O]:
        """Return the agent's output for `given`."""
        ...
