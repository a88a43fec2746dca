"""The validation agent: a second implementation of a contract's registered numbers (SAGE, 3.3.1).

SAGE computes every registered number itself. This agent's program recomputes the same
numbers from the prepared tables with public libraries; the report states whether the two
agree.
"""

from __future__ import annotations

from pydantic import Field

from agents.coding.types import ContractBrief
from agents.core.base import Agent, Resources, Role, View, prompt_file
from validation.reproduction.compare import Task, second_program


class ProgramInput(View):
    """The contract, the required numbers, and earlier failures.

    `task` is the content of the program's `task.json`. `feedback` has been scrubbed: it
    contains neither the program's output nor SAGE's own numbers.
    """

    contract: ContractBrief
    task: Task
    allowed_imports: tuple[str, ...]
    round: int = Field(default=1, ge=1)
    rounds: int = Field(default=3, ge=1)
    previous: str = ""
    feedback: tuple[str, ...] = ()


class Program(View):
    """The text of `analysis.py`, and a sentence on how it computes the registered numbers."""

    code: str = Field(min_length=1, max_length=100_000)
    note: str = Field(default="", max_length=500)


def compile_program(given: ProgramInput, resources: Resources) -> Program:
    """Return the second implementation compiled by SAGE, based on lifelines and statsmodels."""
    return Program(code=second_program(), note="Uses lifelines, statsmodels and scipy.")


VALIDATION_AGENT = Agent(
    name="validation_agent",
    role=Role.HIGH,
    reads=ProgramInput,
    returns=Program,
    prompt=prompt_file(__file__, "validation.md"),
    rule=compile_program,
)
