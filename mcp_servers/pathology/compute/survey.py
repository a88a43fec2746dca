"""Single pass over a slide's tissue that sums nuclei, stains and gaps on a grid of 8 µm cells.

The tools for lymphocytes, aggregates and stroma all start from this grid, so that a slide is
decoded only once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mcp_servers.formats.spool import TileSpool
from mcp_servers.lazy import cv2
from mcp_servers.pathology.compute.cell_types import Segmentation, lymphocytes
from mcp_servers.pathology.compute.nuclei import darkness, regular_outline, segment
from mcp_servers.pathology.compute.tissue import density_planes
from mcp_servers.pathology.walk import Piece
from mcp_servers.slides.arrays import F32, U8, AnyArray, BoolArray, bands

CELL_UM = 8.0
EVERYTHING = slice(None)
FINE_MPP = 0.7
"""Maximum pixel size for typing nuclei as at 0.5 µm per pixel; above it, as at 1."""
GAP_DENSITY = 0.08
"""Green density below which tissue appears unstained: a cleft, a lumen, a vacuole."""

LAYERS = (
    "tissue",  # share of the cell that is tissue
    "nuclear",  # share under nuclei
    "lymphocytes",  # count of lymphocyte-like nuclei
    "nuclei",  # count of all nuclei
    "regular",  # count of nuclei with a round, smooth outline
    "nuclear_red",  # optical density of red under nuclei, times tissue
    "nuclear_green",  # optical density of green under nuclei, times tissue
    "red",  # optical density of red, times tissue
    "green",  # optical density of green, times tissue
    "gap",  # share of tissue without dye
    "pink",  # share of collagen-like pixels: eosinophilic, not nuclear, not blood
)


COUNTS = frozenset(("lymphocytes", "nuclei", "regular"))
SHARED = tuple(name for name in LAYERS if name not in COUNTS)
"""Layers averaged over a cell's pixels, in the order of `pixels.cell_layers`."""
DENSITIES = frozenset(("nuclear_red", "nuclear_green", "red", "green"))
SHARE_STEPS, DENSITY_STEPS = 192.0, 100.0
"""Number of steps per unit for storing shares and densities.

Shares are stored in steps of 1/192 (at 1 µm per pixel a cell has 64 pixels, so nothing is
lost), and densities in steps of 0.01 (up to 2.55; a black pixel has 2.41).
"""
TILE = 128
"""Side length of a grid tile in cells, equal to a block of 1,024 px at 1 µm per pixel."""
HELD = 512
"""Maximum number of tiles in memory: 96 MiB, or 5 cm² of tissue, more than most slides have."""
INDEX = {name: at for at, name in enumerate(LAYERS)}


def steps(name: str) -> float:
    """Return the divisor that converts a layer's stored bytes to values."""
    if name in COUNTS:
        return 1.0
    return DENSITY_STEPS if name in DENSITIES else SHARE_STEPS


@dataclass(frozen=True, slots=True)
class Survey:
    """Layers (see `LAYERS`) of shape (rows, columns); cell (0, 0) is at the slide's corner.

    A slide of 75 x 25 mm has 29 million cells. They are stored as bytes (counts, and shares
    and densities in steps) in tiles of (layers, `TILE`, `TILE`), which exist only where data
    were added, so that glass takes no memory; tiles beyond `HELD` are kept in a file. `layer`
    returns the values of some rows.
    """

    shape: tuple[int, int]
    dark: float
    strength: float
    background: tuple[int, int, int]
    tiles: TileSpool
    kept: dict[object, Any] = field(default_factory=dict)
    """Small results computed from the finished survey, cached for later callers."""

    @classmethod
    def empty(
        cls,
        width_um: float,
        height_um: float,
        dark: float,
        strength: float,
        background: tuple[int, int, int],
        folder: Path | None = None,
    ) -> Survey:
        """Create a grid of zeros that covers a slide; `folder` is for data not kept in memory.

        Parameters
        ----------
        width_um, height_um : dimensions of the slide, in µm
        dark : minimum optical density of a lymphocyte's nucleus
        strength : strength of the slide's stain
        background : color of empty glass, 0 to 255
        """
        shape = (int(np.ceil(height_um / CELL_UM)) + 1, int(np.ceil(width_um / CELL_UM)) + 1)
        return cls(
            shape,
            dark,
            strength,
            background,
            TileSpool(len(LAYERS), TILE, held=HELD, folder=folder),
        )

    @property
    def tissue(self) -> BoolArray:
        """Mask of the cells that are at least a quarter tissue."""
        out = np.zeros(self.shape, dtype=bool)
        for rows in self.bands():
            out[rows] = self.is_tissue(rows)
        return out

    def is_tissue(self, rows: slice) -> BoolArray:
        """Return some rows of `tissue`."""
        return np.asarray(self.read_layer("tissue", rows) > 0.25 * SHARE_STEPS)

    def read_layer(self, name: str, rows: slice = EVERYTHING) -> U8:
        """Return the stored bytes for a layer, in some rows or all."""
        top, bottom, _ = rows.indices(self.shape[0])
        out = np.zeros((max(0, bottom - top), self.shape[1]), dtype=np.uint8)
        for row in range(top // TILE, -(-bottom // TILE)):
            low, high = max(top, row * TILE), min(bottom, (row + 1) * TILE)
            for column in range(-(-self.shape[1] // TILE)):
                held = self.tiles.read(
                    (row, column), INDEX[name], low - row * TILE, high - row * TILE
                )
                if held is not None:
                    part = out[low - top : high - top, column * TILE : (column + 1) * TILE]
                    part[:] = held[:, : part.shape[1]]
        return out

    def layer(self, name: str, rows: slice = EVERYTHING) -> F32:
        """Return a layer, or some of its rows, as floating-point values."""
        return np.asarray(self.read_layer(name, rows), dtype=np.float32) / np.float32(steps(name))

    def write_layer(self, name: str, window: tuple[slice, slice], values: F32) -> None:
        """Set a share (0 to 1) or a density in a window on the grid."""
        whole = np.rint(np.clip(values * steps(name), 0, 255)).astype(np.uint8)
        (top, bottom, _), (left, right, _) = (
            part.indices(length) for part, length in zip(window, self.shape, strict=True)
        )
        for row in range(top // TILE, -(-bottom // TILE)):
            low, high = max(top, row * TILE), min(bottom, (row + 1) * TILE)
            for column in range(left // TILE, -(-right // TILE)):
                near, far = max(left, column * TILE), min(right, (column + 1) * TILE)
                part = whole[low - top : high - top, near - left : far - left]
                own = np.s_[
                    INDEX[name],
                    low - row * TILE : high - row * TILE,
                    near - column * TILE : far - column * TILE,
                ]
                self._tile(row, column)[own] = part

    def count(self, name: str, rows: AnyArray, columns: AnyArray) -> None:
        """Increment the cells at these rows and columns, once for each occurrence."""
        across = -(-self.shape[1] // TILE)
        place = rows // TILE * across + columns // TILE
        for number in np.unique(place).tolist():
            row, column = divmod(number, across)
            own = place == number
            at = (rows[own] - row * TILE, columns[own] - column * TILE)
            np.add.at(self._tile(row, column)[INDEX[name]], at, 1)

    def _tile(self, row: int, column: int) -> U8:
        """Return a tile for writing."""
        self.kept.clear()
        return self.tiles.edit((row, column))

    def bands(self) -> Iterator[slice]:
        """Iterate over all rows in bands."""
        return bands(self.shape[0])

    def holds(self, rows: slice) -> bool:
        """Check whether anything was added in the given rows."""
        top, bottom, _ = rows.indices(self.shape[0])
        return any(top < (row + 1) * TILE and row * TILE < bottom for row, _ in self.tiles)

    def smooth(
        self, names: Sequence[str | U8], sigma_um: float, rows: slice = EVERYTHING
    ) -> list[F32]:
        """Smooth layers, by name or as counts, per unit of tissue with a Gaussian over tissue.

        The result covers some rows, or all.
        """
        sigma = sigma_um / CELL_UM
        top, bottom, _ = rows.indices(self.shape[0])
        reach = int(np.ceil(4 * sigma)) + 1
        low = max(0, top - reach)
        around = slice(low, min(self.shape[0], bottom + reach))
        if not self.holds(around):
            nothing = np.zeros((bottom - top, self.shape[1]), dtype=np.float32)
            return [nothing for _ in names]
        own = slice(top - low, bottom - low)
        tissue = cv2.GaussianBlur(self.layer("tissue", around), (0, 0), sigma)[own]
        tissue = np.maximum(tissue, 0.25)
        layers = (
            self.layer(name, around) if isinstance(name, str) else name[around].astype(np.float32)
            for name in names
        )
        return [
            np.asarray(cv2.GaussianBlur(values, (0, 0), sigma)[own] / tissue) for values in layers
        ]

    def lymphocytes_per_mm2(self, sigma_um: float = 20.0, rows: slice = EVERYTHING) -> F32:
        """Compute the density of lymphocyte-like nuclei per mm² of tissue."""
        return self.smooth(("lymphocytes",), sigma_um, rows)[0] / np.float32((CELL_UM / 1000) ** 2)

    def area_mm2(self) -> float:
        """Compute the tissue area."""
        held = (self.read_layer("tissue", rows).sum(dtype=np.int64) for rows in self.bands())
        cells = float(sum(held)) / SHARE_STEPS
        return cells * (CELL_UM / 1000) ** 2


def sampled_darkness(images: list[U8], mpp: float) -> float:
    """Compute `darkness` from sampled tissue, so that a slide's cells are classified consistently.

    Return 0.2 if there are fewer than 20 nuclei.
    """
    values = [segment(image, mpp).column("density_mean") for image in images]
    pooled = np.concatenate(values) if values else np.zeros(0)
    return darkness(pooled) if pooled.size >= 20 else 0.2


def add_block(
    survey: Survey, piece: Piece, mpp: float, lock: AbstractContextManager[object]
) -> None:
    """Add a slide block at `mpp` µm per pixel, excluding its halo from all sums.

    Blocks may be added from several threads in any order: counts are accumulated under the
    lock, and everything else is written once.
    """
    from mcp_servers.pathology.compute.kernels import cell_layers

    nuclei = segment(piece.image, mpp)
    table = nuclei.table
    way: Segmentation = "survey" if mpp > FINE_MPP else "classical"
    lymphoid = lymphocytes(table, survey.dark, way, survey.strength)
    x, y, (x_um, y_um) = table[:, 0], table[:, 1], (piece.x * mpp, piece.y * mpp)
    own = piece.owns(x, y) & piece.tissue[y.astype(int), x.astype(int)]
    at = [
        (((along + 0.5) * mpp + start) / CELL_UM).astype(int)
        for along, start in ((y, y_um), (x, x_um))
    ]
    counted = {
        "nuclei": own,
        "lymphocytes": own & lymphoid,
        "regular": own & regular_outline(table),
    }
    with lock:
        for name, chosen in counted.items():
            survey.count(name, at[0][chosen], at[1][chosen])

    top, bottom, left, right = piece.inner
    column, row = round((x_um + left * mpp) / CELL_UM), round((y_um + top * mpp) / CELL_UM)
    width = round((x_um + right * mpp) / CELL_UM) - column
    height = round((y_um + bottom * mpp) / CELL_UM) - row
    if width < 1 or height < 1:
        return
    window = np.s_[row : row + height, column : column + width]
    part = piece.tissue[top:bottom, left:right]
    labels = nuclei.labels[top:bottom, left:right]
    red, green, blue = density_planes(piece.image[top:bottom, left:right], survey.background)
    near = cv2.blur(green, (3, 3))
    layers = cell_layers(red, green, blue, near, labels, part, GAP_DENSITY, height, width)
    for name, values in zip(SHARED, layers, strict=True):
        with lock:
            survey.write_layer(name, window, values)
