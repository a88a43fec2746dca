"""Turtle and BEL (and CX2 with the same graphs), read back by other libraries."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from pathlib import Path

import pytest
import rdflib
from hypothesis import given, settings
from hypothesis import strategies as st
from ndex2.cx2 import RawCX2NetworkFactory
from rdflib.namespace import PROV, RDF, SKOS

from kg.graph.cx2 import render_cx2
from kg.graph.identifiers import references
from kg.graph.model import Graph
from kg.lexicon.ontology import Ontology
from kg.types import EntityType, Polarity
from sage_exchange.bel import render_bel
from sage_exchange.export import export_graph
from sage_exchange.rdf import concept_iris, render_turtle
from tests.kg.gr_helpers import D, G, bladder, graph, triple

BIOLINK = rdflib.Namespace("https://w3id.org/biolink/vocab/")
SAGE = rdflib.Namespace("urn:sage:vocabulary:")
NASTY = 'a "quoted" \\ <b>\n\tline\r\x01 & é 🧬 {x} |'


@pytest.fixture
def whole() -> Graph:
    """The small bladder graph, a denied edge, a retracted reading and hostile names."""
    triples = [
        *bladder(),
        triple("FABP5", "CXCL13", types=(G, G), relation="inhibits", polarity=Polarity.NEGATIVE,
               negated=True, doi="10.1/x\ty<z>"),
        triple(f"gene {NASTY}", "bladder cancer", types=(G, D), text=NASTY, doi="10.1/nasty"),
        triple("FGFR3", "bladder cancer", types=(G, D), relation="promotes", retracted=True,
               polarity=Polarity.POSITIVE, doi="10.1/gone"),
    ]  # fmt: skip
    return graph(triples)


@pytest.fixture
def public_graph() -> Graph:
    """Statements on entities of the ontology, so that public identifiers are there."""
    from kg.fusion.fuse import fuse
    from kg.fusion.model import FusionOptions
    from kg.lexicon.names import Names
    from tests.kg.gr_helpers import EMBEDDER

    P, N, C = Polarity.POSITIVE, Polarity.NEGATIVE, EntityType.CELL_TYPE
    rows = [
        ("FABP5", G, "promotes", P, "bladder cancer", D),
        ("FGFR3", G, "inhibits", N, "TP53", G),
        ("FGFR3", G, "activates", P, "ERBB2", G),
        ("CXCL13", G, "binds", Polarity.NEUTRAL, "CXCR5", G),
        ("B cell", C, "secretes", P, "CXCL13", G),
        ("CD8 T cell", C, "correlates_with", P, "CXCL13", G),
        ("FABP5", G, "associated_with", N, "bladder cancer", D),
        ("FABP5", G, "prognostic_in", P, "overall survival", EntityType.CLINICAL_ENDPOINT),
        ("FABP5", G, "treats", P, "bladder cancer", D),
    ]
    triples = [
        triple(head, tail, types=(h, t), relation=relation, polarity=sign, doi=f"10.1/{n}",
               doc=f"d{n}", text=f'{head} "{relation}" {tail}.')
        for n, (head, h, relation, sign, tail, t) in enumerate(rows)
    ]  # fmt: skip
    ontology = Ontology.load(Path(__file__).resolve().parents[3] / "data" / "ontology")
    return Graph.from_fused(fuse(triples, FusionOptions(prune_below=1), EMBEDDER, Names(ontology)))


def test_ndex_reads_every_node_and_edge_of_cx2(whole: Graph) -> None:
    read = RawCX2NetworkFactory().get_cx2network(json.loads(render_cx2(whole, "a graph")))
    assert read.get_name() == "a graph"
    nodes, edges = read.get_nodes(), read.get_edges()
    assert [nodes[n]["v"]["represents"] for n in range(whole.n_nodes)] == whole.ids
    assert [nodes[n]["v"]["name"] for n in range(whole.n_nodes)] == whole.names
    assert len(edges) == whole.n_edges
    for e, row in edges.items():
        view = whole.edge(e)
        assert (whole.ids[row["s"]], row["v"]["interaction"], whole.ids[row["t"]]) == (
            view.head, view.relation, view.tail,
        )  # fmt: skip
        assert row["v"]["negated"] is view.negated
        assert row["v"]["belief"] == pytest.approx(view.belief, abs=1e-5)
        assert row["v"].get("first_year") == view.first_year
    document = json.loads(render_cx2(whole, "a graph"))
    assert document[0] == {"CXVersion": "2.0", "hasFragments": False}
    assert document[-1] == {"status": [{"success": True}]}
    counts = {row["name"]: row["elementCount"] for row in document[1]["metaData"]}
    assert all(len(aspect[name]) == counts[name] for aspect in document[2:-1] for name in aspect)


def parse_turtle(graph: Graph) -> rdflib.Graph:
    return rdflib.Graph().parse(data="".join(render_turtle(graph)), format="turtle")


def test_rdflib_reads_concepts_statements_and_their_evidence(whole: Graph) -> None:
    read, iris = parse_turtle(whole), concept_iris(whole)
    for n, iri in enumerate(iris):
        assert str(read.value(rdflib.URIRef(iri), SKOS.prefLabel)) == whole.names[n]
    statements = set(read.subjects(RDF.type, RDF.Statement))
    assert len(statements) == whole.n_edges
    for e in range(whole.n_edges):
        view = whole.edge(e)
        ends = [rdflib.URIRef(iris[int(array[e])]) for array in (whole.head, whole.tail)]
        found = [
            s for s in statements
            if read.value(s, RDF.subject) == ends[0] and read.value(s, RDF.object) == ends[1]
            and read.value(s, RDF.predicate) == SAGE[view.relation]
            and read.value(s, BIOLINK.negated).toPython() is view.negated
        ]  # fmt: skip
        assert len(found) == 1
        direct = (ends[0], SAGE[view.relation], ends[1]) in read
        assert direct or view.negated
        readings = set(read.objects(found[0], PROV.wasDerivedFrom))
        assert Counter(str(read.value(r, PROV.value)) for r in readings) == Counter(
            s.evidence.text for s in view.supports
        )
        assert all(read.value(r, PROV.wasQuotedFrom) is not None for r in readings)
        assert float(read.value(found[0], SAGE.belief)) == pytest.approx(view.belief, abs=1e-5)


def test_a_denied_relation_is_no_triple_that_a_query_would_take_for_a_fact(whole: Graph) -> None:
    read, iris = parse_turtle(whole), concept_iris(whole)
    ends = [rdflib.URIRef(iris[whole.resolve(name)]) for name in ("FABP5", "CXCL13")]
    assert (ends[0], SAGE.inhibits, ends[1]) not in read
    denied = set(read.subjects(BIOLINK.negated, rdflib.Literal(True)))
    assert [(read.value(s, RDF.subject), read.value(s, RDF.object)) for s in denied] == [
        tuple(ends)
    ]


def test_concepts_stand_under_public_identifiers(public_graph: Graph) -> None:
    iris = dict(zip(public_graph.names, concept_iris(public_graph), strict=True))
    assert iris["FABP5"] == "https://identifiers.org/hgnc:3560"
    assert iris["bladder cancer"] == "https://identifiers.org/DOID:11054"
    read = parse_turtle(public_graph)
    same = {str(o) for o in read.objects(rdflib.URIRef(iris["FABP5"]), SKOS.exactMatch)}
    assert same == {"https://identifiers.org/ncbigene:2171"}
    same = {str(o) for o in read.objects(rdflib.URIRef(iris["bladder cancer"]), SKOS.exactMatch)}
    assert "https://identifiers.org/ncit:C4912" in same


def test_two_nodes_with_one_identifier_stay_two(public_graph: Graph) -> None:
    rows = public_graph.node_rows
    shared = [{**rows[n], "identifiers": {"HGNC": "HGNC:1"}} for n in range(public_graph.n_nodes)]
    public_graph.node_rows = shared  # type: ignore[assignment]
    assert len(set(concept_iris(public_graph))) == public_graph.n_nodes


@pytest.mark.parametrize(
    ("identifiers", "first"),
    [
        ({"MeSH": "D001749"}, "https://identifiers.org/mesh:D001749"),
        ({"Cellosaurus": "CVCL_0336"}, "https://identifiers.org/cellosaurus:CVCL_0336"),
        ({"NCBITaxon": "10116"}, "https://identifiers.org/taxonomy:10116"),
        ({"CL": "CL:0000236"}, "https://identifiers.org/CL:0000236"),
        ({"ChEBI": "CHEBI:15365"}, "https://identifiers.org/CHEBI:15365"),
        ({"NCIT": "NCIT:C71011"}, "https://identifiers.org/ncit:C71011"),
        ({"NCIT": "NCIT:C12434", "MeSH": "D001769"}, "https://identifiers.org/mesh:D001769"),
    ],
)
def test_identifiers_become_iris(identifiers: dict[str, str], first: str) -> None:
    assert references(identifiers)[0][2] == first


# -- BEL --------------------------------------------------------------------------------------

_WORD = r'(?:\w+|"(?:[^"\\]|\\.)*")'
_ENTITY = rf'\w+:{_WORD}(?: ! "(?:[^"\\]|\\.)*")?'
_PLAIN = rf"(?:p|a|pop|bp|path)\({_ENTITY}\)"
_TERM = rf"(?:{_PLAIN}|act\({_PLAIN}\)|sec\({_PLAIN}\)|p\({_ENTITY}, pmod\(Ph\)\))"
_VERB = (
    "increases|decreases|regulates|association|positiveCorrelation|negativeCorrelation"
    "|prognosticBiomarkerFor"
)
_LINE = re.compile(
    rf"SET DOCUMENT \w+ = {_WORD}|DEFINE NAMESPACE \w+ AS PATTERN {_WORD}"
    rf"|DEFINE ANNOTATION \w+ AS LIST {{{_WORD}, {_WORD}}}"
    rf"|SET Citation = {{{_WORD}, {_WORD}, {_WORD}}}|SET (?:Evidence|Certainty) = {_WORD}"
    rf"|complex\({_PLAIN}, {_PLAIN}\)|{_TERM} (?:{_VERB}) {_TERM}|"
)


def test_every_line_of_a_script_is_of_the_grammar(whole: Graph, public_graph: Graph) -> None:
    for drawn in (whole, public_graph):
        script = render_bel(drawn, 'a "graph"').text
        assert [line for line in script.splitlines() if not _LINE.fullmatch(line)] == []


def test_bel_says_what_it_can(public_graph: Graph) -> None:
    lines = set(render_bel(public_graph, "known").text.splitlines())
    fabp5, tumor = 'p(HGNC:3560 ! "FABP5")', 'path(DOID:11054 ! "bladder cancer")'
    assert f"{fabp5} increases {tumor}" in lines
    assert f"{fabp5} negativeCorrelation {tumor}" in lines
    assert any(re.fullmatch(r'p\(.*"FGFR3"\) decreases act\(p\(.*"TP53"\)\)', x) for x in lines)
    assert any(re.fullmatch(r'p\(.*"FGFR3"\) increases act\(p\(.*"ERBB2"\)\)', x) for x in lines)
    assert any(re.fullmatch(r'pop\(.*"B cell"\) increases sec\(p\(.*\)\)', x) for x in lines)
    assert any(re.fullmatch(r"complex\(p\(.*\), p\(.*\)\)", line) for line in lines)


def test_what_bel_cannot_say_is_counted(whole: Graph, public_graph: Graph, tmp_path: Path) -> None:
    assert render_bel(public_graph, "known").reasons() == {
        "no BEL function for ClinicalEndpoint": 1,
        "no BEL relation for treats": 1,
    }
    reasons = render_bel(whole, "whole").reasons()
    assert reasons["denied"] == 1 and reasons["retracted paper"] == 1
    done = export_graph(whole, tmp_path / "g.bel", "bel")
    with (tmp_path / "g.bel.left_out.tsv").open(encoding="utf-8", newline="") as handle:
        rows = list(csv.DictReader(handle, delimiter="\t"))
    assert Counter(row["reason"] for row in rows) == reasons
    assert done.note and "denied 1" in done.note


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.text(st.characters(codec="utf-8"), min_size=1, max_size=30),
        min_size=2,
        max_size=2,
        unique=True,
    )
)
def test_no_name_breaks_a_format(names: list[str]) -> None:
    drawn = graph([triple(names[0], names[1], types=(G, D), text=" ".join(names), doi="10.1/a")])
    labels = {str(o) for o in parse_turtle(drawn).objects(None, SKOS.prefLabel)}
    assert labels == set(drawn.names)
    assert json.loads(render_cx2(drawn, "g"))[-1] == {"status": [{"success": True}]}
    assert all(_LINE.fullmatch(line) for line in render_bel(drawn, "g").text.split("\n"))
