"""Builders for the ingestion tests, and the shared real data where it is present."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from kg.corpus.build_report import BuildOptions
from kg.extract.base import Statement
from kg.extract.rules import RulesExtractor
from kg.lexicon.ontology import Ontology
from kg.sources import ReadOptions, SourceReport, discover, read_file
from kg.types import Document

ROOT = Path(__file__).resolve().parents[2]
ONTOLOGY = ROOT / "data" / "ontology"
FAST = BuildOptions(embedder="none", workers=1, prune_below=1)


@cache
def ontology() -> Ontology:
    """The ontology that ships."""
    return Ontology.load(ONTOLOGY)


@cache
def extractor() -> RulesExtractor:
    """The rules extractor on the ontology that ships."""
    return RulesExtractor(ontology())


def read(sentence: str) -> list[Statement]:
    """Statements of one sentence."""
    return extractor().read_sentence(sentence, extractor().mentions.find(sentence))


def said(sentence: str) -> set[tuple[str, str, str, str]]:
    """Head, relation, tail and polarity (or `negated`) of each statement of a sentence."""
    return {
        (s.head, s.relation, s.tail, "negated" if s.negated else s.polarity.value)
        for s in read(sentence)
    }


def note(folder: Path, name: str, findings: list[str], **fields: object) -> Path:
    """A Markdown note with front matter and one finding per bullet."""
    folder.mkdir(parents=True, exist_ok=True)
    given = {"title": f"A study of {name} in bladder cancer and its outcomes", "year": 2020}
    head = "\n".join(f"{key}: {value}" for key, value in (given | fields).items())
    path = folder / f"{name}.md"
    body = "\n".join(f"- {finding}" for finding in findings)
    path.write_text(f"---\n{head}\n---\n\n{body}\n", encoding="utf-8")
    return path


def shared(*parts: str) -> Path:
    """A path in the shared data; skips the test where it is absent."""
    root = Path(os.environ.get("SAGE_SHARED", ROOT.parent / "shared"))
    path = root.joinpath("data", *parts)
    if not path.exists():
        pytest.skip(f"shared data absent: {'/'.join(parts)}")
    return path


def pdf_bytes(pages: list[list[str]], title: str = "") -> bytes:
    """A PDF with these lines of text per page, built by hand with correct offsets."""
    objects: list[bytes] = []

    def add(body: bytes) -> int:
        objects.append(body)
        return len(objects)

    font = add(b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
    kids, tree = [], len(pages) * 2 + 2
    for lines in pages:
        moves = []
        for number, line in enumerate(lines):
            text = line.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")
            moves.append(f"BT /F1 10 Tf 50 {780 - 14 * number} Td ({text}) Tj ET")
        stream = "\n".join(moves).encode("latin-1")
        content = add(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream))
        kids.append(
            add(
                b"<< /Type /Page /Parent %d 0 R /MediaBox [0 0 612 842] /Contents %d 0 R "
                b"/Resources << /Font << /F1 %d 0 R >> >> >>" % (tree, content, font)
            )
        )
    listed = b" ".join(b"%d 0 R" % kid for kid in kids)
    assert add(b"<< /Type /Pages /Kids [%s] /Count %d >>" % (listed, len(kids))) == tree
    catalog = add(b"<< /Type /Catalog /Pages %d 0 R >>" % tree)
    info = add(b"<< /Title (%s) >>" % title.encode("latin-1"))
    out = bytearray(b"%PDF-1.4\n")
    offsets = []
    for number, body in enumerate(objects, 1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    out += b"trailer\n<< /Size %d /Root %d 0 R /Info %d 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (
        len(objects) + 1, catalog, info, start,
    )  # fmt: skip
    return bytes(out)


def read_documents(
    path: Path, options: ReadOptions | None = None, reports: list[SourceReport] | None = None
) -> Iterator[Document]:
    """Documents of a file or folder; what could not be read is appended to `reports`."""
    files, skipped = discover([path])
    collected = skipped
    for file in files:
        result = read_file(file, options)
        collected.append(result.report)
        yield from result.documents
    if reports is not None:
        reports.extend(collected)
