"""Weight and belief of edges from their readings.

Belief treats each independent document as a witness: support is a damped noisy-or over documents of
the best confidence in each, and so is the evidence against. The two are combined by Dempster's rule
for simple support functions, b = s (1 - c) / (1 - s c). Equal support and contradiction give less
than one half, and neither alone can reach certainty.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kg.types import Polarity

_MOST = 0.99
#: Share of a reader's statements that are wrong however many papers repeat them; INDRA's default.
SYSTEMATIC = 0.05
#: A speculative sentence ("may", "suggests") counts for half.
SPECULATIVE = 0.5

POLARITIES = tuple(Polarity)
_SIGN = {Polarity.POSITIVE: 1, Polarity.NEGATIVE: -1, Polarity.NEUTRAL: 0}
#: Relations in which the head acts on the tail.
CAUSAL = frozenset({
    "activates", "inhibits", "promotes", "upregulates", "downregulates", "degrades",
    "phosphorylates", "secretes", "recruits", "sensitizes_to", "confers_resistance_to", "treats",
    "targets", "regulates", "affects", "compensates_for", "induces", "suppresses", "prolongs",
    "shortens", "causes", "prevents",
})  # fmt: skip
SIGNS = np.array([_SIGN[p] for p in POLARITIES], dtype=np.int8)


def best_per_document(
    edge: NDArray[np.int32],
    document: NDArray[np.int32],
    value: NDArray[np.floating],
    n_documents: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Find the highest value for each occurring pair of edge and document.

    Parameters
    ----------
    edge : (k,) edge of each reading
    document : (k,) document of each reading, in [0, n_documents)
    value : (k,) confidence of each reading, or a weight derived from it
    n_documents : total number of documents

    Returns
    -------
    Three (p,) arrays of edges, documents and values, sorted by edge and then by document; the
    values are float64.
    """
    code = edge.astype(np.int64) * max(n_documents, 1) + document
    order = np.lexsort((-value, code))
    code = code[order]
    first = np.ones(len(code), dtype=np.bool_)
    first[1:] = code[1:] != code[:-1]
    chosen = code[first]
    best = np.asarray(value, dtype=np.float64)[order][first]
    return chosen // max(n_documents, 1), chosen % max(n_documents, 1), best


def damped_or(
    group: NDArray[np.int64], probability: NDArray[np.float64], n: int
) -> NDArray[np.float64]:
    """Compute the probability that one of several readings is right, (n,); 0 for an empty group.

    A reading errs at random, which repetition remedies, or systematically, which it does not:
    1 - s - prod(1 - s - p), but at least the highest p. A single reading counts as it is.

    Source: the belief model of INDRA, Gyori et al., Molecular Systems Biology 2017.
    """
    logs, best = np.zeros(n), np.zeros(n)
    clipped = np.clip(probability, 0.0, _MOST)
    np.add.at(logs, group, np.log(np.maximum(1.0 - SYSTEMATIC - clipped, 1e-12)))
    np.maximum.at(best, group, clipped)
    return np.where(best > 0.0, np.maximum(best, 1.0 - SYSTEMATIC - np.exp(logs)), 0.0)


def combine(support: NDArray[np.float64], against: NDArray[np.float64]) -> NDArray[np.float64]:
    """Compute belief from support and contradiction by Dempster's rule: s (1 - c) / (1 - s c)."""
    s = np.clip(support, 0.0, 1.0)
    c = np.clip(against, 0.0, 1.0)
    out = np.where(s * c >= 1.0, 0.5, s * (1.0 - c) / np.maximum(1.0 - s * c, 1e-300))
    return np.clip(out, 0.0, 1.0)


def opponents(
    head: NDArray[np.int32],
    tail: NDArray[np.int32],
    relation: NDArray[np.int32],
    sign: NDArray[np.int8],
    negated: NDArray[np.bool_],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find the pairs (edge, opposing edge), in both directions, sorted.

    Two edges between the same head and tail oppose each other when either denies the other's
    relation or sign, or when both are affirmed with opposite signs.

    Parameters
    ----------
    head, tail : (m,) node positions of the directed edges
    relation : (m,) codes; equal codes are the same relation
    sign : (m,) polarity of the relation as -1, 0 or 1
    negated : (m,) whether the edge denies its relation

    Returns
    -------
    (p,) edges and the (p,) edges that oppose them, as positions in the given arrays.
    """
    order = np.lexsort((tail, head))
    h, t = head[order], tail[order]
    same = np.zeros(len(order) + 1, dtype=np.bool_)
    if len(order):
        same[1:-1] = (h[1:] == h[:-1]) & (t[1:] == t[:-1])
    # Only runs of two or more edges between a pair can oppose each other.
    starts = np.flatnonzero(~same[:-1] & same[1:]) if len(order) else np.zeros(0, dtype=np.int64)
    left: list[int] = []
    right: list[int] = []
    for start in starts.tolist():
        stop = start + 1
        while same[stop]:
            stop += 1
        run = order[start:stop].tolist()
        for a in run:
            for b in run:
                if a == b:
                    continue
                if negated[a] != negated[b]:
                    against = relation[a] == relation[b] or (sign[a] != 0 and sign[a] == sign[b])
                else:
                    against = not negated[a] and int(sign[a]) * int(sign[b]) == -1
                if against:
                    left.append(a)
                    right.append(b)
    edges = np.asarray(left, dtype=np.int64)
    against_ = np.asarray(right, dtype=np.int64)
    by = np.lexsort((against_, edges))
    return edges[by], against_[by]


def edge_measures(
    n_edges: int,
    edge: NDArray[np.int32],
    document: NDArray[np.int32],
    confidence: NDArray[np.floating],
    speculative: NDArray[np.bool_],
    retracted: NDArray[np.bool_],
    against: tuple[NDArray[np.int64], NDArray[np.int64]],
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.int32]]:
    """Compute each edge's weight, belief and number of documents from its readings.

    The weight is the paper's: the highest confidence in each document, summed. A retracted
    document counts toward the weight but not toward belief.

    Parameters
    ----------
    n_edges : total number of edges; an edge without readings has 0 for all three measures
    edge : (k,) edge of each reading
    document : (k,) document of each reading, numbered from 0
    confidence : (k,) confidence of the extraction, in [0, 1]
    speculative : (k,) whether the sentence is hedged; it then counts half toward belief
    retracted : (k,) whether the document was retracted
    against : pairs of an edge and an opposing edge, from `opponents`

    Returns
    -------
    (n_edges,) weight, (n_edges,) belief in [0, 1], and (n_edges,) number of documents,
    including retracted documents.
    """
    n_documents = int(document.max()) + 1 if len(document) else 0
    at, _, best = best_per_document(edge, document, confidence, n_documents)
    weight = np.bincount(at, weights=best, minlength=n_edges)
    documents = np.bincount(at, minlength=n_edges)
    trust = np.asarray(confidence, dtype=np.float64) * np.where(speculative, SPECULATIVE, 1.0)
    trust = np.where(retracted, 0.0, trust)
    at, witness, best = best_per_document(edge, document, trust, n_documents)
    support = damped_or(at, best, n_edges)
    opposed, opponent = against
    con = np.zeros(n_edges)
    if len(opposed):
        # A document that contradicts an edge by several others is a single witness.
        first = np.searchsorted(at, opponent)
        count = np.searchsorted(at, opponent, side="right") - first
        picks = np.repeat(first - np.cumsum(count) + count, count) + np.arange(count.sum())
        a, _, b = best_per_document(
            np.repeat(opposed, count).astype(np.int32),
            witness[picks].astype(np.int32),
            best[picks],
            n_documents,
        )
        con = damped_or(a, b, n_edges)
    belief = combine(support, con)
    return weight.astype(np.float32), belief.astype(np.float32), documents.astype(np.int32)
