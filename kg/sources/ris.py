"""Reader for RIS, as exported by reference managers and journals."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from kg.corpus.textnorm import clean
from kg.sources.base import SourceError, decode, sha256_bytes
from kg.sources.bibtex import plain
from kg.sources.identifiers import clean_doi, clean_pmcid, clean_pmid, clean_year
from kg.types import Document, Section

TAG = re.compile(r"^\s*([A-Z][A-Z0-9])\s{1,2}-(?:\s(.*))?$")


def read_ris(path: Path, data: bytes) -> Iterator[Document]:
    """Read a document from each record: its abstract, or else its title."""
    found = False
    for record in _records(clean(decode(data, path))):

        def take(*tags: str, entry: dict[str, str] = record) -> str:
            return plain(next((entry[tag] for tag in tags if entry.get(tag)), ""))

        title = take("TI", "T1", "CT")
        abstract = take("AB", "N2")
        text = abstract or title
        if not text:
            continue
        found = True
        pubmed = "pubmed" in take("DB").casefold() or "medline" in take("DP", "DB").casefold()
        yield Document(
            id=sha256_bytes(f"ris\x1f{title}\x1f{text}".encode()),
            path=str(path),
            title=title or text[:80],
            text=text,
            sections=(Section(title="Abstract" if abstract else "Title", start=0, end=len(text)),),
            year=clean_year(take("PY", "Y1", "DA")),
            venue=take("JO", "JF", "T2", "JA", "J2") or None,
            doi=clean_doi(take("DO", "UR")),
            pmid=clean_pmid(take("AN")) if pubmed else None,
            pmcid=clean_pmcid(take("C2")) if take("C2").upper().startswith("PMC") else None,
            retracted=title.upper().startswith(("RETRACTED", "RETRACTION")),
        )
    if not found:
        raise SourceError("no RIS record with a title or an abstract")


def _records(text: str) -> Iterator[dict[str, str]]:
    """Yield each record's fields; the first of a repeated tag counts, and lines may continue."""
    fields: dict[str, str] = {}
    tag = ""
    for line in text.splitlines():
        match = TAG.match(line)
        if match is None:
            if tag and line.strip():
                fields[tag] = f"{fields[tag]} {line.strip()}".strip()
            continue
        if match[1] in ("TY", "ER") and fields:
            yield fields
            fields = {}
        tag = "" if match[1] in ("TY", "ER") or match[1] in fields else match[1]
        if tag:
            fields[tag] = (match[2] or "").strip()
    if fields:
        yield fields
