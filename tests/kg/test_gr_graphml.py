"""GraphML: it opens elsewhere, comes back whole, and cannot attack."""

from __future__ import annotations

from pathlib import Path

import networkx as nx
import pytest

from kg.graph import graphml, graphml_read
from kg.graph.model import Graph
from sage.core.errors import InputError
from tests.kg.gr_helpers import bladder, graph, triple

HEAD = '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">'


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "foreign.graphml"
    path.write_text(text, encoding="utf-8")
    return path


def test_networkx_reads_what_is_written(tmp_path: Path) -> None:
    g = graph(bladder())
    other = nx.read_graphml(graphml.write(g, tmp_path / "g.graphml"))
    assert (other.number_of_nodes(), other.number_of_edges()) == (9, 12)
    assert other.nodes["Gene:FABP5"]["type"] == "Gene"
    relations = {d["relation"] for _, _, d in other.out_edges("Gene:FABP5", data=True)}
    assert relations == {"regulates", "inhibits"}
    assert all(isinstance(d["weight"], float) for _, _, d in other.edges(data=True))


def test_reading_back_loses_nothing_but_vectors(tmp_path: Path) -> None:
    g = graph(bladder())
    back = Graph.load(graphml.write(g, tmp_path / "g.graphml"))
    assert [back.edge(n) for n in range(back.n_edges)] == [g.edge(n) for n in range(g.n_edges)]
    assert back.merges() == g.merges()
    assert back.node("TLS").name == "tertiary lymphoid structures"
    again = graphml.write(back, tmp_path / "again.graphml")
    assert again.read_bytes() == (tmp_path / "g.graphml").read_bytes()


def test_names_with_markup_and_control_characters_stay_well_formed(tmp_path: Path) -> None:
    g = graph([triple('a <b> & "c"', "d\x01e", text="x < y \x0b & z ]]>")])
    back = nx.read_graphml(graphml.write(g, tmp_path / "g.graphml"))
    assert {d["name"] for _, d in back.nodes(data=True)} == {'a <b> & "c"', "d e"}


def test_a_foreign_graph_with_its_own_attributes_is_understood(tmp_path: Path) -> None:
    g = nx.DiGraph()
    g.add_node("n1", label="FABP5", category="Gene", color="#ff0000")
    g.add_node("n2", label="bladder cancer", category="disease")
    g.add_edge("n1", "n2", predicate="promotes", weight=2.5, thickness=3)
    nx.write_graphml(g, tmp_path / "foreign.graphml")
    got = Graph.load(tmp_path / "foreign.graphml")
    assert got.node("FABP5").type == "Gene"
    assert got.node("bladder cancer").type == "Disease"
    edge = got.evidence("FABP5", "bladder cancer")[0]
    assert (edge.relation, edge.weight, edge.belief, edge.supports) == ("promotes", 2.5, 1.0, ())
    assert got.meta["foreign"] == {"edge.thickness": 1, "node.color": 1}


@pytest.mark.parametrize(
    "doctype",
    [
        '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;">]>',
        '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/hostname">]>',
        '<!DOCTYPE x SYSTEM "http://127.0.0.1:9/x.dtd">',
    ],
)
def test_bombs_and_external_entities_are_refused(tmp_path: Path, doctype: str) -> None:
    body = f'{doctype}{HEAD}<graph edgedefault="directed"><node id="&a;"/></graph></graphml>'
    with pytest.raises(InputError, match="DTD or entities"):
        graphml_read.read_graphml(write(tmp_path, body))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("<html><body/></html>", "not GraphML"),
        (f"{HEAD}<graph><node id='a'/>", "not well-formed"),
        ("", "not well-formed"),
        (f"{HEAD}<graph><node id='a'/><node id='a'/></graph></graphml>", "two nodes"),
        (f"{HEAD}<graph><node/></graph></graphml>", "no ID"),
        (f"{HEAD}<graph><node id='a'/><edge source='a' target='b'/></graph></graphml>", '"b"'),
        (f"{HEAD}<key id='w' for='edge' attr.name='weight'/><graph><node id='a'/>"
         "<edge source='a' target='a'><data key='w'>heavy</data></edge></graph></graphml>",
         "not a number"),
        (f"{HEAD}<key id='e' for='edge' attr.name='evidence'/><graph><node id='a'/>"
         "<edge source='a' target='a'><data key='e'>[{}]</data></edge></graph></graphml>",
         "evidence for edge 1"),
        (f"{HEAD}<key id='e' for='node' attr.name='aliases'/><graph>"
         "<node id='a'><data key='e'>{</data></node></graph></graphml>", "not valid JSON"),
    ],
)  # fmt: skip
def test_bad_graphml_names_the_file_and_the_fault(tmp_path: Path, body: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        graphml_read.read_graphml(write(tmp_path, body))
    assert "foreign.graphml" in str(caught.value)
