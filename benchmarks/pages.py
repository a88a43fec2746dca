"""Speed of the pages: paint, weight, events, tiles, frames over 300,000 cells, maps of values.

    python -m benchmarks.pages [--side 40000] [--cells 300000] [--out benchmarks/results/pages.md]

A server and Chromium run on this machine beside each other, as they do for a person. The slide is
painted (`benchmarks.large_slide`). Goals are those of docs/pages.md; nothing fails where one is
missed, since what else runs on the machine decides: the load is printed with the table.
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
import threading
import time
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import httpx
import numpy as np
import shapely

from benchmarks.large_slide import tissue_cells, write_large_slide
from mcp_servers.measures.maps import CellMap, SlideMaps, multipolygon, write_maps
from sage.core import clock
from sage.run.folder import Manifest, RunFolder
from sage.web.routes.slides import Tiles, levels_of
from tests.mcp_servers.slide_tools import blobs
from tests.sage.web.pages import looking, serving, until

TILES = 100
EVENTS = 20
FRAMES = """new Promise(done => {
  const osd = document.querySelector('.osd').osd;
  let drawn = 0;
  const begun = performance.now();
  osd.addHandler('update-viewport', () => { drawn += 1; });
  const steps = [() => osd.viewport.zoomTo(osd.viewport.getZoom() * 1.6),
                 () => osd.viewport.panBy(new OpenSeadragon.Point(0.1, 0.1)),
                 () => osd.viewport.zoomTo(osd.viewport.getZoom() / 1.6)];
  steps.forEach((step, n) => setTimeout(step, n * 600));
  setTimeout(() => done(1000 * drawn / (performance.now() - begun)), 1800);
})"""

Row = tuple[str, str, str]


def main() -> None:
    """Measure and print, or write, the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--side", type=int, default=40_000)
    parser.add_argument("--cells", type=int, default=300_000)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        _paint(place / "slides", given.side, given.cells)
        begun = os.getloadavg()[0]
        rows = [*_tiles(place / "slides", given.side), *_pages(place, given.cells)]
    text = _markdown(rows, given, begun)
    print(text)
    if given.out:
        given.out.write_text(text, encoding="utf-8")


def _paint(folder: Path, side: int, count: int) -> None:
    folder.mkdir()
    painted = np.ascontiguousarray(blobs(2048, 2048))
    write_large_slide(folder / "large.svs", side, side, painted, tissue_cells(side, side, 0.6))
    rng, um = np.random.default_rng(3), side * 0.25
    cells = CellMap(
        rng.uniform(0, um, count), rng.uniform(0, um, count), ("lymphoid", "tumor"),
        rng.integers(0, 2, count),
    )  # fmt: skip
    window = multipolygon([shapely.box(0, 0, um, um)])
    maps = SlideMaps(slide="large", patient="p", window=window, cells=cells, mpp=0.25)
    write_maps(maps, folder / "maps")


def _tiles(folder: Path, side: int) -> list[Row]:
    """Tiles in this process, decoded and then kept."""
    tiles, last = Tiles(), levels_of(side, side)
    tiles.prepare()
    places = [(last - 1, x, y) for x in range(10, 20) for y in range(10, 10 + TILES // 10)]

    def times() -> list[float]:
        took = []
        for at in places:
            begun = time.perf_counter()
            tiles.tile(folder / "large.svs", *at)
            took.append(1000 * (time.perf_counter() - begun))
        return took

    cold, kept = times(), times()
    return [
        ("tile, decoded, p95", f"{quantiles(cold, n=20)[-1]:.1f} ms", "60 ms"),
        ("tile, kept, p95", f"{quantiles(kept, n=20)[-1]:.2f} ms", "10 ms"),
    ]


def _pages(place: Path, cells: int) -> list[Row]:
    with (
        serving(place, "--root", str(place / "slides")) as served,
        looking(viewport={"width": 1280, "height": 900}) as page,
    ):
        rows = [_served(served, place)]
        page.goto(served.address)
        page.wait_for_selector("#question")
        painted = []
        for _ in range(5):
            page.reload()
            page.wait_for_selector("#question")
            page.wait_for_load_state("networkidle")
            painted.append(page.evaluate(
                "performance.getEntriesByName('first-contentful-paint')[0].startTime"
            ))  # fmt: skip
        rows.append(("first paint, median of 5", f"{median(painted):.0f} ms", "1000 ms"))
        late = _events(page, served.origin, place)
        rows.append(("an event is shown after, median", f"{1000 * median(late):.0f} ms", "300 ms"))
        page.goto(f"{served.origin}/slides#slide=large")
        page.wait_for_selector("[data-open=yes]")
        page.wait_for_load_state("networkidle")
        weight = page.evaluate(
            "['navigation', 'resource'].flatMap(kind => performance.getEntriesByType(kind))"
            ".filter(item => !item.name.includes('/tile?'))"
            ".reduce((sum, item) => sum + item.encodedBodySize, 0)"
        )
        rows.append(("weight of the slide page without tiles", f"{weight / 1e6:.2f} MB", "2 MB"))
        bare = page.evaluate(FRAMES)
        begun = time.perf_counter()
        page.select_option("#heat", "share:lymphoid")
        page.wait_for_selector("#legend")
        took = time.perf_counter() - begun
        rows.append(("map of values from the click to its legend", f"{took:.2f} s", ""))
        page.select_option("#heat", "")
        page.click("[data-overlay=maps]")
        page.wait_for_selector(f"p:has-text('{cells:,} cells')")
        frames = page.evaluate(FRAMES)
        drawn = page.evaluate("+document.querySelector('.over').dataset.ms")
        rows += [
            ("frames per second, slide alone", f"{bare:.0f}", ""),
            (f"frames per second, {cells:,} cells over it", f"{frames:.0f}", "smooth"),
            ("drawing the cells once", f"{drawn:.0f} ms", ""),
        ]
    return rows


def _served(served: Any, place: Path) -> Row:
    """Tiles over HTTP that nobody asked for before, one after the other."""
    token = served.address.partition("token=")[2]
    headers = {"authorization": f"Bearer {token}"}
    at = {"path": str(place / "slides" / "large.svs"), "level": 15}
    with httpx.Client(base_url=served.origin, headers=headers, timeout=60) as http:
        http.get("/api/slides/tile", params={**at, "x": 0, "y": 0})
        begun = time.perf_counter()
        for n in range(TILES):
            http.get("/api/slides/tile", params={**at, "x": n % 20, "y": 40 + n // 20})
        rate = TILES / (time.perf_counter() - begun)
    return ("tiles per second over HTTP, decoded", f"{rate:.0f}", "30")


def _events(page: Any, origin: str, place: Path) -> list[float]:
    """Seconds from an event's time to its line on the page."""
    run = RunFolder(place / "runs" / "20260101-000000-paced-0000")
    run.root.mkdir(parents=True)
    run.save(Manifest(id=run.id, prompt="paced", created=clock.stamp(), reasoner="rules",
                      cohort="demo", kg="none"))  # fmt: skip
    page.goto(f"{origin}/runs/{run.id}")
    page.wait_for_selector("h1:has-text('paced')")

    def happen() -> None:
        for _ in range(EVENTS):
            run.event("note", node="scientist", message="now")
            time.sleep(0.25)

    writer = threading.Thread(target=happen)
    writer.start()
    lines = "document.querySelectorAll('#events li').length"
    until(lambda: page.evaluate(lines) >= EVENTS, seconds=60)
    writer.join()
    shown = page.evaluate(
        "[...document.querySelectorAll('#events li')]"
        ".map(line => (line.dataset.shown - Date.parse(line.dataset.at)) / 1000)"
    )
    return [float(seconds) for seconds in shown]


def _markdown(rows: list[Row], given: argparse.Namespace, load: float) -> str:
    lines = [
        f"`python -m benchmarks.pages`: a slide of {given.side:,}², {given.cells:,} cells;"
        f" {os.cpu_count()} cores, Python {platform.python_version()}, load {load:.1f} at the"
        f" start and {os.getloadavg()[0]:.1f} at the end.",
        "",
        "| what | measured | goal |",
        "|---|---|---|",
        *(f"| {what} | {value} | {goal} |" for what, value, goal in rows),
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
