"""Patch features and scores in the formats of Trident and CLAM."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from mcp_servers.formats.hdf5 import Grid
from mcp_servers.slides.arrays import F32, I64, AnyArray
from sage.core.errors import InputError


def write_features(path: Path, coords: I64, parts: Iterable[F32], grid: Grid, encoder: str) -> int:
    """Write features, which arrive in chunks of rows, together with their coordinates.

    The attributes identify the encoder. Returns the feature dimension.

    Parameters
    ----------
    coords : (n, 2) upper left corners, level-0 pixels
    parts : chunks of shape (rows, d)

    Raises
    ------
    InputError
        If the total number of rows differs from the number of coordinates.
    """
    import h5py

    data, seen = None, 0
    with h5py.File(path, "w") as file:
        for part in parts:
            end = seen + len(part)
            if end > len(coords):
                raise InputError(f"got {len(coords)} coordinates but at least {end} feature rows")
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
            raise InputError(f"got {len(coords)} coordinates but {seen} feature rows")
        data.attrs["encoder"] = encoder
        data.attrs["name"] = grid.name
        where = file.create_dataset("coords", data=coords.astype(np.int64), maxshape=(None, 2))
        where.attrs.update(grid.attributes())
        return int(data.shape[1])


def read_coords(path: Path) -> tuple[I64, dict[str, Any]]:
    """Read (n, 2) corners and their attributes; raises `InputError` for other files."""
    with open_hdf5(path) as file:
        coords = dataset(file, "coords", path)
        if coords.ndim != 2 or coords.shape[1] < 2:
            raise InputError(f"{path}: coords must have shape (n, 2), got {coords.shape}")
        attributes = {key: _plain(value) for key, value in coords.attrs.items()}
        return np.asarray(coords[:, :2], dtype=np.int64), attributes


def read_features(path: Path) -> tuple[F32, I64 | None, dict[str, Any]]:
    """Read (n, d) features, their corners if present, and the attributes of both.

    A leading axis of length 1, which Trident writes for some encoders, is dropped.
    """
    with open_hdf5(path) as file:
        stored = dataset(file, "features", path)
        if stored.ndim == 3 and stored.shape[0] == 1:
            features = np.asarray(stored[0], dtype=np.float32)
        else:
            features = np.asarray(stored[()], dtype=np.float32)
        if features.ndim != 2 or not len(features):
            raise InputError(
                f"{path}: features must have shape (n, d) with n > 0, got {features.shape}"
            )
        if not np.isfinite(features).all():
            raise InputError(f"{path}: features contain NaN or infinity; extract them again")
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
    """Open an HDF5 file for reading.

    Raises `InputError` if it is not HDF5, or if part of it is in another file, which HDF5 would
    read from anywhere on this machine, even outside the roots.
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
        raise InputError(f'{path}: "{name}" links to another file; external links are not followed')
    return file


def dataset(file: Any, name: str, path: Path) -> Any:
    """Return the dataset called `name`; raises `InputError` if it does not exist."""
    import h5py

    found = file.get(name)
    if not isinstance(found, h5py.Dataset):
        held = ", ".join(file.keys()) or "nothing"
        raise InputError(f'{path}: dataset "{name}" not found (datasets: {held})')
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


def write_scores(path: Path, coords: I64, attributes: dict[str, Any], **columns: AnyArray) -> None:
    """Write corners with their attributes, and named scores with one value per corner."""
    import h5py

    with h5py.File(path, "w") as file:
        where = file.create_dataset("coords", data=coords.astype(np.int64))
        where.attrs.update(attributes)
        for name, values in columns.items():
            file.create_dataset(name, data=np.asarray(values, dtype=np.float32))
