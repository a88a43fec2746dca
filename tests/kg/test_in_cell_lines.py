"""Cell lines: named by the words around them, kept apart from genes and from types of cells."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kg.corpus.textnorm import abbreviations
from kg.extract.mentions import MentionFinder
from kg.graph.model import Graph
from kg.lexicon.index import Lexicon, LexiconEntry, Term
from kg.lexicon.vocabularies import import_lexicons
from kg.types import EntityType
from sage.cli.kg import app
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
        ("Invasion of ZX-77, QT14B2 or LK-C5 cells was reduced.", ["ZX-77", "QT14B2", "LK-C5"]),
        ("Two lines of glioma, the cell lines ZX-77 and Kolmar, grew.", ["ZX-77", "Kolmar"]),
        ("A human lung cancer cell ZX77 was used.", ["ZX77"]),
        ("Proximal tubule epithelial cells (ZX-7) were used.", ["ZX-7"]),
        ("ZX-77/Dx5 (a human uterine sarcoma cell line) resists.", ["ZX-77/Dx5"]),
        ("Mice bore ZX-77 hepatoma tumors.", ["ZX-77"]),
        ("ZX-77 cells grew. Silencing in ZX-77 had no effect.", ["ZX-77", "ZX-77"]),
        ("HEK cells, Ishikawa cells and RAW 264.7 cells", ["HEK", "Ishikawa", "RAW 264.7"]),
        ("MDA-MB-231 and HepG2 were treated.", ["MDA-MB-231", "HepG2"]),
    ],
)
def test_a_name_that_the_text_calls_cells_is_a_cell_line(text: str, expected: list[str]) -> None:
    assert lines(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "CD8 T cells, CD14 monocytes, Th17 cells and Tr1 cells were counted.",
        "FABP5 cells and FABP5-positive cells were counted.",
        "HPV16 cells and HIV-1 cells were treated.",
        "Both cell lines grew. These cell lines died.",
        "The mutation V600E in cells was found.",
        "IL-3 and IL-3/CSF-1 cells lacked the antigen.",
        "5637 patients were seen.",
        "Quiescent tumor cells of type 4 (QT4) were rare. QT4 cells were counted.",
    ],
)
def test_markers_genes_viruses_and_subsets_are_no_cell_lines(text: str) -> None:
    assert lines(text) == []


def test_a_gene_of_the_vocabulary_is_a_line_only_where_the_text_says_cell_line() -> None:
    entries = [LexiconEntry("NCBIGene:1", "ZXA2", EntityType.GENE)]
    lexicon = Lexicon.compile(entries, [Term("ZXA-2", 0, True)])
    finder = MentionFinder(ontology(), [lexicon])
    assert lines("ZXA-2 cells grew.", finder) == []
    assert lines("The cell line ZXA-2 grew, and ZXA-2 was lost.", finder) == ["ZXA-2"]
    assert lines("ZXA-2 and QT-77 cells grew.", finder) == ["ZXA-2", "QT-77"]


def test_what_cells_of_a_line_do_is_said_of_the_line() -> None:
    assert ("PC-3", "secretes", "IL6", "positive") in said("PC-3 cells secrete IL-6.")
    assert ("HK2", "overexpressed_in", "HK-2", "positive") in said(
        "HK2 is overexpressed in HK-2 cells."
    )


def test_a_line_is_a_node_of_its_own_type_and_no_path_runs_through_it(tmp_path: Path) -> None:
    others = ["CXCL13 inhibits TGFB1.", "CXCL13 promotes angiogenesis.", "FGF2 inhibits CD44."]
    note(
        tmp_path / "in", "a", ["CXCL13 inhibits ZX-77 cells.", "ZX-77 cells secrete FGF2.", *others]
    )
    out = str(tmp_path / "g")
    built = RUN.invoke(app, ["build", str(tmp_path / "in"), "--out", out, "--embedder", "none"])
    assert built.exit_code == 0, built.output
    graph = Graph.load(Path(out) / "graph.kg")
    types = dict(zip(graph.names, (graph.node(n).type for n in range(graph.n_nodes)), strict=True))
    assert types["ZX-77"] is EntityType.CELL_LINE
    asked = ["paths", "--graph", out, "CXCL13", "FGF2", "--json"]
    found = json.loads(RUN.invoke(app, asked).stdout)
    assert found["paths"] == [] and "ZX-77" in json.dumps(found["notes"])


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


@pytest.mark.parametrize("text", ["A1, " * 20_000, "A1 (x), " * 10_000, "A1 human " * 10_000])
@pytest.mark.timeout(60)
def test_a_hostile_text_takes_no_longer_than_its_length(text: str) -> None:
    assert lines(text) == []


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
