"""The validation agent: the analysis program of a contract, compiled or written (SAGE, 3.3.1)."""

from __future__ import annotations

from pydantic import Field

from agents.base import Agent, Resources, Role, View, prompt_file
from agents.coding.types import ContractBrief, ExecutionPlan

API = """\
from validation.analysis import Analysis

analysis = Analysis.open(inputs)    # verifies the prepared inputs; inputs is a pathlib.Path
analysis.table                      # a copy of the table: one row per pseudonymous patient
analysis.frozen.sha256              # the contract's hash
analysis.derive("name", series)     # adds a descriptive variable; replaces no registered one
analysis.run()                      # runs every registered test and control
analysis.finish(out)                # draws the figures, writes the results; out is a Path
"""


class ProgramInput(View):
    """The contract, the plan, the programming interface, and what went wrong before.

    `compiled` is the program that SAGE compiled from the contract. `feedback` has been scrubbed:
    it holds no output of the program beyond error names, places and masked messages.
    """

    contract: ContractBrief
    plan: ExecutionPlan
    allowed_imports: tuple[str, ...]
    compiled: str
    api: str = API
    round: int = Field(default=1, ge=1)
    rounds: int = Field(default=3, ge=1)
    previous: str = ""
    feedback: tuple[str, ...] = ()


class Program(View):
    """The text of `analysis.py`, and in a sentence what it does beyond the registered tests."""

    code: str = Field(min_length=1, max_length=100_000)
    note: str = Field(default="", max_length=500)


def compile_program(given: ProgramInput, resources: Resources) -> Program:
    """The program that SAGE compiled from the contract, unchanged."""
    return Program(code=given.compiled, note="Compiled from the contract.")


VALIDATION_AGENT = Agent(
    name="validation_agent",
    role=Role.HIGH,
    reads=ProgramInput,
    returns=Program,
    prompt=prompt_file(__file__, "validation.md"),
    rule=compile_program,
)
