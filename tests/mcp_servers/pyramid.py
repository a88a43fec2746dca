"""Write a tiled pyramidal JPEG TIFF from bands of rows, without holding the image in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from mcp_servers.slides.arrays import U8
from mcp_servers.slides.source import blank, shrink
from sage.core.errors import InputError

Band = Callable[[int, int], U8]
"""`band(top, rows)` returns (rows, width, 3) RGB."""


def write_pyramid(
    path: str | Path,
    width: int,
    height: int,
    band: Band,
    *,
    mpp: float | None,
    factor: int = 4,
    levels: int = 3,
    tile: int = 256,
    quality: int = 80,
    aperio: bool = True,
    threads: int = 2,
) -> None:
    """Stream `height` rows into a pyramid whose levels shrink by `factor`.

    With `aperio` the description is that of an SVS (`MPP`, `AppMag`), so that readers find the
    pixel size; otherwise the TIFF resolution tags carry it. The lower levels are kept encoded in
    memory, about 1/15 of the file.

    Parameters
    ----------
    width, height : of level 0, pixels
    band : called with the first row and the number of rows, returns (rows, width, 3)
    mpp : micrometers per level-0 pixel; None writes none
    levels : their number, level 0 included
    tile : side of the tiles, pixels
    quality : of JPEG, 1 to 100

    Raises
    ------
    InputError
        If there is nothing to write.
    """
    import tifffile

    if width < 1 or height < 1 or levels < 1:
        raise InputError("a pyramid needs a positive size and at least one level")
    collectors = [_Collector(-(-width // factor**k), tile) for k in range(1, levels)]
    pool = ThreadPoolExecutor(threads)

    def base() -> Iterator[bytes]:
        rows_at_once = tile * factor
        for top in range(0, height, rows_at_once):
            rows = min(rows_at_once, height - top)
            image = band(top, rows)
            # before the tiles: a writer that has all of them asks for no more
            smaller: U8 | None = image
            for collector in collectors:
                if smaller is not None:
                    smaller = collector.add(smaller, factor, pool, quality)
            if top + rows == height:
                for number, collector in enumerate(collectors):
                    rest = collector.flush(pool, quality)
                    if number + 1 < len(collectors) and rest is not None:
                        collectors[number + 1].add(rest, factor, pool, quality, last=True)
            for offset in range(0, rows, tile):
                strip = image[offset : offset + tile]
                yield from pool.map(lambda t: _encode(t, quality), _split(strip, width, tile))

    magnification = "" if mpp is None else f"|AppMag = {round(10 / mpp)}|MPP = {mpp:.6g}"
    resolution = None if mpp is None else (1e4 / mpp, 1e4 / mpp)
    try:
        with tifffile.TiffWriter(path, bigtiff=True) as writer:
            for number in range(levels):
                w, h = -(-width // factor**number), -(-height // factor**number)
                header = f"{width}x{height} ({tile}x{tile})"
                change = "" if number == 0 else f" -> {w}x{h}"
                text = f"Aperio Image Library v11.2.1\r\n{header}{change} JPEG/RGB Q={quality}"
                if number == 0:
                    data: Iterator[bytes] = base()
                else:
                    collectors[number - 1].pad(h, pool, quality)
                    data = iter(collectors[number - 1].encoded)
                writer.write(
                    data,
                    shape=(h, w, 3),
                    dtype=np.uint8,
                    tile=(tile, tile),
                    photometric="ycbcr",
                    subsampling=(2, 2),
                    compression="jpeg",
                    description=text + (magnification if number == 0 else "") if aperio else None,
                    resolution=resolution,
                    resolutionunit="CENTIMETER",
                    subfiletype=0 if number == 0 or aperio else 1,
                    metadata=None,
                    software=False,
                )
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


class _Collector:
    """Gathers a lower level: rows come in, encoded tiles accumulate."""

    def __init__(self, width: int, tile: int) -> None:
        self.width = width
        self.tile = tile
        self.encoded: list[bytes] = []
        self._rows: list[U8] = []
        self._held = 0

    def add(
        self, finer: U8, factor: int, pool: ThreadPoolExecutor, quality: int, last: bool = False
    ) -> U8 | None:
        """Take rows of the finer level; returns own rows once a full set of tiles is done."""
        own = shrink(finer, factor)[:, : self.width]
        self._rows.append(own)
        self._held += own.shape[0]
        if self._held < self.tile and not last:
            return None
        return self.flush(pool, quality)

    def flush(self, pool: ThreadPoolExecutor, quality: int) -> U8 | None:
        """Encode what is held."""
        if not self._rows:
            return None
        rows = np.concatenate(self._rows) if len(self._rows) > 1 else self._rows[0]
        self._rows, self._held = [], 0
        for top in range(0, rows.shape[0], self.tile):
            strip = rows[top : top + self.tile]
            tiles = _split(strip, self.width, self.tile)
            self.encoded.extend(pool.map(lambda t: _encode(t, quality), tiles))
        return rows

    def pad(self, height: int, pool: ThreadPoolExecutor, quality: int) -> None:
        """Complete the level when rounding left its last row of tiles out."""
        self.flush(pool, quality)
        expected = -(-height // self.tile) * -(-self.width // self.tile)
        if len(self.encoded) < expected:
            white = _encode(blank(self.tile, self.tile), quality)
            self.encoded.extend([white] * (expected - len(self.encoded)))
        del self.encoded[expected:]


def _split(strip: U8, width: int, tile: int) -> list[U8]:
    """Square tiles of a strip, filled with white at the right and bottom."""
    out = []
    for x in range(0, width, tile):
        part = strip[:, x : x + tile]
        if part.shape[:2] != (tile, tile):
            full = blank(tile, tile)
            full[: part.shape[0], : part.shape[1]] = part
            part = full
        out.append(np.ascontiguousarray(part))
    return out


def _encode(tile: U8, quality: int) -> bytes:
    import imagecodecs

    return bytes(imagecodecs.jpeg8_encode(tile, level=quality, subsampling="420"))
