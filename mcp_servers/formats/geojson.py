"""GeoJSON in QuPath's format, and annotations from other programs, in level-0 pixels."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
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

    By default, the object has the color of its class.
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
    """Return a square with its upper-left corner at (x, y), in level-0 pixels."""
    ring = np.array([[x, y], [x + size, y], [x + size, y + size], [x, y + size]], dtype=np.float64)
    return Polygon(ring, (), label)


def _number(value: float) -> float | None:
    return float(f"{value:.6g}") if np.isfinite(value) else None


def _close_ring(ring: F64) -> list[list[float]]:
    points = np.round(ring, 2)
    closed = np.concatenate([points, points[:1]]) if len(points) else points
    return [[float(x), float(y)] for x, y in closed]


def write_geojson(path: Path, features: Iterable[Mapping[str, Any]]) -> int:
    """Write a FeatureCollection with a feature per line, and return the number of features.

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
    """An object in a GeoJSON file: its polygons (several for a MultiPolygon) or its points."""

    polygons: tuple[Polygon, ...]
    points: F64
    label: str
    name: str
    kind: str
    measurements: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Drawing:
    """Objects in a GeoJSON file, and the number of features left out for each reason."""

    path: Path
    objects: tuple[Annotated, ...]
    skipped: Mapping[str, int]
    crs: str = ""

    @property
    def notes(self) -> list[str]:
        """Notes on the features left out, and on coordinates that are not in pixels."""
        name = self.path.name
        notes = []
        if self.skipped:
            reasons = ", ".join(f"{count} {reason}" for reason, count in self.skipped.items())
            total = len(self.objects) + sum(self.skipped.values())
            left = sum(self.skipped.values())
            notes.append(f"{name}: {left} of {total} features left out: {reasons}")
        if self.crs:
            notes.append(
                f"{name} names the coordinate system {self.crs}; its coordinates are taken as "
                "level-0 pixels"
            )
        return notes


class SkippedError(Exception):
    """Raised if a feature is left out; the message is the reason, as a phrase for counting."""


_KINDS = {
    "pathannotationobject": "annotation",
    "pathdetectionobject": "detection",
    "pathcellobject": "cell",
    "pathtileobject": "tile",
    "tmacoreobject": "tma_core",
    "pathrootobject": "root",
}
"""Names of object types in QuPath 0.2, where they are used as feature IDs."""
_CLASSES = ("classification", "class", "label", "group", "partofgroup", "layer", "annotationclass")
"""Properties that contain an object's class, in QuPath and in other programs."""


def read_objects(path: Path) -> Drawing:
    """Read the objects in a GeoJSON file, or in an XML file from ASAP, HALO or ImageScope.

    Features that are neither areas nor points (lines, empty geometries) or are damaged are
    left out and counted, as are non-numeric measurements. Raises `InputError` if the file is
    not GeoJSON, or none of its features is usable.
    """
    data = _load(path)
    out: list[Annotated] = []
    skipped: Counter[str] = Counter()
    for item in _features(data, path):
        try:
            out.append(_read_feature(item))
        except SkippedError as reason:
            skipped[str(reason)] += 1
    system = data.get("crs") if isinstance(data, dict) else None
    named = system.get("properties") if isinstance(system, dict) else system
    crs = str((named.get("name") if isinstance(named, dict) else named) or "")
    drawing = Drawing(path, tuple(out), dict(skipped), ForeignText(crs, LONGEST_NAME))
    if skipped and not out:
        raise InputError(f"{drawing.notes[0]}; export areas or points")
    return drawing


def _read_feature(item: Any) -> Annotated:
    if not isinstance(item, dict):
        raise SkippedError("not a JSON object")
    properties = item.get("properties")
    properties = properties if isinstance(properties, dict) else {}
    geometry = item.get("geometry", item if "coordinates" in item else None)
    own = {_fold(key): value for key, value in properties.items()}
    kind = str(own.get("objecttype") or _KINDS.get(str(item.get("id")).lower()) or "")
    if kind == "root":
        raise SkippedError("for the whole image")
    label = _label(own, kind)
    polygons, points = _read_geometry(geometry, label)
    return Annotated(
        polygons=polygons,
        points=points,
        label=label,
        name=str(own.get("name") or ""),
        kind=kind,
        measurements=_measurements(own.get("measurements")),
    )


def _fold(key: object) -> str:
    return str(key).lower().replace("_", "")


def _label(properties: Mapping[str, Any], kind: str) -> str:
    """Return the class name, given as plain text or in QuPath's format ("Tumor: Positive").

    Programs without object types store the class in the object's name.
    """
    for key in (*_CLASSES, *(() if kind else ("name",))):
        class_ = properties.get(key)
        if isinstance(class_, dict):
            names = class_.get("names")
            if isinstance(names, list):
                return ": ".join(str(name) for name in names)
            class_ = class_.get("name")
        if isinstance(class_, str) and class_.strip():
            return class_.strip()
    return ""


def _measurements(given: Any) -> dict[str, float]:
    """Read measurements as an object, or as a list of names and values (QuPath before 0.4)."""
    if isinstance(given, list):
        given = {m.get("name"): m.get("value") for m in given if isinstance(m, dict)}
    return {
        str(key): float(value)
        for key, value in (given.items() if isinstance(given, dict) else ())
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def _read_geometry(geometry: Any, label: str) -> tuple[tuple[Polygon, ...], F64]:
    if not isinstance(geometry, dict):
        raise SkippedError("without a geometry")
    form, parts = geometry.get("type"), geometry.get("coordinates")
    none: F64 = np.zeros((0, 2))
    if form == "GeometryCollection":
        inner = geometry.get("geometries")
        found = [_read_geometry(part, label) for part in inner if _is_usable(part)] if inner else []
        if not found:
            raise SkippedError("with an empty geometry")
        areas = tuple(polygon for polygons, _ in found for polygon in polygons)
        return areas, none if areas else np.concatenate([points for _, points in found])
    if form in ("LineString", "MultiLineString"):
        raise SkippedError("drawn as a line, which has no area")
    if form not in ("Polygon", "MultiPolygon", "Point", "MultiPoint"):
        raise SkippedError("with an unknown geometry")
    if not parts:
        raise SkippedError("with an empty geometry")
    if form == "Polygon":
        return (_polygon(parts, label),), none
    if form == "MultiPolygon":
        return tuple(_polygon(part, label) for part in parts if part), none
    return (), _points([parts] if form == "Point" else parts)


def _is_usable(geometry: Any) -> bool:
    try:
        _read_geometry(geometry, "")
    except SkippedError:
        return False
    return True


def read_polygons(path: Path) -> tuple[list[Polygon], list[str]]:
    """Read the polygons in a GeoJSON file, with notes on omitted features.

    The file may contain a FeatureCollection, a Feature, a geometry or a list of features.
    MultiPolygons are split, and the classification's name becomes the label. Points and lines
    are left out because they enclose no area. Raises `InputError` if the file is not GeoJSON
    or contains no polygon.
    """
    drawing = read_objects(path)
    areas = tuple(thing for thing in drawing.objects if thing.polygons)
    if not areas:
        raise InputError(f"{path}: contains no polygons; draw an area")
    skipped = dict(drawing.skipped)
    if points := len(drawing.objects) - len(areas):
        skipped["drawn as points, which have no area"] = points
    notes = Drawing(path, areas, skipped, drawing.crs).notes
    return [polygon for thing in areas for polygon in thing.polygons], notes


def _load(path: Path) -> Any:
    if path.stat().st_size > MAX_BYTES:
        raise InputError(f"{path}: larger than {MAX_BYTES >> 20} MiB; export fewer objects")
    try:
        text = path.read_text(encoding="utf-8-sig")
        if text.lstrip().startswith("<"):
            from mcp_servers.formats.outlines_xml import parse_annotations

            return {"type": "FeatureCollection", "features": parse_annotations(text, path)}
        return json.loads(text)
    except InputError:  # is a ValueError too
        raise
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: invalid JSON: {error}") from error


def _features(data: Any, path: Path) -> list[Any]:
    """List the features in the file, within the limit on their number."""
    items = data if isinstance(data, list) else [data]
    if isinstance(data, dict) and data.get("type") == "FeatureCollection":
        items = data.get("features") or []
    elif items and not (isinstance(items[0], dict) and "type" in items[0]):
        raise InputError(f"{path}: not GeoJSON")
    if not isinstance(items, list):
        raise InputError(f"{path}: not GeoJSON")
    if len(items) > MAX_FEATURES:
        raise InputError(f"{path}: more than the maximum of {MAX_FEATURES} features")
    return items


def _points(parts: Any) -> F64:
    try:
        points = np.asarray(parts, dtype=np.float64)[:, :2]
    except (TypeError, ValueError, IndexError):
        raise SkippedError("with an invalid point") from None
    if points.shape[1] != 2 or not np.isfinite(points).all():
        raise SkippedError("with an invalid point")
    _require_near([points])
    return points


def _require_near(parts: Iterable[F64]) -> None:
    if any(len(part) and np.abs(part).max() > FARTHEST for part in parts):
        raise SkippedError(f"with a coordinate beyond {FARTHEST:g} pixels")


def _polygon(parts: Any, label: str) -> Polygon:
    try:
        rings = [np.asarray(ring, dtype=np.float64)[:, :2] for ring in parts]
    except (TypeError, ValueError, IndexError):
        raise SkippedError("with an invalid ring") from None
    if not all(np.isfinite(ring).all() for ring in rings):
        raise SkippedError("with an invalid ring")
    _require_near(rings)
    opened = [r[:-1] if len(r) > 1 and np.allclose(r[0], r[-1]) else r for r in rings]
    if any(len(ring) < 3 for ring in opened[:1]):
        raise SkippedError("with a ring of fewer than 3 points")
    if any(not np.ptp(ring, axis=0).all() for ring in opened[:1]):
        raise SkippedError("with a ring without an area")
    holes = tuple(ring for ring in opened[1:] if len(ring) >= 3)
    return Polygon(opened[0], holes, ForeignText(label, LONGEST_NAME))
