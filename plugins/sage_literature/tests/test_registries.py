"""Evidence clients against recorded answers and against silence."""

from __future__ import annotations

import asyncio
import json
import os
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from agents.feasibility.registries import Registries
from kg.literature.access import Access
from sage.core import clock
from sage.core.http.client import Policy, ServiceClient
from sage.core.http.errors import SourceChanged
from sage_literature import registries as module
from sage_literature.registries import (
    ClinicalTrials,
    DataCommons,
    Geo,
    GitHub,
    PackageIndex,
    Papers,
    Repository,
    find_releases,
    read_projects,
    read_repository,
    read_series,
    read_trials,
)
from tests.agents.nov_helpers import expanded
from tests.core.http_server import Answer, FakeServices, as_json, serving

POLICY = Policy(attempts=1, attempt=5.0, deadline=10.0, backoff=0.01)
TODAY = datetime(2026, 11, 20, tzinfo=UTC)
ALL = (ClinicalTrials, DataCommons, Geo, GitHub, PackageIndex, Papers)


def all_answering(services: FakeServices) -> None:
    services.routes |= {
        "/ncbi/esearch.fcgi": as_json({"esearchresult": {"count": "12", "idlist": ["1", "2"]}}),
        "/ncbi/esummary.fcgi": as_json(
            {
                "result": {
                    "uids": ["1", "2"],
                    "1": {"accession": "GSE13507", "title": "Bladder", "n_samples": 256},
                    "2": {"accession": "GSE7390", "title": "Other", "samples": [{}, {}]},
                }
            }
        ),
        "/gdc/projects": as_json(
            {
                "data": {
                    "hits": [
                        {"project_id": "A-SMALL", "name": "x", "summary": {"case_count": 10}},
                        {"project_id": "TCGA-BLCA", "name": "y", "summary": {"case_count": 412}},
                    ],
                    "pagination": {"total": 2},
                }
            }
        ),
        "/ct/studies": as_json(
            {
                "totalCount": 7,
                "studies": [
                    {
                        "protocolSection": {
                            "identificationModule": {"nctId": "NCT05431270", "briefTitle": "T"},
                            "statusModule": {"overallStatus": "RECRUITING"},
                        }
                    }
                ],
            }
        ),
        "/gh/repos": as_json(
            {
                "full_name": "CamDavidsonPilon/lifelines",
                "stargazers_count": 2400,
                "open_issues_count": 200,
                "archived": False,
                "pushed_at": "2026-09-01T10:00:00Z",
            }
        ),
        "/hf/api/papers/search": as_json(
            [
                {"paper": {"id": "0000.00001", "title": "No code"}},
                {
                    "paper": {
                        "id": "0000.00002",
                        "title": "Code",
                        "githubRepo": "https://github.com/a/b",
                        "githubStars": 5,
                    }
                },
            ]
        ),
    }


def every_registry(services: FakeServices, cache: Path | None = None) -> Registries:
    paths = {
        "geo": "ncbi", "gdc": "gdc", "clinical_trials": "ct", "github": "gh",
        "reference_code": "hf",
    }  # fmt: skip
    urls = {name: f"{services.url}/{path}" for name, path in paths.items()}
    access = Access.model_validate({"urls": urls, "keys": {"github": "t0ken"}})
    return Registries([registry(access) for registry in ALL], cache, POLICY)


@pytest.fixture
def services(monkeypatch: pytest.MonkeyPatch):
    # The index client is tested on its own against a local index below.
    monkeypatch.setattr(module, "find_releases", lambda name: None)
    monkeypatch.setattr(module, "PACKAGES", ("lifelines",))
    monkeypatch.setattr(clock, "now", lambda: TODAY)
    with serving() as running:
        all_answering(running)
        yield running


def test_every_registry_contributes_a_fact_with_its_numbers(services: FakeServices) -> None:
    facts = {fact.source: fact for fact in every_registry(services).facts(expanded())}
    assert "12 human series on bladder cancer" in facts["GEO"].statement
    assert "GSE13507 (256 samples)" in facts["GEO"].statement
    assert "TCGA-BLCA (412 cases); A-SMALL" in facts["GDC"].statement
    assert "7 registered studies of bladder cancer" in facts["ClinicalTrials.gov"].statement
    assert "1 of 2 listed papers" in facts["Hugging Face Papers"].statement
    assert "last push 80 days ago" in facts["GitHub"].statement
    assert facts["package index"].found is None


def test_a_silent_registry_is_unknown_and_not_counted_as_found(services: FakeServices) -> None:
    services.routes["/ncbi/esearch.fcgi"] = Answer(b"", 503)
    services.routes["/gdc/projects"] = Answer(b"<html></html>")
    services.routes["/ct/studies"] = as_json({"studies": []})
    facts = {fact.source: fact for fact in every_registry(services).facts(expanded())}
    assert facts["GEO"].found is None and "HTTP 503" in facts["GEO"].statement
    assert facts["GDC"].found is None and "markup" in facts["GDC"].statement
    assert facts["ClinicalTrials.gov"].found is None
    assert "totalCount" in facts["ClinicalTrials.gov"].statement
    assert facts["GitHub"].found is True


def test_a_second_assessment_sends_no_request(services: FakeServices, tmp_path: Path) -> None:
    for _ in range(2):
        every_registry(services, tmp_path).facts(expanded())
        sent = len(services.seen)
    assert sent == 6


def test_an_archived_repository_is_not_maintained(services: FakeServices) -> None:
    services.routes["/gh/repos"] = as_json(
        {
            "full_name": "a/b",
            "stargazers_count": 1,
            "open_issues_count": 0,
            "archived": True,
            "pushed_at": "2026-09-01T10:00:00Z",
        }
    )
    facts = {fact.source: fact for fact in every_registry(services).facts(expanded())}
    assert facts["GitHub"].found is False
    assert services.to("/gh")[0].headers["authorization"] == "Bearer t0ken"


@pytest.mark.parametrize("name", ["../../user", "a/b/c", "a", "a/../b"])
def test_a_repository_name_cannot_reach_another_path(name: str) -> None:
    async def describe() -> None:
        await GitHub(Access()).describe(ServiceClient(None, POLICY), name)

    with pytest.raises(ValueError, match="is not owner/name"):
        asyncio.run(describe())


def test_a_renamed_field_is_a_changed_source() -> None:
    with pytest.raises(SourceChanged, match="stargazers_count"):
        read_repository(b'{"full_name": "a/b"}')
    with pytest.raises(SourceChanged, match="case_count"):
        read_projects(json.dumps({"data": {"hits": [{"project_id": "x", "summary": {}}]}}).encode())


def test_releases_are_read_through_the_index_client() -> None:
    def page(seen: object) -> Answer:
        files = [f"lifelines-0.{n}.0-py3-none-any.whl" for n in (28, 29, 30)]
        links = "".join(f'<a href="/f/{file}#sha256=0">{file}</a><br>' for file in files)
        body = f"<!DOCTYPE html><html><body>{links}</body></html>".encode()
        return Answer(body, headers={"Content-Type": "text/html"})

    with serving() as services:
        services.routes["/simple/lifelines"] = page
        environment = {
            **os.environ,
            "PIP_INDEX_URL": services.url + "/simple",
            "PIP_EXTRA_INDEX_URL": "",
            "PIP_CONFIG_FILE": os.devnull,
            "NO_PROXY": "*",
        }
        known = find_releases("lifelines", environment=environment)
        absent = find_releases("no-such-package-here", environment=environment)
    assert known is not None
    assert (known.latest, known.count) == ("0.30.0", 3)
    assert absent is None


def test_a_package_name_cannot_carry_an_option() -> None:
    with pytest.raises(ValueError, match="not the name of a package"):
        find_releases("--index-url=http://x")


def shared(*parts: str) -> Path:
    default = Path(__file__).resolve().parents[3].parent / "shared"
    path = Path(os.environ.get("SAGE_SHARED", default)).joinpath("data", "api_fixtures", *parts)
    if not path.exists():
        pytest.skip(f"shared data absent: {path}")
    return path


@pytest.mark.shared
def test_recorded_trials_are_read() -> None:
    body = shared("biomcp_2026", "ctgov", "search_age_count_20260811.json").read_bytes()
    total, listed = read_trials(body)
    assert total == 598101 and listed[0].startswith("NCT")


@pytest.mark.shared
def test_a_recorded_repository_is_read() -> None:
    recorded = json.loads(shared("github_rest", "get-repository.json").read_text())
    found = read_repository(json.dumps(recorded[0]["response"]).encode())
    assert found == Repository("octokit-fixture-org/hello-world", 42, False, date(2017, 10, 10))


@pytest.mark.shared
def test_recorded_geo_summaries_are_read() -> None:
    body = shared("ncbi_eutils_klortho", "esummary.gds.json").read_bytes()
    ((accession, samples),) = read_series(body)
    assert accession == "GSE40726" and samples > 3
