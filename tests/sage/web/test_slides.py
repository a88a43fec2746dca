"""Slides on the pages: tiles against the reader, what is shown, and how fast."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import anyio
import httpx
import numpy as np
import pytest
import shapely
from PIL import Image

from mcp_servers.formats.geojson import read_objects
from mcp_servers.measures.maps import CellMap, SlideMaps, multipolygon, write_maps
from mcp_servers.servers.options import HttpOptions
from mcp_servers.slides.slide import Slide
from mcp_servers.slides.tiff import TiffSource
from sage.settings import Settings
from sage.web.app import create_app
from sage.web.guard import Secrets
from sage.web.routes import slides
from sage.web.routes.slides import TILE, Tiles, levels_of
from sage.web.site import Site
from tests.mcp_servers.large_slide import tissue_cells, write_large_slide
from tests.mcp_servers.slide_tools import blobs, pyramid
from tests.sage.web.pages import browser_marks, fits, looking, serious, serving, until

SIDE = 20_000
CELLS = 100_000
TOKEN = "a-token-of-the-tests-0123456789"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a slide of 20,000², an outline and 100,000 cells."""
    folder = tmp_path_factory.mktemp("slides")
    rng = np.random.default_rng(3)
    painted = np.ascontiguousarray(blobs(1024, 1024))
    write_large_slide(folder / "large.svs", SIDE, SIDE, painted, tissue_cells(SIDE, SIDE, 0.6))
    square = [[2000, 2000], [9000, 2000], [9000, 9000], [2000, 9000], [2000, 2000]]
    feature = {"geometry": {"type": "Polygon", "coordinates": [square]},
               "properties": {"classification": {"name": "<b>Tumor</b>"}}}  # fmt: skip
    outline = {"type": "FeatureCollection", "features": [feature]}
    (folder / "large_regions.geojson").write_text(json.dumps(outline))
    with Slide.open(folder / "large.svs") as slide:
        um = SIDE * (slide.mpp or 0.5)
    cells = CellMap(
        x_um=rng.uniform(0, um, CELLS), y_um=rng.uniform(0, um, CELLS),
        types=("lymphoid", "tumor"), codes=rng.integers(0, 2, CELLS),
    )  # fmt: skip
    window = multipolygon([shapely.box(0, 0, um, um)])
    maps = SlideMaps(slide="large", patient="p", window=window, cells=cells, mpp=um / SIDE)
    write_maps(maps, folder / "maps")
    return folder


def client(place: Path, runs: Path, kg: Path | None = None) -> Any:
    """Ask the guarded application as a page of its own does."""
    site = Site(Settings(runs_dir=runs, cache_dir=runs), (place.resolve(),), kg)
    guard = create_app(site, HttpOptions(token=TOKEN, port=8766))
    secrets = Secrets(TOKEN)
    headers = {"cookie": f"sage-8766={secrets.session}", "x-csrf-token": secrets.csrf,
               "origin": "http://127.0.0.1:8766"}  # fmt: skip

    def ask(method: str, path: str, **more: Any) -> httpx.Response:
        async def go() -> httpx.Response:
            transport = httpx.ASGITransport(app=guard)
            async with httpx.AsyncClient(
                transport=transport, base_url="http://127.0.0.1:8766", headers=headers
            ) as http:
                return await http.request(method, path, **more)

        return anyio.run(go)

    return ask


def test_tiles_are_the_readers_pixels(place: Path) -> None:
    tiles, path = Tiles(), place / "large.svs"
    last = levels_of(SIDE, SIDE)
    assert 2**last >= SIDE > 2 ** (last - 1)
    with Slide.open(path) as slide:
        for level, x, y in ((last, 8, 9), (last - 2, 3, 1), (last - 4, 1, 1)):
            shown = np.asarray(Image.open(io.BytesIO(tiles.tile(path, level, x, y)))).astype(int)
            scale = 2 ** (last - level)
            corner = (x * TILE * scale, y * TILE * scale, TILE * scale, TILE * scale)
            whole = Image.fromarray(slide.read(*corner))
            theirs = np.asarray(whole.resize((TILE, TILE), Image.Resampling.BOX)).astype(int)
            assert np.abs(shown - theirs).mean() < 8


def test_tiles_at_the_edge_are_cut_and_beyond_it_refused(place: Path, tmp_path: Path) -> None:
    ask = client(place, tmp_path)
    last, path = levels_of(SIDE, SIDE), str(place / "large.svs")
    column = SIDE // TILE
    at = {"path": path, "level": last, "x": column, "y": 0}
    edge = ask("GET", "/api/slides/tile", params=at)
    assert Image.open(io.BytesIO(edge.content)).size == (SIDE - column * TILE, TILE)
    for wrong in (
        {"x": column + 1},
        {"x": -1},
        {"level": last + 1},
        {"level": -1},
        {"level": 9_999_999},
    ):
        assert ask("GET", "/api/slides/tile", params=at | wrong).status_code == 422


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../x.svs", "link.svs", "maps/maps.json", "nothing.svs", ""]
)
def test_only_slides_below_the_roots_are_read(place: Path, tmp_path: Path, path: str) -> None:
    outside = tmp_path / "outside.svs"
    outside.write_bytes((place / "large.svs").read_bytes()[:100])
    link = place / "link.svs"
    if not link.is_symlink():
        link.symlink_to(outside)
    ask = client(place, tmp_path)
    for route in (
        "about",
        "tile?level=0&x=0&y=0",
        "thumbnail",
        "outlines",
        "cells?slide=large.svs",
    ):
        join = "&" if "?" in route else "?"
        answered = ask("GET", f"/api/slides/{route}{join}path={path}")
        assert answered.status_code == 422 and "root:" not in answered.text
    link.unlink()


def test_a_slide_without_a_pyramid_is_decoded_whole_but_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = np.ascontiguousarray(blobs(1500, 2500))
    path = pyramid(tmp_path / "flat.tif", image, levels=1)
    decoded: list[int] = []
    real = TiffSource.read

    def counted(self: Any, level: int, x: int, y: int, w: int, h: int, reduce: int = 1) -> Any:
        decoded.append(w * h)
        return real(self, level, x, y, w, h, reduce)

    monkeypatch.setattr(TiffSource, "read", counted)
    monkeypatch.setattr(slides, "WHOLE_PX", 400)
    tiles = Tiles()
    tiles.slide(path)
    decoded.clear()
    last = levels_of(2500, 1500)
    with Slide.open(path) as slide:
        wanted = Image.fromarray(slide.thumbnail(2500))
    decoded.clear()
    for below in range(4, last + 1):
        shown = np.asarray(Image.open(io.BytesIO(tiles.tile(path, last - below, 0, 0))))
        size = (-(-2500 // 2**below), -(-1500 // 2**below))
        whole = np.asarray(wanted.resize(size, Image.Resampling.BOX))[:TILE, :TILE]
        assert shown.shape == whole.shape
        if below <= 6:  # further down the image's border weighs in
            assert np.abs(shown.astype(int) - whole).mean() < 8
    with tiles.hold(path) as held:
        assert max(held.thumbnail(200).shape[:2]) == 200
    assert sum(decoded) < 1.2 * 2500 * 1500


def test_a_slide_that_is_read_is_not_closed_under_the_reader(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.png" for number in range(slides.OPEN + 3)]
    for number, path in enumerate(paths):
        Image.fromarray(np.full((64, 64, 3), 10 * number, np.uint8)).save(path)
    tiles = Tiles()
    with tiles.hold(paths[0]) as held:
        for path in paths[1:]:
            tiles.tile(path, levels_of(64, 64), 0, 0)
        assert int(held.read(1.0, 0, 0, 8, 8).max()) == 0  # closed, it would be white
    tiles.slide(paths[-1])
    assert len(tiles._slides) == slides.OPEN


@pytest.mark.parametrize(
    "text", ["not json", "[1]", '{"slide": "a", "cells": [1]}', "\udcff", "[" * 99999]
)
def test_a_damaged_folder_of_maps_hides_no_slide(tmp_path: Path, text: str) -> None:
    Image.fromarray(np.full((64, 64, 3), 200, np.uint8)).save(tmp_path / "a.png")
    (tmp_path / "maps").mkdir()
    (tmp_path / "maps" / "maps.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    answered = client(tmp_path, tmp_path)("GET", f"/api/slides/about?path={tmp_path / 'a.png'}")
    assert answered.status_code == 200 and answered.json()["overlays"] == []


CORNERS = [[100, 100], [5000, 100], [5000, 5000], [100, 5000]]


def drawn(place: Path, **more: Any) -> dict[str, Any]:
    return {"slide": str(place / "large.svs"), "person": "Ana", "base": "",
            "regions": [{"label": "Tumor", "corners": CORNERS}]} | more  # fmt: skip


def test_regions_are_kept_as_geojson_that_the_tools_read(place: Path, tmp_path: Path) -> None:
    ask = client(place, tmp_path)
    at = {"path": str(place / "large.svs")}
    empty = ask("GET", "/api/slides/regions", params=at).json()
    assert (empty["regions"], empty["base"]) == ([], "")
    saved = ask("POST", "/api/slides/regions", json=drawn(place)).json()
    (thing,) = read_objects(Path(saved["file"])).objects
    assert (thing.label, thing.kind) == ("Tumor", "annotation")
    assert thing.polygons[0].exterior.tolist() == CORNERS
    assert Path(saved["file"]).parent == tmp_path / ".regions"
    again = ask("GET", "/api/slides/regions", params=at).json()
    assert again["regions"] == drawn(place)["regions"] and again["base"] == saved["base"]
    # Who began with an older state does not overwrite what another saved meanwhile.
    late = ask("POST", "/api/slides/regions", json=drawn(place, regions=[]))
    assert late.status_code == 422 and "in the meantime" in late.json()["error"]
    other = {"label": "Stroma", "corners": [[0, 0], [900, 0], [900, 900]]}
    both = drawn(place, person="Ben", base=saved["base"])
    saved = ask("POST", "/api/slides/regions", json=both | {"regions": [*both["regions"], other]})
    saved = saved.json()
    kept = json.loads(Path(saved["file"]).read_text())["features"]
    assert [item["properties"]["drawn_by"] for item in kept] == ["Ana", "Ben"]
    gone = ask("POST", "/api/slides/regions", json=drawn(place, base=saved["base"], regions=[]))
    assert gone.status_code == 200
    assert ask("GET", "/api/slides/regions", params=at).json()["regions"] == []


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        ({"regions": [{"corners": CORNERS[:2]}]}, "at least 3"),
        ({"regions": [{"corners": [[0, 0], [9, 9], [9, 0], [0, 9]]}]}, "intersects itself"),
        ({"regions": [{"corners": [[0, 0], [9, 0], [9, SIDE + 1]]}]}, "off the slide"),
        ({"regions": [{"corners": CORNERS}] * 501}, "500"),
        ({"person": " "}, "your name"),
        ({"slide": "/etc/passwd"}, ""),
    ],
)
def test_regions_that_are_none_are_refused_and_nothing_is_written(
    place: Path, tmp_path: Path, odd: dict[str, Any], said: str
) -> None:
    refused = client(place, tmp_path)("POST", "/api/slides/regions", json=drawn(place, **odd))
    assert refused.status_code == 422 and said in refused.json()["error"].lower()
    assert not (tmp_path / ".regions").exists()


def test_a_region_is_measured_by_the_tools_measurements(place: Path, tmp_path: Path) -> None:
    ask = client(place, tmp_path)
    asked = {"maps": str(place / "maps"), "slide": str(place / "large.svs"),
             "formulas": ["pooled(share(cells.lymphoid))", "pooled(density(cells))"]}  # fmt: skip
    region = [{"corners": CORNERS}]
    found = ask("POST", "/api/slides/measure", json=asked | {"regions": region}).json()
    share, density = found["rows"]
    assert share["whole"]["value"] == pytest.approx(0.5, abs=0.01)
    assert found["tissue_mm2"][1] == pytest.approx((4900 * 0.25 / 1000) ** 2)
    per_mm2 = CELLS / found["tissue_mm2"][0]
    assert density["here"]["value"] == pytest.approx(per_mm2, rel=0.1)
    assert density["whole"]["value"] == pytest.approx(per_mm2)
    for odd in ({"formulas": ["__import__('os')"]}, {"formulas": ["x"] * 61},
                {"maps": "/etc"}, {"maps": str(place)}):  # fmt: skip
        assert ask("POST", "/api/slides/measure", json=asked | odd).status_code == 422


def test_a_map_of_values_lies_over_the_slide(place: Path, tmp_path: Path) -> None:
    ask = client(place, tmp_path)
    at = {"path": str(place / "maps"), "slide": str(place / "large.svs"), "quantity": "density"}
    found = ask("GET", "/api/slides/heat", params=at).json()
    assert found["unit"] == "/mm²" and "per mm² of tissue" in found["words"]
    assert max(found["x"]) < SIDE <= max(found["x"]) + found["side"] + 1
    area = (found["side_um"] / 1000) ** 2
    assert sum(found["values"]) * area == pytest.approx(CELLS, rel=0.02)
    for odd in ({"quantity": "secrets"}, {"quantity": "share"}, {"kind": "x"}, {"path": "/etc"}):
        assert ask("GET", "/api/slides/heat", params=at | odd).status_code == 422


class TestInABrowser:
    """A large slide as a pathologist looks at it."""

    pytestmark = browser_marks

    def test_a_large_slide_with_many_cells_pans_and_zooms(
        self, place: Path, tmp_path: Path
    ) -> None:
        asked: list[str] = []
        with serving(tmp_path, "--root", str(place)) as served, looking() as page:
            page.on("request", lambda r: asked.append(r.url) if "/tile?" in r.url else None)
            page.goto(served.address)
            page.wait_for_selector("h1")
            page.goto(f"{served.origin}/slides")
            page.wait_for_selector(".thumb img")
            until(lambda: page.evaluate("document.querySelector('.thumb img').naturalWidth"))
            assert serious(page) == []
            page.click("main li a")
            page.wait_for_selector("[data-open=yes]")
            assert serious(page) == []
            page.click("[data-overlay=maps]")
            page.wait_for_selector("p:has-text('100,000 cells')")
            page.click("[data-overlay=large_regions]")
            page.wait_for_selector("p:has-text('<b>Tumor</b>')")
            drawn = "+document.querySelector('.over').dataset.drawn"
            assert page.evaluate(drawn) > 0.95 * CELLS
            assert page.evaluate(MOVING) > 3
            before = page.inner_text(".scale")
            page.focus(".osd")
            for _ in range(8):
                page.keyboard.press("+")
            until(lambda: page.inner_text(".scale") != before)
            page.wait_for_timeout(2500)
            assert page.evaluate(drawn) < 0.5 * CELLS
            assert len(asked) > 10
            page.set_viewport_size({"width": 360, "height": 740})
            assert fits(page)

    def test_regions_are_drawn_by_hand_and_by_keyboard_and_measured(
        self, place: Path, tmp_path: Path
    ) -> None:
        with serving(tmp_path, "--root", str(place)) as served, looking() as page:
            page.goto(served.address)
            page.wait_for_selector("h1")
            page.goto(f"{served.origin}/slides#slide=large&x=10000&y=5000&zoom=0.1")
            page.wait_for_selector("[data-open=yes]")
            until(lambda: "x=10000&y=5000" in page.url)
            page.select_option("#heat", "share:lymphoid")
            page.wait_for_selector("#legend:has-text('share of lymphoid cells')")
            until(lambda: page.evaluate("+document.querySelector('.over').dataset.squares") > 50)
            # By keyboard alone: add, move, add a corner, name, measure, save.
            page.focus("#add-middle")
            page.keyboard.press("Enter")
            page.wait_for_selector("[data-middle]:focus")
            corners = "+document.querySelectorAll('[data-corner]').length"
            outline = "document.querySelector('[data-region=\"0\"]').getAttribute('d')"
            before = page.evaluate(outline)
            page.keyboard.press("ArrowRight")
            until(lambda: page.evaluate(outline) != before)
            page.keyboard.press("Shift+Tab")
            page.keyboard.press("+")
            until(lambda: page.evaluate(corners) == 5)
            page.focus("[aria-label='label of region 1']")
            page.keyboard.type("<b>Tumor</b>")
            page.focus("[data-measure='0']")
            page.keyboard.press("Enter")
            page.wait_for_selector("#measurements th:has-text('Here')")
            page.focus("#drawn-by")
            page.keyboard.type("Ana")
            page.focus("#save-regions")
            page.keyboard.press("Enter")
            page.wait_for_selector("#regions-file")
            assert serious(page) == []
            # With the pointer: a polygon, then a corner dragged; undone; and one more region.
            box = page.locator(".osd").bounding_box()

            def click(x: float, y: float) -> None:
                page.mouse.click(box["x"] + x * box["width"], box["y"] + y * box["height"])

            page.click("[data-draw=polygon]")
            page.wait_for_selector(".draw .catch", state="attached")
            for n, (x, y) in enumerate(((0.2, 0.2), (0.4, 0.2), (0.3, 0.4)), start=1):
                click(x, y)
                page.wait_for_selector(f".draw circle >> nth={n - 1}", state="attached")
            page.keyboard.press("Enter")
            page.wait_for_selector("[data-region='1']")
            grip = page.locator("[data-corner='0']").bounding_box()
            page.mouse.move(grip["x"] + 6, grip["y"] + 6)
            page.mouse.down()
            page.mouse.move(grip["x"] - 30, grip["y"] + 6)
            page.mouse.up()
            page.click("#save-regions")
            page.wait_for_selector(".pill:has-text('not saved')", state="detached")
            (kept,) = (tmp_path / "runs" / ".regions").glob("large.*.geojson")
            first, second = read_objects(kept).objects
            assert first.label == "<b>Tumor</b>" and len(first.polygons[0].exterior) == 5
            assert len(second.polygons[0].exterior) == 3
            page.reload()
            page.wait_for_selector("[data-region='1']")
            # Two slides move together.
            path = str(place / "large.svs")
            page.goto(f"{served.origin}/slides?path={path}&beside={path}")
            for n in (1, 2):
                page.wait_for_selector(f"[aria-label='slide {n}'] [data-open=yes]")
            page.focus(".osd >> nth=0")
            for _ in range(4):
                page.keyboard.press("+")
            page.keyboard.press("ArrowRight")
            until(lambda: len({bar.inner_text() for bar in page.locator(".scale").all()}) == 1)
            centers = (
                "[...document.querySelectorAll('.osd')].map(e => e.osd.viewport.getCenter().x)"
            )
            until(lambda: len({round(x, 3) for x in page.evaluate(centers)}) == 1)
            page.set_viewport_size({"width": 390, "height": 844})
            assert fits(page)
            assert serious(page) == []


MOVING = """new Promise(done => {
  const osd = document.querySelector('.osd').osd;
  let drawn = 0;
  osd.addHandler('update-viewport', () => { drawn += 1; });
  osd.viewport.zoomTo(osd.viewport.getZoom() * 1.6);
  osd.viewport.panBy(new OpenSeadragon.Point(0.1, 0.1));
  setTimeout(() => { osd.viewport.goHome(); done(drawn); }, 1800);
})"""
"""Zooms and pans; how many frames were drawn. How fast: benchmarks/pages.py."""


def test_nuclei_are_found_within_a_region_alone(place: Path, tmp_path: Path) -> None:
    folder = tmp_path / "slides"
    folder.mkdir()
    pyramid(folder / "small.tif", np.ascontiguousarray(blobs(1000, 1000)), 0.5)
    ask = client(folder, tmp_path)
    low, high = 300, 700
    corners = [[low, low], [high, low], [high, high], [low, high]]
    asked = {"slide": str(folder / "small.tif"), "region": {"corners": corners}}
    answer = ask("POST", "/api/slides/nuclei", json=asked)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert found["nuclei"] == len(found["shapes"]) > 50 and found["types"] == {}
    for shape in found["shapes"]:
        x, y = np.mean(shape["rings"][0], axis=0)
        assert low - 20 <= x <= high + 20 and low - 20 <= y <= high + 20
    assert not list(tmp_path.rglob("*nuclei*"))  # nothing is kept
    (folder / "small.tif").unlink()
    pyramid(folder / "bare.tif", np.ascontiguousarray(blobs(1000, 1000)), None)
    asked["slide"] = str(folder / "bare.tif")
    bare = ask("POST", "/api/slides/nuclei", json=asked)
    assert bare.status_code == 422 and "pixel size" in bare.json()["error"]
    answered = ask("POST", "/api/slides/nuclei", json=asked | {"mpp": 0.5})
    assert answered.json()["nuclei"] == found["nuclei"]
    far = {"slide": str(place / "large.svs"),
           "region": {"corners": [[0, 0], [SIDE, 0], [SIDE, SIDE], [0, SIDE]]}}  # fmt: skip
    large = client(place, tmp_path)("POST", "/api/slides/nuclei", json=far)
    assert large.status_code == 422 and "sage tools run nuclei" in large.json()["error"]
