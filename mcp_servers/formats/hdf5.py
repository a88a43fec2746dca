"""Patch coordinates in the HDF5 layout that Trident and CLAM read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mcp_servers.slides.arrays import I64, AnyArray
from mcp_servers.slides.source import Level


@dataclass(frozen=True, slots=True)
class Grid:
    """A grid of patches; `patch_size` is in pixels at the target resolution.

    `level` is the number and `Level` of the stored level at that resolution, if it exists.
    CLAM can only read `patch_size` pixels from a stored level.
    """

    name: str
    patch_size: int
    patch_size_level0: int
    mpp: float
    level0_mpp: float
    overlap: int
    width: int
    height: int
    level: tuple[int, Level] | None = None

    def attributes(self) -> dict[str, Any]:
        """Return the `coords` attributes for Trident, and for CLAM if it can read these patches.

        Trident reads `patch_size_level0` pixels from level 0 and resizes them to `patch_size`;
        CLAM reads `patch_size` pixels from `patch_level` with `read_region(coord, patch_level,
        patch_size)`. If no stored level gives both programs the same tissue, CLAM's `patch_level`
        is left out, so that its reader stops instead of reading the wrong pixels.
        """
        both = {
            "patch_size": self.patch_size,
            "patch_size_level0": self.patch_size_level0,
            "level0_magnification": round(10 / self.level0_mpp, 3),
            "target_magnification": round(10 / self.mpp, 3),
            "overlap": self.overlap,
            "name": self.name,
            "savetodir": "",
            "level0_width": self.width,
            "level0_height": self.height,
            "mpp": self.mpp,
            "level0_mpp": self.level0_mpp,
            "save_path": "",
        }
        if self.level is None:
            return both
        number, level = self.level
        size = [level.width, level.height]
        return both | {
            "patch_level": number,
            "downsample": [level.downsample, level.downsample],
            "downsampled_level_dim": size,
            "level_dim": size,
        }


def stored_level(levels: Sequence[Level], patch_size: int, level0: int) -> tuple[int, Level] | None:
    """Find the level whose `patch_size` pixels span `level0` level-0 pixels, within a pixel."""
    return next(
        (
            (number, level)
            for number, level in enumerate(levels)
            if abs(patch_size * level.downsample - level0) <= 1
        ),
        None,
    )


def write_coords(path: Path, coords: I64, grid: Grid, **columns: AnyArray) -> None:
    """Write (n, 2) level-0 corners, with any additional columns of n values each."""
    import h5py

    with h5py.File(path, "w") as file:
        data = file.create_dataset("coords", data=coords.astype(np.int64), maxshape=(None, 2))
        data.attrs.update(grid.attributes())
        for name, values in columns.items():
            stored = values.astype("S") if values.dtype.kind == "U" else values
            file.create_dataset(name, data=stored)
