"""Report on a concept: its relations, with papers for and against them by year."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from kg.fusion.model import Support
from kg.graph.identifiers import paper_iri, references
from kg.graph.model import Graph
from kg.graph.types import EdgeView, NodeView, Quotation, Relation, YearCount
from sage.core.models import Strict


class ConceptReport(Strict):
    """A concept and its evidence. `undated` counts papers (for, against) without a year."""

    node: NodeView
    links: tuple[tuple[str, str], ...]
    relations: tuple[Relation, ...]
    years: tuple[YearCount, ...]
    undated: tuple[int, int]
    papers_for: int
    papers_against: int
    as_of: int | None = None


def describe_concept(graph: Graph, name: str | int, as_of: int | None = None) -> ConceptReport:
    """Collect a concept's relations with their evidence, and the number of papers by year.

    Of two relations that contradict each other, the relation with higher belief is listed,
    and the papers for the other count against it. A paper that supports one relation and
    contradicts another is counted as both for and against. Retracted papers are shown but not
    counted.

    Parameters
    ----------
    graph : the graph, already cut at `as_of` if a year is given

    Raises
    ------
    InputError
        If no node has that name; the message names the most similar nodes.
    """
    node = graph.node(name)
    place = graph.resolve(node.id)
    here = np.flatnonzero((graph.head == place) | (graph.tail == place))
    listed: set[int] = set()
    for e in sorted(here.tolist(), key=lambda e: (graph.negated[e], -graph.belief[e], e)):
        if listed.isdisjoint(graph.against(e)):  # else its papers stand against what is listed
            listed.add(e)
    relations = [_relation(graph.edge(e)) for e in listed]
    relations.sort(key=lambda r: (r.denied, -r.papers_for, -r.belief, r.head, r.relation, r.tail))
    sides: dict[bool, dict[str, int | None]] = {True: {}, False: {}}
    for relation in relations:
        for quotation in relation.quotations:
            if not quotation.retracted:
                sides[quotation.speaks_for][quotation.paper] = quotation.year
    counts = {side: Counter(papers.values()) for side, papers in sides.items()}
    dated = sorted(year for year in {*counts[True], *counts[False]} if year is not None)
    return ConceptReport(
        node=node,
        links=tuple((f"{p}:{local}", iri) for p, local, iri in references(node.identifiers)),
        relations=tuple(relations),
        years=tuple(
            YearCount(year=y, papers_for=counts[True][y], papers_against=counts[False][y])
            for y in dated
        ),
        undated=(counts[True][None], counts[False][None]),
        papers_for=len(sides[True]),
        papers_against=len(sides[False]),
        as_of=as_of,
    )


def _relation(view: EdgeView) -> Relation:
    against = view.contradicting if not view.negated else view.supports
    quotations = [
        *(() if view.negated else _quotations(view.supports, True)),
        *_quotations(against, False),
    ]

    def papers(speaks_for: bool) -> int:
        return len({q.paper for q in quotations if q.speaks_for is speaks_for and not q.retracted})

    return Relation(
        head=view.head_name,
        relation=view.relation,
        tail=view.tail_name,
        polarity=view.polarity,
        denied=view.negated,
        belief=round(view.belief, 3),
        papers_for=papers(True),
        papers_against=papers(False),
        quotations=tuple(quotations),
    )


def _quotations(supports: Iterable[Support], speaks_for: bool) -> list[Quotation]:
    rows = [
        Quotation(
            text=s.evidence.text,
            title=s.evidence.title,
            year=s.evidence.year,
            paper=paper_iri(s.evidence),
            speaks_for=speaks_for,
            speculative=s.speculative,
            retracted=s.evidence.retracted,
        )
        for s in supports
    ]
    distinct = {
        (q.paper, q.text): q for q in reversed(rows)
    }  # a sentence can be read more than once
    return sorted(distinct.values(), key=lambda q: (q.year or 0, q.paper, q.text))


def render_concept(report: ConceptReport) -> str:
    """Render the report as an offline HTML page with a chart by year, relations and quotations."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader(Path(__file__).parent)
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    template = environment.get_template("concept.html")
    return template.render(report=report, chart=chart(report.years))


class Bar(Strict):
    """A bar in the figure, in pixels."""

    x: float
    y: float
    width: float
    height: float
    speaks_for: bool
    label: str


class Chart(Strict):
    """Chart with upward bars for papers in favor, downward bars for papers against, per year."""

    width: float
    height: float
    baseline: float
    left: float
    bars: tuple[Bar, ...]
    years: tuple[tuple[float, int], ...]
    ticks: tuple[tuple[float, int], ...]


def chart(counts: Iterable[YearCount]) -> Chart | None:
    """Lay out the bars for every year from first to last; return None without dated papers."""
    by_year = {count.year: count for count in counts}
    if not by_year:
        return None
    first, last = min(by_year), max(by_year)
    width, height = 720.0, 240.0
    left, right, top, bottom = 56.0, 8.0, 10.0, 44.0
    span = last - first + 1
    slot = (width - left - right) / max(span, 8)
    up = max(count.papers_for for count in by_year.values())
    down = max(count.papers_against for count in by_year.values())
    step = max(1, -(-(up + down) // 5))
    up, down = -(-up // step) * step, -(-down // step) * step
    unit = (height - top - bottom) / max(up + down, 1)
    baseline = top + up * unit
    bars, years = [], []
    every = max(1, -(-span // 15))
    for year in range(first, last + 1):
        x = left + (year - first) * slot
        if (year - first) % every == 0:
            years.append((x + slot / 2, year))
        count = by_year.get(year)
        if count is None:
            continue
        for papers, speaks_for in ((count.papers_for, True), (count.papers_against, False)):
            if papers:
                y = baseline - papers * unit if speaks_for else baseline
                side = "for" if speaks_for else "against"
                bars.append(
                    Bar(x=x + slot * 0.15, y=y, width=slot * 0.7, height=papers * unit,
                        speaks_for=speaks_for, label=f"{year}: {papers} {side}")
                )  # fmt: skip
    ticks = [(baseline - k * unit, abs(k)) for k in range(-down, up + 1, step)]
    return Chart(width=width, height=height, baseline=baseline, left=left, bars=tuple(bars),
                 years=tuple(years), ticks=tuple(ticks))  # fmt: skip
