"""Search over all sources: merged, ranked, dated, degraded, cached; and the local index."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kg.lexicon.ontology import Ontology
from kg.literature.access import Access
from kg.literature.europe_pmc import EuropePmc
from kg.literature.expansion import list_synonyms
from kg.literature.local import LocalIndex, read_note
from kg.literature.merge import merge
from kg.literature.protocol import Wanted
from kg.literature.pubmed import PubMed
from kg.literature.rank import rank
from kg.literature.search import Literature
from kg.literature.types import Query, Record, clean_doi, says_retracted, title_key
from sage.core.http.client import Limit, Policy, Request, ServiceClient
from tests.core.http_server import MANY, Answer, FakeServices, serving
from tests.kg import lit_bodies as bodies

POLICY = Policy(attempts=1, attempt=1.0, deadline=3.0, backoff=0.01)
QUERIES = [
    Query(text="FABP5 bladder cancer survival", phrases=("FABP5", "bladder cancer")),
    Query(text="FABP5 metastasis", phrases=("FABP5", "metastasis")),
]


class Slow:
    """A source with a slot every three seconds."""

    name = "slow"
    limit = Limit(1, 3.0, concurrency=1)

    def __init__(self, url: str) -> None:
        self.url = f"{url}/slow"

    async def search(
        self, client: ServiceClient, wanted: Wanted, patience: float | None = None
    ) -> list[Record]:
        request = Request(self.name, self.limit, self.url, params={"q": wanted.queries[0].text})
        title = await client.fetch(request, bytes.decode, patience=patience)
        return [Record(title=title, year=2022, doi="10.5555/slow", sources=(self.name,))]


class Opinion:
    """A second opinion by which every paper of the slow source is retracted."""

    name = "opinion"
    limit = MANY

    def __init__(self, url: str) -> None:
        self.url = f"{url}/opinion"

    async def mark(
        self, client: ServiceClient, records: Sequence[Record], patience: float | None = None
    ) -> list[Record]:
        doi = await client.fetch(Request(self.name, MANY, self.url), bytes.decode)
        more = {"retracted": True, "retraction_sources": (self.name,)}
        return [r.model_copy(update=more) if r.doi == doi else r for r in records]


def literature(
    services: FakeServices, cache: Path | None = None, local: LocalIndex | None = None
) -> Literature:
    url = services.url
    access = Access(urls={"pubmed": f"{url}/pubmed", "europe_pmc": f"{url}/epmc"})
    return Literature(
        (PubMed(access), EuropePmc(access), Slow(url)),
        cache,
        local,
        policy=POLICY,
        retractions=[Opinion(url)],
    )


@pytest.fixture
def services():
    with serving() as running:
        bodies.all_answering(running)
        running.routes["/slow"] = Answer(b"Another paper on FABP5 in bladder cancer")
        running.routes["/opinion"] = Answer(b"none")
        yield running


def test_one_paper_from_two_sources_is_one_record(services: FakeServices) -> None:
    with literature(services) as search:
        answer = search.search(QUERIES, 10)
    same = [record for record in answer.records if record.title == bodies.TITLE]
    assert len(same) == 1
    assert set(same[0].sources) == {"pubmed", "europe_pmc"}
    assert same[0].doi == bodies.DOI and same[0].pmid == bodies.PMID
    assert answer.missing == ()
    assert answer.served_by == ("pubmed", "europe_pmc", "slow")


def test_a_dead_source_is_named_and_the_others_still_answer(services: FakeServices) -> None:
    services.routes["/pubmed/esearch.fcgi"] = Answer(b"", 500)
    services.routes["/slow"] = Answer(b"", 404)
    with literature(services) as search:
        answer = search.search(QUERIES, 10)
    reasons = {item.name: item.reason for item in answer.missing}
    assert reasons["pubmed"] == "HTTP 500"
    assert reasons["slow"] == "HTTP 404"
    assert any(record.title == bodies.TITLE for record in answer.records)


def test_without_any_source_the_local_index_answers_and_says_so() -> None:
    local = LocalIndex([Record(title="FABP5 in bladder cancer", year=2020)])
    with serving() as services, literature(services, local=local) as search:
        answer = search.search(QUERIES, 10)
    assert [record.title for record in answer.records] == ["FABP5 in bladder cancer"]
    assert answer.served_by == ("local index",)
    assert len(answer.missing) == 3
    assert "absence from the literature" in answer.notes[0]


def test_a_failure_is_asked_again_in_the_next_run(services: FakeServices, tmp_path: Path) -> None:
    good = services.routes["/pubmed/esearch.fcgi"]
    services.routes["/pubmed/esearch.fcgi"] = Answer(b"", 500)
    with literature(services, tmp_path) as search:
        assert [item.name for item in search.search(QUERIES, 10).missing] == ["pubmed"]
    services.routes["/pubmed/esearch.fcgi"] = good
    with literature(services, tmp_path) as search:
        answer = search.search(QUERIES, 10)
    assert answer.missing == () and answer.requests == 2


def test_a_source_without_a_slot_is_not_asked_in_a_repetition(
    services: FakeServices, tmp_path: Path
) -> None:
    with literature(services, tmp_path) as search:
        search.search(QUERIES[:1], 5)
        first = search.search(QUERIES[1:], 5, patience=0.0)
    sent = len(services.seen)
    with literature(services, tmp_path) as search:
        second = search.search(QUERIES[1:], 5, patience=0.0)
    assert "slow" in {item.name for item in first.missing}
    assert len(services.seen) == sent and second.missing == first.missing


def test_two_critics_cost_each_service_one_search(services: FakeServices) -> None:
    with literature(services) as search:
        answers = search.search_together({"prover": QUERIES[:1], "verifier": QUERIES[1:]}, 5)
    assert set(answers) == {"prover", "verifier"}
    assert len(services.to("/pubmed/esearch")) == 1
    assert len(services.to("/epmc")) == len(services.to("/slow")) == 1


def test_a_second_opinion_finds_a_retraction_that_the_sources_missed(
    services: FakeServices,
) -> None:
    services.routes["/opinion"] = Answer(b"10.5555/slow")
    with literature(services) as search:
        answer = search.search(QUERIES, 10)
    (record,) = (record for record in answer.records if record.doi == "10.5555/slow")
    assert record.retracted and record.retraction_sources == ("opinion",)
    assert "2 of 3 records are retracted." in answer.notes


def test_nothing_after_the_date_of_judgment_is_returned(services: FakeServices) -> None:
    with literature(services) as search:
        answer = search.search(QUERIES, 10, as_of=date(2023, 12, 31))
    assert {record.year for record in answer.records} == {2015, 2022}


def test_a_retraction_after_the_date_of_judgment_is_not_yet_one() -> None:
    record = Record(
        title="x", year=2010, retracted=True, retracted_on=date(2015, 1, 1), doi=bodies.DOI
    )
    assert not record.as_known(date(2014, 1, 1)).retracted
    assert record.as_known(date(2016, 1, 1)).retracted


@pytest.mark.parametrize(
    ("record", "as_of", "known"),
    [
        (Record(title="x", year=2019), date(2019, 12, 31), True),
        (Record(title="x", year=2019), date(2019, 12, 30), False),
        (Record(title="x", published=date(2019, 5, 1), year=2019), date(2019, 5, 1), True),
        (Record(title="x"), date(2030, 1, 1), False),
        (Record(title="x"), None, True),
    ],
)
def test_a_record_counts_only_when_it_had_certainly_appeared(
    record: Record, as_of: date | None, known: bool
) -> None:
    assert record.known_by(as_of) is known


def test_records_merge_by_title_within_a_year() -> None:
    one = Record(title="Lymphoid follicles in bladder tumors", year=2019, sources=("a",))
    other = Record(title="LYMPHOID FOLLICLES in Bladder Tumors.", year=2020, sources=("b",))
    late = one.model_copy(update={"year": 2015})
    assert len(merge([one, other])) == 1
    assert merge([one, other])[0].sources == ("a", "b")
    assert len(merge([one, late])) == 2


def test_a_preprint_and_its_journal_version_are_one() -> None:
    preprint = Record(
        title="Lymphoid follicles in bladder tumors",
        year=2018,
        doi=bodies.PREPRINT_DOI,
        preprint=True,
    )
    journal = Record(title="Lymphoid follicles in bladder tumors", year=2019, doi=bodies.DOI)
    (both,) = merge([preprint, journal])
    assert both.doi == bodies.DOI and not both.preprint


def test_short_or_different_titles_are_never_joined() -> None:
    assert (
        len(
            merge(
                [Record(title="Editorial", year=2020)] * 1
                + [Record(title="Editorial", year=2020, doi=bodies.DOI)]
            )
        )
        == 2
    )
    one = Record(title="Tertiary lymphoid structures in cancer", year=2020, doi=bodies.DOI)
    two = one.model_copy(update={"doi": bodies.RETRACTED_DOI})
    assert len(merge([one, two])) == 2


def test_a_retraction_by_any_source_stands_after_merging() -> None:
    clean = Record(title="Some long enough title here", doi=bodies.DOI, sources=("a",))
    flagged = clean.model_copy(
        update={"retracted": True, "retraction_sources": ("b",), "sources": ("b",)}
    )
    (record,) = merge([clean, flagged])
    assert record.retracted and record.retraction_sources == ("b",)


records = st.builds(
    Record,
    title=st.sampled_from([f"Lymphoid follicles in tumor number {n}" for n in range(4)]),
    year=st.sampled_from([2018, 2019, 2023]),
    doi=st.sampled_from([None, bodies.DOI, bodies.RETRACTED_DOI]),
    sources=st.sampled_from([("a",), ("b",)]),
)


@settings(deadline=None)
@given(st.lists(records, max_size=8))
def test_merging_loses_no_source_and_is_stable(found: list[Record]) -> None:
    merged = merge(found)
    assert {name for item in merged for name in item.sources} == {
        name for item in found for name in item.sources
    }
    assert merge(merged + merged) == merge(merged)


def test_a_retracted_record_ranks_below_its_equal() -> None:
    good = Record(title="FABP5 bladder cancer survival a")
    bad = Record(title="FABP5 bladder cancer survival b", retracted=True)
    ranked = rank([bad, good], QUERIES, 5)
    assert [item.retracted for item in ranked] == [False, True]


def test_an_embedding_reorders_what_words_cannot_tell() -> None:
    import numpy as np

    def embed(texts):
        vectors = np.array(
            [[1.0, 0.0] if "near" in text or "FABP5" in text else [0.0, 1.0] for text in texts]
        )
        return vectors

    far, near = Record(title="survival far"), Record(title="survival near")
    query = [Query(text="FABP5 survival")]
    assert rank([far, near], query, 2)[0].title == "survival far"
    assert rank([far, near], query, 2, embed)[0].title == "survival near"


def test_a_measurement_takes_the_names_of_what_it_measures() -> None:
    ontology = Ontology.load(Path(__file__).resolve().parents[2] / "data" / "ontology")
    found = list_synonyms("density of TLS-like lymphoid aggregates on H&E", ontology)
    assert found[0].startswith("density of") and "tertiary lymphoid structure" in found
    assert "H&E" not in found
    assert list_synonyms("attention over TLS slides", ontology) == ("attention over TLS slides",)


def test_the_local_index_ranks_the_paper_with_both_concepts_first() -> None:
    index = LocalIndex(
        [
            Record(title="Bladder cancer survival"),
            Record(title="FABP5 in skin"),
            Record(title="A title", snippets=("FABP5 loss shortens survival in bladder cancer",)),
        ]
    )
    assert index.search(QUERIES[0], 3)[0].title == "A title"
    assert index.search("zzz", 3) == []
    assert index.count((("FABP5",), ("bladder cancer",))) == 1


def test_a_note_is_read_with_its_findings() -> None:
    record = read_note(
        '---\ntitle: "T: one"\nyear: 2020\ndoi: null\nretracted: true\n---\n\n- First.\n- Second.\n'
    )
    assert record is not None
    assert (record.title, record.year, record.doi) == ("T: one", 2020, None)
    assert record.snippets == ("First.", "Second.") and record.retracted
    assert read_note("no front matter") is None


@pytest.mark.parametrize(
    ("given_doi", "clean"),
    [
        (f"https://doi.org/{bodies.DOI}", bodies.DOI),
        (f"doi:{bodies.DOI.upper()}", bodies.DOI),
        ("not a doi", None),
        (None, None),
    ],
)
def test_dois_are_brought_to_one_form(given_doi: str | None, clean: str | None) -> None:
    assert clean_doi(given_doi) == clean


def test_publishers_marks_are_seen_and_ordinary_words_are_not() -> None:
    assert says_retracted("RETRACTED ARTICLE: A study")
    assert says_retracted("[Retracted] A study")
    assert says_retracted("A study [retracted]")
    assert not says_retracted("Withdrawn patients in bladder trials")
    assert title_key("RETRACTED: A  study!") == title_key("a study")
