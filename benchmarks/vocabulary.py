"""Build the vocabulary that ships: `python -m benchmarks.vocabulary SHARED`.

Reads the public tables in SHARED/knowledge and, as evidence of what short and common names mean,
word frequencies (`pip install wordfreq`) and texts in SHARED/corpora that take no part in any
evaluation: the annotated training parts of BC2GM, NCBI Disease, CRAFT, BioRED and BC5CDR, and the
development halves of abstracts.
"""

from __future__ import annotations

import csv
import gzip
import json
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from benchmarks.corpora import load_corpus
from kg.corpus.textnorm import abbreviations
from kg.lexicon.index import Lexicon
from kg.lexicon.vocabularies import Evidence, import_lexicons
from kg.types import EntityType
from sage.core.data import data_root

TABLES = (
    "genes/Homo_sapiens.gene_info.gz", "obo/DO_cancer_slim.obo", "mesh/terms.tsv",
    "mesh/mesh_terms.txt", "mesh/symptoms.tsv", "obo/goslim_generic.obo",
    "hetionet/hetionet-v1.0-nodes.tsv",
)  # fmt: skip
Spans = list[tuple[int, int, EntityType]]
_GENE, _DISEASE, _CHEMICAL = EntityType.GENE, EntityType.DISEASE, EntityType.CHEMICAL
_SAME = {EntityType.PROTEIN: _GENE, EntityType.TREATMENT: _CHEMICAL}
_COMMON_FROM = 4.3
_SEEN_FROM, _MEANT_BELOW = 3, 1 / 3


def read_iob(path: Path, types: dict[str, EntityType]) -> Iterator[tuple[str, Spans]]:
    """Read sentences of token and tag lines with their annotated spans."""
    words: list[str] = []
    spans: Spans = []
    at, open_span = 0, False
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            word, _, tags = line.rstrip("\n").partition("\t")
            if not word:
                yield " ".join(words), spans
                words, spans, at, open_span = [], [], 0, False
                continue
            begin, _, name = tags.split("\t")[-1].partition("-")
            kind = types.get(name)
            if kind is not None and begin == "I" and open_span:
                spans[-1] = (spans[-1][0], at + len(word), kind)
            elif kind is not None:
                spans.append((at, at + len(word), kind))
            open_span = kind is not None
            words.append(word)
            at += len(word) + 1
    yield " ".join(words), spans


def annotated(corpora: Path) -> Iterator[tuple[set[EntityType], str, Spans]]:
    """Yield texts with the types that their annotators covered, and the annotated spans."""
    tags = {
        "BC2GM": {"GENE": _GENE},
        "NCBI-disease": {"Disease": _DISEASE},
        "CRAFT": {"GGP": _GENE, "CHEBI": _CHEMICAL, "CL": EntityType.CELL_TYPE},
    }
    for name, types in tags.items():
        for text, spans in read_iob(corpora / f"lit_ner_iob/{name}-IOB.train.tsv.gz", types):
            yield set(types.values()), text, spans
    for file, kinds in (
        ("BioRED/Train.PubTator", {_GENE, _DISEASE, _CHEMICAL}),
        ("BC5CDR/CDR_TrainingSet.PubTator.txt", {_DISEASE, _CHEMICAL}),
    ):
        for document in load_corpus(corpora / file):
            yield kinds, document.text, [(a.start, a.end, a.type) for a in document.entities]


def abstracts(corpora: Path) -> Iterator[str]:
    """Yield the abstracts of the development halves."""
    with gzip.open(corpora / "lit_hallmarks/hoc.jsonl.gz", "rt") as lines:
        for line in lines:
            yield " ".join(json.loads(line)["sentences"]).replace("( ", "(").replace(" )", ")")
    with gzip.open(corpora / "lit_pubmedqa/pqal_dev.jsonl.gz", "rt") as lines:
        for line in lines:
            yield " ".join(json.loads(line)["CONTEXTS"])
    with gzip.open(corpora / "lit_oncology_abstracts/mirna_crc_pancreas.tsv.gz", "rt") as lines:
        for row in csv.DictReader(lines, delimiter="\t"):
            yield row["Abstract"]
    for file in ("BioRED/Train.PubTator", "BC5CDR/CDR_TrainingSet.PubTator.txt"):
        for document in load_corpus(corpora / file):
            yield document.text


def count_misused(corpora: Path, lexicon: Lexicon) -> Iterator[tuple[str, str, int]]:
    """Yield the names that annotators rarely mean where they occur, with their occurrences.

    An occurrence of a gene's name is meant if a gene is annotated there, one of another name if
    anything is.
    """
    seen: Counter[tuple[str, str]] = Counter()
    meant: Counter[tuple[str, str]] = Counter()
    for kinds, text, spans in annotated(corpora):
        for match in lexicon.find(text):
            entry = lexicon.entry(match.entry)
            kind = _SAME.get(entry.type, entry.type)
            if kind not in kinds:
                continue
            name = text[match.start : match.end].casefold(), entry.id
            seen[name] += 1
            meant[name] += any(
                start < match.end and match.start < end and (kind is not _GENE or other is _GENE)
                for start, end, other in spans
            )
    for name, count in sorted(seen.items()):
        if count >= _SEEN_FROM and meant[name] < _MEANT_BELOW * count:
            yield *name, count


def list_words() -> Iterator[tuple[str, float]]:
    """Yield the frequent words of general English with their Zipf frequency."""
    try:
        wordfreq = import_module("wordfreq")
    except ImportError:
        raise SystemExit("word frequencies are missing; pip install wordfreq") from None
    for word in wordfreq.top_n_list("en", 10_000):
        zipf = wordfreq.zipf_frequency(word, "en")
        if zipf >= _COMMON_FROM and word.isascii() and word.isalpha():
            yield word, zipf


def build(shared: Path, out: Path) -> None:
    """Write the evidence and the compiled vocabulary into the folder `out`."""
    tables = [shared / "knowledge" / name for name in TABLES]
    corpora = shared / "corpora"
    with tempfile.TemporaryDirectory() as folder:
        import_lexicons(tables, Path(folder) / "all.lex")
        lexicon = Lexicon.load(Path(folder) / "all.lex")
    misused = list(count_misused(corpora, lexicon))
    common = [(word, zipf) for word, zipf in list_words() if lexicon.find(word.upper())]
    defined: defaultdict[tuple[str, str], int] = defaultdict(int)
    for text in abstracts(corpora):
        for short, long in abbreviations(text).items():
            if short.isalpha() and 2 <= len(short) <= 5:
                defined[short, " ".join(long.lower().split())] += 1
    with (out / "evidence.tsv").open("w", encoding="utf-8") as stream:
        stream.write("kind\tname\tmeaning\tcount\n")
        for word, zipf in common:
            stream.write(f"common\t{word}\t\t{zipf}\n")
        for name, entry, count in misused:
            stream.write(f"misused\t{name}\t{entry}\t{count}\n")
        for (short, long), papers in sorted(defined.items()):
            stream.write(f"defined\t{short}\t{long}\t{papers}\n")
    report = import_lexicons(tables, out / "names.lex", Evidence.load(out / "evidence.tsv"))
    sys.stdout.write(f"{report}\n")


if __name__ == "__main__":
    folder = data_root() / "vocabulary"
    folder.mkdir(exist_ok=True)
    build(Path(sys.argv[1]), folder)
