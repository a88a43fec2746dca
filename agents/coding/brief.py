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
            Column(
                key=variable.key,
                label=variable.label,
                kind=variable.kind,
                role=variable.role,
                unit=variable.unit,
            )
            for variable in contract.variables
        ),
        endpoints=tuple(endpoint.key for endpoint in contract.endpoints),
        tests=tuple(
            PlannedTest(
                id=test.id,
                role=test.role,
                method=test.method,
                endpoint=test.endpoint,
                covariates=test.covariates,
                strata=test.strata,
            )
            for test in contract.tests
        ),
        primary=contract.primary,
        seed=contract.seed,
    )
