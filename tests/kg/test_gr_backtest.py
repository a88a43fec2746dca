"""The backtest as a benchmark: measures, classics, refusals, the printed table."""

from __future__ import annotations

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks.adapters.backtest import (
    LEARNED,
    PAPER,
    BacktestOptions,
    BacktestResult,
    auc,
    average_precision_and_hits,
    backtest,
    markdown,
)
from benchmarks.foresight.features import BASELINES
from benchmarks.foresight.pairs import Against
from kg.graph.model import Graph
from kg.types import EntityType
from sage.core.errors import InputError
from sage_exchange.facts import Entity, Fact
from tests.kg.gr_helpers import EMBEDDER, triple
from tests.kg.gr_helpers import graph as graph_from
from tests.kg.test_gr_foresight import graph_of, made

RUN = CliRunner()
OPTIONS = BacktestOptions(cuts=(2008, 2010), paper_pairs=12, paths_per_pair=2)


def classic_facts() -> list[Fact]:
    """Chlorpromazine and cardiac hypertrophy share a bridge by 2000 and are linked in 2004."""
    drug = Entity("mesh:1", "chlorpromazine", EntityType.CHEMICAL)
    heart = Entity("mesh:2", "cardiac hypertrophy", EntityType.DISEASE)
    bridge = Entity("symbol:CALM1", "CALM1", EntityType.GENE)
    return [
        Fact(drug, "inhibits", bridge, year=1999, pmid="900001", source="test"),
        Fact(bridge, "promotes", heart, year=2000, pmid="900002", source="test"),
        Fact(drug, "treats", heart, year=2004, pmid="900003", source="test"),
    ]


@pytest.fixture(scope="module")
def graph() -> Graph:
    return graph_of(made(0) + classic_facts())


@pytest.fixture(scope="module")
def found(graph: Graph) -> BacktestResult:
    return backtest(graph, OPTIONS, EMBEDDER)


def test_years_that_the_graph_does_not_reach_are_told(graph: Graph, found: BacktestResult) -> None:
    assert not any("the graph ends" in note for note in found.notes)
    last = graph.stats().last_year
    assert last is not None
    late = BacktestOptions(cuts=(last - 5,), horizon=6, paper_pairs=0)
    told = markdown(backtest(graph, late, EMBEDDER))
    assert f"{last - 5}: the graph ends in {last}, so the links of 5 years" in told


def test_every_score_stands_at_every_cut_against_every_kind_of_pair(found: BacktestResult) -> None:
    seen = {(row.cut, row.against, row.score) for row in found.rows}
    assert seen == {
        (cut, against, score)
        for cut in (2008, 2010, None)
        for against in Against
        for score in (LEARNED, *BASELINES, *PAPER)
    }
    for row in found.rows:
        for measure in (row.auc, row.average_precision, row.hits):
            assert 0.0 <= measure.low <= measure.high <= 1.0
        assert row.auc.low <= row.auc.value <= row.auc.high


def test_the_learned_score_finds_what_was_planted_and_degree_does_not(
    found: BacktestResult,
) -> None:
    assert found.mean(LEARNED, Against.DEGREE).auc.low > 0.7
    assert abs(found.mean("degree product", Against.DEGREE).auc.value - 0.5) < 0.1


def test_ratios_say_more_than_the_number_of_links_and_as_many_as_came(
    found: BacktestResult,
) -> None:
    for row in found.calibration:
        assert row.log_skill.low > 0
    assert sum(held.share for held in found.ratios) == pytest.approx(1)
    assert sum(held.seen.value for held in found.ratios) <= sum(r.seen for r in found.calibration)
    for held in found.ratios:
        if held.expected >= 20:
            assert 0.5 < held.seen.value / held.expected < 2


def test_the_same_backtest_gives_the_same_figures(graph: Graph, found: BacktestResult) -> None:
    assert backtest(graph, OPTIONS, EMBEDDER) == found


def test_a_classic_is_replayed_where_its_edges_exist_and_else_said_missing(
    found: BacktestResult,
) -> None:
    by_name = {classic.name.split(" (")[0]: classic for classic in found.classics}
    wren = by_name["chlorpromazine, cardiac hypertrophy"]
    assert wren.percentile is not None
    assert (wren.linked_later, wren.bridges, wren.missing) == (2004, ("CALM1",), "")
    fish = by_name["fish oil, Raynaud's disease"]
    assert fish.percentile is None
    assert fish.missing == "fish oils: not in the graph"


def test_the_area_agrees_with_scikit_learn() -> None:
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(4)
    score, label = np.round(rng.random(200), 1), rng.random(200) < 0.3
    assert auc(score, label) == pytest.approx(roc_auc_score(label, score))


@pytest.mark.parametrize("digits", [1, 12])
def test_average_precision_agrees_with_scikit_learn(digits: int) -> None:
    from sklearn.metrics import average_precision_score

    rng = np.random.default_rng(5)
    score, label = np.round(rng.random(200), digits), rng.random(200) < 0.3
    average, _ = average_precision_and_hits(score, label)
    assert average == pytest.approx(average_precision_score(label, score))


def test_equal_scores_hit_as_often_as_chance() -> None:
    label = np.arange(400) < 100
    assert average_precision_and_hits(np.zeros(400), label) == pytest.approx((0.25, 0.25))


@pytest.mark.parametrize(
    ("cut", "horizon", "message"),
    [(1900, 5, "no edge"), (2019, 1, "newly linked"), (1991, 5, "too few to learn")],
)
def test_a_backtest_that_cannot_be_done_says_why(
    graph: Graph, cut: int, horizon: int, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        backtest(graph, BacktestOptions(cuts=(cut,), horizon=horizon), EMBEDDER)


def test_a_cut_that_cannot_be_done_is_refused_before_another_is_learned(graph: Graph) -> None:
    told: list[str] = []
    with pytest.raises(InputError, match="newly linked"):
        backtest(graph, BacktestOptions(cuts=(2008, 2050)), EMBEDDER, progress=told.append)
    assert told == []


def test_the_table_has_a_row_per_score_and_per_cut(found: BacktestResult) -> None:
    text = markdown(found)
    for name in (LEARNED, *BASELINES, *PAPER):
        assert text.count(f"| {name} |") == 1
    assert text.count("\n| 2008 |") == text.count("\n| 2010 |") == 1


def test_a_graph_without_years_is_told_to_have_no_past() -> None:
    undated = graph_from([triple("A1", "B1", year=None)])
    with pytest.raises(InputError, match="no statement of the graph has a year"):
        backtest(undated, BacktestOptions(cuts=(2010,)), EMBEDDER)
