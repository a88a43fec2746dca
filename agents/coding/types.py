"""Types for the coding agent."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from agents.core.base import View
from sandbox.types import SandboxResult
from validation.contracts.contract import FrozenContract, TestPlan, VariableUse
from validation.results.results import Part, Reproduction


class ContractBrief(View):
    """The frozen contract as the sub-agents see it: names, rules and registered tests."""

    sha256: str
    statement: str
    cohort: str
    simulated: bool
    population: str
    exposed: str
    reference: str
    columns: tuple[VariableUse, ...]
    endpoints: tuple[str, ...]
    tests: tuple[TestPlan, ...]
    primary: str
    seed: int


def brief_of(frozen: FrozenContract) -> ContractBrief:
    """Describe a contract for the sub-agents, without its data hashes and rules."""
    contract = frozen.contract
    return ContractBrief(
        sha256=frozen.sha256,
        statement=contract.hypothesis.statement,
        cohort=contract.cohort,
        simulated=contract.simulated,
        population=contract.population,
        exposed=contract.exposed,
        reference=contract.reference,
        columns=tuple(use for use in contract.variables if use.role != "unadjusted"),
        endpoints=tuple(endpoint.key for endpoint in contract.endpoints),
        tests=contract.tests,
        primary=contract.primary,
        seed=contract.seed,
    )


class DataProvenance(View):
    """Provenance of the analysis-ready tables: hashes, versions and counts, never rows."""

    part: Part
    cohort: str
    simulated: bool
    patients_in_cohort: int
    patients_in_table: int
    columns: dict[str, str]
    data_hashes: dict[str, str]
    files: dict[str, str]
    losses: tuple[str, ...] = ()
    tools: dict[str, str] = Field(default_factory=dict)


class Attempt(View):
    """A round of the second implementation: its code, outcome and feedback.

    `result` contains nothing that the program could choose: no output, names or exit code.
    `reproduction` is set if the program left readable numbers; `accepted` is true if no
    required number is missing or different.
    """

    number: int
    part: Part
    by: str
    code_path: str
    code_sha256: str
    compiled_by_sage: bool
    result: SandboxResult
    feedback: tuple[str, ...] = ()
    reproduction: Reproduction | None = None
    accepted: bool = False


class CodingOutcome(View):
    """Outcome of carrying out a contract. Paths are relative to the work folder.

    `results` and `figures` come from SAGE's own computation; `attempts` are rounds of the
    second implementation.
    """

    status: Literal["done", "escalated"]
    contract_sha256: str
    sandbox: str
    reasoner: str
    provenance: tuple[DataProvenance, ...]
    attempts: tuple[Attempt, ...]
    results: str | None = None
    figures: tuple[str, ...] = ()
    verdict: str | None = None
    message: str = ""

    @property
    def rounds(self) -> int:
        """Number of rounds of the second implementation."""
        return len(self.attempts)
