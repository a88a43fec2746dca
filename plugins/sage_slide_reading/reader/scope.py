"""Virtual microscope: a slide's patches, their pixels at a magnification, and the area read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from sage.core.errors import InputError
from sage_slide_reading.reader.types import Box, Options, PixelsRead, Region

if TYPE_CHECKING:
    from mcp_servers.pathology.nuclei_net.model import NucleiNetwork
    from mcp_servers.slides.arrays import F32, U8, BoolArray
    from mcp_servers.slides.slide import Slide

MIN_TISSUE = 0.25
"""Minimum tissue fraction for a patch to count among the N."""
WHOLE_FIELD_MM2 = 1.0
"""Area below which an image is assumed to be all tissue, since there is no glass to compare."""
LEAST_SIDE_UM = 30.0
"""Image side below which an image contains hardly a nucleus."""
ONE_UM = 10.0
"""Product of µm per pixel and magnification: at 10x, a pixel is 1 µm."""


@cache
def load_network() -> NucleiNetwork | None:
    """Load the bundled nuclei network once; None if it or PyTorch is not installed."""
    from mcp_servers.pathology.nuclei_net.model import NucleiNetwork, shipped_network

    path = shipped_network()
    return None if path is None else NucleiNetwork(path)


class Scope:
    """A slide with a known pixel size as a reader sees it, in patches of a given size and power."""

    def __init__(self, slide: Slide, options: Options) -> None:
        from mcp_servers.pathology.tissue import slide_tissue

        self.slide = slide
        self.options = options
        self.mpp = slide.need_mpp()
        if min(slide.width, slide.height) * self.mpp < LEAST_SIDE_UM:
            raise InputError(
                f"{slide.path}: {slide.width} x {slide.height} pixels at {self.mpp:g} µm are too "
                f"small to read; each side must be at least {LEAST_SIDE_UM:g} µm. Check "
                "the pixel size"
            )
        if self.mpp > 1.05 * ONE_UM / options.magnification:
            raise InputError(
                f"{slide.path}: {self.mpp:g} µm per pixel is coarser than"
                f" {options.magnification:g}x ({ONE_UM / options.magnification:g} µm); read it at"
                " a lower --magnification"
            )
        found, view = slide_tissue(slide)
        self.mask: BoolArray = found.mask
        area = slide.width * slide.height * (self.mpp / 1000) ** 2
        if area < WHOLE_FIELD_MM2:
            self.mask = np.ones_like(found.mask)
        self.mask_scale = view.scale
        self.tissue_px = float(self.mask.sum()) * view.scale**2
        self._read: dict[float, dict[str, float]] = {}
        self._described: set[str] = set()
        self.watch: Callable[[Region], None] = lambda region: None
        """Called with each region whose pixels are read, whether to rank or to describe it."""

    @property
    def native(self) -> float:
        """The slide's finest magnification."""
        return ONE_UM / self.mpp

    @cached_property
    def patches(self) -> tuple[Region, ...]:
        """All N patches with tissue at the first magnification, row by row.

        Raises `InputError` if there is no tissue.
        """
        side = self.options.patch_px * ONE_UM / self.options.magnification / self.mpp
        across, down = (
            max(1, round(length / side)) for length in (self.slide.width, self.slide.height)
        )
        whole = Box(x=0, y=0, width=self.slide.width, height=self.slide.height)
        kept = self._grid(whole, across, down, self.options.magnification, "p", None)
        if not kept:
            raise InputError(f"{self.slide.path}: no tissue found to read")
        return kept

    def divide(self, region: Region, magnification: float) -> tuple[Region, ...]:
        """Divide a region into non-overlapping finer patches, keeping those with tissue.

        A patch keeps its pixel count: at twice the magnification, it is half as wide, but never
        narrower than `options.finest_um`.
        """
        side_um = max(self.options.patch_px * ONE_UM / magnification, self.options.finest_um)
        across, down = (max(1, round(length / side_um)) for length in region.um[2:])
        return self._grid(region.box, across, down, magnification, f"{region.id}.", region.id)

    def zoom(self, asked: float | None, current: float) -> float:
        """Return the requested magnification, or a default of twice the current magnification.

        A request must be finer than `current`; the result is at most the slide's finest.
        """
        wanted = asked if asked and asked > current else 2 * current
        return float(min(wanted, self.native))

    def region(self, box: Box, magnification: float, name: str) -> Region:
        """Return a region for a rectangle chosen by a person or guide.

        Raises `InputError` if it is outside the slide.
        """
        if not box.is_within(self.slide.width, self.slide.height):
            raise InputError(
                f"the region {box.x},{box.y},{box.width},{box.height} is outside the slide "
                f"({self.slide.width} x {self.slide.height} pixels)"
            )
        return self._region(box, min(magnification, self.native), name, None)

    def _region(self, box: Box, magnification: float, name: str, parent: str | None) -> Region:
        x, y, width, height = (
            round(value * self.mpp, 1) for value in (box.x, box.y, box.width, box.height)
        )
        return Region(
            id=name, box=box, um=(x, y, width, height), magnification=magnification, parent=parent
        )

    def _grid(
        self, box: Box, across: int, down: int, magnification: float, prefix: str,
        parent: str | None,
    ) -> tuple[Region, ...]:  # fmt: skip
        """Divide a box evenly, keeping the parts with enough tissue."""
        xs = np.linspace(box.x, box.x + box.width, across + 1).round().astype(int).tolist()
        ys = np.linspace(box.y, box.y + box.height, down + 1).round().astype(int).tolist()
        boxes = {
            f"{r}-{c}": Box(x=xs[c], y=ys[r], width=xs[c + 1] - xs[c], height=ys[r + 1] - ys[r])
            for r in range(down)
            for c in range(across)
        }
        return tuple(
            self._region(part, magnification, f"{prefix}{name}", parent)
            for name, part in boxes.items()
            if self.tissue_share(part) >= MIN_TISSUE
        )

    @cached_property
    def unlike_he(self) -> str:
        """Reason why this cannot be an H&E section; empty if nothing contradicts it.

        It is assessed on at most 16 fields of 256 µm at low power, spread over the tissue.
        """
        from mcp_servers.pathology.compute.tissue import unlike_he
        from mcp_servers.slides.arrays import spread_over

        view = self.slide.view(2.0)
        wide, high = min(128, view.width), min(128, view.height)
        fields = []
        for row, column in spread_over(self.mask, 16):
            x, y = (round(at * self.mask_scale / view.scale) for at in (column, row))
            left = min(max(0, x - wide // 2), view.width - wide)
            top = min(max(0, y - high // 2), view.height - high)
            fields.append(view.read(left, top, wide, high))
        why = unlike_he(fields)
        return f"the image does not look like a section stained with H&E: {why}" if why else ""

    @cached_property
    def _adapted(self) -> tuple[NucleiNetwork | None, str]:
        from mcp_servers.pathology.nuclei import adapt_network, measure_strength
        from sage_slide_reading.reader.computed import NETWORK_MPP

        network = load_network() if self.mpp <= NETWORK_MPP else None
        if network is None:
            return None, ""
        place = (self.slide, self.mask, self.mask_scale)
        strength = measure_strength(*place)
        try:
            return adapt_network(network, *place, strength), ""
        except InputError as error:
            return network.adapt(strength), str(error)

    @property
    def network(self) -> NucleiNetwork | None:
        """The bundled network adapted to the slide, as in the tool nuclei; None if not usable."""
        return self._adapted[0]

    @property
    def no_nuclei(self) -> str:
        """Reason why nuclei have no value on this slide, as in the tool nuclei; empty if none."""
        return self._adapted[1]

    @property
    def doubt(self) -> str:
        """Reasons to doubt every value for this slide, as sentences."""
        notes = filter(None, (self.slide.mpp_conflict, self.unlike_he, self.no_nuclei))
        return " ".join(f"Unreliable: {note}." for note in notes)

    # -- tissue -------------------------------------------------------------------------------

    def _window(self, box: Box) -> tuple[slice, slice]:
        k = self.mask_scale
        return (
            slice(int(box.y / k), max(int(box.y / k) + 1, round((box.y + box.height) / k))),
            slice(int(box.x / k), max(int(box.x / k) + 1, round((box.x + box.width) / k))),
        )

    def tissue_share(self, box: Box) -> float:
        """Compute the tissue fraction in a rectangle."""
        part = self.mask[self._window(box)]
        return float(part.mean()) if part.size else 0.0

    @cached_property
    def outline(self) -> BoolArray:
        """Outline of the tissue with its holes; outside is glass, and holes may be lumen."""
        from scipy.ndimage import binary_fill_holes

        return np.asarray(binary_fill_holes(self.mask), dtype=bool)

    def mask_tissue(self, box: Box, shape: tuple[int, int]) -> BoolArray:
        """Compute a (down, across) mask of a rectangle's cells inside the tissue outline."""
        down, across = shape
        rows = (box.y + (np.arange(down) + 0.5) * box.height / down) / self.mask_scale
        columns = (box.x + (np.arange(across) + 0.5) * box.width / across) / self.mask_scale
        return np.asarray(
            self.outline[
                rows.astype(int).clip(0, self.mask.shape[0] - 1)[:, None],
                columns.astype(int).clip(0, self.mask.shape[1] - 1)[None, :],
            ]
        )

    @cached_property
    def _edge(self) -> F32:
        import cv2

        away = cv2.distanceTransform(self.mask.astype(np.uint8), cv2.DIST_L2, 5)
        away = np.minimum(away, 1e6)  # without glass there is no edge
        return np.asarray(away, dtype=np.float32) * self.mask_scale * self.mpp

    def edge_um(self, points: Sequence[tuple[float, float]]) -> F32:
        """Compute distances in µm from points (level-0 pixels) to the tissue edge.

        The image border does not count as an edge.
        """
        columns, rows = (np.asarray(points).reshape(-1, 2).T / self.mask_scale).astype(int)
        rows = rows.clip(0, self.mask.shape[0] - 1)
        return np.asarray(self._edge[rows, columns.clip(0, self.mask.shape[1] - 1)])

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Locate a point in the tissue's bounding box: -1 is left or top, 1 is right or bottom."""
        rows, columns = np.nonzero(self.mask)
        k = self.mask_scale
        if not len(rows):
            return 0.0, 0.0
        left, right = columns.min() * k, (columns.max() + 1) * k
        top, bottom = rows.min() * k, (rows.max() + 1) * k
        return (
            float(2 * (x - left) / (right - left) - 1),
            float(2 * (y - top) / (bottom - top) - 1),
        )

    def window(self) -> Any:
        """Return the tissue as a shapely multipolygon, in µm."""
        import shapely

        from mcp_servers.measures.maps import multipolygon
        from mcp_servers.slides.geometry import mask_polygons

        outlines = mask_polygons(self.mask, self.mask_scale, simplify_px=0.7)
        return multipolygon(
            shapely.Polygon(p.exterior * self.mpp, [hole * self.mpp for hole in p.holes])
            for p in outlines
        )

    # -- pixels -------------------------------------------------------------------------------

    def pixels(self, region: Region, halo: int = 0) -> U8:
        """Read a region's RGB at its magnification, with `halo` extra pixels on each side."""
        mpp = ONE_UM / region.magnification
        view = self.slide.view(mpp)
        x, y = round(region.box.x / view.scale), round(region.box.y / view.scale)
        width = max(1, round(region.box.width / view.scale))
        height = max(1, round(region.box.height / view.scale))
        self.count(region)
        return view.read(x - halo, y - halo, width + 2 * halo, height + 2 * halo)

    def count(self, region: Region) -> None:
        """Add a region to the count of pixels read at its magnification."""
        self.watch(region)
        area = self.tissue_share(region.box) * region.box.width * region.box.height
        self._read.setdefault(region.magnification, {})[region.id] = area

    def note_described(self, region: Region) -> None:
        """Add a region to those that were described."""
        self._described.add(region.id)

    def count_pixels(self) -> PixelsRead:
        """Compute the area read so far, as fractions of the tissue."""
        first = self.options.magnification
        tissue = max(self.tissue_px, 1.0)
        overview = sum(self._read.get(first, {}).values())
        fine = {
            name: area
            for magnification, regions in self._read.items()
            if magnification > first
            for name, area in regions.items()
        }
        return PixelsRead(
            regions=len(self._described),
            overview_share=round(min(1.0, overview / tissue), 4),
            high_power_share=round(min(1.0, sum(fine.values()) / tissue), 4),
        )
