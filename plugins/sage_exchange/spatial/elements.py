"""SpatialData elements built from the tools' output files. Requires `spatialdata`.

The intrinsic coordinates of each element are level-0 pixels with the origin at the
slide's corner, x to the right and y down; those of the image are its own pixels. The
coordinate system "global" is in level-0 pixels, and "um" is in µm if the pixel size is
known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mcp_servers.formats.spatial import Elements, make_transformations
from mcp_servers.slides.arrays import F64, I64
from sage.core.errors import InputError

if TYPE_CHECKING:
    from mcp_servers.formats.geojson import Annotated
    from mcp_servers.slides.view import View

REGION_KEY, INSTANCE_KEY = "element", "instance_id"
"""Columns with the name of the annotated shapes element, and with the shape within it."""
CHUNK_PX, CHUNK_ROWS = 1024, 4096
SMALLEST_LEVEL = 1024
"""Length of the longest side, in pixels, below which no coarser image level is added."""


def from_geojson(
    path: Path, name: str, size: tuple[int, int], mpp: float | None, warnings: list[str]
) -> Elements:
    """Convert a file's areas to shapes and its points to points, with their columns.

    Raises `InputError` if an object is entirely outside the slide of `size` level-0 pixels.

    Parameters
    ----------
    size : width and height of the slide, level-0 pixels
    mpp : micrometers per level-0 pixel; None if unknown
    """
    from mcp_servers.formats.geojson import read_objects

    drawing = read_objects(path)
    warnings += drawing.notes
    objects = drawing.objects
    areas = [thing for thing in objects if thing.polygons]
    dots = [thing for thing in objects if not thing.polygons]
    found: Elements = {}
    if areas:
        found[name] = _areas(path, areas, size, mpp, warnings)
    if dots:
        counts = [len(dot.points) for dot in dots]
        where = np.concatenate([dot.points for dot in dots])
        check_inside(path, where, where, size)
        measured = _columns(path, dots, ("x", "y"), warnings)
        columns = {k: np.repeat(v, counts) for k, v in measured.items()}
        found[f"{name}_points"] = _points(where, columns, mpp)
    return found


def _areas(
    path: Path,
    objects: list[Annotated],
    size: tuple[int, int],
    mpp: float | None,
    warnings: list[str],
) -> Any:
    import geopandas
    import shapely
    from spatialdata.models import ShapesModel

    shapes = []
    for thing in objects:
        parts = [shapely.Polygon(p.exterior, p.holes) for p in thing.polygons]
        shapes.append(parts[0] if len(parts) == 1 else shapely.MultiPolygon(parts))
    bounds = shapely.bounds(shapes)
    check_inside(path, bounds[:, :2], bounds[:, 2:], size)
    crossing = int((~shapely.is_valid(shapes)).sum())
    if crossing:
        warnings.append(f"{path.name}: {crossing} outlines intersect themselves; kept unchanged")
    frame = geopandas.GeoDataFrame(
        _columns(path, objects, ("geometry",), warnings), geometry=shapes
    )
    return ShapesModel.parse(frame, transformations=make_transformations(mpp))


def _columns(
    path: Path, objects: list[Annotated], own: Sequence[str], warnings: list[str]
) -> dict[str, Any]:
    """Collect classification, name, and kind if any object has them, plus the measurements.

    `own` lists the columns that contain the geometry.
    """
    columns: dict[str, Any] = {}
    for column, values in (
        ("classification", [thing.label for thing in objects]),
        ("name", [thing.name for thing in objects]),
        ("object_type", [thing.kind for thing in objects]),
    ):
        if any(values):
            columns[column] = np.array(values, dtype=object)
    keys = list(dict.fromkeys(key for thing in objects for key in thing.measurements))
    for key, column in zip(keys, column_names(path, keys, [*own, *columns], warnings), strict=True):
        columns[column] = np.array([thing.measurements.get(key, np.nan) for thing in objects])
    return columns


def column_names(
    path: Path, texts: Sequence[str], taken: Iterable[str], warnings: list[str]
) -> list[str]:
    """Convert each text to a name that a store accepts: "Area µm^2" becomes "Area_um2".

    Texts that result in the same name, or in a `taken` name, are numbered, with a warning. Texts
    that need no change are handled first, so that they keep their names.

    Returns
    -------
    Names in the order of the texts.
    """
    held, names = set(taken), {}
    for text in sorted(texts, key=lambda text: _clean(text) != text):
        name, number = _clean(text), 1
        while name in held:
            number += 1
            name = f"{_clean(text)}_{number}"
        held.add(name)
        names[text] = name
        if number > 1:
            warnings.append(
                f'{path.name}: "{text}" becomes the column {name}, because '
                f"{_clean(text)} already exists"
            )
    return [names[text] for text in texts]


def _clean(text: str) -> str:
    """Reduce a text to the characters that a store accepts."""
    text = text.replace("µ", "u").replace("^", "")
    name = "".join(c if c.isascii() and (c.isalnum() or c in "_.-") else "_" for c in text)
    return name or "_"


def _points(where: F64, columns: dict[str, Any], mpp: float | None) -> Any:
    import pandas as pd
    from spatialdata.models import PointsModel

    frame = pd.DataFrame({"x": where[:, 0], "y": where[:, 1]})
    for key, values in columns.items():
        # an empty column and text are read back as the same kind only if stored as text
        frame[key] = pd.Series(values).fillna("").astype(str) if values.dtype == object else values
    coordinates = {"x": "x", "y": "y"}
    return PointsModel.parse(
        frame, coordinates=coordinates, transformations=make_transformations(mpp)
    )


def from_hdf5(
    path: Path,
    name: str,
    size: tuple[int, int],
    mpp: float | None,
    warnings: list[str],
    open_files: ExitStack,
) -> Elements:
    """Build squares for the tiles, and a table of their features with a column per score.

    Features are read in chunks while the store is written, so `open_files` keeps the file open.

    Parameters
    ----------
    size : width and height of the slide, level-0 pixels
    mpp : micrometers per level-0 pixel; None if unknown
    """
    import geopandas
    import shapely
    from spatialdata.models import ShapesModel

    from sage_foundation.features import open_hdf5, read_coords

    corners, attributes = read_coords(path)
    side = int(attributes.get("patch_size_level0", 0))
    if side < 1:
        raise InputError(f"{path}: the patch_size_level0 attribute of coords is missing")
    if not len(corners):
        return {}
    if (corners < 0).any() or (corners + side > np.array(size) + side // 2).any():
        raise InputError(f"{path}: some tiles are outside the slide ({size[0]} x {size[1]} px)")
    x, y = corners[:, 0], corners[:, 1]
    frame = geopandas.GeoDataFrame(geometry=shapely.box(x, y, x + side, y + side))
    grid = f"{name}_grid"
    file = open_files.enter_context(open_hdf5(path))
    return {
        grid: ShapesModel.parse(frame, transformations=make_transformations(mpp)),
        f"{name}_table": _table(path, file, grid, corners, side, attributes, warnings),
    }


def _table(
    path: Path,
    file: Any,
    grid: str,
    corners: I64,
    side: int,
    attributes: dict[str, Any],
    warnings: list[str],
) -> Any:
    import anndata
    import dask.array as da
    import pandas as pd
    from spatialdata.models import TableModel

    from sage_foundation.handcrafted import NAMES

    count = len(corners)
    observed = pd.DataFrame(index=np.arange(count).astype(str))
    per_tile = {
        key: stored
        for key, stored in file.items()
        if getattr(stored, "shape", None) == (count,) and key not in ("coords", "features")
    }
    columns = column_names(path, list(per_tile), (), warnings)
    for stored, column in zip(per_tile.values(), columns, strict=True):
        values = stored[()]
        text = values.dtype.kind in "SO"
        observed[column] = pd.Categorical(stored.asstr()[()]) if text else values
    for key in (REGION_KEY, INSTANCE_KEY):
        if key in observed:
            raise InputError(
                f'{path}: dataset name "{key}" is reserved in the store; rename the dataset'
            )
    observed[REGION_KEY] = pd.Categorical([grid] * count)
    observed[INSTANCE_KEY] = np.arange(count)
    matrix, names = None, []
    encoder = ""
    if "features" in file:
        stored = file["features"]
        lead = stored.ndim == 3 and stored.shape[0] == 1  # as Trident writes for some encoders
        shape = stored.shape[1:] if lead else stored.shape
        if len(shape) != 2 or shape[0] != count:
            raise InputError(
                f"{path}: features have shape {stored.shape}, but there are {count} coordinates"
            )
        for at in range(0, count, CHUNK_ROWS):
            part = stored[0, at : at + CHUNK_ROWS] if lead else stored[at : at + CHUNK_ROWS]
            if not np.isfinite(part).all():
                raise InputError(f"{path}: features contain NaN or infinity; extract them again")
        chunks = (1, CHUNK_ROWS, shape[1]) if lead else (CHUNK_ROWS, shape[1])
        matrix = da.from_array(stored, chunks=chunks, name=f"features-{path}", lock=True)
        matrix = (matrix[0] if lead else matrix).astype(np.float32)
        encoder = _text(stored.attrs.get("encoder", ""))
        known = encoder == "handcrafted" and shape[1] == len(NAMES)
        stem = _clean(encoder) if encoder else "feature"
        names = list(NAMES) if known else [f"{stem}_{i}" for i in range(shape[1])]
    table = anndata.AnnData(matrix, obs=observed, var=pd.DataFrame(index=names))
    table.obsm["spatial"] = corners + side / 2.0
    kept = {k: v for k, v in attributes.items() if isinstance(v, int | float | str) and v != ""}
    table.uns["sage"] = {**kept, "encoder": encoder, "file": path.name}
    return TableModel.parse(table, region=grid, region_key=REGION_KEY, instance_key=INSTANCE_KEY)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def make_image(view: View, mpp: float | None, tick: Callable[[float], None]) -> Any:
    """Build a multiscale image of a slide, read block by block while the store is written.

    `tick` is called with the fraction of the finest level read so far.
    """
    import dask.array as da
    from spatialdata.models import Image2DModel

    rows, columns = -(-view.height // CHUNK_PX), -(-view.width // CHUNK_PX)
    done = 0

    def load(block_info: Any = None) -> Any:
        nonlocal done
        (top, bottom), (left, right) = block_info[None]["array-location"][1:]
        part = view.read(left, top, right - left, bottom - top)
        done += 1
        tick(min(1.0, done / (rows * columns)))
        return np.ascontiguousarray(np.moveaxis(part, 2, 0))

    def split(length: int) -> tuple[int, ...]:
        return tuple(min(CHUNK_PX, length - at) for at in range(0, length, CHUNK_PX))

    image = da.map_blocks(
        load,
        chunks=((3,), split(view.height), split(view.width)),
        dtype=np.uint8,
        meta=np.empty((0, 0, 0), np.uint8),
        name=f"slide-{view.slide.path}-{view.scale}",  # else the open slide would be hashed
    )
    longest, factors = max(view.width, view.height), []
    while longest > SMALLEST_LEVEL:
        factors.append(2)
        longest //= 2
    return Image2DModel.parse(
        image,
        dims=("c", "y", "x"),
        c_coords=["red", "green", "blue"],
        scale_factors=factors or None,
        chunks=(3, CHUNK_PX, CHUNK_PX),
        transformations=make_transformations(mpp, view.scale),
    )


def check_inside(path: Path, low: F64, high: F64, size: tuple[int, int], start: int = 0) -> None:
    """Refuse objects outside the slide, given their (n, 2) low and high corners.

    `start` is the index of the first object.

    Raises
    ------
    InputError
        Names the first object outside.
    """
    outside = (high < 0).any(axis=1) | (low > np.array(size)).any(axis=1)
    if outside.any():
        first = start + int(np.flatnonzero(outside)[0])
        raise InputError(
            f"{path}: object {first} is outside the slide ({size[0]} x {size[1]} px); check that "
            "it belongs to this slide and is in level-0 pixels"
        )
