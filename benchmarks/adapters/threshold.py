"""The threshold tau for an embedding model: cosines of one model say nothing about another's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.adapters.fusion import FusionScore, KnownNames, score_fusion
from kg.embedding.embed import Embedder
from kg.fusion.model import FusionOptions
from sage.core.errors import InputError
from sage.core.models import Strict


class Calibration(Strict):
    """Scores over a range of thresholds, and the one to use.

    `tau` is the lowest threshold whose precision, and that of all higher ones, is at least
    `precision`; None if there is none.
    """

    embedder: str
    precision: float
    tau: float | None
    scores: tuple[FusionScore, ...]
    names: int


def calibrate(
    known: KnownNames,
    embedder: Embedder,
    *,
    precision: float = 0.8,
    taus: Sequence[float] = (0.85, 0.875, 0.9, 0.92, 0.94, 0.95, 0.96, 0.97, 0.98, 0.99),
    options: FusionOptions | None = None,
    pair_cache: Path | None = None,
) -> Calibration:
    """Score fusion at each threshold, and choose.

    Parameters
    ----------
    known : names of known identity, from `benchmarks.adapters.fusion.read_identity`
    precision : what is asked of the merges, in (0, 1]

    Raises
    ------
    InputError
        If there are fewer than 50 pairs of known identity, or no thresholds.
    """
    if not taus:
        raise InputError("calibration needs at least one threshold.")
    if not 0.0 < precision <= 1.0:
        raise InputError(f"precision {precision}: give a value in (0, 1].")
    base = options or FusionOptions()
    scores = [
        score_fusion(
            known,
            base.model_copy(update={"tau": tau}),
            embedder,
            pair_cache=pair_cache,
        )
        for tau in sorted(set(taus))
    ]
    if scores[0].true_pairs < 50:
        raise InputError(
            f"only {scores[0].true_pairs} pairs of names are known to be one thing: calibration "
            "needs at least 50."
        )
    chosen = None
    for score in reversed(scores):
        if score.precision < precision:
            break
        chosen = score.tau
    return Calibration(
        embedder=embedder.name,
        precision=precision,
        tau=chosen,
        scores=tuple(scores),
        names=len(known.names),
    )
