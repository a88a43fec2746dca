"""A slide's zarr store (SpatialData): tissue and tile shapes, and a feature table per encoder.

`shapes[tissues]` has tissue_id, geometry and measurements of each region; `shapes[tiles]`
has tile_id, tissue_id and geometry. `tables[features]` is an AnnData: X contains
features, obs the tiles (tile_id, library_id, tissue_id, clusters), obsm reductions, obsp
the neighbor graph, and varm slide features. Coordinates are level-0 pixels. Keys are
LazySlide's, as used by NOVA.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from mcp_servers.context import ToolContext
from mcp_servers.pathology.common import SlideInput, open_slide
from mcp_servers.slides.arrays import F32, I64
from sage.core.errors import InputError
from sage.core.extras import require_extra
from sage_nova.tools import declare as nova

MAKERS = {
    "tissues": ("shapes", "extract_tissue_in_wsi_tool"),
    "tiles": ("shapes", "extract_tissue_tiles_in_wsi_tool"),
    "features": ("tables", "extract_patch_features_in_wsi_tool"),
}
"""Part of the store that holds each kind of element, and the tool that makes it."""


class Store:
    """The slide that a call names, its job, and its store in that job."""

    def __init__(self, given: nova.WsiInput, context: ToolContext) -> None:
        self.context, self.job = context, nova.Job(given.job_dir, context)
        self.slide = open_slide(SlideInput(slide=given.wsi_path, mpp=given.base_mpp), context)
        self.name = f"{self.slide.name}.zarr"
        self.fresh = not getattr(given, "load_from_src", True)

    @cached_property
    def held(self) -> Any:
        """The job's SpatialData for the slide; None if it has none."""
        path = self.job.find(self.name)
        return None if path is None else read_store(path)

    def out(self, ending: str) -> str:
        """Return the output name of a file of the slide in the job."""
        return self.job.out(f"{self.slide.name}{ending}")

    def need(self) -> Any:
        """Return the store; raises `InputError` if the job has none."""
        if self.held is None:
            self.job.need(self.name, "run extract_tissue_in_wsi_tool on the slide first")
        return self.held

    def get(self, kind: str, key: str) -> Any:
        """Return element `key` of a kind in `MAKERS`; raises `InputError` with existing keys."""
        part, maker = MAKERS[kind]
        held = getattr(self.need(), part)
        if key not in held:
            have = nova.list_choices(held)
            raise InputError(
                f'the store has no {part} "{key}" (available: {have}); run {maker} first'
            )
        return held[key]

    def tiles(self, key: str) -> tuple[Any, I64, int]:
        """Return tile shapes, their (n, 2) upper left corners and side, in level-0 pixels."""
        frame = self.get("tiles", key)
        return frame, *measure_tiles(frame)

    def save(self, **new: Any) -> str:
        """Write the store with `new` elements and return its output name.

        Other elements are kept, unless the call starts a new store. The old store is kept until the
        new store is complete.
        """
        require_extra("spatialdata", "a zarr store")
        from mcp_servers.formats.spatial import write_store

        elements: dict[str, Any] = {}
        if self.held is not None and not self.fresh:
            for _, name, _ in self.held.gen_elements():
                elements[name] = self.held[name]
        slide, name = self.slide, self.job.out(self.name)
        about = {
            "slide": slide.name, "width": slide.width, "height": slide.height, "mpp": slide.mpp,
            "coordinates": "level-0 pixels",
        }  # fmt: skip
        with self.context.writing_folder(name, replace=True) as path:
            write_store(path, elements | new, about)
        return name


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
            "tile_id": np.arange(count), "library_id": pd.Categorical([tile_key] * count),
            "tissue_id": tiles["tissue_id"].to_numpy(),
        },
        index=np.arange(count).astype(str),
    )  # fmt: skip
    table = anndata.AnnData(features, obs=observed)
    table.obsm["spatial"] = measure_tiles(tiles)[0].astype(np.float64)
    table.uns["encoder"] = encoder
    return TableModel.parse(table, region=tile_key, region_key="library_id", instance_key="tile_id")


def measure_tiles(tiles: Any) -> tuple[I64, int]:
    """Return the (n, 2) upper left corners of tiles and their side, in level-0 pixels."""
    bounds = tiles.geometry.bounds.to_numpy()
    corners: I64 = np.round(bounds[:, :2]).astype(np.int64)
    return corners, round(bounds[0, 2] - bounds[0, 0])
