"""Text half of the graph package beside its peers, in one run.

    python benchmarks/kg_text.py --data ../shared/data [--json]

Measured: pages per second of article PDFs with two workers and per CPU-second of each library;
loading and matching of a compiled lexicon beside pyahocorasick; rules on running text; a build, the
same build again, and with ten papers more; the scores on BioRED.
"""

from __future__ import annotations

import argparse
import io
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def cpu(function: Callable[[], Any], repeats: int = 3) -> tuple[float, Any]:
    """Least CPU seconds of `repeats` calls, and the result."""
    best, result = float("inf"), None
    for _ in range(repeats):
        start = time.process_time()
        result = function()
        best = min(best, time.process_time() - start)
    return best, result


def articles(data: Path) -> list[Path]:
    """Article PDFs with a text layer."""
    folders = ("biomedical", "bladder")
    found = [p for f in folders for p in sorted((data / "literature" / f).glob("*.pdf"))]
    return [p for p in found if "image_only" not in p.name]


def pages_with(library: str, paths: list[Path]) -> int:
    """Read all pages by one library; returns how many."""
    count = 0
    for path in paths:
        blob = path.read_bytes()
        if library == "pypdfium2":
            import pypdfium2

            document = pypdfium2.PdfDocument(blob)
            for page in document:
                page.get_textpage().get_text_bounded()
                count += 1
        elif library == "pypdf":
            from pypdf import PdfReader

            for page in PdfReader(io.BytesIO(blob)).pages:
                page.extract_text()
                count += 1
        else:
            import pdfplumber

            with pdfplumber.open(io.BytesIO(blob)) as document:
                for page in document.pages:
                    page.extract_text()
                    count += 1
    return count


def read_one(path: Path) -> int:
    """Pages of a file by the package's own reader."""
    from kg.sources import read_file

    return read_file(path).report.pages or 0


def pdf(data: Path) -> dict[str, Any]:
    """Pages per second: own reader with two workers, and libraries per CPU-second."""
    paths = articles(data)
    copies = paths * 12
    with ProcessPoolExecutor(2, mp_context=get_context("forkserver")) as pool:
        list(pool.map(read_one, paths[:2]))
        start = time.perf_counter()
        pages = sum(pool.map(read_one, copies, chunksize=1))
        wall = time.perf_counter() - start
    single, count = cpu(lambda: sum(read_one(path) for path in paths))
    result: dict[str, Any] = {
        "pages": pages,
        "own, 2 workers, pages/s": round(pages / wall, 1),
        "own, pages/CPU-s": round(count / single, 1),
    }
    for library in ("pypdfium2", "pypdf", "pdfplumber"):
        repeats = 3 if library == "pypdfium2" else 1
        seconds, count = cpu(lambda library=library: pages_with(library, paths), repeats)
        result[f"{library}, pages/CPU-s"] = round(count / seconds, 1)
    return result


def vocabularies(data: Path) -> list[Path]:
    """The public vocabularies that are imported."""
    k = data / "knowledge"
    return [
        k / "genes" / "Homo_sapiens.gene_info.gz", k / "obo" / "DO_cancer_slim.obo",
        k / "mesh" / "terms.tsv", k / "mesh" / "mesh_terms.txt", k / "mesh" / "symptoms.tsv",
        k / "obo" / "goslim_generic.obo", k / "obo" / "hetio-slim.tsv",
    ]  # fmt: skip


def lexicon(data: Path, path: Path) -> dict[str, Any]:
    """Import, load and match, beside an automaton over the same spellings."""
    import ahocorasick

    from kg.lexicon.index import Lexicon
    from sage_exchange.vocabularies import import_lexicons

    start = time.perf_counter()
    report = import_lexicons(vocabularies(data), path)
    imported = time.perf_counter() - start
    loading, loaded = cpu(lambda: Lexicon.load(path), 5)
    text = (data / "corpora" / "BioRED" / "Train.PubTator").read_text()[:1_500_000]
    matching, matches = cpu(lambda: loaded.find(text))
    names = [loaded.entry(i).name.lower() for i in range(len(loaded))]
    automaton = ahocorasick.Automaton()
    for number, name in enumerate(names):
        automaton.add_word(name, number)
    automaton.make_automaton()
    lowered = text.lower()
    peer, _ = cpu(lambda: sum(1 for _ in automaton.iter(lowered)))
    return {
        "entries": report.entries,
        "spellings": report.terms,
        "import s": round(imported, 2),
        "file MB": round(path.stat().st_size / 1e6, 1),
        "load s": round(loading, 4),
        "match MB/s": round(len(text) / 1e6 / matching, 1),
        "matches": len(matches),
        "pyahocorasick, one spelling per entry, no word boundaries, MB/s": round(
            len(text) / 1e6 / peer, 1
        ),
    }


def rules(data: Path, lexicon_path: Path) -> dict[str, Any]:
    """Rules on the BioRED abstracts, and their scores on train and dev."""
    from benchmarks.adapters.extraction import score_extractor
    from benchmarks.corpora import load_corpus
    from kg.corpus.chunks import chunk
    from kg.extract.rules import RulesExtractor
    from kg.lexicon.index import Lexicon
    from kg.lexicon.ontology import Ontology
    from kg.types import Document

    ontology = Ontology.load(ROOT / "data" / "ontology")
    lexicons = [Lexicon.load(lexicon_path)]
    extractor = RulesExtractor(ontology, lexicons)
    corpora = data / "corpora" / "BioRED"
    documents = load_corpus(corpora / "Train.PubTator")
    pieces = [
        piece
        for document in documents
        for piece in chunk(Document(id="0" * 64, path="", title="", text=document.text))
    ]
    size = sum(len(piece.text) for piece in pieces) / 1e6
    seconds, _ = cpu(lambda: [extractor.read_chunk(piece) for piece in pieces], 2)
    result: dict[str, Any] = {"rules MB/CPU-s": round(size / seconds, 2)}
    for name in ("Train", "Dev"):
        score = score_extractor(corpora / f"{name}.PubTator", ontology, lexicons)
        result[f"BioRED {name}"] = score.table()
    return result


def builds() -> dict[str, Any]:
    """The demonstration corpus: first build, again, and with ten notes more."""
    from kg.corpus.build import build
    from kg.corpus.build_report import BuildOptions
    from kg.lexicon.ontology import Ontology

    ontology = Ontology.load(ROOT / "data" / "ontology")
    options = BuildOptions()
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "corpus"
        notes = sorted((ROOT / "data" / "corpus").glob("*.md"))
        corpus.mkdir()
        for note in notes[:-10]:
            shutil.copy(note, corpus)
        out = Path(folder) / "out"
        for step in ("first", "again", "ten more"):
            if step == "ten more":
                for note in notes[-10:]:
                    shutil.copy(note, corpus)
            start = time.perf_counter()
            report = build([corpus], out, options, ontology)
            result[step] = {
                "seconds": round(time.perf_counter() - start, 2),
                "documents": report.documents,
                "chunks read": report.chunks - report.chunks_cached,
                "triples": report.triples,
                "stages": report.seconds,
            }
    return result


def main() -> None:
    """Run all and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "big.lex"
        results = {
            "pdf": pdf(arguments.data),
            "lexicon": lexicon(arguments.data, path),
            "rules": rules(arguments.data, path),
            "build": builds(),
        }
    if arguments.json:
        print(json.dumps(results, indent=1))
        return
    for part, values in results.items():
        print(f"\n{part}")
        for name, value in values.items():
            print(f"  {name}: {json.dumps(value) if isinstance(value, dict) else value}")


if __name__ == "__main__":
    main()
