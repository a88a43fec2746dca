"""Open full texts with their licenses, from Europe PMC, PMC, or PDFs, in that order."""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from kg.corpus.corpus import read_all
from kg.literature import europe_pmc
from kg.literature.access import Access
from kg.literature.types import title_key
from kg.sources.base import ReadOptions, SourceError
from kg.sources.xml import read_license, read_xml
from kg.types import Document
from sage.core import egress
from sage.core.files import write_bytes
from sage.core.http.client import Limit, Request, ServiceClient
from sage.core.http.errors import ServiceError, SourceChanged
from sage.core.models import Strict
from sage.core.printable import one_line
from sage_literature.records import Found

NOT_STATED = "not stated"
_BODY = 1000
"""Minimum number of characters outside the abstract for a text to count as a full text."""
_OPENING = 5000
"""Number of characters at the start of a PDF within which its title must appear."""
_COMMONS = re.compile(
    r"creativecommons\.org/licenses/(by(?:-[a-z]+)*)(?:/(\d\.\d))?", re.IGNORECASE
)
_SHORT = re.compile(
    r"\W*cc[\s_-]?(by(?:[\s_-](?:nc|nd|sa))*)(?:[\s_-]?v?(\d\.\d))?\b", re.IGNORECASE
)
_WORDS = re.compile(
    r"creative commons attribution((?:[\s-]*(?:non-?commercial|no-?deriv\w*|share-?alike))*)",
    re.IGNORECASE,
)
_ZERO = re.compile(r"creativecommons\.org/publicdomain/zero|^\W*cc[\s_-]?(0|zero)\b", re.IGNORECASE)
_PUBLIC = re.compile(
    r"creativecommons\.org/publicdomain/mark|^(public[\s-]domain|pd)$", re.IGNORECASE
)


class FullText(Strict):
    """A full text, as received JATS or as text from a PDF."""

    source: str
    license: str
    xml: bytes | None = None
    document: Document | None = None


class RefusedText(Strict):
    """Reason why a source returns no full text; `final` means that a retry would not help."""

    source: str
    reason: str
    final: bool = True


def license_name(said: str | None) -> str:
    """Normalize a license to `CC BY-NC 4.0`, `CC0`, `public domain`, or its shortened text."""
    said = one_line(said or "")
    if found := _COMMONS.search(said) or _SHORT.match(said):
        name = re.sub(r"[\s_]", "-", found[1].upper())
        return f"CC {name} {found[2]}" if found[2] else f"CC {name}"
    if found := _WORDS.search(said):
        more = found[1].lower().replace("-", "")
        marks = (("noncommercial", "-NC"), ("noderiv", "-ND"), ("sharealike", "-SA"))
        return "CC BY" + "".join(mark for word, mark in marks if word in more)
    if _ZERO.search(said):
        return "CC0"
    return "public domain" if _PUBLIC.search(said) else said[:80] or NOT_STATED


def is_open(license_: str) -> bool:
    """Return True if a license, as given by `license_name`, allows anyone to copy the text."""
    return license_.startswith(("CC", "public domain"))


class FullTexts:
    """Client that fetches full texts, each source at its own rate."""

    def __init__(
        self, client: ServiceClient, access: Access, email: str | None, workplace: Path
    ) -> None:
        self._client, self._access, self._pdfs = client, access, workplace / "pdf"
        key = access.key("ncbi")
        secret = (("api_key", key), ("email", email))
        self._ncbi = {name: value for name, value in secret if value}
        self._ncbi_limit = Limit(10 if key else 3, 1.0, concurrency=3)

    def places(self, found: Found, *, pdfs: bool) -> list[str]:
        """List sources that may have an open full text, in order of preference."""
        places = ["Europe PMC", "PMC"] if found.pmcid else []
        return places + [url for url, said in found.pdfs if pdfs and is_open(license_name(said))]

    async def fetch(self, found: Found, place: str) -> FullText | RefusedText:
        """Fetch the full text from a source, or return the reason why there is none."""
        try:
            if place == "Europe PMC":
                return await self._client.fetch(
                    self._europe_pmc(found), lambda body: self.check_reply(found, place, body)
                )
            if place == "PMC":
                return await self._client.fetch(
                    self._pmc(found), lambda body: self.check_reply(found, place, body)
                )
            return await self._pdf(found, place)
        except ServiceError as problem:
            final = place.startswith("http")
            return RefusedText(source=place, reason=problem.reason, final=final)

    def check_reply(self, found: Found, place: str, body: bytes) -> FullText | RefusedText:
        """Return this paper's JATS if it has a body, or the reason why the reply is unsuitable."""
        start = body.lstrip()[:2000].lower()
        if start and (not start.startswith(b"<") or b"<html" in start):
            if b"<html" not in start:
                return RefusedText(source=place, reason="has no open full text of the paper")
            raise SourceChanged(place, "returned a web page instead of XML")
        if start and not body.rstrip().endswith(b">"):
            raise SourceChanged(place, "returned a truncated response")
        try:
            documents = list(read_xml(Path("article"), body)) if start else []
            license_ = license_name(read_license(body) or found.license) if documents else ""
        except SourceError as problem:
            if "Premature end" in str(problem):
                raise SourceChanged(place, "returned a truncated response") from None
            lacking = "neither JATS" in str(problem) or "without abstract" in str(problem)
            reason = "has no open full text of the paper" if lacking else str(problem)
            return RefusedText(source=place, reason=reason)
        if len(documents) != 1:
            return RefusedText(source=place, reason="has no open full text of the paper")
        if another := _of_another(found, documents[0]):
            return RefusedText(source=place, reason=another)
        inside = sum(s.end - s.start for s in documents[0].sections if s.title != "Abstract")
        if inside < _BODY:
            return RefusedText(source=place, reason="returns only the abstract")
        return FullText(source=place, license=license_, xml=body, document=documents[0])

    def _europe_pmc(self, found: Found) -> Request:
        base = self._access.address("europe_pmc")
        return Request(
            "europe_pmc",
            europe_pmc.LIMIT,
            f"{base}/{found.pmcid}/fullTextXML",
            missing_is_empty=True,
        )

    def _pmc(self, found: Found) -> Request:
        return Request(
            "pubmed",
            self._ncbi_limit,
            f"{self._access.address('pubmed')}/efetch.fcgi",
            params={
                "db": "pmc",
                "id": (found.pmcid or "").removeprefix("PMC"),
                "retmode": "xml",
                "tool": "sage",
            },
            secret_params=self._ncbi,
            missing_is_empty=True,
        )

    async def _pdf(self, found: Found, url: str) -> FullText | RefusedText:
        license_ = license_name(dict(found.pdfs)[url])
        try:
            host, refused = await self._check_address(url)
        except ValueError:  # a port, name, or brackets that are invalid in an address
            host, refused = "", "no permitted address"
        if refused:
            return RefusedText(source=url, reason=refused)
        request = Request(f"PDFs of {host}", Limit(1, 1.0, concurrency=1), url)
        body = await self._client.fetch(request, lambda got: got)
        if not body[:1024].lstrip().startswith(b"%PDF-"):
            return RefusedText(source=url, reason="did not return a PDF")
        path = self._pdfs / f"{file_name(found)}.pdf"
        write_bytes(path, body)
        ((_, result),) = await asyncio.to_thread(
            lambda: list(
                read_all([path], ReadOptions(), 1)
            )  # in a process, so that a crash costs only this PDF
        )
        if not result.documents:
            reason = f"unreadable PDF: {result.report.reason}"
            return RefusedText(source=url, reason=reason)
        if not _opens_with(found.title, result.documents[0].text):
            return RefusedText(source=url, reason="PDF that does not start with the paper's title")
        return FullText(source=url, license=license_, document=result.documents[0])

    async def _check_address(self, url: str) -> tuple[str, str | None]:
        """Return the host of an address in a record, and the reason if it must not be followed.

        Only public hosts over HTTP and hosts that the user named are followed.

        Raises
        ------
        ValueError
            If the text is not an address.
        """
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or 443
        if parts.scheme not in ("http", "https") or not host or parts.username:
            return host, "no permitted address"
        if host in self._access.hosts():
            return host, None
        egress.permit(url)
        try:
            found = await asyncio.get_running_loop().getaddrinfo(
                host, port, type=socket.SOCK_STREAM
            )
        except OSError:
            return host, f"host {host} is not known"
        if not all(ipaddress.ip_address(entry[4][0]).is_global for entry in found):
            return host, f"host {host} is in a private network"
        return host, None


def _of_another(found: Found, document: Document) -> str | None:
    """Return a reason to reject a full text without the paper's identifiers or with others."""
    own = found.identities()
    shared = False
    for kind in ("doi", "pmid", "pmcid"):
        value = getattr(document, kind)
        if value is None:
            continue
        if f"{kind}:{value.lower() if kind == 'doi' else value}" in own:
            shared = True
        elif getattr(found, kind) is not None:
            return f"is the text of another paper ({kind.upper()} {one_line(value)[:60]})"
    return None if shared else "does not contain the paper's identifier"


def _opens_with(title: str, text: str) -> bool:
    """Return True if the beginning of a text contains nearly all words of a title.

    A catalog's address can lead to another paper. Each of seven articles begins with all
    words of its own title, and with at most 0.73 of those of any other title tested.
    """
    opening = title_key(text[:_OPENING]).replace(" ", "")
    title_words = [word for word in title_key(title).split() if len(word) > 3]
    return sum(word in opening for word in title_words) >= 0.8 * len(title_words)


def file_name(found: Found) -> str:
    """Make a safe file name from the strongest identifier."""
    if found.pmid:
        return f"pmid-{found.pmid}"
    if found.pmcid:
        return found.pmcid.lower()
    plain = re.sub(r"[^a-z0-9]+", "-", found.key.lower()).strip("-")[:60]
    return f"{plain}-{hashlib.sha256(found.key.encode()).hexdigest()[:8]}"


def markdown(found: Found, license_: str, document: Document | None = None) -> str:
    """Render a paper as Markdown with front matter, and a PDF's text or title and abstract."""
    fields = {
        "title": found.title,
        "year": found.year,
        "venue": found.venue,
        "doi": found.doi,
        "pmid": found.pmid,
        "pmcid": found.pmcid,
        "license": license_,
        "retracted": "false",
        "findings_basis": "full_text" if document else "abstract",
    }
    head = "\n".join(f"{name}: {_quote(value)}" for name, value in fields.items() if value)
    body = "\n\n".join(_sections(document)) if document else f"## Abstract\n\n{found.abstract}"
    return f"---\n{head}\n---\n\n{body}\n"


def _quote(value: object) -> str:
    plain = one_line(str(value)).replace('"', "'")
    return f'"{plain}"'


def _sections(document: Document) -> Iterator[str]:
    for section in document.sections:
        text = re.sub(r"^#+", "", document.text[section.start : section.end], flags=re.MULTILINE)
        title = one_line(section.title)
        yield f"## {title}\n\n{text}" if title else text
