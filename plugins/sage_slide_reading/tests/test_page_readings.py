"""Readings on the pages: started, followed, stepped into, replayed, and what is refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from typer.main import get_command

from benchmarks.simulate.scenes import Scene, render_scene
from mcp_servers.servers.options import HttpOptions
from mcp_servers.slides.slide import Slide
from sage.settings import Settings
from sage.web.app import create_app
from sage.web.guard import Secrets
from sage.web.processes import Commands
from sage.web.site import Site
from sage_slide_reading import cli
from sage_slide_reading.reader.algorithm import read_slide
from sage_slide_reading.reader.export import write_reading
from sage_slide_reading.reader.eyes import computed_eyes
from sage_slide_reading.reader.scope import Scope
from sage_slide_reading.reader.types import Options, Question
from sage_slide_reading.web import readings
from tests.sage.web.pages import browser_marks, fits, looking, serious, serving, until

TOKEN = "a-token-of-the-tests-0123456789"
ROOT = "/api/slides/readings"
QUADRANTS = ("upper left", "upper right", "lower left", "lower right")
WHERE = "In which quadrant is the tumor?"


@pytest.fixture(scope="module")
def slides(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A painted slide with a tumor upper left, and a finished reading of it beside it."""
    folder = tmp_path_factory.mktemp("slides").resolve()
    scene = Scene(tumor=((400, 330, 170),))
    render_scene(folder / "a.tiff", seed=5, size_px=(2048, 1536), aggregates=[], scene=scene)
    options = Options(patch_px=128)
    question = Question(text=WHERE, options=QUADRANTS)
    with Slide.open(folder / "a.tiff", threads=1) as slide:
        reading = read_slide(Scope(slide, options), computed_eyes(), question, options)
        write_reading(reading, folder / "earlier")
    return folder


Ask = Callable[..., httpx.Response]


@pytest.fixture
def ask(slides: Path, tmp_path: Path) -> Iterator[Ask]:
    """Ask the guarded application as a page of its own does."""
    site = Site(Settings(runs_dir=tmp_path / "runs", cache_dir=tmp_path), (slides,))
    guard = create_app(site, HttpOptions(token=TOKEN, port=8766))
    secrets = Secrets(TOKEN)
    headers = {"cookie": f"sage-8766={secrets.session}", "x-csrf-token": secrets.csrf,
               "origin": "http://127.0.0.1:8766"}  # fmt: skip

    def asked(method: str, path: str, **more: Any) -> httpx.Response:
        async def go() -> httpx.Response:
            transport = httpx.ASGITransport(app=guard)
            async with httpx.AsyncClient(
                transport=transport, base_url="http://127.0.0.1:8766", headers=headers
            ) as http:
                return await http.request(method, path, **more)

        return anyio.run(go)

    yield asked
    for folder in (tmp_path / "runs" / ".readings").glob("*"):
        asked("POST", f"{ROOT}/stop", json={"reading": folder.name})


def begin(ask: Ask, slides: Path, **more: Any) -> str:
    body = {"slide": str(slides / "a.tiff"), "person": "Ada", "question": WHERE,
            "answers": QUADRANTS, "patch_px": 128, **more}  # fmt: skip
    answered = ask("POST", ROOT, json=body)
    assert answered.status_code == 200, answered.text
    return str(answered.json()["reading"])


def get_status(ask: Ask, slides: Path, name: str) -> dict[str, Any]:
    answered = ask("GET", f"{ROOT}/one", params={"path": str(slides / "a.tiff"), "reading": name})
    assert answered.status_code == 200, answered.text
    found: dict[str, Any] = answered.json()
    return found


def reach(ask: Ask, slides: Path, name: str, state: str, seconds: float = 60) -> dict[str, Any]:
    return dict(until(lambda: (found := get_status(ask, slides, name))["state"] == state and found,
                      seconds))  # fmt: skip


def test_a_reading_is_started_stepped_into_and_finished(ask: Ask, slides: Path) -> None:
    name = begin(ask, slides, pause=True)
    waiting = reach(ask, slides, name, "waiting")
    assert waiting["steps"] == [] and waiting["now"]["stage"] == "selected"
    slide = str(slides / "a.tiff")
    refused = ask("POST", ROOT, json={"slide": slide, "person": "Bob", "question": "Any TLS?"})
    assert refused.status_code == 422
    assert "Ada already started a reading of this slide" in refused.json()["error"]

    def said(**word: Any) -> httpx.Response:
        return ask("POST", f"{ROOT}/say", json={"reading": name, "person": "Ada", **word})

    off = {"x": 2000, "y": 0, "width": 500, "height": 10}
    assert "not on the slide" in said(region=off).json()["error"]
    assert said().status_code == 422
    box = {"x": 1300, "y": 900, "width": 256, "height": 256}
    assert said(region=box, go=True).status_code == 200
    described = until(lambda: (found := get_status(ask, slides, name))["steps"] and
                      found["state"] == "waiting" and found, 60)  # fmt: skip
    first = described["steps"][0]["seen"][0]
    assert (first["region"]["id"], first["region"]["box"]) == ("person-0", box)
    assert said(edit=["nowhere", "x"]).status_code == 200
    said(edit=["person-0", "smooth <b>muscle</b>"], go=True)
    missing = until(lambda: (found := get_status(ask, slides, name))["now"]
                    and found["now"]["stage"] == "missing" and found, 60)  # fmt: skip
    assert "edit needs a region that was seen" in missing["now"]["refused"][0]
    said(missing_info="solid nests", magnification=10, pause=False, go=True)
    done = reach(ask, slides, name, "finished")
    assert done["final"]["answer"] == "upper left" and done["final"]["rests_on"]
    last = done["steps"][-1]
    assert last["looked_for"] == "solid nests" and last["magnification"] == 10
    notes = [note for step in done["steps"] for note in step["interventions"]]
    assert notes == ["look at 1300,900,256,256 (Ada)",
                     "person-0 reads: smooth <b>muscle</b> (Ada)",
                     "look for: solid nests; magnification 10x (Ada)"]  # fmt: skip
    assert said(pause=True).json()["error"] == "the reader is not running"


def test_a_reading_can_be_ended_and_what_was_seen_stays(ask: Ask, slides: Path) -> None:
    name = begin(ask, slides, pause=True)
    reach(ask, slides, name, "waiting")
    assert ask("POST", f"{ROOT}/stop", json={"reading": name}).status_code == 200
    assert reach(ask, slides, name, "stopped")["final"] is None
    listed = ask("GET", ROOT, params={"path": str(slides / "a.tiff")}).json()
    assert [item["state"] for item in listed] == ["stopped", "finished"]
    assert ask("POST", f"{ROOT}/stop", json={"reading": name}).status_code == 422


@pytest.mark.parametrize("reading", ["/etc", "../earlier", "20260101-000000-00000000"])
def test_no_other_folder_is_read(ask: Ask, slides: Path, reading: str) -> None:
    params = {"path": str(slides / "a.tiff"), "reading": reading}
    assert ask("GET", f"{ROOT}/one", params=params).status_code == 422
    for route in ("say", "stop"):
        assert ask("POST", f"{ROOT}/{route}", json={"reading": reading}).status_code == 422


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda text: text.replace('"width"', '"wdith"', 1), "box.width"),
        (lambda text: text.replace('"slide": "a"', '"slide": "two"'), "another slide"),
        (lambda text: "[" * 99_999 + text, "damaged"),
    ],
)
def test_a_damaged_reading_is_refused(
    ask: Ask, slides: Path, damage: Callable[[str], str], words: str
) -> None:
    place = slides / "damaged"
    shutil.copytree(slides / "earlier", place, dirs_exist_ok=True)
    before = (place / "reading.json").read_text()
    after = damage(before)
    assert after != before
    (place / "reading.json").write_text(after)
    params = {"path": str(slides / "a.tiff"), "reading": str(place)}
    answered = ask("GET", f"{ROOT}/one", params=params)
    shutil.rmtree(place)
    assert answered.status_code == 422 and words in answered.json()["error"]


@pytest.mark.parametrize(
    "body",
    [
        {"person": "", "question": WHERE},
        {"person": "Ada", "question": WHERE, "answers": ["left"]},
        {"person": "Ada", "question": WHERE, "out": "/tmp/x"},
        {"person": "Ada", "question": WHERE, "slide": "/etc/passwd"},
    ],
)
def test_a_question_that_is_none_starts_nothing(
    ask: Ask, slides: Path, tmp_path: Path, body: dict[str, Any]
) -> None:
    answered = ask("POST", ROOT, json={"slide": str(slides / "a.tiff"), **body})
    assert answered.status_code == 422 and "Value error" not in answered.json()["error"]
    assert not (tmp_path / "runs" / ".readings").exists()


def test_words_that_look_like_options_are_words(
    ask: Ask, slides: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[str] = []
    monkeypatch.setattr(Commands, "start", lambda self, name, *words: given.extend(words))
    begin(ask, slides, question="--eyes model --out /tmp", answers=["--help", "-x"])
    group: Any = get_command(cli.app)
    read = group.commands["read"]
    said = read.make_context("read", given[2:]).params
    assert (said["question"], said["eyes"]) == ("--eyes model --out /tmp", "computed")
    assert list(said["answers"]) == ["--help", "-x"]


def test_no_more_readings_at_once_than_may_run(
    ask: Ask, slides: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readings, "MOST_RUNNING", 0)
    body = {"slide": str(slides / "a.tiff"), "person": "Ada", "question": WHERE}
    assert "are being read" in ask("POST", ROOT, json=body).json()["error"]


def test_a_reader_outlives_the_server_and_is_found_again(
    ask: Ask, slides: Path, tmp_path: Path
) -> None:
    name = begin(ask, slides, pause=True)
    reach(ask, slides, name, "waiting")
    site = Site(Settings(runs_dir=tmp_path / "runs", cache_dir=tmp_path), (slides,))
    fresh = create_app(site, HttpOptions(token=TOKEN, port=8766))
    headers = {"authorization": f"Bearer {TOKEN}"}

    async def go() -> tuple[Any, Any]:
        transport = httpx.ASGITransport(app=fresh)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://127.0.0.1:8766", headers=headers
        ) as http:
            params = {"path": str(slides / "a.tiff"), "reading": name}
            found = (await http.get(f"{ROOT}/one", params=params)).json()["state"]
            return found, (await http.post(f"{ROOT}/stop", json={"reading": name})).status_code

    assert anyio.run(go) == ("waiting", 200)
    reach(ask, slides, name, "stopped")


class TestInTheBrowser:
    """A question from the page, the path while it works, a person who steps in, and the replay."""

    pytestmark = browser_marks

    def test_a_slide_is_read_stepped_into_and_replayed(self, slides: Path, tmp_path: Path) -> None:
        with (
            serving(tmp_path, "--root", str(slides)) as served,
            looking(viewport={"width": 1400, "height": 1100}) as page,
        ):
            page.goto(served.address)
            page.goto(f"{served.origin}/slides?path={slides / 'a.tiff'}")
            page.wait_for_selector(".osd[data-open=yes]")
            page.fill("#slide-question", "Where is the tumor?")
            page.fill("#slide-answers", "\n".join((*QUADRANTS, "center")))
            page.fill("#asked-by", "Ada")
            page.check("#slide-pause")
            page.click("#read-slide")
            page.wait_for_selector("#reading[data-state=waiting]")
            page.click("#look-screen")
            page.click("#go-step")
            page.wait_for_selector("#visit")
            page.wait_for_selector("#reading[data-state=waiting]")
            assert page.get_attribute("#visit", "data-region")
            assert int(page.get_attribute("canvas.over", "data-visits")) >= 1
            page.fill("#edit-words", "fat and nothing else <img src=x onerror=alert(1)>")
            page.click("#edit-say")
            page.fill("#missing-info", "solid nests")
            page.click("#say-missing")
            assert not serious(page)
            page.click("#go-on")
            page.wait_for_selector("#reading[data-state=finished]", timeout=120_000)
            count = int(page.get_attribute("#reading", "data-visits"))
            page.click("#close-reading")
            page.wait_for_selector("#ask-slide")
            # The replay begins at the first look and is walked to the last.
            page.click("[data-reading] button >> nth=0")
            page.wait_for_selector("#reading[data-state=finished]")
            until(lambda: page.get_attribute("[data-at]", "data-at") == "1")
            before = page.evaluate("document.querySelector('.osd').osd.viewport.getCenter().x")
            said = [page.inner_text("#why-next")]
            for _ in range(count - 1):
                page.click("[data-play=step]")
                said.append(page.inner_text("#why-next"))
            text = "\n".join(said)
            assert "reads: fat and nothing else <img src=x onerror=alert(1)> (Ada)" in text
            assert "a person: look for: solid nests (Ada)" in text
            assert "answer from everything that was seen" in said[-1]
            assert page.get_attribute("[data-at]", "data-at") == str(count)
            assert page.is_disabled("[data-play=step]")
            until(lambda: page.get_attribute("canvas.over", "data-visits") == str(count))
            until(lambda: page.evaluate("document.querySelector('.osd').osd.viewport.getCenter().x")
                  != before)  # fmt: skip
            page.click("[data-play=play]")
            until(lambda: page.get_attribute("[data-at]", "data-at") not in ("1", str(count)))
            assert not serious(page) and fits(page)
            page.set_viewport_size({"width": 390, "height": 800})
            assert fits(page)
