"""Whether a slide's store has a key: tissue, tiles, features, clusters, reductions.

A missing store or key is an answer, not an error.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from mcp_servers.context import ToolContext
from mcp_servers.spec import Resources
from sage_nova.tools import store
from sage_nova.tools.common import (
    ELSEWHERE,
    FEATURES,
    KEY,
    TILES,
    TISSUES,
    Job,
    NovaResult,
    WsiInput,
    nova_tool,
    slide_of,
)

SMALL = Resources(memory_mb=512)


class CheckResult(NovaResult):
    """Whether the key is there, and which are."""

    exists: bool
    key: str
    available_keys: list[str]
    count: int | None = Field(default=None, description="Regions, tiles, rows or clusters")
    dimension: int | None = Field(default=None, description="Of features or of the reduction")


class TissueKeyInput(WsiInput):
    """Which key."""

    tissue_key: str = Field(default=TISSUES, pattern=KEY)


class TileKeyInput(WsiInput):
    """Which key."""

    tile_key: str = Field(default=TILES, pattern=KEY)


class FeaturesKeyInput(WsiInput):
    """Which key."""

    patch_features_key: str = Field(default=FEATURES, pattern=KEY)


class SlideKeyInput(FeaturesKeyInput):
    """Which key, made of which features."""

    slide_features_key: str = Field(pattern=KEY)


class ClusterKeyInput(FeaturesKeyInput):
    """Which key, of which features."""

    clustering_key: str = Field(pattern=KEY)


class ReductionKeyInput(FeaturesKeyInput):
    """Which key, of which features."""

    reduction_key: str = Field(pattern=KEY, description="X_pca, X_umap, X_tsne ...")


def _store(given: WsiInput, context: ToolContext) -> Any:
    """The slide's store, or None."""
    slide, job = slide_of(given, context), Job(given.job_dir, context)
    found = job.find(store.store_name(slide))
    return None if found is None else store.read_store(found)


def _answer(key: str, keys: Any, held: Any, **more: Any) -> CheckResult:
    log = [] if held is not None else [f"the job has no store of this slide{ELSEWHERE}"]
    return CheckResult(
        exists=key in keys, key=key, available_keys=sorted(keys), operations_log=log, **more
    )


@nova_tool(
    "check_tissue_segmentation_key_in_wsi_tool",
    version="1.0.0",
    summary="Check if tissue segmentation results exist for a specific key in WSI.",
    resources=SMALL,
)
def check_tissue(given: TissueKeyInput, context: ToolContext) -> CheckResult:
    """Shapes whose rows are regions."""
    held = _store(given, context)
    shapes = {} if held is None else held.shapes
    keys = [key for key, frame in shapes.items() if "tile_id" not in frame.columns]
    count = len(shapes[given.tissue_key]) if given.tissue_key in keys else None
    return _answer(given.tissue_key, keys, held, count=count)


@nova_tool(
    "check_tile_key_in_wsi_tool",
    version="1.0.0",
    summary="Check if tile extraction results exist for a specific key in WSI.",
    resources=SMALL,
)
def check_tiles(given: TileKeyInput, context: ToolContext) -> CheckResult:
    """Shapes whose rows are tiles."""
    held = _store(given, context)
    shapes = {} if held is None else held.shapes
    keys = [key for key, frame in shapes.items() if "tile_id" in frame.columns]
    count = len(shapes[given.tile_key]) if given.tile_key in keys else None
    return _answer(given.tile_key, keys, held, count=count)


def _table(held: Any, key: str) -> Any:
    return None if held is None or key not in held.tables else held.tables[key]


@nova_tool(
    "check_patch_features_key_in_wsi_tool",
    version="1.0.0",
    summary="Check if patch features exist for a specific key in WSI.",
    resources=SMALL,
)
def check_features(given: FeaturesKeyInput, context: ToolContext) -> CheckResult:
    """Tables of features."""
    held = _store(given, context)
    table = _table(held, given.patch_features_key)
    keys = [] if held is None else list(held.tables)
    sizes = {} if table is None else {"count": table.shape[0], "dimension": table.shape[1]}
    return _answer(given.patch_features_key, keys, held, **sizes)


SLIDE = "slide_features_"


@nova_tool(
    "check_slide_features_key_in_wsi_tool",
    version="1.0.0",
    summary="Check if slide-level features exist for a specific key in WSI.",
    resources=SMALL,
)
def check_slide(given: SlideKeyInput, context: ToolContext) -> CheckResult:
    """Vectors of the slide, kept with the features they were made of."""
    held = _store(given, context)
    table = _table(held, given.patch_features_key)
    marks = [] if table is None else [key for key in table.uns if key.startswith(SLIDE)]
    keys = [key.removeprefix(SLIDE) for key in marks]
    vector = table.uns[SLIDE + given.slide_features_key] if given.slide_features_key in keys else []
    return _answer(given.slide_features_key, keys, held, dimension=len(vector) or None)


@nova_tool(
    "check_clustering_key_in_wsi_tool",
    version="1.0.0",
    summary="Check if clustering results exist for a specific key in WSI.",
    resources=SMALL,
)
def check_clusters(given: ClusterKeyInput, context: ToolContext) -> CheckResult:
    """Categories of tiles beside their identity."""
    held = _store(given, context)
    table = _table(held, given.patch_features_key)
    own = (store.REGION,)
    columns = [] if table is None else list(table.obs.columns)
    keys = [c for c in columns if c not in own and str(table.obs[c].dtype) == "category"]
    known = given.clustering_key in keys
    count = int(table.obs[given.clustering_key].nunique()) if known else None
    return _answer(given.clustering_key, keys, held, count=count)


@nova_tool(
    "check_reduction_key_in_wsi_tool",
    version="1.0.0",
    summary="Check if dimensionality reduction results exist for a specific key in WSI.",
    resources=SMALL,
)
def check_reduction(given: ReductionKeyInput, context: ToolContext) -> CheckResult:
    """Reductions of the features."""
    held = _store(given, context)
    table = _table(held, given.patch_features_key)
    keys = [] if table is None else [key for key in table.obsm if key != "spatial"]
    known = given.reduction_key in keys
    sizes = {}
    if known:
        rows, dimension = table.obsm[given.reduction_key].shape
        sizes = {"count": int(rows), "dimension": int(dimension)}
    return _answer(given.reduction_key, keys, held, **sizes)
