"""Wording of the critics: no result of this cohort, no citation that was not retrieved."""

from __future__ import annotations

from typing import TypeVar

from agents.core.base import Wording
from agents.novelty.types import (
    CriticInput,
    JudgePosition,
    Position,
    ProverPosition,
    VerifierPosition,
)
from agents.prose.check import Judge, early_judge, replace_text

P = TypeVar("P", ProverPosition, VerifierPosition, JudgePosition)

WITHHELD = "The score, and the records that are cited, stand without words of the critic."


def _judge(given: CriticInput) -> Judge:
    records = [cited.record for cited in given.records]
    texts = [f"{record.title} {record.abstract or ''}" for record in records]
    return early_judge(
        given=[f"{record.key} {record.citation()} {record.abstract or ''}" for record in records],
        quotes=texts,
        refs=[cited.ref for cited in given.records],
    )


def _texts(position: Position) -> list[str]:
    match position:
        case ProverPosition():
            return [position.summary, *(claim.text for claim in position.claims)]
        case VerifierPosition():
            texts = [position.summary, *(answer.text for answer in position.answers)]
            return texts + [flag.reason for flag in position.specious]
        case JudgePosition():
            return [position.summary, *position.reasons]


def unborne(given: CriticInput, position: Position) -> list[str]:
    """Sentences that claim a result before anything was measured, or cite what was not given."""
    judge = _judge(given)
    return [str(problem) for text in _texts(position) for problem in judge(text)]


def in_own_words(given: CriticInput, position: P) -> P:
    """The position with plain words in the place of refused sentences; its citations stay."""
    judge = _judge(given)
    change: dict[str, object] = {"summary": replace_text(position.summary, WITHHELD, judge)}
    if isinstance(position, ProverPosition):
        change["claims"] = tuple(
            claim.model_copy(
                update={"text": replace_text(claim.text, "New against what it cites.", judge)}
            )
            for claim in position.claims
        )
    elif isinstance(position, VerifierPosition):
        change["answers"] = tuple(
            answer.model_copy(
                update={"text": replace_text(answer.text, "By the records that it cites.", judge)}
            )
            for answer in position.answers
        )
        change["specious"] = tuple(
            entry.model_copy(
                update={"reason": replace_text(entry.reason, "By the records cited.", judge)}
            )
            for entry in position.specious
        )
    else:
        change["reasons"] = tuple(reason for reason in position.reasons if not judge(reason))
    return position.model_copy(update=change)


PROVER_WORDING: Wording[CriticInput, ProverPosition] = Wording(unborne, in_own_words)
VERIFIER_WORDING: Wording[CriticInput, VerifierPosition] = Wording(unborne, in_own_words)
JUDGE_WORDING: Wording[CriticInput, JudgePosition] = Wording(unborne, in_own_words)
