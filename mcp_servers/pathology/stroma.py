"""Tool that measures collagen and stroma by color and fiber orientation.

This is a proxy, not a collagen stain.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from mcp_servers.context import ToolContext
from mcp_servers.formats.images import blend_mask
from mcp_servers.lazy import cv2
from mcp_servers.pathology.common import SUITE, SlideResult, of_slide, open_slide
from mcp_servers.pathology.compute.lymphoid import aggregates
from mcp_servers.pathology.compute.survey import SHARE_STEPS
from mcp_servers.pathology.compute.tissue import optical_density
from mcp_servers.pathology.drawing import BLUE, save_overlay
from mcp_servers.pathology.surveying import sample_tissue, survey_slide
from mcp_servers.pathology.tumor import TumorSource, TumorSourceName, to_thumbnail, tumor_area
from mcp_servers.slides.arrays import U8
from mcp_servers.spec import OutputName, Resources, Validity, tool

WINDOW_UM = 40.0
"""Side of the window over which fiber directions are compared."""


class StromaInput(TumorSource):
    """Region in which stroma is measured."""

    band_um: float = Field(default=500.0, gt=0, description="Width of the peritumoral band")


class StromaResult(SlideResult):
    """Shares of tissue, between 0 and 1."""

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
    "1.1.2",
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
            "depends on the tumor mask: see the tool tumor, or provide outlines",
        ),
        accuracy="not compared with a collagen stain: use it for ranking within one staining lab",
    ),
)
def stroma(given: StromaInput, context: ToolContext) -> StromaResult:
    """Measure the stroma of a slide."""
    from mcp_servers.pathology.compute.distance import Border

    slide = open_slide(given, context)
    surveyed = survey_slide(slide, given, context)
    survey = surveyed.survey
    area = tumor_area(slide, surveyed, context, given, given.tumor_regions)
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

    The coherence is (l1 - l2) / (l1 + l2) of the gradient's outer product averaged over
    `WINDOW_UM`: 0 if gradients point in all directions, 1 if all fibers are parallel.
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
