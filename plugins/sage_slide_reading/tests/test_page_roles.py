"""Roles and quotas of the plugin's requests, and who sees recorded sessions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from sage.core.files import write_json
from sage.web.people import RULES, SLIDE, Role, describe_request, required_role
from sage_slide_reading.sessions.drafts import Drafts, Round
from sage_slide_reading.sessions.format import read_session
from sage_slide_reading.sessions.recording import FOLDER, Recordings
from sage_slide_reading.tests.test_session_drafts import DRAFTED
from sage_slide_reading.tests.test_sessions import box, session
from sage_slide_reading.web import page
from tests.adversary.test_web import (
    CHANGES,
    PEOPLE,
    PROXY,
    ask,
    behind_a_proxy,
    named,
    routes_of,
)

ROLES = {
    "/api/slides/readings": Role.RUN,
    "/api/slides/readings/stop": Role.RUN,
    "/api/slides/readings/say": Role.REVIEW,
    "/api/sessions": Role.REVIEW,
    "/api/sessions/{name}/events": Role.REVIEW,
    "/api/sessions/{name}/delete": Role.REVIEW,
    "/api/drafts/{name}/decisions": Role.REVIEW,
}


def test_every_changing_route_names_its_role(tmp_path: Path) -> None:
    routes = routes_of(behind_a_proxy(tmp_path))
    changing = {path for path, methods in routes.items() if methods - {"GET", "HEAD"}}
    ours = ("/api/drafts", "/api/sessions", "/api/slides/readings")  # other plugins add theirs
    assert {path for path in changing - set(CHANGES) if path.startswith(ours)} == set(ROLES)
    rules = (*RULES, *page.rules)
    for path, role in ROLES.items():
        assert required_role("POST", path.replace("{name}", "x"), rules) is role
        assert required_role("GET", path, rules) is Role.READ
    assert describe_request("POST", "/api/slides/readings", rules) == (SLIDE, "")
    assert describe_request("POST", "/api/sessions/x/events", rules) is None


def test_readings_count_as_slides_of_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slides").mkdir()
    guard = behind_a_proxy(tmp_path, quotas={"slides_per_day": 2})
    inner: Any = guard.app
    inner.state.site.roots = (tmp_path / "slides",)
    monkeypatch.setattr(inner.state.commands, "start", lambda name, *given: None)
    answers = []
    for absent in ({"slide": str(tmp_path / "slides" / "absent.svs"), "question": "Any?"}, {}):
        refused = ask(
            guard, "POST", "/api/slides/readings", named("runner"), peer=PROXY, json=absent
        )
        assert refused.status_code == 422  # and does not count
    for number in range(3):
        slide = tmp_path / "slides" / f"{number}.png"
        Image.new("RGB", (600, 600)).save(slide)
        body = {"slide": str(slide), "question": "Any tumor?"}
        answers.append(
            ask(guard, "POST", "/api/slides/readings", named("runner"), peer=PROXY, json=body)
        )
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    corners = [[0, 0], [90, 0], [90, 90]]
    for way, more in (("measure", {"maps": str(tmp_path)}),
                      ("nuclei", {"region": {"corners": corners}})):  # fmt: skip
        found = ask(guard, "POST", f"/api/slides/{way}", named("runner"), peer=PROXY,
                    json={"slide": str(slide), **more})  # fmt: skip
        assert found.status_code == 429


def test_a_session_belongs_to_its_reader(tmp_path: Path) -> None:
    guard = behind_a_proxy(tmp_path)
    inner: Any = guard.app
    (tmp_path / "slides").mkdir()
    Image.new("RGB", (600, 600)).save(tmp_path / "slides" / "a.png")
    inner.state.site.roots = (tmp_path / "slides",)
    looked = {"slide": str(tmp_path / "slides" / "a.png"), "reader": "r1", "task": "",
              "consent": True, "screen": [800, 600]}  # fmt: skip
    begun = ask(guard, "POST", "/api/sessions", named("reviewer"), peer=PROXY, json=looked)
    path = f"/api/sessions/{begun.json()['name']}"
    more = {"first": 0, "events": []}
    assert ask(guard, "POST", f"{path}/events", named("both"), peer=PROXY, json=more).is_error
    own = ask(guard, "POST", f"{path}/events", named("reviewer"), peer=PROXY, json=more)
    assert own.is_success
    assert "reviewer" not in ask(guard, "GET", path, named("both"), peer=PROXY).text
    assert ask(guard, "POST", f"{path}/delete", named("both"), peer=PROXY).status_code == 422
    assert ask(guard, "POST", f"{path}/delete", named("reviewer"), peer=PROXY).status_code == 200
    assert not list((tmp_path / "runs" / FOLDER).iterdir())


def test_sessions_of_others_are_for_reviewers(tmp_path: Path) -> None:
    guard = behind_a_proxy(tmp_path)
    kept = Recordings(tmp_path / "runs" / FOLDER)
    names = {"reader": "20260101-000000-00000001", "runner": "20260101-000000-00000002",
             "": "20260101-000000-00000003"}  # fmt: skip
    for who, name in names.items():
        kept.begin(name, session().header)
        if who:
            (kept.folder / f"{name}.owner").write_text(who)
        header = read_session(kept.path(name)).header
        rounds = (Round(action=box(), rationale=DRAFTED),)
        drafts = Drafts(session=kept.path(name).name, header=header,
                        drafted_by="model", statement="For a test.", rounds=rounds)  # fmt: skip
        write_json(kept.folder / f"{name}.drafts.json", drafts)
    for who in PEOPLE:
        everything = who in ("reviewer", "both", "boss")
        mine = set(names.values()) if everything else {names[who]}
        for kind in ("sessions", "drafts"):
            listed = ask(guard, "GET", f"/api/{kind}", named(who), peer=PROXY).json()
            assert {item["name"] for item in listed} == mine, (who, kind)
            for name in names.values():
                found = ask(guard, "GET", f"/api/{kind}/{name}", named(who), peer=PROXY)
                assert found.status_code == (200 if name in mine else 422), (who, kind, name)
        for name in set(names.values()) - mine:
            picture = f"/api/drafts/{name}/picture?round=0&kind=region"
            assert ask(guard, "GET", picture, named(who), peer=PROXY).status_code == 422
