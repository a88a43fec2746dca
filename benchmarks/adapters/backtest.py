"""Backtest of path scores: scores on the past graph against links that appeared later.

At each cutoff year, pairs of nodes in the past graph that were linked within the horizon
are compared with pairs that were not: random pairs, and pairs with the same types and
degrees at both ends. The paper's four path scores are compared with classical link
predictors, with intervals from resampling the pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks.runner import Report, Row
from kg.embedding.embed import Embedder
from kg.graph.arrays import NO_YEAR, TYPES
from kg.graph.model import Graph
from kg.paths import scores
from kg.paths.build import Steps, write_sentences
from kg.paths.find import PathOptions
from kg.paths.score import score_candidates
from kg.paths.search import Searcher
from sage.core.errors import InputError
from sage.core.seeds import generator

Floats = NDArray[np.float64]
Ends = NDArray[np.int64]
Against = Literal["random", "degree-matched"]
AGAINST: tuple[Against, ...] = ("random", "degree-matched")
BASELINES = ("degree product", "common neighbors", "Adamic-Adar", "resource allocation")
PAPER = ("paper: Logic", "paper: Relevance", "paper: Novelty", "paper: Surprise", "paper: total")
RATIO = 5
"""Unlinked pairs per linked pair."""
FEWEST = 10
DRAWS = 200
SHORTEST = 5
"""Number of shortest paths scored per pair."""


@dataclass(frozen=True)
class Window:
    """The graph as of `cut`, and pairs of its nodes first linked in the following years.

    `new` are (p, 2) positions in `past`; `known` are the codes of all pairs linked by the
    end.
    """

    past: Graph
    cut: int
    new: Ends
    known: NDArray[np.int64]


def list_links(graph: Graph) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """List codes `low * n + high` for pairs with a dated affirmed edge, and their first years."""
    keep = ~graph.negated & (graph.first_year != NO_YEAR)
    head, tail = graph.head[keep].astype(np.int64), graph.tail[keep].astype(np.int64)
    codes = np.minimum(head, tail) * max(graph.n_nodes, 1) + np.maximum(head, tail)
    order = np.lexsort((graph.first_year[keep], codes))
    codes, first = np.unique(codes[order], return_index=True)
    return codes, graph.first_year[keep].astype(np.int64)[order][first]


def open_window(graph: Graph, cut: int, horizon: int) -> Window:
    """Return the graph as of `cut` and the links from the following `horizon` years.

    Raises
    ------
    InputError
        If there are too few links before or after the cut.
    """
    past = graph.as_of(cut)
    n, whole = past.n_nodes, max(graph.n_nodes, 1)
    if not past.n_edges:
        span = graph.stats()
        raise InputError(f"the graph has no edges dated {cut} or earlier (years: {span.first_year}"
                         f" to {span.last_year}); choose a later --cut")  # fmt: skip
    place = np.array([past.position.get(node, -1) for node in graph.ids], dtype=np.int64)
    codes, years = list_links(graph)
    ends = np.stack([place[codes // whole], place[codes % whole]])
    known = (ends.min(axis=0) >= 0) & (years <= cut + horizon)
    codes = (ends.min(axis=0) * n + ends.max(axis=0))[known]
    before, _ = list_links(past)
    new = np.setdiff1d(codes, before)
    new = new[(past.degree[new // n] > 0) & (past.degree[new % n] > 0)]
    if len(new) < FEWEST:
        raise InputError(f"only {len(new)} pairs known in {cut} were linked by {cut + horizon}; at"
                         f" least {FEWEST} are required")  # fmt: skip
    pairs = np.stack([new // n, new % n], axis=1)
    return Window(past, cut, pairs, np.union1d(codes, before))


def draw_unlinked(window: Window, against: Against, seed: int) -> Ends:
    """Draw distinct unlinked pairs, up to `RATIO` per linked pair.

    Degree-matched pairs have, at both ends, the type and approximately the degree (factor
    1.4) of a linked pair.
    """
    past, n = window.past, window.past.n_nodes
    rng = generator(seed, AGAINST.index(against), window.cut)
    alive = np.flatnonzero(past.degree > 0)
    grade = np.floor(2 * np.log2(np.maximum(past.degree, 1))).astype(np.int64)
    like: dict[tuple[int, int], list[int]] = {}
    for node in alive.tolist():
        like.setdefault((int(past.types[node]), int(grade[node])), []).append(node)
    taken, found = set(window.known.tolist()), []
    for ends in window.new.tolist():
        pools = (
            [alive, alive] if against == "random"
            else [like[int(past.types[node]), int(grade[node])] for node in ends]
        )  # fmt: skip
        missing = RATIO
        for _ in range(20 * RATIO):
            a, b = (int(rng.choice(pool)) for pool in pools)
            code = min(a, b) * n + max(a, b)
            if missing and a != b and code not in taken:
                taken.add(code)
                found.append(code)
                missing -= 1
    codes = np.array(sorted(found), dtype=np.int64)
    return np.stack([codes // n, codes % n], axis=1)


def score_classically(past: Graph, ends: Ends) -> dict[str, Floats]:
    """Compute classical link predictors for pairs."""
    from scipy.sparse import csr_array

    indptr, indices = past.adjacency
    shape = (past.n_nodes, past.n_nodes)
    near = csr_array((np.ones(len(indices)), indices, indptr), shape=shape)
    near.data[:] = 1.0
    degree = np.maximum(np.diff(indptr), 1).astype(np.float64)
    first, second = near[ends[:, 0]], near[ends[:, 1]]
    shared = first.multiply(second)

    def weigh(weight: Floats) -> Floats:
        return np.asarray(shared @ weight, dtype=np.float64)

    columns = (
        degree[ends[:, 0]] * degree[ends[:, 1]],
        weigh(np.ones(past.n_nodes)),
        weigh(1 / np.log(np.maximum(degree, 2))),
        weigh(1 / degree),
    )
    return dict(zip(BASELINES, columns, strict=True))


def score_paths(
    past: Graph, ends: Ends, embedder: Embedder, domain: str | None
) -> dict[str, Floats]:
    """Compute the mean normalized path scores of each pair's shortest paths; -1 without paths."""
    options = PathOptions()
    indptr, indices = past.adjacency
    found = []
    for source, target in ends.tolist():
        goal = np.array([target], dtype=np.int32)
        search = Searcher(indptr, indices, goal, options.max_hops, hub_cap=options.hub_cap,
                          budget=200_000)  # fmt: skip
        found.append(search.shortest(source, SHORTEST, min_hops=2).rows)
    counts = np.array([len(rows) for rows in found])
    if not counts.sum():
        return {name: np.zeros(len(ends)) for name in PAPER}
    rows = np.concatenate(found)
    owner = np.repeat(np.arange(len(ends)), counts)
    nodes = np.unique(rows[rows >= 0])
    vectors = np.zeros((past.n_nodes, embedder.dimension))
    vectors[nodes] = (
        past.vectors[nodes] if past.vectors is not None
        else embedder.embed([past.names[n] for n in nodes.tolist()])
    )  # fmt: skip
    center = embedder.embed([domain])[0] if domain else vectors[nodes].mean(axis=0)
    center = center / max(float(np.linalg.norm(center)), 1e-12)
    distances = np.linalg.norm(vectors - center, axis=1)
    raw = score_candidates(rows, distances, past.degree, past.types, len(TYPES))
    texts = embedder.embed(write_sentences(past, Steps(past), rows))
    queries = embedder.embed([f"{past.names[a]} and {past.names[b]}" for a, b in ends.tolist()])
    cosine = np.einsum("nd,nd->n", texts.astype(np.float64), queries[owner].astype(np.float64))
    columns = (scores.clamp_logic(cosine), raw.relevance01, raw.novelty01, raw.surprise01)
    means = [
        np.where(
            counts > 0,
            np.bincount(owner, weights=column, minlength=len(ends)) / np.maximum(counts, 1),
            -1.0,
        )
        for column in columns
    ]
    total = np.stack(means, axis=1) @ np.array(scores.check_weights(options.weights))
    return dict(zip(PAPER, [*means, total], strict=True))


def auc(linked: Floats, others: Floats) -> float:
    """Compute the area under the ROC curve from ranks (Mann-Whitney), with ties counted as half."""
    from scipy.stats import rankdata

    positives, negatives = len(linked), len(others)
    ranks = rankdata(np.concatenate([linked, others]))[:positives].sum()
    return float((ranks - positives * (positives + 1) / 2) / (positives * negatives))


def estimate_auc(linked: Floats, others: Floats, seed: int) -> tuple[float, float, float]:
    """Estimate the AUC and its 95% interval by resampling pairs with replacement."""
    rng = generator(seed, len(linked))
    draws = [
        auc(rng.choice(linked, len(linked)), rng.choice(others, len(others)))
        for _ in range(DRAWS)
    ]  # fmt: skip
    low, high = np.quantile(draws, [0.025, 0.975])
    return auc(linked, others), float(low), float(high)


def backtest(
    graph: Graph,
    cut: int,
    horizon: int,
    embedder: Embedder,
    *,
    domain: str | None = None,
    pairs: int = 60,
    seed: int = 0,
) -> dict[tuple[str, Against], tuple[float, float, float]]:
    """Compute each score's AUC at a cutoff; path scores are limited to `pairs` linked pairs."""
    window = open_window(graph, cut, horizon)
    found: dict[tuple[str, Against], tuple[float, float, float]] = {}
    kinds: list[tuple[Callable[[Ends], dict[str, Floats]], int]] = [
        (lambda ends: score_classically(window.past, ends), len(window.new)),
        (lambda ends: score_paths(window.past, ends, embedder, domain), pairs),
    ]
    for score, most in kinds:
        linked = score(window.new[:: max(1, -(-len(window.new) // most))] if most else [])
        for against in AGAINST:
            unlinked = draw_unlinked(window, against, seed)
            others = score(unlinked[:: max(1, -(-len(unlinked) // (most * RATIO)))])
            for name in linked:
                found[name, against] = estimate_auc(linked[name], others[name], seed)
    return found


def run(
    graph: Annotated[Path, typer.Argument(help="A dated graph.")],
    cut: Annotated[list[int], typer.Option(help="Last year known; repeatable.")],
    horizon: Annotated[int, typer.Option(min=1, help="Years after the cut.")] = 3,
    domain: Annotated[str | None, typer.Option(help="Domain of Relevance.")] = None,
    pairs: Annotated[int, typer.Option(min=10, help="Linked pairs scored by paths.")] = 60,
    seed: Annotated[int, typer.Option(min=0)] = 0,
) -> Report:
    """Compare scores on the past graph with later links."""
    from sage.run.wiring import make_embedder
    from sage.settings import load

    whole, embedder = Graph.load(graph), make_embedder(load())
    found = {
        year: backtest(whole, year, horizon, embedder, domain=domain, pairs=pairs, seed=seed)
        for year in cut
    }
    rows = []
    for year, measured in found.items():
        for name in (*PAPER, *BASELINES):
            values = [
                f"{value:.3f} ({low:.3f} to {high:.3f}) {against}"
                for (score, against), (value, low, high) in measured.items() if score == name
            ]  # fmt: skip
            row = Row(benchmark=f"Backtest {year}, {name}", measured="AUC; 0.5 is chance")
            column = "sage" if name in PAPER else "baseline"
            rows.append(row.model_copy(update={column: "; ".join(values)}))
    return Report(rows=tuple(rows))
