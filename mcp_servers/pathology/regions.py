"""Tool for region-aware patches: tumor, peritumoral band, rest of tissue (paper, Figure 7)."""

from __future__ import annotations

from pydantic import Field

from mcp_servers.context import ToolContext
from mcp_servers.pathology.common import SUITE, SlideResult, of_slide, open_slide
from mcp_servers.pathology.tiles import TilesInput
from mcp_servers.pathology.tumor import TUMOR_VALIDITY, TumorSource, TumorSourceName
from mcp_servers.spec import OutputName, Resources, tool

REGIONS = ("Tumor", "Peritumoral", "Rest")


class RegionPatchesInput(TilesInput, TumorSource):
    """Tiling of the slide and width of the band around the tumor."""

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
    "1.1.3",
    "Extract patches labeled tumor, peritumoral band (in µm) or rest, with a colored overlay.",
    resources=Resources(cpu=2, memory_mb=1024, seconds_per_item=9.0),
    validity=TUMOR_VALIDITY,
    title="Extract patches of tumor, its surroundings and the rest",
)
def region_patches(given: RegionPatchesInput, context: ToolContext) -> RegionPatchesResult:
    """Classify the patches of a slide by region."""
    import numpy as np

    from mcp_servers.formats.geojson import feature, write_geojson
    from mcp_servers.formats.hdf5 import write_coords
    from mcp_servers.formats.images import draw_squares, write_png
    from mcp_servers.pathology.compute.tumor import zones
    from mcp_servers.pathology.drawing import GREEN, VERMILLION, YELLOW, captioned
    from mcp_servers.pathology.surveying import survey_slide
    from mcp_servers.pathology.tiles import tile_grid
    from mcp_servers.pathology.tissue import slide_tissue
    from mcp_servers.pathology.tumor import tumor_area
    from mcp_servers.slides.geometry import mask_polygons, measure_coverage

    slide = open_slide(given, context)
    tissue, overview = slide_tissue(slide)
    mask = tissue.mask
    del tissue  # its overview and the survey need not be held together
    surveyed = survey_slide(slide, given, context)
    area = tumor_area(slide, surveyed, context, given, given.tumor_regions)
    parts = zones(area.mask, surveyed.survey.tissue, given.band_um)
    corners, share, described = tile_grid(slide, mask, overview.scale, given, context)
    size, scale = described.patch_size_level0, surveyed.scale(slide)
    cover = np.stack([measure_coverage(parts[name], corners, size, scale) for name in REGIONS])
    which = cover.argmax(axis=0) if len(corners) else np.zeros(0, dtype=int)
    labels = [REGIONS[i] for i in which]
    names = {k: f"{slide.name}.regions.{k}" for k in ("h5", "geojson", "overlay.png")}
    with context.writing(names["h5"]) as path:
        write_coords(
            path,
            corners,
            described,
            region=np.array(labels, dtype="U12"),
            tissue_fraction=share,
            region_fraction=cover.max(axis=0) if len(corners) else share,
        )
    with context.writing(names["geojson"]) as path:
        write_geojson(
            path,
            (
                feature(polygon, name=name, classification=name)
                for name in REGIONS
                for polygon in mask_polygons(parts[name], scale, min_area_px=8, simplify_px=0.7)
            ),
        )
    picture = slide.thumbnail(2048)
    ratio = slide.width / picture.shape[1]
    with context.writing(names["overlay.png"]) as path:
        colors = dict(zip(REGIONS, (VERMILLION, GREEN, YELLOW), strict=True))
        drawn = draw_squares(picture, corners, size, ratio, colors, labels)
        write_png(path, captioned(drawn, slide.need_mpp() * ratio, colors))
    warnings = [*surveyed.warnings, *area.warnings]
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
        coords=names["h5"],
        geojson=names["geojson"],
        overlay=names["overlay.png"],
    )
