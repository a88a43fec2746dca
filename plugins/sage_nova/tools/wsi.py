"""Tools for a single slide: properties, tissue, tiles, features, vector, store, and regions."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field

from mcp_servers.context import ToolContext
from mcp_servers.pathology.common import Device, Given
from mcp_servers.spec import InputPath, OutputName, Resources
from sage.core.errors import InputError
from sage_nova.tools import contours, store
from sage_nova.tools.common import (
    FEATURES,
    KEY,
    TILES,
    TISSUES,
    NovaResult,
    WsiInput,
    nova_tool,
    write_json_output,
)
from sage_nova.tools.weights import (
    SPECS,
    ModelWeights,
    PatchEncoder,
    SlideEncoder,
    encode_slide,
    encoder_memory,
    load_patch_encoder,
)

if TYPE_CHECKING:
    from mcp_servers.slides.slide import Slide


class LevelInfo(BaseModel):
    """A stored resolution level."""

    level: int
    img_width_at_level: int
    img_height_at_level: int
    downsample_to_level_wrt_level0: float
    mpp_at_level: float | None
    magnification_at_level: float | None


class PropertiesInput(WsiInput):
    """A slide, and parts of its store to count."""

    tissue_key: str | None = Field(default=None, pattern=KEY)
    tile_key: str | None = Field(default=None, pattern=KEY)
    patch_features_key: str | None = Field(default=None, pattern=KEY)


class PropertiesResult(NovaResult):
    """Slide properties and, for given keys, counts from its store."""

    slide_name: str
    n_levels: int
    base_width: int
    base_height: int
    base_magnification: float | None = Field(
        description="Objective power from the file, or else 10 / µm per pixel"
    )
    base_mpp: float | None = Field(description="µm per pixel, averaged over both axes")
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


@nova_tool("retrieve_properties_from_wsi_tool", Resources(memory_mb=256, seconds_per_item=0.1))
def retrieve_properties(given: PropertiesInput, context: ToolContext) -> PropertiesResult:
    """Retrieve metadata and properties from a single WSI file.

    Returns levels, sizes, µm per pixel, magnification, format and vendor, and counts from its
    store.
    """
    slide, job = given.open(context)
    vendor, pair = _read_openslide(slide)
    power = slide.objective_power or (None if slide.mpp is None else 10 / slide.mpp)
    levels = {
        f"level_{number}": LevelInfo(
            level=number,
            img_width_at_level=level.width,
            img_height_at_level=level.height,
            downsample_to_level_wrt_level0=level.downsample,
            mpp_at_level=None if slide.mpp is None else slide.mpp * level.downsample,
            magnification_at_level=None if power is None else power / level.downsample,
        )
        for number, level in enumerate(slide.levels)
    }
    name = job.out(f"{slide.name}/{slide.name}_properties.json")
    mpp_x, mpp_y = pair if pair is not None and given.base_mpp is None else (slide.mpp, slide.mpp)
    result = PropertiesResult(
        slide_name=slide.name,
        n_levels=len(levels),
        base_width=slide.width,
        base_height=slide.height,
        base_magnification=power,
        base_mpp=slide.mpp,
        mpp_x=mpp_x,
        mpp_y=mpp_y,
        levels=levels,
        file_format=slide.format,
        vendor=vendor,
        openslide_compatible=vendor is not None,
        objective_power=slide.objective_power,
        file_suffix=slide.path.suffix,
        wsi_reader_name=slide.source.name,
        asset_dict_path=name,
        warnings=list(slide.warnings),
    )
    keys = (given.tissue_key, given.tile_key, given.patch_features_key)
    if any(keys) and job.find(store.store_name(slide)) is not None:
        held = store.load_store(job, slide)
        shapes, table = held.shapes, held.tables.get(given.patch_features_key or "")
        result.n_tissues = len(shapes[keys[0]]) if keys[0] in shapes else None
        result.n_tiles = len(shapes[keys[1]]) if keys[1] in shapes else None
        if given.patch_features_key:
            result.patch_features_exist = table is not None
            result.patch_features_embedding_dim = None if table is None else int(table.shape[1])
    write_json_output(context, name, result.model_dump(mode="json"))
    return result


def _read_openslide(slide: Slide) -> tuple[str | None, tuple[float, float] | None]:
    """Read the vendor and the µm per pixel with OpenSlide; None for any that it cannot read."""
    from mcp_servers.slides.others import OpenSlideSource

    try:
        with contextlib.closing(OpenSlideSource(slide.path)) as read:
            x, y = (read.properties.get(f"openslide.mpp-{axis}") for axis in "xy")
            pair = None if x is None or y is None else (float(x), float(y))
            return read.properties.get("openslide.vendor"), pair
    except (ValueError, OSError):  # InputError is a ValueError
        return None, None


class StoreInput(WsiInput):
    """A slide whose store exists."""

    load_from_src: bool = Field(
        default=True,
        description="Keep the contents of the job's store; if false, start a new store",
    )
    overwrite: bool = Field(default=False, description="Recompute existing results")
    tissue_key: str = Field(default=TISSUES, pattern=KEY)


class TissueInput(StoreInput):
    """Key and minimum area for the tissue."""

    min_area_um2: float = Field(default=20_000.0, ge=0, description="Drop pieces smaller than this")


class TissueResult(NovaResult):
    """Tissue regions."""

    wsi_store_path: OutputName
    tissue_key: str
    tissue_ids: list[int]
    total_area_mm2: float | None
    method: str = "classical"


@nova_tool("extract_tissue_in_wsi_tool", Resources(memory_mb=1536, seconds_per_item=5.0))
def extract_tissue(given: TissueInput, context: ToolContext) -> TissueResult:
    """Perform tissue segmentation on a single WSI file, into shapes[tissue_key] of its zarr store.

    Each region has tissue_id, geometry, area, area_filled, convex_area, solidity, convexity,
    perimeter, axes, eccentricity in level-0 pixels.
    """
    slide, job = given.open(context)
    frame, warnings, new = None, list[str](), {}
    if given.load_from_src and not given.overwrite and job.find(store.store_name(slide)):
        frame = store.load_store(job, slide).shapes.get(given.tissue_key)
    log = [f"{given.tissue_key} already existed; not recomputed"]
    if frame is None:
        frame, warnings = find_regions(slide, given.min_area_um2)
        new, log = {given.tissue_key: frame}, [f"{len(frame)} regions of tissue"]
    name = store.save_store(job, slide, new, context, fresh=not given.load_from_src)
    area = None if slide.mpp is None else float(frame["area"].sum()) * (slide.mpp / 1000) ** 2
    return TissueResult(
        wsi_store_path=name,
        tissue_key=given.tissue_key,
        tissue_ids=[int(i) for i in frame["tissue_id"]],
        total_area_mm2=area,
        operations_log=log,
        warnings=warnings,
    )


def find_regions(slide: Slide, min_area_um2: float) -> tuple[Any, list[str]]:
    """Make the shapes element for a slide's tissue, and list warnings.

    `convexity` follows LazySlide: the area of the convex hull divided by the region's, at
    least 1; `solidity` is its inverse; `perimeter` is that of the outer ring.

    Raises
    ------
    InputError
        If there is no tissue.
    """
    import numpy as np
    import shapely

    from mcp_servers.pathology.tissue import slide_tissue, tissue_warnings
    from mcp_servers.slides.geometry import mask_polygons

    found, view = slide_tissue(slide, min_area_um2=min_area_um2)
    shapes = []
    for polygon in mask_polygons(found.mask, view.scale, simplify_px=0.7):
        valid = shapely.make_valid(shapely.Polygon(polygon.exterior, polygon.holes))
        parts = [p for p in getattr(valid, "geoms", [valid]) if p.geom_type == "Polygon"]
        shapes.append(max(parts, key=lambda part: part.area))
    if not shapes:
        raise InputError(f"{slide.path}: no tissue found to store")
    rows = [measure_region(shape) for shape in shapes]
    columns = {key: np.array([row[key] for row in rows]) for key in rows[0]}
    columns = {"tissue_id": np.arange(len(shapes)), **columns}
    warnings = [*slide.warnings, *tissue_warnings(found)]
    return store.make_shapes(columns, shapes, slide.mpp), warnings


def measure_region(shape: Any) -> dict[str, float]:
    """Measure a polygon in the unit of its coordinates.

    Axes and eccentricity belong to the ellipse with the same second moments.
    """
    import shapely

    outer, hull = shapely.Polygon(shape.exterior), shape.convex_hull
    major, minor, turn = contours.fit_ellipse(list(outer.exterior.coords))
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


class TilesInput(StoreInput):
    """Tile size and minimum tissue."""

    tile_key: str = Field(default=TILES, pattern=KEY)
    tile_px: int = Field(default=256, ge=16, le=4096, description="Side in pixels at mpp")
    mpp: float = Field(default=0.5, gt=0, le=32, description="µm per pixel of the tiles")
    overlap: float = Field(
        default=0.0, ge=0, lt=1, description="Share by which neighboring tiles overlap"
    )
    min_tissue: float = Field(default=0.5, ge=0, le=1, description="Minimum share of tissue")


class TilesResult(NovaResult):
    """Number of tiles extracted."""

    wsi_store_path: OutputName
    tissue_key: str
    tile_key: str
    num_patches: int
    tile_px_level0: int


@nova_tool("extract_tissue_tiles_in_wsi_tool", Resources(memory_mb=1536, seconds_per_item=5.0))
def extract_tiles(given: TilesInput, context: ToolContext) -> TilesResult:
    """Extract tissue tiles/patches from a single WSI file into shapes[tile_key] of its zarr store.

    Squares have tile_id, tissue_id and geometry (level-0 pixels).
    """
    slide, job, held = store.open_store(given, context)
    tissue = store.get_element(held, "tissues", given.tissue_key)
    if given.tile_key in held.shapes and not given.overwrite:
        frame, new = held.shapes[given.tile_key], {}
        log = [f"{given.tile_key} already existed; not recomputed"]
    else:
        frame, log = cut_tiles(slide, tissue, given)
        new = {given.tile_key: frame}
    return TilesResult(
        wsi_store_path=store.save_store(job, slide, new, context),
        tissue_key=given.tissue_key,
        tile_key=given.tile_key,
        num_patches=len(frame),
        tile_px_level0=store.tile_side(frame),
        operations_log=log,
    )


def cut_tiles(slide: Slide, tissue: Any, given: TilesInput) -> tuple[Any, list[str]]:
    """Make the shapes element for tiles with enough tissue, each assigned to its largest region."""
    import numpy as np
    import shapely

    from mcp_servers.pathology.tiles import TilesInput as Cut
    from mcp_servers.pathology.tiles import every_tile

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
            f"{given.min_tissue:.0%} tissue; use smaller tiles or a lower min_tissue"
        )
    columns = {
        "tile_id": np.arange(int(keep.sum())), "tissue_id": owner[keep],
        "tissue_fraction": share[keep],
    }  # fmt: skip
    log = [f"{int(keep.sum())} of {len(squares)} tiles have enough tissue"]
    return store.make_shapes(columns, squares[keep], slide.mpp), log


class FeaturesInput(StoreInput, ModelWeights):
    """An encoder and the tiles that it reads."""

    tile_key: str = Field(default=TILES, pattern=KEY)
    patch_features_key: str | None = Field(
        default=None, pattern=KEY, description="Key of the features; default: MODEL_TILEKEY"
    )
    model: PatchEncoder = Field(
        default="conch_v15",
        description="Name of the encoder; handcrafted, which needs no "
        "weights, is used only on request",
    )
    device: Device = "auto"


class FeaturesResult(NovaResult):
    """Features extracted from the tiles."""

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
    Resources(cpu=2, memory_mb=4096, gpu="optional", seconds_per_item=60.0),
    memory_mb=encoder_memory,
)
def extract_features(given: FeaturesInput, context: ToolContext) -> FeaturesResult:
    """Extract patch-level features from a single WSI using foundation models.

    Weights are the user's. The AnnData is kept under tables[patch_features_key] of its zarr store.
    """
    slide, job, held = store.open_store(given, context)
    store.get_element(held, "tissues", given.tissue_key)
    tiles, new = store.get_element(held, "tiles", given.tile_key), {}
    key = given.patch_features_key or f"{given.model}_{given.tile_key}"
    if key in held.tables and not given.overwrite:
        table, log = held.tables[key], [f"{key} already existed; not recomputed"]
    else:
        corners, side = store.tile_corners(tiles), store.tile_side(tiles)
        made = encode_squares(slide, corners, side, given.model, given, context)
        table = store.make_table(made, tiles, given.tile_key, given.model)
        new, log = {key: table}, [f"{len(made)} tiles encoded by {given.model}"]
    return FeaturesResult(
        wsi_store_path=store.save_store(job, slide, new, context),
        tissue_key=given.tissue_key,
        tile_key=given.tile_key,
        patch_features_key=key,
        num_patches=int(table.shape[0]),
        embedding_dim=int(table.shape[1]),
        model=given.model,
        license=SPECS[given.model].license,
        tcga_overlap=SPECS[given.model].tcga_overlap,
        operations_log=log,
    )


def encode_squares(
    slide: Slide, corners: Any, side: int, encoder: PatchEncoder, given: Any, context: ToolContext
) -> Any:
    """Compute (n, dimension) features of squares, read at approximately the encoder's input size.

    `corners` (n, 2) and `side` are in level-0 pixels; `given` has weights, hub and device.
    """
    import numpy as np

    from sage_foundation.batches import batches

    px = min(side, SPECS[encoder].patch_px)
    encode = load_patch_encoder(encoder, given, slide.need_mpp() * side / px, context)
    view = slide.scale_to(side / px)
    squares = (view.read(round(x / view.scale), round(y / view.scale), px, px) for x, y in corners)
    out = []
    for done, batch in batches(squares, 32, np.stack):
        out.append(encode(batch))
        context.progress(done / len(corners), "encoding")
    return np.concatenate(out).astype(np.float32)


class EncodeInput(StoreInput, ModelWeights):
    """A slide encoder and the features that it reads."""

    tile_key: str = Field(default=TILES, pattern=KEY)
    patch_features_key: str = Field(default=FEATURES, pattern=KEY)
    slide_encoder: SlideEncoder = Field(
        default="titan",
        description="Name of the encoder; mean, which needs no weights, is used only on request",
    )
    slide_features_key: str | None = Field(
        default=None, pattern=KEY, description="Key of the vector; default: the encoder's name"
    )


class EncodeResult(NovaResult):
    """Vector that represents the slide."""

    wsi_store_path: OutputName
    slide_features_key: str
    patch_features_key: str
    embedding_dim: int
    slide_encoder: str
    features_path: OutputName = Field(
        description="HDF5 file with the dataset features of shape (dimension,)"
    )


@nova_tool("encode_wsi_tool", Resources(memory_mb=4096, seconds_per_item=5.0))
def encode_wsi(given: EncodeInput, context: ToolContext) -> EncodeResult:
    """Encode a single WSI with slide-level features, kept in uns[slide_features_KEY].

    Uses the user's TITAN, PRISM, MADELEINE or GigaPath graph, or the mean of the patch features.
    """
    import h5py
    import numpy as np

    slide, job, held = store.open_store(given, context)
    tiles = store.get_element(held, "tiles", given.tile_key)
    table = store.get_element(held, "features", given.patch_features_key)
    features, corners = np.asarray(table.X, dtype=np.float32), store.tile_corners(tiles)
    name, side = given.slide_encoder, store.tile_side(tiles)
    vector = encode_slide(name, features, corners, side, given, context)
    key = given.slide_features_key or name
    # varm has a row per feature, so a vector of another length is kept only in uns
    table.uns[f"slide_features_{key}"] = vector
    if len(vector) == table.shape[1]:
        table.varm[key] = vector[:, None]
    saved = store.save_store(job, slide, {given.patch_features_key: table}, context)
    out = job.out(f"{slide.name}_{key}_slide_features.h5")
    with context.writing(out) as path, h5py.File(path, "w") as file:
        file.create_dataset("features", data=vector).attrs["encoder"] = name
    return EncodeResult(
        wsi_store_path=saved,
        slide_features_key=key,
        patch_features_key=given.patch_features_key,
        embedding_dim=len(vector),
        slide_encoder=name,
        features_path=out,
        operations_log=[f"{len(features)} tiles into one vector by {name}"],
    )


class ZarrInput(Given):
    """A zarr store to explore."""

    path: InputPath = Field(description="Folder of a zarr store")


class ZarrNode(BaseModel):
    """A group or array in a store."""

    path: str
    kind: str = Field(description="Kind of node: group or array")
    shape: list[int] | None = None
    dtype: str | None = None


class HierarchyResult(NovaResult):
    """Contents of a store."""

    nodes: list[ZarrNode]
    tree: str = Field(description="One line per node, indented")


MOST_NODES = 2000


@nova_tool("access_zarr_hierarchy", Resources(memory_mb=256))
def access_zarr(given: ZarrInput, context: ToolContext) -> HierarchyResult:
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
        item = ZarrNode(path=name, kind="group")
        line = "  " * name.count("/") + name.rpartition("/")[2]
        if isinstance(node, zarr.Array):
            item.kind, item.shape = "array", [int(n) for n in node.shape]
            item.dtype = str(node.dtype)
            line += f" {tuple(item.shape)} {item.dtype}"
        nodes.append(item)
        lines.append(line)
    more = len(members) - len(nodes)
    warnings = [f"{more} more nodes are not listed"] if more else []
    return HierarchyResult(nodes=nodes, tree="\n".join(lines), warnings=warnings)


class ReadInput(ZarrInput):
    """An element in a store, by its key."""

    key: str | None = Field(
        default=None, max_length=200, description="tissues or shapes/tissues; default: all"
    )
    start: int = Field(default=0, ge=0, description="First row of a table or shapes element")
    rows: int = Field(default=100, ge=1, le=20_000, description="Number of rows")


class ElementInfo(BaseModel):
    """An element in a store."""

    key: str
    kind: str
    rows: int
    columns: list[str]


class ReadResult(NovaResult):
    """Elements in a store and rows of the requested element."""

    data_str: str = Field(description="Description of the store")
    elements: list[ElementInfo]
    rows: list[dict[str, Any]] = Field(
        description="Rows of the requested element; shapes have WKT geometry"
    )
    total_rows: int | None = None
    table_csv: OutputName | None = Field(
        default=None, description="Total number of rows of the element"
    )


@nova_tool("read_zarr_data_tool", Resources(memory_mb=1024))
def read_zarr(given: ReadInput, context: ToolContext) -> ReadResult:
    """Read data from a Zarr file: its elements, and the rows of the requested element.

    Rows of shapes have geometry as WKT; rows of tables have obs, features f0 ..., and reductions.
    """
    import json

    held = store.read_store(context.input(given.path, "folder"))
    infos = []
    for kind in ("shapes", "points", "tables"):
        for key, part in getattr(held, kind).items():
            names = list(part.obs.columns) if kind == "tables" else list(part.columns)
            infos.append(ElementInfo(key=key, kind=kind, rows=len(part), columns=names))
    result = ReadResult(data_str=str(held), elements=infos, rows=[])
    if given.key is None:
        return result
    found = next((i for i in infos if given.key in (i.key, f"{i.kind}/{i.key}")), None)
    if found is None:
        have = ", ".join(info.key for info in infos) or "nothing"
        raise InputError(f'{given.path}: unknown element "{given.key}"; available elements: {have}')
    frame = make_frame(held[found.key])
    result.total_rows = len(frame)
    part = frame.iloc[given.start : given.start + given.rows]
    result.rows = json.loads(part.to_json(orient="records", double_precision=10))
    stem = given.path.strip("/").rpartition("/")[2].removesuffix(".zarr")
    result.table_csv = f"{stem}.{found.key}.csv"
    with context.writing(result.table_csv) as path:
        frame.to_csv(path, index=False)
    return result


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


class Region(Given):
    """A rectangle: its corner in level-0 pixels, its size in pixels of a level."""

    top_left_x: int
    top_left_y: int
    base_width: int = Field(ge=1, le=16_384, description="Width in pixels of base_level")
    base_height: int = Field(ge=1, le=16_384, description="Height in pixels of base_level")
    base_level: int = Field(default=0, ge=0)


class RegionInput(WsiInput):
    """A rectangle on a slide."""

    region: Region
    custom_save_dir: str | None = Field(
        default=None, max_length=500, description="Folder in the output folder; default: the job's"
    )


class RegionResult(NovaResult):
    """Image of the requested rectangle."""

    region_save_path: OutputName
    mpp_at_level: float | None


@nova_tool("read_rectangle_region_from_wsi_tool", Resources(memory_mb=1024, seconds_per_item=0.1))
def read_region(given: RegionInput, context: ToolContext) -> RegionResult:
    """Extract rectangular regions from WSI at specified coordinates and magnification, as PNG.

    The corner is in level-0 pixels, the sides in pixels of base_level.
    """
    from mcp_servers.formats.images import write_png

    slide, job = given.open(context)
    part = given.region
    x, y, width, height = part.top_left_x, part.top_left_y, part.base_width, part.base_height
    image = slide.read(x, y, width, height, part.base_level)
    down, warnings = slide.levels[part.base_level].downsample, list(slide.warnings)
    right, bottom = x + width * down, y + height * down
    size = f"the slide of {slide.width} x {slide.height} px"
    if max(x - slide.width, y - slide.height, -right, -bottom) >= 0:
        raise InputError(f"the region at ({x}, {y}) is outside {size}")
    if min(x, y, slide.width - right, slide.height - bottom) < 0:
        warnings.append(f"a part of the region is outside {size} and is left blank")
    file = f"{slide.name}_region_x{x}_y{y}_H{height}_W{width}.png"
    name = job.out(file) if given.custom_save_dir is None else f"{given.custom_save_dir}/{file}"
    with context.writing(name) as path:
        write_png(path, image)
    mpp = None if slide.mpp is None else slide.mpp * down
    return RegionResult(region_save_path=name, mpp_at_level=mpp, warnings=warnings)
