"""Export of a graph as RDF in Turtle: concepts with public IRIs, statements with evidence.

A relation that the literature affirms is written as a triple and as a named reification
(`rdf:Statement`, also a Biolink association) with the sign, belief, years, and a node per reading
(sentence, paper, and year). Any store can read this without RDF-star. A denied relation is written
only as a reification, marked `biolink:negated`, so that it is never queried as a fact.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING
from urllib.parse import quote

from kg.graph.arrays import TYPES
from kg.graph.belief import POLARITIES
from kg.graph.identifiers import paper_iri, references
from sage_exchange.biolink import CATEGORIES, PREDICATES, choose_references

if TYPE_CHECKING:
    from kg.fusion.model import Support
    from kg.graph.model import Graph

PREFIXES = {
    "biolink": "https://w3id.org/biolink/vocab/",
    "dcterms": "http://purl.org/dc/terms/",
    "prov": "http://www.w3.org/ns/prov#",
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "sage": "urn:sage:vocabulary:",
    "skos": "http://www.w3.org/2004/02/skos/core#",
    "xsd": "http://www.w3.org/2001/XMLSchema#",
}
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_ESCAPED = re.compile(r'[\\"\x00-\x1f\x7f]')

Pair = tuple[str, str]


def render_turtle(graph: Graph) -> Iterator[str]:
    """Yield the graph as lines of Turtle; the output is deterministic."""
    for prefix, iri in PREFIXES.items():
        yield f"@prefix {prefix}: <{iri}> .\n"
    for relation in sorted(set(graph.relations)):
        label = _text(relation.replace("_", " "))
        more = [("rdfs:label", label)]
        if biolink := PREDICATES.get(relation):
            more.append(("rdfs:subPropertyOf", f"biolink:{biolink}"))
        yield _block(_relation(relation), [("a", "rdf:Property"), *more])
    names = concept_iris(graph)
    for n, iri in enumerate(names):
        yield _block(f"<{iri}>", _concept(graph, n, iri))
    written: set[str] = set()
    for e in range(graph.n_edges):
        head, tail = (f"<{names[int(ends[e])]}>" for ends in (graph.head, graph.tail))
        yield from _edge(graph, e, head, tail, written)


def concept_iris(graph: Graph) -> list[str]:
    """Return an IRI for each node, from its first public identifier or else as a URN of its id."""
    known = choose_references(graph.node_rows[int(row)] for row in graph.node_row)
    return [
        reference[2] if reference else f"urn:sage:concept:{quote(id_, safe=':')}"
        for id_, reference in zip(graph.ids, known, strict=True)
    ]


def _concept(graph: Graph, n: int, iri: str) -> list[Pair]:
    view = graph.node(n)
    category = CATEGORIES.get(TYPES[graph.types[n]], "NamedThing")
    rows = [
        ("a", f"biolink:{category}"),
        ("dcterms:identifier", _text(view.id)),
        ("skos:prefLabel", _text(view.name)),
    ]
    rows += [("skos:altLabel", _text(name)) for name in (*view.aliases, *view.synonyms)]
    if view.definition:
        rows.append(("skos:definition", _text(view.definition)))
    others = [other for _, _, other in references(view.identifiers) if other != iri]
    return rows + [("skos:exactMatch", f"<{other}>") for other in others]


def _edge(graph: Graph, e: int, head: str, tail: str, written: set[str]) -> Iterator[str]:
    relation = _relation(graph.relations[graph.relation[e]])
    if not graph.negated[e]:
        yield f"{head} {relation} {tail} .\n"
    polarity = POLARITIES[graph.polarity[e]].value
    negated = str(bool(graph.negated[e])).lower()
    statement = _urn("statement", head, relation, tail, polarity, negated)
    supports = graph.supports(e)
    readings = [
        _urn("reading", statement, s.evidence.doc_id, str(s.evidence.start), s.evidence.text)
        for s in supports
    ]
    years = [(graph.first_year, "sage:firstYear"), (graph.last_year, "sage:lastYear")]
    yield _block(
        statement,
        [
            ("a", "rdf:Statement, biolink:Association"),
            ("rdf:subject", head),
            ("rdf:predicate", relation),
            ("rdf:object", tail),
            ("biolink:negated", negated),
            ("sage:polarity", _text(polarity)),
            ("sage:belief", _number(float(graph.belief[e]))),
            ("sage:documents", str(int(graph.documents[e]))),
            *((name, _year(int(year[e]))) for year, name in years if year[e]),
            *(("prov:wasDerivedFrom", reading) for reading in readings),
        ],
    )
    for reading, support in zip(readings, supports, strict=True):
        paper = paper_iri(support.evidence)
        yield _block(reading, _reading(support, paper))
        if paper not in written:
            written.add(paper)
            yield _block(f"<{paper}>", _paper(support))


def _reading(support: Support, paper: str) -> list[Pair]:
    evidence = support.evidence
    rows = [
        ("a", "prov:Entity"),
        ("prov:value", _text(evidence.text)),
        ("prov:wasQuotedFrom", f"<{paper}>"),
        ("sage:confidence", _number(support.confidence)),
        ("sage:speculative", str(support.speculative).lower()),
    ]
    if evidence.section:
        rows.append(("sage:section", _text(evidence.section)))
    if support.extractor:
        rows.append(("sage:extractor", _text(support.extractor)))
    return rows


def _paper(support: Support) -> list[Pair]:
    evidence = support.evidence
    rows = [("a", "prov:Entity, biolink:Publication")]
    if evidence.title:
        rows.append(("dcterms:title", _text(evidence.title)))
    if evidence.year:
        rows.append(("dcterms:issued", _year(evidence.year)))
    rows.append(("sage:retracted", str(evidence.retracted).lower()))
    return rows


def _block(subject: str, rows: Iterable[Pair]) -> str:
    body = " ;\n  ".join(f"{predicate} {value}" for predicate, value in rows)
    return f"{subject} {body} .\n"


def _urn(kind: str, *parts: str) -> str:
    """Derive a URN from content, so that two builds of the same corpus agree on it."""
    digest = hashlib.sha256("\x1f".join(parts).encode()).hexdigest()
    return f"<urn:sage:{kind}:{digest[:24]}>"


def _relation(name: str) -> str:
    return f"<{PREFIXES['sage']}{quote(name, safe='')}>"


def _year(year: int) -> str:
    return f'"{year:04d}"^^xsd:gYear'


def _number(value: float) -> str:
    return f'"{value:.6f}"^^xsd:decimal'


def _text(value: str) -> str:
    """Render a Turtle literal, quoted and escaped."""
    safe = _ESCAPED.sub(lambda at: _ESCAPES.get(at[0], f"\\u{ord(at[0]):04X}"), value)
    return f'"{safe}"'
