"""The five literature services on a local server, in their documented protocols.

What they hold are the notes of the demonstration corpus as papers. PMIDs and PMCIDs are made up at
run time, from 99,000,000 on, where none exist.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from xml.sax.saxutils import escape

from kg.literature.access import Access
from kg.sources.plain import front_matter
from tests.core.http_server import Answer, FakeServices, Seen, as_json, serving

CORPUS = Path(__file__).parents[3] / "data" / "corpus"
ALL = ("pubmed", "europe_pmc", "openalex", "semantic_scholar")
CC_BY = "https://creativecommons.org/licenses/by/4.0/"


@dataclass(frozen=True)
class Paper:
    """A paper as the services know it; `held` names those that have it."""

    title: str
    abstract: str
    year: int
    doi: str | None = None
    pmid: str | None = None
    pmcid: str | None = None
    venue: str = "Cancer Research"
    kinds: tuple[str, ...] = ("Journal Article",)
    language: str = "eng"
    license: str | None = CC_BY
    retracted: bool = False
    retracts: str | None = None
    preprint_of: str | None = None
    withdrawn: bool = False
    pdf: str | None = None
    held: tuple[str, ...] = ALL


def corpus(count: int = 70, open_every: int = 3) -> list[Paper]:
    """Notes of the demonstration corpus; every third, or less, has an open full text."""
    papers = []
    for number, path in enumerate(sorted(CORPUS.glob("*.md"))[:count]):
        fields, body = front_matter(path.read_text(encoding="utf-8"))
        papers.append(
            Paper(
                title=str(fields["title"]),
                abstract=" ".join(line.lstrip("- ") for line in body.splitlines() if line.strip()),
                year=int(str(fields.get("year", 2020))),
                doi=str(fields.get("doi") or "").lower() or None,
                pmid=str(99_000_001 + number),
                pmcid=f"PMC{9_900_001 + number}" if number % open_every == 0 else None,
                venue=str(fields.get("venue") or "Cancer Research"),
                retracted=fields["retracted"] == "true",
            )
        )
    return papers


@dataclass
class Catalogs:
    """What the services hold. `pages` is the size of their pages; `down` are prefixes that fail."""

    papers: list[Paper]
    services: FakeServices
    pages: int = 25
    broken: dict[str, Callable[[Seen], Answer]] = field(default_factory=dict)

    def access(self, **more: object) -> Access:
        """The addresses of this server, with keys."""
        url = self.services.url
        fields: dict[str, object] = {
            "pubmed_url": f"{url}/eutils", "europe_pmc_url": f"{url}/epmc",
            "openalex_url": f"{url}/openalex", "semantic_scholar_url": f"{url}/s2",
            "biorxiv_url": f"{url}/biorxiv", "ncbi_key": "n-key", "openalex_key": "o-key",
            "semantic_scholar_key": "s-key",
        }  # fmt: skip
        return Access.model_validate({**fields, **more})

    def variables(self) -> dict[str, str]:
        """The same as environment variables, with a contact address."""
        access = self.access()
        plain = {f"{name}_url": url for name, url in access.urls.items()}
        plain |= {f"{name}_key": key.get_secret_value() for name, key in access.keys.items()}
        named = {f"SAGE_SERVICES__{name.upper()}": value for name, value in plain.items()}
        return {**named, "SAGE_CONTACT_EMAIL": "a@example.org"}

    def change(self, doi: str, **fields: object) -> None:
        """Let the services describe otherwise a paper from now on."""
        self.papers = [
            replace(paper, **fields) if paper.doi == doi else paper  # type: ignore[arg-type]
            for paper in self.papers
        ]

    def listed(self, service: str, since: int | None) -> list[Paper]:
        return [p for p in self.papers if service in p.held and p.year >= (since or 0)]

    def _guarded(self, name: str, route: Callable[[Seen], Answer]) -> Callable[[Seen], Answer]:
        def answer(seen: Seen) -> Answer:
            return self.broken[name](seen) if name in self.broken else route(seen)

        return answer

    def mount(self) -> None:
        """Hang the services into the server."""
        for name, prefix, route in (
            ("esearch", "/eutils/esearch.fcgi", self._esearch),
            ("efetch", "/eutils/efetch.fcgi", self._efetch),
            ("europe_pmc", "/epmc/search", self._europe_pmc),
            ("texts", "/epmc/PMC", self._text),
            ("openalex", "/openalex/works", self._openalex),
            ("semantic_scholar", "/s2/paper/search/bulk", self._bulk),
            ("biorxiv", "/biorxiv/details", self._details),
            ("pdf", "/pdf/", lambda _: Answer(b"no", 404)),
        ):
            self.services.routes[prefix] = self._guarded(name, route)

    def _esearch(self, seen: Seen) -> Answer:
        assert seen.params["usehistory"] == "y"
        since = re.search(r'"(\d{4})"\[pdat\]', seen.params["term"])
        found = self.listed("pubmed", int(since[1]) if since else None)
        history = {"webenv": f"ENV-{since[1] if since else 0}", "querykey": "1"}
        return as_json({"esearchresult": {"count": str(len(found)), "idlist": [], **history}})

    def _efetch(self, seen: Seen) -> Answer:
        if seen.params["db"] == "pmc":
            return self._jats(f"PMC{seen.params['id']}", wrapped=True)
        if "id" in seen.params:
            wanted = seen.params["id"].split(",")
            found = [p for p in self.papers if p.pmid in wanted]
        else:
            since = int(seen.params["WebEnv"].removeprefix("ENV-"))
            start, size = int(seen.params["retstart"]), int(seen.params["retmax"])
            found = self.listed("pubmed", since)[start : start + size]
        return Answer("\n".join(map(medline, found)).encode())

    def _europe_pmc(self, seen: Seen) -> Answer:
        query = seen.params["query"]
        since = re.search(r"FIRST_PDATE:\[(\d{4})", query)
        service = "biorxiv" if "SRC:PPR" in query else "europe_pmc"
        found = self.listed(service, int(since[1]) if since else None)
        cursor = seen.params["cursorMark"]
        start = 0 if cursor == "*" else int(cursor)
        page = found[start : start + self.pages]
        answer: dict[str, object] = {
            "hitCount": len(found),
            "resultList": {"result": [europe_pmc(p) for p in page]},
        }
        if start + self.pages < len(found):
            answer["nextCursorMark"] = str(start + self.pages)
        return as_json(answer)

    def _openalex(self, seen: Seen) -> Answer:
        if seen.params.get("api_key") != "o-key":
            return Answer(b'{"error": "API key required"}', 401)
        if seen.params["filter"].startswith("doi:"):
            dois = seen.params["filter"].removeprefix("doi:").split("|")
            rows = [openalex(p) for p in self.papers if p.doi in dois]
            return as_json({"results": rows})
        since = re.search(r"from_publication_date:(\d{4})", seen.params["filter"])
        found = self.listed("openalex", int(since[1]) if since else None)
        cursor = seen.params["cursor"]
        start = 0 if cursor == "*" else int(cursor)
        page = found[start : start + self.pages]
        following = str(start + self.pages) if page else None
        return as_json(
            {
                "meta": {"count": len(found), "next_cursor": following},
                "results": [openalex(p) for p in page],
            }
        )

    def _bulk(self, seen: Seen) -> Answer:
        since = int(seen.params.get("year", "0-").rstrip("-"))
        found = self.listed("semantic_scholar", since)
        start = int(seen.params.get("token", "0"))
        page = found[start : start + self.pages]
        token = str(start + self.pages) if start + self.pages < len(found) else None
        return as_json(
            {"total": len(found), "token": token, "data": [semantic_scholar(p) for p in page]}
        )

    def _details(self, seen: Seen) -> Answer:
        doi = seen.path.split("/details/")[1].split("/", 1)[1]
        found = next((p for p in self.papers if p.doi == doi), None)
        if found is None:
            return as_json({"collection": []})
        kind = "withdrawn" if found.withdrawn else "new results"
        published = found.preprint_of or "NA"
        row = {"type": kind, "date": "2024-05-01", "license": "cc_by", "published": published}
        return as_json({"collection": [row]})

    def _text(self, seen: Seen) -> Answer:
        return self._jats(seen.path.split("/")[2], wrapped=False)

    def _jats(self, pmcid: str, *, wrapped: bool) -> Answer:
        found = next((p for p in self.papers if p.pmcid == pmcid), None)
        if found is None:
            return Answer(b"<errorBean><errMsg>no such article</errMsg></errorBean>", 404)
        return Answer(jats(found, wrapped=wrapped).encode())


def medline(paper: Paper) -> str:
    """A paper as PubMed describes it."""
    lines = [
        f"PMID- {paper.pmid}",
        f"TI  - {paper.title}.",
        f"AB  - {paper.abstract}" if paper.abstract else "",
        f"DP  - {paper.year} Mar 2",
        f"LID - {paper.doi} [doi]" if paper.doi else "",
        f"PMC - {paper.pmcid}" if paper.pmcid else "",
        f"LA  - {paper.language}",
        *(f"PT  - {kind}" for kind in paper.kinds),
        "PT  - Retracted Publication" if paper.retracted else "",
        f"ROF - J X. 2014;3:1. doi: {paper.retracts}." if paper.retracts else "",
        f"JT  - {paper.venue}",
    ]
    return "\n".join(line for line in lines if line) + "\n"


def europe_pmc(paper: Paper) -> dict[str, object]:
    """A paper as Europe PMC describes it, in a core record."""
    kinds = [*paper.kinds, *(["Retracted Publication"] if paper.retracted else [])]
    row: dict[str, object] = {
        "id": paper.pmid or paper.doi,
        "source": "PPR" if "biorxiv" in paper.held else "MED",
        "title": paper.title + ".",
        "pubYear": str(paper.year),
        "firstPublicationDate": f"{paper.year}-03-02",
        "abstractText": f"<h4>Results</h4>{escape(paper.abstract)}",
        "journalInfo": {"journal": {"title": paper.venue}},
        "language": paper.language,
        "pubTypeList": {"pubType": kinds},
        "isOpenAccess": "Y" if paper.pmcid else "N",
    }
    if "biorxiv" in paper.held:
        row["bookOrReportDetails"] = {"publisher": "bioRxiv"}
        row["journalInfo"] = {}
    for name in ("pmid", "pmcid", "doi"):
        if value := getattr(paper, name):
            row[name] = value
    if paper.license and paper.pmcid:
        row["license"] = "cc by"
    return row


def openalex(paper: Paper) -> dict[str, object]:
    """A paper as OpenAlex describes it, its abstract as an inverted index."""
    index: dict[str, list[int]] = {}
    for place, word in enumerate(paper.abstract.split()):
        index.setdefault(word, []).append(place)
    pdf = {"pdf_url": paper.pdf, "license": "cc-by"} if paper.pdf else None
    return {
        "id": "https://openalex.org/W1",
        "doi": f"https://doi.org/{paper.doi}" if paper.doi else None,
        "ids": {"pmid": f"https://pubmed.ncbi.nlm.nih.gov/{paper.pmid}"} if paper.pmid else {},
        "title": paper.title,
        "abstract_inverted_index": index or None,
        "publication_year": paper.year,
        "publication_date": f"{paper.year}-03-02",
        "language": "en" if paper.language == "eng" else paper.language,
        "type": "article",
        "is_retracted": paper.retracted,
        "primary_location": {"source": {"display_name": paper.venue}},
        "best_oa_location": pdf,
        "authorships": [{"author": {"display_name": "A First"}}],
    }


def semantic_scholar(paper: Paper) -> dict[str, object]:
    """A paper as Semantic Scholar describes it."""
    named = {"DOI": (paper.doi or "").upper(), "PubMed": paper.pmid}
    return {
        "paperId": "p1",
        "externalIds": {name: value for name, value in named.items() if value},
        "title": paper.title,
        "abstract": None,
        "year": paper.year,
        "venue": paper.venue,
        "publicationDate": f"{paper.year}-03-02",
        "publicationTypes": None,
        "authors": [{"name": "A First"}],
        "openAccessPdf": None,
    }


def jats(paper: Paper, *, wrapped: bool = False) -> str:
    """The full text: the abstract, and a body that says it again at length."""
    ids = {"doi": paper.doi, "pmid": paper.pmid, "pmc": (paper.pmcid or "").removeprefix("PMC")}
    named = "".join(
        f'<article-id pub-id-type="{kind}">{escape(value)}</article-id>'
        for kind, value in ids.items()
        if value
    )
    permissions = (
        f'<permissions><license xmlns:x="http://www.w3.org/1999/xlink" x:href="{paper.license}">'
        "<license-p>Open.</license-p></license></permissions>"
        if paper.license
        else ""
    )
    filler = "<p>Samples were handled as described before. </p>" * 30
    article = (
        f"<article><front><article-meta>{named}<title-group><article-title>{escape(paper.title)}"
        f"</article-title></title-group><pub-date><year>{paper.year}</year></pub-date>"
        f"{permissions}<abstract><p>{escape(paper.abstract)}</p></abstract></article-meta></front>"
        f"<body><sec><title>Results</title><p>{escape(paper.abstract)}</p>{filler}</sec></body>"
        "</article>"
    )
    return f"<pmc-articleset>{article}</pmc-articleset>" if wrapped else article


@contextmanager
def running(papers: Iterable[Paper] | None = None) -> Iterator[Catalogs]:
    """The services on a free port."""
    with serving() as services:
        catalogs = Catalogs(list(papers) if papers is not None else corpus(), services)
        catalogs.mount()
        yield catalogs


def asked(catalogs: Catalogs) -> list[str]:
    """Every request that arrived, as path and parameters."""
    return [f"{s.path}?{json.dumps(s.params, sort_keys=True)}" for s in catalogs.services.seen]
