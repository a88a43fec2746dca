"""Lists of PMIDs and DOIs: fetched once, missing ones told."""

from __future__ import annotations

from pathlib import Path

import pytest

from kg.literature.access import Access
from kg.literature.pubmed import PubMed
from kg.sources.fetch import fetch_ids, read_ids
from sage.core.errors import InputError
from sage.core.http.client import Policy
from sage.core.http.errors import ServiceError
from tests.core.http_server import Answer, FakeServices, serving
from tests.kg.in_helpers import read_documents

QUICK = Policy(attempts=1, deadline=3.0, attempt=2.0)
MEDLINE = b"""
PMID- 11
TI  - First title
AB  - FABP5 promotes invasion.
DP  - 2020

PMID- 12
TI  - Second title
DP  - 2021
"""


def _services(fake: FakeServices) -> None:
    fake.routes["/esearch.fcgi"] = lambda seen: Answer(
        b'{"esearchresult": {"idlist": ["12"]}}'
        if "10.1000/known" in seen.params["term"]
        else b'{"esearchresult": {"idlist": []}}'
    )
    fake.routes["/efetch.fcgi"] = Answer(MEDLINE)


def test_identifiers_become_records_that_the_build_reads(tmp_path: Path) -> None:
    with serving() as fake:
        _services(fake)
        ids = ["11", "10.1000/known", "10.1000/unknown", "99"]
        report = fetch_ids(ids, tmp_path, PubMed(Access(urls={"pubmed": fake.url})), QUICK)
    assert report.written == ["11", "12"]
    assert sorted(report.missing) == ["10.1000/unknown", "99"]
    assert [(d.pmid, d.year) for d in read_documents(tmp_path)] == [("11", 2020), ("12", 2021)]


def test_records_that_are_there_are_not_asked_for_again(tmp_path: Path) -> None:
    with serving() as fake:
        _services(fake)
        fetch_ids(["11", "12"], tmp_path, PubMed(Access(urls={"pubmed": fake.url})), QUICK)
        again = fetch_ids(["11", "12"], tmp_path, PubMed(Access(urls={"pubmed": fake.url})), QUICK)
        assert len(fake.to("/efetch.fcgi")) == 1
    assert again.present == ["11", "12"]


def test_an_answer_in_another_form_is_an_error_not_an_empty_list(tmp_path: Path) -> None:
    with serving() as fake:
        fake.routes["/efetch.fcgi"] = Answer(b"<html>busy</html>")
        with pytest.raises(ServiceError, match="instead of MEDLINE"):
            fetch_ids(["11"], tmp_path, PubMed(Access(urls={"pubmed": fake.url})), QUICK)


def test_a_line_that_is_no_identifier_is_named() -> None:
    assert read_ids(["PMID: 11  # why", "", "https://doi.org/10.1000/x.", "11"]) == [
        "11",
        "10.1000/x",
    ]
    with pytest.raises(InputError, match="line 2: 'hello' is neither"):
        read_ids(["11", "hello"])
