"""Checks for keys in a slide's store: tissue, tiles, features, clusters, and reductions.

A missing store or key is a result, not an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import Field, create_model

from mcp_servers.context import ToolContext
from mcp_servers.spec import Resources
from sage_nova.tools import store
from sage_nova.tools.common import (
    ELSEWHERE,
    FEATURES,
    KEY,
    TILES,
    TISSUES,
    NovaResult,
    WsiInput,
    nova_tool,
)

SLIDE = "slide_features_"
Found = dict[str, dict[str, int]]
"""Keys found, with `count` (regions, tiles, rows, clusters) and vector `dimension`.

Only features and reductions have a `dimension`.
"""


class CheckResult(NovaResult):
    """Existing keys, and whether the requested key exists."""

    exists: bool
    key: str
    available_keys: list[str]
    count: int | None = Field(
        default=None, description="Number of regions, tiles, rows or clusters"
    )
    dimension: int | None = Field(
        default=None, description="Dimension of the features or of the reduction"
    )


def _list_shapes(held: Any, tiles: bool) -> Found:
    return {
        key: {"count": len(frame)}
        for key, frame in held.shapes.items()
        if ("tile_id" in frame.columns) == tiles
    }


def _list_features(held: Any, table: Any) -> Found:
    return {
        key: {"count": part.shape[0], "dimension": part.shape[1]}
        for key, part in held.tables.items()
    }


def _list_slide_vectors(held: Any, table: Any) -> Found:
    marks = [key for key in table.uns if key.startswith(SLIDE)]
    return {key.removeprefix(SLIDE): {"dimension": len(table.uns[key])} for key in marks}


def _list_clusters(held: Any, table: Any) -> Found:
    columns = [name for name in table.obs.columns if name != store.REGION]
    kept = [name for name in columns if str(table.obs[name].dtype) == "category"]
    return {name: {"count": int(table.obs[name].nunique())} for name in kept}


def _list_reductions(held: Any, table: Any) -> Found:
    return {
        key: {"count": int(values.shape[0]), "dimension": int(values.shape[1])}
        for key, values in table.obsm.items()
        if key != "spatial"
    }


CHECKS: tuple[tuple[str, str, str, str | None, Callable[[Any, Any], Found]], ...] = (
    ("tissue_segmentation", "tissue segmentation results", "tissue_key", TISSUES,
     lambda held, _: _list_shapes(held, tiles=False)),
    ("tile", "tile extraction results", "tile_key", TILES,
     lambda held, _: _list_shapes(held, tiles=True)),
    ("patch_features", "patch features", "patch_features_key", FEATURES, _list_features),
    ("slide_features", "slide-level features", "slide_features_key", None, _list_slide_vectors),
    ("clustering", "clustering results", "clustering_key", None, _list_clusters),
    ("reduction", "dimensionality reduction results (X_pca ...)", "reduction_key", None,
     _list_reductions),
)  # fmt: skip
"""Name, contents, argument, default, and key-listing function of each check."""


def _make_check(
    name: str, contents: str, argument: str, default: str | None, list_keys: Callable[..., Found]
) -> object:
    fields: dict[str, Any] = {argument: (str, Field(default or ..., pattern=KEY))}
    if default is None:
        fields["patch_features_key"] = (str, Field(FEATURES, pattern=KEY))
    model = create_model(f"{argument}_input", __base__=WsiInput, **fields)

    def check(given: Any, context: ToolContext) -> CheckResult:
        slide, job = given.open(context)
        key, path = getattr(given, argument), job.find(store.store_name(slide))
        held = None if path is None else store.read_store(path)
        table = None if held is None else held.tables.get(getattr(given, "patch_features_key", ""))
        found = (
            {} if held is None or (default is None and table is None) else list_keys(held, table)
        )
        log = [] if held is not None else [f"the job has no store for this slide{ELSEWHERE}"]
        return CheckResult(
            exists=key in found, key=key, available_keys=sorted(found), operations_log=log,
            **found.get(key, {}),
        )  # fmt: skip

    check.__annotations__["given"] = model
    check.__doc__ = f"Check if {contents} exist for a specific key in WSI."
    return nova_tool(f"check_{name}_key_in_wsi_tool", Resources(memory_mb=512))(check)


(
    check_tissue, check_tiles, check_features, check_slide, check_clusters, check_reduction,
) = (_make_check(*row) for row in CHECKS)  # fmt: skip
