"""Tissue mask: where there is tissue, without pen marks, dust and glass."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from mcp_servers.context import ToolContext
from mcp_servers.pathology.common import SUITE, SlideInput, SlideResult, open_slide
from mcp_servers.registry import OutputName, Resources, Validity, tool

if TYPE_CHECKING:
    from mcp_servers.pathology.compute.tissue import Tissue
    from mcp_servers.slides.slide import Slide
    from mcp_servers.slides.view import View

WORKING_MPP = 8.0
MAX_OVERVIEW_PIXELS = 16_000_000


class TissueInput(SlideInput):
    """What counts as tissue."""

    min_area_um2: float = Field(default=20_000.0, ge=0, description="Smaller pieces are dropped")
    fill_holes_um2: float = Field(default=10_000.0, ge=0, description="Smaller holes are filled")
    keep_pen: bool = Field(default=False, description="Do not take pen marks off")
    check_focus: bool = Field(
        default=True, description="Sample patches at 1 µm per pixel to report blur"
    )


class TissueResult(SlideResult):
    """Area of tissue and the files that hold it."""

    tissue_mm2: float
    tissue_fraction: float = Field(description="Share of the slide, 0 to 1")
    pieces: int
    pen_fraction: float = Field(description="Share of the slide under pen marks")
    out_of_focus_fraction: float | None = Field(
        description="Share of sampled tissue patches out of focus; None when not checked"
    )
    mask: OutputName = Field(description="PNG, 255 where tissue")
    mask_mpp: float
    geojson: OutputName
    overlay: OutputName


def slide_tissue(
    slide: Slide,
    *,
    min_area_um2: float = 20_000.0,
    fill_holes_um2: float = 10_000.0,
    keep_pen: bool = False,
) -> tuple[Tissue, View]:
    """Tissue of a whole slide and the view whose pixels its masks are."""
    from mcp_servers.pathology.compute.tissue import find_tissue

    # very large slides are looked at more coarsely, so that memory stays bounded
    coarse = slide.need_mpp() * (slide.width * slide.height / MAX_OVERVIEW_PIXELS) ** 0.5
    view = slide.view(max(WORKING_MPP, coarse))
    image = view.read(0, 0, view.width, view.height)
    found = find_tissue(
        image,
        view.mpp,
        min_area_um2=min_area_um2,
        fill_holes_um2=fill_holes_um2,
        keep_pen=keep_pen,
    )
    return found, view


def focus_of(slide: Slide, tissue: Tissue, scale: float, patches: int = 64) -> float | None:
    """Share of sampled tissue patches (256 px at 1 µm) that are out of focus; None without tissue.

    The patches are spread evenly over the tissue; below 0.02 the Laplacian holds next to nothing
    of the patch's variance (measured: sharp 0.05-1.3, blurred by 4 µm below 0.01).
    """
    import numpy as np

    from mcp_servers.pathology.compute.tissue import sharpness

    rows, columns = np.nonzero(tissue.mask)
    if len(rows) == 0:
        return None
    view = slide.view(1.0)
    picks = np.linspace(0, len(rows) - 1, min(patches, len(rows))).astype(int)
    blurred = 0
    for at in picks:
        x = int(columns[at] * scale / view.scale) - 128
        y = int(rows[at] * scale / view.scale) - 128
        blurred += sharpness(view.read(x, y, 256, 256)) < BLUR
    return blurred / len(picks)


BLUR = 0.02


@tool(
    "tissue_mask",
    SUITE,
    "1.0.0",
    "Find the tissue of a slide, without pen marks, dust, holes and glass.",
    resources=Resources(memory_mb=768, seconds_per_item=1.0),
    validity=Validity(
        stain="H&E, H-DAB and other bright-field stains",
        mpp=(0.1, 12.0),
        organ="any",
        training_data="none; classical method",
        tcga_overlap="none",
        known_failures=(
            "very pale fat can be lost",
            "pen ink of the color of hematoxylin is kept as tissue",
            "tissue under ink is dropped together with the ink",
            "fluorescence and dark-field images are not understood",
        ),
        accuracy="painted slide: tissue area within 4%; on two real scans looked at, not scored",
    ),
)
def tissue_mask(given: TissueInput, context: ToolContext) -> TissueResult:
    """Tissue of one slide."""
    from mcp_servers.formats.geojson import feature, write_geojson
    from mcp_servers.formats.images import blend_mask, write_png
    from mcp_servers.slides.geometry import mask_polygons

    slide = open_slide(given, context)
    context.progress(0.0, "tissue")
    found, view = slide_tissue(
        slide,
        min_area_um2=given.min_area_um2,
        fill_holes_um2=given.fill_holes_um2,
        keep_pen=given.keep_pen,
    )
    warnings = [*slide.warnings, *tissue_warnings(found)]
    context.progress(0.5, "focus")
    focus = focus_of(slide, found, view.scale) if given.check_focus else None
    if focus is not None and focus > 0.2:
        warnings.append(f"{focus:.0%} of the sampled tissue patches are out of focus")
    polygons = mask_polygons(found.mask, view.scale, simplify_px=0.7, label="Tissue")
    pixel_mm2 = (view.mpp / 1000) ** 2
    context.progress(0.8, "files")
    names = {k: f"{slide.name}.tissue.{k}" for k in ("mask.png", "geojson", "overlay.png")}
    with context.writing(names["mask.png"]) as path:
        write_png(path, found.mask)
    with context.writing(names["geojson"]) as path:
        write_geojson(
            path,
            (
                feature(p, measurements={"Area mm^2": p.area * (slide.need_mpp() / 1000) ** 2})
                for p in polygons
            ),
        )
    picture = slide.thumbnail(2048)
    picture = blend_mask(picture, found.mask, (0, 150, 60), 0.25)
    picture = blend_mask(picture, found.pen, (40, 40, 40), 0.6) if found.pen.any() else picture
    with context.writing(names["overlay.png"]) as path:
        write_png(path, picture)
    return TissueResult(
        slide=slide.name,
        mpp=slide.mpp,
        mpp_source=slide.mpp_source,
        warnings=warnings,
        tissue_mm2=float(found.mask.sum()) * pixel_mm2,
        tissue_fraction=float(found.mask.mean()),
        pieces=found.pieces,
        pen_fraction=float(found.pen.mean()),
        out_of_focus_fraction=focus,
        mask=names["mask.png"],
        mask_mpp=view.mpp,
        geojson=names["geojson"],
        overlay=names["overlay.png"],
    )


def tissue_warnings(found: Tissue) -> list[str]:
    """What a reader of the result should know before believing it."""
    warnings = []
    share = float(found.mask.mean())
    if share == 0:
        warnings.append("no tissue was found")
    if share > 0.98:
        warnings.append("tissue fills the whole image; there is no glass to compare with")
    if found.pieces > 500:
        warnings.append(f"{found.pieces} separate pieces: fragments, debris or a wrong stain")
    if float(found.pen.mean()) > 0.002:
        warnings.append(f"pen marks cover {float(found.pen.mean()):.1%} of the slide; taken off")
    return warnings
