"""The compiled term index and the import of large vocabularies."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kg.extract.mentions import MentionFinder
from kg.lexicon.index import Lexicon, LexiconEntry, Term
from kg.lexicon.names import Names
from kg.lexicon.vocabularies import import_lexicons
from kg.types import EntityType
from sage.core.errors import InputError
from tests.kg.in_helpers import ontology


def _compiled(*names: tuple[str, bool]) -> Lexicon:
    entries = [LexiconEntry(f"x:{n}", name, EntityType.GENE) for n, (name, _) in enumerate(names)]
    return Lexicon.compile(entries, [Term(name, n, s) for n, (name, s) in enumerate(names)])


def _found(lexicon: Lexicon, text: str) -> list[str]:
    return [text[m.start : m.end] for m in lexicon.find(text)]


def test_longest_name_wins_and_words_are_not_cut() -> None:
    lexicon = _compiled(("bladder", False), ("bladder cancer", False), ("FABP5", True))
    text = "Bladder cancers, the bladder, FABP5P1 and FABP5."
    assert _found(lexicon, text) == ["Bladder cancers", "bladder", "FABP5"]


def test_offsets_hold_in_text_beyond_the_basic_plane() -> None:
    text = "😀 İstanbul \u202b FABP5 \x00 FABP5"
    assert _found(_compiled(("FABP5", True)), text) == ["FABP5", "FABP5"]


@pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x03\x04 broken"])
def test_a_damaged_index_says_import_again(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.lex"
    path.write_bytes(content)
    with pytest.raises(InputError, match="import the vocabularies again"):
        Lexicon.load(path)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.sampled_from(["alpha", "Beta", "GAMMA7", "x", "9", "é"]), min_size=1, max_size=6),
    st.text(max_size=20),
    st.text(max_size=20),
)
def test_a_name_is_found_between_any_two_texts(words: list[str], left: str, right: str) -> None:
    name = " ".join(words)
    text = f"{left} ; {name} ; {right}"
    spans = [(m.start, m.end) for m in _compiled((name, False)).find(text)]
    assert (len(left) + 3, len(left) + 3 + len(name)) in spans


def _gene_info(path: Path, rows: list[str]) -> Path:
    header = (
        "#tax_id\tGeneID\tSymbol\tSynonyms\tdbXrefs\tdescription\ttype_of_gene\tOther_designations"
    )
    path.write_bytes(gzip.compress("\n".join([header, *rows]).encode()))
    return path


def test_hazardous_aliases_are_left_out_and_counted(tmp_path: Path) -> None:
    source = _gene_info(
        tmp_path / "genes.gz",
        [
            "9606\t2171\tFABP5\tE-FABP|SHARED1\t-\tfatty acid binding protein 5\tprotein-coding\t-",
            "9606\t387934\tFABP5P1\tFABP5\t-\tpseudogene 1\tpseudo\t-",
            "9606\t5\tOTHER1\tFABP5|SHARED1|the\t-\tother one\tprotein-coding\t-",
        ],
    )
    report = import_lexicons([source], tmp_path / "g.lex")
    lexicon = Lexicon.load(tmp_path / "g.lex")
    finder = MentionFinder(ontology(), [lexicon])
    assert [mention.name for mention in finder.find("FABP5, E-FABP, the")] == ["FABP5", "FABP5"]
    assert not finder.find("SHARED1 is high")
    assert set(lexicon.senses) == {"SHARED1", "the"}
    assert report.left_out["alias is another symbol"] == 1
    assert report.left_out["pseudogene or unnamed locus"] == 1


def test_a_family_is_none_of_its_genes(tmp_path: Path) -> None:
    rows = [
        f"9606\t{n}\tGPR{n}\tABK{n}\t-\tG protein-coupled receptor {n}\tprotein-coding\t-"
        for n in range(11, 17)
    ]
    alias = "9606\t148\tADRA1A\tABK\t-\tadrenoceptor\tprotein-coding\tG protein coupled receptor"
    source = _gene_info(tmp_path / "genes.gz", [*rows, alias])
    report = import_lexicons([source], tmp_path / "g.lex")
    lexicon = Lexicon.load(tmp_path / "g.lex")
    text = "G protein-coupled receptor 12; G protein-coupled receptor; ABK; ABKs"
    assert [lexicon.entry(m.entry).name for m in lexicon.find(text)] == ["GPR12", "ADRA1A"]
    assert report.left_out["name of a family"] == 1


def _arrays(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


DAMAGES: dict[str, Callable[[dict[str, np.ndarray]], object]] = {
    r"without owner": lambda a: a.pop("owner"),
    r"without kinds": lambda a: a.pop("kinds"),
    r"owner of the wrong length": lambda a: a.update(owner=a["owner"][:-1]),
    r"names without an entry": lambda a: a.update(owner=a["owner"] + 99),
    r"entries without a type": lambda a: a.update(types=a["types"] + 99),
    r"names out of order": lambda a: a.update(keys=a["keys"][::-1]),
    r"name truncated": lambda a: a.update(name_bytes=a["name_bytes"][:-1]),
    r"unknown types Unheard": lambda a: a["kinds"].__setitem__(0, "Unheard"),
    r"no names": lambda a: a.update(
        {name: a[name][:0] for name in ("keys", "owner", "symbol")}, surface_at=a["surface_at"][:1]
    ),
    r"lexicon format 3, but this": lambda a: a.update(format=np.array([3], dtype=np.int32)),
}


@pytest.mark.parametrize("message", DAMAGES)
def test_a_damaged_lexicon_is_refused_with_the_remedy(tmp_path: Path, message: str) -> None:
    path = tmp_path / "x.lex"
    _compiled(("FABP5", True), ("bladder cancer", False)).save(path)
    assert len(Lexicon.load(path)) == 2
    arrays = _arrays(path)
    DAMAGES[message](arrays)
    with path.open("wb") as handle:
        np.savez(handle, **arrays)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=rf"x\.lex: .*{message}.*import"):
        Lexicon.load(path)


def test_a_vocabulary_without_a_usable_entry_is_refused(tmp_path: Path) -> None:
    row = "9606\t387934\tFABP5P1\tFABP5\t-\tpseudogene 1\tpseudo\t-"
    empty = _gene_info(tmp_path / "empty.gz", [row])
    with pytest.raises(InputError, match=r"empty\.gz: no usable entries"):
        import_lexicons([empty], tmp_path / "x.lex")


def test_a_lexicon_gives_public_identifiers_and_the_ontology_stands_first() -> None:
    entries = [
        LexiconEntry("NCBIGene:1", "A1BG", EntityType.GENE),
        LexiconEntry("NCBIGene:2171", "PAFABP", EntityType.GENE),
        LexiconEntry("MESH:D000544", "Alzheimer Disease", EntityType.DISEASE),
    ]
    terms = [Term(entry.name, at, entry.type == "Gene") for at, entry in enumerate(entries)]
    names = Names(ontology(), [Lexicon.compile(entries, terms)])
    found = {name: names.find(name) for name in ("A1BG", "PAFABP", "Alzheimer Disease", "FABP5")}
    assert {name: entry and entry.identifiers for name, entry in found.items()}["A1BG"] == {
        "NCBIGene": "1"
    }
    assert found["PAFABP"] is found["FABP5"]
    assert found["Alzheimer Disease"] is not None
    assert found["Alzheimer Disease"].identifiers == {"MeSH": "D000544"}
    assert names.find("no such thing") is None
    heard = names.find_all("A1BG binds FABP5")
    assert [(start, entry.name) for start, _, entry in heard] == [(0, "A1BG"), (11, "FABP5")]


def test_words_that_make_a_name_no_gene_hold_for_lexicons_too() -> None:
    names = Names(ontology(), [_compiled(("MET", True), ("TMB", True))])
    assert names.find_all("1,500 MET minutes per week") == []
    assert [entry.id for _, _, entry in names.find_all("TMB")] == ["factor:tumor_mutational_burden"]
