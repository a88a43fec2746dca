"""Tools for the tumor's surroundings: lymphocytes by zone, and a proxy for collagen (stroma)."""

from __future__ import annotations

import numpy as np
from pydantic import BaseModel, Field

from mcp_servers.context import ToolContext
from mcp_servers.formats.images import blend_mask
from mcp_servers.lazy import cv2
from mcp_servers.pathology.common import SUITE, SlideResult, of_slide, open_slide
from mcp_servers.pathology.compute.lymphoid import aggregates
from mcp_servers.pathology.compute.survey import CELL_UM, SHARE_STEPS
from mcp_servers.pathology.compute.tissue import optical_density
from mcp_servers.pathology.drawing import BLUE, ramp_of, save_overlay
from mcp_servers.pathology.nuclei import CellsSource, read_lymphocytes
from mcp_servers.pathology.surveying import sample_tissue, survey_slide, write_map
from mcp_servers.pathology.tumor import (
    TumorSource,
    TumorSourceName,
    need_tumor,
    to_thumbnail,
    tumor_area,
)
from mcp_servers.slides.arrays import F32, F64, U8, BoolArray
from mcp_servers.spec import OutputName, Resources, Validity, tool


class TilInput(TumorSource, CellsSource):
    """Slide, sources of the tumor outlines and of the typed cells, and zone widths."""

    margin_um: float = Field(
        default=100.0, gt=0, description="Half-width of the margin, on both sides of the border"
    )
    band_um: float = Field(
        default=500.0, gt=0, description="Width of the peritumoral band outside the border"
    )
    at_mpp: float = Field(
        default=1.0, ge=0.2, le=1.3, description="Working resolution, in µm per pixel"
    )


class Zone(BaseModel):
    """Area, number and density of lymphocytes in a zone."""

    area_mm2: float
    lymphocytes: int
    per_mm2: float | None


class TilResult(SlideResult):
    """Densities of lymphocytes per mm² in each zone."""

    tumor_source: TumorSourceName = Field(description="Method by which the tumor was detected")
    tissue: Zone
    tumor: Zone | None = Field(description="This and the next zones are None without a tumor")
    center: Zone | None = Field(description="Tumor farther than margin_um from the border")
    margin: Zone | None = Field(description="Within margin_um of the border, on both sides")
    peritumoral: Zone | None = Field(description="Outside, up to band_um from the border")
    margin_enrichment: float | None = Field(
        description="Density at the margin divided by that in the center; None without a center"
    )
    profile: list[tuple[float, float | None]] = Field(
        description="Signed distance to the border (µm, negative inside) and the density per mm² "
        "there"
    )
    density_map: OutputName = Field(description="PNG, color scale from 0 to 5,000 per mm²")


@tool(
    "til",
    SUITE,
    "2.0.0",
    "Measure the density of lymphocytes, typed by your own network, in tumor, at its margin and "
    "around it, and the margin enrichment.",
    resources=Resources(cpu=2, memory_mb=1024, seconds_per_item=8.0),
    validity=Validity(
        stain="H&E",
        mpp=(0.2, 1.3),
        organ="solid tumors",
        training_data="those of the network that typed the cells",
        tcga_overlap="that of the network",
        known_failures=(
            "without typed cells there is no value: by SAGE's own lymphocytes, fields of "
            "lymphocytes ranked below carcinoma (AUC 0.30, 6 against 69 labeled fields)",
            "depends on the outlines or the model of the tumor",
        ),
        accuracy="that of the network for lymphocytes, on your own labels",
    ),
    title="Tumor-infiltrating lymphocytes",
)
def til(given: TilInput, context: ToolContext) -> TilResult:
    """Measure lymphocyte densities on a slide, by zone."""
    from mcp_servers.pathology.compute.distance import Border

    slide = open_slide(given, context)
    points = read_lymphocytes(slide, given, context)
    surveyed = survey_slide(slide, given, context, at_mpp=given.at_mpp)
    survey = surveyed.survey
    lymphocytes = _on_grid(points / surveyed.scale(slide), survey.tissue)
    area = tumor_area(slide, surveyed, context, given)
    border = Border(area.mask)
    lows = np.arange(-300.0, given.band_um, 50.0)
    # cells (by their tissue) and lymphocytes of the five zones, then of each step of the profile
    sums = np.zeros((5 + len(lows), 2))
    for rows in survey.bands():
        if not survey.holds(rows):
            continue
        tissue, counts = survey.read_layer("tissue", rows), lymphocytes[rows]
        distance, inside = border.distance(rows), area.mask[rows]
        everywhere = tissue > 0
        parts = [
            everywhere,
            inside,
            inside & (distance < -given.margin_um),
            everywhere & (np.abs(distance) <= given.margin_um),
            everywhere & ~inside & (distance <= given.band_um),
            *(everywhere & (distance > low) & (distance <= low + 50.0) for low in lows),
        ]
        sums += [[tissue[part].sum() / SHARE_STEPS, counts[part].sum()] for part in parts]
    del border
    found = [_zone(cells * (CELL_UM / 1000) ** 2, int(number)) for cells, number in sums]
    zones = found[:5]
    enrichment = None
    inner, edge = zones[2].per_mm2, zones[3].per_mm2
    if inner and edge is not None and zones[2].area_mm2 >= 0.05:
        enrichment = edge / inner
    warnings = [*surveyed.warnings, *area.warnings]
    known = area.source != "none"
    if enrichment is None and area.mask.any():
        warnings.append("no tumor center of 0.05 mm² with lymphocytes: no margin enrichment")
    profile: list[tuple[float, float | None]] = []
    if area.mask.any():
        steps = zip(lows, found[5:], strict=True)
        profile = [(float(low + 25), step.per_mm2) for low, step in steps]
    context.progress(0.95, "files")
    name = f"{slide.name}.til.density.png"
    with context.writing(name) as path:
        ramp = ramp_of("lymphocytes per mm2: 0", "5,000 and more")

        def density(rows: slice) -> F32:
            return survey.smooth((lymphocytes,), 40.0, rows)[0] / np.float32((CELL_UM / 1000) ** 2)

        write_map(path, slide, surveyed, density, (0, 5000), ramp)
    return TilResult(
        **of_slide(slide),
        method="learned",
        tumor_source=area.source,
        warnings=warnings,
        tissue=zones[0],
        tumor=zones[1] if known else None,
        center=zones[2] if known else None,
        margin=zones[3] if known else None,
        peritumoral=zones[4] if known else None,
        margin_enrichment=enrichment,
        profile=profile,
        density_map=name,
    )


def _on_grid(cells: F64, tissue: BoolArray) -> U8:
    """Count (n, 2) points, x and y in cells, on the (rows, columns) grid of the tissue."""
    counts = np.zeros(tissue.shape, dtype=np.uint8)
    column, row = cells.astype(int).T
    inside = (row >= 0) & (row < len(tissue)) & (column >= 0) & (column < tissue.shape[1])
    row, column = row[inside], column[inside]
    own = tissue[row, column]
    np.add.at(counts, (row[own], column[own]), 1)
    return counts


def _zone(area_mm2: float, lymphocytes: int) -> Zone:
    density = lymphocytes / area_mm2 if area_mm2 else None
    return Zone(area_mm2=area_mm2, lymphocytes=lymphocytes, per_mm2=density)


WINDOW_UM = 40.0
"""Side of the window over which fiber directions are compared."""


class StromaInput(TumorSource):
    """Region to measure, and source of the tumor outlines."""

    band_um: float = Field(default=500.0, gt=0, description="Width of the peritumoral band")


class StromaResult(SlideResult):
    """Stroma measurements as fractions of tissue, between 0 and 1."""

    tumor_source: TumorSourceName = Field(description="Method by which the tumor was detected")
    stroma_fraction: float = Field(description="Tissue that is neither tumor nor lymphoid")
    collagen_fraction: float = Field(description="Eosinophilic, non-nuclear pixels in the stroma")
    collagen_peritumoral: float | None = Field(
        description="Eosinophilic, non-nuclear pixels in the peritumoral band"
    )
    fiber_alignment: float | None = Field(
        description="Mean coherence of fiber direction in sampled stroma: 0 for random, 1 for "
        "parallel"
    )
    tumor_stroma_ratio: float | None
    overlay: OutputName


@tool(
    "stroma",
    SUITE,
    "1.2.0",
    "Measure the stroma of a slide and a proxy of its collagen: fractions and fiber alignment "
    "(H&E, no special stain).",
    resources=Resources(cpu=2, memory_mb=1024, seconds_per_item=9.0),
    validity=Validity(
        stain="H&E",
        mpp=(0.2, 1.3),
        organ="solid tumors",
        training_data="none; classical method",
        tcga_overlap="none",
        known_failures=(
            "H&E does not show collagen as such: muscle, keratin, fibrin and necrosis are pink too",
            "over-eosinophilic slides raise the collagen share",
            "depends on the outlines or the model of the tumor",
        ),
        accuracy="not compared with a collagen stain: use it for ranking within one staining lab",
    ),
)
def stroma(given: StromaInput, context: ToolContext) -> StromaResult:
    """Measure stroma on a slide."""
    from mcp_servers.pathology.compute.distance import Border

    slide = open_slide(given, context)
    need_tumor(slide, given, context)
    surveyed = survey_slide(slide, given, context)
    survey = surveyed.survey
    area = tumor_area(slide, surveyed, context, given)
    immune = aggregates(survey).mask
    where = ~(area.mask | immune)
    del immune
    shown = np.zeros(survey.shape, dtype=bool)
    border = Border(area.mask)
    # all tissue, stroma, its band around the tumor, tumor; and the collagen-like part of each
    sums = np.zeros((4, 2), dtype=np.int64)
    for rows in survey.bands():
        tissue = survey.is_tissue(rows)
        where[rows] &= tissue
        if not tissue.any():
            continue
        share, pink = survey.read_layer("tissue", rows), survey.read_layer("pink", rows)
        shown[rows] = where[rows] & (pink > 0.5 * np.maximum(share, 0.25 * SHARE_STEPS))
        near = where[rows] & (border.distance(rows) <= given.band_um)
        parts = (tissue, where[rows], near, area.mask[rows])
        sums += [[layer[part].sum(dtype=np.int64) for layer in (share, pink)] for part in parts]
    del border
    (total, _), (own, own_pink), (in_band, band_pink), (tumor_weight, _) = sums.tolist()
    context.progress(0.92, "fibers")
    patches = sample_tissue(slide, where, surveyed.scale(slide), surveyed.at_mpp, count=32)
    aligned = [coherence(patch, surveyed.at_mpp) for patch in patches]
    seen = [value for value in aligned if value is not None]
    picture = slide.thumbnail(2048)
    mask = to_thumbnail(shown, slide, surveyed, picture.shape[1], picture.shape[0]) > 0
    drawn = blend_mask(picture, mask, BLUE, 0.4, outline=False)
    name, legend = f"{slide.name}.stroma.overlay.png", {"collagen-like stroma": BLUE}
    return StromaResult(
        **of_slide(slide),
        method=area.method,
        tumor_source=area.source,
        warnings=[*surveyed.warnings, *area.warnings],
        stroma_fraction=own / total if total else 0.0,
        collagen_fraction=own_pink / own if own else 0.0,
        collagen_peritumoral=band_pink / in_band if in_band else None,
        fiber_alignment=float(np.mean(seen)) if seen else None,
        tumor_stroma_ratio=tumor_weight / own if own and area.mask.any() else None,
        overlay=save_overlay(context, slide, name, drawn, legend),
    )


def coherence(image: U8, mpp: float) -> float | None:
    """Compute the structure tensor's mean coherence over stained pixels; None on glass.

    The coherence is (l1 - l2) / (l1 + l2), from the eigenvalues of the gradient's outer
    product averaged over `WINDOW_UM`: 0 if gradients point in all directions, 1 if all fibers
    are parallel.
    """
    green = optical_density(image)[:, :, 1]
    stained = green > 0.1
    if float(stained.mean()) < 0.1:
        return None
    smooth = cv2.GaussianBlur(green, (0, 0), max(0.6, 1.0 / mpp))
    gx = np.asarray(cv2.Sobel(smooth, cv2.CV_32F, 1, 0), dtype=np.float32)
    gy = np.asarray(cv2.Sobel(smooth, cv2.CV_32F, 0, 1), dtype=np.float32)
    sigma = WINDOW_UM / 2 / mpp
    xx, yy, xy = (cv2.GaussianBlur(v, (0, 0), sigma) for v in (gx * gx, gy * gy, gx * gy))
    spread = np.sqrt((xx - yy) ** 2 + 4 * xy**2)
    return float((spread / (xx + yy + 1e-9))[stained].mean())
