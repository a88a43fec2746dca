"""Facts read by importers, and their fusion into a graph by identifier rather than by name."""

from __future__ import annotations

import csv
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from kg.fusion.model import FusedEdge, FusedGraph, FusedNode, FusionOptions, Support
from kg.types import EntityType, Evidence, Polarity
from sage.core.errors import InputError
from sage_exchange.files import open_text
from sage_exchange.years import estimate_year


@dataclass(frozen=True, slots=True)
class Entity:
    """A node, with its `id` (such as `ncbigene:7157`), name, and type."""

    id: str
    name: str
    type: EntityType


@dataclass(frozen=True, slots=True)
class Fact:
    """A statement from a source; `pmid` is used for the date if `year` is missing."""

    head: Entity
    relation: str
    tail: Entity
    polarity: Polarity = Polarity.NEUTRAL
    negated: bool = False
    speculative: bool = False
    confidence: float = 0.9
    pmid: str | None = None
    doi: str | None = None
    year: int | None = None
    title: str = ""
    text: str = ""
    source: str = ""


POSITIVE, NEGATIVE, NEUTRAL = Polarity.POSITIVE, Polarity.NEGATIVE, Polarity.NEUTRAL


def gene(symbol: str, number: str = "") -> Entity:
    """Return a human gene, identified by its NCBI Gene number or else by its symbol."""
    return Entity(f"ncbigene:{number}" if number else f"symbol:{symbol}", symbol, EntityType.GENE)


def number_genes(facts: Iterable[Fact], numbers: Mapping[str, str]) -> Iterator[Fact]:
    """Yield facts with numbers added to genes known only by symbol, so that sources join."""

    def number_entity(entity: Entity) -> Entity:
        number = numbers.get(entity.name) if entity.id.startswith("symbol:") else None
        return gene(entity.name, number) if number else entity

    for fact in facts:
        yield replace(fact, head=number_entity(fact.head), tail=number_entity(fact.tail))


def read_gene_numbers(path: Path) -> dict[str, str]:
    """Read NCBI Gene numbers by official gene symbol from a `gene_info` table (plain or gzip)."""
    with open_text(path) as stream:
        rows = (line.rstrip("\n").split("\t") for line in stream if not line.startswith("#"))
        numbers = {row[2]: row[1] for row in rows if len(row) > 2 and row[1].isdigit()}
    if not numbers:
        raise InputError(f"{path}: no genes found; expected the columns of an NCBI gene_info file")
    return numbers


def fuse_facts(facts: Iterable[Fact], years: Mapping[str, int] | None = None) -> FusedGraph:
    """Build a graph with a node per identifier and an edge per head, relation, tail and polarity.

    Parameters
    ----------
    facts : facts from any number of sources
    years : publication years by PMID; others are estimated (`sage_exchange.years`)

    Raises
    ------
    InputError
        If there are no facts, or if every fact relates an entity to itself.
    """
    names: defaultdict[str, Counter[str]] = defaultdict(Counter)
    types: dict[str, EntityType] = {}
    gathered: defaultdict[tuple[str, str, str, bool], list[Fact]] = defaultdict(list)
    loops = 0
    for fact in facts:
        if fact.head.id == fact.tail.id:
            loops += 1
            continue
        for entity in (fact.head, fact.tail):
            names[entity.id][entity.name] += 1
            types.setdefault(entity.id, entity.type)
        gathered[fact.head.id, fact.relation, fact.tail.id, fact.negated].append(fact)
    if not gathered:
        raise InputError("no relation between two different entities found in the input")
    ids = sorted(names)
    place = {id_: n for n, id_ in enumerate(ids)}
    nodes = tuple(_node(id_, types[id_], names[id_]) for id_ in ids)
    order = sorted(gathered, key=lambda key: (place[key[0]], place[key[2]], key[1], key[3]))
    edges = tuple(
        FusedEdge(
            head=place[head],
            relation=relation,
            tail=place[tail],
            polarity=_polarity(gathered[head, relation, tail, negated]),
            negated=negated,
            supports=_supports(gathered[head, relation, tail, negated], years or {}),
        )
        for head, relation, tail, negated in order
    )
    options = FusionOptions(prune_below=1)
    return FusedGraph(nodes, edges, (), options, None, None, {"self-loop": loops})


def _node(id_: str, kind: EntityType, spelled: Counter[str]) -> FusedNode:
    names = sorted(spelled, key=lambda name: (-spelled[name], name))
    scheme, _, number = id_.partition(":")
    known = {scheme: number} if scheme not in {"symbol", "name"} else {}
    return FusedNode(id_, names[0], kind, (names[0], *sorted(names[1:])), identifiers=known)


def _polarity(facts: list[Fact]) -> Polarity:
    counted = Counter(fact.polarity for fact in facts).most_common(2)
    tied = len(counted) > 1 and counted[0][1] == counted[1][1]
    return NEUTRAL if tied else counted[0][0]


def _supports(facts: list[Fact], years: Mapping[str, int]) -> tuple[Support, ...]:
    kept: dict[tuple[str, str], Support] = {}
    for number, fact in enumerate(facts):
        document = fact.pmid or fact.doi
        known = f"{'pmid' if fact.pmid else 'doi'}:{document}"
        doc_id = known if document else f"{fact.source}:{fact.head.id}:{fact.tail.id}:{number}"
        text = fact.text or f"{fact.head.name} {fact.relation.replace('_', ' ')} {fact.tail.name}."
        year = fact.year
        if year is None and fact.pmid:
            year = years.get(fact.pmid) or estimate_year(fact.pmid)
        evidence = Evidence(
            doc_id=doc_id,
            chunk_id=f"{doc_id}:0",
            section=fact.source,
            start=0,
            end=len(text),
            text=text,
            title=fact.title,
            year=year,
            doi=fact.doi,
            pmid=fact.pmid,
        )
        kept.setdefault(
            (doc_id, text),
            Support(
                evidence=evidence,
                confidence=fact.confidence,
                relation_text=fact.relation.replace("_", " "),
                speculative=fact.speculative,
                extractor=fact.source,
            ),
        )
    return tuple(kept[key] for key in sorted(kept))


def read_table(path: Path, stream: IO[str], needed: tuple[str, ...]) -> Iterator[dict[str, str]]:
    """Yield the rows of a comma- or tab-separated table by column, skipping leading comments.

    Raises
    ------
    InputError
        If a column is missing; the message lists the existing columns.
    """
    delimiter, header = "\t", list[str]()
    lines = iter(stream)
    for line in lines:
        delimiter = "\t" if "\t" in line else ","
        cells = [
            c.strip().lower() for c in next(csv.reader([line.lstrip("# ")], delimiter=delimiter))
        ]
        if all(name.lower() in cells for name in needed):
            header = cells
            break
        if not line.startswith("#"):
            missing = ", ".join(name for name in needed if name.lower() not in cells)
            raise InputError(
                f"{path}: column {missing} not found; available columns: {', '.join(cells[:12])}. "
                "Use the file as published, including its header"
            )
    if not header:
        raise InputError(f"{path}: no header row with the columns {', '.join(needed)}")
    for cells in csv.reader(
        (line for line in lines if not line.startswith("#")), delimiter=delimiter
    ):
        if cells:
            yield dict(zip(header, cells, strict=False))
