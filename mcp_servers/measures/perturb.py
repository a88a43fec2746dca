"""Small perturbations of slides, to which robust measurements are insensitive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mcp_servers.measures.maps import ObjectMap, SlideMaps, multipolygon
from mcp_servers.slides.arrays import AnyArray


def jitter(
    maps: SlideMaps, cells_um: float, objects_um: float, rng: np.random.Generator
) -> SlideMaps:
    """Move every cell and object by a normally distributed step along each axis.

    Parameters
    ----------
    cells_um, objects_um : standard deviations of the steps, in µm
    """
    import shapely

    cells, objects = maps.cells, maps.objects
    if cells is not None:
        steps = rng.normal(0, cells_um, (len(cells), 2))
        cells = replace(cells, x_um=cells.x_um + steps[:, 0], y_um=cells.y_um + steps[:, 1])
    if objects is not None:
        counts = shapely.get_num_coordinates(objects.shapes)
        steps = np.repeat(rng.normal(0, objects_um, (len(objects), 2)), counts, axis=0)
        shapes = shift_shapes(objects.shapes, steps)
        objects = ObjectMap(shapes, objects.kinds, objects.codes)
    return replace(maps, cells=cells, objects=objects, coded={})


def drop(maps: SlideMaps, share: float, rng: np.random.Generator) -> SlideMaps:
    """Drop each cell and object with this probability."""
    cells, objects = maps.cells, maps.objects
    if cells is not None:
        cells = cells.take(rng.random(len(cells)) >= share)
    if objects is not None:
        kept = rng.random(len(objects)) >= share
        objects = ObjectMap(objects.shapes[kept], objects.kinds, objects.codes[kept])
    return replace(maps, cells=cells, objects=objects, coded={})


def half_of(slides: Sequence[SlideMaps], rng: np.random.Generator) -> list[SlideMaps]:
    """Keep half of a patient's slides, or half the tissue of each if there are fewer than four.

    Tissue is cut across its longer side into halves of equal area, one of which is drawn at random.
    """
    if len(slides) >= 4:
        chosen = rng.choice(len(slides), (len(slides) + 1) // 2, replace=False)
        return [slides[place] for place in sorted(chosen)]
    return [cut_half(maps, bool(rng.integers(2))) for maps in slides if maps.window is not None]


def cut_half(maps: SlideMaps, upper: bool) -> SlideMaps:
    """Keep the upper or lower half of a slide's maps along its longer side."""
    import shapely

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
    return replace(maps, window=multipolygon([part]), coded={})


def shift_shapes(shapes: AnyArray, steps: AnyArray) -> AnyArray:
    """Move each shape by its own step, in the same unit."""
    import shapely

    return np.asarray(shapely.transform(shapes, lambda xy: xy + steps), dtype=object)
