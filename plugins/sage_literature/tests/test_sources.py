"""Each source reads its service's answers, and says so when they are not as documented."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import os
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kg.literature import europe_pmc
from kg.literature.access import Access
from kg.literature.europe_pmc import EuropePmc
from kg.literature.protocol import LiteratureSource, Wanted
from kg.literature.pubmed import PubMed
from kg.literature.types import Query, Record
from sage.core.http.client import Limit, Policy, ServiceClient, understood
from sage.core.http.errors import ServiceError, SourceChanged, Unavailable
from sage.core.printable import LONGEST_NAME, LONGEST_PASSAGE
from sage_literature.sources.arxiv import Arxiv
from sage_literature.sources.biorxiv import UNCHECKED, Biorxiv
from sage_literature.sources.crossref import Crossref
from sage_literature.sources.openalex import OpenAlex
from sage_literature.sources.semantic_scholar import SemanticScholar
from tests.core.http_server import Answer, FakeServices, as_json, serving
from tests.kg import lit_bodies as bodies

POLICY = Policy(attempts=2, attempt=1.0, deadline=4.0, backoff=0.01, backoff_max=0.02)
QUERIES = (
    Query(text="FABP5 tertiary-lymphoid structure",
     phrases=("FABP5", "tertiary lymphoid structure"), any_of=((), ("TLS",))),
    Query(text="FABP5 survival", phrases=("FABP5", "survival")),
)  # fmt: skip


SOURCES = {"pubmed": PubMed, "europe_pmc": EuropePmc, "semantic_scholar": SemanticScholar,
    "arxiv": Arxiv, "crossref": Crossref, "biorxiv": Biorxiv}  # fmt: skip


def access(url: str) -> Access:
    """Access to every service of a local server, with keys."""
    paths = {"europe_pmc": "epmc", "semantic_scholar": "s2"}
    urls = {name: f"{url}/{paths.get(name, name)}" for name in (*SOURCES, "openalex")}
    return Access(urls=urls, keys={"ncbi": "k3y", "semantic_scholar": "k3y"})


def source(name: str, url: str) -> LiteratureSource:
    made: LiteratureSource = SOURCES[name](access(url), "a@example.org")
    made.limit = Limit(100, 1.0)  # rates are tested on the client; here they would only cost time
    return made


ALL = ["pubmed", "europe_pmc", "semantic_scholar", "arxiv", "crossref", "biorxiv"]


def ask(
    services: FakeServices, name: str, *, as_of: date | None = None, k: int = 10
) -> Sequence[Record]:
    async def work() -> Sequence[Record]:
        client = ServiceClient(None, POLICY)
        try:
            return await source(name, services.url).search(client, Wanted(QUERIES, k, as_of))
        finally:
            await client.close()

    return asyncio.run(work())


@pytest.fixture
def services():
    with serving() as running:
        bodies.all_answering(running)
        yield running


@pytest.mark.parametrize("name", ["pubmed", "europe_pmc", "semantic_scholar", "crossref"])
def test_a_paper_is_read_with_its_identifiers_and_date(services: FakeServices, name: str) -> None:
    record = ask(services, name)[0]
    assert record.title == bodies.TITLE
    assert record.doi == bodies.DOI
    assert record.year == 2024
    assert record.published == date(2024, 7, 4)
    assert record.venue is not None and record.venue.lower() == "scientific reports"
    assert record.sources == (name,)
    assert not record.retracted
    if name != "crossref":
        assert record.pmid == bodies.PMID


@pytest.mark.parametrize("name", ["pubmed", "europe_pmc", "crossref"])
def test_a_retracted_paper_is_flagged_by_its_source(services: FakeServices, name: str) -> None:
    record = ask(services, name)[1]
    assert record.retracted
    assert record.retraction_sources == (name,)
    if name in ("crossref", "pubmed"):
        assert record.retracted_on == date(2018, 3, 2)


def test_arxiv_reads_an_entry(services: FakeServices) -> None:
    (record,) = ask(services, "arxiv")
    assert record.title == "Finding lymphoid follicles in bladder slides"
    assert (record.arxiv, record.year, record.preprint) == ("0000.00001", 2022, True)


def test_a_withdrawn_preprint_is_flagged_with_its_day(services: FakeServices) -> None:
    (record,) = ask(services, "biorxiv")
    assert record.retracted and record.preprint
    assert record.retracted_on == date(2025, 3, 2)
    assert services.to("/biorxiv")[0].path.startswith("/biorxiv/details/medrxiv/10.1101/")


def test_a_preprint_whose_status_cannot_be_asked_says_so(services: FakeServices) -> None:
    services.routes["/biorxiv/details"] = Answer(b"", 500)
    (record,) = ask(services, "biorxiv")
    assert record.sources == (UNCHECKED,)
    assert not record.retracted


def test_a_boolean_source_answers_all_queries_in_one_expression(services: FakeServices) -> None:
    ask(services, "pubmed")
    term = services.to("/pubmed/esearch")[0].params["term"]
    assert term == (
        '(FABP5[tiab] AND ("tertiary lymphoid structure"[tiab] OR TLS[tiab]))'
        " OR (FABP5[tiab] AND survival[tiab])"
    )
    assert len(services.seen) == 2


@pytest.mark.parametrize(
    ("name", "parameter", "expected"),
    [
        ("pubmed", "maxdate", "2019/12/31"),
        ("europe_pmc", "query", "FIRST_PDATE:[1800-01-01 TO 2019-12-31]"),
        ("semantic_scholar", "publicationDateOrYear", ":2019-12-31"),
        ("arxiv", "search_query", "submittedDate:[199101010000 TO 201912312359]"),
        ("crossref", "filter", "until-pub-date:2019-12-31"),
        ("biorxiv", "query", "FIRST_PDATE:[1800-01-01 TO 2019-12-31]"),
    ],
)
def test_the_date_bound_reaches_the_service(
    services: FakeServices, name: str, parameter: str, expected: str
) -> None:
    ask(services, name, as_of=date(2019, 12, 31))
    assert expected in services.seen[0].params[parameter]


def test_a_query_cannot_break_out_of_its_quotes(services: FakeServices) -> None:
    async def work() -> None:
        client = ServiceClient(None, POLICY)
        wild = Query(text="x", phrases=('a" OR all:b) AND (c', "d"))
        await source("arxiv", services.url).search(client, Wanted((wild,), 5))
        await client.close()

    asyncio.run(work())
    assert services.seen[0].params["search_query"] == 'all:"a OR all b AND c" AND all:d'


ENTRY = {"pubmed": "/pubmed/esearch.fcgi", "europe_pmc": "/epmc/search",
    "semantic_scholar": "/s2/paper/search", "arxiv": "/arxiv/query", "crossref": "/crossref/works",
    "biorxiv": "/epmc/search"}  # fmt: skip


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    "body",
    [b"<html><body>Service unavailable</body></html>", b'{"esearchresult": {"idl'],
    ids=["html", "truncated"],
)
def test_an_unreadable_answer_is_named_not_guessed(
    services: FakeServices, name: str, body: bytes
) -> None:
    services.routes[ENTRY[name]] = Answer(body)
    with pytest.raises(SourceChanged):
        ask(services, name)


CHANGED = {
    "pubmed": {"esearchresult": {"ids": ["1"]}},
    "europe_pmc": {"resultList": {"result": [{"heading": "x"}]}},
    "semantic_scholar": {"data": [{"paperId": "1", "name": "x"}]},
    "crossref": {"message": {"items": [{"DOI": bodies.DOI, "headline": ["x"]}]}},
    "biorxiv": {"resultList": {"results": []}},
}


@pytest.mark.parametrize("name", CHANGED)
def test_a_renamed_field_is_reported_by_name(services: FakeServices, name: str) -> None:
    services.routes[ENTRY[name]] = as_json(CHANGED[name])
    with pytest.raises(SourceChanged, match=r'field "(title|.*idlist|.*result)"'):
        ask(services, name)


READERS = {
    "pubmed ids": PubMed(Access()).read_ids,
    "pubmed records": PubMed(Access()).read_records,
    "europe_pmc": lambda body: europe_pmc.parse_records("europe_pmc", body),
    "semantic_scholar": SemanticScholar(Access())._parse,
    "arxiv": Arxiv(Access())._parse,
    "crossref": Crossref(Access())._parse,
    "biorxiv": Biorxiv(Access())._parse,
    "openalex": OpenAlex(Access())._parse,
}
KEYS = st.sampled_from([
    "data", "total", "message", "items", "resultList", "result", "esearchresult", "idlist",
    "collection", "results", "title", "DOI", "doi", "year", "is_retracted", "pubYear", "updated",
    "published", "date-parts", "type", "updated-by",
])  # fmt: skip
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize("name", ["europe_pmc", "semantic_scholar", "crossref"])
@pytest.mark.parametrize("hostile", ["title", "abstract"])
def test_an_endless_entry_is_cut_and_its_neighbors_stay(name: str, hostile: str) -> None:
    keys = {"abstract": "abstractText"} if name == "europe_pmc" else {}

    def entry(**more: str) -> dict[str, object]:
        doi = f"10.5555/{len(more)}"
        return {"title": "A paper", "DOI": doi, "doi": doi} | {
            keys.get(key, key): value for key, value in more.items()
        }

    rows = [entry(), entry(**{hostile: "A" * 30_000})]
    body = {
        "europe_pmc": {"resultList": {"result": rows}},
        "semantic_scholar": {"data": rows},
        "crossref": {"message": {"items": rows}},
    }[name]
    records = understood(name, json.dumps(body).encode(), READERS[name])
    assert (records[0].title, records[0].abstract) == ("A paper", "")
    assert all(len(record.title) <= LONGEST_NAME for record in records)
    assert all(len(record.abstract) <= LONGEST_PASSAGE for record in records)


DEEP = b"[" * 20_000
"""More than any recursion takes."""


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=50, deadline=None)
@given(value=VALUES, raw=st.binary(max_size=60))
def test_no_answer_whatever_its_form_breaks_more_than_its_source(name, value, raw) -> None:
    for body in (json.dumps(value).encode(), raw, DEEP):
        try:
            records = understood(name, body, READERS[name])
        except ServiceError:
            continue
        assert isinstance(records, list | tuple | set)


def test_a_feed_with_an_entity_bomb_is_refused(services: FakeServices) -> None:
    bomb = b'<!DOCTYPE x [<!ENTITY a "b">]><feed xmlns="http://www.w3.org/2005/Atom">&a;</feed>'
    services.routes["/arxiv/query"] = Answer(bomb)
    with pytest.raises(SourceChanged, match="did not return a well-formed"):
        ask(services, "arxiv")


def test_openalex_adds_its_retraction_to_what_is_known(services: FakeServices) -> None:
    async def work() -> list[Record]:
        client = ServiceClient(None, POLICY)
        marked = await OpenAlex(access(services.url)).mark(
            client,
            [
                Record(title="a", doi=bodies.RETRACTED_DOI),
                Record(title="b", doi=bodies.DOI),
                Record(title="c"),
            ],
        )
        await client.close()
        return marked

    first, second, third = asyncio.run(work())
    assert first.retracted and first.retraction_sources == ("openalex",)
    assert not second.retracted and not third.retracted
    assert services.seen[0].params["filter"] == f"doi:{bodies.DOI}|{bodies.RETRACTED_DOI}"


def shared(folder: str) -> Path:
    default = Path(__file__).resolve().parents[3].parent / "shared"
    root = Path(os.environ.get("SAGE_SHARED", default)) / "data" / "api_fixtures" / folder
    if not root.exists():
        pytest.skip(f"shared data absent: {root}")
    return root


@pytest.mark.shared
def test_recorded_europe_pmc_answers_are_read() -> None:
    root = shared("europepmc")
    records = europe_pmc.parse_records(
        "europe_pmc", (root / "search_cancer_core.json").read_bytes()
    )
    assert len(records) == 25
    assert (records[0].doi or "").startswith("10.1016/")
    assert (
        europe_pmc.parse_records("europe_pmc", (root / "search_no_results.json").read_bytes()) == []
    )
    with pytest.raises(SourceChanged, match='"title"'):
        europe_pmc.parse_records("europe_pmc", (root / "search_cancer_idlist.json").read_bytes())


@pytest.mark.shared
def test_recorded_pubmed_answers_are_read() -> None:
    source = PubMed(Access())
    root = shared("ncbi_eutils_klortho")
    assert len(source.read_ids((root / "esearch.pubmed.json").read_bytes())) == 100
    with pytest.raises(Unavailable, match="Invalid db name"):
        source.read_ids((root / "esearch.baderror.json").read_bytes())
    medline = (shared("ncbi_biopython") / "pubmed_result2.txt").read_bytes()
    assert len(source.read_records(medline)) == 4


@pytest.mark.shared
def test_recorded_arxiv_feeds_are_read() -> None:
    for path in sorted(shared("arxiv").glob("q_testing_s0_*.json")):
        recorded = json.loads(path.read_text())
        records = Arxiv(Access())._parse(recorded["body"].encode())
        assert len(records) == int(path.name.split("_m")[1].split("_")[0])
        assert all(record.arxiv and record.year for record in records)
    (bad,) = shared("arxiv").glob("id_abc_*.json")
    with pytest.raises(Unavailable, match="incorrect id format"):
        Arxiv(Access())._parse(json.loads(bad.read_text())["body"].encode())


def cassette(path: Path) -> list[bytes]:
    yaml = pytest.importorskip("yaml")
    found = []
    for interaction in yaml.safe_load(path.read_text())["interactions"]:
        body = interaction["response"].get("body", {}).get("string") or interaction["response"].get(
            "content", b""
        )
        body = body.encode() if isinstance(body, str) else body
        if body[:2] == b"\x1f\x8b":
            body = gzip.decompress(body)
        elif body[:4] == b"H4sI":
            body = gzip.decompress(base64.b64decode(body))
        found.append(body)
    return found


@pytest.mark.shared
def test_recorded_semantic_scholar_answers_are_read() -> None:
    root = shared("semanticscholar_vcr")
    (body,) = cassette(root / "test_search_paper.yaml")
    records = SemanticScholar(Access())._parse(body)
    assert len(records) == 100
    with pytest.raises(SourceChanged, match='"data"'):
        SemanticScholar(Access())._parse(cassette(root / "test_bad_query_parameters.yaml")[0])


@pytest.mark.shared
def test_recorded_crossref_answers_are_read() -> None:
    (body,) = cassette(shared("crossref_vcr") / "test-works" / "test_works_query.yaml")
    records = Crossref(Access())._parse(body)
    assert records and all(record.doi and record.title for record in records)


@pytest.mark.shared
def test_a_recorded_retraction_is_found_by_three_services() -> None:
    root = shared("retraction_multi_api")
    crossref = json.loads(next((root / "mock-crossref").rglob("*.json")).read_bytes())
    record = Crossref(Access())._record(crossref["message"])
    assert record is not None and record.retracted_on == date(2010, 2, 6)
    epmc = next((root / "mock-europepmc").rglob("*.json")).read_bytes()
    assert europe_pmc.parse_records("europe_pmc", epmc)[0].retracted
    work = json.loads(next((root / "mock-openalex").rglob("*.json")).read_bytes())
    assert OpenAlex(Access())._parse(json.dumps({"results": [work]}).encode()) == {record.doi}
