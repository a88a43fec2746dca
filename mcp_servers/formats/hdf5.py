"""Patch coordinates as Trident and CLAM read them."""

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
    """Grid of patches. `patch_size` is in pixels at the target resolution.

    `level` is the number of the stored level with that resolution and its `Level`, where there is
    one: CLAM reads `patch_size` pixels of a stored level, and of no other.
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
        """Get the attributes of `coords`: Trident's, and CLAM's where CLAM can read these patches.

        Trident takes `patch_size_level0` pixels of level 0 and makes them `patch_size`; CLAM takes
        `patch_size` pixels of `patch_level` (`read_region(coord, patch_level, patch_size)`). Where
        no stored level makes both the same tissue, CLAM's `patch_level` is left out: its reader
        then stops instead of reading other pixels.
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
    """Get the level of which `patch_size` pixels are `level0` pixels of level 0, within a pixel."""
    return next(
        (
            (number, level)
            for number, level in enumerate(levels)
            if abs(patch_size * level.downsample - level0) <= 1
        ),
        None,
    )


def write_coords(path: Path, coords: I64, grid: Grid, **columns: AnyArray) -> None:
    """Write (n, 2) level-0 corners, with further columns of n values each beside them."""
    import h5py

    with h5py.File(path, "w") as file:
        data = file.create_dataset("coords", data=coords.astype(np.int64), maxshape=(None, 2))
        data.attrs.update(grid.attributes())
        for name, values in columns.items():
            stored = values.astype("S") if values.dtype.kind == "U" else values
            file.create_dataset(name, data=stored)
