"""A slide's maps prepared for many measurements, with areas, points and trees computed once."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import wraps
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

import numpy as np

from mcp_servers.lazy import shapely
from mcp_servers.measures import patterns
from mcp_servers.measures.maps import CellMap, ObjectMap, SlideMaps, multipolygon
from mcp_servers.measures.places import (
    TISSUE,
    Area,
    Cells,
    Objects,
    Points,
    Region,
    Tissue,
    area_words,
)
from mcp_servers.slides.arrays import F64, I64, AnyArray, BoolArray

if TYPE_CHECKING:
    from scipy.spatial import cKDTree

EDGE_UM = 1.0
"""Distance to the tissue's edge within which a region's border does not adjoin other tissue."""
MOST_FIELDS = 1_000_000
P = ParamSpec("P")
T = TypeVar("T")


class Undefined(Exception):  # noqa: N818 - a missing value, no fault
    """Reason why a measurement has no value on this slide."""


def once(method: Callable[Concatenate[Prepared, P], T]) -> Callable[Concatenate[Prepared, P], T]:
    """Compute a method once for each combination of arguments, including missing values."""

    @wraps(method)
    def cached(self: Prepared, /, *args: P.args, **named: P.kwargs) -> T:
        key = (method.__name__, args, *sorted(named.items()))
        if key not in self._made:
            try:
                self._made[key] = method(self, *args, **named)
            except Undefined as reason:
                self._made[key] = reason
        made = self._made[key]
        if isinstance(made, Undefined):
            raise Undefined(str(made))
        return cast(T, made)

    return cached


class Prepared:
    """A slide's maps, with intermediate results shared by measurements.

    Points outside the window are left out; `chosen` selects the points in an area.
    """

    def __init__(self, maps: SlideMaps) -> None:
        self.maps = maps
        self._made: dict[Hashable, Any] = {}

    @once
    def area(self, area: Area) -> Any:
        """Return an area within the window as a shapely multipolygon.

        Raises `Undefined` if the window or the regions are unknown, or the slide has no region of
        this kind.
        """
        if isinstance(area, Tissue):
            if self.maps.window is None:
                raise Undefined("the tissue outline is unknown")
            return self.maps.window
        if isinstance(area, Region):
            return self.region(area.name)
        region = self.region(area.of)
        line = self.border(area.of)
        sides = []
        if area.inside_um:
            sides.append(line.buffer(area.inside_um).intersection(region))
        if area.outside_um:
            near = line.buffer(area.outside_um).intersection(self.area(TISSUE))
            sides.append(near.difference(region))
        return multipolygon(sides)

    @once
    def bands(self, name: str, edges: tuple[float, ...]) -> list[tuple[float, Any]]:
        """Return the areas between signed distances to a region's border, with their midpoints.

        Distances are negative inside.
        """
        region, window, line = self.region(name), self.area(TISSUE), self.border(name)
        sides = {-1: region, 1: window.difference(region)}
        found = []
        for low, high in pairwise(edges):
            side = -1 if high <= 0 else 1
            near, far = sorted((abs(low), abs(high)))
            ring = line.buffer(far).difference(line.buffer(near)) if near else line.buffer(far)
            found.append((float(low + high) / 2, multipolygon([ring.intersection(sides[side])])))
        return found

    @once
    def border(self, name: str) -> Any:
        """Return a region's border with other tissue, as a shapely line.

        Raises `Undefined` if the region fills the tissue.
        """
        region, window = self.region(name), self.area(TISSUE)
        line = region.boundary.difference(window.boundary.buffer(EDGE_UM))
        if line.is_empty:
            raise Undefined(f"{area_words(name)} has no boundary with other tissue on this slide")
        return line

    @once
    def region(self, name: str) -> Any:
        """Return the regions of a given kind as a multipolygon; see `area`."""
        regions = self.maps.regions
        if regions is None or name not in regions.kinds:
            why = self.maps.withheld.get(name)
            raise Undefined(why or f"this slide has no map of {area_words(name)}")
        shape = multipolygon(regions.of_kind(name))
        if self.maps.window is not None:
            shape = multipolygon([shape.intersection(self.maps.window)])
        if shape.is_empty:
            raise Undefined(f"this slide contains no {area_words(name)}")
        return shape

    @once
    def fields(self, within: Area, side_um: float) -> tuple[F64, F64]:
        """Return the lower corners and covered areas (µm²) of squares at least half in an area."""
        return squares(self.area(within), side_um)

    @once
    def points(self, of: Points, within: Area | None) -> F64:
        """Return the (n, 2) points in an area, or all points in the window if the area is None."""
        return self._all_points(of.source)[self.chosen(of, within)]

    def chosen(self, of: Points, within: Area | None) -> BoolArray:
        """Return a mask over all cells or objects that selects those of this type in this area."""
        mask = self._find_type(of)
        if within is None and self.maps.window is None:
            return mask
        return np.asarray(mask & self._inside(of.source, within or TISSUE))

    def _find_type(self, of: Points) -> BoolArray:
        if isinstance(of, Cells):
            if of.type is None:
                return np.ones(len(self.cells), dtype=bool)
            held, known = self.cells.codes, self.cells.types
        else:
            held, known = self.objects.codes, self.objects.kinds
        name = of.type or ""
        if name not in known:
            why = self.maps.withheld.get(name)
            raise Undefined(why or f"{of.plural} were not analyzed on this slide")
        return np.asarray(held == known.index(name))

    @once
    def _inside(self, source: str, within: Area) -> BoolArray:
        points = self._all_points(source)
        if isinstance(within, Tissue) and self.maps.window is None:
            return np.ones(len(points), dtype=bool)
        shape = self.area(within)
        shapely.prepare(shape)
        return np.asarray(shapely.intersects_xy(shape, points[:, 0], points[:, 1]), dtype=bool)

    @once
    def _all_points(self, source: str) -> F64:
        return self.cells.points if source == "cells" else self.objects.points

    @property
    def cells(self) -> CellMap:
        """Map of cells; raises `Undefined` if there is none."""
        if self.maps.cells is None:
            raise Undefined("this slide has no cell map")
        return self.maps.cells

    @property
    def objects(self) -> ObjectMap:
        """Map of objects; raises `Undefined` if there is none."""
        if self.maps.objects is None:
            raise Undefined("this slide has no object map")
        return self.maps.objects

    def shapes(self, of: Objects, within: Area | None) -> AnyArray:
        """Return the shapes of the objects whose centroids are in an area."""
        return np.asarray(self.objects.shapes[self.chosen(of, within)], dtype=object)

    @once
    def tree(self, of: Points, within: Area | None) -> cKDTree:
        """Return a search tree over `points`."""
        from scipy.spatial import cKDTree

        return cKDTree(self.points(of, within))

    @once
    def counts(
        self, of: Points, to: Points, radius_um: float, within: Area, to_within: Area | None = None
    ) -> I64:
        """Count the `to` points within a radius of each of the n `of` points; none counts itself.

        The `of` points are those in `within`, and the `to` points those in `to_within`, or all.
        """
        points = self.points(of, within)
        found = patterns.neighbor_counts(self.tree(to, to_within), points, radius_um)
        return found - self._itself(of, to, within, to_within)

    def _itself(self, of: Points, to: Points, within: Area, to_within: Area | None) -> I64:
        """Return 1 for each `of` point that is also among the `to` points, else 0."""
        mask = self.chosen(of, within)
        if of.source != to.source:
            return np.zeros(int(mask.sum()), dtype=np.int64)
        return self.chosen(to, to_within)[mask].astype(np.int64)

    @once
    def far(self, of: Points, within: Area, distance_um: float) -> BoolArray:
        """Return an (n,) mask of the area's points at least this far from its border."""
        border = self.area(within).boundary
        return patterns.far_from(border, self.points(of, within), distance_um)

    @once
    def nearest(self, of: Points, to: Points, within: Area, to_within: Area | None = None) -> F64:
        """Compute the (n,) distances in µm from points to the nearest `to`, or inf if none.

        The points `of` are those in `within`, and the points `to` those in `to_within`, or all.
        """
        points = self.points(of, within)
        if isinstance(to, Objects) and of != to:
            return _to_shapes(points, self.shapes(to, to_within))
        tree = self.tree(to, to_within)
        if not tree.n or not len(points):
            return np.full(len(points), np.inf)
        distances, _ = tree.query(points, k=2)
        itself = self._itself(of, to, within, to_within)
        return np.asarray(distances[np.arange(len(points)), itself], dtype=np.float64)


def squares(window: Any, side_um: float) -> tuple[F64, F64]:
    """Return lower corners and covered areas (µm²) of squares at least half in the window.

    The grid starts at the window's lower corner.
    """
    x0, y0, x1, y1 = window.bounds
    if (x1 - x0) / side_um * (y1 - y0) / side_um > MOST_FIELDS:
        raise Undefined(f"more than {MOST_FIELDS:,} fields of {side_um:g} µm")
    xs, ys = np.arange(x0, x1, side_um), np.arange(y0, y1, side_um)
    corners = np.stack(np.meshgrid(xs, ys, indexing="ij"), axis=-1).reshape(-1, 2)
    boxes = shapely.box(corners[:, 0], corners[:, 1], *(corners + side_um).T)
    shapely.prepare(window)
    touched = shapely.intersects(window, boxes)
    corners, boxes = corners[touched], boxes[touched]
    covered = shapely.area(shapely.intersection(boxes, window))
    kept = covered >= side_um**2 / 2
    return np.asarray(corners[kept]), np.asarray(covered[kept], dtype=np.float64)


def _to_shapes(points: F64, shapes: AnyArray) -> F64:
    if not len(shapes) or not len(points):
        return np.full(len(points), np.inf)
    tree = shapely.STRtree(shapes)
    index, distances = tree.query_nearest(
        shapely.points(points), all_matches=False, return_distance=True
    )
    found = np.full(len(points), np.inf)
    found[index[0]] = distances
    return found
