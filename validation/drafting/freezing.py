"""Binding a contract to a cohort's data: the last step before an outcome is compared."""

from __future__ import annotations

from sage.core.errors import InputError
from validation.cohort.cohort import Cohort
from validation.contracts.contract import Contract, FrozenContract, digest
from validation.drafting.power import exact_power


def freeze(contract: Contract, cohort: Cohort) -> FrozenContract:
    """Bind a contract to a cohort's data, after group sizes and power were made exact.

    Reads variables, who has the outcome, and the overall event rate; never an outcome by exposure.

    Raises `InputError` if the cohort is another one, or lacks something that the contract names.
    """
    if contract.cohort != cohort.id:
        raise InputError(
            f'the contract is for cohort "{contract.cohort}", not "{cohort.id}"; draft a new one'
        )
    if contract.simulated != cohort.simulated:
        raise InputError("contract and cohort disagree on whether the data are simulated")
    exact = contract.model_copy(update={"power": exact_power(contract, cohort)})
    hashes = cohort.hashes()
    return FrozenContract(contract=exact, data_hashes=hashes, sha256=digest(exact, hashes))


def changed_data(frozen: FrozenContract, cohort: Cohort) -> list[str]:
    """Names of the files that differ from those that a contract was frozen on."""
    now = cohort.hashes()
    names = sorted({*now, *frozen.data_hashes})
    return [name for name in names if now.get(name) != frozen.data_hashes.get(name)]
