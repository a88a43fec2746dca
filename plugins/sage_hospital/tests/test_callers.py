"""People at the MCP server behind a proxy: who may call what, what is written down, whose it is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from mcp_servers.context import CALLER
from mcp_servers.knowledge.runs import Answer
from mcp_servers.registry import load
from sage.cli.app import app
from sage.core.errors import InputError
from sage.core.hooks import ASKED
from sage.settings import Settings
from sage_hospital.audit import open_audit
from sage_hospital.callers import open_callers
from sage_hospital.roles import parse_trust
from tests.adversary.test_servers import call
from tests.end_to_end.harness import environment
from tests.mcp_servers.test_mcp_hardening import BEGIN, GOOD
from tests.mcp_servers.test_mcp_server import TOKEN
from tests.warm import Warm

ROLES = """
[people]
reader = "read"
runner = "run"
reviewer = ["run", "review"]
[quotas]
runs_per_day = 1
usd_per_month = 10
"""
START = {"prompt": "does it matter to anybody?", "cohort": "no-such-cohort"}
REVIEW = {"run": "some-run", "decision": "approve"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the server: inputs, runs, roles."""
    made = tmp_path_factory.mktemp("people")
    (made / "in").mkdir()
    (made / "roles.toml").write_text(ROLES)
    (made / "token.txt").write_text(TOKEN)
    return made


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    """A real server process behind what could be a proxy."""
    command = ["tools", "serve", "knowledge", "--root", "in", "--transport", "http", "--port",
               "0", "--token-file", "token.txt", "--workers", "1", "--trust-header", "X-User",
               "--roles", "roles.toml"]  # fmt: skip
    own = environment(SAGE_RUNS_DIR=str(folder / "runs"))
    process = Warm(command, env=own, cwd=folder, piped=True)
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if found := re.search(r"http://\S+", line):
                yield found[0]
                break
        else:
            raise AssertionError("the server did not start")
    finally:
        process.terminate()
        process.wait(20)
        process.stderr.close()


def call_server(
    client: httpx.Client, url: str, who: str, method: str, params: dict[str, Any]
) -> str:
    """Reply of the server to a person's request."""
    body = {"jsonrpc": "2.0", "id": 9, "method": method, "params": params}
    return client.post(url, json=body, headers={"x-user": who}).text


def test_each_call_of_a_session_is_of_whom_the_proxy_names_for_it(url: str, folder: Path) -> None:
    """Roles and quotas apply and calls are logged; another person's session lends no role."""
    with httpx.Client(headers=GOOD, timeout=120) as client:
        assert client.post(url, json=BEGIN).status_code == 403
        twice = [*client.headers.items(), ("x-user", "reviewer"), ("x-user", "reader")]
        assert client.post(url, json=BEGIN, headers=twice).status_code == 403
        strange = client.post(url, json=BEGIN, headers={"x-user": "stranger"})
        assert strange.status_code == 200  # who has no role may ask for nothing
        began = client.post(url, json=BEGIN, headers={"x-user": "reviewer"})
        client.headers["mcp-session-id"] = began.headers.get("mcp-session-id", "")

        def read_reply(who: str, tool: str, arguments: dict[str, Any]) -> str:
            client.headers["x-user"] = who
            return call(client, url, tool, arguments)

        client.headers["x-user"] = "reviewer"
        client.post(url, json={"jsonrpc": "2.0", "method": "notifications/initialized"})
        assert "stranger has no role on this server" in read_reply("stranger", "run_status", {})
        assert "no runs in" in read_reply("reader", "run_status", {})
        for who, tool, given in (
            ("reader", "start_run", START),
            ("reader", "review_run", REVIEW),
            ("runner", "review_run", REVIEW),
        ):
            role = "review" if tool == "review_run" else "run"
            assert f'the role \\"{role}\\" is required; {who} has' in read_reply(who, tool, given)
        for _ in range(2):  # what did not begin does not count
            assert "no-such-cohort" in read_reply("runner", "start_run", START)
        with open_audit(Settings(runs_dir=folder / "runs")) as audit:
            assert audit is not None
            audit.add("reviewer", ASKED, "")
        assert "the quota of 1 run in 24 hours" in read_reply("reviewer", "start_run", START)
        assert "no runs in" in read_reply("reviewer", "review_run", REVIEW)
        saved = folder / "sage-output" / "save_table" / "abc" / "table.csv"
        saved.parent.mkdir(parents=True)
        saved.write_text("patient,age\n")
        address = {"uri": "sage://output/save_table/abc/table.csv"}
        for who, words in (("reader", "patient,age"), ("stranger", "has no role")):
            assert words in call_server(client, url, who, "resources/read", address)
        asking: list[tuple[str, dict[str, Any]]] = [
            ("resources/list", {}),
            ("completion/complete", {"ref": {"type": "ref/resource", "uri": "x"},
                                     "argument": {"name": "path", "value": ""}}),
            ("tools/call", {"name": "job_status", "arguments": {"job": "x"}}),
        ]  # fmt: skip
        for method, params in asking:
            assert "has no role" in call_server(client, url, "stranger", method, params)
            assert "has no role" not in call_server(client, url, "reader", method, params)
        metrics = client.get(url.removesuffix("/mcp") + "/metrics", headers={"x-user": ""})
        assert metrics.status_code == 200
    with open_audit(Settings(runs_dir=folder / "runs")) as audit:
        assert audit is not None
        assert audit.find_problem() == ""
        rows = [(row.who, row.what, row.about) for row in audit.rows()]
    assert rows == [
        ("runner", "asked", ""), ("runner", "refused", "1"),
        ("runner", "asked", ""), ("runner", "refused", "3"),
        ("reviewer", "asked", ""), ("reviewer", "asked", ""), ("reviewer", "refused", "6"),
        ("reviewer", "approved", "some-run"), ("reader", "exported", "save_table/abc/table.csv"),
    ]  # fmt: skip


def test_a_run_is_its_caller_s_and_within_what_is_left_of_their_month(folder: Path) -> None:
    given: list[tuple[list[str], str]] = []

    def command(words: Any, stop: Any, owner: str) -> Answer:
        given.append((list(words), owner))
        return Answer(0, json.dumps({}), "")

    settings = Settings(runs_dir=folder / "money", reasoner="chat", base_url="http://127.0.0.1:9")
    with open_callers(parse_trust("X-User", [], folder / "roles.toml"), settings) as known:
        assert known is not None
        drive = known.drive(command)
        CALLER.set("runner")
        drive(["run", "--json", "--", "does it matter?"], lambda: False)
        drive(["review", "--json", "--approve", "--", "r"], lambda: False)
        with pytest.raises(Exception, match=r"of which 0\.00 remain"):
            drive(["run", "--json", "--", "does it matter?"], lambda: False)
    (words, owner), (review, reviewer) = given
    assert owner == reviewer == "runner"
    assert words[0] == "run"
    assert "--budget-usd=10.0" in words
    assert words[-2:] == ["--", "does it matter?"]
    assert review == ["review", "--json", "--approve", "--", "r"]


def test_a_refused_or_failed_call_costs_no_quota(tmp_path: Path) -> None:
    (tmp_path / "roles.toml").write_text(ROLES.replace("runs_per_day = 1", "slides_per_day = 3"))
    spec = load("pathology").get("tissue_mask")
    assert spec is not None
    slide = {"slide": "a.svs"}
    trust = parse_trust("X-User", [], tmp_path / "roles.toml")
    with open_callers(trust, Settings(runs_dir=tmp_path / "runs")) as known:
        assert known is not None

        def count_left() -> int:
            """Call with a slide each until the quota is reached, and give all of them back."""
            admitted: list[Any] = []
            with pytest.raises(InputError, match="quota of 3 slides"):
                while True:
                    admitted.append(known.admit("runner", spec, slide, 1))
            for entries in admitted:
                known.refund(entries)
            return len(admitted)

        assert count_left() == 3
        with pytest.raises(InputError, match="quota"):  # more at once than there are
            known.admit("runner", spec, slide, 5)
        with pytest.raises(InputError, match="role"):
            known.admit("reader", spec, slide, 1)
        assert count_left() == 3
        failed = known.admit("runner", spec, slide, 2)
        known.refund(failed)
        known.refund(failed)  # an answer lost on the way may be given back twice
        assert count_left() == 3
        known.admit("runner", spec, slide, 2)
        assert count_left() == 1
        assert known.audit.find_problem() == ""


def test_roles_without_a_proxy_are_refused_at_the_start(folder: Path) -> None:
    words = ["tools", "serve", "knowledge", "--roles", str(folder / "roles.toml")]
    ended = CliRunner().invoke(app, words)
    assert "require --trust-header" in str(ended.exception)
    ended = CliRunner().invoke(app, ["tools", "serve", "knowledge", "--trust-header", "X-User"])
    assert "--transport http" in str(ended.exception)
