"""The build: store, increments, crashes, duplicates, retractions, and the same bytes twice."""

from __future__ import annotations

import itertools
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kg.corpus.build import build
from kg.corpus.chunks import chunk, count_tokens
from kg.corpus.store import Store
from kg.graph.model import Graph
from kg.sources import read_file
from kg.types import Document
from sage.core.errors import InputError
from tests.kg.in_helpers import FAST, ROOT, note, ontology, shared

FINDINGS = [
    "High FABP5 expression is associated with longer overall survival in bladder cancer.",
    "CXCL13 promotes TLS formation in MIBC.",
    "PD-L1 expression is not associated with overall survival in MIBC.",
]


def _corpus(folder: Path, count: int = 6) -> Path:
    genes = [
        "FABP5",
        "CXCL13",
        "USP15",
        "COL3A1",
        "NECTIN4",
        "HER2",
        "CCL21",
        "CD163",
        "FN1",
        "IL6",
    ]
    for number in range(count):
        gene = genes[number % len(genes)]
        note(
            folder, f"n{number:03d}",
            [f"High {gene} expression is associated with shorter overall survival in MIBC.",
             *FINDINGS],
            title=f"The role of {gene} in bladder cancer, study number {number}",
            year=2010 + number,
        )  # fmt: skip
    return folder


def test_a_build_keeps_grounded_triples_and_writes_the_graph(tmp_path: Path) -> None:
    report = build([_corpus(tmp_path / "in")], tmp_path / "out", FAST, ontology())
    assert (report.documents, report.files_read, report.chunks) == (6, 6, 6)
    assert report.triples > 20
    assert report.triples_negated >= 6
    assert report.grounding == 1.0
    assert {"read", "extract", "fuse", "write"} <= set(report.seconds)
    assert report.nodes > 5
    with Store(tmp_path / "out" / "store.sqlite") as store:
        documents = {d.id: d for d in store.documents()}
        for triple in store.triples():
            e = triple.evidence
            assert documents[e.doc_id].text[e.start : e.end] == e.text
            assert triple.relation_text in e.text


HASHED = FAST.model_copy(update={"embedder": "hashing"})


def _graph_is_that_of_a_full_build(notes: Path, out: Path) -> Graph:
    """Build `notes` into `out` and into a new folder: arrays, vectors and GraphML are the same."""
    build([notes], out, HASHED, ontology())
    with TemporaryDirectory() as folder:
        whole = Path(folder)
        build([notes], whole, HASHED, ontology())
        for name in ("graph.graphml", "graph.kg/meta.json"):  # the latter has the arrays' hash
            assert (out / name).read_bytes() == (whole / name).read_bytes()
    return Graph.load(out)


@settings(max_examples=6, deadline=None)
@given(
    st.permutations(range(6)), st.integers(1, 5), st.sampled_from(["kept", "removed", "retracted"])
)
def test_papers_added_one_by_one_give_the_graph_of_one_build(
    order: list[int], first: int, at_last: str
) -> None:
    said = (
        "FABP5 promotes invasion of bladder cancer.",
        "Fatty acid-binding protein 5 inhibits apoptosis; CXCL13 promotes invasion.",
        "E-FABP does not promote invasion of bladder cancer. Vorzumab inhibits apoptosis.",
        "CXCL13 is associated with overall survival in bladder cancer.",
        "Tertiary lymphoid structures are associated with overall survival. FABP5 inhibits AKT1.",
        "CXCL13 inhibits vorzumab. FABP5 inhibits vorzumab.",
    )
    with TemporaryDirectory() as folder:
        notes, out = Path(folder) / "notes", Path(folder) / "steps"
        for place, number in enumerate(order):
            note(notes, f"paper-{number}", [said[number]], year=2000 + number)
            if first <= place + 1 < len(order):
                build([notes], out, HASHED, ontology())
        graph = _graph_is_that_of_a_full_build(notes, out)
        assert graph.exact("FABP5") is not None
        if at_last == "removed":
            (notes / f"paper-{order[0]}.md").unlink()
        elif at_last == "retracted":
            note(notes, f"paper-{order[0]}", [said[order[0]]], year=2000, retracted="true")
        if at_last != "kept":
            after = _graph_is_that_of_a_full_build(notes, out)
            assert len(after.reading_edge) < len(graph.reading_edge)


def test_a_node_is_renamed_when_another_spelling_becomes_more_frequent(tmp_path: Path) -> None:
    notes, out = tmp_path / "notes", tmp_path / "out"
    note(notes, "first", ["Vorzumab inhibits apoptosis."])
    named = [_graph_is_that_of_a_full_build(notes, out).ids]
    for gene in ("FABP5", "CXCL13"):
        note(notes, gene, [f"{gene} inhibits vorzumab."])
        named.append(_graph_is_that_of_a_full_build(notes, out).ids)
    (notes / "FABP5.md").unlink()
    named.append(_graph_is_that_of_a_full_build(notes, out).ids)
    drugs = [[id_ for id_ in ids if id_.startswith("Chemical:")] for ids in named]
    capital, small = ["Chemical:Vorzumab"], ["Chemical:vorzumab"]
    assert drugs == [capital, capital, small, capital]  # the capital comes first in a tie


def test_as_of_leaves_out_what_came_later(tmp_path: Path) -> None:
    corpus = _corpus(tmp_path / "in")
    options = FAST.model_copy(update={"as_of": 2012})
    full = build([corpus], tmp_path / "out", FAST, ontology())
    past = build([corpus], tmp_path / "out", options, ontology())
    assert 0 < past.triples < full.triples
    with Store(tmp_path / "out" / "store.sqlite") as store:
        assert {t.evidence.year for t in store.triples(as_of=2012)} == {2010, 2011, 2012}


def test_retracted_papers_are_left_out_unless_asked_for(tmp_path: Path) -> None:
    corpus = _corpus(tmp_path / "in", 3)
    note(corpus, "bad", ["USP15 promotes metastasis in MIBC."], retracted="true",
         title="A retracted paper about USP15 in bladder cancer cells")  # fmt: skip
    without = build([corpus], tmp_path / "a", FAST, ontology())
    options = FAST.model_copy(update={"include_retracted": True})
    included = build([corpus], tmp_path / "b", options, ontology())
    assert without.retracted == included.retracted == 1
    assert [e.reason for e in without.excluded] == ["retracted"]
    assert included.triples > without.triples


def test_one_paper_under_two_names_counts_once_and_takes_what_it_lacks(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    note(folder, "long", FINDINGS, title="The same paper on FABP5 in bladder cancer patients",
         doi="10.1000/same")  # fmt: skip
    note(folder, "short", FINDINGS[:1], title="The same paper on FABP5 in bladder cancer patients",
         doi="10.1000/SAME", pmid="123", retracted="true")  # fmt: skip
    options = FAST.model_copy(update={"include_retracted": True})
    report = build(list(folder.iterdir()), tmp_path / "out", options, ontology())
    assert (report.documents, report.duplicates) == (1, 1)
    with Store(tmp_path / "out" / "store.sqlite") as store:
        (document,) = store.documents()
        assert (document.pmid, document.retracted) == ("123", True)
    with closing(sqlite3.connect(tmp_path / "out" / "store.sqlite")) as database:
        ((reason,),) = database.execute("SELECT reason FROM corpus WHERE included = 0")
    assert "duplicate of" in reason


def test_conflicting_identifiers_keep_papers_apart_and_are_told(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    for name, pmid in (("a", "111"), ("b", "222")):
        note(folder, name, FINDINGS, title=f"Paper {name} about bladder cancer and much more text",
             doi="10.1000/same", pmid=pmid)  # fmt: skip
    report = build([folder], tmp_path / "out", FAST, ontology())
    assert report.documents == 2
    assert any("disagree on PMID (222, 111)" in n or "disagree on PMID (111, 222)" in n
               for n in report.notes)  # fmt: skip


def test_a_corpus_of_which_nothing_can_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    with pytest.raises(InputError, match="no papers found; give PDF"):
        build([tmp_path / "in"], tmp_path / "out", FAST, ontology())
    (tmp_path / "in" / "x.json").write_text("{}")
    (tmp_path / "in" / "a.pdf").write_bytes(b"no pdf")
    with pytest.raises(InputError, match=r"a\.pdf: not a PDF.*x\.json: unsupported file type"):
        build([tmp_path / "in"], tmp_path / "out", FAST, ontology())
    assert not (tmp_path / "out" / "graph.graphml").exists()


_KILLED = """
import sys, time
from pathlib import Path
from kg.corpus.build import build
from kg.corpus.store import Store
from kg.graph.model import Graph
from tests.kg.in_helpers import FAST, ontology

slow = Store.add_extraction
def add(self, *given):
    slow(self, *given)
    self.commit()
    print("one", flush=True)
    time.sleep(0.05)
Store.add_extraction = add
build([Path(sys.argv[1])], Path(sys.argv[2]), FAST, ontology())
"""


def test_a_build_killed_in_the_middle_goes_on_where_it_stopped(tmp_path: Path) -> None:
    corpus = _corpus(tmp_path / "in", 40)
    process = subprocess.Popen(
        [sys.executable, "-c", _KILLED, str(corpus), str(tmp_path / "killed")],
        cwd=ROOT, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    for _ in range(5):
        assert process.stdout.readline() == "one\n"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    report = build([corpus], tmp_path / "killed", FAST, ontology())
    assert 5 <= report.chunks_cached < 40
    build([corpus], tmp_path / "whole", FAST, ontology())
    killed, whole = ((tmp_path / n / "graph.graphml").read_bytes() for n in ("killed", "whole"))
    assert killed == whole


def test_the_store_refuses_to_change_what_was_read(tmp_path: Path) -> None:
    build([_corpus(tmp_path / "in", 2)], tmp_path / "out", FAST, ontology())
    db = sqlite3.connect(tmp_path / "out" / "store.sqlite")
    for statement in ("DELETE FROM statements", "UPDATE mentions SET name = 'x'"):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            db.execute(statement)
    db.close()


def test_a_foreign_file_in_place_of_the_store_is_named(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "store.sqlite").write_bytes(b"something else entirely" * 100)
    with pytest.raises(InputError, match="not a SAGE store"):
        build([_corpus(tmp_path / "in", 1)], tmp_path / "out", FAST, ontology())


def test_chunks_are_whole_sentences_that_overlap_and_cover_the_text() -> None:
    text = " ".join(f"Sentence number {n} speaks of the gene." for n in range(400))
    document = Document(id="d" * 64, path="x", title="t", text=text)
    pieces = list(chunk(document, tokens=200, overlap=40))
    assert len(pieces) > 5
    for before, after in itertools.pairwise(pieces):
        assert after.start < before.end, "chunks overlap"
        assert after.start > before.start
        assert before.text.endswith(".")
        assert after.text.startswith("Sentence")
    assert pieces[0].start == 0
    assert pieces[-1].end == len(text)
    assert all(p.tokens == count_tokens(p.text) <= 200 for p in pieces)
    assert all(text[p.start : p.end] == p.text for p in pieces)


def test_what_was_read_in_an_overlap_counts_once(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    filler = " ".join(f"Filler sentence number {n} is here." for n in range(12))
    text = f"{filler} CXCL13 promotes TLS formation. {filler}"
    (folder / "a.txt").write_text(text)
    options = FAST.model_copy(update={"chunk_tokens": 60, "chunk_overlap": 30})
    report = build([folder], tmp_path / "out", options, ontology())
    assert report.chunks > 3
    assert report.triples == 1


def test_the_demonstration_corpus_builds_in_seconds(tmp_path: Path) -> None:
    corpus = ROOT / "data" / "corpus"
    start = time.process_time()
    report = build([corpus], tmp_path / "out", FAST, ontology())
    assert time.process_time() - start < 10
    assert report.files_failed == 0
    assert report.retracted == 4
    assert report.triples > 400
    with Store(tmp_path / "out" / "store.sqlite") as store:
        facts = {(t.head, t.tail, "negated" if t.negated else t.polarity.value)
                 for t in store.triples()}  # fmt: skip
    assert ("FABP5", "overall survival", "positive") in facts
    assert ("FABP5", "overall survival", "negative") in facts
    assert ("tertiary lymphoid structure", "tumor stage", "positive") in facts
    assert ("tertiary lymphoid structure", "prognosis", "positive") in facts
    assert ("metformin", "overall survival", "negated") in facts


@pytest.mark.shared
def test_shared_articles_in_pdf_are_read_by_worker_processes(tmp_path: Path) -> None:
    options = FAST.model_copy(update={"workers": 2})
    report = build([shared("literature", "biomedical")], tmp_path / "out", options, ontology())
    assert report.files_read == 5
    assert report.pages == 46
    assert report.tiers["pypdfium2"] == 5
    assert read_file(shared("literature", "biomedical", "peerj_ccby.pdf")).report.pages == 16
