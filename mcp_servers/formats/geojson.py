"""GeoJSON in QuPath's format: a FeatureCollection in level-0 pixels."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from mcp_servers.slides.arrays import F64
from mcp_servers.slides.geometry import FARTHEST, Polygon
from sage.core.errors import InputError
from sage.core.printable import LONGEST_NAME, ForeignText

ObjectType = Literal["annotation", "detection", "cell", "tile"]
Color = tuple[int, int, int]
COLORS: Mapping[str, Color] = {
    "Tissue": (0, 150, 60),
    "Tumor": (200, 0, 0),
    "Peritumoral": (0, 170, 0),
    "Rest": (235, 200, 0),
    "Stroma": (150, 200, 150),
    "Lymphoid aggregate": (160, 90, 160),
    "Immune cells": (160, 90, 160),
    "Nucleus": (90, 120, 220),
    "Positive": (250, 62, 62),
    "Negative": (112, 112, 225),
    "Pen": (40, 40, 40),
}
MAX_BYTES = 512 * 2**20
MAX_FEATURES = 200_000


def feature(
    polygon: Polygon,
    *,
    kind: ObjectType = "annotation",
    name: str | None = None,
    classification: str | None = None,
    color: Color | None = None,
    measurements: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """Make a QuPath object with closed rings and coordinates rounded to 0.01 px.

    The color is that of the class by default.
    """
    label = classification or polygon.label or None
    properties: dict[str, Any] = {"objectType": kind}
    if name:
        properties["name"] = name
    if label:
        shade = color or COLORS.get(label, (128, 128, 128))
        properties["classification"] = {"name": label, "color": list(shade)}
    if measurements:
        properties["measurements"] = {k: _number(v) for k, v in measurements.items()}
    rings = [_close_ring(polygon.exterior), *(_close_ring(hole) for hole in polygon.holes)]
    return {
        "type": "Feature",
        "geometry": {"type": "Polygon", "coordinates": rings},
        "properties": properties,
    }


def square(x: float, y: float, size: float, label: str = "") -> Polygon:
    """Return a square with its upper left corner at (x, y), in level-0 pixels."""
    ring = np.array([[x, y], [x + size, y], [x + size, y + size], [x, y + size]], dtype=np.float64)
    return Polygon(ring, (), label)


def _number(value: float) -> float | None:
    return float(f"{value:.6g}") if np.isfinite(value) else None


def _close_ring(ring: F64) -> list[list[float]]:
    points = np.round(ring, 2)
    closed = np.concatenate([points, points[:1]]) if len(points) else points
    return [[float(x), float(y)] for x, y in closed]


def write_geojson(path: Path, features: Iterable[Mapping[str, Any]]) -> int:
    """Write a FeatureCollection, one feature per line, and return the number of features.

    Features are written as they arrive, so that there can be millions of them.
    """
    count = 0
    with path.open("w", encoding="utf-8") as stream:
        stream.write('{"type":"FeatureCollection","features":[')
        for feature in features:
            stream.write(",\n" if count else "\n")
            stream.write(json.dumps(feature, separators=(",", ":"), allow_nan=False))
            count += 1
        stream.write("\n]}\n")
    return count


@dataclass(frozen=True, slots=True)
class Annotated:
    """An object of a GeoJSON file: its polygons (several for a MultiPolygon) or its points."""

    polygons: tuple[Polygon, ...]
    points: F64
    label: str
    name: str
    kind: str
    measurements: Mapping[str, float]


def read_objects(path: Path) -> list[Annotated]:
    """Read the objects of a GeoJSON file with their QuPath annotations; an empty file has none.

    Lines are rejected, and non-numeric measurements are left out. Raises `InputError` if the file
    is not GeoJSON, a ring is invalid, or an object is neither an area nor a point.
    """
    out: list[Annotated] = []
    for number, (geometry, properties) in enumerate(_load(path)):
        form, parts = geometry.get("type"), geometry.get("coordinates")
        label = _label(properties)
        polygons: tuple[Polygon, ...] = ()
        points: F64 = np.zeros((0, 2))
        if form == "Polygon":
            polygons = (_polygon(parts, label, path, number),)
        elif form == "MultiPolygon" and isinstance(parts, list):
            polygons = tuple(_polygon(part, label, path, number) for part in parts)
        elif form in ("Point", "MultiPoint"):
            points = _points([parts] if form == "Point" else parts, path, number)
        else:
            raise InputError(
                f"{path}: feature {number} is a {form}; only areas and points are supported"
            )
        measured = properties.get("measurements")
        out.append(
            Annotated(
                polygons=polygons,
                points=points,
                label=label,
                name=str(properties.get("name") or ""),
                kind=str(properties.get("objectType") or ""),
                measurements={
                    str(key): float(value)
                    for key, value in (measured.items() if isinstance(measured, dict) else ())
                    if isinstance(value, int | float) and not isinstance(value, bool)
                },
            )
        )
    return out


def read_polygons(path: Path) -> list[Polygon]:
    """Read the polygons of a GeoJSON file.

    The file may contain a FeatureCollection, a Feature, a geometry or a list of features.
    MultiPolygons are split, and the classification's name becomes the label. Points and lines are
    rejected because they enclose no area. Raises `InputError` if the file is not GeoJSON, a ring is
    invalid, or a feature has no area.
    """
    out: list[Polygon] = []
    for number, thing in enumerate(read_objects(path)):
        if not thing.polygons:
            raise InputError(f"{path}: feature {number} has no area; draw a polygon")
        out += thing.polygons
    if not out:
        raise InputError(f"{path}: contains no polygon")
    return out


def _load(path: Path) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield each feature's geometry and properties, within the limits on file size and count."""
    if path.stat().st_size > MAX_BYTES:
        raise InputError(f"{path}: larger than {MAX_BYTES >> 20} MiB; export fewer objects")
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: invalid JSON: {error}") from error
    for number, pair in enumerate(_geometries(data, path)):
        if number >= MAX_FEATURES:
            raise InputError(f"{path}: more than {MAX_FEATURES} features")
        yield pair


def _label(properties: Mapping[str, Any]) -> str:
    """Get the class name, whether plain text or as QuPath writes it ("Tumor: Positive")."""
    class_ = properties.get("classification")
    if not isinstance(class_, dict):
        return class_ if isinstance(class_, str) else ""
    names = class_.get("names")
    if isinstance(names, list):
        return ": ".join(str(name) for name in names)
    return str(class_.get("name") or "")


def _geometries(data: Any, path: Path) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    if isinstance(data, list):
        items = data
    elif isinstance(data, dict) and data.get("type") == "FeatureCollection":
        items = data.get("features", [])
    elif isinstance(data, dict):
        items = [data]
    else:
        raise InputError(f"{path}: not GeoJSON")
    for item in items:
        if not isinstance(item, dict):
            raise InputError(f"{path}: a feature is not an object")
        geometry = item.get("geometry", item if "coordinates" in item else None)
        if not isinstance(geometry, dict):
            raise InputError(f"{path}: a feature has no geometry")
        properties = item.get("properties")
        yield geometry, properties if isinstance(properties, dict) else {}


def _points(parts: Any, path: Path, number: int) -> F64:
    try:
        points = np.asarray(parts, dtype=np.float64)[:, :2]
    except (TypeError, ValueError, IndexError) as error:
        raise InputError(f"{path}: feature {number} has an invalid point") from error
    if points.shape[1] != 2 or not np.isfinite(points).all():
        raise InputError(f"{path}: feature {number} has an invalid point")
    _require_near([points], path, number)
    return points


def _require_near(parts: Iterable[F64], path: Path, number: int) -> None:
    if any(len(part) and np.abs(part).max() > FARTHEST for part in parts):
        raise InputError(f"{path}: feature {number} has a coordinate beyond {FARTHEST:g} pixels")


def _polygon(parts: Any, label: str, path: Path, number: int) -> Polygon:
    try:
        rings = [np.asarray(ring, dtype=np.float64)[:, :2] for ring in parts]
    except (TypeError, ValueError, IndexError) as error:
        raise InputError(f"{path}: feature {number} has an invalid ring") from error
    if not rings or any(len(r) < 4 or not np.isfinite(r).all() for r in rings):
        raise InputError(f"{path}: feature {number} needs rings of at least 4 finite points")
    _require_near(rings, path, number)
    opened = [r[:-1] if np.allclose(r[0], r[-1]) else r for r in rings]
    return Polygon(opened[0], tuple(opened[1:]), ForeignText(label, LONGEST_NAME))
