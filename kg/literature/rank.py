"""Order of merged records: lexical, or lexical fused with an embedding."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from kg.literature.local import LocalIndex
from kg.literature.types import Query, Record

Embed = Callable[[Sequence[str]], np.ndarray]
"""Texts to unit vectors, (n, d)."""

RETRACTED_WEIGHT = 0.5
"""A retracted record keeps half its score: it is shown (and named), but does not lead."""

_FUSION = 60
"""Constant of reciprocal rank fusion (Cormack, Clarke and Buettcher, 2009, SIGIR)."""


def rank(
    records: Sequence[Record], queries: Sequence[Query], k: int, embed: Embed | None = None
) -> list[Record]:
    """The `k` records that fit the queries best, scores in [0, 1], ties in input order.

    Lexical: the best BM25 score over the queries, each query's scores scaled to [0, 1]. With
    `embed`, the order by cosine to the queries' texts is fused with the lexical order.
    """
    if not records or not queries:
        return list(records[:k])
    index = LocalIndex(records)
    best = np.zeros(len(records))
    for query in queries:
        for at, score in index.scored(query):
            best[at] = max(best[at], score)
    if embed is not None:
        near = embed([record.body[:2000] for record in records]) @ (
            embed([query.text for query in queries]).T
        )
        best = _fused(best, near.max(axis=1))
    best *= [RETRACTED_WEIGHT if record.retracted else 1.0 for record in records]
    order = np.argsort(-best, kind="stable")[:k]
    return [records[at].model_copy(update={"score": float(best[at])}) for at in order]


def _fused(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    total = np.zeros(len(one))
    for scores in (one, other):
        # Equal scores share a place, so that input order decides nothing.
        places = (scores[None, :] > scores[:, None]).sum(axis=1)
        total += 1.0 / (_FUSION + 1 + places)
    top = total.max()
    return total / top if top > 0 else total
