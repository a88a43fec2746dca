"""Ledger objections to the verdict "supported", and qualifiers of the badge.

1. The ledger was emptied, edited, or replaced: its earlier content is unknown.
2. The contract was not registered when it was frozen, or only after its results.
3. A campaign's claim has a place in online error control that another claim occupied
   before it.
4. An exposure was screened against this endpoint in these patients before the contract
   was frozen.

Each prevents "supported", and none prevents "not supported". An alpha above `USUAL` is
part of the badge. All functions are pure.
"""

from __future__ import annotations

from validation.ledger.ledger import LedgerState
from validation.results.results import Objection

USUAL = 0.05
HARM: dict[LedgerState, str] = {
    "emptied": "what was registered in the ledger is gone",
    "edited": "the ledger was edited",
    "missing": "the ledger in which this folder registered is not here",
}


def ledger_objections(
    state: LedgerState, *, registered: bool, screened: str = "", taken: str | None = None
) -> tuple[Objection, ...]:
    """List the ledger's objections to a claim."""
    found = []
    if state in HARM:
        text = (
            f"{HARM[state]}: other claims on these patients cannot be counted. Restore it with "
            "`sage validate ledger merge`, or run the contract in a separate folder"
        )
        found.append(Objection("registration", "ledger", f"ledger {state}", text))
    if not registered:
        text = (
            "the contract was not registered when it was frozen, before any result: freeze it "
            "with `sage validate contract` or `amend`, or bring its ledger with `sage validate"
            " ledger merge`"
        )
        found.append(Objection("registration", "unregistered", "never registered", text))
    if taken is not None:
        text = (
            f"its place in the online control was already used by contract {taken[:12]}: the "
            "campaign would exceed its error rate. Test it in a new round"
        )
        found.append(Objection("multiplicity", "online control", "place spent twice", text))
    if screened:
        text = f"{screened}: exploratory in these patients, until it is tested in others"
        found.append(Objection("registration", "screened", "screened before", text))
    return tuple(found)


def ledger_qualifiers(state: LedgerState, alpha: float) -> tuple[str, ...]:
    """List the badge's qualifiers, which do not depend on the verdict."""
    said = [f"ledger {state}"] if state in HARM else []
    return (*said, f"alpha {alpha:g}") if alpha > USUAL else tuple(said)
