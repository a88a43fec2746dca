"""From a topic to a corpus, against services that speak their protocols, well and badly."""

from __future__ import annotations

import csv
import json
import multiprocessing
import os
import re
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reportlab.pdfgen.canvas import Canvas
from typer.testing import CliRunner

from kg.literature.access import Access
from kg.literature.merge import merge
from kg.literature.topic import parse_topic
from kg.sources.plain import read_text
from sage.cli.kg import app as kg_app
from sage.core.errors import InputError
from sage.core.http.client import Policy
from sage_literature.cli import app
from sage_literature.gather import folder as folder_module
from sage_literature.gather.folder import CorpusFolder
from sage_literature.gather.gather import Services, gather, update
from sage_literature.gather.screening import find_objection, mark_retracted
from sage_literature.gather.texts import file_name, license_name, markdown
from sage_literature.gather.types import Flow, Plan
from sage_literature.records import Found
from sage_literature.sources import biorxiv, europe_pmc, openalex, pubmed, semantic_scholar
from sage_literature.tests.catalogs import Catalogs, Paper, asked, corpus, running
from tests.core.http_server import MANY, Answer, Seen
from tests.kg.in_helpers import ontology, read_documents

QUICK = Policy(
    attempts=2, deadline=8.0, attempt=2.0, backoff=0.01, backoff_max=0.02, longest_wait=3.0,
    patience=3.0,    max_bytes=1 << 20, breaker_threshold=1000,
)  # fmt: skip
TOPIC = "bladder cancer"
ONTOLOGY = ontology()
ANY = Plan(topic=TOPIC, threshold=0.0)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rates are tested on the client; here they would only cost time."""
    monkeypatch.setattr(europe_pmc, "LIMIT", MANY)
    monkeypatch.setattr(semantic_scholar.SemanticScholar, "limit", MANY)
    monkeypatch.setattr(biorxiv.Biorxiv, "limit", MANY)
    monkeypatch.setattr(openalex.OpenAlex, "limit", MANY)


@pytest.fixture
def world() -> Iterator[Catalogs]:
    """Twelve papers in four catalogs, four of them with an open full text."""
    with running(corpus(12)) as catalogs:
        yield catalogs


def gathered(world: Catalogs, root: Path, plan: Plan = ANY, **access: object) -> Flow:
    services = Services(world.access(**access), "a@example.org", QUICK)
    return gather(root, plan, parse_topic(plan.topic, ONTOLOGY), services)


def updated(world: Catalogs, root: Path) -> Flow:
    services = Services(world.access(), "a@example.org", QUICK)
    return update(root, lambda topic: parse_topic(topic, ONTOLOGY), services, None)


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def adds_up(flow: Flow) -> bool:
    """Every record is accounted for once, from the catalogs to the corpus."""
    early, late = (sum(flow.left_out[stage].values()) for stage in ("screening", "full text"))
    return (
        sum(catalog.taken for catalog in flow.catalogs) == flow.identified
        and flow.identified - flow.duplicates == flow.screened
        and flow.screened - early - late == flow.included
        and flow.retrieved + flow.abstracts == flow.included
        and flow.retrieved <= flow.sought
    )


# -- searching ---------------------------------------------------------------------------------


def test_every_catalog_is_read_to_its_end_and_each_paper_is_one_file(
    world: Catalogs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pubmed, "_PER_PAGE", 5)
    world.pages = 5
    flow = gathered(world, tmp_path / "c")
    assert {c.name: c.taken for c in flow.catalogs} == {
        "pubmed": 12, "europe_pmc": 12, "biorxiv": 0, "openalex": 12, "semantic_scholar": 12,
    }  # fmt: skip
    seen = world.services.to
    starts = [s.params["retstart"] for s in seen("/eutils/efetch") if "retstart" in s.params]
    assert starts == ["0", "5", "10"]
    cursors = [
        s.params["cursorMark"] for s in seen("/epmc/search") if "SRC" not in s.params["query"]
    ]
    assert cursors == ["*", "5", "10"]
    assert [s.params["cursor"] for s in seen("/openalex")] == ["*", "5", "10", "15"]
    assert [s.params.get("token") for s in seen("/s2")] == [None, "5", "10"]
    retracted = sum(paper.retracted for paper in world.papers)
    assert (flow.included, flow.screened, flow.duplicates) == (12 - retracted, 12, 36)
    assert adds_up(flow)
    documents = list(read_documents(tmp_path / "c"))
    assert len(documents) == flow.included
    known = {p.pmid for p in world.papers if not p.retracted}
    assert {document.pmid for document in documents} == known
    with_text = {d.pmid for d in documents if any(s.title == "Results" for s in d.sections)}
    assert with_text == {p.pmid for p in world.papers if p.pmcid and not p.retracted}


def test_the_year_reaches_every_catalog(world: Catalogs, tmp_path: Path) -> None:
    flow = gathered(world, tmp_path / "c", Plan(topic=TOPIC, since=2015, threshold=0.0))
    late = sum(paper.year >= 2015 for paper in world.papers)
    assert 0 < late < 12
    assert {c.taken for c in flow.catalogs if c.name != "biorxiv"} == {late}


def test_the_bound_holds_for_each_catalog_and_for_the_corpus(
    world: Catalogs, tmp_path: Path
) -> None:
    shared = [replace(p, held=("pubmed",)) for p in world.papers[:6]]
    world.papers = shared + [replace(p, held=("europe_pmc",)) for p in world.papers[6:]]
    flow = gathered(world, tmp_path / "c", Plan(topic=TOPIC, threshold=0.0, most=4))
    assert [c.taken for c in flow.catalogs][:2] == [4, 4]
    assert "4 of 6 were read (--limit), the most relevant" in flow.catalogs[0].notes
    assert flow.included == 4
    assert flow.left_out["screening"]["beyond the 4 of --limit, by lexical rank"] > 0
    assert adds_up(flow)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), count=st.integers(1, 4))
def test_records_in_any_order_become_their_papers(data: st.DataObject, count: int) -> None:
    """Each paper is known in parts; one of its records, wherever it stands, holds them together."""
    heard = []
    for n in range(count):
        ids = {"doi": f"10.5555/p{n}", "pmid": str(100 + n), "pmcid": f"PMC{1000 + n}"}
        parts = data.draw(st.lists(st.sampled_from([*ids]), max_size=4))
        for part in [[name] for name in parts] + [[*ids]]:
            heard.append(Found(title=f"Telling {len(heard)}", **{name: ids[name] for name in part}))
    papers = merge(data.draw(st.permutations(heard)))
    assert sorted((p.doi, p.pmid, p.pmcid) for p in papers) == [
        (f"10.5555/p{n}", str(100 + n), f"PMC{1000 + n}") for n in range(count)
    ]


def test_a_preprint_and_its_journal_version_are_one_paper(tmp_path: Path) -> None:
    base = corpus(2)[1]
    journal = replace(base, held=("pubmed", "openalex"))
    preprint = replace(
        base, title="An early title of that study in urothelial tumors", doi="10.5555/pre",
        pmid=None, preprint_of=base.doi, held=("biorxiv",),
    )  # fmt: skip
    with running([journal, preprint]) as world:
        flow = gathered(world, tmp_path / "c")
    assert (flow.screened, flow.included) == (1, 1)
    (document,) = read_documents(tmp_path / "c")
    assert (document.pmid, document.title) == (base.pmid, base.title)
    assert "doi:10.5555/pre" in rows(tmp_path / "c" / "documents.tsv")[0]["identifiers"]


def test_a_withdrawn_preprint_does_not_retract_its_journal_version(tmp_path: Path) -> None:
    journal = replace(corpus(2)[1], held=("pubmed",))
    preprint = replace(
        journal, title="An early title of that study in urothelial tumors", doi="10.5555/pre",
        pmid=None, preprint_of=journal.doi, held=("biorxiv",), withdrawn=True,
    )  # fmt: skip
    with running([journal, preprint]) as world:
        flow = gathered(world, tmp_path / "c")
    assert flow.left_out["screening"] == {"retracted": 1}
    assert [document.pmid for document in read_documents(tmp_path / "c")] == [journal.pmid]


# -- what services do ----------------------------------------------------------------------------


def html(_: Seen) -> Answer:
    return Answer(b"<html><body>Are you a robot?</body></html>")


BAD = {
    "down": lambda _: Answer(b"", 503),
    "captcha": html,
    "another form": lambda _: Answer(b'{"hits": []}'),
}
ROUTES = {
    "pubmed": "esearch",
    "europe_pmc": "europe_pmc",
    "openalex": "openalex",
    "semantic_scholar": "semantic_scholar",
}


@pytest.mark.parametrize(
    ("name", "how"),
    [("pubmed", "captcha"), ("europe_pmc", "another form"), ("openalex", "another form"),
     ("semantic_scholar", "down")],
)  # fmt: skip
def test_a_catalog_that_fails_is_named_and_the_others_go_on(
    world: Catalogs, tmp_path: Path, name: str, how: str
) -> None:
    world.papers = world.papers[:3]
    world.broken[ROUTES[name]] = BAD[how]
    flow = gathered(world, tmp_path / "c")
    failed = {"europe_pmc", "biorxiv"} if name == "europe_pmc" else {name}
    assert {catalog.name for catalog in flow.missing} == failed
    assert flow.included == 3
    assert adds_up(flow)
    assert "**missing: " in (tmp_path / "c" / "README.md").read_text()
    before = Counter(asked(world))
    world.broken.clear()
    again = gathered(world, tmp_path / "c")
    assert not again.missing
    repeated = Counter(asked(world)) - before
    asked_again = "/epmc" if name == "europe_pmc" else {"pubmed": "/eutils"}.get(name, f"/{name}")
    asked_again = "/s2" if name == "semantic_scholar" else asked_again
    assert all(line.startswith(asked_again) for line in repeated), repeated


def test_a_cursor_that_expired_is_replaced_by_a_new_search(
    world: Catalogs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pubmed, "_PER_PAGE", 5)
    calls: list[str] = []

    def stops(seen: Seen) -> Answer:
        calls.append(seen.params.get("retstart", ""))
        return Answer(b"", 500) if seen.params.get("retstart") == "5" else world._efetch(seen)

    def forgets(seen: Seen) -> Answer:
        if len(calls) and seen.params.get("retstart") == "5":
            calls.clear()
            return Answer(b"<ERROR>Unable to obtain query #1</ERROR>", 400)
        return world._efetch(seen)

    world.broken["efetch"] = stops
    assert [c.name for c in gathered(world, tmp_path / "c").missing] == ["pubmed"]
    world.broken["efetch"] = forgets
    flow = gathered(world, tmp_path / "c")
    assert not flow.missing and flow.catalogs[0].taken == 12


def test_a_catalog_that_stays_down_loses_none_of_its_pages(
    world: Catalogs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pubmed, "_PER_PAGE", 5)
    down = Answer(b"", 503)
    real = world._efetch
    world.broken["efetch"] = lambda s: down if s.params.get("retstart") == "5" else real(s)
    for _ in range(2):
        assert gathered(world, tmp_path / "c").catalogs[0].taken == 5
        world.broken["esearch"] = world.broken["efetch"] = lambda _: down
    world.broken.clear()
    before = len(world.services.to("/eutils/esearch"))
    assert gathered(world, tmp_path / "c").catalogs[0].taken == 12
    assert len(world.services.to("/eutils/esearch")) == before


def test_a_cursor_in_a_circle_ends(world: Catalogs, tmp_path: Path) -> None:
    world.broken["semantic_scholar"] = lambda seen: world._bulk(
        replace(seen, params={**seen.params, "token": "0"})
    )
    world.pages = 5
    flow = gathered(world, tmp_path / "c")
    assert flow.catalogs[-1].taken <= 12
    assert len(world.services.to("/s2")) <= 3


def test_keys_are_sent_and_never_written(world: Catalogs, tmp_path: Path) -> None:
    world.broken["semantic_scholar"] = BAD["captcha"]
    gathered(world, tmp_path / "c")
    (first, *_) = world.services.to("/eutils/esearch")
    assert first.params["api_key"] == "n-key"
    assert world.services.to("/openalex")[0].params["api_key"] == "o-key"
    assert world.services.to("/s2")[0].headers["x-api-key"] == "s-key"
    for path in (tmp_path / "c").rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert not any(key in content for key in (b"n-key", b"o-key", b"s-key")), path


@pytest.mark.parametrize(
    "address", ["ftp://host/", "file:///etc/passwd", "//host", "https://user:pw@host/", "host"]
)
def test_an_address_that_is_no_plain_web_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="the address must"):
        Access(urls={"pubmed": address})


# -- screening -----------------------------------------------------------------------------------

ABOUT = "FABP5 promotes bladder cancer."
SCREENED = [
    ({}, None),
    ({"retracted": True, "retraction_sources": ("pubmed",)}, r"retracted \(according to pubmed\)"),
    ({"kinds": ("editorial",)}, "not a research article: editorial"),
    ({"kinds": ("retraction of publication",)}, "not a research article: retraction notice"),
    ({"kinds": ("review",)}, None),
    ({"title": "Correction to: FABP5 and bladder cancer"}, "notice about another paper"),
    ({"title": "Correction of anemia before cystectomy for bladder cancer"}, None),
    ({"language": "ita"}, r"not in English \(ita\)"),
    ({"year": 2014}, "published before 2015"),
    ({"abstract": ""}, "no abstract and no open full text"),
    ({"abstract": "", "pmcid": "PMC123"}, None),
    ({"abstract": "A study of mice.", "title": "Sleep in mice"}, "off topic: mentions 0 of 2"),
    ({"abstract": "Bladder function. Cancer of the lung.", "title": "FABP5"}, "mentions 1 of 2"),
]


@pytest.mark.parametrize(("fields", "reason"), SCREENED)
def test_each_rule_of_screening(fields: dict[str, object], reason: str | None) -> None:
    plain = {"title": "A gene in bladder cancer", "abstract": ABOUT, "year": 2020}
    query = parse_topic("FABP5 in bladder cancer", ONTOLOGY)
    plan = Plan(topic="x", since=2015)
    said = find_objection(Found.model_validate({**plain, **fields}), query, plan)
    assert (said is None) == (reason is None), said
    assert reason is None or re.search(reason, said or "")


def test_a_retraction_notice_retracts_the_paper_it_names() -> None:
    paper = Found(title="Claims of a gene in the bladder", doi="10.5555/x", pmid="5")
    notice = Found(title="Retraction: claims of a gene", pmid="6", retracts=("doi:10.5555/x",))
    other = Found(title="Another paper on the bladder", pmid="7")
    marked = mark_retracted([paper, notice, other])
    assert [p.retracted for p in marked] == [True, False, False]


# -- full texts ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("https://creativecommons.org/licenses/by/4.0/", "CC BY 4.0"),
        ("cc by-nc", "CC BY-NC"),
        ("https://creativecommons.org/publicdomain/zero/1.0/", "CC0"),
        ("public-domain", "public domain"),
        ("distributed under the terms of the Creative Commons Attribution License", "CC BY"),
        ("a Creative Commons Attribution-NonCommercial-NoDerivs licence", "CC BY-NC-ND"),
        ("publisher-specific-oa", "publisher-specific-oa"),
        ("", "not stated"),
    ],
)
def test_licenses_have_one_form(said: str | None, name: str) -> None:
    assert license_name(said) == name


def text_of(world: Catalogs, tmp_path: Path, body: bytes, status: int = 200) -> dict[str, str]:
    """The row of the one paper when Europe PMC answers `body` for its text, PMC nothing."""
    world.papers = [replace(corpus(4)[3], retracted=False)]
    world.broken["texts"] = lambda _: Answer(body, status)
    real = world._efetch
    world.broken["efetch"] = lambda seen: (
        Answer(b"<pmc-articleset/>") if seen.params["db"] == "pmc" else real(seen)
    )
    flow = gathered(world, tmp_path / "c")
    assert flow.included == 1 and adds_up(flow)
    return rows(tmp_path / "c" / "documents.tsv")[0]


BODY = "<body><sec><title>R</title><p>{}</p></sec></body>".format("Many words of text. " * 80)
REFUSED = {
    "entities": (b'<!DOCTYPE a [<!ENTITY x "y">]><article>&x;</article>', "declares XML entities"),
    "another paper": (
        b'<article><front><article-meta><article-id pub-id-type="doi">10.5555/other</article-id>'
        b"</article-meta></front>" + BODY.encode() + b"</article>",
        "is the text of another paper (DOI 10.5555/other)",
    ),
    "nobody's": (b"<article><front/>" + BODY.encode() + b"</article>", "does not contain"),
    "nothing": (b"", "has no open full text"),
    "error in XML": (b"<errorBean><errCode>0</errCode></errorBean>", "has no open full text"),
}


@pytest.mark.parametrize("how", REFUSED)
def test_a_reply_that_is_no_full_text_leaves_the_abstract_and_says_why(
    world: Catalogs, tmp_path: Path, how: str
) -> None:
    body, why = REFUSED[how]
    row = text_of(world, tmp_path, body)
    assert row["text"] == "abstract" and why in row["reason for no full text"]


@pytest.mark.parametrize("body", [b"<html>Are you a robot?</html>", b"<article><front>"])
def test_a_place_that_fails_is_asked_again_by_the_next_call(
    world: Catalogs, tmp_path: Path, body: bytes
) -> None:
    row = text_of(world, tmp_path, body)
    assert row["text"] == "abstract"
    flow = json.loads((tmp_path / "c" / "prisma.json").read_text())
    assert flow["pending"] == 1
    assert "Europe PMC did not return every full text" in flow["notes"][0]
    del world.broken["texts"]
    assert gathered(world, tmp_path / "c").retrieved == 1
    assert [d.path.endswith(".xml") for d in read_documents(tmp_path / "c")] == [True]


def test_pmc_is_asked_where_europe_pmc_has_no_text(world: Catalogs, tmp_path: Path) -> None:
    world.broken["texts"] = lambda _: Answer(b"<errorBean/>", 404)
    flow = gathered(world, tmp_path / "c")
    assert flow.texts == {"PMC": flow.retrieved} and flow.retrieved > 0


def test_a_paper_that_its_full_text_calls_retracted_is_left_out(
    world: Catalogs, tmp_path: Path
) -> None:
    mark = '<related-article related-article-type="retraction-forward"/></article-meta>'
    real = world._text

    def marked(seen: Seen) -> Answer:
        return Answer(real(seen).body.replace(b"</article-meta>", mark.encode()))

    world.broken["texts"] = marked
    flow = gathered(world, tmp_path / "c")
    assert flow.retrieved == 0 and flow.left_out["full text"] == {"retracted": 4}
    assert adds_up(flow)
    assert not any(path.suffix == ".xml" for path in (tmp_path / "c" / "documents").iterdir())


def with_pdf(world: Catalogs, name: str = "/pdf/a.pdf") -> None:
    base = replace(corpus(2)[1], pmcid=None)
    url = name if "://" in name else world.services.url + name
    world.papers = [replace(base, pdf=url, held=("pubmed", "openalex"))]


ARTICLE = Path("literature/biomedical/peerj_ccby.pdf")


@pytest.mark.shared
def test_an_open_pdf_is_read_into_text_with_its_license(world: Catalogs, tmp_path: Path) -> None:
    shared = os.environ.get("SAGE_SHARED", Path(__file__).resolve().parents[2].parent / "shared")
    path = Path(shared) / "data" / ARTICLE
    if not path.is_file():
        pytest.skip(f"shared data absent: {path}")
    with_pdf(world)
    title = "VESPA: Very large-scale Evolutionary and Selective Pressure Analyses"
    world.papers = [replace(world.papers[0], title=title)]
    world.broken["pdf"] = lambda _: Answer(path.read_bytes())
    flow = gathered(world, tmp_path / "c")
    assert flow.texts == {"PDF": 1} and flow.licenses == {"CC BY": 1}
    (document,) = read_documents(tmp_path / "c")
    assert document.doi == world.papers[0].doi and len(document.text) > 5000
    assert len(world.services.to("/pdf/")) == 1


def test_a_pdf_of_another_paper_is_refused(world: Catalogs, tmp_path: Path) -> None:
    with_pdf(world)
    page = Canvas(str(tmp_path / "other.pdf"))
    for line in range(40):
        page.drawString(72, 780 - 16 * line, "Quite another paper, of patients and their care.")
    page.save()
    world.broken["pdf"] = lambda _: Answer((tmp_path / "other.pdf").read_bytes())
    gathered(world, tmp_path / "c")
    (row,) = rows(tmp_path / "c" / "documents.tsv")
    assert row["text"] == "abstract" and "does not start with" in row["reason for no full text"]


@pytest.mark.parametrize(
    ("url", "body", "why"),
    [
        ("/pdf/a.pdf", b"<html>login</html>", "did not return a PDF"),
        ("/pdf/a.pdf", b"%PDF-1.4 broken", "unreadable PDF"),
        ("http://[::1]/a.pdf", b"", "in a private network"),
        ("http://169.254.169.254/latest", b"", "in a private network"),
        ("file:///etc/passwd", b"", "no permitted address"),
        ("http://[::1/a.pdf", b"", "no permitted address"),
        ("http://user:pw@host/a.pdf", b"", "no permitted address"),
        ("http://" + "a" * 300 + ".org/a.pdf", b"", "no permitted address"),
    ],
)
def test_an_address_out_of_a_record_is_followed_with_care(
    world: Catalogs, tmp_path: Path, url: str, body: bytes, why: str
) -> None:
    with_pdf(world, url)
    world.broken["pdf"] = lambda _: Answer(body)
    flow = gathered(world, tmp_path / "c")
    assert flow.retrieved == 0 and flow.included == 1
    assert why in rows(tmp_path / "c" / "documents.tsv")[0]["reason for no full text"]


def test_no_pdf_is_fetched_without_an_open_license_or_against_the_wish(
    world: Catalogs, tmp_path: Path
) -> None:
    with_pdf(world)
    gathered(world, tmp_path / "c", Plan(topic=TOPIC, threshold=0.0, pdfs=False))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sage_literature.gather.texts.is_open", lambda _: False)
        gathered(world, tmp_path / "d")
    assert not world.services.to("/pdf/")


WILD = [
    "10.5555/../../../etc/passwd",
    '10.5555/a\\b:c*?"<>|',
    "10.5555/" + "x" * 400,
    "10.5555/%2e%2e",
]


def test_identifiers_cannot_leave_the_folder(tmp_path: Path) -> None:
    base = corpus(2)[1]
    papers = [
        replace(base, doi=doi, pmid=None, title=f"{base.title} part {n}", held=("europe_pmc",))
        for n, doi in enumerate(WILD)
    ]
    with running(papers) as world:
        flow = gathered(world, tmp_path / "c")
    assert flow.included == len(WILD)
    inside = {p.name for p in (tmp_path / "c" / "documents").iterdir()}
    assert len(inside) == len(WILD)
    assert [p.name for p in tmp_path.iterdir()] == ["c"]
    assert all(len(name) < 100 and "/" not in name and ".." not in name for name in inside)


def test_a_title_cannot_forge_front_matter_or_a_formula(tmp_path: Path) -> None:
    wild = '=HYPERLINK("http://x")\nretracted: true\n---\n# Not a heading'
    found = Found(title=wild, abstract="# Background. ---\nSaid.", doi="10.5555/w", year=2020)
    (document,) = read_text(Path("x.md"), markdown(found, "CC BY").encode())
    assert not document.retracted and document.doi == "10.5555/w" and document.year == 2020
    assert len(document.sections) == 1
    assert file_name(found).startswith("doi-10-5555-w-")
    paper = replace(corpus(2)[1], title="=cmd|' /C calc'!A0 in bladder cancer")
    with running([paper]) as world:
        gathered(world, tmp_path / "c")
    assert rows(tmp_path / "c" / "documents.tsv")[0]["title"].startswith("'=cmd")


# -- stopping and going on ---------------------------------------------------------------------


def killed_at(root: Path, access: Access) -> None:
    europe_pmc.LIMIT = MANY
    semantic_scholar.SemanticScholar.limit = MANY
    services = Services(access, "a@example.org", QUICK)
    gather(root, ANY, parse_topic(TOPIC, ONTOLOGY), services)


@pytest.mark.parametrize("when", [4, 11])
def test_a_gathering_that_was_killed_goes_on_and_asks_nothing_twice(
    world: Catalogs, tmp_path: Path, when: int
) -> None:
    world.pages = 5
    before = multiprocessing.get_context("fork").Process(
        target=killed_at, args=(tmp_path / "c", world.access())
    )
    answer = world.services.answer
    lock = world.services._lock

    killed = threading.Event()

    def counted(seen: Seen) -> Answer:
        answered = answer(seen)
        with lock:  # several may have been seen since the last look
            if len(world.services.seen) >= when and before.pid is not None and not killed.is_set():
                killed.set()
                os.kill(before.pid, signal.SIGKILL)
        return answered

    world.services.answer = counted  # type: ignore[method-assign]
    before.start()
    before.join(30)
    assert before.exitcode == -signal.SIGKILL
    world.services.answer = answer  # type: ignore[method-assign]
    under_way = 6  # requests whose answers the killed process had not written down
    flow = gathered(world, tmp_path / "c")
    twice = [line for line, count in Counter(asked(world)).items() if count > 1]
    assert len(twice) <= under_way
    assert adds_up(flow) and not flow.missing
    with running(corpus(12)) as fresh:
        whole = gathered(fresh, tmp_path / "whole")
    assert flow.model_dump(exclude={"date"}) == whole.model_dump(exclude={"date"})
    one, other = (sorted((tmp_path / n / "documents").iterdir()) for n in ("c", "whole"))
    assert [p.read_bytes() for p in one] == [p.read_bytes() for p in other]


def test_a_finished_gathering_asks_nothing(world: Catalogs, tmp_path: Path) -> None:
    first = gathered(world, tmp_path / "c")
    count = len(world.services.seen)
    assert gathered(world, tmp_path / "c") == first
    assert len(world.services.seen) == count


def test_a_text_written_before_the_kill_and_not_journaled_is_adopted(
    world: Catalogs, tmp_path: Path
) -> None:
    gathered(world, tmp_path / "c")
    folder = CorpusFolder(tmp_path / "c")
    (folder.state / "documents.jsonl").unlink()
    (folder.state / "rounds" / "1" / "finished").unlink()
    count = len(world.services.to("/epmc/PMC"))
    flow = gathered(world, tmp_path / "c")
    assert len(world.services.to("/epmc/PMC")) == count and flow.retrieved == count


def test_a_line_that_a_full_disk_cut_short_is_done_again(world: Catalogs, tmp_path: Path) -> None:
    whole = gathered(world, tmp_path / "c")
    folder = CorpusFolder(tmp_path / "c")
    journal = folder.state / "documents.jsonl"
    journal.write_bytes(journal.read_bytes()[:-30])
    (folder.state / "rounds" / "1" / "finished").unlink()
    assert gathered(world, tmp_path / "c").included == whole.included
    assert all(json.loads(line) for line in journal.read_text().splitlines())


def test_an_error_of_the_disk_is_the_error_that_is_seen(
    world: Catalogs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "x")

    monkeypatch.setattr(folder_module, "append_line", full)
    with pytest.raises(OSError, match="No space left"):
        gathered(world, tmp_path / "c")


FOLDERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "of something else": (lambda p: (p.mkdir(), (p / "x").write_text("")), "not from"),
    "a file": (lambda p: p.write_text(""), "is a file"),
}


@pytest.mark.parametrize("what", FOLDERS)
def test_a_folder_that_is_not_ours_is_left_alone(
    world: Catalogs, tmp_path: Path, what: str
) -> None:
    make, message = FOLDERS[what]
    make(tmp_path / "c")
    with pytest.raises(InputError, match=message):
        gathered(world, tmp_path / "c")
    assert not world.services.seen


def test_another_topic_or_another_process_is_refused(world: Catalogs, tmp_path: Path) -> None:
    gathered(world, tmp_path / "c")
    with pytest.raises(InputError, match="limit: 1000 then, 5 now"):
        gathered(world, tmp_path / "c", Plan(topic=TOPIC, threshold=0.0, most=5))
    with CorpusFolder(tmp_path / "c").lock(), pytest.raises(InputError, match="another process"):
        gathered(world, tmp_path / "c")


# -- keeping up to date ------------------------------------------------------------------------


def new_paper(number: int = 1) -> Paper:
    return Paper(
        title=f"New study {number} of FABP5 in bladder cancer",
        abstract="FABP5 promotes bladder cancer.",
        year=2026,
        doi=f"10.5555/new-{number}",
        pmid=str(99_500_000 + number),
    )


def test_an_update_takes_what_is_new_and_takes_out_what_was_retracted(
    world: Catalogs, tmp_path: Path
) -> None:
    before = gathered(world, tmp_path / "c")
    kept = next(p for p in world.papers if p.pmcid and not p.retracted)
    assert kept.doi
    world.change(kept.doi, retracted=True)
    world.papers.append(new_paper())
    texts = len(world.services.to("/epmc/PMC"))
    flow = updated(world, tmp_path / "c")
    assert [(c.what, c.title) for c in flow.changes] == [
        ("retracted", kept.title),
        ("new", new_paper().title),
    ]
    assert flow.included == before.included and adds_up(flow)
    assert len(world.services.to("/epmc/PMC")) == texts, "nothing is fetched twice"
    titles = {document.title for document in read_documents(tmp_path / "c")}
    assert new_paper().title in titles and kept.title not in titles
    left = {row["title"]: row["reason"] for row in rows(tmp_path / "c" / "left-out.tsv")}
    assert left[kept.title].startswith("retracted (according to pubmed")
    assert not updated(world, tmp_path / "c").changes


def test_a_retraction_of_a_paper_that_the_search_no_longer_brings_is_seen(
    world: Catalogs, tmp_path: Path
) -> None:
    gathered(world, tmp_path / "c")
    kept = next(p for p in world.papers if not p.retracted)
    assert kept.doi
    world.change(kept.doi, retracted=True, held=())
    flow = updated(world, tmp_path / "c")
    assert [(c.what, c.title) for c in flow.changes] == [("retracted", kept.title)]


def test_a_catalog_that_is_down_in_an_update_takes_nothing_away(
    world: Catalogs, tmp_path: Path
) -> None:
    before = gathered(world, tmp_path / "c")
    for name in ("esearch", "europe_pmc", "openalex", "semantic_scholar"):
        world.broken[name] = BAD["down"]
    flow = updated(world, tmp_path / "c")
    assert len(flow.missing) == 5 and not flow.changes
    assert flow.included == before.included
    assert (
        f"From earlier rounds: {before.identified})" in (tmp_path / "c" / "README.md").read_text()
    )


# -- what is printed -------------------------------------------------------------------------------


def test_what_no_service_answered_exits_with_1(world: Catalogs, tmp_path: Path) -> None:
    world.papers = [replace(world.papers[0], held=("pubmed",))]
    env = {**world.variables(), "SAGE_EMBEDDING_MODEL": "hashing"}
    corpus_, graph = str(tmp_path / "c"), str(tmp_path / "g")
    world.services.routes, known = {}, world.services.routes
    gathering = ["gather", TOPIC, "--out", str(tmp_path / "none")]
    assert CliRunner().invoke(app, gathering, env=env).exit_code == 1
    world.services.routes = known
    for group, command in (
        (app, ["gather", TOPIC, "--relevance", "0", "-o", corpus_]),
        (kg_app, ["build", corpus_, "-o", graph]),
    ):
        assert CliRunner().invoke(group, command, env=env).exit_code == 0
    update_ = ["update", "--graph", graph, "--runs", str(tmp_path)]
    world.services.routes.clear()
    ended = CliRunner().invoke(app, update_, env=env)
    assert ended.exit_code == 1, ended.output
    assert "missing: HTTP 404" in ended.stdout
