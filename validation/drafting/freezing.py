"""Binding of a contract to a cohort's data, the last step before an outcome is compared."""

from __future__ import annotations

from typing import Any

from sage.core.errors import InputError
from validation.cohort.codes import CODES
from validation.cohort.cohort import Cohort
from validation.cohort.copies import require_no_copies
from validation.cohort.findings_outcomes import find_after_death
from validation.cohort.findings_timing import require_no_follow_up
from validation.contracts.contract import Contract, FrozenContract, digest
from validation.core.hypothesis import Hypothesis
from validation.drafting.balance import relate, weigh_declaration
from validation.drafting.draft import draft
from validation.drafting.power import exact_power


def draft_on(hypothesis: Hypothesis, cohort: Cohort, **rules: Any) -> Contract:
    """Draft a contract on a cohort, choosing covariates and strata by relation to the exposure.

    `rules` are passed to `validation.drafting.draft.draft`, whose errors are passed on.
    """
    relation = relate(hypothesis, cohort)
    return draft(hypothesis, cohort.dictionary(), relation=relation, **rules)


def complete(contract: Contract, cohort: Cohort) -> Contract:
    """Add exact group sizes and power, and the related variables that are not in the model.

    Reads variables, the set of patients with a known outcome, and the overall event rate, but
    never an outcome by exposure.
    """
    weighed = weigh_declaration(contract, cohort, relate(contract.hypothesis, cohort))
    return contract.model_copy(update={"power": exact_power(contract, cohort), **weighed})


def freeze(contract: Contract, cohort: Cohort) -> FrozenContract:
    """Complete a contract (`complete`) and bind it to a cohort's data.

    Raises `InputError` if the contract is for another cohort, names something that this
    cohort lacks, would count copies of patients, or uses a variable that contains the
    follow-up or an endpoint that follows patients beyond their death.
    """
    if contract.cohort != cohort.id:
        raise InputError(
            f'the contract is for cohort "{contract.cohort}", not "{cohort.id}"; draft a new '
            "contract"
        )
    if contract.simulated != cohort.simulated:
        raise InputError("contract and cohort disagree on whether the data are simulated")
    require_no_copies(cohort)
    require_no_follow_up(cohort, contract.keys(), contract.primary_test.endpoint)
    if after := find_after_death(cohort, contract.primary_test.endpoint):
        raise InputError(
            f"endpoint {contract.primary_test.endpoint}: {after}. "
            f"Remedy: {CODES['followed_after_death'][1]}"
        )
    exact = complete(contract, cohort)
    hashes = cohort.hashes()
    return FrozenContract(contract=exact, data_hashes=hashes, sha256=digest(exact, hashes))


def changed_data(frozen: FrozenContract, cohort: Cohort) -> list[str]:
    """List the files that changed since a contract was frozen."""
    now = cohort.hashes()
    names = sorted({*now, *frozen.data_hashes})
    return [name for name in names if now.get(name) != frozen.data_hashes.get(name)]
