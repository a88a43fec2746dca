"""One slide: properties, tissue, tiles, features, its own vector, its store, a region."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field

from mcp_servers.context import ToolContext
from mcp_servers.pathology.common import Device, Given
from mcp_servers.spec import InputPath, OutputName, Resources
from sage.core.errors import InputError
from sage_nova.tools import store
from sage_nova.tools.common import (
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
from sage_nova.tools.weights import (
    PatchEncoder,
    SlideEncoder,
    encode_slide,
    encoder_memory,
    patch_encoder,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mcp_servers.slides.slide import Slide


class LevelInfo(BaseModel):
    """One stored resolution."""

    level: int
    img_width_at_level: int
    img_height_at_level: int
    downsample_to_level_wrt_level0: float
    mpp_at_level: float | None
    magnification_at_level: float | None


class PropertiesInput(WsiInput):
    """Which slide, and which parts of its store to count."""

    tissue_key: str | None = Field(default=None, pattern=KEY)
    tile_key: str | None = Field(default=None, pattern=KEY)
    patch_features_key: str | None = Field(default=None, pattern=KEY)


class PropertiesResult(NovaResult):
    """Properties of the slide and, for the keys that were named, of its store."""

    slide_name: str
    n_levels: int
    base_width: int
    base_height: int
    base_magnification: float | None = Field(
        description="The file's objective power, else 10 / µm per pixel"
    )
    base_mpp: float | None = Field(description="Mean of both axes, µm per pixel")
    mpp_x: float | None
    mpp_y: float | None
    levels: dict[str, LevelInfo]
    file_format: str
    vendor: str | None = Field(description="Scanner vendor as OpenSlide detects it")
    openslide_compatible: bool
    objective_power: float | None
    file_suffix: str
    wsi_reader_name: str
    n_tissues: int | None = None
    n_tiles: int | None = None
    patch_features_exist: bool | None = None
    patch_features_embedding_dim: int | None = None
    asset_dict_path: OutputName


@nova_tool(
    "retrieve_properties_from_wsi_tool",
    version="1.0.0",
    summary="Retrieve metadata and properties from a single WSI file: levels, sizes, µm per pixel, "
    "magnification, format, vendor; counts of tissue, tiles, features in its store.",
    resources=Resources(memory_mb=256, seconds_per_item=0.1),
)
def retrieve_properties(given: PropertiesInput, context: ToolContext) -> PropertiesResult:
    """Properties of one slide, also written as JSON."""
    slide, job = slide_of(given, context), Job(given.job_dir, context)
    has = slide.properties()
    vendor, pair = _openslide(slide)
    power = has.objective_power or (None if has.mpp is None else 10 / has.mpp)
    levels = {
        f"level_{number}": LevelInfo(
            level=number,
            img_width_at_level=level.width,
            img_height_at_level=level.height,
            downsample_to_level_wrt_level0=level.downsample,
            mpp_at_level=None if has.mpp is None else has.mpp * level.downsample,
            magnification_at_level=None if power is None else power / level.downsample,
        )
        for number, level in enumerate(has.levels)
    }
    name = job.out(f"{slide.name}/{slide.name}_properties.json")
    mpp_x, mpp_y = pair if pair is not None and given.base_mpp is None else (has.mpp, has.mpp)
    result = PropertiesResult(
        slide_name=slide.name,
        n_levels=len(levels),
        base_width=has.width,
        base_height=has.height,
        base_magnification=power,
        base_mpp=has.mpp,
        mpp_x=mpp_x,
        mpp_y=mpp_y,
        levels=levels,
        file_format=has.format,
        vendor=vendor,
        openslide_compatible=vendor is not None,
        objective_power=has.objective_power,
        file_suffix=slide.path.suffix,
        wsi_reader_name=has.backend,
        asset_dict_path=name,
        warnings=list(has.warnings),
    )
    asked = (given.tissue_key, given.tile_key, given.patch_features_key)
    if any(asked) and job.find(store.store_name(slide)) is not None:
        held = store.load_store(job, slide)
        if given.tissue_key in held.shapes:
            result.n_tissues = len(held.shapes[given.tissue_key])
        if given.tile_key in held.shapes:
            result.n_tiles = len(held.shapes[given.tile_key])
        if given.patch_features_key:
            result.patch_features_exist = given.patch_features_key in held.tables
            if result.patch_features_exist:
                table = held.tables[given.patch_features_key]
                result.patch_features_embedding_dim = int(table.shape[1])
    with context.writing(name) as path:
        path.write_text(result.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return result


def _openslide(slide: Slide) -> tuple[str | None, tuple[float, float] | None]:
    """The vendor and the pixel's sides in µm as OpenSlide reads them; None where it cannot."""
    from mcp_servers.slides.others import OpenSlideSource

    try:
        with contextlib.closing(OpenSlideSource(slide.path)) as read:
            x, y = (read.properties.get(f"openslide.mpp-{axis}") for axis in "xy")
            pair = None if x is None or y is None else (float(x), float(y))
            return read.properties.get("openslide.vendor"), pair
    except (ValueError, OSError):  # InputError is a ValueError
        return None, None


class StoreInput(WsiInput):
    """A slide whose store is made or read."""

    load_from_src: bool = Field(
        default=True, description="Keep what the job's store has; false: begin a new store"
    )
    overwrite: bool = Field(default=False, description="Compute again what is there")


class TissueInput(StoreInput):
    """Where the tissue goes, and what counts as tissue."""

    tissue_key: str = Field(default=TISSUES, pattern=KEY)
    min_area_um2: float = Field(default=20_000.0, ge=0, description="Smaller pieces are dropped")


class TissueResult(NovaResult):
    """The regions of tissue."""

    wsi_store_path: OutputName
    tissue_key: str
    tissue_ids: list[int]
    total_area_mm2: float | None
    method: str = "classical"


@nova_tool(
    "extract_tissue_in_wsi_tool",
    version="1.0.0",
    summary="Perform tissue segmentation on a single WSI file; each region with tissue_id, "
    "geometry, area, area_filled, convex_area, solidity, convexity, perimeter, axes, eccentricity "
    "in level-0 pixels, under shapes[tissue_key] of its zarr store.",
    resources=Resources(memory_mb=1536, seconds_per_item=5.0),
)
def extract_tissue(given: TissueInput, context: ToolContext) -> TissueResult:
    """Tissue of one slide into its store."""
    slide, job = slide_of(given, context), Job(given.job_dir, context)
    log = []
    if given.load_from_src and not given.overwrite and job.find(store.store_name(slide)):
        held = store.load_store(job, slide)
        if given.tissue_key in held.shapes:
            frame = held.shapes[given.tissue_key]
            log.append(f"{given.tissue_key} was there; not computed again")
            name = store.save(job, slide, {}, context, fresh=False)
            return _told(slide, frame, name, given.tissue_key, log, [])
    frame, warnings = tissue_frame(slide, given.min_area_um2)
    if frame is None:
        raise InputError(f"{slide.path}: no tissue was found, so that there is nothing to store")
    fresh = not given.load_from_src
    name = store.save(job, slide, {given.tissue_key: frame}, context, fresh)
    log.append(f"{len(frame)} regions of tissue")
    return _told(slide, frame, name, given.tissue_key, log, warnings)


def tissue_frame(slide: Slide, min_area_um2: float) -> tuple[Any, list[str]]:
    """The shapes element of a slide's tissue, None where there is none, and warnings.

    `convexity` is LazySlide's: the area of the convex hull over the region's own, at least 1;
    `solidity` its inverse; `perimeter` that of the outer ring.
    """
    import numpy as np
    import shapely

    from mcp_servers.pathology.tissue import slide_tissue, tissue_warnings
    from mcp_servers.slides.geometry import mask_polygons

    found, view = slide_tissue(slide, min_area_um2=min_area_um2)
    polygons = mask_polygons(found.mask, view.scale, simplify_px=0.7)
    warnings = [*slide.warnings, *tissue_warnings(found)]
    shapes = [shapely.make_valid(shapely.Polygon(p.exterior, p.holes)) for p in polygons]
    shapes = [largest(shape) for shape in shapes]
    if not shapes:
        return None, warnings
    rows = [measures(shape) for shape in shapes]
    columns = {key: np.array([row[key] for row in rows]) for key in rows[0]}
    columns = {"tissue_id": np.arange(len(shapes)), **columns}
    return store.shapes_frame(columns, shapes, slide.mpp), warnings


def largest(shape: Any) -> Any:
    """The largest polygon of a shape."""
    parts = [part for part in getattr(shape, "geoms", [shape]) if part.geom_type == "Polygon"]
    return max(parts, key=lambda part: part.area)


def measures(shape: Any) -> dict[str, float]:
    """Measures of a polygon in the unit of its coordinates; axes and eccentricity are those of the
    ellipse with the same second moments."""
    import shapely

    from sage_nova.tools.contours import ellipse

    outer, hull = shapely.Polygon(shape.exterior), shape.convex_hull
    major, minor, turn = ellipse(list(outer.exterior.coords))
    return {
        "area": shape.area,
        "area_filled": outer.area,
        "convex_area": hull.area,
        "solidity": shape.area / hull.area,
        "convexity": hull.area / shape.area,
        "perimeter": outer.length,
        "convex_perimeter": hull.length,
        "axis_major_length": major,
        "axis_minor_length": minor,
        "eccentricity": (1 - (minor / major) ** 2) ** 0.5 if major > 0 else 0.0,
        "orientation": turn,
        "holes": float(len(shape.interiors)),
    }


def _told(
    slide: Slide, frame: Any, name: str, key: str, log: list[str], warnings: list[str]
) -> TissueResult:
    area = None
    if slide.mpp is not None:
        area = float(frame["area"].sum()) * (slide.mpp / 1000) ** 2
    return TissueResult(
        wsi_store_path=name,
        tissue_key=key,
        tissue_ids=[int(i) for i in frame["tissue_id"]],
        total_area_mm2=area,
        operations_log=log,
        warnings=warnings,
    )


class TilesInput(StoreInput):
    """How the tissue is cut."""

    tissue_key: str = Field(default=TISSUES, pattern=KEY)
    tile_key: str = Field(default=TILES, pattern=KEY)
    tile_px: int = Field(default=256, ge=16, le=4096, description="Side in pixels at mpp")
    mpp: float = Field(default=0.5, gt=0, le=32, description="µm per pixel of the tiles")
    overlap: float = Field(default=0.0, ge=0, lt=1, description="Share of a tile that overlaps")
    min_tissue: float = Field(default=0.5, ge=0, le=1, description="Least share of tissue")


class TilesResult(NovaResult):
    """How many tiles there are."""

    wsi_store_path: OutputName
    tissue_key: str
    tile_key: str
    num_patches: int
    tile_px_level0: int


@nova_tool(
    "extract_tissue_tiles_in_wsi_tool",
    version="1.0.0",
    summary="Extract tissue tiles/patches from a single WSI file: squares with tile_id, tissue_id, "
    "geometry (level-0 pixels) under shapes[tile_key] of its zarr store.",
    resources=Resources(memory_mb=1536, seconds_per_item=5.0),
)
def extract_tiles(given: TilesInput, context: ToolContext) -> TilesResult:
    """Tiles over the stored tissue."""
    import numpy as np
    import shapely

    from mcp_servers.pathology.tiles import TilesInput as Cut
    from mcp_servers.pathology.tiles import every_tile

    slide, job = slide_of(given, context), Job(given.job_dir, context)
    held = store.load_store(job, slide)
    tissue = store.tissues_of(held, given.tissue_key)
    log = []
    if given.tile_key in held.shapes and not given.overwrite:
        frame = held.shapes[given.tile_key]
        log.append(f"{given.tile_key} was there; not computed again")
        new = {}
    else:
        overlap = round(given.overlap * given.tile_px)
        cut = Cut(slide=given.wsi_path, tile_px=given.tile_px, at_mpp=given.mpp, overlap_px=overlap)
        corners, described = every_tile(slide, cut)
        side = described.patch_size_level0
        x, y = corners[:, 0], corners[:, 1]
        squares = shapely.box(x, y, x + side, y + side)
        tree = shapely.STRtree(list(tissue.geometry))
        share = np.zeros(len(squares))
        best, owner = np.zeros(len(squares)), np.full(len(squares), -1)
        for square, region in zip(*tree.query(squares, predicate="intersects"), strict=True):
            part = squares[square].intersection(tissue.geometry.iloc[region]).area / side**2
            share[square] += part
            if part > best[square]:
                best[square], owner[square] = part, int(tissue["tissue_id"].iloc[region])
        keep = share >= max(given.min_tissue, 1e-9)
        if not keep.any():
            raise InputError(
                f"{slide.path}: no tile of {given.tile_px} px at {given.mpp:g} µm per pixel has "
                f"{given.min_tissue:.0%} tissue; take smaller tiles or a lower min_tissue"
            )
        columns = {
            "tile_id": np.arange(int(keep.sum())),
            "tissue_id": owner[keep],
            "tissue_fraction": share[keep],
        }
        frame = store.shapes_frame(columns, squares[keep], slide.mpp)
        log.append(f"{len(frame)} of {len(squares)} tiles have enough tissue")
        new = {given.tile_key: frame}
    return TilesResult(
        wsi_store_path=store.save(job, slide, new, context, fresh=False),
        tissue_key=given.tissue_key,
        tile_key=given.tile_key,
        num_patches=len(frame),
        tile_px_level0=store.side_of(frame),
        operations_log=log,
    )


class FeaturesInput(StoreInput):
    """Which encoder, over which tiles."""

    tissue_key: str = Field(default=TISSUES, pattern=KEY)
    tile_key: str = Field(default=TILES, pattern=KEY)
    patch_features_key: str | None = Field(
        default=None, pattern=KEY, description="MODEL_TILEKEY when absent"
    )
    model: PatchEncoder = Field(
        default="conch_v15", description="handcrafted needs no weights, and is used only if named"
    )
    weights: InputPath | None = Field(default=None, description="Folder or file of its weights")
    hub: str | None = Field(default=None, max_length=200, description="OWNER/NAME in hub's cache")
    device: Device = "auto"


class FeaturesResult(NovaResult):
    """Features of the tiles."""

    wsi_store_path: OutputName
    tissue_key: str
    tile_key: str
    patch_features_key: str
    num_patches: int
    embedding_dim: int
    model: str
    license: str
    tcga_overlap: str


@nova_tool(
    "extract_patch_features_in_wsi_tool",
    version="1.0.0",
    summary="Extract patch-level features from a single WSI using foundation models (the user's "
    "weights) into an AnnData under tables[patch_features_key] of its zarr store.",
    resources=Resources(cpu=2, memory_mb=4096, gpu="optional", seconds_per_item=60.0),
    memory_mb=encoder_memory,
)
def extract_features(given: FeaturesInput, context: ToolContext) -> FeaturesResult:
    """Features of one slide's stored tiles."""
    import numpy as np

    slide, job = slide_of(given, context), Job(given.job_dir, context)
    held = store.load_store(job, slide)
    store.tissues_of(held, given.tissue_key)
    tiles = store.tiles_of(held, given.tile_key)
    key = given.patch_features_key or f"{given.model}_{given.tile_key}"
    if key in held.tables and not given.overwrite:
        table, new = held.tables[key], {}
        log = [f"{key} was there; not computed again"]
    else:
        made = tile_features(slide, tiles, given, context)
        table = store.features_table(made, tiles, given.tile_key, given.model)
        new, log = {key: table}, [f"{len(made)} tiles encoded by {given.model}"]
    from sage_nova.tools.weights import SPECS

    spec = SPECS[given.model]
    return FeaturesResult(
        wsi_store_path=store.save(job, slide, new, context, fresh=False),
        tissue_key=given.tissue_key,
        tile_key=given.tile_key,
        patch_features_key=key,
        num_patches=int(np.shape(table)[0]),
        embedding_dim=int(np.shape(table)[1]),
        model=given.model,
        license=spec.license,
        tcga_overlap=spec.tcga_overlap,
        operations_log=log,
    )


def tile_features(slide: Slide, tiles: Any, given: FeaturesInput, context: ToolContext) -> Any:
    """(tiles, dimension) features of the squares of a shapes element.

    Parameters
    ----------
    slide : the slide
    tiles : squares in level-0 pixels
    given : encoder, weights, device
    context : roots, progress
    """
    side = store.side_of(tiles)
    return square_features(slide, store.corners(tiles), side, given, context)


def square_features(slide: Slide, corners: Any, side: int, given: Any, context: ToolContext) -> Any:
    """(n, dimension) features of squares, read at about the encoder's own size.

    Parameters
    ----------
    slide : the slide
    corners : (n, 2) upper left, level-0 pixels
    side : of the squares, level-0 pixels
    given : model, weights, hub, device
    context : roots, progress
    """
    import numpy as np

    from mcp_servers.pathology.batches import batches
    from sage_nova.tools.weights import SPECS

    px = min(side, SPECS[given.model].patch_px)
    mpp = slide.need_mpp() * side / px
    encoder = patch_encoder(given.model, given.weights, given.hub, given.device, mpp, context)
    out = []
    for done, batch in batches(squares(slide, corners, side, px), 32, np.stack):
        out.append(encoder.encode(batch))
        context.progress(done / len(corners), "encoding")
    return np.concatenate(out).astype(np.float32)


def squares(slide: Slide, corners: Any, side: int, px: int) -> Iterator[Any]:
    """Images (px, px, 3) of squares of `side` level-0 pixels.

    Parameters
    ----------
    slide : the slide
    corners : (n, 2) upper left, level-0 pixels
    side : level-0 pixels
    px : pixels a side of the images
    """
    view = slide.scaled(side / px)
    for x, y in corners:
        yield view.read(round(x / view.scale), round(y / view.scale), px, px)


class EncodeInput(StoreInput):
    """Which slide encoder, over which features."""

    tissue_key: str = Field(default=TISSUES, pattern=KEY)
    tile_key: str = Field(default=TILES, pattern=KEY)
    patch_features_key: str = Field(default=FEATURES, pattern=KEY)
    slide_encoder: SlideEncoder = Field(
        default="titan", description="mean needs no weights, and is used only if named"
    )
    slide_features_key: str | None = Field(
        default=None, pattern=KEY, description="The encoder's name when absent"
    )
    weights: InputPath | None = Field(default=None, description="ONNX or TorchScript file")
    hub: str | None = Field(default=None, max_length=200, description="OWNER/NAME in hub's cache")


class EncodeResult(NovaResult):
    """The slide's vector."""

    wsi_store_path: OutputName
    slide_features_key: str
    patch_features_key: str
    embedding_dim: int
    slide_encoder: str
    features_path: OutputName = Field(description="HDF5, dataset features of (dimension,)")


@nova_tool(
    "encode_wsi_tool",
    version="1.0.0",
    summary="Encode a single WSI with slide-level features: the user's TITAN, PRISM, MADELEINE or "
    "GigaPath graph, or the mean of its patch features; kept in uns[slide_features_KEY].",
    resources=Resources(memory_mb=4096, seconds_per_item=5.0),
)
def encode_wsi(given: EncodeInput, context: ToolContext) -> EncodeResult:
    """The vector of one slide."""
    import h5py
    import numpy as np

    slide, job = slide_of(given, context), Job(given.job_dir, context)
    held = store.load_store(job, slide)
    tiles = store.tiles_of(held, given.tile_key)
    table = store.features_of(held, given.patch_features_key)
    features = np.asarray(table.X, dtype=np.float32)
    side = store.side_of(tiles)
    vector = encode_slide(
        given.slide_encoder, features, store.corners(tiles), side, given.weights, given.hub, context
    )
    key = given.slide_features_key or given.slide_encoder
    # varm has a row per feature; a vector of another length goes to uns beside its mark
    table.uns[f"slide_features_{key}"] = vector
    if len(vector) == table.shape[1]:
        table.varm[key] = vector[:, None]
    name = job.out(f"{slide.name}_{key}_slide_features.h5")
    saved = store.save(job, slide, {given.patch_features_key: table}, context, fresh=False)
    with context.writing(name) as path, h5py.File(path, "w") as file:
        data = file.create_dataset("features", data=vector)
        data.attrs["encoder"] = given.slide_encoder
    return EncodeResult(
        wsi_store_path=saved,
        slide_features_key=key,
        patch_features_key=given.patch_features_key,
        embedding_dim=len(vector),
        slide_encoder=given.slide_encoder,
        features_path=name,
        operations_log=[f"{len(features)} tiles into one vector by {given.slide_encoder}"],
    )


class ZarrInput(Given):
    """A store."""

    path: InputPath = Field(description="Folder of a zarr store")


class ZarrNode(BaseModel):
    """A group or array of a store."""

    path: str
    kind: str = Field(description="group or array")
    shape: list[int] | None = None
    dtype: str | None = None


class HierarchyResult(NovaResult):
    """What a store holds."""

    nodes: list[ZarrNode]
    tree: str = Field(description="One line per node, indented")


MOST_NODES = 2000


@nova_tool(
    "access_zarr_hierarchy",
    version="1.0.0",
    summary="Access and explore the hierarchical structure of WSI Zarr files.",
    resources=Resources(memory_mb=256),
)
def access_zarr(given: ZarrInput, context: ToolContext) -> HierarchyResult:
    """Groups and arrays of a store, depth first."""
    from sage.core.extras import need

    need("spatialdata", "a zarr store")
    import zarr

    folder = context.input(given.path, "folder")
    try:
        root = zarr.open_group(str(folder), mode="r")
        members = sorted(root.members(max_depth=None), key=lambda pair: pair[0])
    except Exception as error:  # zarr has errors of its own for what is no store
        raise InputError(f"{given.path}: not a readable zarr store: {error}") from error
    nodes = []
    for name, node in members[:MOST_NODES]:
        array = isinstance(node, zarr.Array)
        shape = [int(n) for n in node.shape] if isinstance(node, zarr.Array) else None
        kind = "array" if array else "group"
        dtype = str(node.dtype) if isinstance(node, zarr.Array) else None
        nodes.append(ZarrNode(path=name, kind=kind, shape=shape, dtype=dtype))
    lines = [
        "  " * node.path.count("/")
        + node.path.rpartition("/")[2]
        + ("" if node.shape is None else f" {tuple(node.shape)} {node.dtype}")
        for node in nodes
    ]
    more = len(members) - len(nodes)
    warnings = [f"{more} further nodes are not listed"] if more else []
    return HierarchyResult(nodes=nodes, tree="\n".join(lines), warnings=warnings)


class ReadInput(ZarrInput):
    """An element of the store, by its key."""

    key: str | None = Field(
        default=None, max_length=200, description="tissues or shapes/tissues; all when absent"
    )
    start: int = Field(default=0, ge=0, description="First row of a table or shapes element")
    rows: int = Field(default=100, ge=1, le=20_000, description="How many rows to give")


class ElementInfo(BaseModel):
    """One element."""

    key: str
    kind: str
    rows: int
    columns: list[str]


class ReadResult(NovaResult):
    """The store's elements and, for one that was named, its rows."""

    data_str: str = Field(description="The store in words")
    elements: list[ElementInfo]
    rows: list[dict[str, Any]] = Field(description="Of the named element; shapes with WKT geometry")
    total_rows: int | None = None
    table_csv: OutputName | None = Field(default=None, description="All rows of the element")


@nova_tool(
    "read_zarr_data_tool",
    version="1.0.0",
    summary="Read data from a Zarr file: its elements, and the rows of one of them (shapes with "
    "geometry as WKT; tables with obs, features f0..., reductions).",
    resources=Resources(memory_mb=1024),
)
def read_zarr(given: ReadInput, context: ToolContext) -> ReadResult:
    """Elements of a store, and rows of one."""
    held = store.read_store(context.input(given.path, "folder"))
    infos = []
    for kind in ("shapes", "points", "tables"):
        for key, part in getattr(held, kind).items():
            names = list(part.obs.columns) if kind == "tables" else list(part.columns)
            infos.append(ElementInfo(key=key, kind=kind, rows=len(part), columns=names))
    result = ReadResult(data_str=str(held), elements=infos, rows=[])
    if given.key is None:
        return result
    found = next((one for one in infos if given.key in (one.key, f"{one.kind}/{one.key}")), None)
    if found is None:
        have = ", ".join(info.key for info in infos) or "nothing"
        raise InputError(f'{given.path}: has no element "{given.key}" (it has: {have})')
    frame = as_frame(held[found.key])
    result.total_rows = len(frame)
    part = frame.iloc[given.start : given.start + given.rows]
    import json

    result.rows = json.loads(part.to_json(orient="records", double_precision=10))
    name = f"{_safe(given.path)}.{found.key}.csv"
    with context.writing(name) as path:
        frame.to_csv(path, index=False)
    result.table_csv = name
    return result


def _safe(text: str) -> str:
    return text.strip("/").rpartition("/")[2].removesuffix(".zarr")


def as_frame(part: Any) -> Any:
    """An element as a plain table."""
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


class Region(Given):
    """A rectangle: its corner in level-0 pixels, its sides in pixels of a level."""

    top_left_x: int
    top_left_y: int
    base_width: int = Field(ge=1, le=16_384, description="Pixels of base_level")
    base_height: int = Field(ge=1, le=16_384, description="Pixels of base_level")
    base_level: int = Field(default=0, ge=0)


class RegionInput(WsiInput):
    """Which rectangle."""

    region: Region
    custom_save_dir: str | None = Field(
        default=None, max_length=500, description="Folder below the output; the job's when absent"
    )


class RegionResult(NovaResult):
    """The image."""

    region_save_path: OutputName
    mpp_at_level: float | None


@nova_tool(
    "read_rectangle_region_from_wsi_tool",
    version="1.0.0",
    summary="Extract rectangular regions from WSI at specified coordinates and magnification, as "
    "PNG; the corner in level-0 pixels, the sides in pixels of base_level.",
    resources=Resources(memory_mb=1024, seconds_per_item=0.1),
)
def read_region(given: RegionInput, context: ToolContext) -> RegionResult:
    """One rectangle of one slide."""
    from mcp_servers.formats.images import write_png

    slide, job = slide_of(given, context), Job(given.job_dir, context)
    part = given.region
    image = slide.read(
        part.top_left_x, part.top_left_y, part.base_width, part.base_height, part.base_level
    )
    down, warnings = slide.levels[part.base_level].downsample, list(slide.warnings)
    right, bottom = (
        part.top_left_x + part.base_width * down,
        part.top_left_y + part.base_height * down,
    )
    size = f"the slide of {slide.width} x {slide.height} px"
    if max(part.top_left_x - slide.width, part.top_left_y - slide.height, -right, -bottom) >= 0:
        raise InputError(
            f"the region at ({part.top_left_x}, {part.top_left_y}) lies outside {size}"
        )
    if min(part.top_left_x, part.top_left_y, slide.width - right, slide.height - bottom) < 0:
        warnings.append(f"a part of the region lies outside {size} and is blank")
    file = (
        f"{slide.name}_region_x{part.top_left_x}_y{part.top_left_y}"
        f"_H{part.base_height}_W{part.base_width}.png"
    )
    name = job.out(file) if given.custom_save_dir is None else f"{given.custom_save_dir}/{file}"
    with context.writing(name) as path:
        write_png(path, image)
    mpp = None if slide.mpp is None else slide.mpp * down
    return RegionResult(region_save_path=name, mpp_at_level=mpp, warnings=warnings)
