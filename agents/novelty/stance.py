"""Scales and confidence shared by the three critics' rules."""

from __future__ import annotations

from collections.abc import Sequence

from agents.novelty.evidence import Reading
from agents.novelty.types import JudgePosition, Turn, VerifierPosition
from kg.literature.types import MissingSource


def score_of(novelty: float, weight: float, prior: float) -> float:
    """Map a novelty in [0, 1] to [1, 10], shrunk toward the critic's prior if little was seen.

    `weight` in [0, 1] is the weight of the evidence by the literature seen (`Reading.weight`).
    """
    blended = weight * novelty + (1.0 - weight) * prior
    return 1.0 + 9.0 * min(1.0, max(0.0, blended))


def confidence(seen: Reading, missing: Sequence[MissingSource]) -> float:
    """Compute the confidence: from 0.1 to 0.9 with more records, 10% less per missing source."""
    return round((0.1 + 0.8 * seen.weight) * 0.9 ** len(missing), 4)


def score_after_objections(debate: Sequence[Turn]) -> float | None:
    """Return the judge's last score if the verifier's last answers object, else None."""
    answers = [turn.position for turn in debate if isinstance(turn.position, VerifierPosition)]
    verdicts = [turn.position for turn in debate if isinstance(turn.position, JudgePosition)]
    if not answers or not verdicts:
        return None
    objected = any(answer.verdict != "stands" for answer in answers[-1].answers)
    return verdicts[-1].score if objected else None
