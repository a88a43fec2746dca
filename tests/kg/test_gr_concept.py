"""The page of a concept counts papers for and against it as a recount of the readings does."""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from kg.graph.concept import chart, describe_concept, render_concept
from kg.graph.types import YearCount
from kg.types import Polarity, Triple
from sage.cli.kg import app
from tests.kg.gr_helpers import D, G, graph, triple

UP, DOWN = Polarity.POSITIVE, Polarity.NEGATIVE


def told(tail: str, doc: str, year: int | None, sign: Polarity = UP, **more: bool) -> Triple:
    relation = "promotes" if sign == UP else "inhibits"
    return triple(
        "FGFR3", tail, types=(G, D), relation=relation, polarity=sign, doc=doc, doi=f"10.1/{doc}",
        year=year, **more,
    )  # type: ignore[arg-type]  # fmt: skip


DISPUTED = [
    told("bladder cancer", "a", 2010),
    told("bladder cancer", "b", 2010),
    told("bladder cancer", "c", 2014),
    told("bladder cancer", "d", 2014, DOWN),
    told("bladder cancer", "e", 2016, negated=True),
    told("lung cancer", "f", 2016, negated=True),
    told("melanoma", "g", None),
    told("melanoma", "h", 2018, retracted=True),
]


def test_papers_for_and_against_by_year() -> None:
    found = describe_concept(graph(DISPUTED), "FGFR3")
    assert [(y.year, y.papers_for, y.papers_against) for y in found.years] == [
        (2010, 2, 0), (2014, 1, 1), (2016, 0, 2),
    ]  # fmt: skip
    assert found.undated == (1, 0)
    assert (found.papers_for, found.papers_against) == (4, 3)
    rows = [(r.tail, r.papers_for, r.papers_against, r.denied) for r in found.relations]
    assert rows == [
        ("bladder cancer", 3, 2, False),
        ("melanoma", 1, 0, False),
        ("lung cancer", 0, 1, True),
    ]
    retracted = [q for r in found.relations for q in r.quotations if q.retracted]
    assert len(retracted) == 1


_READINGS = st.lists(
    st.tuples(
        st.sampled_from(["bladder cancer", "melanoma", "lung cancer"]),
        st.integers(0, 12), st.sampled_from([UP, DOWN]), st.booleans(), st.booleans(),
    ),
    min_size=1, max_size=25,
)  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(_READINGS)
def test_no_paper_is_lost_and_none_counts_twice_on_a_side(rows: list[tuple]) -> None:  # type: ignore[type-arg]
    triples = [
        told(tail, str(doc), 2000 + doc, sign, negated=negated, retracted=doc % 5 == 4)
        for tail, doc, sign, negated, _ in rows
    ]
    found = describe_concept(graph(triples), "FGFR3")
    counted = {q.paper for r in found.relations for q in r.quotations}
    assert counted == {f"https://doi.org/10.1/{doc}" for _, doc, *_ in rows}
    by_year: dict[int, list[set[str]]] = defaultdict(lambda: [set(), set()])
    for r in found.relations:
        for q in r.quotations:
            if not q.retracted and q.year:
                by_year[q.year][not q.speaks_for].add(q.paper)
    assert {(y.year, y.papers_for, y.papers_against) for y in found.years} == {
        (year, len(sides[0]), len(sides[1])) for year, sides in by_year.items()
    }
    for r in found.relations:  # what is denied has nothing for it, what is listed has something
        assert (r.papers_for == 0) or not r.denied


def test_each_side_of_a_dispute_is_quoted(tmp_path: Path) -> None:
    folder = str(graph(DISPUTED).save_sidecar(tmp_path / "g.kg"))
    printed = CliRunner().invoke(app, ["show", "FGFR3", "--graph", folder]).output
    first = printed.split("bladder cancer", 1)[1].split("melanoma")[0]
    assert first.count("·") == 2 and first.count("✗") == 2


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(st.integers(1950, 2030), st.tuples(st.integers(0, 90), st.integers(0, 90)),
                    min_size=1, max_size=40)
)  # fmt: skip
def test_the_figure_shows_each_count_and_stays_in_its_frame(
    counts: dict[int, tuple[int, int]],
) -> None:
    rows = [YearCount(year=y, papers_for=f, papers_against=a) for y, (f, a) in counts.items()]
    drawn = chart(rows)
    assert drawn is not None
    assert len(drawn.bars) == sum((f > 0) + (a > 0) for f, a in counts.values())
    largest = max((max(pair) for pair in counts.values()), default=0)
    for bar in drawn.bars:
        assert drawn.left <= bar.x and bar.x + bar.width <= drawn.width
        assert bar.y >= 0 and bar.y + bar.height <= drawn.height - 40
        papers = int(bar.label.split()[1])
        highest = max(b.height for b in drawn.bars)
        assert bar.height / highest == pytest.approx(papers / largest)
        assert (bar.y < drawn.baseline) is bar.speaks_for
    places = [x for x, _ in drawn.years]
    assert all(b - a >= 40 for a, b in pairwise(places))
    assert len(drawn.ticks) <= 9


def test_text_of_papers_cannot_become_markup_and_nothing_comes_from_outside() -> None:
    evil = "</title><script>alert(1)</script><img src=x onerror=alert(2)>"
    page = render_concept(describe_concept(graph([triple(evil, "b1", text=evil)]), "b1"))
    assert "<script" not in page and "<img" not in page
    assert "default-src 'none'" in page
    assert set(re.findall(r"<([a-z]+\d?)", page)) <= {
        *("html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "details", "summary"),
        *("em", "span", "blockquote", "footer", "svg", "defs", "pattern", "rect", "line", "text"),
    }
