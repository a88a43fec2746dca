"""Path search from a prompt: parsing, search, scoring and selection (SAGE, 3.2.2, B.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from kg.embedding.embed import Embedder
from kg.graph.arrays import TYPES, GraphArrays
from kg.graph.model import Graph
from kg.paths import scores
from kg.paths.build import Steps, build_path, write_sentences
from kg.paths.concepts import NodeClass, Understanding, check_embedder, parse_prompt
from kg.paths.mechanism import NO_BRIDGES, carries, list_blocked_nodes, strength
from kg.paths.noise import rewirings
from kg.paths.score import Rows, choose, choose_strongest, score_candidates
from kg.paths.search import Searcher, shares
from kg.types import MAX_HOPS, PATHS, ConceptMatch, EntityType, PathSearch, ScoredPath
from sage.core.errors import InputError
from sage.core.models import Strict
from sage.core.seeds import generator


class PathOptions(Strict):
    """Path search options; the defaults apply to every run, tool and command.

    `rank`: `mechanism` returns only paths that carry an effect from end to end
    (`kg.paths.mechanism.carries`), strongest first; `paper` returns any path and uses the
    composite in SAGE, equation 1 (alpha Logic, beta Relevance, gamma Novelty, delta
    Surprise), whose total does not predict which links come true (`COMPOSITE_WARNING`).
    `hub_cap`: maximum number of neighbors entered from a node, least connected first (0:
    all). `diversity`: penalty for full overlap with a path already selected, as a share of
    the path's value; 0 gives the plain top k. `seed`: determines the order of ties, and which
    paths are sampled if there are too many. `avoid`: types at which paths may end but through
    which they may not pass, because they link entities that were only studied in the same
    way.
    """

    k: int = Field(default=PATHS, ge=1, le=1000)
    max_hops: int = Field(default=MAX_HOPS, ge=1, le=8)
    logic: float = Field(default=0.2, ge=0.0)
    relevance: float = Field(default=0.2, ge=0.0)
    novelty: float = Field(default=0.3, ge=0.0)
    surprise: float = Field(default=0.3, ge=0.0)
    diversity: float = Field(default=0.3, ge=0.0)
    hub_cap: int = Field(default=200, ge=0)
    max_candidates: int = Field(default=2000, ge=1, le=1_000_000)
    budget: int = Field(default=20_000_000, ge=1)
    seed: int = Field(default=0, ge=0)
    avoid: tuple[EntityType, ...] = NO_BRIDGES
    rank: Literal["mechanism", "paper"] = "mechanism"

    @model_validator(mode="after")
    def _consistent(self) -> PathOptions:
        if self.logic + self.relevance + self.novelty + self.surprise <= 0:
            raise ValueError("all four path weights are zero")
        return self

    @property
    def weights(self) -> tuple[float, float, float, float]:
        """Weights of Logic, Relevance, Novelty and Surprise."""
        return self.logic, self.relevance, self.novelty, self.surprise


COMPOSITE_WARNING = (
    "The composite of Logic, Relevance, Novelty and Surprise ranks these paths. It is not a "
    "probability that a link comes true: its AUC for later links was .349 against random pairs "
    "and .445 against matched pairs on relations of TRRUST, BioRED and BC5CDR, and .731 and .613 "
    "on BioRED and BC5CDR alone, where a model trained on the past has .926 and .727."
)
#: A path to a class of these types ends at the first member it reaches.
_SINKS = {EntityType.CLINICAL_ENDPOINT, EntityType.COHORT}


class _Leg(BaseModel):
    """A search from a source to a set of targets.

    `min_hops` is 1 if the prompt specifies these ends, so that a direct link counts, else 2.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    source: int
    targets: NDArray[np.int32]
    through: bool
    min_hops: int = 1


def find_between(
    graph: Graph,
    a: str,
    b: str,
    options: PathOptions,
    embedder: Embedder,
    *,
    domain: str | None = None,
) -> PathSearch:
    """Find paths between two nodes given by id, name or alias.

    Parameters
    ----------
    options : number, length and ranking of paths
    embedder : the model that computed the graph's vectors
    domain : text against which Relevance is measured; None for the prompt "a and b"

    Returns
    -------
    Ranked paths. If a node is not found or no path exists, the result is empty and the notes
    suggest what to do.

    Raises
    ------
    InputError
        If the graph's vectors were computed by a model other than `embedder`.
    """
    prompt = f"{a} and {b}"
    return find_paths(graph, prompt, options, embedder, domain=domain, sources=[a], targets=[b])


def find_paths(
    graph: Graph,
    prompt: str,
    options: PathOptions,
    embedder: Embedder,
    *,
    domain: str | None = None,
    sources: Sequence[str] | None = None,
    targets: Sequence[str] | None = None,
) -> PathSearch:
    """Find and rank paths for a prompt.

    Parameters
    ----------
    domain : text against which Relevance is measured; None for the prompt's setting, or the
        prompt itself if it has no setting
    sources, targets : node names to use instead of those in the prompt

    Returns
    -------
    Paths, strongest mechanism first, or by descending total (`options.rank`). If there are no
    paths, the notes suggest what to do.

    Raises
    ------
    InputError
        If the graph's vectors were computed by a model other than `embedder`.
    """
    check_embedder(graph, embedder)
    said = (
        parse_prompt(graph, prompt, embedder)
        if not (sources and targets)
        else Understanding(prompt)
    )
    start = _resolve_names(graph, sources, said) if sources else None
    end = _resolve_names(graph, targets, said) if targets else None
    if (sources and not start) or (targets and not end):
        return _nothing(graph, said)
    for phrase, group in said.classes:
        if not len(group.members(graph)):
            said.notes.append(f'The graph has no node of the class "{phrase}".')
    legs = _legs(graph, said, start, end, embedder)
    if not legs:
        return _nothing(graph, said)
    rows, total, complete = _candidates(graph, legs, options, said)
    if not len(rows) and options.avoid:
        opened = options.model_copy(update={"avoid": ()})
        alike, _, _ = _candidates(graph, legs, opened, said)
        if len(alike):
            said.notes.append(
                "These concepts are linked only through the setting, an endpoint, a cohort or a "
                "method: such paths show that they were studied together, not how they act."
            )
            _say_nearest(graph, alike, said, options, embedder, domain)
            return _result(said, (), 0)
    if not complete:
        said.notes.append("The search reached its step budget; some paths were not seen.")
    if total > len(rows):
        said.notes.append(
            f"{total} paths exist; an evenly spread sample of {len(rows)} was scored."
        )
    if not len(rows):
        said.notes.append(
            f"No path of at most {options.max_hops} steps joins these concepts; try others."
        )
        said.notes += [_neighbors(graph, graph.position[match.node_id]) for match in said.concepts]
        return _result(said, (), 0)
    rows = _through_named(graph, rows, said, options)
    noise = None
    if options.rank == "mechanism":
        alike = rows
        rows = rows[carries(rows, *Steps(graph, one_way=True).choose_edges(rows), graph)]
        if not len(rows):
            said.notes.append(
                "These concepts are linked only by entities that act on both, are acted on by "
                "both, were studied with both, or are linked to almost everything: no effect "
                "passes between them."
            )
            _say_nearest(graph, alike, said, options, embedder, domain)
            return _result(said, (), 0)
        noise = _rewired_strengths(graph, legs, options, said)
    paths = _rank_paths(graph, rows, said, options, embedder, domain, noise)
    return _result(said, paths, len(rows))


def _rewired_strengths(
    graph: Graph, legs: list[_Leg], options: PathOptions, said: Understanding
) -> NDArray[np.float64]:
    """Find the strength of the best path for the same searches on each rewired graph, (20,)."""
    blocked = _list_blocked(graph, options, said)
    best = []
    for noise in rewirings(graph):
        rows, _, _ = _search_legs(noise, legs, options, blocked)
        steps = Steps(noise, one_way=True).choose_edges(rows)
        held = strength(rows, *steps, noise)[carries(rows, *steps, noise)]
        best.append(float(held.max(initial=0.0)))
    return np.array(best)


def _say_nearest(
    graph: Graph,
    rows: Rows,
    said: Understanding,
    options: PathOptions,
    embedder: Embedder,
    domain: str | None,
) -> None:
    """Add a note on the best path that is not a mechanism."""
    single = options.model_copy(update={"k": 1})
    best = _rank_paths(graph, rows, replace(said, notes=[]), single, embedder, domain)
    said.notes.append(f"Nearest: {best[0].account()}")


def _neighbors(graph: Graph, node: int) -> str:
    """Describe a node's best-connected neighbors in a sentence."""
    indptr, indices = graph.adjacency
    near = indices[indptr[node] : indptr[node + 1]]
    near = near[np.argsort(-graph.degree[near], kind="stable")][:3]
    return f"{graph.names[node]} is linked to {', '.join(graph.names[n] for n in near)}."


def _through_named(graph: Graph, rows: Rows, said: Understanding, options: PathOptions) -> Rows:
    """Keep the candidates that visit every class in the prompt ("genes"), if there are any.

    If the prompt names two entities and a class, the shortest paths through each member of the
    class are added as candidates, because a sample of all paths may miss them.
    """
    for _, group in said.classes:
        if len(said.nodes) >= 2:
            rows = np.concatenate([rows, _through_members(graph, said, group, options)])
    if said.classes:
        rows = np.unique(rows, axis=0)
    keep = np.ones(len(rows), dtype=bool)
    for phrase, group in said.classes:
        visited = np.isin(rows, group.members(graph)).any(axis=1)
        if not visited.any():
            said.notes.append(f'No path between these concepts visits any of the "{phrase}".')
            continue
        between = visited & _spans(rows, said.nodes)
        keep &= between if between.any() and len(said.nodes) >= 2 else visited
    return rows[keep] if keep.any() else rows


def _spans(rows: Rows, things: Sequence[int]) -> NDArray[np.bool_]:
    """Check whether both ends of each path are entities named in the prompt, (n,)."""
    last = rows[np.arange(len(rows)), (rows >= 0).sum(axis=1) - 1]
    both: NDArray[np.bool_] = np.isin(rows[:, 0], things) & np.isin(last, things)
    return both


#: Maximum number of class members to route paths through, and of paths to each from either end.
_MEMBERS, _WAYS = 300, 4


def _through_members(
    graph: Graph, said: Understanding, group: NodeClass, options: PathOptions
) -> Rows:
    """Find paths between the prompt's first two entities through each member of a class."""
    first, second = said.nodes[:2]
    indptr, indices = graph.adjacency
    blocked = _list_blocked(graph, options, said)
    width = options.max_hops + 1
    found: list[NDArray[np.int32]] = [np.empty((0, width), dtype=np.int32)]
    for member in group.members(graph)[:_MEMBERS].tolist():
        if member in (first, second):
            continue
        search = Searcher(
            indptr, indices, np.array([member], dtype=np.int32), options.max_hops - 1,
            blocked=blocked[~np.isin(blocked, [first, second, member])],
            hub_cap=options.hub_cap, budget=options.budget,
        )  # fmt: skip
        ways = [search.shortest(thing, _WAYS).rows for thing in (first, second)]
        for left in ways[0]:
            for right in ways[1]:
                whole = [*left[left >= 0].tolist(), *right[right >= 0][::-1].tolist()[1:]]
                if len(whole) <= width and len(set(whole)) == len(whole):
                    row = np.full((1, width), -1, dtype=np.int32)
                    row[0, : len(whole)] = whole
                    found.append(row)
    return np.concatenate(found)


def _result(said: Understanding, paths: tuple[ScoredPath, ...], candidates: int) -> PathSearch:
    return PathSearch(
        prompt=said.prompt,
        concepts=tuple(said.concepts),
        unmatched=tuple(said.unmatched),
        paths=paths,
        candidates=candidates,
        notes=tuple(said.notes),
    )


def _resolve_names(graph: Graph, names: Sequence[str], said: Understanding) -> list[int]:
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
            f'"{phrase}" does not match any node of '
            "the graph." + (f" Nearest: {near}." if near else "")
        )
    said.notes.append("Name an entity of the graph; `sage kg show NAME` looks up names.")
    return _result(said, (), 0)


def _legs(
    graph: Graph,
    said: Understanding,
    start: list[int] | None,
    end: list[int] | None,
    embedder: Embedder,
) -> list[_Leg]:
    """List the searches to run, between pairs of concepts or from concepts to classes."""
    if start is None and end is not None:
        start = [node for node in said.nodes if node not in end]
    given = start if start is not None else []
    ends = end if end is not None else [node for node in said.nodes if node not in given]
    if given and (end is not None or ends):
        return [_pair(source, target) for source in given for target in ends if source != target]
    begin = list(given or end or said.nodes)
    if said.domain_node is not None and not (begin and (len(begin) > 1 or said.classes)):
        begin.append(said.domain_node)
    legs = [_pair(source, target) for source, target in combinations(begin, 2)]
    classes = list(said.classes)
    if len(begin) == 1:
        wanted = {kind for _, group in classes for kind in group.types}
        if EntityType.CLINICAL_ENDPOINT not in wanted:
            classes.append(("", NodeClass((EntityType.CLINICAL_ENDPOINT,))))
    if not begin and len(classes) >= 2:
        begin = _closest(graph, said, classes[0][1].members(graph), embedder)
        classes = classes[1:]
    return legs + _to_classes(graph, said, begin, classes)


def _pair(source: int, target: int) -> _Leg:
    return _Leg(source=source, targets=np.array([target], dtype=np.int32), through=False)


def _to_classes(
    graph: Graph, said: Understanding, begin: list[int], classes: list[tuple[str, NodeClass]]
) -> list[_Leg]:
    """List searches from up to four nodes to the members of each class, and add notes on them."""
    setting = [] if said.domain_node is None else [said.domain_node]
    legs: list[_Leg] = []
    for phrase, group in classes:
        members = group.members(graph)
        ends = [(source, members[~np.isin(members, [*begin, *setting])]) for source in begin[:4]]
        through = not set(group.types) & _SINKS
        found = [
            _Leg(source=s, targets=targets, through=through, min_hops=1 if phrase else 2)
            for s, targets in ends
            if len(targets)
        ]
        legs += found
        names = " or ".join(kind.value for kind in group.types)
        if found and phrase and group.named:
            said.notes.append(f'"{phrase}" was interpreted as any node with such a name.')
        elif found and phrase:
            said.notes.append(f'"{phrase}" was interpreted as any node of type {names}.')
        elif found:
            said.notes.append(f"Paths to any node of type {names} were added.")
    return legs


def _closest(
    graph: Graph, said: Understanding, members: NDArray[np.int32], embedder: Embedder
) -> list[int]:
    """Find up to four class members closest in meaning to the prompt."""
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
    graph: Graph, legs: list[_Leg], options: PathOptions, said: Understanding
) -> tuple[Rows, int, bool]:
    """Find the distinct paths from all searches, their number, and whether the search completed."""
    return _search_legs(graph, legs, options, _list_blocked(graph, options, said))


def _search_legs(
    graph: GraphArrays, legs: list[_Leg], options: PathOptions, blocked: NDArray[np.int32]
) -> tuple[Rows, int, bool]:
    room = shares([options.max_candidates] * len(legs), options.max_candidates)
    parts: list[Rows] = []
    total, complete = 0, True
    for leg, most in zip(legs, room, strict=True):
        if not most:
            complete = False
            continue
        found = _search(graph, leg, options, blocked).spread(
            leg.source, most, min(leg.min_hops, options.max_hops), options.seed
        )
        rows = np.full((len(found.rows), options.max_hops + 1), -1, dtype=np.int32)
        rows[:, : found.rows.shape[1]] = found.rows
        parts.append(rows)
        total += found.total
        complete = complete and found.complete
    rows = np.concatenate(parts)
    unique = np.unique(rows, axis=0) if len(rows) else rows
    return unique, total - (len(rows) - len(unique)), complete


def _list_blocked(graph: Graph, options: PathOptions, said: Understanding) -> NDArray[np.int32]:
    """List the nodes that paths may not pass through."""
    blocked = list_blocked_nodes(graph, options.avoid)
    if options.avoid and said.domain_node is not None:
        # The domain's node links everything that was studied in it.
        blocked = np.append(blocked, np.int32(said.domain_node))
    return blocked


def _search(
    graph: GraphArrays, leg: _Leg, options: PathOptions, blocked: NDArray[np.int32]
) -> Searcher:
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
    """Return the (len(nodes), d) node vectors, embedding the names if the graph has none."""
    if graph.vectors is not None:
        return np.asarray(graph.vectors[nodes])
    return embedder.embed([graph.names[n] for n in nodes.tolist()])


def _rank_paths(
    graph: Graph,
    rows: Rows,
    said: Understanding,
    options: PathOptions,
    embedder: Embedder,
    domain: str | None,
    noise: NDArray[np.float64] | None = None,
) -> tuple[ScoredPath, ...]:
    context = domain or said.domain
    if context is None:
        context = said.prompt
        said.notes.append("No disease context was given: Relevance is measured against the prompt.")
    query, center = embedder.embed([said.prompt, context])
    on_paths = np.unique(rows[rows >= 0])
    distances = np.zeros(graph.n_nodes)
    distances[on_paths] = np.linalg.norm(
        _vectors(graph, on_paths, embedder).astype(np.float64) - center, axis=1
    )
    raw = score_candidates(rows, distances, graph.degree, graph.types, len(TYPES))
    steps = Steps(graph, one_way=True)

    def logic_of(some: Sequence[int]) -> scores.Floats:
        return scores.logic(query, embedder.embed(write_sentences(graph, steps, rows[list(some)])))

    held = strength(rows, *steps.choose_edges(rows), graph)
    tie = _tie(rows, options.seed)
    if options.rank == "paper":
        choice = choose(rows, raw, options.weights, options.k, options.diversity, logic_of, tie)
        said.notes.append(COMPOSITE_WARNING)
    else:
        choice = choose_strongest(rows, held, options.k, options.diversity, logic_of, tie)
    paths = [
        build_path(
            graph, steps, rows[n], raw, n, choice.logic[n], options.weights, float(held[n]), noise
        )
        for n in choice.rows
    ]
    if options.rank == "mechanism":
        return tuple(paths)
    order = sorted(range(len(paths)), key=lambda p: (-paths[p].scores.total, p))
    return tuple(paths[p] for p in order)


def _tie(rows: Rows, seed: int) -> NDArray[np.int64]:
    """Return a tie-breaking order: the row order for seed 0, else a seeded shuffle."""
    n = len(rows)
    if seed == 0:
        return np.arange(n, dtype=np.int64)
    return generator(seed).permutation(n).astype(np.int64)
