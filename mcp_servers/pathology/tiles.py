"""Tools for tile coordinates, and for patches of tumor, peritumoral band and rest (Figure 7)."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from mcp_servers.context import ToolContext
from mcp_servers.formats.geojson import feature, read_polygons, square
from mcp_servers.formats.hdf5 import Grid, stored_level, write_coords
from mcp_servers.formats.images import draw_squares
from mcp_servers.pathology.common import (
    SUITE,
    SlideInput,
    SlideResult,
    of_slide,
    open_slide,
    save_geojson,
)
from mcp_servers.pathology.drawing import GREEN, VERMILLION, YELLOW, save_overlay
from mcp_servers.pathology.surveying import survey_slide
from mcp_servers.pathology.tissue import slide_tissue, tissue_warnings
from mcp_servers.pathology.tumor import (
    TUMOR_VALIDITY,
    TumorSource,
    TumorSourceName,
    need_tumor,
    tumor_area,
)
from mcp_servers.slides.arrays import F64, I64, BoolArray
from mcp_servers.slides.geometry import make_grid, mask_polygons, measure_coverage, rasterize
from mcp_servers.slides.slide import Slide
from mcp_servers.spec import InputPath, OutputName, Resources, Validity, tool
from sage.core.errors import InputError


class TilesInput(SlideInput):
    """Slide and tiling options."""

    tile_px: int = Field(default=256, ge=16, le=4096, description="Side in pixels at at_mpp")
    at_mpp: float = Field(default=0.5, gt=0, le=32, description="µm per pixel of the tiles")
    overlap_px: int = Field(
        default=0, ge=0, description="Overlap of neighbors, in pixels at at_mpp"
    )
    min_tissue: float = Field(
        default=0.5, ge=0, le=1, description="Minimum share of tissue in a tile"
    )
    regions: InputPath | None = Field(
        default=None, description="GeoJSON with regions of interest; default: the whole slide"
    )
    min_in_region: float = Field(
        default=0.5, gt=0, le=1, description="Minimum share of a tile in a region"
    )


class TilesResult(SlideResult):
    """Number of tiles and the coordinate file."""

    tiles: int
    tile_px: int
    tile_px_level0: int
    at_mpp: float
    coords: OutputName = Field(description="HDF5 with coords in the format of Trident and CLAM")
    geojson: OutputName | None = Field(description="Tiles for QuPath, at most 20,000")
    overlay: OutputName


def tile_grid(
    slide: Slide, tissue: BoolArray, mask_scale: float, given: TilesInput, context: ToolContext
) -> tuple[I64, F64, Grid, list[str]]:
    """Find the corners (level-0 pixels) of tiles with enough tissue.

    If regions are given, tiles must also be inside them. Each tile's tissue fraction, a
    description of the grid, and notes on the regions are returned too. `mask_scale` is
    level-0 pixels per pixel of the (height, width) tissue mask.
    """
    corners, described = every_tile(slide, given)
    share = measure_coverage(tissue, corners, described.patch_size_level0, mask_scale)
    keep = share >= max(given.min_tissue, 1e-9)
    notes: list[str] = []
    if given.regions is not None:
        polygons, notes = read_polygons(context.input(given.regions, "file"))
        inside = rasterize(polygons, mask_scale, tissue.shape)
        within = measure_coverage(inside, corners, described.patch_size_level0, mask_scale)
        keep &= within >= given.min_in_region
    return corners[keep], share[keep], described, notes


def every_tile(slide: Slide, given: TilesInput) -> tuple[I64, Grid]:
    """Return the corners of all tiles, with or without tissue, and a description of the grid."""
    if given.overlap_px >= given.tile_px:
        raise InputError(
            f"overlap_px must be below tile_px ({given.tile_px}), got {given.overlap_px}"
        )
    base = slide.need_mpp()
    if given.at_mpp < 0.95 * base:
        raise InputError(
            f"{slide.path}: tiles at {given.at_mpp:g} µm per pixel are finer than the scan "
            f"({base:g}); use at_mpp {base:g} or more"
        )
    scale = slide.view(given.at_mpp).scale  # a stored level within 3% is taken as it is
    size = round(given.tile_px * scale)
    step = (given.tile_px - given.overlap_px) * scale
    corners = make_grid(slide.width, slide.height, size, step, edges=False)
    return corners, Grid(
        name=slide.name,
        patch_size=given.tile_px,
        patch_size_level0=size,
        mpp=base * scale,
        level0_mpp=base,
        overlap=given.overlap_px,
        width=slide.width,
        height=slide.height,
        level=stored_level(slide.levels, given.tile_px, size),
    )


@tool(
    "tile_slide",
    SUITE,
    "1.0.2",
    "Compute the coordinates of square tiles over the tissue of a slide or within given regions.",
    resources=Resources(memory_mb=768, seconds_per_item=1.0),
    validity=Validity(stain="any bright-field", mpp=(0.1, 12.0), organ="any"),
    title="Cut a slide into tiles",
)
def tile_slide(given: TilesInput, context: ToolContext) -> TilesResult:
    """Make a slide's tile grid."""
    slide = open_slide(given, context, "bright field")
    context.progress(0.0, "tissue")
    found, view = slide_tissue(slide)
    corners, share, described, notes = tile_grid(slide, found.mask, view.scale, given, context)
    warnings = [*slide.warnings, *tissue_warnings(found), *notes]
    if len(corners) == 0:
        warnings.append("no tile contains enough tissue")
    if described.level is None:
        warnings.append(
            f"no stored level has {described.mpp:.3g} µm per pixel: Trident can read the "
            "coordinates, CLAM cannot"
        )
    context.progress(0.6, "files")
    coords = f"{slide.name}.tiles.h5"
    with context.writing(coords) as path:
        write_coords(path, corners, described, tissue_fraction=share)
    size = described.patch_size_level0
    geojson = None
    if len(corners) <= 20_000:
        outlines = (feature(square(x, y, size), kind="tile", name="Tile") for x, y in corners)
        geojson = save_geojson(context, f"{slide.name}.tiles.geojson", outlines)
    picture, legend = slide.thumbnail(2048), {"tile": GREEN}
    scale = slide.width / picture.shape[1]
    labels = ["tile"] * len(corners)
    drawn = draw_squares(picture, corners, size, scale, legend, labels, 0.2)
    return TilesResult(
        **of_slide(slide),
        warnings=warnings,
        tiles=len(corners),
        tile_px=given.tile_px,
        tile_px_level0=size,
        at_mpp=described.mpp,
        coords=coords,
        geojson=geojson,
        overlay=save_overlay(context, slide, f"{slide.name}.tiles.overlay.png", drawn, legend),
    )


REGIONS = ("Tumor", "Peritumoral", "Rest")


class RegionPatchesInput(TilesInput, TumorSource):
    """Tiling options and width of the band around the tumor."""

    band_um: float = Field(default=500.0, gt=0, description="Width of the peritumoral band")


class RegionPatchesResult(SlideResult):
    """Patches by region; a patch belongs to the region that covers most of it."""

    tumor_source: TumorSourceName = Field(description="Method by which the tumor was detected")
    tumor: int
    peritumoral: int
    rest: int
    tile_px: int
    tile_px_level0: int
    at_mpp: float
    band_um: float
    coords: OutputName = Field(description="HDF5 with coords and region (Trident, CLAM)")
    geojson: OutputName = Field(description="Outlines of the regions for QuPath")
    overlay: OutputName = Field(description="Patches: tumor red, peritumoral green, rest yellow")


@tool(
    "region_patches",
    SUITE,
    "1.2.0",
    "Extract patches labeled tumor, peritumoral band (in µm) or rest, with a colored overlay.",
    resources=Resources(cpu=2, memory_mb=1024, seconds_per_item=9.0),
    validity=TUMOR_VALIDITY,
    title="Extract patches of tumor, its surroundings and the rest",
)
def region_patches(given: RegionPatchesInput, context: ToolContext) -> RegionPatchesResult:
    """Classify a slide's patches by region."""
    from mcp_servers.pathology.compute.tumor import zones

    slide = open_slide(given, context)
    need_tumor(slide, given, context)
    tissue, overview = slide_tissue(slide)
    mask = tissue.mask
    del tissue  # its overview and the survey need not be held together
    surveyed = survey_slide(slide, given, context)
    area = tumor_area(slide, surveyed, context, given)
    parts = zones(area.mask, surveyed.survey.tissue, given.band_um)
    corners, share, described, notes = tile_grid(slide, mask, overview.scale, given, context)
    size, scale = described.patch_size_level0, surveyed.scale(slide)
    cover = np.stack([measure_coverage(parts[name], corners, size, scale) for name in REGIONS])
    which = cover.argmax(axis=0) if len(corners) else np.zeros(0, dtype=int)
    labels = [REGIONS[i] for i in which]
    start = f"{slide.name}.regions"
    with context.writing(f"{start}.h5") as path:
        write_coords(
            path,
            corners,
            described,
            region=np.array(labels, dtype="U12"),
            tissue_fraction=share,
            region_fraction=cover.max(axis=0) if len(corners) else share,
        )
    outlines = (
        feature(polygon, name=name, classification=name)
        for name in REGIONS
        for polygon in mask_polygons(parts[name], scale, min_area_px=8, simplify_px=0.7)
    )
    picture = slide.thumbnail(2048)
    colors = dict(zip(REGIONS, (VERMILLION, GREEN, YELLOW), strict=True))
    drawn = draw_squares(picture, corners, size, slide.width / picture.shape[1], colors, labels)
    warnings = [*surveyed.warnings, *area.warnings, *notes]
    if len(corners) == 0:
        warnings.append("no patch contains enough tissue")
    counts = [int((which == i).sum()) for i in range(3)]
    return RegionPatchesResult(
        **of_slide(slide),
        method=area.method,
        tumor_source=area.source,
        warnings=warnings,
        tumor=counts[0],
        peritumoral=counts[1],
        rest=counts[2],
        tile_px=given.tile_px,
        tile_px_level0=size,
        at_mpp=described.mpp,
        band_um=given.band_um,
        coords=f"{start}.h5",
        geojson=save_geojson(context, f"{start}.geojson", outlines),
        overlay=save_overlay(context, slide, f"{start}.overlay.png", drawn, colors),
    )
