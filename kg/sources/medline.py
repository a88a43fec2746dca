"""Reader of PubMed's NBIB/MEDLINE format: tagged lines, with blank lines between records."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from kg.corpus.textnorm import clean
from kg.sources.base import SourceError, decode, sha256_bytes
from kg.sources.identifiers import clean_doi, clean_pmcid, clean_pmid, clean_year
from kg.types import Document, Section

_TAG = re.compile(r"^([A-Z]{2,4})\s*- (.*)$")


def records(text: str) -> Iterator[dict[str, list[str]]]:
    """Yield records as mappings from tags to values; continuation lines are joined."""
    record: dict[str, list[str]] = {}
    tag = ""
    for line in text.splitlines():
        match = _TAG.match(line)
        if match:
            tag = match.group(1)
            if tag == "PMID" and record:
                yield record
                record = {}
            record.setdefault(tag, []).append(match.group(2).strip())
        elif line.startswith("      ") and tag and record:
            record[tag][-1] += " " + line.strip()
        elif not line.strip() and record:
            yield record
            record, tag = {}, ""
    if record:
        yield record


def read_medline(path: Path, data: bytes) -> Iterator[Document]:
    """Read a document from each record that has a title or an abstract."""
    found = False
    for record in records(clean(decode(data, path))):
        title = " ".join(record.get("TI", record.get("BTI", [])))
        text = " ".join(record.get("AB", record.get("OAB", []))) or title
        if not text:
            continue
        found = True
        pmid = clean_pmid(record.get("PMID", [""])[0])
        dois = [v for v in record.get("LID", []) + record.get("AID", []) if "[doi]" in v]
        types = {value.lower() for value in record.get("PT", [])}
        yield Document(
            id=sha256_bytes(f"medline\x1f{pmid}\x1f{title}\x1f{text}".encode()),
            path=str(path),
            title=title or f"PMID {pmid}",
            text=text,
            sections=(Section(title="Abstract", start=0, end=len(text)),),
            year=clean_year(" ".join(record.get("DP", []))),
            venue=next(iter(record.get("JT") or record.get("TA") or ()), None),
            doi=clean_doi(dois[0]) if dois else None,
            pmid=pmid,
            pmcid=clean_pmcid(record["PMC"][0]) if record.get("PMC") else None,
            retracted="retracted publication" in types or "RIN" in record,
        )
    if not found:
        raise SourceError("no MEDLINE record with a title or an abstract")
