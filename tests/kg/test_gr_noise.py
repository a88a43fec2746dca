"""Rewired graphs: what they keep, and what a path that is no stronger than in them is called."""

from __future__ import annotations

import numpy as np

from kg.paths.find import PathOptions, find_between, find_paths
from kg.paths.noise import REWIRINGS, rewirings
from kg.types import EntityType, Polarity
from tests.kg.gr_helpers import EMBEDDER, G, graph, triple


def act(head: str, tail: str, relation: str = "activates"):  # type: ignore[no-untyped-def]
    return triple(head, tail, relation=relation, polarity=Polarity.POSITIVE, types=(G, G))


def tangle(n: int = 24, seed: int = 0):  # type: ignore[no-untyped-def]
    """Genes that act on one another at random: any chain between two is chance."""
    random = np.random.default_rng(seed)
    pairs = {tuple(sorted(random.choice(n, 2, replace=False).tolist())) for _ in range(4 * n)}
    return [act(f"GEN{a}", f"GEN{b}") for a, b in sorted(pairs)]


def test_rewiring_keeps_degrees_and_edges_and_moves_the_links() -> None:
    g = graph(tangle())
    again = [noise.tail.copy() for noise in rewirings(graph(tangle()))]
    kept = list(rewirings(g))
    assert len(kept) == REWIRINGS
    for noise, same in zip(kept, again, strict=True):
        assert (noise.degree == g.degree).all()
        assert (noise.tail == same).all()
        assert (noise.head != noise.tail).all()
        assert ((noise.head == g.head) & (noise.tail == g.tail)).mean() < 0.3
        assert noise.belief is g.belief


def test_a_denial_is_not_rewired() -> None:
    g = graph([*tangle(), triple("GEN1", "GEN2", relation="binds", types=(G, G), negated=True)])
    for noise in rewirings(g):
        assert (noise.head[g.negated] == g.head[g.negated]).all()
        assert (noise.tail[g.negated] == g.tail[g.negated]).all()


def test_chains_in_a_tangle_lack_support_and_one_through_a_quiet_node_has() -> None:
    quiet = [act("START", "ONLY1"), act("ONLY1", "GOAL")]
    found = find_between(graph([*tangle(), *quiet]), "START", "GOAL", PathOptions(), EMBEDDER)
    assert found.paths[0].supported
    assert found.paths[0].mechanism is not None
    assert found.paths[0].mechanism.noise == 0.0
    lost = find_paths(graph(tangle()), "GEN0 and GEN17", PathOptions(), EMBEDDER).paths
    chains = [path for path in lost if len(path.edges) > 1]
    assert chains
    called = ["no support in the graph" in path.account() for path in chains]
    assert called == [not path.supported for path in chains]
    shares = [path.mechanism.noise for path in chains if path.mechanism]
    assert called == [share >= 0.5 for share in shares]
    assert any(called)


def test_a_hub_carries_no_chain_alone() -> None:
    leaves = [act("HUB1", f"LEAF{n}") for n in range(40)]
    told = [act("AAA1", "HUB1"), act("HUB1", "CCC1"), *leaves]
    assert not find_between(graph(told), "AAA1", "CCC1", PathOptions(), EMBEDDER).paths
    beside = [*told, act("HUB1", "MID1"), act("MID1", "CCC1")]
    found = find_between(graph(beside), "AAA1", "CCC1", PathOptions(), EMBEDDER).paths
    assert [len(path.nodes) for path in found] == [4]


def test_direct_links_count_for_what_is_asked_and_not_for_what_is_added() -> None:
    kinds = (G, EntityType.CLINICAL_ENDPOINT)
    told = [triple("AAA1", "overall survival", types=kinds), act("AAA1", "BBB1")]
    told += [triple("BBB1", "overall survival", types=kinds)]
    asked = find_paths(graph(told), "AAA1 and survival", PathOptions(), EMBEDDER).paths
    added = find_paths(graph(told), "AAA1", PathOptions(), EMBEDDER).paths
    assert {len(path.edges) for path in asked} == {1, 2}
    assert {len(path.edges) for path in added} == {2}
