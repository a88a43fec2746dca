"""Money of a month, asked for at servers that share nothing but the database."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sage.core.errors import InputError
from sage.run.folder import Manifest, RunFolder
from sage.run.spec import RunSpec
from sage.settings import Settings
from sage_hospital.promises import Promises, open_promises
from sage_hospital.quotas import Quotas, grant_budget
from sage_hospital.runs import open_runs
from tests.end_to_end.harness import environment
from tests.postgres import NEEDED, server

ROLES = '[people]\nann = "run"\n[quotas]\nusd_per_month = 10\n'
PAGES = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from sage.settings import load
from sage.web.app import create_app
from sage_hospital.people import open_people
from sage_hospital.roles import parse_trust
from sage.web.site import Site
from mcp_servers.servers.options import HttpOptions
from tests.adversary.test_web import TOKEN, ask, changing
trust = parse_trust("X-User", [], Path(sys.argv[1]))
site = Site(load(), people=open_people(load(), trust))
site.cohort = lambda name: None
guard = create_app(site, HttpOptions(token=TOKEN, port=8766))
guard.app.state.commands.start = lambda *given, **named: None
def start(number):
    body = {"prompt": "does it matter?", "reasoner": "chat", "budget_usd": 3.0}
    who = changing() | {"x-user": "ann"}
    return ask(guard, "POST", "/api/runs", who, json=body).status_code == 200
print("ready", flush=True)
sys.stdin.readline()
with ThreadPoolExecutor(3) as several:
    print(sum(several.map(start, range(6))))
"""
TOOLS = """
import sys
from pathlib import Path
from mcp_servers.knowledge.runs import Answer
from mcp_servers.context import CALLER
from sage.core.errors import InputError
from sage.settings import load
from sage_hospital.callers import open_callers
from sage_hospital.roles import parse_trust
with open_callers(parse_trust("X-User", [], Path(sys.argv[1])), load()) as known:
    CALLER.set("ann")
    given = []
    def command(words, stop, owner):
        given.append(float(next(word for word in words if "budget" in word).partition("=")[2]))
        return Answer(0, "{}", "")
    drive = known.drive(command)
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        drive(["run", "--", "does it matter?"], lambda: False)
    except InputError:
        pass
    print(sum(given))
"""


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=NEEDED)])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Settings]:
    """Settings of either kind."""
    given = {"runs_dir": tmp_path / "runs", "reasoner": "chat", "base_url": "http://127.0.0.1:9"}
    if request.param == "sqlite":
        yield Settings.model_validate(given)
        return
    with server() as url:
        yield Settings.model_validate({**given, "checkpoint_url": url})


def test_servers_together_give_no_more_than_a_person_s_month(
    settings: Settings, tmp_path: Path
) -> None:
    """Servers of pages and tools at the same time; each alone would give 9 or 10 USD."""
    (tmp_path / "roles.toml").write_text(ROLES)
    given = {"SAGE_RUNS_DIR": str(settings.runs_dir), "SAGE_REASONER": "chat",
             "SAGE_BASE_URL": "http://127.0.0.1:9"}  # fmt: skip
    if settings.checkpoint_url is not None:
        given["SAGE_CHECKPOINT_URL"] = settings.checkpoint_url.get_secret_value()
    servers = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path / "roles.toml")], env=environment(**given),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            cwd=Path(__file__).resolve().parents[3],
        )
        for code in (PAGES, TOOLS)
    ]  # fmt: skip
    for server_process in servers:
        assert server_process.stdout is not None and server_process.stdout.readline() == "ready\n"
    said = [process.communicate("\n", timeout=300)[0] for process in servers]
    usd = 3 * int(said[0]) + float(said[1])
    assert 9.0 <= usd <= 10.0, said


QUOTAS = Quotas(usd_per_month=10)


@pytest.fixture
def promises(settings: Settings) -> Iterator[Promises]:
    """Of the settings' database."""
    with open_promises(settings) as found:
        yield found


def write_run(settings: Settings, name: str, spent: float, most: float) -> Manifest:
    """A run's folder, as it stands after calls that cost so much."""
    run = RunFolder(settings.runs_dir / name)
    run.root.mkdir(parents=True)
    manifest = Manifest(id=name, run_id=name, place=str(run.root), created="",
                        reasoner="chat", spec=RunSpec(prompt="q", budget_usd=most))  # fmt: skip
    run.save(manifest)
    line = {"agent": "judge", "model": "m", "prompt_tokens": 1, "completion_tokens": 1,
            "usd": spent}  # fmt: skip
    run.spending_path.write_text(json.dumps(line) + "\n")
    return manifest


def test_a_promise_holds_until_its_run_tells_what_it_spent(
    settings: Settings, promises: Promises
) -> None:
    """Before, during and after a run, after a crash, and without a folder."""

    def find_budget_left(asked: float | None = None) -> float:
        try:
            probe = RunFolder(settings.runs_dir / "probe")
            bound = grant_budget(promises, probe, "ann", QUOTAS, asked, free=False)
        except InputError as error:
            return float(str(error).partition("of which ")[2].split()[0])
        promises.end(str((settings.runs_dir / "probe").resolve()))
        assert bound is not None
        return bound

    run = RunFolder(settings.runs_dir / "first")
    assert grant_budget(promises, run, "ann", QUOTAS, 6.0, free=False) == 6.0
    assert find_budget_left() == 4.0
    assert find_budget_left(asked=4.5) == 4.0  # what is refused promises nothing
    manifest = write_run(settings, "first", spent=1.0, most=6.0)
    with open_runs(settings, new=True) as runs:
        assert runs is not None
        runs.take(manifest, "ann", "shell", 600.0)
        assert find_budget_left() == 4.0
        runs.settle("first", "shell", "finished")
        assert find_budget_left() == 9.0
        died = write_run(settings, "died", spent=2.0, most=7.0)
        runs.take(died, "ann", "shell", 0.3)
        assert find_budget_left() == 2.0
        time.sleep(0.4)
        assert find_budget_left() == 7.0
        goes_on = grant_budget(promises, RunFolder(settings.runs_dir / "died"), "ann", QUOTAS, None,
                         free=False, at_most=7.0)  # fmt: skip
        assert goes_on == 7.0
        assert find_budget_left() == 2.0  # also before it continues
    promises.end(str((settings.runs_dir / "died").resolve()))
    assert find_budget_left() == 7.0
    gone = RunFolder(settings.runs_dir / "gone")
    assert grant_budget(promises, gone, "ann", QUOTAS, 3.0, free=False) == 3.0
    manifest = write_run(settings, "gone", spent=0.5, most=3.0)
    with open_runs(settings) as runs:
        assert runs is not None
        runs.take(manifest, "ann", "shell", 600.0)
        runs.settle("gone", "shell", "finished")
    assert find_budget_left() == 6.5
    (gone.root / "manifest.json").unlink()
    assert find_budget_left() == 4.0  # no record of what it spent


def test_what_a_run_spent_that_failed_before_it_was_known_counts(
    settings: Settings, promises: Promises
) -> None:
    run = RunFolder(settings.runs_dir / "early")
    grant_budget(promises, run, "ann", QUOTAS, 6.0, free=False)
    write_run(settings, "early", spent=2.0, most=6.0)
    promises.end(str(run.root.resolve()))
    probe = RunFolder(settings.runs_dir / "probe")
    assert grant_budget(promises, probe, "ann", QUOTAS, None, free=False) == 8.0
