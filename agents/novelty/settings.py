"""Numbers of the novelty debate."""

from __future__ import annotations

from pydantic import Field

from agents.core.base import View


class DebateSettings(View):
    """Numbers of SAGE, 3.2.5, if stated there; the others are ours and marked as such.

    `debate_above_sigma` and `converged_below_sigma` are compared with the population standard
    deviation (divisor n) of the three scores: the three critics are the whole panel, not a sample.
    """

    debate_above_sigma: float = Field(default=1.0, ge=0.0)
    """SAGE, 3.2.5: a debate starts when sigma is strictly greater."""

    converged_below_sigma: float = Field(default=0.5, ge=0.0)
    """SAGE, 3.2.5: a debate ends when sigma is strictly smaller."""

    max_rounds: int = Field(default=3, ge=0)
    """SAGE, 3.2.5: at most three rounds."""

    own_weight: float = Field(default=3.0, gt=0.0)
    """How many proposals a critic's standing score is worth (ours; see `update`). With three
    equally confident critics it halves sigma in each round that brings no new evidence."""

    specious_penalty: float = Field(default=2.0, ge=0.0)
    """Points that every score loses, once, when the judge upholds a specious flag. The paper
    states that there is a penalty, not how large; this number is ours."""

    threshold: float = Field(default=5.0, ge=1.0, le=10.0)
    """Final scores below it send the hypothesis back to expansion (ours; the paper says
    "predefined")."""

    records_per_critic: int = Field(default=12, ge=1)
    """Retrieved records that a critic sees per retrieval (ours)."""

    queries_per_critic: int = Field(default=6, ge=1)
    """Searches that a critic may ask for per round (ours)."""

    patience_seconds: float = Field(default=1.0, ge=0.0)
    """Longest wait for a slot under a service's published rate; a service beyond it is named as
    missing in that round (ours)."""
