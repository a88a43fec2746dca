"""Effects of a changed graph on hypotheses from earlier runs, by paper, step, and change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kg.graph.belief import POLARITIES
from kg.types import Polarity
from sage.core.errors import InputError
from sage.core.files import read_json
from sage.core.models import Strict
from sage.core.printable import one_line
from sage.run.folder import RunFolder, list_runs

if TYPE_CHECKING:
    from kg.fusion.model import Support
    from kg.graph.model import Graph
    from kg.graph.types import EdgeView
    from sage_literature.gather.types import Change

Kind = Literal["retracted", "gone", "less evidence", "evidence against", "more evidence", "linked"]
Step = tuple[str, str, str]
"""Identifiers of a step's head and tail, with the relation between them."""


class EdgeChange(Strict):
    """A statement in the graph whose evidence changed; a belief is 0 where it is absent."""

    head: str
    relation: str
    tail: str
    negated: bool
    before: float
    after: float
    lost: tuple[str, ...]
    gained: tuple[str, ...]

    def __str__(self) -> str:
        denied = "not " if self.negated else ""
        return one_line(f"{self.head} {denied}{self.relation.replace('_', ' ')} {self.tail}")


class Touched(Strict):
    """A change that affects a hypothesis from an earlier run."""

    run: str
    hypothesis: str
    statement: str
    kind: Kind
    paper: str
    what: str


def changed_edges(before: Graph, after: Graph) -> list[EdgeChange]:
    """Return the statements that lost or gained evidence, sorted by name."""
    old, new = _statements(before), _statements(after)
    found = []
    for key in sorted(old.keys() | new.keys()):
        if (
            key in old
            and key in new
            and _describe_step(before, old[key]) == _describe_step(after, new[key])
        ):
            continue
        was = before.edge(old[key]) if key in old else None
        now = after.edge(new[key]) if key in new else None
        papers = _papers(was.supports if was else ()), _papers(now.supports if now else ())
        if papers[0].keys() != papers[1].keys():
            edge = now or was
            assert edge is not None
            found.append(
                EdgeChange(
                    head=edge.head_name,
                    relation=edge.relation,
                    tail=edge.tail_name,
                    negated=edge.negated,
                    before=was.belief if was else 0.0,
                    after=now.belief if now else 0.0,
                    lost=_keep_only(papers[0], papers[1]),
                    gained=_keep_only(papers[1], papers[0]),
                )
            )
    return found


def find_affected(
    runs_dir: Path, before: Graph, after: Graph, changes: Sequence[Change]
) -> tuple[list[Touched], list[str]]:
    """Find the hypotheses from runs in a folder that the changes affect, and unreadable runs.

    Returns
    -------
    All effects, ordered by run and hypothesis, and a line for each run that cannot be read.
    """
    retracted = {key for change in changes if change.what == "retracted" for key in change.keys}
    found: list[Touched] = []
    unread: list[str] = []
    for run in list_runs(runs_dir):
        try:
            for path in sorted((run.root / "outputs").glob("draft-*.json")):
                draft = read_json(path)
                statement = one_line(str(draft["hypothesis"]["statement"]))
                touches = [*_citations(draft, retracted), *_steps(run, draft, before, after)]
                touches += _links(draft, before, after)
                found += [
                    Touched(
                        run=run.id,
                        hypothesis=path.stem.removeprefix("draft-"),
                        statement=statement,
                        kind=kind,
                        paper=paper,
                        what=what,
                    )
                    for kind, paper, what in dict.fromkeys(touches)
                ]
        except (
            InputError,
            OSError,
            KeyError,
            TypeError,
            ValueError,
            AttributeError,
            RecursionError,
        ) as problem:
            unread.append(f"{run.id}: {one_line(str(problem))[:200]}")
    return found, unread


_Touch = tuple[Kind, str, str]


def _citations(draft: dict[str, Any], retracted: set[str]) -> Iterator[_Touch]:
    for citation in draft["citations"]:
        if _keys(citation) & retracted:
            paper = _citation(citation)
            yield "retracted", paper, f"it cites {paper}, which was retracted"


def _steps(run: RunFolder, draft: dict[str, Any], before: Graph, after: Graph) -> Iterator[_Touch]:
    """Yield changes to the steps that a hypothesis's citations quote."""
    path = run.output("paths")
    if not path.is_file():
        return
    quoted = {(citation.get("doi"), citation["quote"]) for citation in draft["citations"]}
    for found in read_json(path)["paths"]:
        for edge in found["edges"]:
            if any((e.get("doi"), e["text"]) in quoted for e in edge["evidence"]):
                yield from _step((edge["head"], edge["relation"], edge["tail"]), before, after)


def _step(step: Step, before: Graph, after: Graph) -> Iterator[_Touch]:
    was, now = _edge(before, step), _edge(after, step)
    if was is None:
        return  # the run used another graph
    said = _describe_change(was)
    had = _papers(was.supports)
    if now is None:
        for paper in had.values():
            yield "gone", paper, f"its step {said} is no longer in the graph: it relied on {paper}"
        return
    has = _papers(now.supports)
    beliefs = f"belief {was.belief:.2f} before, {now.belief:.2f} now"
    for paper in _keep_only(had, has):
        yield "less evidence", paper, f"its step {said} lost {paper}; {beliefs}"
    for paper in _keep_only(has, had):
        yield "more evidence", paper, f"its step {said} is also stated by {paper}; {beliefs}"
    for paper in _keep_only(_papers(now.contradicting), _papers(was.contradicting)):
        yield "evidence against", paper, f"{paper} contradicts its step {said}; {beliefs}"


def _links(draft: dict[str, Any], before: Graph, after: Graph) -> Iterator[_Touch]:
    """Yield new statements that link two concepts in a hypothesis, which may now be less novel."""
    nodes = [n for name in draft.get("concepts", ()) if (n := after.exact(str(name))) is not None]
    for head in nodes:
        for tail in nodes:
            for number in after.edges_between(head, tail):
                edge = after.edge(number)
                if _edge(before, (edge.head, edge.relation, edge.tail)) is None:
                    said = _describe_change(edge)
                    for paper in _papers(edge.supports).values():
                        yield (
                            "linked",
                            paper,
                            f"two of its concepts are now linked: {said}, {paper}",
                        )


def _describe_change(edge: EdgeView) -> str:
    return f'"{edge.head_name} {edge.relation.replace("_", " ")} {edge.tail_name}"'


def _statements(graph: Graph) -> dict[tuple[str, str, str, bool, bool], int]:
    return {
        (
            graph.ids[int(graph.head[edge])],
            graph.relations[graph.relation[edge]],
            graph.ids[int(graph.tail[edge])],
            bool(graph.negated[edge]),
            POLARITIES[graph.polarity[edge]] == Polarity.NEGATIVE,
        ): edge
        for edge in range(graph.n_edges)
    }


def _describe_step(graph: Graph, edge: int) -> list[Any]:
    """Return the stored, unparsed readings of an edge."""
    row = graph.edge_rows[int(graph.edge_row[edge])]
    return [row[place] for place in graph.reading_place[graph.readings_of(edge)].tolist()]


def _edge(graph: Graph, step: Step) -> EdgeView | None:
    """Find a step's affirmed edge by the identifiers of its endpoints."""
    head, relation, tail = step
    if head not in graph.position or tail not in graph.position:
        return None
    edges = graph.edges_between(graph.position[head], graph.position[tail])
    same = (n for n in edges if graph.relations[graph.relation[n]] == relation)
    return next((graph.edge(n) for n in same if not graph.negated[n]), None)


def _papers(supports: Iterable[Support]) -> dict[str, str]:
    """Map papers, keyed by strongest identifier, to human-readable citations."""
    found = {}
    for support in supports:
        evidence = support.evidence.model_dump()
        found[min(_keys(evidence), default=support.evidence.doc_id)] = _citation(evidence)
    return found


def _keep_only(these: dict[str, str], those: dict[str, str]) -> tuple[str, ...]:
    return tuple(paper for key, paper in these.items() if key not in those)


def _keys(paper: dict[str, Any]) -> set[str]:
    doi, pmid = paper.get("doi"), paper.get("pmid")
    keys = {f"doi:{str(doi).lower()}"} if doi else set()
    return keys | ({f"pmid:{pmid}"} if pmid else set())


def _citation(paper: dict[str, Any]) -> str:
    doi, pmid = paper.get("doi"), paper.get("pmid")
    identifier = f", doi:{doi}" if doi else f", PMID {pmid}" if pmid else ""
    return one_line(f'"{paper.get("title") or "a paper"}" ({paper.get("year")}{identifier})')
