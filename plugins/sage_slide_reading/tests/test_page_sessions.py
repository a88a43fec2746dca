"""Sessions on the pages: recorded with consent alone, nothing lost, played again; under attack."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sage_slide_reading.sessions.actions import actions_of, segment
from sage_slide_reading.sessions.format import read_session, write_session
from tests.mcp_servers.slide_tools import blobs
from tests.sage.web.pages import browser_marks, fits, looking, serious, serving, until
from tests.sage.web.test_slides import client


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("slides")
    Image.fromarray(np.ascontiguousarray(blobs(2048, 3072))).save(folder / "node.png")
    Image.fromarray(np.ascontiguousarray(blobs(256, 256))).save(folder / "other.png")
    return folder


def begun(place: Path, **changed: Any) -> dict[str, Any]:
    return {"slide": str(place / "node.png"), "reader": "reader-1", "task": "find tumor",
            "consent": True, "screen": [800, 600]} | changed  # fmt: skip


def view_event(t: float, kind: str = "pan", **changed: Any) -> dict[str, Any]:
    return {
        "t": t,
        "kind": kind,
        "x": -10,
        "y": 5,
        "w": 400,
        "h": 300,
        "magnification": 20.0,
    } | changed


def test_a_session_is_kept_with_consent_alone_and_each_event_once(
    place: Path, tmp_path: Path
) -> None:
    ask = client(place, tmp_path)
    folder = tmp_path / ".sessions"
    assert ask("POST", "/api/sessions", json=begun(place, consent=False)).status_code == 422
    assert not folder.exists()
    begin = ask("POST", "/api/sessions", json=begun(place)).json()
    name = begin["name"]
    address = f"/api/sessions/{name}"
    batch = {"first": 0, "events": [view_event(0, "open"), view_event(0.5)]}
    assert ask("POST", f"{address}/events", json=batch).json() == {"kept": 2}
    batch["events"].append(view_event(2, "close"))  # the answer was lost: it comes again, with more
    assert ask("POST", f"{address}/events", json=batch).json() == {"kept": 3}
    kept = read_session(folder / f"{name}.session.jsonl")
    assert [(e.t, e.kind) for e in kept.events] == [(0, "open"), (0.5, "pan"), (2, "close")]
    assert kept.events[0].magnification == 20 and begin["native"] == kept.header.native
    assert (kept.header.slide, kept.header.reader) == ("node.png", "reader-1")
    (listed,) = ask("GET", "/api/sessions").json()
    assert (listed["name"], listed["task"]) == (name, "find tumor")
    played = ask("GET", address).json()
    assert len(played["views"]) == 3 and len(played["actions"]) == len(actions_of(kept))
    copied = folder / f"{name}.session.jsonl"
    write_session(folder / "imported log.session.jsonl", read_session(copied))  # any name is shown
    assert {item["name"] for item in ask("GET", "/api/sessions").json()} == {name, "imported log"}
    assert ask("GET", "/api/sessions/imported%20log").json()["views"] == played["views"]
    assert ask("POST", "/api/sessions/imported%20log/delete").json() == {"deleted": True}
    assert ask("POST", f"{address}/delete").json() == {"deleted": True}
    assert not list(folder.iterdir())
    assert ask("POST", f"{address}/events", json=batch).status_code == 422


@pytest.mark.parametrize(
    "changed",
    [{"t": "NaN"}, {"w": "0"}, {"magnification": "-2"}, {"kind": '"teleport"'}, {"zoom": "3"}],
)  # fmt: skip
def test_what_is_no_event_is_refused_with_its_batch(
    place: Path, tmp_path: Path, changed: dict[str, str]
) -> None:
    ask = client(place, tmp_path)
    name = ask("POST", "/api/sessions", json=begun(place)).json()["name"]
    text = json.dumps({"first": 0, "events": [view_event(0), view_event(1)]})
    ((key, value),) = changed.items()
    event = json.dumps(view_event(1) | {key: "here"}).replace('"here"', value)
    text = text.replace(json.dumps(view_event(1)), event)
    assert ask("POST", f"/api/sessions/{name}/events", content=text).status_code == 422
    assert not read_session(tmp_path / ".sessions" / f"{name}.session.jsonl").events


def test_no_file_but_a_session_is_reached(place: Path, tmp_path: Path) -> None:
    ask = client(place, tmp_path)
    name = ask("POST", "/api/sessions", json=begun(place)).json()["name"]
    secret = tmp_path / ".sessions" / "20260101-000000-00000000.session.jsonl"
    (tmp_path / "secret").write_text("a secret\n")
    secret.symlink_to(tmp_path / "secret")
    for odd in ("..%2Fsecret", "x", "20260101-000000-zzzzzzzz", "20260101-000000-00000000"):
        for way in ("", "/events", "/delete"):
            answered = ask(
                "POST" if way else "GET",
                f"/api/sessions/{odd}{way}",
                **({"json": {"first": 0, "events": []}} if way == "/events" else {}),
            )
            assert answered.is_error and "secret" not in answered.text.replace(odd, "")
    assert [item["name"] for item in ask("GET", "/api/sessions").json()] == [name]
    for odd in ("/etc/passwd", str(place / "../x.png")):
        assert ask("POST", "/api/sessions", json=begun(place, slide=odd)).status_code == 422
    for changed in ({"screen": [0, 5]}, {"reader": "\u200b"}, {"screen": [10**9, 5]}):
        assert ask("POST", "/api/sessions", json=begun(place, **changed)).status_code == 422
    many = {"first": 0, "events": [view_event(0)] * 2001}
    assert ask("POST", f"/api/sessions/{name}/events", json=many).status_code == 422
    damaged = tmp_path / ".sessions" / "20260101-000001-00000000.session.jsonl"
    damaged.write_text("{}\n")
    assert len(ask("GET", "/api/sessions").json()) == 1
    assert "line 1" in ask("GET", "/api/sessions/20260101-000001-00000000").json()["error"]


PAINTED = (
    "(() => { const c = document.querySelector('.over'); return c.getContext('2d')"
    ".getImageData(0, 0, c.width, c.height).data.some(v => v) })()"
)
PLAYER = "document.querySelector('.player')?.dataset"


class TestInABrowser:
    """A reader is recorded, leaves, and is played again."""

    pytestmark = browser_marks

    def test_a_session_is_recorded_and_played_again(self, place: Path, tmp_path: Path) -> None:
        with serving(tmp_path, "--root", str(place)) as served, looking() as page:
            page.goto(served.address)
            page.wait_for_selector("h1")
            page.goto(f"{served.origin}/slides?path={place}/node.png")
            page.wait_for_selector("[data-open=yes]")
            assert page.is_disabled("#record")
            page.fill("#reader", "reader-1")
            page.fill("#task", "find tumor")
            page.check("#consent")
            page.click("#record")
            page.wait_for_selector("[data-recording=yes]")
            assert "recording" in page.inner_text("#recorder [role=status]")
            page.focus(".osd")
            for key in ("+", "+", "+", "ArrowLeft", "ArrowDown"):
                page.keyboard.press(key)
                page.wait_for_timeout(250)
            page.wait_for_timeout(1200)  # a stay
            page.set_viewport_size({"width": 1000, "height": 700})
            page.wait_for_timeout(400)
            page.click("#record")  # a pause: nothing is kept
            page.wait_for_selector("#recorder [role=status]:has-text('paused')")
            assert page.query_selector("[data-recording]") is None
            page.focus(".osd")
            page.keyboard.press("ArrowLeft")
            page.wait_for_timeout(800)
            page.click("#record")
            page.wait_for_timeout(500)
            page.click("#end")
            page.wait_for_selector("[data-session]")
            (file,) = (tmp_path / "runs" / ".sessions").iterdir()
            session = read_session(file)
            kinds = [event.kind for event in session.events]
            assert kinds[0] == "open" and kinds[-1] == "close" and kinds.count("open") == 2
            assert {"zoom", "pan", "resize"} <= set(kinds)
            gaps = np.diff([event.t for event in session.events])
            assert np.median(gaps) > 0.08 and gaps[kinds.index("close")] > 0.7
            assert any(action.kind == "stay" for action in segment(session))
            powers = [event.magnification / session.header.magnification(event.w)
                      for event in session.events if event.kind == "zoom"]  # fmt: skip
            assert powers == pytest.approx([1.0] * len(powers), rel=0.02)

            page.click("[data-do=replay]")
            page.wait_for_selector(".player")
            assert serious(page) == []
            assert page.evaluate(f"+{PLAYER}.views") == len(session.events)
            page.select_option(".player select", "16")
            page.click(".player [data-play=step]")
            page.click(".player [data-play=step]")
            until(lambda: page.evaluate(f"+{PLAYER}.view") == 1)
            until(lambda: page.evaluate(PAINTED))
            page.click(".player [data-play=play]")
            until(lambda: page.evaluate(f"+{PLAYER}.view") == len(session.events) - 1)
            visits = "+document.querySelector('.over').dataset.visits"
            until(lambda: page.evaluate(visits) == len(actions_of(session)))
            page.click("[data-do=replay]")
            until(lambda: not page.evaluate(PAINTED))
            page.set_viewport_size({"width": 360, "height": 740})
            assert fits(page)
            page.click("[data-do=delete]")
            page.wait_for_selector("[data-session]", state="detached")
            assert not file.exists()

    def test_nothing_is_lost_when_the_tab_is_closed(self, place: Path, tmp_path: Path) -> None:
        with serving(tmp_path, "--root", str(place)) as served, looking() as page:
            page.goto(served.address)
            page.wait_for_selector("h1")
            tab = page.context.new_page()
            tab.goto(f"{served.origin}/slides?path={place}/node.png")
            tab.wait_for_selector("[data-open=yes]")
            tab.fill("#reader", "reader-1")
            tab.check("#consent")
            tab.click("#record")
            tab.wait_for_selector("[data-recording=yes]")
            tab.wait_for_timeout(2300)  # one batch has gone
            tab.focus(".osd")
            tab.keyboard.press("+")
            tab.wait_for_timeout(900)
            tab.close(run_before_unload=False)
            (file,) = (tmp_path / "runs" / ".sessions").iterdir()
            events = until(lambda: read_closed_events(file), seconds=10)
            assert [event.kind for event in events].count("close") == 1
            assert any(event.kind == "zoom" for event in events)
            assert events[-1].t - events[0].t > 3


def read_closed_events(file: Path) -> Any:
    events = read_session(file).events
    return events if events and events[-1].kind == "close" else None
