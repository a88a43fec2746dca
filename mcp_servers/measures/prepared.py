"""A slide's maps prepared for many measurements: areas, points and trees are computed once."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from mcp_servers.measures import patterns
from mcp_servers.measures.maps import CellMap, ObjectMap, SlideMaps, multipolygon
from mcp_servers.measures.places import (
    Area,
    Cells,
    Objects,
    Points,
    Region,
    Tissue,
)
from mcp_servers.measures.words import area_words
from mcp_servers.slides.arrays import F64, I64, AnyArray, BoolArray

if TYPE_CHECKING:
    from scipy.spatial import cKDTree

EDGE_UM = 1.0
"""Distance to the tissue's edge within which a region's border does not adjoin other tissue."""
MOST_FIELDS = 1_000_000
T = TypeVar("T")


class Undefined(Exception):  # noqa: N818 - a missing value, no fault
    """Reason why a measurement has no value on this slide."""


class Prepared:
    """A slide's maps, with intermediate results shared by measurements.

    Points outside the window are left out; `chosen` selects those in an area.
    """

    def __init__(self, maps: SlideMaps) -> None:
        self.maps = maps
        self._made: dict[Hashable, Any] = {}

    def area(self, area: Area) -> Any:
        """Return an area within the window as a shapely multipolygon.

        Raises
        ------
        Undefined
            If the window or the regions are unknown, or the slide has no region of the kind.
        """
        return self._make_once(("area", area), lambda: self._area(area))

    def _area(self, area: Area) -> Any:
        if isinstance(area, Tissue):
            if self.maps.window is None:
                raise Undefined("the outline of the tissue is unknown")
            return self.maps.window
        if isinstance(area, Region):
            return self.region(area.name)
        region = self.region(area.of)
        line = self.border(area.of)
        sides = []
        if area.inside_um:
            sides.append(line.buffer(area.inside_um).intersection(region))
        if area.outside_um:
            near = line.buffer(area.outside_um).intersection(self.area(Tissue()))
            sides.append(near.difference(region))
        return multipolygon(sides)

    def bands(self, name: str, edges: tuple[float, ...]) -> list[tuple[float, Any]]:
        """Return the areas between signed distances to a region's border, with their midpoints.

        Distances are negative inside.
        """
        return self._make_once(("bands", name, edges), lambda: self._bands(name, edges))

    def _bands(self, name: str, edges: tuple[float, ...]) -> list[tuple[float, Any]]:
        region, window, line = self.region(name), self.area(Tissue()), self.border(name)
        sides = {-1: region, 1: window.difference(region)}
        found = []
        for low, high in pairwise(edges):
            side = -1 if high <= 0 else 1
            near, far = sorted((abs(low), abs(high)))
            ring = line.buffer(far).difference(line.buffer(near)) if near else line.buffer(far)
            found.append((float(low + high) / 2, multipolygon([ring.intersection(sides[side])])))
        return found

    def border(self, name: str) -> Any:
        """Return a region's border with other tissue, as a shapely line.

        Raises
        ------
        Undefined
            If the region fills the tissue.
        """

        def make() -> Any:
            region, window = self.region(name), self.area(Tissue())
            line = region.boundary.difference(window.boundary.buffer(EDGE_UM))
            if line.is_empty:
                raise Undefined(f"{area_words(name)} has no border to other tissue on this slide")
            return line

        return self._make_once(("border", name), make)

    def region(self, name: str) -> Any:
        """Return the regions of a kind as a multipolygon; see `area`."""

        def make() -> Any:
            regions = self.maps.regions
            if regions is None or name not in regions.kinds:
                raise Undefined(f"this slide has no map of {area_words(name)}")
            shape = multipolygon(regions.of_kind(name))
            if self.maps.window is not None:
                shape = multipolygon([shape.intersection(self.maps.window)])
            if shape.is_empty:
                raise Undefined(f"this slide contains no {area_words(name)}")
            return shape

        return self._make_once(("region", name), make)

    def fields(self, within: Area, side_um: float) -> tuple[F64, F64]:
        """Return the lower corners and covered areas (µm²) of squares at least half in an area."""
        return self._make_once(
            ("fields", within, side_um), lambda: squares(self.area(within), side_um)
        )

    def points(self, of: Points, within: Area | None = None) -> F64:
        """Return the (n, 2) points in an area, or all points in the window if the area is None."""

        def make() -> F64:
            return self._all_points(of.source)[self.chosen(of, within)]

        return self._make_once(("points", of, within), make)

    def chosen(self, of: Points, within: Area | None) -> BoolArray:
        """Return a mask, over all cells or objects, of those of this type in this area."""
        mask = self._find_type(of)
        if within is None and self.maps.window is None:
            return mask
        return np.asarray(mask & self._inside(of.source, within or Tissue()))

    def _find_type(self, of: Points) -> BoolArray:
        if isinstance(of, Cells):
            cells = self.cells
            if of.type is None:
                return np.ones(len(cells), dtype=bool)
            if of.type not in cells.types:
                raise self._not_sought(of)
            return cells.of_type(of.type)
        objects = self.objects
        if of.type not in objects.kinds:
            raise self._not_sought(of)
        return np.asarray(objects.codes == objects.kinds.index(of.type))

    def _not_sought(self, of: Cells | Objects) -> Undefined:
        why = self.maps.withheld.get(of.type or "")
        return Undefined(why or f"{of.plural} were not analyzed on this slide")

    def _inside(self, source: str, within: Area) -> BoolArray:
        def make() -> BoolArray:
            import shapely

            points = self._all_points(source)
            if isinstance(within, Tissue) and self.maps.window is None:
                return np.ones(len(points), dtype=bool)
            shape = self.area(within)
            shapely.prepare(shape)
            covered = shapely.intersects_xy(shape, points[:, 0], points[:, 1])
            return np.asarray(covered, dtype=bool)

        return self._make_once(("inside", source, within), make)

    def _all_points(self, source: str) -> F64:
        def make() -> F64:
            return self.cells.points if source == "cells" else self.objects.points

        return self._make_once(("all", source), make)

    @property
    def cells(self) -> CellMap:
        """Map of cells; raises `Undefined` if there is none."""
        if self.maps.cells is None:
            raise Undefined("this slide has no map of cells")
        return self.maps.cells

    @property
    def objects(self) -> ObjectMap:
        """Map of objects; raises `Undefined` if there is none."""
        if self.maps.objects is None:
            raise Undefined("this slide has no map of objects")
        return self.maps.objects

    def shapes(self, of: Objects, within: Area | None) -> AnyArray:
        """Return the shapes of the objects whose centroids are in an area."""
        return np.asarray(self.objects.shapes[self.chosen(of, within)], dtype=object)

    def tree(self, of: Points, within: Area | None = None) -> cKDTree:
        """Return a search tree over `points`."""
        from scipy.spatial import cKDTree

        return self._make_once(("tree", of, within), lambda: cKDTree(self.points(of, within)))

    def counts(
        self,
        of: Points,
        to: Points,
        radius_um: float,
        within: Area,
        to_within: Area | None = None,
    ) -> I64:
        """Count the points `to` within a radius of each of the n points `of`, excluding itself.

        With `to_within`, only the points `to` in that area are counted.

        Parameters
        ----------
        within : area of the points `of`
        to_within : area of the points `to`; None for anywhere
        """

        def make() -> I64:
            points = self.points(of, within)
            found = patterns.neighbor_counts(self.tree(to, to_within), points, radius_um)
            return found - self._itself(of, to, within, to_within)

        key = ("counts", of, to, radius_um, within, to_within)
        return self._make_once(key, make)

    def _itself(self, of: Points, to: Points, within: Area, to_within: Area | None) -> I64:
        """Return 1 for each point `of` that is also among the points `to`, else 0."""
        mask = self.chosen(of, within)
        if of.source != to.source:
            return np.zeros(int(mask.sum()), dtype=np.int64)
        return self.chosen(to, to_within)[mask].astype(np.int64)

    def far(self, of: Points, within: Area, distance_um: float) -> BoolArray:
        """Return an (n,) mask of the area's points at least this far from its border."""

        def make() -> BoolArray:
            border = self.area(within).boundary
            return patterns.far_from(border, self.points(of, within), distance_um)

        return self._make_once(("far", of, within, distance_um), make)

    def nearest(self, of: Points, to: Points, within: Area, to_within: Area | None = None) -> F64:
        """Compute each point's distance to the nearest `to`, or inf if there is none.

        Parameters
        ----------
        within : area of the points `of`
        to_within : area of the points `to`; None for anywhere

        Returns
        -------
        Distances in µm, of shape (n,).
        """

        def make() -> F64:
            points = self.points(of, within)
            if isinstance(to, Objects) and of != to:
                return _to_shapes(points, self.shapes(to, to_within))
            tree = self.tree(to, to_within)
            if not tree.n or not len(points):
                return np.full(len(points), np.inf)
            distances, _ = tree.query(points, k=2)
            itself = self._itself(of, to, within, to_within)
            return np.asarray(distances[np.arange(len(points)), itself], dtype=np.float64)

        return self._make_once(("nearest", of, to, within, to_within), make)

    def _make_once(self, key: Hashable, make: Callable[[], T]) -> T:
        if key not in self._made:
            try:
                self._made[key] = make()
            except Undefined as reason:
                self._made[key] = reason
        made = self._made[key]
        if isinstance(made, Undefined):
            raise Undefined(str(made))
        return cast(T, made)


def squares(window: Any, side_um: float) -> tuple[F64, F64]:
    """Return the lower corners and covered areas (µm²) of the squares at least half in the window.

    The grid starts at the window's lower corner.
    """
    import shapely

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
    import shapely

    if not len(shapes) or not len(points):
        return np.full(len(points), np.inf)
    tree = shapely.STRtree(shapes)
    index, distances = tree.query_nearest(
        shapely.points(points), all_matches=False, return_distance=True
    )
    found = np.full(len(points), np.inf)
    found[index[0]] = distances
    return found
