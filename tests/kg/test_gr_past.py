"""The graph of a past year holds that year and nothing later; paths are weighed as published."""

from __future__ import annotations

from pathlib import Path

import pytest

from kg.graph.model import Graph
from kg.paths.find import PathOptions
from sage.settings import Settings, Weights
from tests.kg.gr_helpers import graph, triple
from tests.kg.test_gr_graph import edge_of


def chain(*years: int | None) -> Graph:
    return graph([triple(f"a{at}", f"b{at}", year=year) for at, year in enumerate(years)])


@pytest.mark.parametrize(("year", "known"), [(2018, 0), (2019, 1), (2020, 2), (2021, 2)])
def test_a_year_knows_what_was_published_in_it_and_nothing_later(year: int, known: int) -> None:
    past = chain(2019, 2020, None).as_of(year)
    assert past.n_edges == known
    assert past.meta["as_of"] == year


def test_a_later_reading_of_a_known_edge_is_not_read() -> None:
    whole = graph([triple("a1", "b1", doc=str(year), year=year) for year in (2018, 2019, 2020)])
    assert edge_of(whole.as_of(2019), "a1", "associated_with", "b1").documents == 2


@pytest.mark.parametrize(("year", "known"), [(2018, 0), (2019, 1), (2020, 2)])
def test_a_foreign_graph_is_cut_by_the_first_year_of_its_edges(
    year: int, known: int, tmp_path: Path
) -> None:
    rows = "".join(
        f'<edge source="{head}" target="{tail}"><data key="r">associates</data>'
        f'<data key="y">{when}</data></edge>'
        for head, tail, when in (("a", "b", 2019), ("b", "c", 2020))
    )
    text = (
        '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">'
        '<key id="r" for="edge" attr.name="relation" attr.type="string"/>'
        '<key id="y" for="edge" attr.name="first_year" attr.type="int"/>'
        '<graph edgedefault="directed"><node id="a"/><node id="b"/><node id="c"/>'
        f"{rows}</graph></graphml>"
    )
    path = tmp_path / "foreign.graphml"
    path.write_text(text)
    assert Graph.load(path).as_of(year).n_edges == known


def test_the_weights_of_a_path_are_those_of_the_paper() -> None:
    weights = {"logic": 0.2, "relevance": 0.2, "novelty": 0.3, "surprise": 0.3}
    assert Weights().model_dump() == weights
    options = PathOptions()
    assert {name: getattr(options, name) for name in weights} == weights
    assert (options.k, options.max_hops) == (Settings().paths, Settings().max_hops) == (6, 4)
    assert (options.diversity, options.hub_cap, options.seed) == (0.3, 200, 0)
    assert (options.max_candidates, options.budget) == (2000, 20_000_000)
    with pytest.raises(ValueError, match="weight"):
        PathOptions.model_validate(dict.fromkeys(weights, 0.0))
