"""The review page: pictures of the right place, decisions kept, attacks; drafts against none."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sage.core.files import write_json
from sage_slide_reading.sessions.drafts import Drafts, Round
from sage_slide_reading.sessions.format import SessionHeader
from sage_slide_reading.tests.test_session_drafts import DRAFTED
from sage_slide_reading.tests.test_sessions import box
from tests.mcp_servers.slide_tools import blobs
from tests.sage.web.pages import browser_marks, fits, looking, serious, serving, until
from tests.sage.web.test_slides import client

SIDE = 2048
CORNERS = ((100.0, 200.0), (1200.0, 300.0), (700.0, 1400.0))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A slide with drafts of three regions in the folder of sessions."""
    (tmp_path / "slides").mkdir()
    image = np.ascontiguousarray(blobs(SIDE, SIDE))
    image[300:712, 1200:1612] = (10, 200, 30)  # the second region is green
    Image.fromarray(image).save(tmp_path / "slides" / "node.png")
    header = SessionHeader(
        slide="node.png", width=SIDE, height=SIDE, screen=(800, 600), reader="r1",
        task="find <b>tumor</b>", started="2026-01-01T00:00:00+00:00",
    )  # fmt: skip
    for name, rationale in (("drafted", DRAFTED), ("scratch", DRAFTED.model_validate({}))):
        made = Drafts(
            session=f"{name}.session.jsonl", header=header, statement="For a test.",
            drafted_by="model" if name == "drafted" else "none",
            rounds=tuple(
                Round(action=box(x=x, y=y, w=412, h=412, start=5 * n, end=5 * n + 3),
                      rationale=rationale)
                for n, (x, y) in enumerate(CORNERS)
            ),
        )  # fmt: skip
        write_json(tmp_path / ".sessions" / f"{name}.drafts.json", made)
    return tmp_path


def body(**changed: Any) -> dict[str, Any]:
    return {"round": 0, "accept": True, "rationale": DRAFTED.model_dump(), "reviewer": "ana",
            "seconds": 12.5, **changed}  # fmt: skip


def test_pictures_show_the_place_and_decisions_are_kept(place: Path) -> None:
    ask = client(place / "slides", place)
    assert [item["name"] for item in ask("GET", "/api/drafts").json()] == ["scratch", "drafted"]
    at = "/api/drafts/drafted"
    for kind, size in (("thumbnail", (720, 720)), ("region", (412, 412)), ("cytology", (206, 206))):
        shown = ask("GET", f"{at}/picture", params={"round": 1, "kind": kind})
        image = Image.open(io.BytesIO(shown.content))
        assert image.size == size
        if kind != "thumbnail":
            red, green, blue = np.asarray(image).reshape(-1, 3).mean(axis=0)
            assert green > 150 > 80 > max(red, blue)
    shorter = DRAFTED.model_dump() | {"findings": DRAFTED.findings[:1]}
    for changed, state in (({}, "accepted"), ({"round": 1, "rationale": shorter}, "revised"),
                           ({"round": 2, "accept": False}, "rejected")):  # fmt: skip
        assert ask("POST", f"{at}/decisions", json=body(**changed)).json()["state"] == state
    again = ask("GET", at).json()
    assert {n: made["state"] for n, made in again["decisions"].items()} == {
        "0": "accepted", "1": "revised", "2": "rejected",
    }  # fmt: skip
    assert again["audit"]["revised"] == [1, 12.5]
    assert len((place / ".sessions" / "drafted.decisions.jsonl").read_text().splitlines()) == 3


def test_what_is_no_decision_is_refused(place: Path) -> None:
    ask = client(place / "slides", place)
    decisions = "/api/drafts/drafted/decisions"
    wrong: tuple[dict[str, Any], ...] = (
        {"round": 3}, {"round": -1}, {"seconds": 1e9},
        {"reviewer": "\u200b"}, {"rationale": {}}, {"rationale": {"findings": ["x" * 2000]}},
        {"rationale": {"findings": ["x"] * 31}}, {"drafts": "x"}, {"state": "accepted"},
    )  # fmt: skip
    for changed in wrong:
        assert ask("POST", decisions, json=body(**changed)).status_code == 422, changed
    nan = json.dumps(body()).replace("12.5", "NaN")
    assert ask("POST", decisions, content=nan).status_code == 422
    assert not (place / ".sessions" / "drafted.decisions.jsonl").exists()


def test_no_file_but_drafts_and_their_slide_is_reached(place: Path) -> None:
    ask = client(place / "slides", place)
    kept = place / ".sessions"
    (place / "secret.drafts.json").write_text((kept / "drafted.drafts.json").read_text())
    (kept / "link.drafts.json").symlink_to(place / "secret.drafts.json")
    (kept / "broken.drafts.json").write_text("[" * 100_000)
    for name in ("..%2Fsecret", ".hidden", "link", "none", "broken"):
        assert ask("GET", f"/api/drafts/{name}").is_error
        assert ask("POST", f"/api/drafts/{name}/decisions", json=body()).is_error
    assert len(ask("GET", "/api/drafts").json()) == 2
    for odd in ({"round": 9, "kind": "region"}, {"round": 0, "kind": "secret"}):
        assert ask("GET", "/api/drafts/drafted/picture", params=odd).status_code == 422
    shutil.move(place / "slides" / "node.png", place / "node.png")
    (place / "slides" / "node.png").symlink_to(place / "node.png")
    gone = ask("GET", "/api/drafts/drafted/picture", params={"round": 0, "kind": "region"})
    assert gone.status_code == 422 and "--root" in gone.json()["error"]


class TestInABrowser:
    """A reviewer decides on three regions, by hand and by script."""

    pytestmark = browser_marks

    def test_a_reviewer_deletes_edits_rejects_and_comes_back(self, place: Path) -> None:
        shown = str(place / "slides")
        with serving(place, "--root", shown, SAGE_RUNS_DIR=str(place)) as served, looking() as page:
            page.goto(served.address)
            page.wait_for_selector("h1")
            page.goto(f"{served.origin}/sessions")
            page.click("a:has-text('node.png') >> nth=1")
            page.wait_for_selector(".review[data-round='0']")
            loaded = (
                "[...document.querySelectorAll('.pictures img')]"
                ".filter(i => i.complete && i.naturalWidth).length"
            )
            until(lambda: page.evaluate(loaded) == 3)
            assert serious(page) == []
            assert "<b>tumor</b>" in page.inner_text(".review")  # a text, and no markup
            left = page.evaluate("document.querySelector('.framed .box').style.left")
            assert float(left.rstrip("%")) == pytest.approx(100 * CORNERS[0][0] / SIDE, abs=0.1)
            page.fill("#reviewer", "ana")
            page.click("[data-panel=findings] [data-delete='0']")
            page.click("#accept")
            page.wait_for_selector(".review[data-round='1'][data-decided='1']")
            page.click("[data-edit=why_zoom]")
            page.fill("[data-panel=why_zoom] textarea", "A green field. It is unusual.")
            page.click("#accept")
            page.wait_for_selector(".review[data-round='2'][data-decided='2']")
            page.click("#reject")
            page.wait_for_selector(".review[data-decided='3']")
            assert page.inner_text("[data-state]") == "rejected"
            page.click("#before")
            page.wait_for_selector(".review[data-round='1']")
            assert page.inner_text("[data-panel=why_zoom]").count("unusual") == 1
            assert "revised\t2" in page.inner_text("#timing")
            page.set_viewport_size({"width": 360, "height": 740})
            assert fits(page)
        kept = [
            json.loads(line)
            for line in (place / ".sessions" / "drafted.decisions.jsonl").read_text().splitlines()
        ]
        assert [each["state"] for each in kept] == ["revised", "revised", "rejected"]
        assert kept[0]["rationale"]["findings"] == list(DRAFTED.findings[1:])
        assert kept[1]["rationale"]["why_zoom"] == ["A green field.", "It is unusual."]
        assert all(each["reviewer"] == "ana" and each["seconds"] > 0 for each in kept)
