"""A slide's zarr store (SpatialData): tissue and tile shapes, and a feature table per encoder.

`shapes[tissues]` has tissue_id, geometry and measurements of each region; `shapes[tiles]`
has tile_id, tissue_id and geometry. `tables[features]` is an AnnData: X contains
features, obs the tiles (tile_id, library_id, tissue_id, clusters), obsm reductions, obsp
the neighbor graph, and varm slide features. Coordinates are level-0 pixels. Keys are
LazySlide's, as used by NOVA.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mcp_servers.context import ToolContext
from mcp_servers.slides.arrays import F32, I64
from sage.core.errors import InputError
from sage.core.extras import require_extra
from sage_nova.tools.common import Job, WsiInput

if TYPE_CHECKING:
    from mcp_servers.slides.slide import Slide

INSTANCE, REGION = "tile_id", "library_id"
MAKERS = {
    "tissues": ("shapes", "extract_tissue_in_wsi_tool"),
    "tiles": ("shapes", "extract_tissue_tiles_in_wsi_tool"),
    "features": ("tables", "extract_patch_features_in_wsi_tool"),
}
"""Part of the store that holds each kind of element, and the tool that makes it."""


def store_name(slide: Slide) -> str:
    """Return the name of a slide's store in its job."""
    return f"{slide.name}.zarr"


def read_store(path: Path) -> Any:
    """Read `SpatialData` from a folder; raises `InputError` if it is invalid."""
    require_extra("spatialdata", "a zarr store")
    import spatialdata

    if not (path / "zarr.json").exists() and not (path / ".zgroup").exists():
        raise InputError(f"{path}: not a zarr store (zarr.json and .zgroup are missing)")
    if index := next(path.rglob("_metadata"), None):  # it can name files anywhere on this machine
        raise InputError(f"{index}: SAGE does not follow Parquet index files; remove it")
    try:
        return spatialdata.read_zarr(path)
    except Exception as error:  # the library has its own errors for a damaged store
        raise InputError(f"{path}: not a readable SpatialData store: {error}") from error


def load_store(job: Job, slide: Slide) -> Any:
    """Load a slide's store; raises `InputError` if the job has none."""
    remedy = "run extract_tissue_in_wsi_tool on the slide first"
    return read_store(job.need(store_name(slide), remedy))


def open_store(given: WsiInput, context: ToolContext) -> tuple[Slide, Job, Any]:
    """Open the slide that the arguments name, with its job and store."""
    slide, job = given.open(context)
    return slide, job, load_store(job, slide)


def get_element(store: Any, kind: str, key: str) -> Any:
    """Return element `key` of a kind (such as "tiles"); raises `InputError` with existing keys."""
    part, maker = MAKERS[kind]
    held = getattr(store, part)
    if key not in held:
        have = ", ".join(held) or "none"
        raise InputError(f'the store has no {part} "{key}" (available: {have}); run {maker} first')
    return held[key]


def save_store(
    job: Job, slide: Slide, new: dict[str, Any], context: ToolContext, *, fresh: bool = False
) -> str:
    """Write the store with `new` elements and return its output name.

    Other elements are kept unless `fresh`. The old store is kept until the new store is complete.
    """
    require_extra("spatialdata", "a zarr store")
    from mcp_servers.formats.spatial import write_store

    old = None if fresh else job.find(store_name(slide))
    elements: dict[str, Any] = {}
    if old is not None:
        held = read_store(old)
        elements = {name: held[name] for _, name, _ in held.gen_elements() if name not in new}
    name = job.out(store_name(slide))
    about = {
        "slide": slide.name, "width": slide.width, "height": slide.height, "mpp": slide.mpp,
        "coordinates": "level-0 pixels",
    }  # fmt: skip
    with context.writing_folder(name, replace=True) as path:
        write_store(path, elements | new, about)
    return name


def make_shapes(columns: dict[str, Any], geometry: Any, mpp: float | None) -> Any:
    """Make a shapes element from polygons in level-0 pixels."""
    import geopandas
    from spatialdata.models import ShapesModel

    from mcp_servers.formats.spatial import make_transformations

    frame = geopandas.GeoDataFrame(columns, geometry=list(geometry))
    return ShapesModel.parse(frame, transformations=make_transformations(mpp))


def make_table(features: F32, tiles: Any, tile_key: str, encoder: str) -> Any:
    """Make a table of (tiles, dimension) features that annotates a tile shapes element."""
    import anndata
    import pandas as pd
    from spatialdata.models import TableModel

    count = len(tiles)
    observed = pd.DataFrame(
        {
            INSTANCE: np.arange(count),
            REGION: pd.Categorical([tile_key] * count),
            "tissue_id": tiles["tissue_id"].to_numpy(),
        },
        index=np.arange(count).astype(str),
    )
    table = anndata.AnnData(features, obs=observed)
    table.obsm["spatial"] = tile_corners(tiles).astype(np.float64)
    table.uns["encoder"] = encoder
    return TableModel.parse(table, region=tile_key, region_key=REGION, instance_key=INSTANCE)


def tile_corners(tiles: Any) -> I64:
    """Return the (n, 2) upper left corners of tiles, in level-0 pixels."""
    found: I64 = np.round(tiles.geometry.bounds[["minx", "miny"]].to_numpy()).astype(np.int64)
    return found


def tile_side(tiles: Any) -> int:
    """Return the tiles' side length, in level-0 pixels."""
    box = tiles.geometry.iloc[0].bounds
    side: int = round(box[2] - box[0])
    return side
