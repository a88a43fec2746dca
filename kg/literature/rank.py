"""Ranking of merged records, either lexical or lexical fused with embeddings."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from kg.literature.local import LocalIndex
from kg.literature.types import Query, Record

Embed = Callable[[Sequence[str]], np.ndarray]
"""Function that maps n texts to unit vectors, (n, d)."""

RETRACTED_WEIGHT = 0.5
"""Factor for the score of a retracted record, which is still shown but not ranked first."""

EMBEDDED_CHARACTERS = 600
"""Maximum length of title and abstract to embed; sentence encoders truncate longer text."""

_FUSION = 60
"""Constant of reciprocal rank fusion (Cormack, Clarke and Buettcher, 2009, SIGIR)."""


def rank(
    records: Sequence[Record], queries: Sequence[Query], k: int, embed: Embed | None = None
) -> list[Record]:
    """Rank records by their match to the queries and return the best `k`; ties keep input order.

    The lexical score is the best BM25 score over the queries, each query's scores scaled to
    [0, 1]. With `embed`, the ranking by cosine to the queries' texts is fused with the
    lexical ranking.

    Parameters
    ----------
    queries : each record is scored by its best query; without queries, the first `k` records
        are returned unchanged
    embed : function that maps texts to unit vectors, (n, d); None ranks only by words

    Returns
    -------
    The best records first, each with its `score` in [0, 1]; the scores of retracted records
    are halved.
    """
    if not records or not queries:
        return list(records[:k])
    index = LocalIndex(records)
    best = np.zeros(len(records))
    for query in queries:
        for at, score in index.score(query):
            best[at] = max(best[at], score)
    if embed is not None:
        near = embed([record.body[:EMBEDDED_CHARACTERS] for record in records]) @ (
            embed([query.text for query in queries]).T
        )
        best = _fuse_ranks(best, near.max(axis=1))
    best *= [RETRACTED_WEIGHT if record.retracted else 1.0 for record in records]
    order = np.argsort(-best, kind="stable")[:k]
    return [records[at].model_copy(update={"score": float(best[at])}) for at in order]


def cache_embedding(embed: Embed) -> Embed:
    """Wrap `embed` so that each text is embedded only once across several rankings."""
    known: dict[str, np.ndarray] = {}

    def embed_new(texts: Sequence[str]) -> np.ndarray:
        new = [text for text in dict.fromkeys(texts) if text not in known]
        if new:
            known.update(zip(new, embed(new), strict=True))
        return np.stack([known[text] for text in texts])

    return embed_new


def _fuse_ranks(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    total = np.zeros(len(a))
    for scores in (a, b):
        # Equal scores share a place, so that input order decides nothing.
        places = (scores[None, :] > scores[:, None]).sum(axis=1)
        total += 1.0 / (_FUSION + 1 + places)
    top = total.max()
    return total / top if top > 0 else total
