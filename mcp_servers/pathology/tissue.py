"""Tissue mask tool, which excludes pen marks, dust and glass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from pydantic import Field

from mcp_servers.context import ToolContext
from mcp_servers.formats.geojson import feature
from mcp_servers.formats.images import blend_mask
from mcp_servers.lazy import cv2
from mcp_servers.pathology.common import (
    SUITE,
    SlideInput,
    SlideResult,
    of_slide,
    open_slide,
    save_geojson,
    save_png,
)
from mcp_servers.pathology.compute.tissue import (
    Tissue,
    find_tissue,
    focus_ratio,
    focus_sums,
    sharpness,
)
from mcp_servers.pathology.drawing import BLACK, GREEN, VERMILLION, save_overlay
from mcp_servers.pathology.walk import walk
from mcp_servers.slides.arrays import BoolArray, spread_over
from mcp_servers.slides.geometry import Polygon, mask_area, mask_polygons
from mcp_servers.slides.slide import Slide
from mcp_servers.slides.view import View
from mcp_servers.spec import OutputName, Resources, Validity, tool
from sage.core.errors import InputError

Focus = Literal["sample", "exclude", "off"]
WORKING_MPP, FIELD_MPP = 8.0, 2.0
"""Pixel sizes, in µm, of the overview of a slide and of a field below `FIELD_MM2`."""
FIELD_MM2 = 0.1
BLUR = 0.025
"""Focus ratio at 1 µm per pixel below which tissue is out of focus.

Measured on cells in two real scans and a painted one, stored as JPEG with quality 75: 98%
of sharp cells are above 0.027, and 98% of those blurred by a Gaussian of 3 µm are below
0.022, as are half of those blurred by 2 µm.
"""
FOCUS_MPP, COARSEST_FOCUS_MPP = 1.0, 1.3
FOCUS_CELL = 64
"""Side, in pixels, of the cells in which focus is assessed.

Each cell takes the majority class of its neighbors.
"""
MAX_OVERVIEW_PIXELS = 16_000_000
MAX_LEVEL_PIXELS = 40_000_000_000
"""Maximum size, in pixels, of the level from which an overview is made.

Without a pyramid, the whole level is decoded.
"""


class TissueInput(SlideInput):
    """Slide and criteria for what counts as tissue."""

    min_area_um2: float = Field(default=20_000.0, ge=0, description="Drop smaller pieces")
    fill_holes_um2: float = Field(default=10_000.0, ge=0, description="Fill smaller holes")
    keep_pen: bool = Field(default=False, description="Do not remove pen marks")
    focus: Focus = Field(
        default="sample",
        description="sample: report the share of out-of-focus patches in a sample; exclude: "
        "check all tissue at 1 µm per pixel (seconds) and exclude blurred area from the mask; "
        "off",
    )
    min_blur_um2: float = Field(
        default=50_000.0, ge=0, description="With focus=exclude, keep smaller blurred areas"
    )


class TissueResult(SlideResult):
    """Tissue area and output files."""

    tissue_mm2: float
    tissue_fraction: float = Field(description="Share of the slide, 0 to 1")
    pieces: int
    pen_fraction: float = Field(description="Share of the slide under pen marks")
    focus: Focus = Field(description="Treatment of focus: sampled, excluded, or off")
    out_of_focus_fraction: float | None = Field(
        description="Share of the tissue out of focus; with focus=sample, of sampled patches; "
        "None if not checked"
    )
    excluded_blur_mm2: float = Field(description="Area of blurred tissue excluded from the mask")
    mask: OutputName = Field(description="PNG, 255 where there is tissue")
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
    """Find a slide's tissue, and the view whose pixels its masks use.

    Raises `InputError` if the level that shows the whole slide has more than
    `MAX_LEVEL_PIXELS`. Pieces below the minimum area are dropped and holes below the limit
    filled; with `keep_pen`, pen marks are treated as tissue.
    """
    # very large slides are analyzed at lower resolution, so that memory stays bounded
    coarse = slide.need_mpp() * (slide.width * slide.height / MAX_OVERVIEW_PIXELS) ** 0.5
    mm2 = slide.width * slide.height * (slide.need_mpp() / 1000) ** 2
    view = slide.view(max(FIELD_MPP if mm2 < FIELD_MM2 else WORKING_MPP, coarse))
    level = slide.levels[view.level]
    if level.width * level.height > MAX_LEVEL_PIXELS:
        raise InputError(
            f"{slide.path}: no overview is small enough to read whole; the coarsest useful level "
            f"is {level.width} x {level.height} px. Save the slide with a multi-level "
            "pyramid."
        )
    image = view.read(0, 0, view.width, view.height)
    found = find_tissue(
        image, view.mpp, min_area_um2=min_area_um2, fill_holes_um2=fill_holes_um2, keep_pen=keep_pen
    )
    return found, view


def focus_of(slide: Slide, tissue: Tissue, scale: float) -> float | None:
    """Compute the fraction of sampled tissue patches that are out of focus; None without tissue.

    The patches (96 px at 1 µm) are spread evenly over the tissue; `scale` is level-0 pixels
    per mask pixel.
    """
    view = slide.view(FOCUS_MPP)
    picks = spread_over(tissue.mask, 64)
    if not picks:
        return None
    blurred = 0
    for row, column in picks:
        x = int(column * scale / view.scale) - 48
        y = int(row * scale / view.scale) - 48
        blurred += sharpness(view.read(x, y, 96, 96)) < BLUR
    return blurred / len(picks)


def blurred_area(
    slide: Slide, tissue: BoolArray, scale: float, min_area_um2: float, context: ToolContext
) -> BoolArray:
    """Find out-of-focus tissue by scanning all tissue at 1 µm per pixel.

    The result has the shape of `tissue`. `scale` is level-0 pixels per pixel of the (height, width)
    mask `tissue`, and `min_area_um2` the minimum area of an out-of-focus region.
    """
    view = slide.view(FOCUS_MPP)
    rows, columns = -(-view.height // FOCUS_CELL), -(-view.width // FOCUS_CELL)
    sums = np.zeros((4, rows, columns), dtype=np.float32)
    for piece in walk(view, tissue, scale, context, halo=0, message="focus", span=(0.1, 0.7)):
        part = focus_sums(piece.image, piece.tissue, FOCUS_CELL)
        y, x = piece.y // FOCUS_CELL, piece.x // FOCUS_CELL
        h, w = min(part.shape[1], rows - y), min(part.shape[2], columns - x)
        sums[:, y : y + h, x : x + w] = part[:, :h, :w]
    seen = (sums[0] > 0.05).astype(np.float32)
    soft = (focus_ratio(sums) < BLUR) * seen
    # an isolated smooth cell is not blur, and a sharp one in blur is dust: neighbors decide
    votes, voters = cv2.boxFilter(soft, -1, (3, 3)), cv2.boxFilter(seen, -1, (3, 3))
    soft = ((votes > 0.5 * voters) & (seen > 0)).astype(np.uint8)
    _, labels, stats, _ = cv2.connectedComponentsWithStats(soft, connectivity=4)
    least = min_area_um2 / (FOCUS_CELL * view.mpp) ** 2
    large = stats[:, cv2.CC_STAT_AREA] >= least
    large[0] = False
    ratio = scale / (view.scale * FOCUS_CELL)
    # centers of the mask's pixels in cells
    move = np.array([[ratio, 0, ratio / 2 - 0.5], [0, ratio, ratio / 2 - 0.5]], dtype=np.float64)
    height, width = tissue.shape
    flags = cv2.INTER_NEAREST | cv2.WARP_INVERSE_MAP
    out = cv2.warpAffine(large[labels].astype(np.uint8), move, (width, height), flags=flags)
    return np.asarray(out.astype(bool) & tissue, dtype=bool)


@tool(
    "tissue_mask",
    SUITE,
    "1.1.3",
    "Find the tissue of a slide, without pen marks, dust, holes, glass and, optionally, blur.",
    resources=Resources(memory_mb=768, seconds_per_item=1.0),
    validity=Validity(
        stain="H&E, H-DAB and other bright-field stains",
        mpp=(0.1, 12.0),
        organ="any",
        training_data="none; classical method",
        tcga_overlap="none",
        known_failures=(
            "very pale fat can be lost",
            "purple, pink and brown ink, whose colors resemble the dyes, is kept as tissue",
            "dark blue or pale ink over tissue is kept with the tissue",
            "a Gaussian blur below 2 µm is not detected; of 2 µm, half of the area",
            "tissue under ink is removed together with the ink",
            "fluorescence and dark-field images are not supported",
        ),
        accuracy=(
            "painted slide: tissue area within 4%; two real scans were inspected, not scored. "
            "Part of a real scan blurred by 3 µm: focus=exclude excluded 92% of it (70% if the "
            "blurred piece was only 0.14 mm²) and 0.2% of the sharp rest; of the two original "
            "scans, nothing. Ink of nine colors painted on a real scan: all removed from the "
            "glass"
        ),
    ),
)
def tissue_mask(given: TissueInput, context: ToolContext) -> TissueResult:
    """Find a slide's tissue."""
    slide = open_slide(given, context, "bright field")
    context.progress(0.0, "tissue")
    found, view = slide_tissue(
        slide,
        min_area_um2=given.min_area_um2,
        fill_holes_um2=given.fill_holes_um2,
        keep_pen=given.keep_pen,
    )
    warnings = [*slide.warnings, *tissue_warnings(found)]
    context.progress(0.1, "focus")
    blurred, fraction = np.zeros_like(found.mask), None
    if given.focus != "off" and slide.need_mpp() > COARSEST_FOCUS_MPP:
        warnings.append(f"focus cannot be assessed at {slide.need_mpp():g} µm per pixel")
    elif given.focus == "sample":
        fraction = focus_of(slide, found, view.scale)
        if fraction is not None and fraction > 0.2:
            warnings.append(
                f"{fraction:.0%} of the sampled tissue patches are out of focus; use "
                "focus=exclude to exclude them"
            )
    elif given.focus == "exclude":
        blurred = blurred_area(slide, found.mask, view.scale, given.min_blur_um2, context)
        before = int(found.mask.sum())
        fraction = float(blurred.sum()) / before if before else None
        found = replace(found, mask=found.mask & ~blurred)
        if fraction is not None and fraction > 0.2:
            warnings.append(f"{fraction:.0%} of the tissue is out of focus and was excluded")
    polygons = mask_polygons(found.mask, view.scale, simplify_px=0.7, label="Tissue")

    def mm2(mask: BoolArray) -> float:
        pixels = mask_area(mask, view.scale, slide.width, slide.height)
        return pixels * (slide.need_mpp() / 1000) ** 2

    context.progress(0.8, "files")
    start = f"{slide.name}.tissue"
    picture = blend_mask(slide.thumbnail(2048), found.mask, GREEN, 0.25)
    legend = {"tissue": GREEN}
    for label, mask, color in (("pen", found.pen, BLACK), ("out of focus", blurred, VERMILLION)):
        if mask.any():
            picture = blend_mask(picture, mask, color, 0.5)
            legend[label] = color
    return TissueResult(
        **of_slide(slide),
        warnings=warnings,
        tissue_mm2=mm2(found.mask),
        tissue_fraction=float(found.mask.mean()),
        pieces=found.pieces,
        pen_fraction=float(found.pen.mean()),
        focus=given.focus,
        out_of_focus_fraction=fraction,
        excluded_blur_mm2=mm2(blurred),
        mask=save_png(context, f"{start}.mask.png", found.mask),
        mask_mpp=view.mpp,
        geojson=save_geojson(context, f"{start}.geojson", outline_areas(slide, polygons)),
        overlay=save_overlay(context, slide, f"{start}.overlay.png", picture, legend),
    )


def outline_areas(slide: Slide, polygons: list[Polygon]) -> Iterator[dict[str, Any]]:
    """Yield outlines as GeoJSON features with their areas."""
    for polygon in polygons:
        area = polygon.area * (slide.need_mpp() / 1000) ** 2
        yield feature(polygon, measurements={"Area mm^2": area})


def tissue_warnings(found: Tissue) -> list[str]:
    """Return warnings about a tissue mask for readers of the result."""
    warnings = []
    share = float(found.mask.mean())
    if share == 0:
        warnings.append("no tissue found")
    if share > 0.98:
        warnings.append("tissue fills the whole image; there is no glass to compare with")
    if found.pieces > 500:
        warnings.append(f"{found.pieces} separate pieces: fragments, debris or a wrong stain")
    if float(found.pen.mean()) > 0.002:
        warnings.append(f"pen marks cover {float(found.pen.mean()):.1%} of the slide; removed")
    return warnings
