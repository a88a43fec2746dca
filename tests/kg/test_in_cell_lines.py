"""Cell lines: by the vocabulary, kept apart from genes and from types of cells."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kg.corpus.textnorm import abbreviations
from kg.extract.mentions import MentionFinder
from kg.graph.model import Graph
from kg.lexicon.index import Lexicon
from kg.types import EntityType
from sage.cli.kg import app
from sage_exchange.vocabularies import import_lexicons
from tests.kg.in_helpers import extractor, note, ontology, said

RUN = CliRunner()


def lines(text: str, finder: MentionFinder | None = None) -> list[str]:
    """The names of cell lines that are found in a text, as the text writes them."""
    finder = finder or extractor().mentions
    found = finder.find(text, sorted(abbreviations(text).items()))
    return [text[m.start : m.end] for m in found if m.type is EntityType.CELL_LINE]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("MDA-MB-231 and HepG2 were treated.", ["MDA-MB-231", "HepG2"]),
        ("HeLa cells and 5637 cells", ["HeLa", "5637"]),
        ("CD8 T cells, CD14 monocytes, Th17 cells and Tr1 cells were counted.", []),
        ("FABP5 cells and FABP5-positive cells were counted.", []),
        ("5637 patients were seen.", []),
    ],
)
def test_a_cell_line_is_a_name_that_the_vocabulary_has(text: str, expected: list[str]) -> None:
    assert lines(text) == expected


def test_what_cells_of_a_line_do_is_said_of_the_line() -> None:
    assert ("PC-3", "secretes", "IL6", "positive") in said("PC-3 cells secrete IL-6.")


def test_a_line_is_a_node_of_its_own_type_and_no_path_runs_through_it(tmp_path: Path) -> None:
    others = ["CXCL13 inhibits TGFB1.", "CXCL13 promotes angiogenesis.", "FGF2 inhibits CD44."]
    note(tmp_path / "in", "a", ["CXCL13 inhibits PC-3 cells.", "PC-3 cells secrete FGF2.", *others])
    out = str(tmp_path / "g")
    built = RUN.invoke(app, ["build", str(tmp_path / "in"), "--out", out, "--embedder", "none"])
    assert built.exit_code == 0, built.output
    graph = Graph.load(Path(out) / "graph.kg")
    types = dict(zip(graph.names, (graph.node(n).type for n in range(graph.n_nodes)), strict=True))
    assert types["PC-3"] is EntityType.CELL_LINE
    asked = ["paths", "--graph", out, "CXCL13", "FGF2", "--json"]
    assert json.loads(RUN.invoke(app, asked).stdout)["paths"] == []
    alike = json.loads(RUN.invoke(app, [*asked, "--co-study"]).stdout)["paths"]
    assert "PC-3" in json.dumps(alike)


def test_cellosaurus_and_mesh_lines_are_imported_without_their_hazardous_names(
    tmp_path: Path,
) -> None:
    (tmp_path / "c.obo").write_text(
        "format-version: 1.2\n\n[Term]\nid: CVCL_9999\nname: ZX-77\n"
        'synonym: "ZX77" RELATED []\nsynonym: "EJ" RELATED []\nsynonym: "Paris" RELATED []\n'
    )
    (tmp_path / "terms.tsv").write_text("mesh_id\tmesh_name\nD1\tQT-4 Cells\nD2\tMacrophages\n")
    (tmp_path / "tree.txt").write_text("A11.251.210.9\tQT-4 Cells\nA11.733\tMacrophages\n")
    import_lexicons([tmp_path / n for n in ("c.obo", "terms.tsv", "tree.txt")], tmp_path / "x.lex")
    finder = MentionFinder(ontology(), [Lexicon.load(tmp_path / "x.lex")])
    text = "EJ; Paris; ZX77; QT-4 cells; macrophages"
    found = finder.find(text)
    assert [(text[m.start : m.end], m.entity_id) for m in found if m.type == "CellLine"] == [
        ("ZX77", "CVCL_9999"), ("QT-4", "MESH:D1"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("In C. elegans and Danio rerio", ["C. elegans", "Danio rerio"]),
        ("guinea pigs and rhesus monkeys", ["guinea pigs", "rhesus monkeys"]),
        ("human immunodeficiency virus in humans", ["human immunodeficiency virus", "humans"]),
        ("human chorionic gonadotropin; Mendelian Inheritance in Man", []),
        ("knocked-out mice (KOM). In KOM it fell.", ["mice"]),
    ],
)
def test_species_by_their_whole_names(text: str, expected: list[str]) -> None:
    found = extractor().mentions.find(text, sorted(abbreviations(text).items()))
    assert [text[m.start : m.end] for m in found if m.type is EntityType.ORGANISM] == expected
