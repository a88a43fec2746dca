"""What the pages list, who works on a run, and how an inbox's answers become decisions."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from sage.core.errors import InputError, Paused
from sage.core.files import write_json
from sage.run import graph
from sage.run.drive import advance
from sage.run.folder import Manifest, RunFolder
from sage.run.review import HumanResponse, decisions_from
from sage.run.services import Services
from sage.run.spec import RunSpec
from sage.settings import Settings
from sage.web.processes import Commands, holder, stop
from sage.web.routes.run import pause
from sage.web.site import Site
from tests.end_to_end.harness import core_only
from tests.sage.web.pages import serving

DRAFT: Any = SimpleNamespace(hypothesis=SimpleNamespace(id="h1"))
NOBODY: Any = None


def write_run(folder: Path, created: str) -> RunFolder:
    folder.mkdir(parents=True)
    run = RunFolder(folder)
    run.save(Manifest(id=folder.name, run_id=folder.name, spec=RunSpec(prompt="q"),
                      created=created, reasoner="rules"))  # fmt: skip
    return run


def test_rounds_of_a_campaign_are_runs_of_their_own_name(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "2026-01-01")
    write_run(tmp_path / "c" / "round-1", "2026-01-02")
    (tmp_path / "c" / "campaign.json").write_text("{}")
    (tmp_path / ".started").mkdir()
    site = Site(Settings(runs_dir=tmp_path))
    names = [name for name, _ in site.runs()]
    assert names == ["c~round-1", "a"]
    assert [site.run(name).root.name for name in names] == ["round-1", "a"]
    for wrong in ("c", "c~", "~a", "a~b~c", ".started", "c/round-1", "..", ""):
        with pytest.raises(InputError):
            site.run(wrong)


def test_answers_are_built_once_and_again_after_a_file_was_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_run(tmp_path / "a", "2026-01-01")
    built: list[str] = []

    def summarize(folder: RunFolder) -> dict[str, Any]:
        built.append(folder.id)
        if len(built) > 1:
            raise InputError("a file was changed")
        return {"hypotheses": [{"id": "h1", "answer": {"verdict": "supported"}}]}

    monkeypatch.setattr("sage.report.build.summarize_run", summarize)
    site = Site(Settings(runs_dir=tmp_path))
    assert site.claims(run) == [] and not built
    write_json(run.output("state"), {})
    assert [claim["id"] for claim in site.claims(run)] == ["h1"]
    assert site.claims(run) and len(built) == 1
    write_json(run.output("state"), {"ranking": []})
    with pytest.raises(InputError):
        site.claims(run)


HOLD = """
import sys, time
from pathlib import Path
from sage.run.folder import RunFolder
RunFolder(Path(sys.argv[1])).hold()
print("held", flush=True)
time.sleep(60)
"""


def test_a_pause_lies_in_the_folder_and_no_step_begins_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_run(tmp_path / "a", "2026-01-01")
    settings = Settings(runs_dir=tmp_path, cache_dir=tmp_path / "cache")
    services = Services(run, run.manifest(), settings)
    with services.node("scientist"):
        run.pause_path.touch()  # asked for while a step is under way, which ends as ever
    with pytest.raises(Paused), services.node("expansion", "h1"):
        raise AssertionError("it began")
    assert [event["event"] for event in run.events()] == ["start", "end"]

    class Machine:
        def compile(self, checkpointer: Any) -> Machine:
            return self

        def get_state(self, config: Any) -> Any:
            return SimpleNamespace(created_at="then", interrupts=())

        def invoke(self, *given: Any, **more: Any) -> None:
            assert not run.pause_path.exists()  # who goes on has taken the wish back
            run.pause_path.touch()
            with services.node("expansion", "h1"):
                raise AssertionError("it began")

    run.update(status="paused")
    monkeypatch.setattr(graph, "build", lambda services: Machine())
    with pytest.raises(Paused):
        advance(services)
    assert run.manifest().status == "paused"


def test_a_run_is_paused_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sage.cli.admin import pause as pause_run

    monkeypatch.setenv("SAGE_RUNS_DIR", str(tmp_path))
    run = write_run(tmp_path / "20260101-000000-a-0000", "2026-01-01")
    with pytest.raises(InputError):
        pause_run("last")
    assert not run.pause_path.exists()
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(run.root)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        pause_run("last")
        process.kill()
    assert run.pause_path.exists()


def test_nobody_is_paused_who_does_not_work(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", "2026-01-01")
    app: Any = SimpleNamespace(
        state=SimpleNamespace(site=Site(Settings(runs_dir=tmp_path)), commands=Commands(tmp_path))
    )
    with pytest.raises(InputError):
        pause("a", SimpleNamespace(app=app))  # type: ignore[arg-type]
    assert not run.pause_path.exists()
    run.hold()
    assert pause("a", SimpleNamespace(app=app)) == {"pausing": True}  # type: ignore[arg-type]
    assert run.pause_path.exists()


def test_whoever_holds_a_run_can_be_stopped_and_nobody_else(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", "2026-01-01")
    assert holder(run) is None
    # A number that came again: this process lives, but does not hold the lock.
    (run.root / "run.lock").write_text(f"process {os.getpid()} on {socket.gethostname()} since x\n")
    assert holder(run) is None
    with pytest.raises(InputError):
        stop(run)
    working = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(run.root)], stdout=subprocess.PIPE, text=True
    )
    assert working.stdout is not None and working.stdout.readline() == "held\n"
    assert holder(run) == working.pid
    stop(run)
    assert working.wait(timeout=30) != 0
    assert holder(run) is None


def test_a_command_that_fails_is_told_in_its_own_words(tmp_path: Path) -> None:
    commands = Commands(tmp_path)
    commands.start("x", "show", "no-such-run")
    end = time.monotonic() + 60
    while commands.alive("x") and time.monotonic() < end:
        time.sleep(0.1)
    assert "no-such-run" in commands.failure("x") or "no runs" in commands.failure("x")
    assert commands.failure("never started") == ""


@pytest.mark.parametrize(
    ("answer", "action", "comment"),
    [
        ({"type": "accept", "reviewers": ["Ana", "Ben"], "comment": "fine"}, "approve",
         "by Ana and Ben; fine"),
        ({"type": "ignore", "args": "known", "reviewers": ["Ana", "Ben"]}, "reject",
         "known; by Ana and Ben"),
        ({"type": "response", "args": "another gene"}, "another", "another gene"),
    ],
)  # fmt: skip
def test_an_inbox_answer_is_a_decision(answer: dict[str, Any], action: str, comment: str) -> None:
    decided = HumanResponse.model_validate(answer).decision(NOBODY, DRAFT)
    assert (decided.hypothesis_id, decided.action, decided.comment) == ("h1", action, comment)
    assert not decided.automatic


@pytest.mark.parametrize(
    "answer", [{"type": "ignore"}, {"type": "response", "args": " "}, {"type": "edit", "args": "x"}]
)
def test_a_decision_without_its_reason_is_refused(answer: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="h1: "):
        HumanResponse.model_validate(answer).decision(NOBODY, DRAFT)


@pytest.mark.parametrize(
    "text", ["[]", "{", "{}", '{"h2": {"type": "accept"}}', '{"h1": {"type": "yes"}}', None]
)
def test_a_file_of_decisions_that_does_not_fit_is_refused(text: str | None, tmp_path: Path) -> None:
    path = tmp_path / "decisions.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError, match=r"decisions\.json|h1"):
        decisions_from(NOBODY, [DRAFT], path)
    path.write_text(json.dumps({"h1": {"type": "accept"}}))
    assert [item.action for item in decisions_from(NOBODY, [DRAFT], path)] == ["approve"]


def test_the_core_alone_serves_and_says_what_the_rest_needs(tmp_path: Path) -> None:
    own = core_only(tmp_path / "core") | {"SAGE_CACHE_DIR": str(tmp_path / "cache")}
    with serving(tmp_path, **own) as served:  # a graph that others built would be shown
        token = served.address.partition("token=")[2]
        headers = {"authorization": f"Bearer {token}"}
        with httpx.Client(base_url=served.origin, headers=headers, timeout=60) as http:
            assert http.get("/").status_code == http.get("/api/runs").status_code == 200
            assert http.get("/api/cohorts/gbsg2").json()["n_patients"] == 686
            for missing in ("/api/graph", "/api/slides/about?path=x"):
                answered = http.get(missing)
                assert answered.status_code == 422 and "pip install" in answered.json()["error"]
