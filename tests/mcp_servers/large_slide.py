"""A very large painted slide in a file of megabytes, and tools run on it in their own process.

The slide is a BigTIFF in Aperio's layout at 0.25 µm per pixel: a tiled JPEG pyramid whose
directories point many times at the same few encoded tiles, so that 30 gigapixels are a small file
while readers decode every tile as usual. Peak memory is VmHWM of the process (Linux).
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import cv2
import imagecodecs
import numpy as np
from numpy.typing import NDArray

from mcp_servers.context import ToolContext
from mcp_servers.registry import load
from mcp_servers.roots import Roots

MPP = 0.25
TILE = 256
FACTOR = 4
CELL = 4096
"""Side in level-0 pixels of a square that is all tissue or all glass; a multiple of TILE."""
GLASS = (243, 243, 243)

Image = NDArray[np.uint8]
Place = tuple[int, int]
"""Offset and length of encoded bytes in the file."""


def tissue_cells(width: int, height: int, share: float) -> NDArray[np.bool_]:
    """Mask of the cells (rows, columns) that are tissue: a smooth outline, `share` of the area."""
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
        """Place of a tile; a new tile is written."""
        data = bytes(imagecodecs.jpeg8_encode(tile, level=80, subsampling="420"))
        if data not in self.places:
            self.places[data] = (self.stream.tell(), len(data))
            self.stream.write(data)
        return self.places[data]


def write_large_slide(
    path: Path, width: int, height: int, painted: Image, tissue: NDArray[np.bool_]
) -> None:
    """Write the slide; `painted` repeats over the cells that are `tissue`."""
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
    """Place of each tile of a level, row by row."""
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
    """Write a BigTIFF directory, point `link` at it, and return the position of the next link."""
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


def run_apart(slide: Path, out: Path, tools: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Run tools with their settings in a fresh process: peak memory in MiB, and each result."""
    command = [sys.executable, "-m", "tests.mcp_servers.large_slide"]
    command += [str(slide.resolve()), str(out.resolve()), json.dumps(tools)]
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=root)
    assert done.returncode == 0, done.stderr[-2000:]
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def main(slide: Path, out: Path, tools: dict[str, dict[str, Any]]) -> None:
    """Run tools in this process, as a worker does, and print its peak memory and the results."""
    context = ToolContext(Roots.resolve([slide.parent], out), threads=2)
    registry = load("pathology")
    answer: dict[str, Any] = {
        name: registry.run(name, {"slide": slide.name, **settings}, context).result
        for name, settings in tools.items()
    }
    status = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))
    print(json.dumps(answer | {"peak_mib": peak / 1024}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3]))
