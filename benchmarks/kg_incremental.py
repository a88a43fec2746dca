"""How long one paper more takes: in a graph of real abstracts, and in one of 41,000 nodes.

    python -m benchmarks.kg_incremental --data DATA [--lexicon big.lex]

The abstracts are those of BioRED, BC5CDR and BioNLP-ST 2013 Cancer Genetics (texts only), one note
each. `new process` counts what a fresh interpreter loads (libraries, vocabulary, the embedding
model); `running process` is the second addition in a row, as a server does it. The large graph is
Hetionet's names under synthetic statements: fusion, arrays, sidecar and GraphML, with the vectors
of the names known. Seconds of the wall clock and, beside them, of the processor.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.adapters.corpora import load_corpus
from kg.corpus.build import build
from kg.corpus.build_report import BuildOptions
from kg.embedding.embed import HashingEmbedder
from kg.fusion.fuse import FusionOptions, collector_paused, fuse
from kg.graph import graphml
from kg.graph.model import Graph
from kg.lexicon.index import Lexicon
from kg.lexicon.ontology import Ontology
from kg.types import EntityType, Evidence, Triple

ROOT = Path(__file__).resolve().parents[1]
NODES, STATEMENTS = 41_053, 56_338
_KINDS = {
    "Gene": EntityType.GENE,
    "Disease": EntityType.DISEASE,
    "Compound": EntityType.CHEMICAL,
    "Anatomy": EntityType.TISSUE_REGION,
    "Biological Process": EntityType.BIOLOGICAL_PROCESS,
    "Pathway": EntityType.PATHWAY,
}


def timed(what: str, act: Callable[[], object]) -> None:
    """Run once and print what it took."""
    wall, processor = time.perf_counter(), time.process_time()
    act()
    print(
        f"{what:<48}{time.perf_counter() - wall:8.2f} s  processor "
        f"{time.process_time() - processor:6.2f} s",
        flush=True,
    )


def write_notes(corpora: Path, folder: Path) -> int:
    """One note per abstract; returns how many."""
    texts: dict[str, str] = {}
    for name in ("BioRED/Train.PubTator", "BioRED/Dev.PubTator",
                 "BC5CDR/CDR_TrainingSet.PubTator.txt",
                 "BC5CDR/CDR_DevelopmentSet.PubTator.txt"):  # fmt: skip
        texts |= {document.id: document.text for document in load_corpus(corpora / name)}
    for path in sorted((corpora / "BioNLP2013_CancerGenetics").glob("*/PMID-*.txt")):
        texts[path.stem.removeprefix("PMID-")] = path.read_text(encoding="utf-8")
    for pmid, text in texts.items():
        write_note(folder, pmid, text.partition(". ")[0], text)
    return len(texts)


def write_note(folder: Path, name: str, title: str, text: str) -> None:
    """A note with its title and year."""
    head = f"title: {json.dumps(title[:200])}\nyear: {1990 + len(text) % 30}"
    (folder / f"{name}.md").write_text(f"---\n{head}\n---\n\n{text}\n", encoding="utf-8")


def papers(data: Path, lexicon: Path | None) -> None:
    """One paper added to a graph of all abstracts."""
    ontology = Ontology.load(ROOT / "data" / "ontology")
    lexicons = [Lexicon.load(lexicon)] if lexicon else []
    with tempfile.TemporaryDirectory() as folder:
        notes, out = Path(folder) / "notes", Path(folder) / "graph"
        notes.mkdir()
        print(f"{write_notes(data / 'corpora', notes)} abstracts")

        def again() -> None:
            report = build([notes], out, BuildOptions(workers=1), ontology, lexicons=lexicons)
            print(f"  {report.nodes} nodes, {report.edges} edges, {report.seconds}")

        timed("first build", again)
        for number in (1, 2, 3):
            text = (
                f"FABP5 promotes invasion of bladder cancer {number}. CXCL13 inhibits AKT{number}."
            )
            write_note(notes, f"new-{number}", f"A further study, number {number}", text)
            timed(f"one paper more, running process, {number}", again)


def large(data: Path) -> None:
    """One statement added to a graph of 41,053 names."""
    path = data / "knowledge" / "hetionet" / "hetionet-v1.0-nodes.tsv"
    with path.open(encoding="utf-8", newline="") as handle:
        rows = list(csv.DictReader(handle, delimiter="\t"))
    rng = random.Random(1)
    rng.shuffle(rows)
    names = [(row["name"], _KINDS.get(row["kind"], EntityType.OTHER)) for row in rows[:NODES]]
    triples = []
    for number in range(STATEMENTS):
        (head, head_type), (tail, tail_type) = names[number % NODES], rng.choice(names)
        text = f"{head} was said to act on {tail} in study {number}."
        evidence = Evidence(
            doc_id=f"{number % 8000:064d}", chunk_id="c", section="", start=number,
            end=number + len(text), text=text, title="t", year=2000 + number % 20,
        )  # fmt: skip
        triples.append(
            Triple(
                head=head, head_type=head_type, relation_text="act on", relation="promotes",
                tail=tail, tail_type=tail_type, confidence=0.9, evidence=evidence,
            )
        )  # fmt: skip
    embedder = _Known()
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder) / "pairs.npz"

        def again() -> None:
            with collector_paused():  # as a build does
                fused = fuse(triples, FusionOptions(), embedder, pair_cache=cache)
                graph = Graph.from_fused(fused)
            graph.save_sidecar(Path(folder) / "graph.kg")
            graphml.write(graph, Path(folder) / "graph.graphml")
            print(f"  {graph.n_nodes} nodes, {graph.n_edges} edges")

        timed("all at first", again)
        triples.append(triples[0].model_copy(update={"head": "a name never seen before"}))
        timed("one statement more", again)


class _Known(HashingEmbedder):
    """The hashing embedder with its vectors kept, as the file of vectors keeps a model's."""

    def __init__(self) -> None:
        super().__init__()
        self._vectors: dict[str, np.ndarray] = {}

    def embed(self, texts):  # type: ignore[no-untyped-def]
        missing = [text for text in texts if text not in self._vectors]
        if missing:
            self._vectors.update(zip(missing, super().embed(missing), strict=True))
        return np.stack([self._vectors[text] for text in texts])


def main() -> None:
    """Measure both."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--lexicon", type=Path)
    given = parser.parse_args()
    large(given.data)
    papers(given.data, given.lexicon)


if __name__ == "__main__":
    main()
