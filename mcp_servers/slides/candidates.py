"""Files and folders that can be slides, identified by their headers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from mcp_servers.slides.folders import is_dicom, is_zarr

SLIDE_SUFFIXES = frozenset((
    ".svs", ".tif", ".tiff", ".ndpi", ".scn", ".mrxs", ".bif", ".vms", ".vmu", ".svslide", ".czi",
    ".qptiff", ".png", ".jpg", ".jpeg", ".dcm", ".zarr",
))  # fmt: skip
_PLAIN = frozenset((".png", ".jpg", ".jpeg", ".tif", ".tiff"))
LEAST_PX = 64
"""Minimum shorter side, in pixels, of an image that is listed as a slide."""


def list_candidates(
    paths: Iterable[Path], most: int | None = None
) -> tuple[list[Path], dict[str, int]]:
    """Select at most `most` files and folders that can be slides; count the others by reason.

    The files of a DICOM series are one slide, given by its folder, and so is an OME-Zarr.
    Files that cannot be read are kept, so that the reason is reported when they are opened.
    """
    found: list[Path] = []
    left: Counter[str] = Counter()
    series: set[Path] = set()
    for path in paths:
        if len(found) == most:
            break
        if path.suffix.lower() not in SLIDE_SUFFIXES or path.name.startswith("."):
            continue
        if path.suffix.lower() == ".dcm" and path.is_file() and is_dicom(path):
            if path.parent not in series:
                series.add(path.parent)
                found.append(path.parent)
            continue
        if path.is_dir():
            if is_zarr(path):
                found.append(path)
            continue
        stat = path.stat()
        reason = _refuse_header(path, stat.st_size, stat.st_mtime_ns)
        if reason:
            left[reason] += 1
        else:
            found.append(path)
    return found, dict(left)


@lru_cache(maxsize=20_000)
def _refuse_header(path: Path, _size: int, _time: int) -> str:
    """Return the reason why an image's header rules it out as a slide, or an empty string."""
    if path.suffix.lower() not in _PLAIN:
        return ""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            mode, sides = image.mode, image.size
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return ""
    if min(sides) < LEAST_PX:
        return f"smaller than {LEAST_PX} px"
    if mode in ("1", "L", "LA") and path.suffix.lower() not in (".tif", ".tiff"):
        return "without color, as masks are"
    return "of one bit per pixel, as masks are" if mode == "1" else ""


def count_bytes(path: Path) -> int:
    """Return the size of a file, or of all files in a folder, in bytes."""
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
