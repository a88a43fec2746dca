"""Quotas of people, the log of their actions, and metrics."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mcp_servers.servers.options import HttpOptions
from sage.core import clock
from sage.core.errors import InputError
from sage.core.hooks import OWNER, current_owner
from sage.run.folder import Manifest, RunFolder
from sage.run.review import HumanResponse
from sage.run.spec import RunSpec
from sage.settings import Settings
from sage.web.app import collect_metrics, create_app
from sage.web.guard import Guard
from sage.web.people import describe_request
from sage.web.routes import review
from sage.web.site import Site
from sage_hospital.audit import open_audit
from sage_hospital.people import open_people
from sage_hospital.roles import parse_trust, read_roles
from sage_hospital.runs import open_runs
from tests.adversary.test_web import HOST, TOKEN, ask, changing

ROLES = """
[people]
ann = "run"
bob = "run"
[quotas]
runs_per_day = 2
usd_per_month = 10
[quotas_of.bob]
runs_per_day = 3
slides_per_day = 5
"""
ANN, BOB = (changing() | {"x-user": who} for who in ("ann", "bob"))


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Runs of this test."""
    return Settings(runs_dir=tmp_path / "runs", cache_dir=tmp_path / "cache")


@pytest.fixture
def started_runs() -> list[tuple[str, tuple[str, ...]]]:
    """Owners and arguments of started runs."""
    return []


@pytest.fixture
def guard(tmp_path: Path, settings: Settings, started_runs: Any, monkeypatch: Any) -> Guard:
    """A server behind a proxy, which notes what it would start."""
    path = tmp_path / "roles.toml"
    path.write_text(ROLES)
    site = Site(settings, people=open_people(settings, parse_trust("X-User", [], path)))
    found = create_app(site, HttpOptions(token=TOKEN, port=8766))
    inner: Any = found.app
    monkeypatch.setattr(
        inner.state.commands, "start",
        lambda name, *given, spec=None, owner: started_runs.append((owner, spec or given)),
    )  # fmt: skip
    monkeypatch.setattr(site, "cohort", lambda name: None)
    return found


def start(guard: Guard, who: dict[str, str], **more: Any) -> Any:
    return ask(guard, "POST", "/api/runs", who, json={"prompt": "does it matter?", **more})


def test_runs_beyond_a_day_s_number_are_refused_and_each_person_has_a_number_of_their_own(
    guard: Guard, started_runs: Any
) -> None:
    answers = [start(guard, ANN) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert "ann has reached the quota of 2 runs in 24 hours" in answers[2].json()["error"]
    assert [start(guard, BOB).status_code for _ in range(4)] == [200, 200, 200, 429]
    assert [owner for owner, _ in started_runs] == ["ann"] * 2 + ["bob"] * 3


def test_a_run_gets_what_is_left_of_the_month_and_open_runs_count_whole(
    guard: Guard, settings: Settings, started_runs: Any
) -> None:
    run = RunFolder(settings.runs_dir / "open")
    run.root.mkdir(parents=True)
    manifest = Manifest(id="open", run_id="open", place=str(run.root), created="",
                            reasoner="chat", spec=RunSpec(prompt="q", budget_usd=7.5))  # fmt: skip
    run.save(manifest)
    with open_runs(settings, new=True) as runs:
        assert runs is not None
        runs.take(manifest, "ann", "shell", 600.0)
    too_much = start(guard, ANN, reasoner="chat", budget_usd=3.0)
    assert too_much.status_code == 429
    assert "2.50 remain" in too_much.json()["error"]
    assert start(guard, ANN, reasoner="chat").status_code == 200
    assert started_runs[-1][1].budget_usd == 2.5


def test_runs_that_are_asked_for_at_once_do_not_get_the_same_money(
    guard: Guard, started_runs: Any
) -> None:
    first = start(guard, ANN, reasoner="chat", budget_usd=8.0)
    second = start(guard, ANN, reasoner="chat", budget_usd=8.0)
    assert [first.status_code, second.status_code] == [200, 429]
    assert "2.00 remain" in second.json()["error"]
    assert len(started_runs) == 1
    assert start(guard, BOB, reasoner="chat", budget_usd=8.0).status_code == 200


def test_a_run_that_goes_on_gets_no_more_than_is_left_of_its_owner_s_month(
    guard: Guard, settings: Settings, started_runs: Any
) -> None:
    for name, state in (("old", "stopped"), ("new", "running")):
        run = RunFolder(settings.runs_dir / name)
        run.root.mkdir(parents=True)
        manifest = Manifest(id=name, run_id=name, place=str(run.root), created="",
                            reasoner="chat", spec=RunSpec(prompt="q", budget_usd=8.0))  # fmt: skip
        run.save(manifest)
        with open_runs(settings, new=True) as runs:
            assert runs is not None
            runs.take(manifest, "ann", "shell", 600.0)
            if state == "stopped":
                runs.settle(name, "shell", "stopped")
    answer = ask(guard, "POST", "/api/runs/old/resume", BOB, json={})
    assert answer.status_code == 200, answer.text
    assert started_runs == [
        ("ann", ("resume", "--budget-usd=2.0", "--", str(settings.runs_dir / "old")))
    ]


def test_who_asked_decided_and_exported_is_written_before_it_is_done(
    guard: Guard, settings: Settings
) -> None:
    name = start(guard, ANN).json()["name"]
    ask(guard, "GET", "/api/runs/some-run/report", BOB)
    ask(guard, "GET", "/api/runs", BOB)
    with open_audit(settings) as audit:
        assert audit is not None
        rows = [(row.who, row.what, row.about) for row in audit.rows()]
        assert audit.find_problem() == ""
    assert rows == [
        ("ann", "asked", ""), ("ann", "began", name), ("bob", "exported", "some-run"),
    ]  # fmt: skip


def test_what_cannot_be_written_down_is_not_done(
    guard: Guard, started_runs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: Any, **named: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(guard.people.audit, "add", full)
    assert start(guard, ANN).status_code == 503
    assert started_runs == []
    assert ask(guard, "GET", "/api/runs", ANN).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "said"),
    [
        ("POST", "/api/runs", ("asked", "")),
        ("POST", "/api/runs/r1/review", ("decided", "r1")),
        ("POST", "/api/runs/r1/pause", ("stopped, paused or resumed", "r1")),
        ("GET", "/api/runs/r1/hypotheses/h1/figure.svg", ("exported", "r1")),
        ("POST", "/api/new/route", ("changed", "/api/new/route")),
        ("POST", "/api/ask", None),
        ("POST", "/api/runs/r1/preview", None),
        ("GET", "/api/runs/r1", None),
    ],
)
def test_every_request_that_changes_something_is_logged(
    method: str, path: str, said: tuple[str, str] | None
) -> None:
    assert describe_request(method, path) == said


def test_what_a_quota_refused_is_logged_as_refused_and_does_not_count(
    guard: Guard, started_runs: Any, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused requests do not count: after a day a person may start runs again."""
    first = clock.now()

    def later(hours: float) -> int:
        monkeypatch.setattr(clock, "now", lambda: first + timedelta(hours=hours))
        code: int = start(guard, ANN).status_code
        return code

    assert [later(hours) for hours in (0, 0, 12, 13, 14)] == [200, 200, 429, 429, 429]
    assert len(started_runs) == 2
    with open_audit(settings) as audit:
        assert audit is not None
        rows = audit.rows()
        assert audit.find_problem() == ""
    asked = [row.seq for row in rows if row.what == "asked"]
    refused = [row for row in rows if row.what == "refused"]
    assert [row.about for row in refused] == [str(seq) for seq in asked[2:]]
    assert all(row.who == "ann" and row.detail == {"request": "asked"} for row in refused)
    assert [later(hours) for hours in (24.1, 24.2, 24.3)] == [200, 200, 429]


def test_a_run_that_could_not_begin_does_not_count(
    guard: Guard, started_runs: Any, settings: Settings
) -> None:
    wrong: list[dict[str, Any]] = [
        {"auto_approve": True},
        {"hypotheses": "many"},
    ]
    assert [start(guard, ANN, **more).status_code for more in wrong] == [422] * len(wrong)
    assert [start(guard, ANN).status_code for _ in range(3)] == [200, 200, 429]
    assert len(started_runs) == 2
    with open_audit(settings) as audit:
        assert audit is not None
        refused = [row.about for row in audit.rows() if row.what == "refused"]
    assert len(refused) == len(wrong) + 1


@pytest.mark.parametrize("text", ["[quotas]\nruns_per_day = -1", "[quotas]\nruns = 3"])
def test_a_quota_that_is_none_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "roles.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match="quotas"):
        read_roles(path)


def test_a_file_of_roles_that_anybody_can_write_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "roles.toml"
    path.write_text('[people]\nann = "read"\n')
    path.chmod(0o646)
    with pytest.raises(InputError, match="chmod o-w"):
        read_roles(path)


def test_health_is_for_anybody_and_metrics_for_who_has_the_token(guard: Guard) -> None:
    health = ask(guard, "GET", "/healthz", {"host": "10.1.2.3:8766"})
    assert (health.status_code, health.json()) == (200, {"status": "ok"})
    assert ask(guard, "GET", "/metrics", HOST).status_code == 401
    answer = ask(guard, "GET", "/metrics", ANN)
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    lines = answer.text.splitlines()
    assert lines[-1] == "# EOF"
    assert 'sage_http_answers_total{status="401"} 1.0' in lines
    assert any(line.startswith("process_open_fds ") for line in lines)


@pytest.mark.parametrize("url", [None, "postgresql://sage@127.0.0.1:9/none"])
def test_a_server_without_its_database_is_measured_all_the_same(
    url: str | None, settings: Settings
) -> None:
    given = settings.model_dump() | {"checkpoint_url": url}
    families = collect_metrics(Site(Settings.model_validate(given)))
    found = {family.name: [sample.value for sample in family.samples] for family in families}
    assert found["sage_database_up"] == [float(url is None)]
    assert "sage_runs" in found


def test_the_commands_of_a_person_know_whose_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OWNER, "ann\x1b[31m\n")
    assert current_owner().startswith("ann")
    assert current_owner().isprintable()


def test_metrics_are_read_past_the_proxy_and_nothing_else_is(guard: Guard) -> None:
    """A monitor has the token and no name; a named person needs a role."""
    watcher = HOST | {"authorization": f"Bearer {TOKEN}"}
    assert ask(guard, "GET", "/metrics", watcher).status_code == 200
    assert ask(guard, "GET", "/api/runs", watcher).status_code == 403
    assert ask(guard, "GET", "/metrics", watcher | {"x-user": "nobody"}).status_code == 403
    assert ask(guard, "GET", "/metrics", HOST).status_code == 401


def test_of_two_who_decide_at_once_one_is_told_that_the_other_did(
    guard: Guard, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a run continues with a decision of another person than the log says."""
    path = settings.runs_dir.parent / "reviewers.toml"
    path.write_text('[people]\nann = "review"\nbob = "review"\n')
    inner: Any = guard.app
    object.__setattr__(guard.people.trust, "roles", read_roles(path))
    run = RunFolder(settings.runs_dir / "r")
    run.root.mkdir(parents=True)
    run.save(Manifest(id="r", run_id="r", place=str(run.root), created="",
                      reasoner="rules", spec=RunSpec(prompt="q")))  # fmt: skip
    draft = SimpleNamespace(hypothesis=SimpleNamespace(id="h1"))
    monkeypatch.setattr(review, "_waiting", lambda site, run: [draft])
    monkeypatch.setattr(review, "_services", lambda site, run: None)
    monkeypatch.setattr(HumanResponse, "decision", lambda *given: None)
    begun: list[dict[str, Any]] = []

    def begin(name: str, *words: str, owner: str) -> None:
        time.sleep(0.5)  # as long as a process takes until it reads its decisions
        begun.append(json.loads(Path(words[1].partition("=")[2]).read_text())["h1"])

    monkeypatch.setattr(inner.state.commands, "start", begin)
    monkeypatch.setattr(inner.state.commands, "alive", lambda name: bool(begun))
    kinds = {"ann": {"type": "accept"}, "bob": {"type": "ignore", "args": "known"}}

    def decide(who: str) -> Any:
        body = {"responses": {"h1": kinds[who]}}
        return ask(guard, "POST", "/api/runs/r/review", changing() | {"x-user": who}, json=body)

    with ThreadPoolExecutor(2) as both:
        answers = dict(zip(kinds, both.map(decide, kinds), strict=True))
    applied = [who for who, answer in answers.items() if answer.status_code == 200]
    assert len(applied) == 1
    (other,) = kinds.keys() - applied
    assert "is already in progress" in answers[other].json()["error"]
    assert [(item["type"], item["reviewers"]) for item in begun] == [
        (kinds[applied[0]]["type"], applied)
    ]
