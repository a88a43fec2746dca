"""Order in which a contract's parts may be computed: discover, unlock, confirm, replicate.

The protocol is the same wherever a part is computed: in this process, in a sandbox, or
together with a second implementation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypedDict

from validation.run.overlap import require_other_patients
from validation.run.prepare import confirmation_key, require_variables
from validation.verdict.relevance import expected_direction

if TYPE_CHECKING:
    from validation.cohort.cohort import Cohort
    from validation.contracts.contract import FrozenContract
    from validation.inputs.population import Cut
    from validation.inputs.prediction import PredictionModel
    from validation.ledger.ledger import Ledger
    from validation.results.results import AnalysisResult, Part


class Handed(TypedDict, total=False):
    """Results passed from earlier to later parts: cut-points and the prediction model."""

    cuts: tuple[Cut, ...]
    model: PredictionModel | None


class Compute(Protocol):
    """A callable that prepares and analyzes a part and records its tests in the ledger."""

    def __call__(self, part: Part, cohort: Cohort, handed: Handed) -> AnalysisResult: ...


@dataclass(frozen=True)
class Parts:
    """A contract's computed parts; `main` is the part that determines the verdict.

    `discovery` is set if it unlocked the confirmation; `locked` is True if it did not.
    """

    main: AnalysisResult
    discovery: AnalysisResult | None = None
    locked: bool = False
    replication: AnalysisResult | None = None


def register(
    frozen: FrozenContract, cohort: Cohort, ledger: Ledger, replicate: Cohort | None = None
) -> None:
    """Write the contract into the ledger before its first result.

    Raises `InputError` if the confirmation patients were opened for another contract of the same
    hypothesis, or if the second cohort lacks a variable or contains the same patients.
    """
    known = ledger.registration(frozen.sha256)
    ledger.register(frozen, cohort, fresh=known is None or known.frozen)
    if frozen.contract.split.policy != "none":
        ledger.require_unopened(confirmation_key(frozen), frozen)
    if replicate is not None:
        require_other_patients(frozen, replicate, cohort)
        require_variables(frozen, replicate)
        ledger.register_replication(frozen, replicate)


def carry_out(
    frozen: FrozenContract,
    cohort: Cohort,
    compute: Compute,
    ledger: Ledger,
    replicate: Cohort | None = None,
) -> Parts:
    """Compute a registered contract's parts, recording each in the ledger before the next."""
    if frozen.contract.split.policy == "none":
        parts = Parts(compute("all", cohort, {}))
    else:
        discovery = compute("discovery", cohort, {})
        if unlocks(frozen, discovery):
            ledger.unlock(confirmation_key(frozen), frozen)
            handed: Handed = {"cuts": discovery.cuts, "model": discovery.model}
            parts = Parts(compute("confirmation", cohort, handed), discovery)
        else:
            parts = Parts(discovery, locked=True)
    if replicate is None:
        return parts
    model = (parts.discovery or parts.main).model
    again = compute("replication", replicate, {"model": model})
    return Parts(parts.main, parts.discovery, parts.locked, again)


def unlocks(frozen: FrozenContract, discovery: AnalysisResult) -> bool:
    """Check whether the discovery result unlocks the confirmation patients."""
    found = discovery.test(frozen.contract.primary)
    if found is None or found.p is None or found.effect is None:
        return False
    expected = expected_direction(frozen.contract, found.effect)
    return expected and found.p < frozen.contract.split.unlock_alpha
