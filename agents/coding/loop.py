"""The controller: plan, data, SAGE's computation, a second implementation, typed results.

It is given everything it uses (reasoner, sandbox, cohort, folder), so that it can be run with a
scripted reasoner and a sandbox of any kind. Everything published is SAGE's own computation of the
contract; the program that an agent gives computes the registered numbers again, and how the two
compare is a result of its own (`validation.reproduction.compare`).

Source: SAGE, 3.3.1 (control flow, bounded feedback, escalation).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agents.base import Reasoner
from agents.coding.carrying import LIMITS, Carrying, Event
from agents.coding.store import Store
from agents.coding.types import CodingOutcome
from agents.disclosure import MIN_COUNT
from sandbox.types import Limits, Sandbox

if TYPE_CHECKING:
    from validation.cohort.cohort import Cohort
    from validation.contracts.contract import FrozenContract
    from validation.ledger.ledger import Ledger


def carry_out(
    frozen: FrozenContract,
    cohort: Cohort,
    *,
    reasoner: Reasoner,
    sandbox: Sandbox,
    workdir: Path,
    ledger: Ledger,
    tasks: Sequence[str] = (),
    tools: dict[str, str] | None = None,
    replicate: Cohort | None = None,
    rounds: int = 3,
    limits: Limits = LIMITS,
    min_count: int = MIN_COUNT,
    on_event: Event | None = None,
) -> CodingOutcome:
    """Carry a frozen contract out, and write `results.json` and figures to `workdir`.

    A finished work folder is returned as it is; an interrupted one goes on where it was, without
    asking the reasoner again for a program that it already wrote.

    Parameters
    ----------
    tasks : the coding instructions' tasks, for the plan
    tools : tool name to version, of features that were extracted for this contract
    replicate : a second cohort on which the primary test is repeated
    rounds : how many second implementations may be tried
    min_count : fewest patients that a count in a program's appendix may have
    on_event : called with an event's name and details ("plan", "attempt", "escalated", "done")

    Raises
    ------
    InputError
        If the folder belongs to another contract, or the data changed since it was frozen.
    """
    run = Carrying(
        frozen, cohort, reasoner, sandbox, Store(workdir), ledger,
        tuple(tasks), dict(tools or {}), replicate, rounds, limits, on_event or _silent, min_count,
    )  # fmt: skip
    return run.finish()


def resume(
    frozen: FrozenContract,
    cohort: Cohort,
    *,
    reasoner: Reasoner,
    sandbox: Sandbox,
    workdir: Path,
    ledger: Ledger,
    replicate: Cohort | None = None,
    rounds: int = 3,
    limits: Limits = LIMITS,
    min_count: int = MIN_COUNT,
    on_event: Event | None = None,
) -> CodingOutcome:
    """Go on after an escalation: run the last round's `analysis.py` as a person left it.

    The program is run as a new round, made "by a person". If it fails too, the folder is escalated
    again, with this round kept beside the others.

    Parameters
    ----------
    frozen : the contract that was escalated
    cohort : the patients to which it was frozen
    reasoner : answers for the agents, should one have to be asked again
    sandbox : where programs run
    workdir : the escalated work folder
    ledger : where the looks at the data are registered
    replicate : a second cohort on which the primary test is repeated
    rounds : how many second implementations may be tried, earlier ones included; the mended program
        runs in any case
    limits : time (seconds), memory and size of output of each program
    min_count : fewest patients that a count in a program's appendix may have
    on_event : called with an event's name and details ("plan", "attempt", "escalated", "done")

    Raises
    ------
    InputError
        If the folder was never escalated, the program was not changed, the folder belongs to
        another contract, or the data changed since it was frozen.
    """
    store = Store(workdir)
    code = store.mended()
    run = Carrying(
        frozen, cohort, reasoner, sandbox, store, ledger,
        (), {}, replicate, rounds, limits, on_event or _silent, min_count,
    )  # fmt: skip
    if code:
        outcome = store.outcome()
        if outcome is not None:
            run.require_same(outcome.contract_sha256)
        # First kept as the next round, then reopened: a kill in between loses nothing.
        store.begin(len(store.attempts()) + 1, code)
        store.reopen()
    run.mended = code
    return run.finish()


def _silent(_: str, __: dict[str, Any]) -> None:
    return None
