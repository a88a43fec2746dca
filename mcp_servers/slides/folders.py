"""Slides that are folders: DICOM series, read by OpenSlide, and OME-Zarr, read by zarr."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from mcp_servers.slides.arrays import U8
from mcp_servers.slides.layout import Colors
from mcp_servers.slides.metadata import number_pair
from mcp_servers.slides.others import OpenSlideSource
from mcp_servers.slides.source import Level, blank, shrink
from sage.core.errors import InputError

MOST_FILES = 2000
"""Maximum number of files inspected in a folder."""
_TO_UM = {"micrometer": 1.0, "nanometer": 1e-3, "millimeter": 1e3, "centimeter": 1e4}


def open_folder(path: Path) -> OpenSlideSource | ZarrSource:
    """Open a folder that is a slide; raises `InputError` for any other folder."""
    if is_zarr(path):
        return ZarrSource(path)
    files = find_dicom(path)
    if not files:
        raise InputError(
            f"{path}: the folder does not contain a slide; give a slide file, a DICOM series or an "
            "OME-Zarr, or measure all slides in a folder with measure_cohort (sage "
            "slides measure)"
        )
    found: dict[str, OpenSlideSource] = {}
    reason = ""
    for file in files:
        try:
            source = OpenSlideSource(file)
        except InputError as error:  # a label or overview, or not a slide
            reason = str(error)
            continue
        series = source.properties.get("dicom.SeriesInstanceUID", str(file))
        if series in found:
            source.close()
        else:
            found[series] = source
    if len(found) != 1:
        for source in found.values():
            source.close()
        what = f"{len(found)} DICOM slides; give one file of the slide" if found else reason
        raise InputError(f"{path}: {what}")
    return next(iter(found.values()))


def find_dicom(path: Path) -> list[Path]:
    """List the DICOM files in a folder."""
    return [file for file in sorted(path.iterdir())[:MOST_FILES] if is_dicom(file)]


def is_zarr(path: Path) -> bool:
    """Check whether a folder is a zarr group."""
    return any((path / name).is_file() for name in (".zattrs", ".zgroup", "zarr.json"))


def is_dicom(path: Path) -> bool:
    """Check whether a file is DICOM."""
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        return stream.read(132)[128:] == b"DICM"


class ZarrSource:
    """Reader for an OME-Zarr image, version 0.4 or 0.5."""

    name = "zarr"
    format = "ome-zarr"

    def __init__(self, path: Path) -> None:
        if find_spec("zarr") is None:
            raise InputError(
                f"{path}: reading OME-Zarr requires the zarr package (pip install zarr); "
                "alternatively, convert the image to OME-TIFF"
            )
        import zarr

        self._path = path
        try:
            about, place = _read_multiscales(path)
            axes = [str(axis["name"]).lower() for axis in about["axes"]]
            stored = [(item, str(item["path"])) for item in about["datasets"]]
            for _, name in stored:
                if not (place / name).resolve().is_relative_to(path.resolve()):
                    raise InputError(f"{path}: refers to an array outside its folder")
            arrays: list[Any] = [zarr.open_array(str(place / name), mode="r") for _, name in stored]
            scale = _scale(about, stored[0][0])
        except InputError:
            raise
        except (KeyError, TypeError, ValueError, OSError, IndexError) as error:
            raise InputError(f"{path}: not a readable OME-Zarr image: {error}") from error
        self._arrays, self._axes = arrays, axes
        y, x = axes.index("y"), axes.index("x")
        units = [_TO_UM.get(str(about["axes"][n].get("unit", "micrometer"))) for n in (x, y)]
        self.mpp = (
            number_pair(scale[x] * units[0], scale[y] * units[1])
            if scale and units[0] and units[1]
            else None
        )
        channels = arrays[0].shape[axes.index("c")] if "c" in axes else 1
        names = _channel_names(path, place)
        self.notes: tuple[str, ...] = ()
        self.colors = _colors(channels, names, arrays[0].dtype)
        largest = float(np.max(self._samples(len(arrays) - 1, 0, 0, *self._extent(-1))))
        self.colors = self.colors.scale_white(arrays[0].dtype, None, largest)
        if depth := arrays[0].shape[axes.index("z")] if "z" in axes else 0:
            self.notes += (f"plane {depth // 2 + 1} of {depth} focus planes is read",) * (depth > 1)
        self.notes += (self.colors.note,) if self.colors.note else ()
        width, height = self._extent(0)
        levels = []
        for number, array in enumerate(arrays):
            own = self._extent(number)
            chunk = array.chunks
            levels.append(Level(*own, (width / own[0] + height / own[1]) / 2, chunk[x], chunk[y]))
        self.levels = tuple(levels)

    def _extent(self, level: int) -> tuple[int, int]:
        shape = self._arrays[level].shape
        return int(shape[self._axes.index("x")]), int(shape[self._axes.index("y")])

    def _samples(self, level: int, x: int, y: int, width: int, height: int) -> Any:
        at: dict[str, Any] = {"y": slice(y, y + height), "x": slice(x, x + width), "c": slice(None)}
        array = self._arrays[level]
        places = [
            at.get(axis, size // 2 if axis == "z" else 0)
            for axis, size in zip(self._axes, array.shape, strict=True)
        ]
        part = np.asarray(array[tuple(places)])
        kept = [axis for axis in self._axes if axis in at]
        order = [kept.index(axis) for axis in ("y", "x", "c") if axis in kept]
        part = part.transpose(order)
        return part if part.ndim == 3 else part[:, :, None]

    def read(self, level: int, x: int, y: int, width: int, height: int, reduce: int = 1) -> U8:
        """Read a rectangle; see `Source.read`."""
        out = blank(height, width)
        across, down = self._extent(level)
        left, top, right, bottom = (
            max(x, 0),
            max(y, 0),
            min(x + width, across),
            min(y + height, down),
        )
        if right > left and bottom > top:
            part = self._samples(level, left, top, right - left, bottom - top)
            out[top - y : bottom - y, left - x : right - x] = self.colors.to_rgb(part)
        return shrink(out, reduce)

    def close(self) -> None:
        self._arrays = []


def _attributes(folder: Path) -> dict[str, Any]:
    """Read the attributes of a zarr group in format 2 or 3."""
    for name in (".zattrs", "zarr.json"):
        if (folder / name).is_file():
            data = json.loads((folder / name).read_text(encoding="utf-8"))
            inner = data.get("attributes", data) if name == "zarr.json" else data
            return dict(inner.get("ome", inner))
    return {}


def _read_multiscales(path: Path) -> tuple[dict[str, Any], Path]:
    """Find the image: at the root, or the first in a Bio-Formats layout."""
    for place in (path, path / "0"):
        if found := _attributes(place).get("multiscales"):
            return found[0], place
    raise InputError(f"{path}: Zarr folder without an OME image (multiscales)")


def _scale(about: dict[str, Any], dataset: dict[str, Any]) -> list[float]:
    steps = [*dataset.get("coordinateTransformations", ())]
    steps += about.get("coordinateTransformations", ())
    scales = [np.array(step["scale"], dtype=float) for step in steps if step["type"] == "scale"]
    return list(np.prod(scales, axis=0)) if scales else []


def _channel_names(path: Path, place: Path) -> tuple[str, ...]:
    about = _attributes(place).get("omero") or _attributes(path).get("omero") or {}
    return tuple(str(channel.get("label") or "") for channel in about.get("channels", ()))


def _colors(channels: int, names: tuple[str, ...], dtype: Any) -> Colors:
    from mcp_servers.slides.layout import find_rgb_order

    if dtype.kind not in "uf":
        raise InputError(f"OME-Zarr data type {dtype} is not supported")
    if channels == 1:
        return Colors("gray", 1)
    order = find_rgb_order(names) if channels in (3, 4) else None
    return (
        Colors(samples=channels, order=order)
        if order
        else Colors("channels", channels, names=names)
    )
