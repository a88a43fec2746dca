"""Builders shared by the slide tests: small slides, odd files, a way to run one tool."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mcp_servers.context import ToolContext
from mcp_servers.registry import load
from mcp_servers.roots import Roots
from mcp_servers.slides.slide import Slide

Image = NDArray[np.uint8]
EOSIN_PINK, HEMATOXYLIN_BLUE, GLASS = (226, 150, 190), (90, 60, 140), (243, 243, 243)


def shared(*parts: str) -> Path:
    """A file of the shared data; skips the test where it is absent."""
    root = Path(os.environ.get("SAGE_SHARED", Path(__file__).parents[2].parent / "shared"))
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
    import cv2

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


def pyramid(path: Path, image: Image, mpp: float | None = 0.5, **options: Any) -> Path:
    """Write an image as a tiled pyramidal JPEG slide."""
    from tests.mcp_servers.pyramid import write_pyramid

    def band(top: int, rows: int) -> Image:
        return image[top : top + rows]

    write_pyramid(path, image.shape[1], image.shape[0], band, mpp=mpp, **options)
    return path


def png(path: Path, image: Any) -> Path:
    """Write an image as PNG."""
    from PIL import Image as Pil

    Pil.fromarray(image).save(path)
    return path


Maker = Callable[..., Path]


def damage_tile(path: Path, number: int) -> None:
    """Overwrite the encoded bytes of one tile of a slide's finest level."""
    with Slide.open(path, backend="direct") as slide:
        one = slide.source._directories[0]  # type: ignore[attr-defined]
        at, count = int(one.offsets[number]), int(one.counts[number])
    data = bytearray(path.read_bytes())
    data[at : at + count] = b"\x11" * count
    path.write_bytes(bytes(data))
