"""A list of PMIDs and DOIs as a source: PubMed's records, one NBIB file each.

Rate: 3 requests/s, 10 with a key. Docs: ncbi.nlm.nih.gov/books/NBK25499. Records that are in the
folder already are not asked for again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kg.sources.identifiers import clean_doi, clean_pmid
from sage.core.errors import InputError
from sage.core.files import write_text
from sage.core.http.client import Policy, Request, ServiceClient
from sage.core.http.errors import SourceChanged
from sage.core.http.limits import Limit
from sage.core.http.runner import Runner

BASE = "https://eutils.ncbi.nlm.nih.gov/entrez/eutils"
BATCH = 150


@dataclass(slots=True)
class FetchReport:
    """What became of a list: PMIDs written or there before, and what PubMed does not have."""

    written: list[str] = field(default_factory=list)
    present: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


def read_ids(lines: Sequence[str]) -> list[str]:
    """PMIDs and DOIs, one per line; comments after `#`; duplicates once.

    Raises
    ------
    InputError
        If a line is neither.
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
    ids: Sequence[str],
    folder: Path,
    *,
    base_url: str = BASE,
    email: str | None = None,
    api_key: str | None = None,
    policy: Policy | None = None,
) -> FetchReport:
    """Write `pmid-<n>.nbib` into `folder` for every identifier that PubMed knows.

    Parameters
    ----------
    ids : PMIDs and DOIs as `read_ids` cleans them; a DOI costs one further request
    folder : made if it is missing; records that lie in it are not asked for again
    base_url : root of NCBI's E-utilities
    email, api_key : sent with every request if given; a key raises the rate from 3 to 10 requests/s
    policy : retries and time limits of the client; None for the usual ones

    Returns
    -------
    PMIDs that were written and that were there before; identifiers that PubMed does not have, or a
    DOI that it gives to several records, are `missing`.

    Raises
    ------
    ServiceError
        If PubMed cannot be reached or answers in another form; what was written stays.
    """
    folder.mkdir(parents=True, exist_ok=True)
    runner = Runner()
    try:
        return runner.run(_fetch(ids, folder, base_url.rstrip("/"), email, api_key, policy))
    finally:
        runner.close()


async def _fetch(
    ids: Sequence[str],
    folder: Path,
    base_url: str,
    email: str | None,
    api_key: str | None,
    policy: Policy | None,
) -> FetchReport:
    report = FetchReport()
    secret = {name: value for name, value in (("email", email), ("api_key", api_key)) if value}
    limit = Limit(10 if api_key else 3, 1.0, concurrency=3)
    client = ServiceClient(None, policy)

    def request(tool: str, params: dict[str, str | int]) -> Request:
        return Request(
            "pubmed",
            limit,
            f"{base_url}/{tool}",
            params={"db": "pubmed", "tool": "sage", **params},
            secret_params=secret,
        )

    try:
        wanted: list[str] = []
        for identity in ids:
            if identity.isdigit():
                wanted.append(identity)
                continue
            search = request("esearch.fcgi", {"term": f'"{identity}"[doi]', "retmode": "json"})
            found = await client.fetch(search, _ids)
            if len(found) == 1:
                wanted.append(found[0])
            else:
                report.missing.append(identity)
        for pmid in list(dict.fromkeys(wanted)):
            if (folder / f"pmid-{pmid}.nbib").is_file():
                report.present.append(pmid)
        pending = [p for p in dict.fromkeys(wanted) if p not in set(report.present)]
        for start in range(0, len(pending), BATCH):
            batch = pending[start : start + BATCH]
            params: dict[str, str | int] = {
                "id": ",".join(batch),
                "rettype": "medline",
                "retmode": "text",
            }
            records = await client.fetch(request("efetch.fcgi", params), _records)
            for pmid in batch:
                if pmid not in records:
                    report.missing.append(pmid)
                    continue
                write_text(folder / f"pmid-{pmid}.nbib", records[pmid])
                report.written.append(pmid)
    finally:
        await client.close()
    return report


def _ids(body: bytes) -> list[str]:
    found = json.loads(body)["esearchresult"].get("idlist", [])
    if not all(isinstance(text, str) and text.isdigit() for text in found):
        raise SourceChanged("pubmed", 'field "idlist" holds no PMIDs now')
    return list(found)


def _records(body: bytes) -> dict[str, str]:
    text = body.decode("utf-8", "replace")
    if text.lstrip().startswith(("<", "{")):
        raise SourceChanged("pubmed", "efetch answered markup where MEDLINE is documented")
    records = {}
    for block in re.split(r"\n(?=PMID- )", text):
        match = re.search(r"^PMID- (\d+)", block, re.MULTILINE)
        if match:
            records[match.group(1)] = block.strip() + "\n"
    return records
