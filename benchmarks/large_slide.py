"""Peak memory of the slide tools on a very large slide, each in a process of its own.

    python -m benchmarks.large_slide [--width 300000 --height 100000] [--tissue 0.45] [--tools ...]

Without --tools all tools that work on a slide run, in an order in which each finds what it reads.
Those that need a model or labels of the user (`patch_train`, `text_score`, `mil_*`) do not.

The slide is a BigTIFF in Aperio's layout at 0.25 µm per pixel, 75 x 25 mm unless told: a tiled JPEG
pyramid whose directories point many times at the same few encoded tiles (glass, and 64 tiles of
painted tissue), so that 30 gigapixels are a file of megabytes while readers decode every tile as
usual. Peak memory is VmHWM of the process (Linux), with files it maps.
"""

from __future__ import annotations

import argparse
import json
import os
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

MPP = 0.25
TILE = 256
FACTOR = 4
CELL = 4096
"""Side in level-0 pixels of a square that is all tissue or all glass; a multiple of TILE."""
GLASS = (243, 243, 243)
FIELD: dict[str, Any] = {"x": 8000, "y": 4000}
TOOLS: dict[str, dict[str, Any]] = {
    "slide_properties": {},
    "slide_thumbnail": {},
    "read_region": FIELD | {"width": 1000, "height": 1000},
    "stain_separate": FIELD | {"width_um": 3000, "height_um": 3000},
    "stain_normalize": FIELD | {"width_um": 3000, "height_um": 3000},
    "tissue_mask": {},
    "tile_slide": {},
    "tls": {},
    "tumor": {},
    "til": {},
    "stroma": {},
    "region_patches": {},
    "nuclei": {},
    "ihc": {},
    "encode_tiles": {},
    "cluster_tiles": {"features": "{out}/{name}.handcrafted.h5"},
    "heatmap": {"scores": "{out}/{name}.clusters.csv", "column": "cluster"},
    "spatialdata_export": {"results": "{out}", "replace": True},
}
"""Tools and their arguments; braces hold the output folder and the slide's name."""

COUNTED = {
    "tiles": "tiles",
    "count": "aggregates",
    "pieces": "pieces",
    "nuclei": "nuclei",
    "regions": "regions",
    "points": "points",
}
"""Counts in a result that are worth a line."""

Image = NDArray[np.uint8]
Place = tuple[int, int]
"""Offset and length of encoded bytes in the file."""


def texture(seed: int = 11) -> Image:
    """2048 x 2048 px of painted tissue with nuclei and lymphoid aggregates."""
    from mcp_servers.slides.slide import Slide
    from validation.simulate.slide import render_slide

    with tempfile.TemporaryDirectory() as folder:
        painted = Path(folder) / "texture.tif"
        render_slide(painted, seed=seed, size_px=4096, mpp=MPP, aggregates=2)
        with Slide.open(painted) as slide:  # the middle of the painting is all tissue
            return slide.read(1024, 1024, 2048, 2048)


def tissue_cells(width: int, height: int, share: float) -> NDArray[np.bool_]:
    """Which cells (rows, columns) are tissue: a smooth outline with `share` of the area."""
    import cv2

    rows, columns = -(-height // CELL), -(-width // CELL)
    rng = np.random.default_rng(5)
    field = rng.standard_normal((rows, columns)).astype(np.float32)
    field = np.asarray(cv2.GaussianBlur(field, (0, 0), max(1.0, min(rows, columns) / 8)))
    return np.asarray(field >= np.quantile(field, 1 - share), dtype=bool)


@dataclass
class Pool:
    """Encoded tiles in the file, each distinct one once."""

    stream: BinaryIO
    places: dict[bytes, Place]

    def add(self, tile: Image) -> Place:
        """Where the tile stands, written when it is new."""
        import imagecodecs

        data = bytes(imagecodecs.jpeg8_encode(tile, level=80, subsampling="420"))
        if data not in self.places:
            self.places[data] = (self.stream.tell(), len(data))
            self.stream.write(data)
        return self.places[data]


def write_large_slide(
    path: Path, width: int, height: int, painted: Image, tissue: NDArray[np.bool_]
) -> None:
    """Write the slide; `painted` repeats over the cells that are `tissue`."""
    import cv2

    temporary = path.with_name(f".{path.name}.part")
    with temporary.open("wb") as stream:
        stream.write(struct.pack("<2sHHHQ", b"II", 43, 8, 0, 0))
        pool = Pool(stream, {})
        link, level = 8, 0
        while True:
            scale = FACTOR**level
            w, h = -(-width // scale), -(-height // scale)
            side = max(1, len(painted) // scale)
            small = np.asarray(cv2.resize(painted, (side, side), interpolation=cv2.INTER_AREA))
            places = _level_places(pool, w, h, scale, small, tissue)
            link = _write_directory(stream, link, level, (width, height), (w, h), places)
            if max(w, h) <= 8192:
                break
            level += 1
    temporary.replace(path)


def _level_places(
    pool: Pool, width: int, height: int, scale: int, small: Image, tissue: NDArray[np.bool_]
) -> list[Place]:
    """The place of each tile of a level, row by row."""
    glass = pool.add(np.full((TILE, TILE, 3), GLASS, np.uint8))
    period = max(1, len(small) // TILE)
    repeats = -(-TILE // len(small))
    wide = np.tile(small, (repeats, repeats, 1))
    parts = {
        (r, c): pool.add(
            np.ascontiguousarray(wide[r * TILE : (r + 1) * TILE, c * TILE : (c + 1) * TILE])
        )
        for r in range(period)
        for c in range(period)
    }
    cells = TILE * scale / CELL  # cells along a tile, at most 1 unless the level is coarse
    places = []
    for row in range(-(-height // TILE)):
        for column in range(-(-width // TILE)):
            top, left = int(row * cells), int(column * cells)
            if cells <= 1:
                inside = tissue[top, left]
                places.append(parts[row % period, column % period] if inside else glass)
                continue
            held = tissue[top : top + int(cells), left : left + int(cells)]
            share = TILE // int(cells)
            mask = np.zeros((TILE, TILE), dtype=bool)
            grown = np.kron(held, np.ones((share, share), dtype=bool))
            mask[: grown.shape[0], : grown.shape[1]] = grown
            tile = np.full((TILE, TILE, 3), GLASS, np.uint8)
            tile[mask] = wide[:TILE, :TILE][mask]
            places.append(pool.add(tile))
    return places


def _write_directory(
    stream: BinaryIO, link: int, level: int, whole: Place, own: Place, places: list[Place]
) -> int:
    """Write a BigTIFF directory and point `link` at it; returns where the next link stands."""
    (width, height), (w, h) = whole, own
    text = f"Aperio Image Library v11.2.1\r\n{width}x{height} ({TILE}x{TILE}) "
    text += "" if level == 0 else f"-> {w}x{h} "
    text += "JPEG/RGB Q=80" + (f"|AppMag = 40|MPP = {MPP}" if level == 0 else "")
    described = text.encode() + b"\0"
    offsets = np.array([place[0] for place in places], dtype="<u8").tobytes()
    lengths = np.array([place[1] for place in places], dtype="<u8").tobytes()
    short, long, long8, ascii_ = 3, 4, 16, 2
    tags: list[tuple[int, int, int, bytes]] = [
        (254, long, 1, struct.pack("<I", 0)),
        (256, long, 1, struct.pack("<I", w)),
        (257, long, 1, struct.pack("<I", h)),
        (258, short, 3, struct.pack("<3H", 8, 8, 8)),
        (259, short, 1, struct.pack("<H", 7)),
        (262, short, 1, struct.pack("<H", 6)),
        (270, ascii_, len(described), described),
        (277, short, 1, struct.pack("<H", 3)),
        (284, short, 1, struct.pack("<H", 1)),
        (322, long, 1, struct.pack("<I", TILE)),
        (323, long, 1, struct.pack("<I", TILE)),
        (324, long8, len(places), offsets),
        (325, long8, len(places), lengths),
        (530, short, 2, struct.pack("<2H", 2, 2)),
    ]
    entries = []
    for tag, kind, count, value in tags:
        field = value.ljust(8, b"\0")
        if len(value) > 8:
            stream.seek(0, os.SEEK_END)
            field = struct.pack("<Q", stream.tell())
            stream.write(value)
        entries.append(struct.pack("<HHQ", tag, kind, count) + field)
    stream.seek(0, os.SEEK_END)
    at = stream.tell()
    stream.write(struct.pack("<Q", len(entries)) + b"".join(entries))
    following = stream.tell()
    stream.write(struct.pack("<Q", 0))
    stream.seek(link)
    stream.write(struct.pack("<Q", at))
    stream.seek(0, os.SEEK_END)
    return following


def make_slide(path: Path, width: int, height: int, share: float) -> None:
    """A large slide with `share` of tissue."""
    write_large_slide(path, width, height, texture(), tissue_cells(width, height, share))


def peak_mib() -> float:
    """Most memory that this process ever held, MiB."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise SystemExit("VmHWM is not in /proc/self/status; run this on Linux")


def run_here(name: str, slide: Path, out: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Run one tool in this process, as a worker does."""
    from mcp_servers.context import ToolContext
    from mcp_servers.registry import load
    from mcp_servers.roots import Roots

    context = ToolContext(Roots.of([slide.parent], out), threads=2)
    registry = load("pathology")
    given = {"slide": slide.name, **settings}
    needs = registry.get(name).needs(registry.get(name).parse(given)).memory_mb
    start = time.perf_counter()
    result = registry.run(name, given, context).result
    return {
        "tool": name,
        "peak_mib": peak_mib(),
        "declared_mib": needs,
        "seconds": time.perf_counter() - start,
        "cpu_seconds": time.process_time(),
        "result": result,
    }


def run_apart(
    name: str, slide: Path, out: Path, settings: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Run one tool in a fresh process; its peak memory, seconds and result."""
    command = [sys.executable, "-m", "benchmarks.large_slide", "--run", name]
    command += ["--slide", str(slide.resolve()), "--out", str(out.resolve())]
    command += ["--settings", json.dumps(settings or {})]
    root = Path(__file__).resolve().parents[1]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=root)
    if done.returncode:
        raise SystemExit(f"{name} failed: {done.stderr[-2000:]}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def main() -> None:
    """Make the slide, run each tool, print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--width", type=int, default=300_000)
    parser.add_argument("--height", type=int, default=100_000)
    parser.add_argument("--tissue", type=float, default=0.45, help="share of tissue")
    parser.add_argument("--tools", nargs="+", default=list(TOOLS))
    parser.add_argument("--settings", type=json.loads, default={}, help="JSON, for every tool")
    parser.add_argument("--slide", type=Path, help="use this slide")
    parser.add_argument("--out", type=Path, help="folder for what the tools write")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    options = parser.parse_args()
    work = Path(tempfile.gettempdir()) / "sage-bench"
    work.mkdir(exist_ok=True)
    out = options.out or work / "large-out"
    if options.run:
        print(json.dumps(run_here(options.run, options.slide, out, options.settings)))
        return
    name = f"large-{options.width}x{options.height}-{options.tissue:g}.svs"
    slide = options.slide or work / name
    if not slide.exists():
        print(f"writing {slide} ...", file=sys.stderr)
        make_slide(slide, options.width, options.height, options.tissue)
    print(f"{slide.name}: {slide.stat().st_size / 2**20:.0f} MiB")
    print("| tool | peak memory | declared | time | CPU time | |\n|---|---|---|---|---|---|")
    for tool in options.tools:
        settings = {
            key: value.format(out=out.resolve(), name=slide.stem)
            if isinstance(value, str)
            else value
            for key, value in {**TOOLS.get(tool, {}), **options.settings}.items()
        }
        got = run_apart(tool, slide, out, settings)
        counts = [
            f"{got['result'][key]:,} {word}"
            for key, word in COUNTED.items()
            if isinstance(got["result"].get(key), int)
        ]
        print(
            f"| `{tool}` | {got['peak_mib']:,.0f} MiB | {got['declared_mib']:,} MiB "
            f"| {got['seconds']:.1f} s | {got['cpu_seconds']:.1f} s | {', '.join(counts)} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
