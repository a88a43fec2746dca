"""The last guard: removes citations that were not retrieved from a position, whoever wrote it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from agents.novelty.checks import flags_raised
from agents.novelty.types import (
    Answer,
    Claim,
    CriticInput,
    Position,
    ProverPosition,
    SpeciousFlag,
    VerifierPosition,
)

Statement = TypeVar("Statement", Claim, Answer, SpeciousFlag)


def without_unretrieved(given: CriticInput, position: Position) -> tuple[Position, tuple[str, ...]]:
    """Return the position without citations that were not retrieved, and the removed citations.

    A claim, answer or flag without a remaining citation is removed as well, and so is a judge's
    ruling on a flag that no one raised.
    """
    known = {cited.ref for cited in given.records}
    rejected: list[str] = []
    if isinstance(position, ProverPosition):
        change: dict[str, object] = {"claims": _keep_cited(position.claims, known, rejected)}
    elif isinstance(position, VerifierPosition):
        change = {
            "answers": _keep_cited(position.answers, known, rejected),
            "specious": _keep_cited(position.specious, known, rejected),
        }
    else:
        flagged = {flag.claim for flag in flags_raised(given)}
        rejected += [
            f"ruling on {claim}, which was not flagged"
            for claim in (*position.upheld, *position.overruled)
            if claim not in flagged
        ]
        change = {
            "citations": _clear_citations("synthesis", position.citations, known, rejected),
            "reasons": tuple(
                revision.model_copy(
                    update={
                        "citations": _clear_citations(
                            revision.change, revision.citations, known, rejected
                        )
                    }
                )
                for revision in position.reasons
            ),
            "upheld": tuple(claim for claim in position.upheld if claim in flagged),
            "overruled": tuple(claim for claim in position.overruled if claim in flagged),
        }
    return position.model_copy(update=change), tuple(rejected)


def _keep_cited(
    statements: Sequence[Statement], known: set[str], rejected: list[str]
) -> tuple[Statement, ...]:
    kept = []
    for statement in statements:
        name = statement.id if isinstance(statement, Claim) else statement.claim
        citations = _clear_citations(name, statement.citations, known, rejected)
        if citations:
            kept.append(statement.model_copy(update={"citations": citations}))
        elif not statement.citations:
            rejected.append(f"{name}: no citation")
    return tuple(kept)


def _clear_citations(
    name: str, citations: Sequence[str], known: set[str], rejected: list[str]
) -> tuple[str, ...]:
    rejected += [f"{name}: {ref} was not retrieved" for ref in citations if ref not in known]
    return tuple(ref for ref in citations if ref in known)
