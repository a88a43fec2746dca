"""Paths from a prompt: search, score, choose, and say what was understood (SAGE, 3.2.2, B.1)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from kg.embedding.embed import Embedder
from kg.graph.arrays import TYPES
from kg.graph.model import Graph
from kg.paths import scores
from kg.paths.build import Steps, build_path, sentences
from kg.paths.concepts import Understanding, check_embedder, understand
from kg.paths.score import Rows, choose, score_candidates
from kg.paths.search import Searcher, shares
from kg.types import ConceptMatch, EntityType, PathSearch, ScoredPath
from sage.core.errors import InputError
from sage.core.models import Strict
from sage.core.seeds import generator


class PathOptions(Strict):
    """How paths are searched, scored and chosen.

    The weights are those of SAGE, equation 1, with larger Novelty and Surprise. `hub_cap`: at a
    node with more neighbors, only so many of the least connected are entered (0: all).
    `diversity`: what full overlap with a path already chosen costs, in units of the total; 0 gives
    the plain top k. `seed` sets the order among equals and which paths stand for too many.
    `avoid`: types that no path passes through, because they link what only was studied alike; they
    still end paths. Where that leaves nothing, they are let in and a note says so.
    """

    k: int = Field(default=8, ge=1, le=1000)
    min_hops: int = Field(default=2, ge=1)
    max_hops: int = Field(default=5, ge=1, le=8)
    logic: float = Field(default=0.2, ge=0.0)
    relevance: float = Field(default=0.2, ge=0.0)
    novelty: float = Field(default=0.3, ge=0.0)
    surprise: float = Field(default=0.3, ge=0.0)
    diversity: float = Field(default=0.3, ge=0.0)
    hub_cap: int = Field(default=200, ge=0)
    max_candidates: int = Field(default=2000, ge=1, le=1_000_000)
    budget: int = Field(default=20_000_000, ge=1)
    seed: int = Field(default=0, ge=0)
    avoid: tuple[EntityType, ...] = (
        EntityType.CLINICAL_ENDPOINT,
        EntityType.COHORT,
        EntityType.ALGORITHM,
    )

    @model_validator(mode="after")
    def _consistent(self) -> PathOptions:
        if self.min_hops > self.max_hops:
            raise ValueError(f"min_hops {self.min_hops} is over max_hops {self.max_hops}")
        if self.logic + self.relevance + self.novelty + self.surprise <= 0:
            raise ValueError("the four path weights are all zero")
        return self

    @property
    def weights(self) -> tuple[float, float, float, float]:
        """Logic, Relevance, Novelty, Surprise."""
        return self.logic, self.relevance, self.novelty, self.surprise


#: A path to a class of these ends at the first one it meets.
_SINKS = {EntityType.CLINICAL_ENDPOINT, EntityType.COHORT}


class _Leg(BaseModel):
    """One search: from a source to a set of targets."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    source: int
    targets: NDArray[np.int32]
    through: bool


def between(
    graph: Graph,
    a: str,
    b: str,
    options: PathOptions,
    embedder: Embedder,
    *,
    domain: str | None = None,
) -> PathSearch:
    """Paths between two nodes given by id, name or alias, direct links included."""
    options = options.model_copy(update={"min_hops": 1})
    prompt = f"{a} and {b}"
    return generate(graph, prompt, options, embedder, domain=domain, sources=[a], targets=[b])


def generate(
    graph: Graph,
    prompt: str,
    options: PathOptions,
    embedder: Embedder,
    *,
    domain: str | None = None,
    sources: Sequence[str] | None = None,
    targets: Sequence[str] | None = None,
) -> PathSearch:
    """Ranked paths for a prompt.

    Parameters
    ----------
    domain : what Relevance is measured against; else the prompt's setting, else the prompt
    sources, targets : node names that replace what the prompt names

    Returns
    -------
    Paths in descending total. With no paths, the notes say what to do.

    Raises
    ------
    InputError
        If the graph's vectors are of another model than `embedder`.
    """
    check_embedder(graph, embedder)
    said = (
        understand(graph, prompt, embedder) if not (sources and targets) else Understanding(prompt)
    )
    start = _named(graph, sources, said) if sources else None
    end = _named(graph, targets, said) if targets else None
    if (sources and not start) or (targets and not end):
        return _nothing(graph, said)
    legs = _legs(graph, said, start, end, embedder)
    if not legs:
        return _nothing(graph, said)
    rows, total, complete = _candidates(graph, legs, options, options.min_hops, said)
    if not len(rows) and options.min_hops > 1:
        rows, total, complete = _candidates(graph, legs, options, 1, said)
        if len(rows):
            said.notes.append("Only direct links were found: no path of two or more steps.")
    if not complete:
        said.notes.append("The search was cut off by its step budget; some paths were not seen.")
    if total > len(rows):
        said.notes.append(f"{total} paths exist; {len(rows)} spread evenly over them were scored.")
    if not len(rows):
        said.notes.append(
            f"No path of at most {options.max_hops} steps joins these concepts; name others."
        )
        return _result(said, (), 0)
    rows = _through_named(graph, rows, said)
    paths = _ranked(graph, rows, said, options, embedder, domain)
    return _result(said, paths, len(rows))


def _through_named(graph: Graph, rows: Rows, said: Understanding) -> Rows:
    """The candidates that visit every class the prompt names ("genes"), where there are any."""
    keep = np.ones(len(rows), dtype=bool)
    for _, group in said.classes:
        numbers = [TYPES.index(kind) for kind in group]
        visited = (rows >= 0) & np.isin(graph.types[rows], numbers)
        keep &= visited.any(axis=1)
    return rows[keep] if keep.any() else rows


def _result(said: Understanding, paths: tuple[ScoredPath, ...], candidates: int) -> PathSearch:
    return PathSearch(
        prompt=said.prompt,
        concepts=tuple(said.concepts),
        unmatched=tuple(said.unmatched),
        paths=paths,
        candidates=candidates,
        notes=tuple(said.notes),
    )


def _named(graph: Graph, names: Sequence[str], said: Understanding) -> list[int]:
    found: list[int] = []
    for name in names:
        try:
            node = graph.resolve(name)
        except InputError:
            said.unmatched.append(name)
            continue
        match = ConceptMatch(
            phrase=name,
            node_id=graph.ids[node],
            name=graph.names[node],
            type=TYPES[graph.types[node]],
            how="given",
            score=1.0,
        )
        said.concepts.append(match)
        found.append(node)
    return found


def _nothing(graph: Graph, said: Understanding) -> PathSearch:
    for phrase in said.unmatched or [said.prompt]:
        near = ", ".join(f'"{m.name}"' for m in graph.find(phrase, 3))
        said.notes.append(
            f'"{phrase}" names no node of the graph.' + (f" Nearest: {near}." if near else "")
        )
    said.notes.append("Name at least one entity of the graph; `sage kg show NAME` looks names up.")
    return _result(said, (), 0)


def _members(graph: Graph, classes: Sequence[EntityType]) -> NDArray[np.int32]:
    numbers = [TYPES.index(c) for c in classes]
    return np.flatnonzero(np.isin(graph.types, numbers)).astype(np.int32)


def _legs(
    graph: Graph,
    said: Understanding,
    start: list[int] | None,
    end: list[int] | None,
    embedder: Embedder,
) -> list[_Leg]:
    """What to search: pairs of things, or things and classes."""
    things = said.nodes
    if start is None and end is not None:
        start = [n for n in things if n not in end]
    if start is not None and end is not None and start:
        return [
            _Leg(source=s, targets=np.array([e], dtype=np.int32), through=False)
            for s in start
            for e in end
            if s != e
        ]
    begin = start if start is not None else end if end is not None else things
    if start is not None and (others := [n for n in things if n not in start]):
        return [
            _Leg(source=s, targets=np.array([e], dtype=np.int32), through=False)
            for s in start
            for e in others
        ]
    begin = list(begin)
    if not begin and said.domain_node is not None:
        begin = [said.domain_node]
    elif said.domain_node is not None and len(begin) == 1 and not said.classes:
        begin.append(said.domain_node)
    legs: list[_Leg] = []
    for i, s in enumerate(begin):
        for e in begin[i + 1 :]:
            legs.append(_Leg(source=s, targets=np.array([e], dtype=np.int32), through=False))
    classes = list(said.classes)
    if len(begin) == 1:
        wanted = {c for _, group in classes for c in group}
        if EntityType.CLINICAL_ENDPOINT not in wanted:
            classes.append(("", (EntityType.CLINICAL_ENDPOINT,)))
    if not begin and len(classes) >= 2:
        begin = _closest(graph, said, _members(graph, classes[0][1]), embedder)
        classes = classes[1:]
    setting = [] if said.domain_node is None else [said.domain_node]
    for phrase, group in classes:
        members = _members(graph, group)
        added = False
        for s in begin[:4]:
            ends = members[~np.isin(members, [*begin, *setting])]
            if len(ends):
                legs.append(_Leg(source=s, targets=ends, through=not set(group) & _SINKS))
                added = True
        names = " or ".join(t.value for t in group)
        if added and phrase:
            said.notes.append(f'"{phrase}" was read as any node of type {names}.')
        elif added:
            said.notes.append(f"Paths to any node of type {names} were added.")
    return legs


def _closest(
    graph: Graph, said: Understanding, members: NDArray[np.int32], embedder: Embedder
) -> list[int]:
    """Up to four members of a class nearest to the prompt in meaning."""
    if not len(members):
        return []
    members = members[np.argsort(-graph.degree[members], kind="stable")][:2000]
    vectors = _vectors(graph, members, embedder)
    cosine = vectors @ embedder.embed([said.prompt])[0]
    best = members[np.lexsort((members, -cosine))[:4]].tolist()
    said.notes.append(
        "No single entity was named; paths start from the nearest: "
        + ", ".join(graph.names[n] for n in best)
        + "."
    )
    return list(best)


def _candidates(
    graph: Graph, legs: list[_Leg], options: PathOptions, min_hops: int, said: Understanding
) -> tuple[Rows, int, bool]:
    """Distinct paths of all legs, how many exist, and whether all were walked."""
    room = shares([options.max_candidates] * len(legs), options.max_candidates)
    blocked = _members(graph, options.avoid)
    if said.domain_node is not None:  # the setting links everything that was studied in it
        blocked = np.append(blocked, np.int32(said.domain_node))
    parts: list[Rows] = []
    total, complete, let_in = 0, True, False
    for leg, most in zip(legs, room, strict=True):
        if not most:
            complete = False
            continue
        found = _search(graph, leg, options, blocked).spread(
            leg.source, most, min_hops, options.seed
        )
        if not len(found.rows) and len(blocked):
            search = _search(graph, leg, options, blocked[:0])
            found = search.spread(leg.source, most, min_hops, options.seed)
            let_in = let_in or len(found.rows) > 0
        rows = np.full((len(found.rows), options.max_hops + 1), -1, dtype=np.int32)
        rows[:, : found.rows.shape[1]] = found.rows
        parts.append(rows)
        total += found.total
        complete = complete and found.complete
    if let_in:
        said.notes.append(
            "Some concepts are linked only through the setting, an endpoint, a cohort or a method: "
            "such paths say that they were studied together, not how they act."
        )
    rows = np.concatenate(parts)
    unique = np.unique(rows, axis=0) if len(rows) else rows
    return unique, total - (len(rows) - len(unique)), complete


def _search(graph: Graph, leg: _Leg, options: PathOptions, blocked: NDArray[np.int32]) -> Searcher:
    indptr, indices = graph.adjacency
    return Searcher(
        indptr,
        indices,
        leg.targets,
        options.max_hops if not leg.through else min(options.max_hops, 4),
        blocked=blocked[blocked != leg.source],
        through=leg.through,
        hub_cap=options.hub_cap,
        budget=options.budget,
    )


def _vectors(graph: Graph, nodes: NDArray[np.integer], embedder: Embedder) -> NDArray[np.float32]:
    """(len(nodes), d) vectors of some nodes: the graph's own, or embedded now."""
    if graph.vectors is not None:
        return np.asarray(graph.vectors[nodes])
    return embedder.embed([graph.names[n] for n in nodes.tolist()])


def _ranked(
    graph: Graph,
    rows: Rows,
    said: Understanding,
    options: PathOptions,
    embedder: Embedder,
    domain: str | None,
) -> tuple[ScoredPath, ...]:
    context = domain or said.domain
    if context is None:
        context = said.prompt
        said.notes.append("No disease context was named: Relevance is measured to the prompt.")
    query, center = embedder.embed([said.prompt, context])
    on_paths = np.unique(rows[rows >= 0])
    distances = np.zeros(graph.n_nodes)
    distances[on_paths] = np.linalg.norm(
        _vectors(graph, on_paths, embedder).astype(np.float64) - center, axis=1
    )
    raw = score_candidates(rows, distances, graph.degree, graph.types, len(TYPES))
    steps = Steps(graph)

    def logic_of(some: Sequence[int]) -> scores.Floats:
        return scores.logic(query, embedder.embed(sentences(graph, steps, rows[list(some)])))

    choice = choose(
        rows, raw, options.weights, options.k, options.diversity, logic_of, _tie(rows, options.seed)
    )
    paths = [
        build_path(graph, steps, rows[n], raw, n, choice.logic[n], options.weights)
        for n in choice.rows
    ]
    order = sorted(range(len(paths)), key=lambda p: (-paths[p].scores.total, p))
    return tuple(paths[p] for p in order)


def _tie(rows: Rows, seed: int) -> NDArray[np.int64]:
    """An order among equals: that of the rows for seed 0, else a fixed shuffle."""
    n = len(rows)
    if seed == 0:
        return np.arange(n, dtype=np.int64)
    return generator(seed).permutation(n).astype(np.int64)
