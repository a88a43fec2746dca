"""Download of PubMed records for a list of PMIDs and DOIs, each as an NBIB file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kg.literature.pubmed import PubMed
from kg.sources.identifiers import clean_doi, clean_pmid
from sage.core.errors import InputError
from sage.core.files import write_text
from sage.core.http.client import Policy, ServiceClient
from sage.core.http.errors import SourceChanged
from sage.core.http.runner import Runner

BATCH = 150


@dataclass(slots=True)
class FetchReport:
    """PMIDs that were written or already present, and identifiers missing from PubMed."""

    written: list[str] = field(default_factory=list)
    present: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


def read_ids(lines: Sequence[str]) -> list[str]:
    """Parse PMIDs and DOIs, one per line, ignoring comments after `#` and duplicates.

    Raises
    ------
    InputError
        If a line is neither a PMID nor a DOI.
    """
    found: dict[str, None] = {}
    for number, line in enumerate(lines, 1):
        value = line.split("#", 1)[0].strip()
        if not value:
            continue
        identity = clean_pmid(value) or clean_doi(value)
        if identity is None:
            raise InputError(f"line {number}: {value!r} is neither a PMID nor a DOI")
        found[identity] = None
    return list(found)


def fetch_ids(
    ids: Sequence[str], folder: Path, service: PubMed, policy: Policy | None = None
) -> FetchReport:
    """Write `pmid-<n>.nbib` to `folder` for every identifier found in PubMed.

    Each DOI requires one extra request. A DOI without a unique record is reported as missing.

    Raises
    ------
    ServiceError
        If PubMed cannot be reached or its response is not as documented; files already
        written are kept.
    """
    folder.mkdir(parents=True, exist_ok=True)
    runner = Runner()
    try:
        return runner.run(_fetch(ids, folder, service, policy))
    finally:
        runner.close()


async def _fetch(
    ids: Sequence[str], folder: Path, service: PubMed, policy: Policy | None
) -> FetchReport:
    report = FetchReport()
    client = ServiceClient(None, policy)
    try:
        wanted: dict[str, None] = {}
        for identity in ids:
            found = [identity]
            if not identity.isdigit():
                search = {"term": f'"{identity}"[doi]', "retmode": "json"}
                found = await client.fetch(
                    service.request("esearch.fcgi", search), service.read_ids
                )
            if len(found) == 1:
                wanted[found[0]] = None
            else:
                report.missing.append(identity)
        report.present = [p for p in wanted if (folder / f"pmid-{p}.nbib").is_file()]
        pending = [p for p in wanted if p not in report.present]
        for start in range(0, len(pending), BATCH):
            batch = pending[start : start + BATCH]
            params = {"id": ",".join(batch), "rettype": "medline", "retmode": "text"}
            records = await client.fetch(service.request("efetch.fcgi", params), _records)
            for pmid in batch:
                if pmid not in records:
                    report.missing.append(pmid)
                    continue
                write_text(folder / f"pmid-{pmid}.nbib", records[pmid])
                report.written.append(pmid)
    finally:
        await client.close()
    return report


def _records(body: bytes) -> dict[str, str]:
    text = body.decode("utf-8", "replace")
    if text.lstrip().startswith(("<", "{")):
        raise SourceChanged("pubmed", "efetch returned markup instead of MEDLINE records")
    records = {}
    for block in re.split(r"\n(?=PMID- )", text):
        match = re.search(r"^PMID- (\d+)", block, re.MULTILINE)
        if match:
            records[match.group(1)] = block.strip() + "\n"
    return records
