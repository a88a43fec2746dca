"""Attacks on the pages' server: who asks, from where, for what, and what texts do to a reader."""

from __future__ import annotations

import json
from collections.abc import Iterator
from ipaddress import ip_network
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import httpx
import pytest

from mcp_servers.servers.options import HttpOptions
from sage.cli.app import app
from sage.core.errors import InputError
from sage.run.folder import Manifest, RunFolder
from sage.run.spec import RunSpec
from sage.settings import Settings
from sage.web.app import STATIC, create_app
from sage.web.guard import Guard, Secrets
from sage.web.people import BODY, Role, person, required_role
from sage.web.reviews import Reviews
from sage.web.routes.review import _find_agreement
from sage.web.site import Site
from sage_hospital.people import open_people
from sage_hospital.roles import Roles, Trust, parse_trust
from tests.sage.web.pages import CHROMIUM, looking, serving

TOKEN = "a-token-of-the-tests-0123456789"
HOST = {"host": "127.0.0.1:8766"}
EVIL = (
    "</script><script>document.title='OWNED'</script><img src=x onerror=\"document.title='OWNED'\">"
)


@pytest.fixture
def guard(tmp_path: Path) -> Guard:
    settings = Settings(runs_dir=tmp_path / "runs", cache_dir=tmp_path / "cache")
    return create_app(Site(settings), HttpOptions(token=TOKEN, port=8766))


def ask(
    guard: Guard, method: str, path: str, headers: Any, *, peer: str = "127.0.0.1", **more: Any
) -> Any:
    async def go() -> httpx.Response:
        transport = httpx.ASGITransport(app=guard, client=(peer, 9))
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


UNKNOWN = ["/openapi.json", "/docs", "/metrics", "/static/vendor/preact.mjs", "/nowhere"]
NO_TOKENS = [{}, {"cookie": "sage-8766=guess"}, {"authorization": "Bearer guess"},
             {"cookie": f"sage-8766={TOKEN}"}, {"cookie": "sage-8766=" + "a" * 64}]  # fmt: skip


def test_nothing_is_answered_without_the_token(guard: Guard) -> None:
    routes = [path.replace("{name}", "x") for path in routes_of(guard)]
    assert len(routes) > 20
    for at, path in enumerate([*routes, *UNKNOWN]):
        for headers in NO_TOKENS if path in UNKNOWN else (NO_TOKENS[at % len(NO_TOKENS)], {}):
            answered = ask(guard, "GET", path, HOST | headers)
            assert answered.status_code == 401, (path, headers)
            assert TOKEN not in answered.text


def test_the_address_lets_a_browser_in_and_leaves_no_token_behind(guard: Guard) -> None:
    answered = ask(guard, "GET", f"/?token={TOKEN}", HOST)
    assert answered.status_code == 303 and answered.headers["location"] == "/"
    cookie = answered.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie and TOKEN not in cookie
    assert ask(guard, "GET", "/?token=wrong", HOST).status_code == 401
    assert ask(guard, "GET", f"/?token={TOKEN}&token=x", HOST).status_code == 401


def test_a_token_of_a_file_is_not_printed_where_logs_keep_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run_server(site: Any, options: HttpOptions, started: Any) -> None:
        started(f"http://127.0.0.1:1/?token={options.token}")

    monkeypatch.setattr("sage.web.app.run_server", run_server)
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "token").chmod(0o644)
    monkeypatch.chdir(tmp_path)
    app(["serve", "--token-file", "token"], standalone_mode=False)
    assert "chmod" in capsys.readouterr().err
    (tmp_path / "token").chmod(0o640)
    app(["serve", "--token-file", "token"], standalone_mode=False)
    assert TOKEN not in capsys.readouterr().err
    app(["serve"], standalone_mode=False)
    assert len(capsys.readouterr().err.partition("?token=")[2]) > 30


def test_a_foreign_host_is_refused_and_nothing_is_changed_from_elsewhere(
    guard: Guard, tmp_path: Path
) -> None:
    for host in ("evil.example", "127.0.0.1.evil.example", "127.0.0.1@evil", ""):
        assert ask(guard, "GET", "/", session() | {"host": host}).status_code == 421, host
    body = json.dumps({"prompt": "TLS"})
    odd = [("origin", "http://evil.example"), ("origin", "null"), ("x-csrf-token", "guess"),
           ("x-csrf-token", ""), ("sec-fetch-site", "cross-site"),
           ("sec-fetch-site", "same-site")]  # fmt: skip
    for name, value in odd:
        answered = ask(guard, "POST", "/api/runs", changing() | {name: value}, content=body)
        assert answered.status_code == 403, (name, value)
    assert not (tmp_path / "runs").exists()


def test_no_get_changes_anything(guard: Guard) -> None:
    for path, methods in routes_of(guard).items():
        if "GET" not in methods:
            path = path.replace("{name}", "x")
            assert ask(guard, "GET", path, session()).status_code in (404, 405, 422), path


def test_no_path_leads_out(guard: Guard) -> None:
    for path in (
        "/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2f..%2fsettings.py",
        "/static//etc/passwd", "/static/index.html", "/static/vendor/vendor.json",
        "/api/runs/..", "/api/runs/%2e%2e%2f%2e%2e", "/api/runs/../report", "/api/runs/a~..~b",
        "/api/runs/%2fetc/report", "/api/runs/a%00b", "/api/runs/" + "x" * 5000,
    ):  # fmt: skip
        answered = ask(guard, "GET", path, session())
        assert answered.status_code in (404, 405, 422), path
        assert "root:" not in answered.text and "def " not in answered.text


def test_links_out_of_the_runs_folder_show_nothing(guard: Guard, tmp_path: Path) -> None:
    write_run(tmp_path / "elsewhere", "secret")
    write_run(tmp_path / "runs" / "y", "q")
    (tmp_path / "runs" / "x").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "other.html").write_text("a secret")
    (tmp_path / "runs" / "y" / "report.html").symlink_to(tmp_path / "other.html")
    for path in ("/api/runs/x", "/api/runs/y/report"):
        answered = ask(guard, "GET", path, session())
        assert answered.status_code == 422 and "secret" not in answered.text


PROXY = "10.1.2.3"
CHANGES = {
    "/api/ask": Role.READ,
    "/api/runs": Role.RUN,
    "/api/runs/{name}/stop": Role.RUN,
    "/api/runs/{name}/pause": Role.RUN,
    "/api/runs/{name}/resume": Role.RUN,
    "/api/runs/{name}/preview": Role.READ,
    "/api/runs/{name}/comments": Role.REVIEW,
    "/api/runs/{name}/review": Role.REVIEW,
    "/api/slides/measure": Role.READ,
    "/api/slides/regions": Role.REVIEW,
    "/api/slides/nuclei": Role.RUN,
}
"""Every route that takes more than a GET, with the role that it asks for."""
PEOPLE = {"reader": (Role.READ,), "runner": (Role.RUN,), "reviewer": (Role.REVIEW,),
          "both": (Role.RUN, Role.REVIEW), "boss": (Role.ADMINISTER,)}  # fmt: skip


def behind_a_proxy(tmp_path: Path, **more: Any) -> Guard:
    settings = Settings(runs_dir=tmp_path / "runs", cache_dir=tmp_path / "cache")
    trusted = Trust("X-Remote-User", (ip_network(PROXY),), Roles(people=PEOPLE, **more))
    return create_app(
        Site(settings, people=open_people(settings, trusted)), HttpOptions(token=TOKEN, port=8766)
    )


def named(who: str) -> dict[str, str]:
    return changing() | {"x-remote-user": who}


def test_every_route_that_changes_something_names_its_role(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(runs_dir=tmp_path / "runs", cache_dir=tmp_path / "cache")
    monkeypatch.setattr("sage.web.app.load_pages", dict)
    routes = routes_of(create_app(Site(settings), HttpOptions(token=TOKEN, port=8766)))
    assert {path for path, methods in routes.items() if methods - {"GET", "HEAD"}} == set(CHANGES)
    for path, role in CHANGES.items():
        assert required_role("POST", path.replace("{name}", "x")) is role
    for path in ("/api/new", "/api/runs/x/y/stop", "/api/runs/x/stop/", "/api/askx"):
        assert required_role("POST", path) is Role.ADMINISTER
        assert required_role("DELETE", path) is Role.ADMINISTER


def test_who_may_not_review_cannot_pass_the_review_over(tmp_path: Path) -> None:
    passing = {"prompt": "TLS", "auto_approve": True, "cohort": "none such"}

    def start(guard: Guard, who: str) -> str:
        found = ask(guard, "POST", "/api/runs", named(who), peer=PROXY, json=passing)
        assert found.status_code == 422
        return str(found.json()["error"])

    guard = behind_a_proxy(tmp_path)
    assert 'the role "review"' in start(guard, "runner")
    assert "none such" in start(guard, "both") and "none such" in start(guard, "boss")
    settings = Settings(runs_dir=tmp_path / "runs", cache_dir=tmp_path / "cache")
    two = create_app(Site(settings, reviewers=2), HttpOptions(token=TOKEN, port=8766))
    refused = ask(two, "POST", "/api/runs", changing(), json=passing)
    assert refused.status_code == 422 and "none such" not in refused.json()["error"]


@pytest.mark.parametrize(
    ("said", "agreed"),
    [
        ([("Ana", "accept", None), ("Ben", "accept", None)], (["Ana", "Ben"], None)),
        ([("Ana", "accept", None), ("ana", "accept", None)], None),
        ([("Ana", "accept", None), ("Ben", "ignore", "known")], None),
        ([("Ana", "ignore", "known"), ("Ben", "ignore", "too few")],
         (["Ana", "Ben"], "known; too few")),
        ([("Ana", "response", "one gene"), ("Ben", "response", "two genes")], None),
        ([("Ana", "accept", None), ("Ben", "accept", None), ("Ben", "ignore", "known")], None),
    ],
)  # fmt: skip
def test_two_people_agree_who_say_the_same(tmp_path: Path, said: Any, agreed: Any) -> None:
    run, reviews = write_run(tmp_path / "x", "q"), Reviews()
    for who, kind, args in said:
        response = {"type": kind, "args": args, "comment": f"says {who}", "reviewers": []}
        reviews.add(run, who, hypothesis="h1", response=response)
    people, response = _find_agreement(reviews.entries(run), "h1", 2)
    assert ((people, response["args"]) if response else None) == agreed
    if response:
        assert response["comment"] == "says Ana; says Ben"


def test_invisible_characters_make_no_second_person(tmp_path: Path) -> None:
    request: Any = SimpleNamespace(scope={"state": {}})
    assert person(request, " Ana\u200b ") == person(request, "A\u2060na\n") == "Ana"
    with pytest.raises(InputError):
        person(request, "\u200b")


def test_who_lacks_the_role_changes_nothing(tmp_path: Path) -> None:
    guard = behind_a_proxy(tmp_path)
    for who, roles in PEOPLE.items():
        for path, role in CHANGES.items():
            answered = ask(
                guard, "POST", path.replace("{name}", "x"), named(who), peer=PROXY, json={}
            )
            allowed = role in (Role.READ, *roles) or who == "boss"
            assert (answered.status_code != 403) == allowed, (who, path, answered.text)
            assert allowed or f'"{role}"' in answered.json()["error"]
        assert ask(guard, "GET", "/api/here", named(who), peer=PROXY).json()["user"] == who


FORGED_NAMES = [
    ("127.0.0.1", {"x-remote-user": "boss"}),  # the header without the proxy
    ("10.1.2.4", {"x-remote-user": "boss"}),
    (PROXY, {}),  # the proxy without a name
    (PROXY, {"x-remote-user": ""}),
    (PROXY, {"x-remote-user": "nobody"}),  # who has no role
    (PROXY, {"x-remote-user": "boss\x00"}),
    (PROXY, {"x-remote-user": "b" * 81}),
    (PROXY, {"x-forwarded-user": "boss"}),
    (PROXY, {"x_remote_user": "boss"}),
    ("10.1.2.4", {"x-remote-user": "boss", "x-forwarded-for": PROXY}),
]


def test_a_name_that_no_proxy_gave_is_nobodys(tmp_path: Path) -> None:
    guard = behind_a_proxy(tmp_path)
    for peer, odd in FORGED_NAMES:
        for method in ("GET", "POST"):
            answered = ask(guard, method, "/api/runs", changing() | odd, peer=peer)
            assert answered.status_code == 403 and "csrf" not in answered.text, (peer, odd)
    lax = behind_a_proxy(tmp_path, default="read")  # who is not listed has the default
    assert ask(lax, "GET", "/api/here", named("guest"), peer=PROXY).json()["roles"] == ["read"]
    assert ask(lax, "POST", "/api/runs/x/stop", named("guest"), peer=PROXY).status_code == 403
    twice = [*changing().items(), ("x-remote-user", "reader"), ("X-Remote-User", "boss")]
    assert ask(guard, "GET", "/api/here", twice, peer=PROXY).status_code == 403


def test_the_name_lets_nobody_in_without_the_token(tmp_path: Path) -> None:
    guard = behind_a_proxy(tmp_path)
    headers = HOST | {"x-remote-user": "boss"}
    assert ask(guard, "GET", "/api/here", headers, peer=PROXY).status_code == 401
    bearer = headers | {"authorization": f"Bearer {TOKEN}"}
    assert ask(guard, "GET", "/api/here", bearer, peer=PROXY).status_code == 200
    # The proxy adds the token to whatever a foreign page makes a browser send.
    for odd in ({}, {"x-csrf-token": "guess"}):
        forged = ask(guard, "POST", "/api/runs/x/stop", bearer | odd, peer=PROXY)
        assert forged.status_code == 403
    own = bearer | {"x-csrf-token": Secrets(TOKEN).csrf}
    assert ask(guard, "POST", "/api/runs/x/stop", own, peer=PROXY).status_code == 422
    cross = own | {"sec-fetch-site": "cross-site"}
    assert ask(guard, "POST", "/api/runs/x/stop", cross, peer=PROXY).status_code == 403


def test_a_reviewer_cannot_speak_as_another(tmp_path: Path) -> None:
    from PIL import Image

    guard = behind_a_proxy(tmp_path)
    inner: Any = guard.app
    (tmp_path / "slides").mkdir()
    Image.new("RGB", (600, 600)).save(tmp_path / "slides" / "a.png")
    inner.state.site.roots = (tmp_path / "slides",)
    body = {"slide": str(tmp_path / "slides" / "a.png"), "person": "boss",
            "regions": [{"corners": [[0, 0], [50, 0], [50, 50]]}]}  # fmt: skip
    done = ask(guard, "POST", "/api/slides/regions", named("reviewer"), peer=PROXY, json=body)
    assert done.status_code == 200, done.text
    (kept,) = (tmp_path / "runs" / ".regions").iterdir()
    (drawn,) = json.loads(kept.read_text())["features"]
    assert drawn["properties"]["drawn_by"] == "reviewer"


@pytest.mark.parametrize(
    ("header", "proxies", "text", "said"),
    [
        ("", ["10.0.0.1"], None, "--trust-header"),
        ("", [], "", "--trust-header"),
        ("X User", [], None, "X User"),
        ("X-User", ["the proxy"], None, "the proxy"),
        ("X-User", [], "people = 3", "people"),
        ("X-User", [], '[people]\nana = "king"', "read, run, review, administer"),
        ("X-User", [], "[people", "TOML"),
    ],
)
def test_options_that_would_let_the_wrong_people_in_are_refused(
    tmp_path: Path, header: str, proxies: list[str], text: str | None, said: str
) -> None:
    path = tmp_path / "roles.toml"
    with pytest.raises(InputError, match=r"roles\.toml"):
        parse_trust("X-User", [], path)
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError, match=said):
        parse_trust(header, proxies, path if text is not None else None)


def routes_of(guard: Guard) -> dict[str, set[str]]:
    """Methods by path, of everything that the server answers."""
    inner: Any = guard.app
    found: dict[str, set[str]] = {}
    routes = [(route, "") for route in inner.routes]
    for route, prefix in routes:  # grows by the routers that it finds
        if (router := getattr(route, "original_router", None)) is not None:
            routes += [(below, "/api") for below in router.routes]
        else:
            found.setdefault(prefix + route.path, set()).update(route.methods)
    return found


def test_only_figures_of_a_run_are_saved(guard: Guard, tmp_path: Path) -> None:
    home = write_run(tmp_path / "runs" / "x", "q").hypothesis("h1")
    (home / "results" / "figures").mkdir(parents=True)
    (home / "results" / "results.json").write_text("a secret")
    (tmp_path / "secret.svg").write_text("a secret")
    (home / "results" / "figures" / "link.svg").symlink_to(tmp_path / "secret.svg")
    (home / "results" / "figures" / "forest.svg").write_text(f"<svg>{EVIL}</svg>")
    seal(tmp_path / "runs" / "x")
    path = "/api/runs/x/hypotheses"
    saved = ask(guard, "GET", f"{path}/h1/results/figures/forest.svg", session())
    assert saved.status_code == 200
    assert saved.headers["content-disposition"].startswith("attachment")
    assert "sandbox" in saved.headers["content-security-policy"]
    for file in ("h1/results/figures/link.svg", "h1/results/results.json", "h1/results/figures/..",
                 "h1/results/figures/%2e%2e/results.json", "h1/contract.json",
                 "%2e%2e/h1/results/figures/forest.svg", "h1/results/figures/gone.svg",
                 "h1/results/figures/%2fetc%2fpasswd.svg"):  # fmt: skip
        refused = ask(guard, "GET", f"{path}/{file}", session())
        assert refused.status_code in (404, 422) and "secret" not in refused.text, file


def test_a_curve_is_a_figure_that_an_answer_names(
    guard: Guard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = write_run(tmp_path / "runs" / "x", "q").hypothesis("h1")
    (home / "results" / "figures").mkdir(parents=True)
    (home / "results" / "figures" / "curve.svg").write_text(f"<svg>{EVIL}</svg>")
    (home / "results" / "results.json").write_text("a secret")
    seal(tmp_path / "runs" / "x")
    figure = "hypotheses/h1/results/figures/curve.svg"
    inner: Any = guard.app
    claims = [{"id": "h1", "figure": figure}]
    monkeypatch.setattr(inner.state.site, "claims", lambda run: claims)
    shown = ask(guard, "GET", "/api/runs/x/curve/h1", session())
    assert shown.status_code == 200 and shown.headers["content-type"] == "image/svg+xml"
    policy = shown.headers["content-security-policy"]
    assert "sandbox" in policy and "default-src 'none'" in policy and "script" not in policy
    assert ask(guard, "GET", "/api/runs/x/curve/h2", session()).status_code == 422
    for file in ("", "hypotheses/h1/results/results.json", "manifest.json",
                 "hypotheses/h1/results/figures/../results.json"):  # fmt: skip
        claims[0]["figure"] = file
        refused = ask(guard, "GET", "/api/runs/x/curve/h1", session())
        assert refused.status_code == 422 and "secret" not in refused.text, file


def test_a_picture_leads_to_slides_of_this_server_alone(
    guard: Guard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name in a cohort's maps cannot send a reader elsewhere, nor out of the roots."""
    import sage.report.fields
    import validation.contracts.contract as contracts
    from mcp_servers.measures.maps import SlideMaps

    run = write_run(tmp_path / "runs" / "x", "q")
    run.hypothesis("h1").mkdir(parents=True)
    (run.hypothesis("h1") / "contract.json").write_text("{}")
    frozen = contracts.FrozenContract.model_construct(
        contract=SimpleNamespace(exposures=[SimpleNamespace(key="imaging:a")])
    )
    inner: Any = guard.app
    named = ["//evil.example/a"]
    monkeypatch.setattr(contracts, "read_claim", lambda path: frozen)
    monkeypatch.setattr(inner.state.site, "whole_cohort_of", lambda run: None)
    monkeypatch.setattr(
        sage.report.fields, "field_of",
        lambda *given: (SlideMaps(slide=named[0], patient="p", mpp=0.5), (100, 200, 400)),
    )  # fmt: skip
    inner.state.site.roots = (tmp_path / "slides",)
    (tmp_path / "slides").mkdir()
    (tmp_path / "secret.png").write_bytes(b"")
    for slide in ("//evil.example/a", "../secret", "*", "secret"):
        named[0] = slide
        path = "/api/runs/x/fields/h1/1/high"
        assert ask(guard, "GET", path, session()).status_code == 422, slide
    from PIL import Image

    Image.new("RGB", (64, 64)).save(tmp_path / "slides" / "a&b=c.png")
    named[0] = "a&b=c"
    there = ask(guard, "GET", "/api/runs/x/fields/h1/1/high", session())
    assert there.status_code == 303
    assert there.headers["location"].startswith("/slides#slide=%2F")
    assert there.headers["location"].endswith("a%26b%3Dc.png&x=200&y=400&zoom=1")
    for wrong in ("h1/2/high", "h1/0/high", "h1/1/other", "..%2f/1/high"):
        refused = ask(guard, "GET", f"/api/runs/x/fields/{wrong}", session())
        assert refused.status_code in (404, 422), wrong


@pytest.mark.parametrize("stated", [True, False])
def test_a_body_that_is_too_large_is_refused(guard: Guard, stated: bool) -> None:
    async def parts() -> Any:
        for _ in range(11):
            yield b" " * (BODY // 10)

    content: Any = b" " * (BODY + 1) if stated else parts()
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
    specs: list[RunSpec] = []
    inner: Any = guard.app

    def start(name: str, *given: str, spec: RunSpec, owner: str) -> None:
        started.append(given)
        specs.append(spec)

    monkeypatch.setattr(inner.state.commands, "start", start)
    monkeypatch.setattr(inner.state.site, "cohort", lambda name: None)
    body = {"prompt": "--budget-usd=0 --out=/tmp/x", "dropped": ["--yes"],
            "replaced": {"exposure": ["--auto-approve"]}}  # fmt: skip
    assert ask(guard, "POST", "/api/runs", changing(), json=body).status_code == 200
    (arguments,), (spec,) = started, specs
    assert [word.partition("=")[0] for word in arguments] == ["run", "--out"]
    assert spec.prompt == "--budget-usd=0 --out=/tmp/x" and not spec.auto_approve
    assert spec.corrections.dropped == ("--yes",)


def test_a_cohort_that_is_not_of_the_list_is_refused(guard: Guard) -> None:
    for cohort in ("/etc", "../..", "demo/../..", "nowhere"):
        body = {"prompt": "TLS", "cohort": cohort}
        for path in ("/api/ask", "/api/runs"):
            assert ask(guard, "POST", path, changing(), json=body).status_code == 422


def write_run(folder: Path, prompt: str) -> RunFolder:
    folder.mkdir(parents=True)
    run = RunFolder(folder)
    run.save(
        Manifest(id=folder.name, run_id="r", spec=RunSpec(prompt=prompt),
                 created="2026-01-01T00:00:00+00:00", status="failed", problem=EVIL,
                 reasoner="rules", cohort_title=EVIL)
    )  # fmt: skip
    run.event("run", prompt=prompt, reasoner="rules")
    run.event("note", node="scientist", message=EVIL)
    return run


def seal(folder: Path) -> None:
    """Record a run's files as its steps would have."""
    run = RunFolder(folder)
    run.record.seal()
    run.update(sealed=run.record.head())


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
    seal(run.root)
    yield tmp_path


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_in_a_browser_texts_stay_texts_and_a_report_runs_no_script(attacked: Path) -> None:
    with serving(attacked) as served, looking() as page:
        page.goto(served.address)
        page.wait_for_selector(".card:has-text('OWNED')")
        assert page.title() == "Home · SAGE"
        page.click(".card h3 a")
        page.wait_for_selector("#problem:has-text('OWNED')")
        page.click("[data-step='/scientist']")
        page.wait_for_selector("#agent article")
        page.wait_for_selector("#asked:has-text('OWNED')")
        assert page.title() == "Run · SAGE"
        assert page.locator("main img").count() == 0
        # The policy's refusals are logged as errors, so the report gets a page without a watch.
        other = page.context.new_page()
        (name,) = (run.name for run in (attacked / "runs").iterdir())
        other.goto(f"{served.origin}/api/runs/{name}/report")
        other.wait_for_selector("h1")
        assert other.title() != "OWNED"
        other.goto(f"{served.origin}/compare?a={name}")
        other.wait_for_selector("iframe")
        other.wait_for_timeout(300)
        assert other.title() == "Compare · SAGE"


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
