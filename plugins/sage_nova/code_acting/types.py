"""What the code-acting agent reads, writes at each step, and answers."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from agents.base import View
from agents.coding.appendix import Table

MOST_STEPS = 20
"""Steps per question (NOVA, 3.1 and table H.1)."""
STEP_SECONDS = 300.0
LONGEST_CODE = 20_000

Scalar = float | int | str | bool | None


class Given(View):
    """A file or folder of the question's as programs see it; of a folder, its first `files`.

    `name` is what its owner calls it, where the path does not say so.
    """

    path: str
    kind: str
    name: str = ""
    files: tuple[str, ...] = ()
    more: int = 0


class Asked(View):
    """The question, its data and what may be used."""

    question: str
    data: tuple[Given, ...]
    tools: tuple[str, ...]
    imports: tuple[str, ...]
    steps: int
    seconds: float


class Cell(View):
    """One step: why, and the program that is run."""

    thought: Annotated[str, Field(max_length=4000)] = ""
    code: Annotated[str, Field(min_length=1, max_length=LONGEST_CODE)]


class Called(View):
    """A tool that a step called."""

    tool: str
    seconds: float
    error: str | None = None


class Observation(View):
    """What came of a step. An `undone` step left nothing behind, neither variable nor file.

    `tables` and `left_out` are of explorations, where nothing is printed.
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
    """The answer; None where the data do not give one, and `reason` then says why."""

    answer: Annotated[str, Field(max_length=4000)] | None
    values: dict[str, Scalar] = Field(default_factory=dict, max_length=50)
    files: tuple[str, ...] = Field(default=(), max_length=50)
    reason: Annotated[str, Field(max_length=2000)] = ""


class Done(View):
    """A step with what came of it."""

    cell: Cell
    observation: Observation


class Acted(View):
    """A question with everything that was done for it: the record of a session.

    `outcome` is "answered", "abstained" or "failed"; `own_functions` are what the programs defined
    themselves, apart from the tools.
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
