"""What the critics say in words: no result of this cohort, no citation that was not retrieved."""

from __future__ import annotations

from typing import TypeVar

from agents.base import Wording
from agents.novelty.types import (
    CriticInput,
    JudgePosition,
    Position,
    ProverPosition,
    VerifierPosition,
)
from agents.prose.check import Judge, early_judge, replaced_text

P = TypeVar("P", ProverPosition, VerifierPosition, JudgePosition)

WITHHELD = "The score, and the records that are cited, stand without words of the critic."


def _judge(given: CriticInput) -> Judge:
    records = [cited.record for cited in given.records]
    texts = [f"{one.title} {one.abstract or ''}" for one in records]
    return early_judge(
        given=[f"{one.key} {one.citation()} {one.abstract or ''}" for one in records],
        quotes=texts,
        refs=[cited.ref for cited in given.records],
    )


def _texts(position: Position) -> list[str]:
    match position:
        case ProverPosition():
            return [position.summary, *(one.text for one in position.claims)]
        case VerifierPosition():
            texts = [position.summary, *(one.text for one in position.answers)]
            return texts + [one.reason for one in position.specious]
        case JudgePosition():
            return [position.summary, *position.reasons]


def unborne(given: CriticInput, position: Position) -> list[str]:
    """Sentences that claim a result before anything was measured, or cite what was not given."""
    judge = _judge(given)
    return [str(problem) for text in _texts(position) for problem in judge(text)]


def in_own_words(given: CriticInput, position: P) -> P:
    """The position with plain words in the place of refused sentences; its citations stay."""
    judge = _judge(given)
    change: dict[str, object] = {"summary": replaced_text(position.summary, WITHHELD, judge)}
    if isinstance(position, ProverPosition):
        change["claims"] = tuple(
            one.model_copy(
                update={"text": replaced_text(one.text, "New against what it cites.", judge)}
            )
            for one in position.claims
        )
    elif isinstance(position, VerifierPosition):
        change["answers"] = tuple(
            one.model_copy(
                update={"text": replaced_text(one.text, "By the records that it cites.", judge)}
            )
            for one in position.answers
        )
        change["specious"] = tuple(
            one.model_copy(
                update={"reason": replaced_text(one.reason, "By the records cited.", judge)}
            )
            for one in position.specious
        )
    else:
        change["reasons"] = tuple(one for one in position.reasons if not judge(one))
    return position.model_copy(update=change)


PROVER_WORDING: Wording[CriticInput, ProverPosition] = Wording(unborne, in_own_words)
VERIFIER_WORDING: Wording[CriticInput, VerifierPosition] = Wording(unborne, in_own_words)
JUDGE_WORDING: Wording[CriticInput, JudgePosition] = Wording(unborne, in_own_words)
