"""Do path scores predict edges that the literature found later?

The graph as of the training year is searched for paths between pairs that are not linked in it.
Pairs that the literature linked by the test year are positives; the negatives are pairs of the
same types and about the same distance that it did not link. Each score is judged by the area under
the ROC curve, and the four weights are fitted by logistic regression with weights >= 0 on one half
of the pairs and judged on the other half.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from kg.embedding.embed import Embedder
from kg.graph.arrays import TYPES
from kg.graph.model import Graph
from kg.paths import scores
from kg.paths.build import Steps, sentences
from kg.paths.concepts import check_embedder
from kg.paths.find import PathOptions
from kg.paths.score import score_candidates
from kg.paths.search import Searcher
from sage.core.errors import InputError
from sage.core.models import Strict
from sage.core.seeds import generator

SCORES = ("logic", "relevance", "novelty", "surprise")
_FEWEST = 10


class Auc(Strict):
    """Area under the ROC curve with a 95% bootstrap interval; 0.5 is chance."""

    value: float
    low: float
    high: float


class Weights(Strict):
    """Weights of the four scores, summing to 1."""

    logic: float = Field(ge=0.0)
    relevance: float = Field(ge=0.0)
    novelty: float = Field(ge=0.0)
    surprise: float = Field(ge=0.0)


class BacktestResult(Strict):
    """What the scores of the past said about the edges of the future.

    `auc` has one entry per score, for the total under the weights given, the total under the fitted
    weights, and two baselines without path scores. All are measured on the pairs that the fit did
    not see. `fitted` is None if the fit gave no score a positive weight.
    """

    train_year: int
    test_year: int
    train_nodes: int
    train_edges: int
    new_edges: int
    positives: int
    negatives: int
    paths: int
    weights: Weights
    fitted: Weights | None
    auc: dict[str, Auc]
    notes: tuple[str, ...]


@dataclass
class _Pairs:
    ends: NDArray[np.int32]
    label: NDArray[np.bool_]
    features: NDArray[np.float64]
    baselines: dict[str, NDArray[np.float64]]
    paths: int


def backtest(
    graph: Graph,
    train: int,
    test: int,
    embedder: Embedder,
    options: PathOptions | None = None,
    *,
    domain: str | None = None,
    max_pairs: int = 400,
    paths_per_pair: int = 20,
    progress: Callable[[str], None] | None = None,
) -> BacktestResult:
    """Train on the graph as of `train`, test on what was linked by `test`, fit the weights.

    Parameters
    ----------
    domain : what Relevance is measured against; None takes the mean of all node vectors
    max_pairs : most positives; as many negatives are drawn
    paths_per_pair : paths between a pair whose mean scores stand for it, the shortest first

    Raises
    ------
    InputError
        If the years are in the wrong order, the graph has no years, or too few edges are new.
    """
    options = options or PathOptions()
    if train >= test:
        raise InputError(f"--train {train} must be before --test {test}.")
    check_embedder(graph, embedder)
    past, future = graph.as_of(train), graph.as_of(test)
    if not past.n_edges:
        span = graph.stats()
        raise InputError(
            f"the graph has no edge from {train} or before (its years: {span.first_year} to "
            f"{span.last_year}). Choose a later --train."
        )
    say = progress or (lambda _: None)
    say("finding pairs that were linked later")
    rng = generator(options.seed)
    linked = _linked(past, future)
    new = _new_pairs(past, future)
    positives = _reachable(past, new, options)
    if len(positives) > max_pairs:
        positives = positives[np.sort(rng.choice(len(positives), max_pairs, replace=False))]
    negatives = _negatives(past, positives, linked, options, rng)
    if min(len(positives), len(negatives)) < _FEWEST:
        raise InputError(
            f"only {len(positives)} of the {len(new)} pairs that were newly linked by {test} are "
            f"joined by a path as of {train} ({len(negatives)} pairs to compare with); at least "
            f"{_FEWEST} of each are needed. Choose other years, or a larger corpus."
        )
    say(f"scoring paths of {len(positives) + len(negatives)} pairs")
    pairs = _describe(past, positives, negatives, embedder, options, domain, paths_per_pair)
    fit = _half(pairs.label, rng)
    fitted = fit_weights(pairs.features[fit], pairs.label[fit])
    held = ~fit
    label = pairs.label[held]
    given = np.array(scores.check_weights(options.weights))
    columns = {name: pairs.features[held, n] for n, name in enumerate(SCORES)}
    columns["total, weights given"] = pairs.features[held] @ given
    if fitted is not None:
        columns["total, weights fitted"] = pairs.features[held] @ fitted
    columns |= {f"baseline: {name}": v[held] for name, v in pairs.baselines.items()}
    notes = []
    if domain is None:
        notes.append("Relevance was measured to the mean of all nodes: no domain was given.")
    if fitted is None:
        notes.append("No score predicted new edges: no weights were fitted.")
    if held.sum() < 100:
        notes.append(f"Only {int(held.sum())} pairs were held out: the intervals are wide.")
    return BacktestResult(
        train_year=train,
        test_year=test,
        train_nodes=past.n_nodes,
        train_edges=past.n_edges,
        new_edges=len(new),
        positives=len(positives),
        negatives=len(negatives),
        paths=pairs.paths,
        weights=_weights(given),
        fitted=None if fitted is None else _weights(fitted),
        auc={name: auc_interval(column, label, options.seed) for name, column in columns.items()},
        notes=tuple(notes),
    )


def _weights(values: NDArray[np.float64]) -> Weights:
    return Weights(**dict(zip(SCORES, values.tolist(), strict=True)))


def fit_weights(
    features: NDArray[np.float64], label: NDArray[np.bool_]
) -> NDArray[np.float64] | None:
    """(4,) weights >= 0 summing to 1, by logistic regression with bounds and a slight ridge.

    None if no score gets a positive weight.
    """
    from scipy.optimize import minimize
    from scipy.special import expit

    x = np.column_stack([features, np.ones(len(features))])
    y = label.astype(np.float64)

    def loss(a: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        z = x @ a
        value = float(np.mean(np.logaddexp(0.0, z) - y * z) + 1e-3 * (a[:-1] @ a[:-1]))
        slope = x.T @ (expit(z) - y) / len(y)
        slope[:-1] += 2e-3 * a[:-1]
        return value, slope

    n = features.shape[1]
    bounds = [(0.0, None)] * n + [(None, None)]
    start = np.concatenate([np.ones(n), [0.0]])
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds)
    weights: NDArray[np.float64] = np.where(found.x[:-1] < 1e-6, 0.0, found.x[:-1])
    if weights.sum() <= 0:
        return None
    scaled: NDArray[np.float64] = weights / weights.sum()
    return scaled


def auc(score: NDArray[np.float64], label: NDArray[np.bool_]) -> float:
    """Area under the ROC curve by ranks (Mann-Whitney), ties counted half."""
    from scipy.stats import rankdata

    positives = int(label.sum())
    negatives = len(label) - positives
    if not positives or not negatives:
        return 0.5
    ranks = rankdata(score)[label].sum()
    return float((ranks - positives * (positives + 1) / 2) / (positives * negatives))


def auc_interval(
    score: NDArray[np.float64], label: NDArray[np.bool_], seed: int, rounds: int = 300
) -> Auc:
    """The area with a 95% interval from bootstrapping positives and negatives separately."""
    rng = generator(seed)
    yes, no = np.flatnonzero(label), np.flatnonzero(~label)
    drawn = []
    for _ in range(rounds if len(yes) and len(no) else 0):
        rows = np.concatenate([rng.choice(yes, len(yes)), rng.choice(no, len(no))])
        drawn.append(auc(score[rows], label[rows]))
    value = auc(score, label)
    low, high = np.quantile(drawn, [0.025, 0.975]) if drawn else (0.0, 1.0)
    return Auc(value=value, low=float(low), high=float(high))


def _codes(graph: Graph, place: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """Unordered pairs that affirmed edges link, as codes in the numbering `place`."""
    keep = ~graph.negated
    a, b = place[graph.head[keep]], place[graph.tail[keep]]
    there = (a >= 0) & (b >= 0)
    low, high = np.minimum(a, b)[there], np.maximum(a, b)[there]
    codes: NDArray[np.int64] = np.unique(low * n + high)
    return codes


def _linked(past: Graph, future: Graph) -> NDArray[np.int64]:
    place = np.array([past.position.get(i, -1) for i in future.ids], dtype=np.int64)
    return _codes(future, place, past.n_nodes)


def _new_pairs(past: Graph, future: Graph) -> NDArray[np.int32]:
    """(p, 2) pairs of nodes of the past graph that were linked only later."""
    n = past.n_nodes
    before = _codes(past, np.arange(n, dtype=np.int64), n)
    new = np.setdiff1d(_linked(past, future), before)
    return np.stack([new // n, new % n], axis=1).astype(np.int32)


def _distances(past: Graph, source: int, hops: int) -> NDArray[np.int8]:
    indptr, indices = past.adjacency
    search = Searcher(indptr, indices, np.array([source], dtype=np.int32), hops)
    return search.distance


def _reachable(past: Graph, pairs: NDArray[np.int32], options: PathOptions) -> NDArray[np.int32]:
    keep = [
        p
        for source in np.unique(pairs[:, 0]).tolist()
        for distance in (_distances(past, source, options.max_hops),)
        for p in np.flatnonzero(pairs[:, 0] == source).tolist()
        if 2 <= distance[pairs[p, 1]] <= options.max_hops
    ]
    return pairs[sorted(keep)]


def _negatives(
    past: Graph,
    positives: NDArray[np.int32],
    linked: NDArray[np.int64],
    options: PathOptions,
    rng: np.random.Generator,
) -> NDArray[np.int32]:
    """For each positive, a pair with the same source, tail type and distance, never linked."""
    n = past.n_nodes
    known = set(linked.tolist())
    used: defaultdict[int, set[int]] = defaultdict(set)
    out: list[tuple[int, int]] = []
    for source, tail in positives.tolist():
        distance = _distances(past, source, options.max_hops)
        fit = np.flatnonzero((distance == distance[tail]) & (past.types == past.types[tail]))
        rng.shuffle(fit)
        for other in fit.tolist():
            code = min(source, other) * n + max(source, other)
            if other != source and code not in known and other not in used[source]:
                used[source].add(other)
                out.append((source, other))
                break
    return np.array(out, dtype=np.int32).reshape(-1, 2)


def _describe(
    past: Graph,
    positives: NDArray[np.int32],
    negatives: NDArray[np.int32],
    embedder: Embedder,
    options: PathOptions,
    domain: str | None,
    per_pair: int,
) -> _Pairs:
    """Mean normalized scores of each pair's paths; pairs in a fixed order."""
    ends = np.concatenate([positives, negatives])
    label = np.arange(len(ends)) < len(positives)
    indptr, indices = past.adjacency
    found = []
    for source, target in ends.tolist():
        search = Searcher(
            indptr,
            indices,
            np.array([target], dtype=np.int32),
            options.max_hops,
            hub_cap=options.hub_cap,
            budget=options.budget,
        )
        some = search.shortest(source, per_pair, min_hops=2).rows
        if not len(some):  # the hub cap hides every path
            search = Searcher(indptr, indices, np.array([target], dtype=np.int32), options.max_hops)
            some = search.shortest(source, per_pair, min_hops=2).rows
        found.append(some)
    rows = np.concatenate(found)
    owner = np.repeat(np.arange(len(ends)), [len(f) for f in found])
    vectors = past.vectors
    if vectors is None:
        vectors = embedder.embed(past.names)
    if domain is not None:
        center = embedder.embed([domain])[0]
    else:
        center = np.asarray(vectors).mean(axis=0)
        center = center / max(float(np.linalg.norm(center)), 1e-12)
    distances = np.linalg.norm(np.asarray(vectors, dtype=np.float64) - center, axis=1)
    raw = score_candidates(rows, distances, past.degree, past.types, len(TYPES))
    texts = embedder.embed(sentences(past, Steps(past), rows))
    queries = embedder.embed([f"{past.names[a]} and {past.names[b]}" for a, b in ends.tolist()])
    cosine = np.einsum("nd,nd->n", texts.astype(np.float64), queries[owner].astype(np.float64))
    columns = (scores.clamp_logic(cosine), raw.relevance01, raw.novelty01, raw.surprise01)
    counts = np.maximum(np.bincount(owner, minlength=len(ends)), 1)
    features = np.stack(
        [np.bincount(owner, weights=c, minlength=len(ends)) / counts for c in columns], axis=1
    )
    a, b = ends[:, 0], ends[:, 1]
    similar = np.einsum("nd,nd->n", np.asarray(vectors[a]), np.asarray(vectors[b]))
    baselines = {
        "degree product": (past.degree[a] * past.degree[b]).astype(np.float64),
        "name similarity": similar.astype(np.float64),
    }
    return _Pairs(ends, label, features, baselines, len(rows))


def _half(label: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[np.bool_]:
    """A random half of the positives and of the negatives."""
    out = np.zeros(len(label), dtype=np.bool_)
    for group in (np.flatnonzero(label), np.flatnonzero(~label)):
        out[rng.permutation(group)[: len(group) // 2]] = True
    return out
