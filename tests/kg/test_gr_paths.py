"""Path search against networkx, choice, prompts, degenerate cases."""

from __future__ import annotations

from collections.abc import Sequence

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kg.graph.arrays import undirected
from kg.graph.model import Graph
from kg.paths import scores
from kg.paths.concepts import parse_prompt
from kg.paths.find import PathOptions, find_between, find_paths
from kg.paths.score import Raw, choose
from kg.paths.search import Searcher, shares
from kg.types import EntityType
from tests.kg.gr_helpers import EMBEDDER, C, D, E, G, P, T, bladder, graph, triple

ANY = PathOptions(rank="paper")


def csr(edges: Sequence[tuple[int, int]], n: int) -> tuple[np.ndarray, np.ndarray]:
    pairs = np.array(list(edges), dtype=np.int32).reshape(-1, 2)
    return undirected(n, pairs[:, 0], pairs[:, 1], np.zeros(len(pairs), dtype=bool))


def searcher(
    edges: Sequence[tuple[int, int]], n: int, targets: Sequence[int], hops: int, **more: object
) -> Searcher:
    return Searcher(*csr(edges, n), np.array(targets, dtype=np.int32), hops, **more)  # type: ignore[arg-type]


def rows_of(found: np.ndarray) -> set[tuple[int, ...]]:
    return {tuple(int(x) for x in row if x >= 0) for row in found}


random_graphs = st.integers(4, 14).flatmap(
    lambda n: st.tuples(
        st.just(n),
        st.lists(
            st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda e: e[0] != e[1]),
            min_size=3,
            max_size=30,
        ),
    )
)


@settings(max_examples=80, deadline=None)
@given(random_graphs, st.integers(1, 5))
def test_all_simple_paths_are_found_once(
    made: tuple[int, list[tuple[int, int]]], hops: int
) -> None:
    n, edges = made
    g = nx.Graph(edges)
    g.add_nodes_from(range(n))
    expected = {tuple(p) for p in nx.all_simple_paths(g, 0, 1, cutoff=hops)}
    search = searcher(edges, n, [1], hops)
    found = search.spread(0, 100_000, 1, seed=0)
    assert rows_of(found.rows) == expected
    assert found.total == len(found.rows) == len(expected)
    assert sum(search.count(0, h)[0] for h in range(1, hops + 1)) == len(expected)


@settings(max_examples=60, deadline=None)
@given(random_graphs, st.sets(st.integers(1, 3), min_size=2), st.integers(1, 4))
def test_paths_to_a_class_end_in_it_and_may_pass_through_it(
    made: tuple[int, list[tuple[int, int]]], targets: set[int], hops: int
) -> None:
    n, edges = made
    g = nx.Graph(edges)
    g.add_nodes_from(range(n))
    expected = {tuple(p) for t in targets for p in nx.all_simple_paths(g, 0, t, cutoff=hops)}
    found = searcher(edges, n, sorted(targets), hops, through=True).spread(0, 100_000, 1, seed=0)
    assert rows_of(found.rows) == expected
    plain = searcher(edges, n, sorted(targets), hops).spread(0, 100_000, 1, seed=0)
    assert rows_of(plain.rows) == {p for p in expected if not set(p[:-1]) & targets}


def test_a_sample_is_spread_over_lengths_and_follows_the_seed() -> None:
    edges = [(a, b) for a in range(12) for b in range(a)]
    search = searcher(edges, 12, [11], 4)
    one, again, other = (search.spread(0, 60, 2, seed=s).rows for s in (1, 1, 2))
    assert np.array_equal(one, again)
    assert rows_of(one) != rows_of(other)
    lengths = (one >= 0).sum(axis=1) - 1
    assert {h: int((lengths == h).sum()) for h in (2, 3, 4)} == {2: 10, 3: 25, 4: 25}


def test_hubs_are_capped_to_their_least_connected_neighbors() -> None:
    # 0 - hub(1) - twenty leaves - 2, each leaf with one more neighbor than the one before it;
    # the way back to 0 is one of the five.
    edges = [(0, 1)] + [(1, leaf) for leaf in range(3, 23)] + [(leaf, 2) for leaf in range(3, 23)]
    edges += [(leaf, 23 + k) for leaf in range(3, 23) for k in range(leaf - 3)]
    found = searcher(edges, 50, [2], 3, hub_cap=5).spread(0, 100, 1, seed=0)
    assert {row[2] for row in rows_of(found.rows)} == {3, 4, 5, 6}


def test_a_search_over_its_budget_says_so() -> None:
    edges = [(a, b) for a in range(20) for b in range(a)]
    assert not searcher(edges, 20, [19], 5, budget=100).spread(0, 10, 1, seed=0).complete
    assert searcher(edges, 20, [19], 2).spread(0, 10, 1, seed=0).complete


def test_room_is_shared_equally_and_passed_on() -> None:
    assert shares([2, 100, 100], 30) == [2, 14, 14]
    assert shares([0, 5], 30) == [0, 5]
    assert sum(shares([7, 9, 11], 10)) == 10


@settings(max_examples=120, deadline=None)
@given(
    st.integers(1, 60),
    st.integers(1, 12),
    st.sampled_from([0.0, 0.1, 0.5]),
    st.integers(0, 10_000),
    st.sampled_from([(0.2, 0.2, 0.3, 0.3), (0.9, 0.1, 0.0, 0.0), (0.0, 0.5, 0.2, 0.3)]),
    st.booleans(),
)
def test_the_best_totals_are_chosen(
    n: int,
    k: int,
    diversity: float,
    seed: int,
    weights: tuple[float, float, float, float],
    coarse: bool,
) -> None:
    rng = np.random.default_rng(seed)
    rows = np.full((n, 6), -1, dtype=np.int32)
    for row in rows:
        size = int(rng.integers(2, 7))
        row[:size] = rng.choice(12, size, replace=False)
    parts = rng.random((3, n))
    cosine = rng.uniform(-0.2, 1, n)
    if coarse:  # many exact ties
        parts, cosine = np.round(parts, 1), np.round(cosine, 1)
    raw = Raw(*parts, *parts)
    tie = rng.permutation(n)
    chosen = choose(rows, raw, weights, k, diversity, lambda some: cosine[list(some)], tie)
    assert len(chosen.rows) == len(set(chosen.rows)) == min(k, n)
    if diversity == 0.0:
        total = scores.total(weights, scores.clamp_logic(cosine), *parts)
        assert sorted(total[chosen.rows]) == pytest.approx(
            sorted(total)[::-1][: len(chosen.rows)][::-1]
        )


def test_the_best_of_many_candidates_are_chosen() -> None:
    n = 5000
    rows = np.stack([np.arange(n), np.arange(n) + 1], axis=1).astype(np.int32)
    spread = np.linspace(0, 1, n)
    got = choose(
        rows, Raw(*[spread] * 6), (0.2, 0.2, 0.3, 0.3), 8, 0.0,
        lambda some: np.full(len(some), 0.5), np.arange(n),
    )  # fmt: skip
    assert got.rows == list(range(n - 1, n - 9, -1))


def star() -> Graph:
    """Everything is one step from the middle."""
    return graph([triple(f"leaf{c}", "middle", types=(G, D)) for c in "abcdefgh"])


def test_scores_of_a_path_are_those_of_the_formulas() -> None:
    g = graph(bladder())
    found = find_between(g, "FABP5", "overall survival", PathOptions(rank="paper"), EMBEDDER)
    path = found.paths[0]
    names = [n.name for n in path.nodes]
    degree = {n: g.node(n).degree for n in g.names}
    total = sum(degree.values()) + scores.EPSILON
    content = [-np.log((degree[n] + scores.EPSILON) / total) for n in names]
    assert path.scores.novelty_raw == pytest.approx(np.mean(content))
    query, sentence = EMBEDDER.embed(["FABP5 and overall survival", path.sentence()])
    assert path.scores.logic_raw == pytest.approx(float(query @ sentence), abs=1e-6)
    distance = np.linalg.norm(EMBEDDER.embed(names) - query, axis=1)
    assert path.scores.relevance_raw == pytest.approx(1 - distance.mean(), abs=1e-6)
    s = path.scores
    assert s.total == pytest.approx(
        0.2 * s.logic + 0.2 * s.relevance + 0.3 * s.novelty + 0.3 * s.surprise
    )
    assert [p.scores.total for p in found.paths] == sorted(
        (p.scores.total for p in found.paths), reverse=True
    )


def test_steps_against_an_edge_are_marked() -> None:
    found = find_between(star(), "leafa", "leafb", ANY, EMBEDDER)
    assert [e.forward for e in found.paths[0].edges] == [True, False]
    assert found.paths[0].sentence() == (
        "leafa associated with middle (inverse of associated with) leafb"
    )


def test_a_prompt_with_one_thing_and_a_class_leads_to_the_class_and_to_endpoints() -> None:
    found = find_paths(graph(bladder()), "TLS and genes in bladder cancer", ANY, EMBEDDER)
    assert [(c.phrase, c.name) for c in found.concepts] == [
        ("TLS", "tertiary lymphoid structures"),
        ("bladder cancer", "bladder cancer"),
    ]
    assert {p.nodes[0].name for p in found.paths} == {"tertiary lymphoid structures"}
    assert {p.nodes[-1].type for p in found.paths} == {G, E}
    assert any("any node of type Gene" in note for note in found.notes)


def test_a_misspelled_thing_is_matched_and_shown_as_such() -> None:
    found = find_paths(graph(bladder()), "lipid metabolsm and CXCL13", ANY, EMBEDDER)
    how = {c.phrase: (c.name, c.how) for c in found.concepts}
    assert how["lipid metabolsm"] == ("lipid metabolism", "similar spelling")


def test_common_words_do_not_name_genes() -> None:
    g = graph(
        [*bladder(), triple("WAS", "CXCL13", types=(G, G)), triple("MAX", "CXCL13", types=(G, G))]
    )
    found = find_paths(g, "it was the max of FABP5", ANY, EMBEDDER)
    assert [c.name for c in found.concepts] == ["FABP5"]
    named = find_paths(g, "WAS and FABP5", ANY, EMBEDDER)
    assert [c.name for c in named.concepts] == ["WAS", "FABP5"]


def test_a_symbol_is_not_taken_for_one_that_looks_like_it() -> None:
    g = graph([triple("VEGFC", "hsa-miR-21", types=(G, G)), triple("VEGFC", "necrosis")])
    found = find_paths(g, "VEGFB and hsa-miR-22 in necrosys", ANY, EMBEDDER)
    assert [c.name for c in found.concepts] == ["necrosis"]
    assert found.unmatched == ("VEGFB", "hsa-miR-22")


def test_an_unknown_target_is_reported_with_its_nearest() -> None:
    found = find_paths(graph(bladder()), "x", ANY, EMBEDDER, sources=["FABP5"], targets=["B-sells"])
    assert found.paths == ()
    assert found.unmatched == ("B-sells",)
    assert any('"B cells"' in note for note in found.notes)


def test_diversity_brings_in_another_route() -> None:
    shared = [
        triple("start", "hub", types=(G, P)),
        triple("route", "goal", types=(C, E)),
        triple("start", "route", types=(G, C)),
    ]
    shared += [
        t
        for c in "abcd"
        for t in (triple("hub", f"mid{c}", types=(P, T)), triple(f"mid{c}", "goal", types=(T, E)))
    ]
    shared += [triple("route", f"busy {c}", types=(C, T)) for c in "abcdefghijkl"]
    g = graph(shared)

    def second(diversity: float) -> bool:
        options = PathOptions(
            rank="paper", k=2, diversity=diversity, logic=0, relevance=0, novelty=1, surprise=0
        )
        paths = find_between(g, "start", "goal", options, EMBEDDER).paths
        return any(n.name == "route" for p in paths for n in p.nodes)

    assert not second(0.0)
    assert second(5.0)


@pytest.mark.parametrize(
    ("prompt", "domain"),
    [
        ("FABP5 and bladder cancer", None),
        ("FABP5, CXCL13 and bladder cancer", "bladder cancer"),
        ("FABP5, CXCL13, TLS and bladder cancer", "bladder cancer"),
        ("bladder cancer and genes", None),
        ("FABP5, bladder cancer and genes", "bladder cancer"),
        ("FABP5, CXCL13 and TLS", None),
    ],
)
def test_the_only_disease_among_three_things_or_beside_a_class_is_the_domain(
    prompt: str, domain: str | None
) -> None:
    found = parse_prompt(graph(bladder()), prompt, None)
    assert found.domain == domain
    assert (found.domain_node is None) is (domain is None)
    diseases = [match.name for match in found.concepts if match.type == EntityType.DISEASE]
    assert diseases == (["bladder cancer"] if "bladder" in prompt else [])
