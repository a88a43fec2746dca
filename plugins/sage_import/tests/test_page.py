"""The page that imports files, in Chromium and by requests, and what attackers send to it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from sage_import.page import LASTS
from tests.end_to_end.harness import sage
from tests.sage.web.pages import browser_marks, fits, looking, serious, serving, until

ROWS = "patient;age;sex;stage;adjuvant_chemo;months;censor\n" + "\n".join(
    f"P{n:03d};{50 + n % 30},5;{'M' if n % 2 else 'F'};{'I' * (n % 3 + 1)};"
    f"{'yes' if n % 5 else 'no'};{n % 40 + 2};{n % 2}"
    for n in range(60)
)


@pytest.fixture
def place(tmp_path: Path) -> tuple[Path, str]:
    """A folder to serve, with a file beside it, and a cache of its own."""
    (tmp_path / "home").mkdir()
    (tmp_path / "series.csv").write_text(ROWS, encoding="cp1252")
    return tmp_path / "home", str(tmp_path / "cache")


@pytest.fixture
def http(place: tuple[Path, str]) -> Iterator[httpx.Client]:
    home, cache = place
    with serving(home, SAGE_CACHE_DIR=cache) as served:
        token = served.address.partition("token=")[2]
        headers = {"authorization": f"Bearer {token}"}
        with httpx.Client(base_url=served.origin, headers=headers, timeout=60) as client:
            yield client


def sent(http: httpx.Client, name: str, content: bytes, to: str = "") -> Any:
    return http.post("/api/import/files", params={"name": name, "to": to}, content=content)


@pytest.mark.browser
class TestInChromium:
    """Kept together, so that the marks stand once."""

    pytestmark = browser_marks

    def test_files_become_a_cohort_that_runs_take(self, place: tuple[Path, str]) -> None:
        home, cache = place
        with serving(home, SAGE_CACHE_DIR=cache) as served, looking() as page:
            page.goto(served.address)
            page.goto(f"{served.origin}/import")
            page.set_input_files("#files", str(home.parent / "series.csv"))
            page.wait_for_selector("#questions")
            assert page.is_disabled("#write")
            assert "median time" in page.inner_text("#questions")
            assert "may be from after follow-up" in page.inner_text("#columns-variable")
            assert serious(page) == []
            page.set_viewport_size({"width": 360, "height": 740})
            page.emulate_media(color_scheme="dark")
            assert fits(page) and serious(page) == []
            page.select_option("[id='open-OS.event']", "censor:0")
            until(lambda: page.is_enabled("#write"))
            page.select_option("[aria-label='kind of adjuvant_chemo']", "skip")
            page.wait_for_selector("#columns-left-out td:has-text('adjuvant_chemo')")
            # The answer to one correction arrives while the next is being typed.
            late: list[Any] = []
            page.route("**/api/import/look", lambda route: late.append(route), times=1)
            page.check("#baseline")
            until(lambda: page.is_enabled("#title") and bool(late))
            page.fill("#title", "Our series")
            with page.expect_response("**/api/import/look"):
                late[0].continue_()
            until(lambda: page.inner_text("[role=status]") == "" and page.is_enabled("#write"))
            page.press("#title", "Tab")
            page.wait_for_selector("button:has-text('title=Our series')")
            until(lambda: page.is_enabled("#write"))
            page.click("#write")
            page.wait_for_selector("#written")
            page.click("#written a")
            page.wait_for_selector("h1:has-text('Our series')")
            page.wait_for_selector("#findings")
            assert "30" in page.inner_text("table")
            page.check("#by-missing")
            assert serious(page) == []
        shown = sage("cohort", "show", "cohorts/series", "--json", cwd=home).json
        assert (shown["title"], shown["n_patients"]) == ("Our series", 60)
        assert shown["endpoints"][0]["events"] == 30
        assert {item["key"] for item in shown["variables"]} == {
            "clinical:age", "clinical:sex", "clinical:stage"
        }  # fmt: skip
        assert {item["known_at"] for item in shown["variables"]} == {"baseline"}
        assert not list(Path(cache).glob("uploads/*/*"))  # nothing is left behind


def test_what_is_sent_is_bounded_and_stays_in_its_folder(
    http: httpx.Client, place: tuple[Path, str]
) -> None:
    home, cache = place
    for name in ("../x.csv", "/etc/x.csv", "a/b.csv", "..\\x.csv", ".hidden.csv", "x.exe", "x.toml",
                 "a\n.csv", "x" * 300 + ".csv", "cohort.toml", "\u202ex.csv"):  # fmt: skip
        assert sent(http, name, b"a,b\n1,2\n").status_code == 422, name
    for to in ("../..", "0" * 31, "g" * 32, "0" * 32):
        assert sent(http, "a.csv", b"a", to).status_code == 422, to
    assert sent(http, "big.csv", b"0" * ((64 << 20) + 1)).status_code == 413
    assert not list(Path(cache).glob("uploads/*"))
    answer = sent(http, "series.csv", ROWS.encode()).json()
    (kept,) = Path(cache).glob("uploads/*/*")
    assert kept.parent.name == answer["upload"] and kept.parent.stat().st_mode & 0o77 == 0
    for number in range(19):
        assert sent(http, f"{number}.csv", b"a", answer["upload"]).status_code == 200
    assert sent(http, "more.csv", b"a", answer["upload"]).status_code == 422
    old = time.time() - LASTS - 60
    os.utime(kept.parent, (old, old))
    assert sent(http, "new.csv", b"a").status_code == 200
    assert not kept.parent.exists()
    assert not list(home.rglob("*.csv"))


def test_nothing_is_written_with_an_open_question_over_another_or_outside(
    http: httpx.Client, place: tuple[Path, str]
) -> None:
    home, _ = place
    upload = sent(http, "series.csv", ROWS.encode()).json()["upload"]

    def asked(path: str, *settings: str, replace: bool = False) -> httpx.Response:
        body = {"upload": upload, "settings": settings}
        return http.post(f"/api/import/{path}", json=body | ({"replace": True} if replace else {}))

    look = asked("look").json()
    assert look["open"] == ["OS.event"]
    assert [item["key"] for item in look["questions"]] == ["id", "OS.time", "OS.event", "known_at"]
    assert look["examples"]["patient"].startswith("P000")
    refused = asked("write")
    assert refused.status_code == 422 and "OS.event=censor:0" in refused.json()["error"]
    for name in ("../up", "/tmp/x", "a/b", "..", "", "demo", "gbsg2"):
        answer = asked("write", "event=censor:0", f"name={name}")
        assert answer.status_code == 422, name
    assert not (home / "cohorts").exists()
    assert asked("write", "event=censor:0").json()["cohort"] == "series"
    upload = sent(http, "series.csv", ROWS.encode()).json()["upload"]
    assert 'select "replace a cohort' in asked("write", "event=censor:0").json()["error"]
    assert asked("write", "event=censor:1", replace=True).status_code == 200
    assert http.get("/api/cohorts/series").json()["endpoints"][0]["events"] == 30
    assert sorted(path.name for path in (home / "cohorts").iterdir()) == ["series"]


def test_hostile_files_are_refused_in_words(http: httpx.Client) -> None:
    hostile = {"a.csv": b"\x00\x00", "c.xlsx": b"PK\x03\x04", "d.json": b"[" * 50_000}
    for name, content in hostile.items():
        upload = sent(http, name, content).json()["upload"]
        answer = http.post("/api/import/look", json={"upload": upload})
        assert answer.status_code == 422 and answer.json()["error"], name
        assert "Traceback" not in answer.text
