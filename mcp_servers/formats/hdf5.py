"""Patch coordinates and features as Trident and CLAM read them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mcp_servers.slides.arrays import F32, I64, AnyArray
from mcp_servers.slides.source import Level
from sage.core.errors import InputError


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
        """The attributes of `coords`: Trident's, and CLAM's where CLAM can read these patches.

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
    """The level of which `patch_size` pixels are `level0` pixels of level 0, within a pixel."""
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


def write_features(path: Path, coords: I64, features: F32, grid: Grid, encoder: str) -> None:
    """Write (n, d) features beside their coordinates; the attributes name the encoder.

    Parameters
    ----------
    coords : (n, 2) upper left corners, level-0 pixels
    features : (n, d)
    """
    write_feature_parts(path, coords, [features], grid, encoder)


def write_feature_parts(
    path: Path, coords: I64, parts: Iterable[F32], grid: Grid, encoder: str
) -> int:
    """As `write_features`, for features that come some rows at a time; returns their dimension.

    Parameters
    ----------
    coords : (n, 2) upper left corners, level-0 pixels
    parts : (some rows, d) each

    Raises
    ------
    InputError
        If the parts have not as many rows together as there are coordinates.
    """
    import h5py

    data, seen = None, 0
    with h5py.File(path, "w") as file:
        for part in parts:
            end = seen + len(part)
            if end > len(coords):
                raise InputError(f"{len(coords)} coordinates but {end} feature rows or more")
            if data is None:
                wide = part.shape[1]
                data = file.create_dataset(
                    "features",
                    (len(coords), wide),
                    dtype=np.float32,
                    maxshape=(None, wide),
                    chunks=(min(len(coords), 1024) or 1, wide),
                )
            data[seen:end] = part
            seen = end
        if data is None or seen != len(coords):
            raise InputError(f"{len(coords)} coordinates but {seen} feature rows")
        data.attrs["encoder"] = encoder
        data.attrs["name"] = grid.name
        where = file.create_dataset("coords", data=coords.astype(np.int64), maxshape=(None, 2))
        where.attrs.update(grid.attributes())
        return int(data.shape[1])


def read_coords(path: Path) -> tuple[I64, dict[str, Any]]:
    """(n, 2) corners and their attributes; raises `InputError` for other files."""
    with open_hdf5(path) as file:
        coords = dataset(file, "coords", path)
        if coords.ndim != 2 or coords.shape[1] < 2:
            raise InputError(f"{path}: coords must be (n, 2), not {coords.shape}")
        attributes = {key: _plain(value) for key, value in coords.attrs.items()}
        return np.asarray(coords[:, :2], dtype=np.int64), attributes


def read_features(path: Path) -> tuple[F32, I64 | None, dict[str, Any]]:
    """(n, d) features, their corners when present, and the attributes of both.

    A leading axis of length 1, as Trident writes for some encoders, is dropped.
    """
    with open_hdf5(path) as file:
        stored = dataset(file, "features", path)
        if stored.ndim == 3 and stored.shape[0] == 1:
            features = np.asarray(stored[0], dtype=np.float32)
        else:
            features = np.asarray(stored[()], dtype=np.float32)
        if features.ndim != 2 or not len(features):
            raise InputError(f"{path}: features must be (n, d) with n > 0, not {features.shape}")
        if not np.isfinite(features).all():
            raise InputError(f"{path}: features hold NaN or infinity; extract them again")
        attributes = {key: _plain(value) for key, value in stored.attrs.items()}
        coords = None
        if "coords" in file:
            where = dataset(file, "coords", path)
            coords = np.asarray(where[()], dtype=np.int64).reshape(-1, where.shape[-1])[:, :2]
            attributes |= {key: _plain(value) for key, value in where.attrs.items()}
            if len(coords) != len(features):
                raise InputError(
                    f"{path}: {len(features)} feature rows but {len(coords)} coordinates"
                )
        return features, coords, attributes


def open_hdf5(path: Path) -> Any:
    """The file, open for reading.

    Raises `InputError` if it is not HDF5, or if a part of it is in another file: HDF5 would
    read that from anywhere on this machine, beyond the roots.
    """
    import h5py

    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise InputError(f"{path}: not a readable HDF5 file") from error

    def elsewhere(name: str, link: Any) -> str | None:
        found = file[name] if isinstance(link, h5py.HardLink) else None
        lies = isinstance(found, h5py.Dataset) and (found.external or found.is_virtual)
        return name if lies or isinstance(link, h5py.ExternalLink) else None

    name = file.visititems_links(elsewhere)
    if name is not None:
        file.close()
        raise InputError(f'{path}: "{name}" is in another file, which is not followed')
    return file


def dataset(file: Any, name: str, path: Path) -> Any:
    """The dataset called `name`; raises `InputError` where there is none."""
    import h5py

    found = file.get(name)
    if not isinstance(found, h5py.Dataset):
        held = ", ".join(file.keys()) or "nothing"
        raise InputError(f'{path}: has no dataset "{name}" (it holds: {held})')
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


def write_scores(path: Path, coords: I64, attributes: dict[str, Any], **columns: AnyArray) -> None:
    """Write corners with their attributes and named scores of the same length beside them."""
    import h5py

    with h5py.File(path, "w") as file:
        where = file.create_dataset("coords", data=coords.astype(np.int64))
        where.attrs.update(attributes)
        for name, values in columns.items():
            file.create_dataset(name, data=np.asarray(values, dtype=np.float32))
