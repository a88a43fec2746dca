"""What a graph of the past says of a pair of its nodes.

Everything is computed from the graph that is given: as of a year, it knows nothing later. The texts
are those of the graph's own evidence; no language model enters, because one that was trained later
would know what came later.
"""

from __future__ import annotations

import re
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from benchmarks.foresight.pairs import Ends
from kg.graph.arrays import NO_YEAR, TYPES
from kg.graph.model import Graph

Floats = NDArray[np.float64]

#: Classical link predictors, printed as baselines; each is a column of `PastGraph.features`.
BASELINES = (
    "degree product", "common neighbors", "L3", "resource allocation", "Adamic-Adar", "SVD",
)  # fmt: skip
FEATURES = (
    *BASELINES,
    "degree difference", "lower degree", "L3 over degrees", "SVD cosine", "type pair",
    "links to the other's type", "share of links to the other's type", "years since last link",
    "longest years since last link", "new links", "share of new links", "years known",
    "documents", "recent resource allocation", "new links to the other's type",
    "new links of neighbors", "nearest named neighbor", "named neighbors", "nearest told neighbor",
    "told neighbors", "told alike", "told together", "contradiction",
)  # fmt: skip
_RECENT = 5
_LONG_AGO = 40
_RANK = 32
_DENSE = 800  # nodes up to which the whole decomposition is made
_BATCH = 1000


class PastGraph:
    """A graph measured for its pairs as of a year.

    Parameters
    ----------
    graph : as of `year`; later readings must not be in it
    year : the cut, from which recency is counted
    """

    def __init__(self, graph: Graph, year: int) -> None:
        from scipy.sparse import csr_array
        from scipy.sparse.linalg import svds

        self.graph, self.year = graph, year
        self.n = n = graph.n_nodes
        indptr, indices = graph.adjacency
        self.links: Any = csr_array((np.ones(len(indices)), indices, indptr), shape=(n, n))
        self.links.sort_indices()
        self.degree = graph.degree.astype(np.float64)
        self.types = graph.types.astype(np.int64)
        self._measure_years()
        rank = min(_RANK, n - 2)
        if rank >= 1 and len(indices):
            if n <= _DENSE:  # exact, and the iteration stalls on small graphs of low rank
                values, vectors = np.linalg.eigh(self.links.toarray())  # links go both ways
                largest = np.argsort(-np.abs(values), kind="stable")[:rank]
                left, sizes = vectors[:, largest], np.abs(values[largest])
                right = left.T * np.sign(values[largest])[:, None]
            else:
                left, sizes, right = svds(self.links, k=rank, v0=np.ones(n))
            self.left, self.right = left * np.sqrt(sizes), right.T * np.sqrt(sizes)
        else:
            self.left = self.right = np.zeros((n, 1))
        self._read_texts()
        contradicted = np.zeros(graph.n_edges, dtype=np.bool_)
        contradicted[graph.list_opposed()[0]] = True
        ends = np.concatenate([graph.head, graph.tail])
        doubt = np.bincount(ends, weights=np.tile(contradicted, 2), minlength=n)
        self.doubt = doubt / np.maximum(np.bincount(ends, minlength=n), 1)

    def _measure_years(self) -> None:
        from scipy.sparse import csr_array

        graph, n, kinds = self.graph, self.n, len(TYPES)
        keep = ~graph.negated
        first = np.where(graph.first_year == NO_YEAR, self.year - _LONG_AGO, graph.first_year)
        one = np.concatenate([graph.head[keep], graph.tail[keep]]).astype(np.int64)
        other = np.concatenate([graph.tail[keep], graph.head[keep]]).astype(np.int64)
        year = np.tile(first[keep], 2).astype(np.int64)
        order = np.lexsort((year, one * max(n, 1) + other))
        one, other, year = one[order], other[order], year[order]
        codes = one * max(n, 1) + other
        fresh = np.ones(len(codes), dtype=np.bool_)
        fresh[1:] = codes[1:] != codes[:-1]  # each pair at its first year
        one, other, year = one[fresh], other[fresh], year[fresh]
        new = year > self.year - _RECENT
        self.last = np.full(n, self.year - _LONG_AGO)
        self.first = np.full(n, self.year)
        np.maximum.at(self.last, one, year)
        np.minimum.at(self.first, one, year)
        self.new = np.bincount(one[new], minlength=n).astype(np.float64)
        self.typed = np.zeros((n, kinds))
        self.typed_new = np.zeros((n, kinds))
        np.add.at(self.typed, (one, self.types[other]), 1.0)
        np.add.at(self.typed_new, (one[new], self.types[other[new]]), 1.0)
        weight = np.exp((year - self.year) / _RECENT)
        self.recent: Any = csr_array((weight, (one, other)), shape=(n, n))
        alive = np.bincount(self.types[self.degree > 0], minlength=kinds).astype(np.float64)
        joined = np.zeros((kinds, kinds))
        np.add.at(joined, (self.types[one], self.types[other]), 1.0)
        usual = alive.sum() ** 2 / (len(one) + 1.0)
        self.rate = np.log((joined + 1.0) / (np.outer(alive, alive) + usual))

    def _read_texts(self) -> None:
        """Names as letter n-grams; the evidence of each node's documents as words."""
        from scipy.sparse import csr_array

        graph = self.graph
        self.named = _tfidf(graph.names, analyzer="char_wb", ngram_range=(3, 5))
        said: dict[int, dict[str, None]] = {}
        node_document: set[tuple[int, int]] = set()
        rows: dict[int, Any] = {}
        for edge, document, place in zip(
            graph.reading_edge.tolist(),
            graph.reading_document.tolist(),
            graph.reading_place.tolist(),
            strict=True,
        ):
            row = int(graph.edge_row[edge])
            if row not in rows:
                rows = {row: graph.edge_rows[row]}  # readings stand in order of their edge
            evidence = rows[row][place]["evidence"]
            texts = said.setdefault(document, {})
            texts[evidence.get("title", "")] = texts[evidence["text"]] = None
            node_document.add((int(graph.head[edge]), document))
            node_document.add((int(graph.tail[edge]), document))
        called = _spellings(graph)
        for document, texts in said.items():
            node_document.update((node, document) for node in _named_in(" . ".join(texts), called))
        place_of = {document: n for n, document in enumerate(sorted(said))}
        pairs = sorted(node_document)
        at = (
            np.array([node for node, _ in pairs], dtype=np.int64),
            np.array([place_of[document] for _, document in pairs], dtype=np.int64),
        )
        self.read_in: Any = csr_array((np.ones(len(pairs)), at), shape=(self.n, len(said)))
        self.documents = np.bincount(at[0], minlength=self.n).astype(np.float64)
        words = _tfidf([" ".join(said[d]) for d in sorted(said)], stop_words="english")
        self.told: Any = _unit_rows((self.read_in @ words).tocsr())

    def features(self, ends: Ends) -> Floats:
        """(p, len(FEATURES)) of pairs; symmetric: the order of the two ends does not matter."""
        parts = [self._batch(ends[at : at + _BATCH]) for at in range(0, len(ends), _BATCH)]
        return np.concatenate(parts) if parts else np.zeros((0, len(FEATURES)))

    def _batch(self, ends: Ends) -> Floats:
        u, v = ends.T
        log, degree = np.log1p, self.degree
        at_u, at_v = self.links[u], self.links[v]
        common = at_u.multiply(at_v).tocsr()
        share = 1.0 / np.maximum(degree, 1.0)
        half = np.sqrt(share)
        through = _scaled(at_u, half) @ self.links
        l3 = _sum(through.multiply(_scaled(at_v, half)))
        svd = ((self.left[u] * self.right[v]).sum(axis=1)
               + (self.left[v] * self.right[u]).sum(axis=1)) / 2  # fmt: skip
        size = np.linalg.norm(self.left, axis=1) + 1e-9
        to_v, to_u = self.typed[u, self.types[v]], self.typed[v, self.types[u]]
        since_u, since_v = self.year - self.last[u], self.year - self.last[v]
        lively = (self.links @ self.new) * share
        named, told = self._near(ends, self.named), self._near(ends, self.told)
        columns = (
            log(degree[u]) + log(degree[v]),
            log(_sum(common)),
            np.log(l3 + 1e-3),
            common @ share,
            common @ (1.0 / np.log(np.maximum(degree, 2.0))),
            svd,
            np.abs(log(degree[u]) - log(degree[v])),
            log(np.minimum(degree[u], degree[v])),
            l3 / np.sqrt(np.maximum(degree[u] * degree[v], 1.0)),
            svd / (size[u] * size[v]),
            self.rate[self.types[u], self.types[v]],
            log(to_v) + log(to_u),
            (to_v + 1) / (degree[u] + 2) + (to_u + 1) / (degree[v] + 2),
            np.minimum(since_u, since_v),
            np.maximum(since_u, since_v),
            log(self.new[u]) + log(self.new[v]),
            (self.new[u] + 1) / (degree[u] + 2) + (self.new[v] + 1) / (degree[v] + 2),
            log(self.year - self.first[u]) + log(self.year - self.first[v]),
            log(self.documents[u]) + log(self.documents[v]),
            self.recent[u].multiply(self.recent[v]).tocsr() @ share,
            log(self.typed_new[u, self.types[v]]) + log(self.typed_new[v, self.types[u]]),
            log(lively[u]) + log(lively[v]),
            named[:, 0],
            named[:, 1],
            told[:, 0],
            told[:, 1],
            _sum(self.told[u].multiply(self.told[v])),
            log(self.together(ends)),
            np.maximum(self.doubt[u], self.doubt[v]),
        )
        return np.stack([np.asarray(c, dtype=np.float64) for c in columns], axis=1)

    def together(self, ends: Ends) -> Floats:
        """(p,) documents of the graph that speak of both ends."""
        return _sum(self.read_in[ends[:, 0]].multiply(self.read_in[ends[:, 1]]))

    def _near(self, ends: Ends, rows: Any) -> Floats:
        """(p, 2) how like one end is to what the other is linked to already: highest, and sum.

        Cosine of an end to the neighbors of the other that have its type, the nearest of them,
        both ways.
        """
        rows.sort_indices()
        found = np.zeros((len(ends), 2))
        for one, other in ((0, 1), (1, 0)):
            best = np.zeros(len(ends))
            _most_alike(
                ends[:, one], ends[:, other], self.links.indptr, self.links.indices, self.types,
                rows.indptr, rows.indices, rows.data, np.zeros(rows.shape[1]), best,
            )  # fmt: skip
            found[:, 0] = np.maximum(found[:, 0], best)
            found[:, 1] += best
        return found


@numba.njit(cache=True, nogil=True)
def _most_alike(
    ends: Any, others: Any, start: Any, linked: Any, types: Any,
    at: Any, terms: Any, weights: Any, spread: Any, best: Any,
) -> None:  # fmt: skip
    """Write the highest cosine of each end to the neighbors of the other that have its type.

    `start`, `linked` are the links and `at`, `terms`, `weights` the unit rows, both CSR; `spread`
    is a row of zeros, and is left as one.
    """
    for n in range(ends.shape[0]):
        end, other = ends[n], others[n]
        for k in range(at[end], at[end + 1]):
            spread[terms[k]] = weights[k]
        for place in range(start[other], start[other + 1]):
            neighbor = linked[place]
            if types[neighbor] == types[end]:
                cosine = 0.0
                for k in range(at[neighbor], at[neighbor + 1]):
                    cosine += spread[terms[k]] * weights[k]
                best[n] = max(best[n], cosine)
        for k in range(at[end], at[end + 1]):
            spread[terms[k]] = 0.0


_Spellings = dict[tuple[str, ...], list[int]]
_LONGEST = 5


def _spellings(graph: Graph) -> _Spellings:
    """Nodes by the words of their names and aliases; short ones are too often something else."""
    found: _Spellings = {}
    for node, name in enumerate(graph.names):
        row = graph.node_rows[int(graph.node_row[node])]
        for spelled in {name, *row.get("aliases", ())}:
            words = tuple(_words(spelled))
            if len("".join(words)) >= 3 and len(words) <= _LONGEST:
                found.setdefault(words, []).append(node)
    return found


def _named_in(text: str, called: _Spellings) -> set[int]:
    """Nodes that a text names, an edge or none: where the longest name starts, shorter do not."""
    words = _words(text)
    found: set[int] = set()
    at = 0
    while at < len(words):
        for size in range(min(_LONGEST, len(words) - at), 0, -1):
            if nodes := called.get(tuple(words[at : at + size])):
                found.update(nodes)
                at += size - 1
                break
        at += 1
    return found


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())


def _tfidf(texts: list[str], **options: Any) -> Any:
    """Unit rows of weighted terms; no terms at all give empty rows."""
    from scipy.sparse import csr_array
    from sklearn.feature_extraction.text import TfidfVectorizer

    try:
        return csr_array(TfidfVectorizer(sublinear_tf=True, **options).fit_transform(texts))
    except ValueError:  # no document, or only stop words
        return csr_array((len(texts), 1))


def _unit_rows(rows: Any) -> Any:
    from scipy.sparse import dia_array

    size = np.sqrt(_sum(rows.multiply(rows)))
    n = rows.shape[0]
    return (dia_array((1.0 / np.maximum(size, 1e-12), 0), shape=(n, n)).tocsr() @ rows).tocsr()


def _scaled(rows: Any, weights: Floats) -> Any:
    return rows.multiply(weights[None, :]).tocsr()


def _sum(rows: Any) -> Floats:
    return np.asarray(rows.sum(axis=1), dtype=np.float64).ravel()
