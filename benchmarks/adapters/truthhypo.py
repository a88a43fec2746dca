"""TruthHypo: is there a link between two entities, and which relation is it?

Read are tables of its form (`edges_test.tsv`): `x_id` and `y_id` as "Type|identifier", `relation`,
`question`. Link-level figures ask whether a link was said where there is one, relation-level
accuracy whether the relation is right, as in its paper. Without a model a graph answers by its
links of the two entities, else by those over one entity between them, whose signs are multiplied;
where neither says anything, the rules abstain.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.adapters.multiple_choice import (
    Answered,
    Answerer,
    Question,
    Said,
    lay_out,
    question,
    require_distinct,
)
from benchmarks.adapters.tables import read_parquet, read_rows
from benchmarks.adapters.triple_review import Figure, proportion
from sage.core.errors import InputError
from sage.core.models import Strict

if TYPE_CHECKING:
    from kg.graph.model import Graph

COLUMNS = ("x_id", "y_id", "relation", "question")
LISTED = re.compile(r"one of\s*\[([^\]]*)\]")
NO_LINK = frozenset(("norelation", "nolink", "noassociation", "none"))
SIGNS = (
    (r"positiv|stimul|activat|increas|upregul|promot|caus", 1),
    (r"negativ|inhibit|suppress|decreas|downregul|reduc|prevent|(?<!co)treat", -1),
)
"""How a relation's name says its sign; the first that fits counts."""
DENIED = None


class Item(Strict):
    """A question about two entities, each with its identifier and its name."""

    question: Question
    ids: tuple[str, str]
    names: tuple[str, str]


class Link(Strict):
    """A relation of two entities and its sign; a denied one has none."""

    relation: str
    sign: int | None


class Links(Strict):
    """Figures of a pair of types, with Wilson's 95% intervals; F1 has none.

    The floor says the most frequent relation of each pair of types; its F1 is that of "linked"
    for all.
    """

    group: str
    questions: int
    linked: int
    accuracy: Figure
    precision: Figure | None
    recall: Figure | None
    f1: float
    answered: Figure
    unusable: int
    floor_accuracy: float
    floor_f1: float


Known = dict[str, dict[str, list[Link]]]
"""Links by one entity and the other, both ways."""


def read_items(paths: Sequence[Path]) -> tuple[list[Item], int]:
    """The questions of tables, and how many rows repeat another one.

    Raises
    ------
    InputError
        If a file is no such table, or a row's relation is none that its question offers.
    """
    rows: dict[tuple[str, ...], str] = {}
    total = 0
    for path in paths:
        for where, row in _rows(path):
            total += 1
            rows.setdefault(row, where)
    labels: dict[str, dict[str, None]] = {}
    for (x, y, relation, _), where in rows.items():
        labels.setdefault(_pair(where, x, y), {})[relation] = None
    items = []
    asked: Counter[str] = Counter()
    for (x, y, relation, text), where in rows.items():
        pair = _pair(where, x, y)
        listed = LISTED.findall(text)
        offered = _offered(listed[-1]) if listed else list(labels[pair])
        if relation not in offered:
            raise InputError(f"{where}: relation {relation!r} is not offered: {offered}"[:500])
        name = f"{x}~{y}"
        asked[name] += 1
        made = question(
            where, id=name if asked[name] == 1 else f"{name}~{asked[name]}", group=pair, text=text,
            right=relation, wrong=sorted(set(offered) - {relation}),
        )  # fmt: skip
        items.append(Item(question=made, ids=(x, y), names=(_name(text, x), _name(text, y))))
    require_distinct([item.question for item in items], ", ".join(map(str, paths)))
    return items, total - len(rows)


def _offered(listed: str) -> list[str]:
    """The relations of a list, quoted or not."""
    quoted: list[str] = re.findall(r"['\"]([^'\"]+)['\"]", listed)
    return quoted or [part.strip() for part in listed.split(",") if part.strip()]


def _rows(path: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    kind = path.suffix.lower()
    if kind not in (".tsv", ".csv", ".parquet"):
        raise InputError(f"{path}: give TruthHypo's questions as .tsv, .csv or .parquet")
    for where, row in read_parquet(path) if kind == ".parquet" else read_rows(path):
        if gone := [name for name in COLUMNS if name not in row]:
            raise InputError(f"{path}: has no column {gone[0]}; TruthHypo has {', '.join(COLUMNS)}")
        values = [row[name] for name in COLUMNS]
        for name, value in zip(COLUMNS, values, strict=True):
            if not isinstance(value, str) or not value.strip():
                raise InputError(f"{where}: {name} is empty")
        yield where, tuple(value.strip() for value in values)


def _pair(where: str, x: str, y: str) -> str:
    """The two types: "Chemical & Gene"."""
    types = [end.partition("|")[0] for end in (x, y)]
    if "|" not in x or "|" not in y or not all(types):
        raise InputError(f'{where}: x_id and y_id are "Type|identifier", as in "Gene|4129"')
    return " & ".join(types)


def _name(text: str, end: str) -> str:
    """What a question calls an entity: "Gene MAO-B (4129)" is MAO-B; else its identifier."""
    kind, _, concept = end.partition("|")
    before, found, _ = text.partition(f" ({concept})")
    name = before.rpartition(f"{kind} ")[2].strip()
    return name if found and name else concept


def sign_of(relation: str) -> int:
    """+1, -1, or 0 where a relation's name says no sign."""
    return next((sign for words, sign in SIGNS if re.search(words, relation, re.I)), 0)


def is_no_link(relation: str) -> bool:
    """Whether a relation says that there is none."""
    return re.sub("[^a-z]", "", relation.lower()) in NO_LINK


def read_edges(path: Path, wanted: Iterable[str]) -> Known:
    """The links of some entities in a table of edges (`x_id`, `y_id`, `relation`), row by row.

    Raises
    ------
    InputError
        If the table holds questions: it is the benchmark, and would answer itself.
    """
    ends = frozenset(wanted)
    known: Known = {}
    where = ""
    for where, row in read_rows(path, quoted=False):
        if gone := [name for name in COLUMNS[:3] if name not in row]:
            raise InputError(f"{where}: has no column {gone[0]}; edges have x_id, y_id, relation")
        if "question" in row:
            raise InputError(f"{path}: holds questions with their answers; give a graph")
        x, y, relation = (row[name].strip() for name in COLUMNS[:3])
        if x in ends or y in ends:
            sign = DENIED if is_no_link(relation) else sign_of(relation)
            _add(known, x, y, Link(relation=relation, sign=sign))
    if not where:
        raise InputError(f"{path}: holds no edges")
    return known


def links_of(graph: Graph, items: Sequence[Item]) -> tuple[Known, dict[str, str]]:
    """The links of the questions' entities in a knowledge graph of SAGE.

    Returns
    -------
    Links by node, and the node of each entity that the graph has, by identifier (NCBI Gene, MeSH)
    or else by name.
    """
    import numpy as np

    by_id: dict[str, int] = {}
    for n in range(graph.n_nodes):
        for space, value in graph.node_rows[int(graph.node_row[n])].get("identifiers", {}).items():
            if space in ("NCBIGene", "MeSH"):
                by_id.setdefault(f"{space}:{value.rpartition(':')[2]}", n)
    nodes: dict[str, int] = {}
    for item in items:
        for end, name in zip(item.ids, item.names, strict=True):
            concept = end.partition("|")[2]
            space = "MeSH" if concept.upper().startswith("MESH:") else "NCBIGene"
            place = by_id.get(f"{space}:{concept.rpartition(':')[2]}")
            place = graph.exact(name) if place is None else place
            if place is not None:
                nodes[end] = place
    wanted = list(set(nodes.values()))
    known: Known = {}
    here = np.flatnonzero(np.isin(graph.head, wanted) | np.isin(graph.tail, wanted))
    for e in here.tolist():
        view = graph.edge(e)
        sign = {"positive": 1, "negative": -1}.get(view.polarity.value, 0)
        link = Link(relation=view.relation, sign=DENIED if view.negated else sign)
        _add(known, view.head, view.tail, link)
    return known, {end: graph.ids[place] for end, place in nodes.items()}


def _add(known: Known, x: str, y: str, link: Link) -> None:
    for one, other in ((x, y), (y, x)):
        known.setdefault(one, {}).setdefault(other, []).append(link)


def by_links(items: Sequence[Item], known: Known, nodes: dict[str, str] | None = None) -> Answerer:
    """Answers from links: the relation that most of them name, else the sign that most have.

    Parameters
    ----------
    items : whose entities are looked up
    known : links by entity
    nodes : what `known` calls an entity, where that is not its identifier; an entity that is
        absent is unknown
    """
    ends = {item.question.id: item.ids for item in items}

    def answer(item: Question, options: dict[str, str]) -> Said:
        x, y = (end if nodes is None else nodes.get(end, "") for end in ends[item.id])
        return Said(letter=_letter(known.get(x, {}), known.get(y, {}), y, options))

    return answer


def _letter(
    of_x: dict[str, list[Link]], of_y: dict[str, list[Link]], y: str, options: dict[str, str]
) -> str:
    direct = of_x.get(y, [])
    affirmed = [link for link in direct if link.sign is not DENIED]
    named = Counter(link.relation for link in affirmed)
    offered = [(named[words], letter) for letter, words in options.items() if named[words]]
    if offered:
        return _only(letter for count, letter in offered if count == max(offered)[0])
    if affirmed:
        return _by_sign(sum(link.sign or 0 for link in affirmed), options)
    if direct:
        return _only(letter for letter, words in options.items() if is_no_link(words))
    between = of_x.keys() & of_y.keys()
    return _by_sign(sum(_net(of_x[z]) * _net(of_y[z]) for z in between), options)


def _net(links: list[Link]) -> int:
    """The sign that most of some links have, 0 where they are even."""
    total = sum(link.sign or 0 for link in links)
    return (total > 0) - (total < 0)


def _by_sign(total: int, options: dict[str, str]) -> str:
    sign = (total > 0) - (total < 0)
    return _only(letter for letter, words in options.items() if sign and sign_of(words) == sign)


def _only(letters: Iterable[str]) -> str:
    found = list(letters)
    return found[0] if len(found) == 1 else ""


def score_links(items: Sequence[Item], answered: Sequence[Answered], seed: int) -> list[Links]:
    """Link-level and relation-level figures over all questions, then of each pair of types.

    Parameters
    ----------
    items : the questions
    answered : what was said to each, in the same order
    seed : of the order of the options
    """
    rows = []
    for item, said in zip(items, answered, strict=True):
        words = lay_out(item.question, seed).get(said.letter)
        rows.append((item.question.group, item.question.right, words, bool(said.trouble)))
    most: dict[str, int] = {}
    for group in dict.fromkeys(row[0] for row in rows):
        most[group] = Counter(row[1] for row in rows if row[0] == group).most_common(1)[0][1]
    out = [_links("all", rows, sum(most.values()))]
    if len(most) > 1:
        out += [_links(name, [r for r in rows if r[0] == name], n) for name, n in most.items()]
    return out


def _links(group: str, rows: Sequence[tuple[str, str, str | None, bool]], constant: int) -> Links:
    gold = [not is_no_link(right) for _, right, _, _ in rows]
    said = [words is not None and not is_no_link(words) for _, _, words, _ in rows]
    precision = [g for g, s in zip(gold, said, strict=True) if s]
    recall = [s for g, s in zip(gold, said, strict=True) if g]
    both = sum(precision)
    share = sum(gold) / len(gold)
    return Links(
        group=group,
        questions=len(rows),
        linked=sum(gold),
        accuracy=proportion(right == words for _, right, words, _ in rows),
        precision=proportion(precision) if precision else None,
        recall=proportion(recall) if recall else None,
        f1=round(2 * both / (sum(said) + sum(gold)), 6) if sum(said) + sum(gold) else 0.0,
        answered=proportion(words is not None for _, _, words, _ in rows),
        unusable=sum(trouble for *_, trouble in rows),
        floor_accuracy=round(constant / len(rows), 6),
        floor_f1=round(2 * share / (1 + share), 6),
    )
