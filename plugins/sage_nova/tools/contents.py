"""Tools that look into a slide's store: checks for keys, its hierarchy, and rows of its elements.

A check reports a missing store or key as a result, not as an error.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BaseModel, Field, create_model

from mcp_servers.context import ToolContext
from mcp_servers.pathology.common import Given
from mcp_servers.spec import InputPath, OutputName, Resources
from sage.core.errors import InputError
from sage_nova.tools import declare as nova
from sage_nova.tools.slide import SLIDE_FEATURES
from sage_nova.tools.store import Store, read_store

MOST_NODES = 2000
Found = dict[str, dict[str, int]]
"""Keys found, with `count` (regions, tiles, rows, clusters) and vector `dimension`."""


def _list_shapes(held: Any, tiles: bool) -> Found:
    shapes = held.shapes.items()
    return {k: {"count": len(part)} for k, part in shapes if ("tile_id" in part.columns) == tiles}


def _list_clusters(_: Any, table: Any) -> Found:
    kinds = {name: table.obs[name] for name in table.obs.columns if name != "library_id"}
    return {k: {"count": v.nunique()} for k, v in kinds.items() if str(v.dtype) == "category"}


def _size(values: Any) -> dict[str, int]:
    return {"count": int(values.shape[0]), "dimension": int(values.shape[1])}


CHECKS: tuple[tuple[str, str, str, str | None, Callable[[Any, Any], Found]], ...] = (
    ("tissue_segmentation", "tissue segmentation results", "tissue_key", nova.TISSUES,
     lambda held, _: _list_shapes(held, tiles=False)),
    ("tile", "tile extraction results", "tile_key", nova.TILES,
     lambda held, _: _list_shapes(held, tiles=True)),
    ("patch_features", "patch features", "patch_features_key", nova.FEATURES,
     lambda held, _: {key: _size(part) for key, part in held.tables.items()}),
    ("slide_features", "slide-level features", "slide_features_key", None,
     lambda _, table: {key.removeprefix(SLIDE_FEATURES): {"dimension": len(values)}
                       for key, values in table.uns.items() if key.startswith(SLIDE_FEATURES)}),
    ("clustering", "clustering results", "clustering_key", None, _list_clusters),
    ("reduction", "dimensionality reduction results (X_pca ...)", "reduction_key", None,
     lambda _, table: {key: _size(v) for key, v in table.obsm.items() if key != "spatial"}),
)  # fmt: skip
"""Name, contents, argument, default, and key-listing function of each check."""


def _make_check(
    name: str, contents: str, argument: str, default: str | None, list_keys: Callable[..., Found]
) -> Callable[..., nova.Result]:
    fields: dict[str, Any] = {argument: (nova.Key, default or ...)}
    if default is None:
        fields["patch_features_key"] = (nova.Key, nova.FEATURES)

    def check(given: Any, context: ToolContext) -> nova.Result:
        store, key = Store(given, context), getattr(given, argument)
        held, log, found = store.held, list[str](), {}
        if held is None:
            log.append(f"the job has no store for this slide{nova.ELSEWHERE}")
        else:
            table = held.tables.get(getattr(given, "patch_features_key", ""))
            found = list_keys(held, table) if default or table is not None else {}
        sizes = {"count": None, "dimension": None, **found.get(key, {})}
        return {
            "exists": key in found, "key": key, "available_keys": sorted(found), **sizes,
            "operations_log": log,
        }  # fmt: skip

    check.__annotations__["given"] = create_model(f"{argument}s", __base__=nova.WsiInput, **fields)
    check.__doc__ = f"Check if {contents} exist for a specific key in WSI."
    counted = "Number of regions, tiles, rows or clusters"
    return nova.tool(
        f"check_{name}_key_in_wsi_tool", Resources(memory_mb=512), exists=bool, key=str,
        available_keys=list[str], count=Annotated[int | None, Field(description=counted)],
        dimension=int | None,
    )(check)  # fmt: skip


(
    check_tissue, check_tiles, check_features, check_slide, check_clusters, check_reduction,
) = (_make_check(*row) for row in CHECKS)  # fmt: skip


class ZarrInput(Given):
    """A zarr store to explore."""

    path: InputPath = Field(description="Folder of a zarr store")


class ZarrNode(BaseModel):
    """A group or array in a store."""

    path: str
    kind: str = Field(description="Kind of node: group or array")
    shape: list[int] | None = None
    dtype: str | None = None


@nova.tool(
    "access_zarr_hierarchy", Resources(memory_mb=256), nodes=list[ZarrNode],
    tree=nova.described(str, "One line per node, indented"),
)  # fmt: skip
def access_zarr(given: ZarrInput, context: ToolContext) -> nova.Result:
    """Access and explore the hierarchical structure of WSI Zarr files."""
    from sage.core.extras import require_extra

    require_extra("spatialdata", "a zarr store")
    import zarr

    folder = context.input(given.path, "folder")
    try:
        root = zarr.open_group(str(folder), mode="r")
        members = sorted(root.members(max_depth=None), key=lambda pair: pair[0])
    except Exception as error:  # zarr raises errors of its own for folders that are not stores
        raise InputError(f"{given.path}: not a readable zarr store: {error}") from error
    nodes, lines = [], []
    for name, node in members[:MOST_NODES]:
        item, line = ZarrNode(path=name, kind="group"), name.rpartition("/")[2]
        if isinstance(node, zarr.Array):
            shape = [int(n) for n in node.shape]
            item = ZarrNode(path=name, kind="array", shape=shape, dtype=str(node.dtype))
            line += f" {tuple(shape)} {item.dtype}"
        nodes.append(item)
        lines.append("  " * name.count("/") + line)
    more = len(members) - len(nodes)
    warnings = [f"{more} more nodes are not listed"] if more else []
    return {"nodes": nodes, "tree": "\n".join(lines), "warnings": warnings}


class ElementInfo(BaseModel):
    """An element in a store."""

    key: str
    kind: str
    rows: int
    columns: list[str]


@nova.tool(
    "read_zarr_data_tool", Resources(memory_mb=1024),
    data_str=nova.described(str, "Description of the store"), elements=list[ElementInfo],
    rows=nova.described(list[dict[str, Any]], "Rows of the requested element; shapes have WKT "
        "geometry"),
    total_rows=int | None, table_csv=nova.described(OutputName | None, "All rows of the element"),
)  # fmt: skip
def read_zarr(
    given: ZarrInput, context: ToolContext, *,
    key: Annotated[str | None,
        Field(max_length=200, description="tissues or shapes/tissues; default: all")] = None,
    start: Annotated[int, Field(ge=0, description="First row of a table or shapes element")] = 0,
    rows: Annotated[int, Field(ge=1, le=20_000, description="Number of rows")] = 100,
) -> nova.Result:  # fmt: skip
    """Read data from a Zarr file: its elements, and the rows of the requested element.

    Rows of shapes have geometry as WKT; rows of tables have obs, features f0 ..., and reductions.
    """
    held = read_store(context.input(given.path, "folder"))
    infos = []
    for kind in ("shapes", "points", "tables"):
        for name, part in getattr(held, kind).items():
            columns = list(part.obs.columns if kind == "tables" else part.columns)
            infos.append(ElementInfo(key=name, kind=kind, rows=len(part), columns=columns))
    result = {
        "data_str": str(held), "elements": infos, "rows": [], "total_rows": None, "table_csv": None
    }  # fmt: skip
    if key is None:
        return result
    found = next((info for info in infos if key in (info.key, f"{info.kind}/{info.key}")), None)
    if found is None:
        have = nova.list_choices([info.key for info in infos])
        raise InputError(f'{given.path}: unknown element "{key}"; available elements: {have}')
    frame = make_frame(held[found.key])
    part = frame.iloc[start : start + rows]
    stem = given.path.strip("/").rpartition("/")[2].removesuffix(".zarr")
    name = f"{stem}.{found.key}.csv"
    with context.writing(name) as path:
        frame.to_csv(path, index=False)
    records = json.loads(part.to_json(orient="records", double_precision=10))
    return result | {"total_rows": len(frame), "rows": records, "table_csv": name}


def make_frame(part: Any) -> Any:
    """Make a plain data frame from an element."""
    import numpy as np
    import pandas as pd

    if hasattr(part, "obs"):
        frame = part.obs.reset_index(drop=True).copy()
        for key, values in part.obsm.items():
            for i in range(np.shape(values)[1]):
                frame[f"{key}_{i}"] = np.asarray(values)[:, i]
        features = np.asarray(part.X)
        names = [f"f{i}" for i in range(features.shape[1])]
        return pd.concat([frame, pd.DataFrame(features, columns=names)], axis=1)
    if hasattr(part, "geometry"):
        frame = pd.DataFrame(part.drop(columns="geometry")).reset_index(drop=True)
        frame["geometry"] = part.geometry.to_wkt().to_numpy()
        return frame
    return part.compute()
