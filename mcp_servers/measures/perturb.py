"""The same slides, a little different: what a robust measurement does not notice."""

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
    """Every cell and object moved by a normal step of this standard deviation on both axes.

    Parameters
    ----------
    cells_um, objects_um : standard deviations of the steps
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
    """Each cell and object left out with this probability."""
    cells, objects = maps.cells, maps.objects
    if cells is not None:
        cells = cells.take(rng.random(len(cells)) >= share)
    if objects is not None:
        kept = rng.random(len(objects)) >= share
        objects = ObjectMap(objects.shapes[kept], objects.kinds, objects.codes[kept])
    return replace(maps, cells=cells, objects=objects, coded={})


def half_of(slides: Sequence[SlideMaps], rng: np.random.Generator) -> list[SlideMaps]:
    """Half of a patient's slides; of fewer than four, half of the tissue of each.

    Tissue is cut across its longer side, where its area is halved; the half is drawn.
    """
    if len(slides) >= 4:
        chosen = rng.choice(len(slides), (len(slides) + 1) // 2, replace=False)
        return [slides[place] for place in sorted(chosen)]
    return [cut_half(maps, bool(rng.integers(2))) for maps in slides if maps.window is not None]


def cut_half(maps: SlideMaps, upper: bool) -> SlideMaps:
    """Keep the upper or the lower half of a slide's maps, along its longer side."""
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
    """Move each shape by its step, both in the same unit."""
    import shapely

    return np.asarray(shapely.transform(shapes, lambda xy: xy + steps), dtype=object)
