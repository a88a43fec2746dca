"""Annotations in XML from ASAP, HALO and ImageScope, as GeoJSON features."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from sage.core.errors import InputError

_CORNERS = ("Coordinate", "V", "Vertex")
_LINES = frozenset(("ruler", "measurement", "arrow", "line", "3", "4"))
_POINTS = frozenset(("dot", "pointset", "pin", "point"))
_ELLIPSES = frozenset(("ellipse", "2"))


def parse_annotations(text: str, path: Path) -> list[dict[str, Any]]:
    """Convert the annotations to features; raises `InputError` for other XML.

    The class is the group in ASAP and the layer in HALO and ImageScope. Negative regions
    in HALO and ImageScope are holes in the preceding region.
    """
    from defusedxml import DefusedXmlException, ElementTree

    try:
        root = ElementTree.fromstring(text)
    except (ElementTree.ParseError, DefusedXmlException) as error:
        raise InputError(f"{path}: invalid XML: {error}") from error
    if root.tag not in ("ASAP_Annotations", "Annotations"):
        raise InputError(
            f"{path}: XML, but not from ASAP, HALO or ImageScope (root element <{root.tag}>)"
        )
    out: list[dict[str, Any]] = []
    for annotation in root.iter("Annotation"):
        group = annotation.get("PartOfGroup")
        label = annotation.get("Name", "") if group is None else group.replace("None", "")
        for region in list(annotation.iter("Region")) or [annotation]:
            kind = str(region.get("Type", "")).lower()
            corners = [
                [corner.get("X"), corner.get("Y")]
                for corner in region.iter()
                if corner.tag in _CORNERS
            ]
            if region.get("NegativeROA") == "1" and out and out[-1]["label"] == label:
                out[-1]["geometry"]["coordinates"].append(corners)
            else:
                geometry = _geometry(kind, corners)
                named = {"classification": {"name": label}}
                out.append({"geometry": geometry, "properties": named, "label": label})
    return out


def _geometry(kind: str, corners: list[Any]) -> dict[str, Any]:
    if kind in _LINES:
        return {"type": "LineString", "coordinates": corners}
    if kind in _POINTS:
        return {"type": "MultiPoint", "coordinates": corners}
    if len(corners) == 2:  # of the box around a rectangle or an ellipse
        (left, top), (right, bottom) = np.asarray(corners, dtype=float)
        corners = [[left, top], [right, top], [right, bottom], [left, bottom]]
        if kind in _ELLIPSES:
            turn = np.linspace(0, 2 * np.pi, 64, endpoint=False)
            x = (left + right) / 2 + (right - left) / 2 * np.cos(turn)
            y = (top + bottom) / 2 + (bottom - top) / 2 * np.sin(turn)
            corners = np.stack([x, y], axis=1).tolist()
    return {"type": "Polygon", "coordinates": [corners] if corners else []}
