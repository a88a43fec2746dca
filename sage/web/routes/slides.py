"""Routes for slides: tiles decoded by the tools' readers, and results found on the slides."""

from __future__ import annotations

import json
import math
import re
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from sage.core.errors import InputError
from sage.core.extras import require_extra
from sage.core.log import logger

if TYPE_CHECKING:
    from mcp_servers.slides.arrays import U8
    from mcp_servers.slides.slide import Slide
    from sage.web.site import Site

log = logger(__name__)
router = APIRouter(prefix="/slides")

MOST_LISTED = 2000
TILE = 256
QUALITY = 82
OPEN = 8
"""Maximum number of slides kept open."""
HELD = 1 << 30
"""Maximum bytes of slide pixels in memory; the most recently used slide may exceed it."""
WHOLE_PX = 4096
"""Longer side of the cached whole slide, used if no stored level is close to the scale."""
NEAR = 8.0
"""Maximum ratio by which a stored level may be finer than a tile made directly from it."""
KEPT = 128 << 20
"""Maximum bytes of encoded tiles kept in memory."""
UNFIT = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""Exceptions that reading a JSON file of an unexpected structure can raise."""
THUMBNAIL_PX = 320
"""Longer side of a slide's thumbnail in the list, in pixels."""
THUMBNAIL_FROM_PX = 1 << 26
"""Maximum number of pixels decoded for a thumbnail; other slides have no thumbnail."""
SAME = 0.0005
"""Relative difference up to which a stored resolution is used for a tile without resampling."""


@dataclass(eq=False)
class Held:
    """An open slide and the number of its current readers."""

    slide: Slide
    users: int = 0
    _whole: U8 | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def bytes(self) -> int:
        """Size in bytes of the pixels that stay in memory."""
        kept = 0 if self._whole is None else self._whole.nbytes
        in_memory = self.slide.source.name == "image"
        return kept + 3 * self.slide.width * self.slide.height * in_memory

    def read(self, scale: float, left: int, top: int, width: int, height: int) -> U8:
        """Read a rectangle in RGB, downsampled from level 0 by a power of two.

        Far below the resolution of the coarsest stored level, a few pixels would require decoding
        the whole slide; this is done once, and later rectangles are made from the result.
        """
        view = self.slide.scale_to(scale, tolerance=SAME)
        coarse = self._whole_scale
        if scale < coarse or scale <= NEAR * self.slide.levels[view.level].downsample:
            return view.read(left, top, width, height)
        import cv2

        k = round(scale / coarse)
        part = self._small()[top * k : (top + height) * k, left * k : (left + width) * k]
        return cv2.resize(part, (width, height), interpolation=cv2.INTER_AREA).astype("uint8")

    def thumbnail(self, max_px: int) -> U8:
        """Return the whole slide with a longer side of at most `max_px` and `WHOLE_PX` pixels."""
        from mcp_servers.slides.slide import fit

        longer = max(self.slide.width, self.slide.height)
        if longer / max_px <= NEAR * self.slide.levels[-1].downsample:
            return self.slide.thumbnail(max_px)
        return fit(self._small(), max_px)

    @property
    def _whole_scale(self) -> float:
        longer = max(self.slide.width, self.slide.height)
        return float(2.0 ** max(0, math.ceil(math.log2(longer / WHOLE_PX))))

    def _small(self) -> U8:
        with self._lock:
            if self._whole is None:
                scale = self._whole_scale
                across, down = (
                    math.ceil(side / scale) for side in (self.slide.width, self.slide.height)
                )
                view = self.slide.scale_to(scale, tolerance=SAME)
                self._whole = view.read(0, 0, across, down)
            return self._whole


class Tiles:
    """Open slides and their encoded tiles, evicting the least recently used first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._opening = threading.Lock()
        self._slides: OrderedDict[tuple[Path, int], Held] = OrderedDict()
        self._tiles: OrderedDict[tuple[Path, int, int, int, int], bytes] = OrderedDict()
        self._size = 0
        self._listing = threading.Semaphore(2)  # a long list leaves threads to whoever looks
        self._ready = False

    def prepare(self) -> None:
        """Import the slide decoders once, so that no thread sees half-loaded modules.

        Raises
        ------
        InputError
            If the slide packages are not installed.
        """
        with self._lock:
            if not self._ready:
                require_extra("slides", "looking at slides")
                import cv2  # noqa: F401

                import mcp_servers.slides.slide  # noqa: F401

                self._ready = True

    def slide(self, path: Path) -> Slide:
        """Return the open slide for its metadata, reopening it if the file changed."""
        with self.hold(path) as held:
            return held.slide

    @contextmanager
    def hold(self, path: Path) -> Iterator[Held]:
        """Keep the slide open for reading pixels until the block ends."""
        with self._opening:
            held = self._open(path)
            held.users += 1
        try:
            yield held
        finally:
            with self._opening:
                held.users -= 1
                self._let_go()

    def _open(self, path: Path) -> Held:
        from mcp_servers.slides.slide import Slide

        key = (path, path.stat().st_mtime_ns)
        if key not in self._slides:
            self._slides[key] = Held(Slide.open(path))
        self._slides.move_to_end(key)
        return self._slides[key]

    def _let_go(self) -> None:
        """Close slides beyond the limits, except those currently being read."""
        for key, held in list(self._slides.items())[:-1]:
            many = len(self._slides) > OPEN
            if not many and sum(each.bytes for each in self._slides.values()) <= HELD:
                return
            if not held.users:
                self._slides.pop(key).slide.close()

    def tile(self, path: Path, level: int, x: int, y: int) -> bytes:
        """Return a tile of the power-of-two pyramid as JPEG.

        Parameters
        ----------
        level : level 0 is a single pixel and each level doubles the sides, up to the slide's full
            size
        x, y : column and row of the tile within the level

        Raises
        ------
        InputError
            If the level has no such tile.
        """

        def read(held: Held) -> U8:
            slide = held.slide
            last = levels_of(slide.width, slide.height)
            scale = 2.0 ** (last - level) if 0 <= level <= last else math.inf
            width, height = math.ceil(slide.width / scale), math.ceil(slide.height / scale)
            left, top = x * TILE, y * TILE
            if not (0 <= left < width and 0 <= top < height):
                raise InputError(f"the slide has no tile {x}, {y} at level {level}")
            return held.read(scale, left, top, min(TILE, width - left), min(TILE, height - top))

        return self._encoded(path, (level, x, y), read)

    def thumbnail(self, path: Path) -> bytes:
        """Return the whole slide, at most `THUMBNAIL_PX` pixels wide and high, as JPEG.

        Raises
        ------
        InputError
            If no stored level of the slide is small enough to decode for a thumbnail.
        """

        def read(held: Held) -> U8:
            level = held.slide.levels[-1]
            if level.width * level.height > THUMBNAIL_FROM_PX:
                raise InputError(f"{held.slide.name} has no level small enough for a thumbnail")
            return held.thumbnail(THUMBNAIL_PX)

        with self._listing:
            return self._encoded(path, (-1, 0, 0), read)

    def _encoded(
        self, path: Path, place: tuple[int, int, int], read: Callable[[Held], U8]
    ) -> bytes:
        """Return part of the slide as JPEG, from memory unless the file changed."""
        key = (path, path.stat().st_mtime_ns, *place)
        with self._lock:
            if (kept := self._tiles.get(key)) is not None:
                self._tiles.move_to_end(key)
                return kept
        with self.hold(path) as held:
            image = read(held)
        made = encode(image)
        with self._lock:
            if key not in self._tiles:
                self._tiles[key] = made
                self._size += len(made)
            while self._size > KEPT:
                self._size -= len(self._tiles.popitem(last=False)[1])
        return made


def encode(image: Any) -> bytes:
    """Encode an RGB image as JPEG."""
    import cv2

    done, data = cv2.imencode(
        ".jpg", cv2.cvtColor(image, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, QUALITY]
    )
    assert done
    return bytes(data)


def levels_of(width: int, height: int) -> int:
    """Compute the pyramid's last level, numbered as in Deep Zoom: level 0 is a single pixel."""
    return math.ceil(math.log2(max(width, height, 1)))


def resolve_allowed(site: Site, path: str, found: Callable[[Path], bool]) -> Path:
    """Resolve a file or folder below the roots passed to `sage serve`.

    Raises
    ------
    InputError
        If the path is elsewhere, even through a link, or is not of the requested kind.
    """
    from mcp_servers.roots import Roots

    if not site.roots:
        raise InputError("no slide folder is set; start `sage serve` with --root FOLDER")
    resolved = Roots(inputs=site.roots, output=site.roots[0]).input(path)
    if not found(resolved):
        raise InputError(f'"{path[:200]}" is not a file or folder of the requested type')
    return resolved


def slide_file(request: Request, path: str) -> Path:
    """Resolve a slide below the roots."""
    request.app.state.tiles.prepare()
    return resolve_allowed(request.app.state.site, path, _may_be_slide)


def _may_be_slide(path: Path) -> bool:
    from mcp_servers.slides.candidates import SLIDE_SUFFIXES
    from mcp_servers.slides.folders import find_dicom

    suffix = path.suffix.lower() in SLIDE_SUFFIXES
    return suffix if path.is_file() or suffix else path.is_dir() and bool(find_dicom(path))


def list_below(root: Path, most: int | None = None) -> tuple[list[Path], dict[str, int]]:
    """List at most `most` slides below a folder, and count rejected images by reason."""
    from mcp_servers.slides.candidates import list_candidates

    files = (path for path in sorted(root.rglob("*")) if not path.is_symlink())
    return list_candidates(files, most)


def slide_named(site: Site, stem: str) -> Path:
    """Find the slide with this name, without its suffix, below the roots.

    Raises
    ------
    InputError
        If there is no such slide.
    """
    for root in site.roots:
        for path in list_below(root)[0]:
            if path.stem == stem:
                return path
    raise InputError(f'no slide "{stem[:120]}" was found in the folders given with --root')


@router.get("")
def list_slides(request: Request) -> dict[str, Any]:
    """List the slides in the folders given with `--root`, and count the rejected images."""
    from mcp_servers.slides.candidates import count_bytes

    site: Site = request.app.state.site
    found: list[dict[str, Any]] = []
    left: Counter[str] = Counter()
    for root in site.roots:
        paths, reasons = list_below(root, MOST_LISTED - len(found))
        left.update(reasons)
        found += [
            {
                "path": str(path),
                "name": path.relative_to(root).as_posix(),
                "bytes": count_bytes(path),
            }
            for path in paths
        ]
    return {"slides": found, "left_out": dict(left)}


@router.get("/about")
def describe_slide(path: str, request: Request) -> dict[str, Any]:
    """Describe a slide and its overlays."""
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
        "warnings": [*slide.warnings, *filter(None, [slide.unlike_stain(gray=True)])],
        "overlays": [*_outlines(request, place), *_cell_maps(request, place)],
    }


@router.get("/tile")
def tile(path: str, level: int, x: int, y: int, request: Request) -> Response:
    """Return a tile of the slide as JPEG.

    Parameters
    ----------
    path : the slide, below a folder given with `--root`
    level : level of the power-of-two pyramid, numbered as in Deep Zoom: level 0 is a single
        pixel
    x, y : column and row of the tile at this level, from 0
    request : provides the open slides and the folders that may be shown

    Raises
    ------
    InputError
        If the file may not be shown, or the slide has no such tile; returned with status 422.
    """
    return _picture(request.app.state.tiles.tile(slide_file(request, path), level, x, y))


@router.get("/thumbnail")
def thumbnail(path: str, request: Request) -> Response:
    """Return a thumbnail of the whole slide as JPEG."""
    return _picture(request.app.state.tiles.thumbnail(slide_file(request, path)))


def _picture(jpeg: bytes) -> Response:
    return Response(
        jpeg, media_type="image/jpeg", headers={"cache-control": "private, max-age=3600"}
    )


def _outlines(request: Request, slide: Path) -> list[dict[str, Any]]:
    """Find this slide's GeoJSON files below the roots: `NAME.geojson`, `NAME_tissue.geojson`."""
    site: Site = request.app.state.site
    paths = [
        path
        for root in site.roots
        for path in sorted(root.rglob(f"{escape_glob(slide.stem)}*.geojson"))[:40]
        if path.is_file() and path.resolve().is_relative_to(root)
    ]
    times = Counter(path.stem for path in paths)
    return [
        {"kind": "outlines", "path": str(path),
         "name": path.stem if times[path.stem] == 1 else f"{path.parent.name}/{path.stem}"}
        for path in paths
    ]  # fmt: skip


def _cell_maps(request: Request, slide: Path) -> list[dict[str, Any]]:
    """Find map folders (from `sage slides maps`) that name this slide."""
    site: Site = request.app.state.site
    found = []
    for root in site.roots:
        for path in sorted(root.rglob("maps.json"))[:MOST_LISTED]:
            try:
                said = json.loads(path.read_text(encoding="utf-8"))
                own = said["slide"] == slide.stem and path.resolve().is_relative_to(root)
                types = [str(kind)[:60] for kind in (said.get("cells") or {}).get("types", ())]
            except (*UNFIT, OSError) as error:  # a damaged folder must not hide slides
                log.info("maps that are none", path=str(path), error=type(error).__name__)
                continue
            if own:
                found.append(
                    {"kind": "cells", "path": str(path.parent), "name": path.parent.name,
                     "types": types}
                )  # fmt: skip
    return found


def escape_glob(name: str) -> str:
    """Escape the wildcards in a file name for `glob`."""
    return re.sub(r"([*?\[])", r"[\1]", name)


@router.get("/outlines")
def outlines(path: str, request: Request) -> dict[str, Any]:
    """Return the polygons in a GeoJSON file, in level-0 pixels."""
    from mcp_servers.formats.geojson import read_objects

    place = resolve_allowed(
        request.app.state.site, path, lambda at: at.is_file() and at.suffix == ".geojson"
    )
    drawing = read_objects(place)
    shapes = [
        {"kind": (thing.label or thing.name)[:80], "rings": [ring.tolist() for ring in rings]}
        for thing in drawing.objects
        if (rings := [ring for area in thing.polygons for ring in (area.exterior, *area.holes)])
    ]
    return {"shapes": shapes, "notes": drawing.notes}


@router.get("/cells")
def cells(path: str, slide: str, request: Request) -> Response:
    """Pack a map's cells: a line of JSON, x and y (float32, level-0 px), then types.

    A slide that does not state its pixel size is assumed to have the size used for the map.
    """
    import numpy as np

    from mcp_servers.measures.maps import read_maps

    place = resolve_allowed(request.app.state.site, path, lambda at: (at / "maps.json").is_file())
    maps = read_maps(place)
    mpp = request.app.state.tiles.slide(slide_file(request, slide)).mpp or maps.mpp
    if maps.cells is None or not mpp:
        raise InputError(f"{place.name} has no cells, or its pixel size is unknown")
    points = np.stack([maps.cells.x_um, maps.cells.y_um], axis=1) / mpp
    head = json.dumps({"n": len(maps.cells), "types": list(maps.cells.types)}).encode()
    head += b" " * (-(len(head) + 1) % 4) + b"\n"
    codes = np.where(maps.cells.codes < 0, 255, maps.cells.codes).astype(np.uint8)
    body = head + points.astype("<f4").tobytes() + codes.tobytes()
    return Response(body, media_type="application/octet-stream")
