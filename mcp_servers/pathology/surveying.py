"""Single-pass slide survey shared by the lymphocyte, tumor and stroma tools."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

import numpy as np

from mcp_servers.context import ToolContext
from mcp_servers.formats.images import colorize, write_png_rows
from mcp_servers.pathology.common import SlideInput
from mcp_servers.pathology.compute.cell_types import dye_strength
from mcp_servers.pathology.compute.survey import CELL_UM, Survey, add_block, sampled_darkness
from mcp_servers.pathology.drawing import Ramp, caption
from mcp_servers.pathology.tissue import slide_tissue, tissue_warnings
from mcp_servers.pathology.walk import walk
from mcp_servers.slides.arrays import F32, U8, BoolArray, spread_over
from mcp_servers.slides.slide import Slide
from mcp_servers.slides.source import release
from sage.core.errors import InputError

COARSEST_MPP = 1.3
SAMPLES = 24
LEAST = 1000
"""Approximate longer side, in pixels, to which small maps are upscaled by an integer factor."""
AT_ONCE = 2
"""Number of blocks surveyed in parallel; the kernels release the GIL."""


@dataclass(frozen=True)
class Surveyed:
    """A slide's survey and the resolution at which it was made."""

    survey: Survey
    at_mpp: float
    warnings: tuple[str, ...]

    @property
    def cell_um(self) -> float:
        """Side length of a grid cell in µm."""
        return CELL_UM

    def scale(self, slide: Slide) -> float:
        """Return the number of level-0 pixels per cell."""
        return self.cell_um / slide.need_mpp()

    def inside(self, slide: Slide) -> tuple[int, int]:
        """Return how many rows and columns of the grid lie within the slide."""
        scale = self.scale(slide)
        return max(1, round(slide.height / scale)), max(1, round(slide.width / scale))


def survey_slide(
    slide: Slide, given: SlideInput, context: ToolContext, *, at_mpp: float = 1.0
) -> Surveyed:
    """Survey a slide, or reuse the survey that another tool made in the same worker.

    `at_mpp` is the resolution at which the slide is read, in µm per pixel. Raises
    `InputError` if the scan is coarser than 1.3 µm per pixel.
    """
    stat = slide.path.stat()
    key = ("survey", str(slide.path), stat.st_mtime_ns, stat.st_size, given.mpp, at_mpp)
    return context.share_handle(key, lambda: _survey(slide, context, at_mpp))


def _survey(slide: Slide, context: ToolContext, at_mpp: float) -> Surveyed:
    base = slide.need_mpp()
    if base > COARSEST_MPP:
        raise InputError(
            f"{slide.path}: cells cannot be resolved at {base:g} µm per pixel; use a scan at "
            f"{COARSEST_MPP:g} µm per pixel or finer"
        )
    tissue, overview = slide_tissue(slide)
    view = slide.view(max(at_mpp, base))
    samples = sample_tissue(slide, tissue.mask, overview.scale, view.mpp)
    survey = Survey.empty(
        slide.width * base,
        slide.height * base,
        sampled_darkness(samples, view.mpp),
        dye_strength(samples),
        tissue.background,
        context.roots.output,
    )
    mask, warnings = tissue.mask, (*slide.warnings, *tissue_warnings(tissue))
    del tissue, samples
    halo, lock = round(16 / view.mpp), Lock()

    scale, span = overview.scale, (0.02, 0.9)
    pieces = walk(view, mask, scale, context, halo=halo, message="cells", span=span)
    waiting: deque[Future[None]] = deque()
    pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="survey")
    try:
        for piece in pieces:
            waiting.append(pool.submit(add_block, survey, piece, view.mpp, lock))
            if len(waiting) > AT_ONCE:
                waiting.popleft().result()
        while waiting:
            waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    release(slide.source)  # what follows works on the grid
    return Surveyed(survey, view.mpp, warnings)


def sample_tissue(
    slide: Slide, mask: BoolArray, mask_scale: float, mpp: float, count: int = SAMPLES
) -> list[U8]:
    """Read patches of 256 px spread evenly over a mask; the choice is deterministic.

    `mask_scale` is level-0 pixels per pixel of the (height, width) mask, and `mpp` is the
    patch resolution in µm per pixel.
    """
    view = slide.view(mpp)
    out = []
    for row, column in spread_over(mask, count, ends=False):
        x = int((column + 0.5) * mask_scale / view.scale) - 128
        y = int((row + 0.5) * mask_scale / view.scale) - 128
        out.append(view.read(x, y, 256, 256))
    return out


def write_map(
    path: Path,
    slide: Slide,
    surveyed: Surveyed,
    values: Callable[[slice], F32],
    bounds: tuple[float, float],
    ramp: Ramp,
) -> None:
    """Write a PNG map with scale bar and color ramp, white outside tissue.

    `values` returns the values for a slice of grid rows, and `bounds` are the values mapped
    to the first and last colors. Anything beyond the slide's border is omitted.
    """
    height, width = surveyed.inside(slide)
    factor = max(1, LEAST // max(height, width))
    strip = caption(width * factor, surveyed.cell_um / factor, ramp=ramp)

    def parts() -> Iterator[U8]:
        for rows in surveyed.survey.bands():
            if rows.start >= height:
                break
            tissue = surveyed.survey.is_tissue(rows)[: height - rows.start, :width]
            picture = np.full((*tissue.shape, 3), 255, dtype=np.uint8)
            if tissue.any():
                shown = values(rows)[: len(picture), :width]
                picture[tissue] = colorize(shown, *bounds)[tissue]
            yield np.repeat(np.repeat(picture, factor, axis=0), factor, axis=1)
        yield strip

    write_png_rows(path, width * factor, height * factor + len(strip), parts())
