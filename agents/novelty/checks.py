"""Checks that reject citations that were not retrieved, and claims without citations.

A final guard removes them from any critic's position.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from agents.novelty.types import (
    Answer,
    Claim,
    CriticInput,
    JudgePosition,
    Position,
    ProverPosition,
    SpeciousFlag,
    VerifierPosition,
)

Statement = TypeVar("Statement", Claim, Answer, SpeciousFlag)


def check_prover(given: CriticInput, position: ProverPosition) -> list[str]:
    """List reasons to reject the prover's position."""
    known, parts = _refs(given), given.expanded.parts
    problems = []
    for claim in position.claims:
        problems += _check_citations(f"claim {claim.id}", claim.citations, known)
        problems += [
            f'claim {claim.id}: "{part}" is not a part of the hypothesis; the parts are {parts}'
            for part in claim.parts
            if part not in parts
        ]
        if len(claim.parts) < (2 if claim.kind == "combination" else 1):
            problems.append(f"claim {claim.id} of kind {claim.kind} names too few parts")
    if len({claim.id for claim in position.claims}) < len(position.claims):
        problems.append("two claims have the same id; number them")
    return problems + _unfounded_confidence(given, position.confidence)


def check_verifier(given: CriticInput, position: VerifierPosition) -> list[str]:
    """List reasons to reject the verifier's position."""
    known = _refs(given)
    problems = []
    for answer in position.answers:
        problems += _check_citations(f"answer to {answer.claim}", answer.citations, known)
    for flag in position.specious:
        problems += _check_citations(f"specious flag on {flag.claim}", flag.citations, known)
    return problems + _unfounded_confidence(given, position.confidence)


def check_judge(given: CriticInput, position: JudgePosition) -> list[str]:
    """List reasons to reject the judge's position."""
    problems = []
    if given.records:
        problems += _check_citations("synthesis", position.citations, _refs(given))
    known = _refs(given)
    for revision in position.reasons:
        if revision.citations:
            problems += _check_citations(f"change {revision.change}", revision.citations, known)
        elif revision.change == "answer_record":
            problems.append("change answer_record cites nothing; name the record to answer")
    flagged = {flag.claim for flag in flags_raised(given)}
    for claim in (*position.upheld, *position.overruled):
        if claim not in flagged:
            problems.append(f"{claim} was not flagged as specious in this round")
    return problems + _unfounded_confidence(given, position.confidence)


def flags_raised(given: CriticInput) -> tuple[SpeciousFlag, ...]:
    """Return the flags of the round under judgment; the opening round has none."""
    return tuple(
        flag
        for turn in given.debate
        if turn.round == given.round and isinstance(turn.position, VerifierPosition)
        for flag in turn.position.specious
    )


def _refs(given: CriticInput) -> set[str]:
    return {cited.ref for cited in given.records}


def _check_citations(what: str, citations: Sequence[str], known: set[str]) -> list[str]:
    if not citations:
        return [f"{what} cites nothing; cite retrieved records by their key"]
    unknown = sorted(set(citations) - known, key=lambda ref: (len(ref), ref))
    return [f"{what} cites {', '.join(unknown)}, which was not retrieved"] if unknown else []


def _unfounded_confidence(given: CriticInput, confidence: float) -> list[str]:
    if not given.records and confidence > 0.3:
        return ["nothing was retrieved; confidence may be at most 0.3"]
    return []


def without_unretrieved(given: CriticInput, position: Position) -> tuple[Position, tuple[str, ...]]:
    """Return the position without citations that were not retrieved, and the removed citations.

    A claim, answer or flag left without a citation is also removed, and so is a judge's
    ruling on a flag that was never raised.
    """
    known = _refs(given)
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
