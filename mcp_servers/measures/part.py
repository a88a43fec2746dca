"""Restriction of a slide's maps to a part of the slide given by outlines."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from mcp_servers.measures.maps import MANIFEST, M, SlideMaps, multipolygon
from mcp_servers.slides.arrays import F64, AnyArray
from sage.core.errors import InputError


def area_of(rings: Iterable[F64], mpp: float) -> Any:
    """Convert outlines in level-0 pixels to their union, a shapely multipolygon in µm."""
    import shapely

    return multipolygon(shapely.Polygon(np.asarray(ring) * mpp) for ring in rings)


def read_area(path: Path, mpp: float | None) -> Any:
    """Read the union, in µm, of the polygons in a GeoJSON file that uses level-0 pixels.

    Raises
    ------
    InputError
        If the pixel size is unknown, or the file contains no polygon.
    """
    import shapely

    from mcp_servers.formats.geojson import read_polygons

    if not mpp:
        raise InputError(f"{path}: the maps do not state the pixel size ({MANIFEST}: mpp)")
    return multipolygon(
        shapely.Polygon(polygon.exterior * mpp, [hole * mpp for hole in polygon.holes])
        for polygon in read_polygons(path)
    )


def part_of(maps: SlideMaps, area: Any) -> SlideMaps:
    """Cut a slide's maps to an area: cells and objects by center, regions by outline.

    If the outline of the tissue is unknown, the area is used instead.

    Parameters
    ----------
    area : shapely multipolygon in µm

    Raises
    ------
    InputError
        If no tissue of the maps is inside the area.
    """
    import shapely

    window = area if maps.window is None else multipolygon([maps.window.intersection(area)])
    if window.is_empty:
        raise InputError(f"{maps.slide}: no tissue of the maps is inside the area")
    shapely.prepare(area)
    cells = maps.cells
    if cells is not None:
        cells = cells.take(shapely.intersects_xy(area, cells.x_um, cells.y_um))
    objects = maps.objects
    if objects is not None:
        x, y = objects.points.T if len(objects) else np.zeros((2, 0))
        objects = _chosen(objects, np.flatnonzero(shapely.intersects_xy(area, x, y)), None)
    regions = maps.regions
    if regions is not None:
        cut = [multipolygon([shape.intersection(area)]) for shape in regions.shapes]
        kept = np.array([n for n, shape in enumerate(cut) if not shape.is_empty], dtype=np.int64)
        regions = _chosen(regions, kept, cut)
    return dataclasses.replace(maps, window=window, cells=cells, objects=objects, regions=regions)


def _chosen(shapes: M, kept: AnyArray, cut: list[Any] | None) -> M:
    held = np.empty(len(kept), dtype=object)
    held[:] = [cut[n] if cut is not None else shapes.shapes[n] for n in kept]
    return type(shapes)(held, shapes.kinds, shapes.codes[kept])
