"""Input, steps, observations, and answer of the code-acting agent."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from agents.coding.appendix import Table
from agents.core.base import View

MOST_STEPS = 20
"""Maximum number of steps per question (NOVA, 3.1 and table H.1)."""
STEP_SECONDS = 300.0
LONGEST_CODE = 20_000

Scalar = float | int | str | bool | None


class Given(View):
    """A file or folder as seen by programs; for a folder, its first `files`.

    `name` is the original name if it differs from the path.
    """

    path: str
    kind: str
    name: str = ""
    files: tuple[str, ...] = ()
    more: int = 0


class Asked(View):
    """The question, with its data, tools and modules."""

    question: str
    data: tuple[Given, ...]
    tools: tuple[str, ...]
    imports: tuple[str, ...]
    steps: int
    seconds: float


class Cell(View):
    """A step, with its rationale and the program to run."""

    thought: Annotated[str, Field(max_length=4000)] = ""
    code: Annotated[str, Field(min_length=1, max_length=LONGEST_CODE)]


class Called(View):
    """A tool call made by a step."""

    tool: str
    seconds: float
    error: str | None = None


class Observation(View):
    """A step's output; an `undone` step has no lasting effect on variables or files.

    `tables` and `left_out` are used for explorations, where nothing is printed.
    """

    step: int
    printed: str = ""
    value: str = ""
    error: str = ""
    tables: tuple[Table, ...] = ()
    left_out: tuple[str, ...] = ()
    calls: tuple[Called, ...] = ()
    files: tuple[str, ...] = ()
    undone: bool = False
    seconds: float = 0.0


class CodeAnswer(View):
    """The answer; None, with the `reason`, if the data do not determine it."""

    answer: Annotated[str, Field(max_length=4000)] | None
    values: dict[str, Scalar] = Field(default_factory=dict, max_length=50)
    files: tuple[str, ...] = Field(default=(), max_length=50)
    reason: Annotated[str, Field(max_length=2000)] = ""


class Done(View):
    """A completed step and its output."""

    cell: Cell
    observation: Observation


class Acted(View):
    """Record of a session.

    `outcome` is "answered", "abstained" or "failed"; `own_functions` are defined by the
    programs.
    """

    question: str
    data: dict[str, str]
    by: str
    model: str | None = None
    sandbox: str
    outcome: str
    answer: CodeAnswer | None = None
    error: str = ""
    steps: tuple[Done, ...] = ()
    own_functions: tuple[str, ...] = ()
    prompt_tokens: int = 0
    completion_tokens: int = 0
    usd: float = 0.0
    seconds: float = 0.0
    statement: str
