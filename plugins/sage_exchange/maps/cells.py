"""Cells from CellViT and HoVer-Net JSON, with centers, contours, and numeric type codes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mcp_servers.measures.maps import CellMap, Column, SlideMaps
from mcp_servers.slides.arrays import F64
from sage.core.errors import InputError
from sage_exchange.maps.names import PANNUKE, TYPES, match_name
from sage_exchange.maps.window import Window, window_of

MAX_BYTES = 4 << 30


def read_cells_json(
    path: Path,
    *,
    mpp: float,
    slide: str,
    patient: str,
    types: Mapping[str, str] | None = None,
    window: Window = "none",
) -> SlideMaps:
    """Read a slide's cells from CellViT's `cells.json` or HoVer-Net's JSON.

    CellViT writes `{"wsi_metadata", "type_map", "cells": [{"centroid", "contour", "type",
    "type_prob"}]}`, HoVer-Net `{"mag", "nuc": {ID: {"centroid", "contour", "type",
    "type_prob"}}}`; centers are x, y. Numeric types are named by `types`, CellViT's
    `type_map`, or else PanNuke; all of them count as analyzed.

    Parameters
    ----------
    mpp : µm per pixel of the coordinates, at the level that the program worked on
    types : maps the name or number in the file to the caller's name
    window : shape to assume for the analyzed tissue, which the file does not record

    Raises
    ------
    InputError
        If the file has neither form, or a cell has no position.
    """
    data = _load(path)
    if isinstance(data.get("nuc"), dict):
        maker, cells, by_number = "HoVer-Net", list(data["nuc"].values()), {}
    elif isinstance(data.get("cells"), list):
        maker, cells = "CellViT", data["cells"]
        listed = data.get("type_map")
        by_number = {str(k): str(v) for k, v in listed.items()} if isinstance(listed, dict) else {}
    else:
        raise InputError(f'{path}: not written by CellViT ("cells") or HoVer-Net ("nuc")')
    own = dict(types or {})
    names = [_name(cell, by_number, own) for cell in cells]
    listed_types = [match_name(text, TYPES, own) for k, text in by_number.items() if k != "0"]
    looked_for = {*names, *(listed_types or ([] if own else PANNUKE.values()))}
    known = tuple(sorted(name for name in looked_for if name is not None))
    codes = [-1 if name is None else known.index(name) for name in names]
    centers = _centers(path, cells) * mpp
    columns = {"type_probability": Column(_numbers(cells, "type_prob"), "1")}
    if any(isinstance(cell.get("contour"), list) for cell in cells):
        areas, perimeters = _shapes(cells)
        columns["area_um2"] = Column(areas * mpp**2, "µm²")
        columns["perimeter_um"] = Column(perimeters * mpp, "µm")
    found = CellMap(
        centers[:, 0], centers[:, 1], known, np.array(codes, dtype=np.int64), None, columns
    )
    area, how = window_of(window, found.points)
    return SlideMaps(
        slide=slide,
        patient=patient,
        window=area,
        cells=found,
        mpp=mpp,
        provenance={"cells": f"{maker}, {path.name}", **how},
    )


def _load(path: Path) -> dict[str, Any]:
    if path.stat().st_size > MAX_BYTES:
        raise InputError(f"{path}: larger than {MAX_BYTES >> 30} GiB; split it by region")
    try:
        data = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: invalid JSON: {error}") from None
    if not isinstance(data, dict):
        raise InputError(f"{path}: expected a JSON object")
    return data


def _name(cell: Any, by_number: Mapping[str, str], own: Mapping[str, str]) -> str | None:
    number = cell.get("type") if isinstance(cell, dict) else None
    if number is None:
        return None
    key = str(number)
    if key in own:
        return own[key]
    if by_number:
        return match_name(by_number.get(key, f"type {key}"), TYPES, own)
    return PANNUKE.get(key) or f"other_type_{key}"


def _centers(path: Path, cells: Sequence[Any]) -> F64:
    try:
        centers = np.array([cell["centroid"][:2] for cell in cells], dtype=np.float64)
        centers = centers.reshape(-1, 2)
    except (KeyError, TypeError, ValueError):
        raise InputError(
            f"{path}: a cell has no centroid, or its centroid is not a pair of numbers"
        ) from None
    broken = np.flatnonzero(~np.isfinite(centers).all(axis=1))
    if len(broken):
        raise InputError(f"{path}: the centroid of cell {broken[0]} is not finite")
    return np.asarray(centers, dtype=np.float64)


def _numbers(cells: Sequence[Any], key: str) -> F64:
    values = [cell.get(key) for cell in cells]
    return np.array(
        [float(value) if isinstance(value, int | float) else np.nan for value in values],
        dtype=np.float64,
    )


def _shapes(cells: Sequence[Any]) -> tuple[F64, F64]:
    """Compute each contour's area and perimeter in the file's pixels, NaN without a contour."""
    areas, perimeters = np.full((2, len(cells)), np.nan)
    for number, cell in enumerate(cells):
        try:
            ring = np.asarray(cell.get("contour"), dtype=np.float64)[:, :2]
        except (TypeError, ValueError, IndexError):
            continue
        if len(ring) < 3 or not np.isfinite(ring).all():
            continue
        following = np.roll(ring, -1, axis=0)
        cross = ring[:, 0] * following[:, 1] - following[:, 0] * ring[:, 1]
        areas[number] = abs(cross.sum()) / 2
        perimeters[number] = np.hypot(*(following - ring).T).sum()
    return areas, perimeters
