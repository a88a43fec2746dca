"""Builders shared by the slide tests: small slides, odd files, a way to run one tool."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import cv2
import imagecodecs
import numpy as np
import pytest
import tifffile
from numpy.typing import NDArray
from PIL import Image as Pil

from mcp_servers.context import ToolContext
from mcp_servers.registry import load
from mcp_servers.roots import Roots
from mcp_servers.slides.slide import Slide
from mcp_servers.slides.source import shrink

ROOT = Path(__file__).parents[2]
TOOLS = str(Path(__file__).parent / "tools")
"""Folder of the tools that wait, crash and eat memory."""
TILE = 256
Image = NDArray[np.uint8]
EOSIN_PINK, HEMATOXYLIN_BLUE, GLASS = (226, 150, 190), (90, 60, 140), (243, 243, 243)


def environment() -> dict[str, str]:
    """Variables of a command that the tests start."""
    return {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'plugins'}", "OMP_NUM_THREADS": "1"}


def shared(*parts: str) -> Path:
    """A file of the shared data; skips the test where it is absent."""
    root = Path(os.environ.get("SAGE_SHARED", ROOT.parent / "shared"))
    path = root.joinpath("data", "histology", *parts)
    if not path.exists():
        pytest.skip(f"shared data are absent: {path}")
    return path


def context(folder: Path, *inputs: Path, **options: Any) -> ToolContext:
    """A context that reads `folder` and `inputs` and writes `folder/out`."""
    return ToolContext(Roots.resolve([folder, *inputs], folder / "out"), **options)


def run(ctx: ToolContext, name: str, /, **arguments: Any) -> dict[str, Any]:
    """Run a registered tool of the house or a plugin and return its result as plain data."""
    suite = "training" if name == "patch_train" else "pathology"
    return load(suite).run(name, arguments, ctx).result


def blobs(height: int, width: int, seed: int = 0) -> Image:
    """Pink tissue in the middle with blue dots, glass around it."""
    rng = np.random.default_rng(seed)
    image = np.full((height, width, 3), GLASS, np.uint8)
    y, x = np.mgrid[0:height, 0:width]
    inside = ((x / width - 0.5) / 0.38) ** 2 + ((y / height - 0.5) / 0.38) ** 2 < 1
    image[inside] = EOSIN_PINK
    for _ in range(width * height // 900):
        at = (int(rng.integers(width)), int(rng.integers(height)))
        if inside[at[1], at[0]]:
            cv2.circle(image, at, 6, HEMATOXYLIN_BLUE, -1, cv2.LINE_AA)
    noise = rng.integers(-6, 7, image.shape)
    return np.clip(image.astype(int) + noise, 0, 255).astype(np.uint8)


def pyramid(
    path: Path, image: Image, mpp: float | None = 0.5, *, levels: int = 3, quality: int = 80
) -> Path:
    """Write an image as a slide in Aperio's layout: tiled JPEG levels, each a quarter as wide.

    The description gives the pixel size, if any. Tiles are filled with white beyond the image.
    """
    magnification = "" if mpp is None else f"|AppMag = {round(10 / mpp)}|MPP = {mpp:.6g}"
    with tifffile.TiffWriter(path, bigtiff=True) as writer:
        for number in range(levels):
            level = shrink(image, 4**number)
            height, width = level.shape[:2]
            spare = ((0, -height % TILE), (0, -width % TILE), (0, 0))
            padded = np.pad(level, spare, constant_values=255)
            rows, columns = (range(0, side, TILE) for side in padded.shape[:2])
            tiles = [np.ascontiguousarray(padded[y : y + TILE, x : x + TILE])
                     for y in rows for x in columns]  # fmt: skip
            change = f" -> {width}x{height}" if number else magnification
            writer.write(
                (imagecodecs.jpeg8_encode(tile, quality, subsampling="420") for tile in tiles),
                shape=level.shape, dtype=np.uint8, tile=(TILE, TILE), photometric="ycbcr",
                subsampling=(2, 2), compression="jpeg", metadata=None, software=False,
                description=f"Aperio Image Library v11.2.1\r\n{change}",
                resolution=None if mpp is None else (1e4 / mpp, 1e4 / mpp),
                resolutionunit="CENTIMETER",
            )  # fmt: skip
    return path


def png(path: Path, image: Any) -> Path:
    """Write an image as PNG."""
    Pil.fromarray(image).save(path)
    return path


def damage_tile(path: Path, number: int) -> None:
    """Overwrite the encoded bytes of one tile of a slide's finest level."""
    with Slide.open(path, backend="direct") as slide:
        one = slide.source._directories[0]  # type: ignore[attr-defined]
        at, count = int(one.offsets[number]), int(one.counts[number])
    data = bytearray(path.read_bytes())
    data[at : at + count] = b"\x11" * count
    path.write_bytes(bytes(data))
