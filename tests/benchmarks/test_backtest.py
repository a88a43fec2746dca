"""Backtest: no year after the cut enters, and a planted rule is found."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.adapters.backtest import (
    AGAINST,
    BASELINES,
    PAPER,
    backtest,
    draw_unlinked,
    open_window,
    score_classically,
)
from kg.embedding.embed import HashingEmbedder
from kg.graph.model import Graph
from kg.types import EntityType
from sage.core.errors import InputError
from sage_exchange.facts import Entity, Fact, fuse_facts

CUT = 2010


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
def grown() -> Graph:
    return graph_of(made(0))


def test_links_of_the_window_are_new_and_unlinked_pairs_are_not(grown: Graph) -> None:
    window = open_window(grown, CUT, 3)
    n = window.past.n_nodes
    before = {
        (min(h, t), max(h, t))
        for h, t in zip(window.past.head.tolist(), window.past.tail.tolist(), strict=True)
    }
    assert not before & {tuple(sorted(pair)) for pair in window.new.tolist()}
    for against in AGAINST:
        pairs = draw_unlinked(window, against, 0)
        codes = pairs.min(axis=1) * n + pairs.max(axis=1)
        assert len(np.unique(codes)) == len(codes)
        assert not np.isin(codes, window.known).any()


def test_a_cut_with_too_little_around_it_is_rejected(grown: Graph) -> None:
    with pytest.raises(InputError, match="1980"):
        open_window(grown, 1980, 3)
    with pytest.raises(InputError, match="pairs known in 2020"):
        open_window(grown, 2020, 3)


def test_classical_scores_are_those_of_the_textbook() -> None:
    facts = [
        Fact(thing(a), "affects", thing(b), year=2000, pmid=str(a * 9 + b), text="x", source="t")
        for a, b in ((0, 1), (2, 1), (0, 3), (2, 3), (0, 5))
    ]
    graph = graph_of(facts)
    ends = np.array([[graph.exact("thing0"), graph.exact("thing2")]])
    found = {name: float(values[0]) for name, values in score_classically(graph, ends).items()}
    assert found == pytest.approx({
        "degree product": 6.0, "common neighbors": 2.0, "Adamic-Adar": 2 / np.log(2),
        "resource allocation": 1.0,
    })  # fmt: skip


def test_a_backtest_finds_the_planted_neighborhoods(grown: Graph) -> None:
    found = backtest(grown, CUT, 3, HashingEmbedder(), pairs=10)
    assert set(found) == {(name, kind) for name in (*BASELINES, *PAPER) for kind in AGAINST}
    assert all(low <= value <= high for value, low, high in found.values())
    value, low, _ = found["degree product", "random"]
    assert 0 < low <= value
