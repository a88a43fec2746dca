"""Scripted readers at the real viewer: Chromium, the slides page, its recorder.

    python -m benchmarks.scripted_viewer SLIDES --out SESSIONS [--readers 1] [--most 400]

Each session is a list of looks (`scripted_readers.plan`). The page's clock is driven:
timers, animation and the recorder's stamps run on it as fast as the machine allows, and it jumps
while the view rests, so that a session of a minute takes seconds. OpenSeadragon's springs move the
view, the recorder samples it and posts its events, the server writes the file, as for a person.
Tiles are not loaded (--tiles loads them): no script looks at them.
"""

from __future__ import annotations

import argparse
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.adapters.behavior import looks_of, session_name
from benchmarks.adapters.scripted_readers import STRATEGIES, TASKS, Look
from mcp_servers.slides.slide import Slide
from sage_slide_reading.sessions.format import SUFFIX, Session, read_session
from tests.sage.web.pages import CHROMIUM, serving, until
from validation.simulate.node import Node, plant_node

WINDOW = {"width": 1388, "height": 990}
"""Of Chromium, so that the viewer has about the aspect that readers plan with."""
START = "2026-01-01T08:00:00"
SETTLES_S = 0.25
"""After a look's travel the view rests; from then on the clock may jump, as no view is missed."""
FRAME_MS = 100
"""Between frames: ten a second, as often as the recorder looks."""
GO = """([x, y, w, travel]) => {
  const osd = document.querySelector('.osd').osd, port = osd.viewport;
  const high = w * osd.element.clientHeight / osd.element.clientWidth;
  for (const spring of [port.centerSpringX, port.centerSpringY, port.zoomSpring])
    spring.animationTime = Math.max(travel, 0.05);
  const box = osd.world.getItemAt(0).imageToViewportRectangle(x - w / 2, y - high / 2, w, high);
  port.fitBounds(box);
}"""


def node_of(slide: Path) -> Node | None:
    """The node that a file's name tells; None for a real slide."""
    found = re.fullmatch(r"node-p(\d+)-(\d+)", slide.stem)
    return plant_node(int(found[2]), int(found[1])) if found else None


@contextmanager
def viewing(tiles: bool) -> Iterator[Any]:
    """A page of Chromium; what a page throws fails.

    Tiles that come later than OpenSeadragon waits, by a clock that runs faster than the server,
    are no fault: the view does not depend on them.
    """
    from playwright.sync_api import sync_playwright

    wrong: list[str] = []
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_context(viewport=WINDOW).new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.set_default_timeout(120_000)
        if not tiles:
            network = page.context.new_cdp_session(page)
            network.send("Network.enable")
            network.send("Network.setBlockedURLs", {"urls": ["*/api/slides/tile*"]})
        yield page
        browser.close()
    assert not wrong, wrong[:5]


def open_viewer(page: Any, served: Any, slide: Path) -> None:
    """The slides page with this slide, its clock in our hands."""
    page.goto(f"{served.origin}/slides?path={slide}")
    until(lambda: _runs(page, 100) and page.query_selector("[data-open=yes]"), seconds=120)


def play(page: Any, looks: Sequence[Look], reader: str, task: str) -> None:
    """Record one session: press the recorder's buttons and go from look to look.

    Parameters
    ----------
    page : shows the slide, with playwright's clock installed
    looks : what the reader does
    reader : pseudonym
    task : what the reader was asked to do
    """
    first = looks[0]
    page.evaluate(GO, [first.x, first.y, first.width, 0.05])
    page.clock.run_for(400)
    page.fill("#reader", reader)
    page.fill("#task", task)
    page.check("#consent")
    page.clock.run_for(200)
    page.click("#record")
    until(lambda: _runs(page, 20) and page.query_selector("[data-recording=yes]"), seconds=30)
    page.clock.run_for(round(1000 * first.dwell_s))
    for look in looks[1:]:
        page.evaluate(GO, [look.x, look.y, look.width, look.travel_s])
        rest = round(1000 * (look.travel_s + look.dwell_s))
        moving = round(1000 * (look.travel_s + min(look.dwell_s, SETTLES_S)))
        for _ in range(moving // FRAME_MS):
            page.clock.fast_forward(FRAME_MS)
            rest -= FRAME_MS
        page.clock.fast_forward(rest)
    page.click("#end")
    page.clock.run_for(200)


def _runs(page: Any, ms: int) -> bool:
    page.clock.run_for(ms)
    return True


def ended(folder: Path) -> tuple[Path, Session] | None:
    """The one session of a folder, once its last view is closed."""
    for file in folder.glob(f"*{SUFFIX}"):
        session = read_session(file)
        if session.events and session.events[-1].kind == "close":
            return file, session
    return None


def record(
    slides: Sequence[Path],
    readers: int,
    out: Path,
    most: int,
    tell: Any = print,
    tiles: bool = False,
) -> int:
    """Record every strategy and reader on every slide; sessions that are there are kept.

    Parameters
    ----------
    slides : files below one folder
    readers : of every strategy
    out : folder of the sessions
    most : end after so many new sessions
    tell : gets a line per session
    tiles : whether the viewer may load pixels
    """
    out.mkdir(parents=True, exist_ok=True)
    made = 0
    with tempfile.TemporaryDirectory() as place:
        kept = Path(place) / "kept"
        options = ("--root", str(slides[0].parent), "--sessions", str(kept))
        with serving(Path(place), *options) as served, viewing(tiles) as page:
            page.goto(served.address)
            page.wait_for_selector("h1")
            page.clock.install(time=START)
            for slide in slides:
                wanted = [
                    (strategy, reader)
                    for reader in range(readers)
                    for strategy in STRATEGIES
                    if not (out / session_name(slide, strategy, reader)).is_file()
                ]
                if not wanted or made >= most:
                    continue
                open_viewer(page, served, slide)
                page.clock.pause_at(page.evaluate("Date.now() / 1000 + 0.5"))
                with Slide.open(slide, threads=1) as opened:
                    for strategy, reader in wanted:
                        begun = time.perf_counter()
                        looks = looks_of(opened, node_of(slide), strategy, reader)
                        play(page, looks, f"{strategy}-{reader}", TASKS[strategy])
                        file, session = until(lambda: _runs(page, 50) and ended(kept), seconds=60)
                        shutil.move(file, out / session_name(slide, strategy, reader))
                        made += 1
                        tell(
                            f"{made}: {slide.name} {strategy}-{reader}: {len(session.events)} "
                            f"views, {session.seconds:.1f} s in {time.perf_counter() - begun:.1f} s"
                        )
    return made


def main() -> None:
    """Record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("slides", type=Path, help="folder of slides")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--readers", type=int, default=1)
    parser.add_argument("--most", type=int, default=1000)
    parser.add_argument("--tiles", action="store_true")
    given = parser.parse_args()
    slides = sorted(path for path in given.slides.iterdir() if path.is_file())
    record(
        slides,
        given.readers,
        given.out,
        given.most,
        lambda line: print(line, flush=True),
        given.tiles,
    )


if __name__ == "__main__":
    main()
