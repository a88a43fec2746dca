"""Slides: tiles by the readers of the tools, and what was found on them."""

from __future__ import annotations

import json
import math
import re
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from fastapi import APIRouter, Request
from fastapi.responses import Response

from sage.core.errors import InputError
from sage.core.extras import need

if TYPE_CHECKING:
    from mcp_servers.slides.slide import Slide
    from sage.web.site import Site

router = APIRouter(prefix="/slides")
T = TypeVar("T")

SUFFIXES = (".svs", ".tif", ".tiff", ".ndpi", ".mrxs", ".scn", ".bif", ".vms", ".png", ".jpg")
MOST_LISTED = 2000
TILE = 256
QUALITY = 82
OPEN = 8
"""Slides held open."""
KEPT = 128 << 20
"""Bytes of encoded tiles kept in memory."""
SAME = 0.0005
"""Share by which a stored resolution may differ from a tile's and still be taken as it is."""


class Tiles:
    """Open slides and their encoded tiles, the least recently used let go first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._slides: OrderedDict[tuple[Path, int], Slide] = OrderedDict()
        self._tiles: OrderedDict[tuple[Path, int, int, int, int], bytes] = OrderedDict()
        self._size = 0
        self._ready = False

    def prepare(self) -> None:
        """Load what decodes slides, once: half-loaded modules of other threads are seen by none.

        Raises
        ------
        InputError
            If the packages for slides are not installed.
        """
        with self._lock:
            if not self._ready:
                need("slides", "looking at slides")
                import cv2  # noqa: F401

                import mcp_servers.slides.slide  # noqa: F401

                self._ready = True

    def slide(self, path: Path) -> Slide:
        """The open slide; a file that changed is opened again."""
        from mcp_servers.slides.slide import Slide

        key = (path, path.stat().st_mtime_ns)
        with self._lock:
            if key not in self._slides:
                self._slides[key] = Slide.open(path)
            self._slides.move_to_end(key)
            if len(self._slides) > OPEN:
                self._slides.popitem(last=False)[1].close()
            return self._slides[key]

    def tile(self, path: Path, level: int, x: int, y: int) -> bytes:
        """One tile of the pyramid in powers of two, as JPEG.

        Parameters
        ----------
        path : the slide
        level : 0 is one pixel; each level doubles the sides, the last one is the slide's own
        x, y : column and row of the tile within the level

        Raises
        ------
        InputError
            If the level has no such tile.
        """
        key = (path, path.stat().st_mtime_ns, level, x, y)
        with self._lock:
            if (kept := self._tiles.get(key)) is not None:
                self._tiles.move_to_end(key)
                return kept
        slide = self.slide(path)
        last = levels_of(slide.width, slide.height)
        scale = 2.0 ** (last - level)
        width, height = math.ceil(slide.width / scale), math.ceil(slide.height / scale)
        left, top = x * TILE, y * TILE
        if not 0 <= level <= last or not (0 <= left < width and 0 <= top < height):
            raise InputError(f"the slide has no tile {x}, {y} at level {level}")
        view = slide.scaled(scale, tolerance=SAME)
        image = view.read(left, top, min(TILE, width - left), min(TILE, height - top))
        made = encode(image)
        with self._lock:
            if key not in self._tiles:
                self._tiles[key] = made
                self._size += len(made)
            while self._size > KEPT:
                self._size -= len(self._tiles.popitem(last=False)[1])
        return made


def encode(image: Any) -> bytes:
    """RGB as JPEG."""
    import cv2

    done, data = cv2.imencode(
        ".jpg", cv2.cvtColor(image, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, QUALITY]
    )
    assert done
    return bytes(data)


def levels_of(width: int, height: int) -> int:
    """The pyramid's last level, as Deep Zoom counts: level 0 is one pixel."""
    return math.ceil(math.log2(max(width, height, 1)))


def allowed(site: Site, path: str, found: Callable[[Path], bool]) -> Path:
    """A file or folder below the roots that `sage serve` was given.

    Raises
    ------
    InputError
        If it lies elsewhere, also by way of a link, or is not of the kind asked for.
    """
    from mcp_servers.roots import Roots

    if not site.roots:
        raise InputError("no folder is shown: start `sage serve` with --root FOLDER")
    resolved = Roots(inputs=site.roots, output=site.roots[0]).input(path)
    if not found(resolved):
        raise InputError(f'"{path[:200]}" is not what was asked for')
    return resolved


def slide_file(request: Request, path: str) -> Path:
    """A slide below the roots."""
    request.app.state.tiles.prepare()
    return allowed(
        request.app.state.site, path, lambda at: at.is_file() and at.suffix.lower() in SUFFIXES
    )


def slide_named(site: Site, stem: str) -> Path:
    """The slide of this name, without its suffix, below the roots.

    Raises
    ------
    InputError
        If there is none.
    """
    for root in site.roots:
        for path in sorted(root.rglob("*")):
            slide = path.suffix.lower() in SUFFIXES and path.is_file() and not path.is_symlink()
            if slide and path.stem == stem:
                return path
    raise InputError(f'no slide "{stem[:120]}" lies below the folders of --root')


@router.get("")
def listed(request: Request) -> list[dict[str, Any]]:
    """Files that may be slides, below the folders of `--root`."""
    site: Site = request.app.state.site
    found: list[dict[str, Any]] = []
    for root in site.roots:
        for path in sorted(root.rglob("*")):
            if path.suffix.lower() in SUFFIXES and path.is_file() and not path.is_symlink():
                name = path.relative_to(root).as_posix()
                found.append({"path": str(path), "name": name, "bytes": path.stat().st_size})
            if len(found) >= MOST_LISTED:
                return found
    return found


@router.get("/about")
def about(path: str, request: Request) -> dict[str, Any]:
    """What a slide says of itself, and what was found on it."""
    place = slide_file(request, path)
    slide = request.app.state.tiles.slide(place)
    return {
        "path": str(place),
        "name": slide.name,
        "width": slide.width,
        "height": slide.height,
        "mpp": slide.mpp,
        "objective": slide.objective_power,
        "levels": levels_of(slide.width, slide.height),
        "tile": TILE,
        "warnings": list(slide.warnings),
        "overlays": [*_outlines(request, place), *_cell_maps(request, place)],
    }


@router.get("/tile")
def tile(path: str, level: int, x: int, y: int, request: Request) -> Response:
    """One tile of a slide, as JPEG.

    Parameters
    ----------
    path : the slide, below a folder of `--root`
    level : of the pyramid in powers of two, as Deep Zoom counts: level 0 is one pixel
    x, y : column and row of the tile at this level, from 0
    request : carries the open slides and the folders that may be shown

    Raises
    ------
    InputError
        If the file may not be shown, or the slide has no such tile; answered with status 422.
    """
    made = request.app.state.tiles.tile(slide_file(request, path), level, x, y)
    return Response(
        made, media_type="image/jpeg", headers={"cache-control": "private, max-age=3600"}
    )


def _outlines(request: Request, slide: Path) -> list[dict[str, Any]]:
    """GeoJSON files of this slide: `NAME.geojson`, `NAME_tissue.geojson` below the roots."""
    site: Site = request.app.state.site
    paths = [
        path
        for root in site.roots
        for path in sorted(root.rglob(f"{_glob(slide.stem)}*.geojson"))[:40]
        if path.is_file() and path.resolve().is_relative_to(root)
    ]
    times = Counter(path.stem for path in paths)
    return [
        {"kind": "outlines", "path": str(path),
         "name": path.stem if times[path.stem] == 1 else f"{path.parent.name}/{path.stem}"}
        for path in paths
    ]  # fmt: skip


def _cell_maps(request: Request, slide: Path) -> list[dict[str, Any]]:
    """Folders of maps (`sage maps`) that name this slide."""
    site: Site = request.app.state.site
    found = []
    for root in site.roots:
        for path in sorted(root.rglob("maps.json"))[:MOST_LISTED]:
            said = json.loads(path.read_text(encoding="utf-8"))
            if said.get("slide") == slide.stem and path.resolve().is_relative_to(root):
                types = (said.get("cells") or {}).get("types", [])
                found.append(
                    {"kind": "cells", "path": str(path.parent), "name": path.parent.name,
                     "types": [str(kind)[:60] for kind in types]}
                )  # fmt: skip
    return found


def _glob(name: str) -> str:
    return re.sub(r"([*?\[])", r"[\1]", name)


@router.get("/outlines")
def outlines(path: str, request: Request) -> dict[str, Any]:
    """The polygons of a GeoJSON file, in level-0 pixels."""
    from mcp_servers.formats.geojson import MAX_BYTES

    place = allowed(
        request.app.state.site, path, lambda at: at.is_file() and at.suffix == ".geojson"
    )
    if place.stat().st_size > MAX_BYTES:
        raise InputError(f"{place.name} is too large to be shown")
    try:
        read = json.loads(place.read_text(encoding="utf-8"))
        features = read["features"] if isinstance(read, dict) else read
        shapes = [_shape(item) for item in features]
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        raise InputError(f"{place.name} is no GeoJSON of outlines") from None
    return {"shapes": [shape for shape in shapes if shape["rings"]]}


def _shape(item: dict[str, Any]) -> dict[str, Any]:
    geometry = item["geometry"]
    parts = geometry["coordinates"]
    polygons = {"Polygon": [parts], "MultiPolygon": parts}.get(geometry["type"], [])
    named = item.get("properties") or {}
    kind = (named.get("classification") or {}).get("name") or named.get("name") or ""
    rings = [[[float(x), float(y)] for x, y, *_ in ring] for part in polygons for ring in part]
    return {"kind": str(kind)[:80], "rings": rings}


@router.get("/cells")
def cells(path: str, slide: str, request: Request) -> Response:
    """The cells of a map, packed: a line of JSON, then x and y (float32, level-0 px), then types.

    A slide that does not state its pixel size is taken at the size that the map was made with.
    """
    import numpy as np

    from mcp_servers.measures.maps import read_maps

    place = allowed(request.app.state.site, path, lambda at: (at / "maps.json").is_file())
    maps = read_maps(place)
    mpp = request.app.state.tiles.slide(slide_file(request, slide)).mpp or maps.mpp
    if maps.cells is None or not mpp:
        raise InputError(f"{place.name} has no cells, or no pixel size is known")
    points = np.stack([maps.cells.x_um, maps.cells.y_um], axis=1) / mpp
    head = json.dumps({"n": len(maps.cells), "types": list(maps.cells.types)}).encode()
    head += b" " * (-(len(head) + 1) % 4) + b"\n"
    codes = np.where(maps.cells.codes < 0, 255, maps.cells.codes).astype(np.uint8)
    body = head + points.astype("<f4").tobytes() + codes.tobytes()
    return Response(body, media_type="application/octet-stream")
