"""Download of the complete public vocabularies, whose compact part ships with SAGE."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from kg.literature.access import Access
from sage.core import clock
from sage.core.files import writing
from sage.core.http.client import BlockingClient, Limit, Policy, Request
from sage.core.http.errors import SourceChanged, Unavailable

FILES = (
    ("ncbi_files", "gene/DATA/GENE_INFO/Mammalia/Homo_sapiens.gene_info.gz"),
    ("disease_ontology", "doid.obo"),
    ("mesh", "d{year}.bin"),
    ("mesh", "c{year}.bin"),
    ("cell_ontology", "cl-basic.obo"),
    ("gene_ontology", "go-basic.obo"),
    ("chebi", "chebi_lite.obo"),
    ("cellosaurus", "cellosaurus.obo"),
)
"""Services and files, the more specific vocabularies first: these decide between equal names."""
PATIENT = Policy(deadline=1800.0, attempt=900.0, max_bytes=1 << 30)
_LIMIT = Limit(1, per=1.0)


def fetch_vocabularies(
    folder: Path, access: Access, policy: Policy = PATIENT
) -> Iterator[tuple[Path, bool]]:
    """Download each file into `folder`; yield its path, and whether it was already present.

    MeSH is published by year; in January the file of the year before may be the newest.

    Raises
    ------
    ServiceError
        If a service does not answer, or answers with a web page; files already written are kept.
    """
    folder.mkdir(parents=True, exist_ok=True)
    this = clock.now().year
    with BlockingClient(policy=policy) as client:
        for service, pattern in FILES:
            names = [pattern.format(year=year) for year in (this, this - 1)]
            paths = [folder / Path(name).name for name in names]
            present = [path for path in paths if path.is_file()]
            if present:
                yield present[0], True
                continue
            for name, path in zip(names, paths, strict=True):
                request = Request(service, _LIMIT, f"{access.address(service)}/{name}")
                try:
                    body = client.fetch(request, partial(_check, service))
                except Unavailable:
                    if name == names[-1]:
                        raise
                    continue
                with writing(path) as stream:
                    stream.write(body)
                yield path, False
                break


def _check(service: str, body: bytes) -> bytes:
    if not body or body.lstrip()[:1] == b"<":
        raise SourceChanged(service, "a web page or an empty file instead of a vocabulary")
    return body
