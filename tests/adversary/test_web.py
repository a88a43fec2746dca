"""Attacks on the pages' server: who asks, from where, for what, and what texts do to a reader."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from mcp_servers.servers.options import HttpOptions
from sage.runfolder import Manifest, RunFolder
from sage.settings import Settings
from sage.web.app import STATIC, create_app
from sage.web.guard import BODY, Guard, Secrets
from sage.web.site import Site
from tests.sage.web.pages import browser_marks, looking, serving

TOKEN = "a-token-of-the-tests-0123456789"
HOST = {"host": "127.0.0.1:8766"}
EVIL = (
    "</script><script>document.title='OWNED'</script><img src=x onerror=\"document.title='OWNED'\">"
)


@pytest.fixture
def guard(tmp_path: Path) -> Guard:
    settings = Settings(runs_dir=tmp_path / "runs", cache_dir=tmp_path / "cache")
    return create_app(Site(settings), HttpOptions(token=TOKEN, port=8766))


def ask(guard: Guard, method: str, path: str, headers: dict[str, str], **more: Any) -> Any:
    async def go() -> httpx.Response:
        transport = httpx.ASGITransport(app=guard, client=("127.0.0.1", 9))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8766") as http:
            return await http.request(method, path, headers=headers, **more)

    return anyio.run(go)


def session() -> dict[str, str]:
    return HOST | {"cookie": f"sage-8766={Secrets(TOKEN).session}"}


def changing() -> dict[str, str]:
    return session() | {
        "x-csrf-token": Secrets(TOKEN).csrf,
        "origin": "http://127.0.0.1:8766",
        "content-type": "application/json",
    }


ROUTES = [
    "/", "/static/app.js", "/static/vendor/preact.mjs", "/review", "/compare", "/runs/x",
    "/api/here", "/api/runs", "/api/inbox", "/api/doctor", "/api/runs/x", "/api/runs/x/events",
    "/api/runs/x/report", "/openapi.json", "/docs",
]  # fmt: skip


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize(
    "headers",
    [{}, {"cookie": "sage-8766=guess"}, {"authorization": "Bearer guess"},
     {"cookie": f"sage-8766={TOKEN}"}, {"cookie": "sage-8766=" + "a" * 64}],
)  # fmt: skip
def test_nothing_is_answered_without_the_token(
    guard: Guard, path: str, headers: dict[str, str]
) -> None:
    answered = ask(guard, "GET", path, HOST | headers)
    assert answered.status_code == 401
    assert TOKEN not in answered.text


def test_the_address_lets_a_browser_in_and_leaves_no_token_behind(guard: Guard) -> None:
    answered = ask(guard, "GET", f"/?token={TOKEN}", HOST)
    assert answered.status_code == 303 and answered.headers["location"] == "/"
    cookie = answered.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and TOKEN not in cookie
    assert ask(guard, "GET", "/?token=wrong", HOST).status_code == 401
    assert ask(guard, "GET", f"/?token={TOKEN}&token=x", HOST).status_code == 401


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "127.0.0.1@evil", ""])
def test_a_foreign_host_is_refused(guard: Guard, host: str) -> None:
    assert ask(guard, "GET", "/", session() | {"host": host}).status_code == 421


@pytest.mark.parametrize(
    "odd",
    [{"origin": "http://evil.example"}, {"origin": "null"}, {"x-csrf-token": "guess"},
     {"x-csrf-token": ""}, {"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"}],
)  # fmt: skip
def test_nothing_is_changed_from_elsewhere(
    guard: Guard, odd: dict[str, str], tmp_path: Path
) -> None:
    body = json.dumps({"prompt": "TLS"})
    answered = ask(guard, "POST", "/api/runs", changing() | odd, content=body)
    assert answered.status_code == 403
    assert not (tmp_path / "runs").exists()


def test_no_get_changes_anything(guard: Guard) -> None:
    inner: Any = guard.app
    changes = {
        route.path
        for route in inner.routes
        if {"POST", "PUT", "DELETE", "PATCH"} & set(getattr(route, "methods", ()) or ())
    }
    assert changes or inner.routes
    for path in ("/api/runs/x/stop", "/api/runs/x/resume", "/api/ask", "/api/runs/x/comments"):
        assert ask(guard, "GET", path, session()).status_code in (404, 405)


@pytest.mark.parametrize(
    "path",
    ["/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2f..%2fsettings.py",
     "/static//etc/passwd", "/static/index.html", "/static/vendor/vendor.json",
     "/api/runs/..", "/api/runs/%2e%2e%2f%2e%2e", "/api/runs/../report", "/api/runs/a~..~b",
     "/api/runs/%2fetc/report", "/api/runs/a%00b", "/api/runs/" + "x" * 5000],
)  # fmt: skip
def test_no_path_leads_out(guard: Guard, path: str) -> None:
    answered = ask(guard, "GET", path, session())
    assert answered.status_code in (404, 405, 422)
    assert "root:" not in answered.text and "def " not in answered.text


def test_a_link_out_of_the_runs_folder_is_no_run(guard: Guard, tmp_path: Path) -> None:
    write_run(tmp_path / "elsewhere", "secret")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "x").symlink_to(tmp_path / "elsewhere")
    answered = ask(guard, "GET", "/api/runs/x", session())
    assert answered.status_code == 422 and "secret" not in answered.text


def test_a_report_that_is_a_link_is_not_shown(guard: Guard, tmp_path: Path) -> None:
    (tmp_path / "other.html").write_text("a secret")
    write_run(tmp_path / "runs" / "x", "q")
    (tmp_path / "runs" / "x" / "report.html").symlink_to(tmp_path / "other.html")
    answered = ask(guard, "GET", "/api/runs/x/report", session())
    assert answered.status_code == 422 and "secret" not in answered.text


@pytest.mark.parametrize("stated", [True, False])
def test_a_body_that_is_too_large_is_refused(guard: Guard, stated: bool) -> None:
    async def parts() -> Any:
        for _ in range(40):
            yield b" " * (BODY // 20)

    content: Any = b" " * (2 * BODY) if stated else parts()
    try:
        answered = ask(guard, "POST", "/api/ask", changing(), content=content)
    except Exception as error:  # the connection is dropped where no length was stated
        assert not stated, error
    else:
        assert answered.status_code in (413, 400, 422)


def test_every_answer_carries_a_policy_without_inline_scripts(guard: Guard) -> None:
    for path in ("/", "/api/here", "/static/app.css", "/nowhere"):
        headers = ask(guard, "GET", path, session()).headers
        policy = headers["content-security-policy"]
        assert "unsafe" not in policy and "default-src 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"


def test_a_question_cannot_become_an_option(
    guard: Guard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[str, ...]] = []
    inner: Any = guard.app
    monkeypatch.setattr(
        inner.state.commands, "start", lambda name, *arguments: started.append(arguments)
    )
    monkeypatch.setattr(inner.state.site, "cohort", lambda name: None)
    body = {"prompt": "--budget-usd=0 --out=/tmp/x", "dropped": ["--yes"],
            "replaced": {"exposure": ["--auto-approve"]}}  # fmt: skip
    assert ask(guard, "POST", "/api/runs", changing(), json=body).status_code == 200
    (arguments,) = started
    assert arguments[-2:] == ("--", "--budget-usd=0 --out=/tmp/x")
    assert "--drop=--yes" in arguments and "--auto-approve" not in arguments


def test_a_cohort_that_is_not_of_the_list_is_refused(guard: Guard) -> None:
    for cohort in ("/etc", "../..", "demo/../..", "nowhere"):
        body = {"prompt": "TLS", "cohort": cohort}
        for path in ("/api/ask", "/api/runs"):
            assert ask(guard, "POST", path, changing(), json=body).status_code == 422


def write_run(folder: Path, prompt: str) -> RunFolder:
    folder.mkdir(parents=True)
    run = RunFolder(folder)
    run.save(
        Manifest(id=folder.name, prompt=prompt, created="2026-01-01T00:00:00+00:00",
                 status="failed", problem=EVIL, reasoner="rules", cohort="demo",
                 cohort_title=EVIL, kg="none")
    )  # fmt: skip
    run.event("run", prompt=prompt, reasoner="rules")
    run.event("note", node="scientist", message=EVIL)
    return run


@pytest.fixture
def attacked(tmp_path: Path) -> Iterator[Path]:
    run = write_run(tmp_path / "runs" / "20260101-000000-attack-0000", EVIL)
    (run.root / "report.html").write_text(f"<h1>report</h1>{EVIL}<style>h1{{color:red}}</style>")
    line = {"format": 1, "time": "2026-01-01T00:00:00+00:00", "episode": "e", "agent": EVIL,
            "node": "scientist"}  # fmt: skip
    turns = [line | {"kind": "ask", "returns": EVIL},
             line | {"kind": "model", "turn": 1, "content": EVIL, "reasoning": EVIL},
             line | {"kind": "end", "turn": 2, "output": {EVIL: EVIL}}]  # fmt: skip
    run.trace_path.write_text("".join(json.dumps(turn) + "\n" for turn in turns))
    (run.root / "log.jsonl").write_text(json.dumps({"level": "info", "event": EVIL}) + "\n")
    yield tmp_path


class TestInABrowser:
    """The attacked pages as a reader meets them."""

    pytestmark = browser_marks

    def test_texts_stay_texts(self, attacked: Path) -> None:
        with serving(attacked) as served, looking() as page:
            page.goto(served.address)
            page.wait_for_selector("td:has-text('OWNED')")
            assert page.title() == "Ask and runs · SAGE"
            page.click("td a")
            page.wait_for_selector("#problem:has-text('OWNED')")
            page.click("[data-step='/scientist']")
            page.wait_for_selector("#agent article")
            page.wait_for_selector("h1:has-text('OWNED')")
            assert page.title() == "Run · SAGE"
            assert page.locator("main img").count() == 0

    def test_a_report_runs_no_script_of_its_own(self, attacked: Path) -> None:
        from playwright.sync_api import sync_playwright

        from tests.sage.web.pages import CHROMIUM

        with serving(attacked) as served, sync_playwright() as play:
            browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            page = browser.new_page()  # the policy's refusals are logged as errors
            page.goto(served.address)
            page.wait_for_selector("h1")
            (name,) = (run.name for run in (attacked / "runs").iterdir())
            page.goto(f"{served.origin}/api/runs/{name}/report")
            page.wait_for_selector("h1")
            assert page.title() != "OWNED"
            page.goto(f"{served.origin}/compare?a={name}")
            page.wait_for_selector("iframe")
            page.wait_for_timeout(300)
            assert page.title() == "Compare · SAGE"
            browser.close()


def test_modules_of_others_are_as_they_were_vendored() -> None:
    import base64
    import hashlib

    listed = json.loads((STATIC / "vendor" / "vendor.json").read_text())
    files = {path.name for path in (STATIC / "vendor").iterdir()}
    known = {"vendor.json"} | {item["file"] for item in listed.values()}
    assert files == known | {item["license_file"] for item in listed.values()}
    notice = (Path(__file__).parents[2] / "NOTICE").read_text()
    for item in listed.values():
        digest = hashlib.sha384((STATIC / "vendor" / item["file"]).read_bytes()).digest()
        assert item["integrity"] == f"sha384-{base64.b64encode(digest).decode()}"
        assert f"{item['package']} {item['version']}" in notice
    assert sum(path.stat().st_size for path in STATIC.rglob("*")) <= 2_000_000
