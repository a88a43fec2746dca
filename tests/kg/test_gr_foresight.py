"""What is learned from time: no year after the cut enters, and a planted rule is found."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.adapters.backtest import auc
from benchmarks.foresight.features import BASELINES, FEATURES, PastGraph
from benchmarks.foresight.model import Foresight
from benchmarks.foresight.pairs import Against, negatives, to_codes, window
from kg.graph.model import Graph
from kg.types import EntityType
from sage.core.errors import InputError
from sage_exchange.facts import Entity, Fact, fuse_facts

CUT = 2010
NODES = 60


def thing(number: int) -> Entity:
    kind = EntityType.GENE if number % 2 else EntityType.CHEMICAL
    return Entity(f"x:{number}", f"thing{number}", kind)


def made(seed: int, last: int = 2020) -> list[Fact]:
    """A graph that grows by closing squares: who shares friends of friends is linked next."""
    rng = np.random.default_rng(seed)
    # Even nodes link to odd ones of their own neighborhood of twenty.
    facts = []
    for year in range(1990, last + 1):
        for _ in range(12):
            group = int(rng.integers(0, 3))
            a = group * 20 + 2 * int(rng.integers(0, 10))
            b = group * 20 + 2 * int(rng.integers(0, 10)) + 1
            facts.append(
                Fact(thing(a), "affects", thing(b), year=year, pmid=str(len(facts) + 1),
                     text=f"On topic{group}: thing{a} affects thing{b}.", source="test")
            )  # fmt: skip
    return facts


def graph_of(facts: list[Fact]) -> Graph:
    return Graph.from_fused(fuse_facts(facts))


@pytest.fixture(scope="module")
def grown() -> list[Fact]:
    return made(0)


@pytest.fixture(scope="module")
def fitted(grown: list[Fact]) -> Foresight:
    return Foresight.fit(graph_of(grown), CUT)


@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 2**16), keep=st.floats(0.0, 1.0))
def test_edges_after_the_cut_change_no_score(
    grown: list[Fact], fitted: Foresight, seed: int, keep: float
) -> None:
    """Removed, rewired or redated beyond the cut: the same pairs have the same scores."""
    rng = np.random.default_rng(seed)
    past = [fact for fact in grown if (fact.year or 0) <= CUT]
    later = [fact for fact in grown if (fact.year or 0) > CUT and rng.random() < keep]
    order = rng.permutation(len(later))
    moved = [
        Fact(fact.head, "inhibits", later[other].tail, year=int(rng.integers(CUT + 1, 2040)),
             pmid=str(900_000 + n), text="Quite another text.", source="test")
        for n, (fact, other) in enumerate(zip(later, order.tolist(), strict=True))
    ]  # fmt: skip
    again = Foresight.fit(graph_of(past + moved), CUT)
    ids = fitted.past.graph.ids
    assert sorted(again.past.graph.ids) == sorted(ids)
    pairs = rng.integers(0, len(ids), (40, 2))
    there = again.past.graph.position
    same = np.array([[there[ids[a]], there[ids[b]]] for a, b in pairs.tolist()])
    np.testing.assert_allclose(again.score(same), fitted.score(pairs), rtol=1e-6, atol=1e-6)


def test_a_planted_rule_is_found_where_degree_cannot_see_it(
    grown: list[Fact], fitted: Foresight
) -> None:
    seen = window(graph_of(grown), CUT, 5)
    linked = fitted.score(seen.new)
    for against, least in ((Against.RANDOM, 0.8), (Against.DEGREE, 0.7)):
        other = fitted.score(negatives(seen, against, 5, 0))
        score = np.concatenate([linked, other])
        assert auc(score, np.arange(len(score)) < len(linked)) > least


def test_ratios_are_calibrated_on_years_that_were_not_seen(
    grown: list[Fact], fitted: Foresight
) -> None:
    """Over all unlinked pairs their mean is about 1; the tenth told most holds about its share."""
    seen = window(graph_of(grown), CUT, 5)
    n = fitted.past.n
    every = np.array([(a, b) for a in range(n) for b in range(a + 1, n)])
    before = np.isin(to_codes(every, n), to_codes(window(graph_of(grown), CUT, 0).new, n))
    linked = fitted.past.links.toarray()[every[:, 0], every[:, 1]] > 0
    others, new = (fitted.outlook(pairs).ratio for pairs in (every[~linked & ~before], seen.new))
    assert others.mean() == pytest.approx(1, rel=0.3)
    floor = np.quantile(others, 0.9)
    told, came = others[others >= floor].sum() / others.sum(), (new >= floor).mean()
    assert 0.67 < came / told < 1.5
    assert came > 2 * (others >= floor).mean()


@pytest.mark.parametrize("against", list(Against))
def test_negatives_are_unlinked_and_match_what_they_say(
    grown: list[Fact], against: Against
) -> None:
    seen = window(graph_of(grown), CUT, 5)
    past = seen.past
    found = negatives(seen, against, 3, 0)
    assert len(found) > len(seen.new)
    assert not np.isin(to_codes(found, past.n_nodes), seen.known).any()
    assert len(np.unique(to_codes(found, past.n_nodes))) == len(found)
    if against is Against.DEGREE:
        mean = [past.degree[pairs].mean() for pairs in (seen.new, found)]
        assert mean[1] == pytest.approx(mean[0], rel=0.1)


def test_features_do_not_depend_on_the_order_of_the_ends(fitted: Foresight) -> None:
    pairs = np.random.default_rng(1).integers(0, fitted.past.n, (50, 2))
    straight, turned = fitted.past.features(pairs), fitted.past.features(pairs[:, ::-1])
    np.testing.assert_allclose(straight, turned, atol=1e-9)


def test_the_baselines_are_those_of_the_textbook() -> None:
    """Against networkx on a small graph: common neighbors, RA, AA; L3 by its definition."""
    import networkx as nx

    facts = list(made(3, 1996))
    graph = graph_of(facts)
    past = PastGraph(graph, 2000)
    plain = nx.Graph((int(a), int(b)) for a, b in zip(graph.head, graph.tail, strict=True))
    pairs = np.array([(a, b) for a in range(0, 20, 3) for b in range(1, 20, 4) if a != b])
    got = dict(zip(FEATURES, past.features(pairs).T, strict=True))
    assert tuple(FEATURES[: len(BASELINES)]) == BASELINES
    ends = [tuple(pair) for pair in pairs.tolist()]
    shared = [len(list(nx.common_neighbors(plain, a, b))) for a, b in ends]
    np.testing.assert_allclose(np.expm1(got["common neighbors"]), shared, atol=1e-9)
    ra = [value for _, _, value in nx.resource_allocation_index(plain, ends)]
    np.testing.assert_allclose(got["resource allocation"], ra, atol=1e-9)
    aa = [value for _, _, value in nx.adamic_adar_index(plain, ends)]
    np.testing.assert_allclose(got["Adamic-Adar"], aa, atol=1e-9)
    l3 = [
        sum(
            1 / np.sqrt(plain.degree[x] * plain.degree[y])
            for x in plain[a] for y in plain[b] if plain.has_edge(x, y)
        )
        for a, b in ends
    ]  # fmt: skip
    np.testing.assert_allclose(np.exp(got["L3"]) - 1e-3, l3, atol=1e-9)


def test_too_few_years_are_refused() -> None:
    few = graph_of(made(0)[:10])
    with pytest.raises(InputError, match="too few to learn"):
        Foresight.fit(few, 2000)


def test_a_small_graph_of_low_rank_is_measured() -> None:
    star = [
        Fact(thing(0), "affects", thing(spoke), year=2000 + spoke % 9, pmid=str(spoke),
             text=f"thing0 affects thing{spoke}.", source="test")
        for spoke in range(1, 40)
    ]  # fmt: skip
    past = PastGraph(graph_of(star), CUT)
    again = past.left @ past.right.T
    assert np.allclose(again, past.links.toarray(), atol=1e-8)
