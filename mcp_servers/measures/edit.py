"""Changes to a slide's maps: cutting to a part, merging files, and small perturbations.

Robust measurements are insensitive to the perturbations.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mcp_servers.formats.geojson import read_polygons
from mcp_servers.lazy import shapely
from mcp_servers.measures.maps import MANIFEST, SlideMaps, multipolygon
from mcp_servers.slides.arrays import F64
from sage.core.errors import InputError

PARTS = ("window", "cells", "objects", "regions")


def area_of(rings: Iterable[F64], mpp: float) -> Any:
    """Convert outlines in level-0 pixels to their union, a shapely multipolygon in µm."""
    return multipolygon(shapely.Polygon(np.asarray(ring) * mpp) for ring in rings)


def read_area(path: Path, mpp: float | None) -> tuple[Any, list[str]]:
    """Read the union, in µm, of the polygons in a GeoJSON file in level-0 pixels, with notes.

    Raises `InputError` if the pixel size is unknown, or the file contains no polygon.
    """
    if not mpp:
        raise InputError(f"{path}: the maps do not specify the pixel size (mpp in {MANIFEST})")
    polygons, notes = read_polygons(path)
    area = multipolygon(
        shapely.Polygon(polygon.exterior * mpp, [hole * mpp for hole in polygon.holes])
        for polygon in polygons
    )
    return area, notes


def part_of(maps: SlideMaps, area: Any) -> SlideMaps:
    """Cut a slide's maps to an area, a shapely multipolygon in µm.

    Cells and objects are selected by their centers, and regions are cut. If the outline of
    the tissue is unknown, the area is used instead. Raises `InputError` if no tissue is
    inside the area.
    """
    window = area if maps.window is None else multipolygon([maps.window.intersection(area)])
    if window.is_empty:
        raise InputError(f"{maps.slide}: the area contains no mapped tissue")
    shapely.prepare(area)
    cells, objects, regions = maps.cells, maps.objects, maps.regions
    if cells is not None:
        cells = cells.take(shapely.intersects_xy(area, cells.x_um, cells.y_um))
    if objects is not None:
        points = objects.points.reshape(-1, 2)
        objects = objects.take(shapely.intersects_xy(area, points[:, 0], points[:, 1]))
    if regions is not None:
        cut = np.empty(len(regions), dtype=object)
        cut[:] = [multipolygon([shape.intersection(area)]) for shape in regions.shapes]
        regions = dataclasses.replace(regions, shapes=cut).take(~shapely.is_empty(cut))
    return dataclasses.replace(maps, window=window, cells=cells, objects=objects, regions=regions)


def merge_maps(held: SlideMaps, new: SlideMaps, *, replace: bool = False) -> SlideMaps:
    """Merge existing and new maps; each part comes from either source, never both.

    With `replace`, the new part is used if both have it. Raises `InputError` if the maps are
    from different patients, or both have a part and `replace` is false.
    """
    if held.patient != new.patient:
        raise InputError(
            f"{new.slide}: the existing maps belong to patient {held.patient}, the new maps to "
            f"{new.patient}; set the patient (--patient), or use another --out"
        )
    parts: dict[str, Any] = {}
    provenance = dict(held.provenance)
    for part in PARTS:
        old, given = getattr(held, part), getattr(new, part)
        if old is not None and given is not None and not replace:
            raise InputError(
                f"{new.slide}: {part} already exist ({held.provenance.get(part, 'unknown')}); "
                "use --replace, or another --out"
            )
        parts[part] = given if given is not None else old
        if given is not None and part in new.provenance:
            provenance[part] = new.provenance[part]
    return SlideMaps(
        slide=new.slide,
        patient=new.patient,
        **parts,
        mpp=held.mpp if new.mpp is None else new.mpp,
        provenance=provenance,
        outside_card=tuple(dict.fromkeys((*held.outside_card, *new.outside_card))),
    )


def jitter(
    maps: SlideMaps, cells_um: float, objects_um: float, rng: np.random.Generator
) -> SlideMaps:
    """Move every cell and object by a normally distributed step along each axis.

    `cells_um` and `objects_um` are the standard deviations of the steps.
    """
    cells, objects = maps.cells, maps.objects
    if cells is not None:
        x, y = rng.normal(0, cells_um, (len(cells), 2)).T
        cells = dataclasses.replace(cells, x_um=cells.x_um + x, y_um=cells.y_um + y)
    if objects is not None:
        counts = shapely.get_num_coordinates(objects.shapes)
        steps = np.repeat(rng.normal(0, objects_um, (len(objects), 2)), counts, axis=0)
        moved = shapely.transform(objects.shapes, lambda xy: xy + steps)
        objects = dataclasses.replace(objects, shapes=np.asarray(moved, dtype=object))
    return dataclasses.replace(maps, cells=cells, objects=objects, coded={})


def drop(maps: SlideMaps, share: float, rng: np.random.Generator) -> SlideMaps:
    """Drop each cell and object with probability `share`."""
    cells, objects = maps.cells, maps.objects
    if cells is not None:
        cells = cells.take(rng.random(len(cells)) >= share)
    if objects is not None:
        objects = objects.take(rng.random(len(objects)) >= share)
    return dataclasses.replace(maps, cells=cells, objects=objects, coded={})


def half_of(slides: Sequence[SlideMaps], rng: np.random.Generator) -> list[SlideMaps]:
    """Keep half of a patient's slides, or half the tissue on each if there are fewer than four.

    Tissue is cut across its longer side into halves of equal area, one of which is drawn at
    random.
    """
    if len(slides) >= 4:
        chosen = rng.choice(len(slides), (len(slides) + 1) // 2, replace=False)
        return [slides[place] for place in sorted(chosen)]
    return [cut_half(maps, bool(rng.integers(2))) for maps in slides if maps.window is not None]


def cut_half(maps: SlideMaps, upper: bool) -> SlideMaps:
    """Keep the upper or lower half of a slide's maps along its longer side."""
    window = maps.window
    x0, y0, x1, y1 = window.bounds
    wide = x1 - x0 >= y1 - y0

    def below(at: float) -> Any:
        return shapely.box(x0, y0, at, y1) if wide else shapely.box(x0, y0, x1, at)

    low, high = (x0, x1) if wide else (y0, y1)
    for _ in range(40):
        middle = (low + high) / 2
        if window.intersection(below(middle)).area < window.area / 2:
            low = middle
        else:
            high = middle
    first = below(high)
    part = window.difference(first) if upper else window.intersection(first)
    return dataclasses.replace(maps, window=multipolygon([part]), coded={})
