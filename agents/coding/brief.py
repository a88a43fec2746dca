"""A frozen contract in the words that the sub-agents read."""

from __future__ import annotations

from agents.coding.types import Column, ContractBrief, PlannedTest
from validation.contracts.contract import FrozenContract


def brief(frozen: FrozenContract) -> ContractBrief:
    """The contract without its data hashes and thresholds: what must be run on which columns."""
    contract = frozen.contract
    return ContractBrief(
        sha256=frozen.sha256,
        statement=contract.hypothesis.statement,
        cohort=contract.cohort,
        simulated=contract.simulated,
        population=contract.population,
        exposed=contract.exposed,
        reference=contract.reference,
        columns=tuple(
            Column(key=one.key, label=one.label, kind=one.kind, role=one.role, unit=one.unit)
            for one in contract.variables
        ),
        endpoints=tuple(one.key for one in contract.endpoints),
        tests=tuple(
            PlannedTest(
                id=one.id,
                role=one.role,
                method=one.method,
                endpoint=one.endpoint,
                covariates=one.covariates,
                strata=one.strata,
            )
            for one in contract.tests
        ),
        primary=contract.primary,
        seed=contract.seed,
    )
