"""Reader for PubMed's NBIB/MEDLINE format, parsed with Biopython."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

from kg.corpus.textnorm import clean
from kg.literature.pubmed import list_values
from kg.sources.base import SourceError, decode, sha256_bytes
from kg.sources.identifiers import clean_doi, clean_pmcid, clean_pmid, clean_year
from kg.types import Document, Section


def read_medline(path: Path, data: bytes) -> Iterator[Document]:
    """Read a document from each record that has a title or an abstract."""
    from Bio import Medline

    found = False
    content = io.StringIO(clean(decode(data, path)))
    for record in Medline.parse(content):  # type: ignore[no-untyped-call]

        def join(*tags: str, entry: dict[str, object] = record) -> str:
            values = next((entry[tag] for tag in tags if tag in entry), "")
            return " ".join(list_values(values))

        title = join("TI", "BTI")
        text = join("AB", "OAB") or title
        if not text:
            continue
        found = True
        pmid = clean_pmid(join("PMID"))
        identifiers = [*list_values(record.get("LID")), *list_values(record.get("AID"))]
        dois = [value for value in identifiers if "[doi]" in value]
        types = {value.lower() for value in list_values(record.get("PT"))}
        yield Document(
            id=sha256_bytes(f"medline\x1f{pmid}\x1f{title}\x1f{text}".encode()),
            path=str(path),
            title=title or f"PMID {pmid}",
            text=text,
            sections=(Section(title="Abstract", start=0, end=len(text)),),
            year=clean_year(join("DP")),
            venue=join("JT", "TA") or None,
            doi=clean_doi(dois[0]) if dois else None,
            pmid=pmid,
            pmcid=clean_pmcid(join("PMC")),
            retracted="retracted publication" in types or "RIN" in record,
        )
    if not found:
        raise SourceError("no MEDLINE record with a title or an abstract")
