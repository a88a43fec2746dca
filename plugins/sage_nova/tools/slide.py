"""Tools for a single slide: properties, regions, tissue, tiles, features, vector, and its store."""

from __future__ import annotations

import contextlib
import json
from math import atan2, hypot, sqrt
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, Field

from mcp_servers.context import ToolContext
from mcp_servers.pathology.common import Given
from mcp_servers.spec import OutputName, Resources
from sage.core.errors import InputError
from sage_nova.tools import declare as nova
from sage_nova.tools.models import (
    ENCODERS,
    PatchEncoder,
    SlideEncoder,
    encode_slide,
    encode_squares,
    encoder_memory,
    override,
)
from sage_nova.tools.store import Store, make_shapes, make_table, measure_tiles

if TYPE_CHECKING:
    from mcp_servers.slides.geometry import Polygon
    from mcp_servers.slides.slide import Slide

SLIDE_FEATURES = "slide_features_"
"""Prefix of a slide's vectors in the features' uns."""


class EncodeTiles(nova.StoreInput, nova.NetworkWeights):
    """A slide, its store, and a patch encoder's weights."""


class EncodeSlide(nova.StoreInput, nova.ModelWeights):
    """A slide, its store, and a slide encoder's weights."""


class LevelInfo(BaseModel):
    """A stored resolution level."""

    level: int
    img_width_at_level: int
    img_height_at_level: int
    downsample_to_level_wrt_level0: float
    mpp_at_level: float | None
    magnification_at_level: float | None


@nova.tool(
    "retrieve_properties_from_wsi_tool", Resources(memory_mb=256, seconds_per_item=0.1),
    slide_name=str, n_levels=int, base_width=int, base_height=int,
    base_magnification=nova.described(float | None, "Objective power from the file, or else 10 / "
        "µm per pixel"),
    base_mpp=nova.described(float | None, "µm per pixel, averaged over both axes"),
    mpp_x=float | None, mpp_y=float | None, levels=dict[str, LevelInfo], file_format=str,
    vendor=nova.described(str | None, "Scanner vendor as OpenSlide detects it"),
    openslide_compatible=bool, objective_power=float | None, file_suffix=str, wsi_reader_name=str,
    n_tissues=int | None, n_tiles=int | None, patch_features_exist=bool | None,
    patch_features_embedding_dim=int | None, asset_dict_path=OutputName,
)  # fmt: skip
def retrieve_properties(
    given: nova.WsiInput, context: ToolContext, *, tissue_key: nova.Key | None = None,
    tile_key: nova.Key | None = None, patch_features_key: nova.Key | None = None,
) -> nova.Result:  # fmt: skip
    """Retrieve metadata and properties from a single WSI file.

    Returns levels, sizes, µm per pixel, magnification, format and vendor, and counts from its
    store.
    """
    store = Store(given, context)
    slide = store.slide
    vendor, pair = _read_openslide(slide)
    power = slide.objective_power or (None if slide.mpp is None else 10 / slide.mpp)
    levels = {
        f"level_{number}": {
            "level": number, "img_width_at_level": level.width, "img_height_at_level": level.height,
            "downsample_to_level_wrt_level0": level.downsample,
            "mpp_at_level": None if slide.mpp is None else slide.mpp * level.downsample,
            "magnification_at_level": None if power is None else power / level.downsample,
        }
        for number, level in enumerate(slide.levels)
    }  # fmt: skip
    mpp_x, mpp_y = pair if pair is not None and given.base_mpp is None else (slide.mpp, slide.mpp)
    named = tissue_key or tile_key or patch_features_key
    held = store.held if named else None
    shapes, tables = ({}, {}) if held is None else (held.shapes, held.tables)
    table = tables.get(patch_features_key)
    name = store.job.out(f"{slide.name}/{slide.name}_properties.json")
    result = {
        "slide_name": slide.name, "n_levels": len(levels), "base_width": slide.width,
        "base_height": slide.height, "base_magnification": power, "base_mpp": slide.mpp,
        "mpp_x": mpp_x, "mpp_y": mpp_y, "levels": levels, "file_format": slide.format,
        "vendor": vendor, "openslide_compatible": vendor is not None,
        "objective_power": slide.objective_power, "file_suffix": slide.path.suffix,
        "wsi_reader_name": slide.source.name,
        "n_tissues": len(shapes[tissue_key]) if tissue_key in shapes else None,
        "n_tiles": len(shapes[tile_key]) if tile_key in shapes else None,
        "patch_features_exist": table is not None if tables and patch_features_key else None,
        "patch_features_embedding_dim": None if table is None else int(table.shape[1]),
        "asset_dict_path": name, "warnings": list(slide.warnings),
    }  # fmt: skip
    nova.write_json(context, name, result)
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


class Region(Given):
    """A rectangle: its corner in level-0 pixels, its size in pixels of a level."""

    top_left_x: int
    top_left_y: int
    base_width: int = Field(ge=1, le=16_384, description="Width in pixels of base_level")
    base_height: int = Field(ge=1, le=16_384, description="Height in pixels of base_level")
    base_level: int = Field(default=0, ge=0)


@nova.tool(
    "read_rectangle_region_from_wsi_tool", Resources(memory_mb=1024, seconds_per_item=0.1),
    region_save_path=OutputName, mpp_at_level=float | None,
)  # fmt: skip
def read_region(
    given: nova.WsiInput, context: ToolContext, *, region: Region,
    custom_save_dir: nova.Folder | None = None,
) -> nova.Result:  # fmt: skip
    """Extract rectangular regions from WSI at specified coordinates and magnification, as PNG.

    The corner is in level-0 pixels, the sides in pixels of base_level.
    """
    from mcp_servers.pathology.common import save_png

    store = Store(given, context)
    slide, x, y = store.slide, region.top_left_x, region.top_left_y
    width, height, warnings = region.base_width, region.base_height, list(store.slide.warnings)
    image = slide.read(x, y, width, height, region.base_level)
    down = slide.levels[region.base_level].downsample
    right, bottom = x + width * down, y + height * down
    size = f"the slide of {slide.width} x {slide.height} px"
    if max(x - slide.width, y - slide.height, -right, -bottom) >= 0:
        raise InputError(f"the region at ({x}, {y}) is outside {size}")
    if min(x, y, slide.width - right, slide.height - bottom) < 0:
        warnings.append(f"a part of the region is outside {size} and is left blank")
    file = f"{slide.name}_region_x{x}_y{y}_H{height}_W{width}.png"
    name = store.job.out(file) if custom_save_dir is None else f"{custom_save_dir}/{file}"
    mpp = None if slide.mpp is None else slide.mpp * down
    return {
        "region_save_path": save_png(context, name, image), "mpp_at_level": mpp,
        "warnings": warnings,
    }  # fmt: skip


@nova.tool(
    "extract_tissue_in_wsi_tool", Resources(memory_mb=1536, seconds_per_item=5.0),
    wsi_store_path=OutputName, tissue_key=str, tissue_ids=list[int], total_area_mm2=float | None,
    method=str,
)  # fmt: skip
def extract_tissue(
    given: nova.StoreInput, context: ToolContext, *,
    min_area_um2: Annotated[float, Field(ge=0, description="Drop smaller pieces")] = 20_000.0,
) -> nova.Result:  # fmt: skip
    """Perform tissue segmentation on a single WSI file, into shapes[tissue_key] of its zarr store.

    Each region has tissue_id, geometry, area, area_filled, convex_area, solidity, convexity,
    perimeter, axes, eccentricity in level-0 pixels.
    """
    import shapely

    store, key, frame = Store(given, context), given.tissue_key, None
    warnings, log = list[str](), f"{key} already existed; not recomputed"
    if given.load_from_src and not given.overwrite and store.held is not None:
        frame = store.held.shapes.get(key)
    new = {}
    if frame is None:
        features, _, warnings = find_tissue(store.slide, context, min_area_um2=min_area_um2)
        if not features:
            raise InputError(f"{store.slide.path}: no tissue found to store")
        shapes = []
        for feature in features:
            valid = shapely.make_valid(shapely.geometry.shape(feature["geometry"]))
            parts = [p for p in getattr(valid, "geoms", [valid]) if p.geom_type == "Polygon"]
            shapes.append(max(parts, key=lambda part: part.area))
        rows = [{"tissue_id": i, **measure_region(shape)} for i, shape in enumerate(shapes)]
        frame = make_shapes({k: [row[k] for row in rows] for k in rows[0]}, shapes, store.slide.mpp)
        new, log = {key: frame}, f"{len(frame)} regions of tissue"
    mpp = store.slide.mpp
    return {
        "wsi_store_path": store.save(**new), "tissue_key": key, "method": "classical",
        "tissue_ids": frame["tissue_id"].tolist(),
        "total_area_mm2": None if mpp is None else float(frame["area"].sum()) * (mpp / 1000) ** 2,
        "operations_log": [log], "warnings": warnings,
    }  # fmt: skip


def find_tissue(
    slide: Slide, context: ToolContext, **options: Any
) -> tuple[list[dict[str, Any]], Any, list[str]]:
    """Find a slide's tissue with `tissue_mask`; return its GeoJSON features, picture, warnings."""
    from PIL import Image

    from mcp_servers.pathology.tissue import TissueInput, tissue_mask

    asked: dict[str, Any] = {"focus": "off", "mpp": override(slide), **options}
    with nova.house(context) as own:
        found = tissue_mask(TissueInput(slide=str(slide.path), **asked), own)
        text = (own.roots.output / found.geojson).read_text(encoding="utf-8")
        with Image.open(own.roots.output / found.overlay) as image:
            return json.loads(text)["features"], image.convert("RGB"), found.warnings


def measure_region(shape: Any) -> dict[str, float]:
    """Measure a polygon in the unit of its coordinates.

    Axes and eccentricity belong to the ellipse with the outer ring's second moments.
    `convexity` follows LazySlide: the area of the convex hull divided by the region's, at
    least 1; `solidity` is its inverse; `perimeter` is that of the outer ring.
    """
    import shapely

    outer, hull = shapely.Polygon(shape.exterior), shape.convex_hull
    major, minor, turn = fit_ellipse(outer.exterior.coords)
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
        "eccentricity": sqrt(1 - (minor / major) ** 2) if major else 0.0,
        "orientation": turn,
        "holes": float(len(shape.interiors)),
    }


def fit_ellipse(points: Any) -> tuple[float, float, float]:
    """Compute the axes and angle (radians) of the ellipse with an outline's second moments.

    They are defined as in `skimage.measure.regionprops`; zeros for an outline without area.
    """
    import cv2
    import numpy as np

    ring = np.asarray(points, dtype=np.float64)
    # moments of OpenCV take float32, whose digits do not suffice far from the origin
    found = cv2.moments((ring - ring.mean(axis=0)).astype(np.float32)[:, None])
    if abs(found["m00"]) < 1e-12:
        return 0.0, 0.0, 0.0
    xx, yy, xy = (found[f"mu{order}"] / found["m00"] for order in ("20", "02", "11"))
    spread = hypot(xx - yy, 2 * xy)
    long, short = (xx + yy + spread) / 2, max((xx + yy - spread) / 2, 0.0)
    return 4 * sqrt(long), 4 * sqrt(short), atan2(2 * xy, xx - yy) / 2


@nova.tool(
    "extract_tissue_tiles_in_wsi_tool", Resources(memory_mb=1536, seconds_per_item=5.0),
    wsi_store_path=OutputName, tissue_key=str, tile_key=str, num_patches=int, tile_px_level0=int,
)  # fmt: skip
def extract_tiles(
    given: nova.StoreInput, context: ToolContext, *, tile_key: nova.Key = nova.TILES,
    tile_px: Annotated[int, Field(ge=16, le=4096, description="Side in pixels at mpp")] = 256,
    mpp: Annotated[float, Field(gt=0, le=32, description="µm per pixel of the tiles")] = 0.5,
    overlap: Annotated[float,
        Field(ge=0, lt=1, description="Share by which neighboring tiles overlap")] = 0.0,
    min_tissue: Annotated[float, Field(ge=0, le=1, description="Minimum share of tissue")] = 0.5,
) -> nova.Result:  # fmt: skip
    """Extract tissue tiles/patches from a single WSI file into shapes[tile_key] of its zarr store.

    Squares have tile_id, tissue_id and geometry (level-0 pixels).
    """
    import numpy as np
    import shapely

    store = Store(given, context)
    tissue, frame, new = store.get("tissues", given.tissue_key), None, {}
    log = f"{tile_key} already existed; not recomputed"
    if not given.overwrite:
        frame = store.held.shapes.get(tile_key)
    if frame is None:
        corners, share, grid = cut_tiles(
            store.slide, to_polygons(tissue), context, tile_px=tile_px, at_mpp=mpp,
            overlap_px=round(overlap * tile_px), min_tissue=min_tissue,
        )  # fmt: skip
        if not len(corners):
            raise InputError(
                f"{store.slide.path}: no tile of {tile_px} px at {mpp:g} µm per pixel has "
                f"{min_tissue:.0%} tissue; use smaller tiles or a lower min_tissue"
            )
        ends = corners + grid.patch_size_level0
        squares = shapely.box(corners[:, 0], corners[:, 1], ends[:, 0], ends[:, 1])
        nearest = shapely.STRtree(list(tissue.geometry)).nearest(shapely.centroid(squares))
        columns = {
            "tile_id": np.arange(len(corners)), "tissue_fraction": share,
            "tissue_id": tissue["tissue_id"].to_numpy()[nearest],
        }  # fmt: skip
        frame = make_shapes(columns, squares, store.slide.mpp)
        new, log = {tile_key: frame}, f"{len(corners)} tiles have enough tissue"
    return {
        "wsi_store_path": store.save(**new), "tissue_key": given.tissue_key, "tile_key": tile_key,
        "num_patches": len(frame), "tile_px_level0": measure_tiles(frame)[1],
        "operations_log": [log],
    }  # fmt: skip


def to_polygons(frame: Any) -> list[Polygon]:
    """Convert a shapes element to polygons of the house."""
    import numpy as np

    from mcp_servers.slides.geometry import Polygon

    rings = (
        [np.asarray(r.coords)[:-1] for r in (g.exterior, *g.interiors)] for g in frame.geometry
    )
    return [Polygon(outer, tuple(holes)) for outer, *holes in rings]


def cut_tiles(
    slide: Slide, polygons: list[Polygon], context: ToolContext, **options: Any
) -> tuple[Any, Any, Any]:
    """Cut the polygons into tiles as `tile_slide` cuts tissue; return corners, shares, and grid."""
    from mcp_servers.pathology.tiles import TilesInput, tile_grid
    from mcp_servers.slides.geometry import rasterize

    scale = max(1.0, 8.0 / slide.need_mpp())
    shape = (int(-(-slide.height // scale)), int(-(-slide.width // scale)))
    asked = TilesInput(slide=str(slide.path), **options)
    mask = rasterize(polygons, scale, shape)
    corners, share, grid, _ = tile_grid(slide, mask, scale, asked, context)
    return corners, share, grid


@nova.tool(
    "extract_patch_features_in_wsi_tool",
    Resources(cpu=2, memory_mb=4096, gpu="optional", seconds_per_item=60.0),
    memory_mb=encoder_memory, wsi_store_path=OutputName, tissue_key=str, tile_key=str,
    patch_features_key=str, num_patches=int, embedding_dim=int, model=str, license=str,
    tcga_overlap=str,
)  # fmt: skip
def extract_features(
    given: EncodeTiles, context: ToolContext, *, tile_key: nova.Key = nova.TILES,
    patch_features_key: Annotated[nova.Key | None,
        Field(description="Key of the features; default: MODEL_TILEKEY")] = None,
    model: PatchEncoder = "conch_v15",
) -> nova.Result:  # fmt: skip
    """Extract patch-level features from a single WSI using foundation models.

    Weights are the user's. The AnnData is kept under tables[patch_features_key] of its zarr store.
    """
    from sage_foundation.features import read_features, write_scores
    from sage_foundation.specs import encoder_spec

    store, spec = Store(given, context), encoder_spec(ENCODERS[model])
    store.get("tissues", given.tissue_key)
    tiles, corners, side = store.tiles(tile_key)
    key, new = patch_features_key or f"{model}_{tile_key}", {}
    if key in store.held.tables and not given.overwrite:
        table, log = store.held.tables[key], f"{key} already existed; not recomputed"
    else:
        with nova.house(context) as own:
            with own.writing("coords.h5") as path:
                grid = {"patch_size": min(side, spec.patch_px), "patch_size_level0": side}
                write_scores(path, corners, grid)
            coords = own.roots.output / "coords.h5"
            made = encode_squares(store.slide, model, given, own, coords)
            features = read_features(own.roots.output / made.features)[0]
        table = make_table(features, tiles, tile_key, model)
        new, log = {key: table}, f"{made.tiles} tiles encoded by {model}"
    return {
        "wsi_store_path": store.save(**new), "tissue_key": given.tissue_key, "tile_key": tile_key,
        "patch_features_key": key, "num_patches": table.shape[0], "embedding_dim": table.shape[1],
        "model": model, "license": spec.license, "tcga_overlap": spec.tcga_overlap,
        "operations_log": [log],
    }  # fmt: skip


@nova.tool(
    "encode_wsi_tool", Resources(memory_mb=4096, seconds_per_item=5.0), wsi_store_path=OutputName,
    slide_features_key=str, patch_features_key=str, embedding_dim=int, slide_encoder=str,
    features_path=nova.described(OutputName, "HDF5 file with the dataset features of shape "
        "(dimension,)"),
)  # fmt: skip
def encode_wsi(
    given: EncodeSlide, context: ToolContext, *, tile_key: nova.Key = nova.TILES,
    patch_features_key: nova.Key = nova.FEATURES, slide_encoder: SlideEncoder = "titan",
    slide_features_key: Annotated[nova.Key | None,
        Field(description="Key of the vector; default: the encoder's name")] = None,
) -> nova.Result:  # fmt: skip
    """Encode a single WSI with slide-level features, kept in uns[slide_features_KEY].

    Uses the user's TITAN, PRISM, MADELEINE or GigaPath graph, or the mean of the patch features.
    """
    import numpy as np

    store = Store(given, context)
    _, corners, side = store.tiles(tile_key)
    table = store.get("features", patch_features_key)
    features = np.asarray(table.X, dtype=np.float32)
    vector = encode_slide(slide_encoder, features, corners, side, given, context)
    key = slide_features_key or slide_encoder
    # varm has a row per feature, so a vector of another length is kept only in uns
    table.uns[f"{SLIDE_FEATURES}{key}"] = vector
    if len(vector) == table.shape[1]:
        table.varm[key] = vector[:, None]
    name = store.out(f"_{key}_slide_features.h5")
    return {
        "wsi_store_path": store.save(**{patch_features_key: table}), "slide_features_key": key,
        "patch_features_key": patch_features_key, "embedding_dim": len(vector),
        "slide_encoder": slide_encoder,
        "features_path": nova.write_vectors(context, name, "features", vector, slide_encoder),
        "operations_log": [f"{len(features)} tiles into one vector by {slide_encoder}"],
    }  # fmt: skip
