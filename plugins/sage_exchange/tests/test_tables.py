"""KGX and Neo4j tables hold the graph: read back, nothing is lost that they promise."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from kg.graph.belief import CAUSAL
from kg.graph.model import Graph
from kg.types import EntityType, Polarity
from sage.core.errors import InputError
from sage_exchange.export import export_graph
from tests.kg.gr_helpers import G, bladder, graph, triple

CURIE = r"[^ <()>:]*:[^/ :]+"
"""What KGX's own program takes for an identifier."""


def rows(path: Path, delimiter: str) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as handle:
        quoting = csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL
        return list(csv.DictReader(handle, delimiter=delimiter, quoting=quoting))


@pytest.fixture
def whole() -> Graph:
    denied = triple(
        "FABP5", "CXCL13", types=(G, G), relation="inhibits", polarity=Polarity.NEGATIVE,
        negated=True, doi="10.1/x\ty",
    )  # fmt: skip
    slash = triple("CXCL13", "basal/squamous subtype", types=(G, EntityType.SIGNATURE))
    triples = [*bladder(), denied, slash]
    return graph(triples)


def test_kgx_tables_hold_every_node_and_edge(whole: Graph, tmp_path: Path) -> None:
    written = export_graph(whole, tmp_path / "kgx", "kgx")
    nodes = rows(tmp_path / "kgx" / "nodes.tsv", "\t")
    edges = rows(tmp_path / "kgx" / "edges.tsv", "\t")
    assert [n["name"] for n in nodes] == list(whole.names)
    known = {n["id"]: of for n, of in zip(nodes, whole.ids, strict=True)}
    assert len(known) == len(nodes)
    assert all(re.fullmatch(CURIE, id_) for id_ in known)
    for node in nodes:
        assert node["id"] in node["xref"].split("|") or node["id"].startswith("sage:")
    assert all(n["category"].startswith("biolink:") for n in nodes)
    assert len(edges) == whole.n_edges
    for e, row in enumerate(edges):
        view = whole.edge(e)
        assert (known[row["subject"]], row["relation"], known[row["object"]]) == (
            view.head, view.relation, view.tail,
        )  # fmt: skip
        assert row["polarity"] == view.polarity.value
        assert row["negated"] == str(view.negated).lower()
        assert float(row["belief"]) == pytest.approx(view.belief, rel=1e-4)
        assert row["predicate"].startswith("biolink:")
        assert int(row["first_year"]) == view.first_year
    denied = next(row for row in edges if row["negated"] == "true")
    assert denied["publications"] == "doi:10.1/x y"  # KGX is read without quoting
    assert written.bytes > 0


def test_neo4j_tables_have_the_headers_of_its_import(whole: Graph, tmp_path: Path) -> None:
    export_graph(whole, tmp_path / "neo", "neo4j")
    nodes = rows(tmp_path / "neo" / "nodes.csv", ",")
    edges = rows(tmp_path / "neo" / "edges.csv", ",")
    assert list(nodes[0]) == ["id:ID", "name", "definition", "aliases:string[]", ":LABEL"]
    assert list(edges[0])[:3] == [":START_ID", ":END_ID", ":TYPE"]
    known = {row["id:ID"] for row in nodes}
    assert known == set(whole.ids)
    assert {row[":START_ID"] for row in edges} | {row[":END_ID"] for row in edges} <= known
    assert len(edges) == whole.n_edges


def test_a_quotation_mark_or_a_semicolon_breaks_no_cell(tmp_path: Path) -> None:
    doi = '10.1/x"1<19::AID>3.0.CO;2-Q'
    of = graph([triple('the "M2" state', "CXCL13", types=(G, G), doi=doi)])
    export_graph(of, tmp_path / "kgx", "kgx")
    export_graph(of, tmp_path / "neo", "neo4j")
    assert set(of.names) == {row["name"] for row in rows(tmp_path / "kgx" / "nodes.tsv", "\t")}
    (edge,) = rows(tmp_path / "neo" / "edges.csv", ",")
    assert edge["papers:string[]"].split(";") == ["doi:" + doi.replace(";", "%3B")]


def test_a_sign_alone_is_no_cause(whole: Graph, tmp_path: Path) -> None:
    export_graph(whole, tmp_path / "kgx", "kgx")
    for edge in rows(tmp_path / "kgx" / "edges.tsv", "\t"):
        if edge["predicate"] == "biolink:affects":
            assert edge["relation"] in CAUSAL, edge


@pytest.mark.parametrize("format", ["turtle", "kgx"])
def test_a_file_for_a_folder_and_the_other_way_is_refused(
    whole: Graph, tmp_path: Path, format: str
) -> None:
    place = tmp_path / "there"
    place.touch() if format == "kgx" else place.mkdir()
    with pytest.raises(InputError, match=r"writes a (folder|file)"):
        export_graph(whole, place, format)
