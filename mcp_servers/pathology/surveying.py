"""Survey of a slide: the pass that the lymphocyte, tumor and stroma tools share."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING

from mcp_servers.context import ToolContext
from sage.core.errors import InputError

if TYPE_CHECKING:
    from mcp_servers.pathology.common import SlideInput
    from mcp_servers.pathology.compute.survey import Survey
    from mcp_servers.slides.arrays import U8, BoolArray
    from mcp_servers.slides.slide import Slide

COARSEST_MPP = 1.3
SAMPLES = 24
AT_ONCE = 2
"""Number of blocks surveyed in parallel; the kernels release the interpreter's lock."""


@dataclass(frozen=True)
class Surveyed:
    """A slide's survey and the resolution at which it was made."""

    survey: Survey
    at_mpp: float
    warnings: tuple[str, ...]

    @property
    def cell_um(self) -> float:
        """Side of a cell in µm."""
        from mcp_servers.pathology.compute.survey import CELL_UM

        return CELL_UM

    def scale(self, slide: Slide) -> float:
        """Return the number of level-0 pixels per cell."""
        return self.cell_um / slide.need_mpp()

    def inside(self, slide: Slide) -> tuple[int, int]:
        """Return the rows and columns of the grid that are on the slide."""
        scale = self.scale(slide)
        return max(1, round(slide.height / scale)), max(1, round(slide.width / scale))


def survey_slide(
    slide: Slide,
    given: SlideInput,
    context: ToolContext,
    *,
    at_mpp: float = 1.0,
    span: tuple[float, float] = (0.02, 0.9),
) -> Surveyed:
    """Survey a slide, reusing the survey among the tools that a worker runs on the slide.

    Parameters
    ----------
    at_mpp : resolution at which the slide is read, µm per pixel
    span : range of the overall progress, from start to end

    Raises
    ------
    InputError
        If the scan is coarser than 1.3 µm per pixel.
    """
    stat = slide.path.stat()
    key = ("survey", str(slide.path), stat.st_mtime_ns, stat.st_size, given.mpp, at_mpp)
    return context.share_handle(key, lambda: _survey(slide, context, at_mpp, span))


def _survey(
    slide: Slide, context: ToolContext, at_mpp: float, span: tuple[float, float]
) -> Surveyed:
    from mcp_servers.pathology.compute.cell_types import dye_strength
    from mcp_servers.pathology.compute.survey import Survey, add_block, sampled_darkness
    from mcp_servers.pathology.tissue import slide_tissue, tissue_warnings
    from mcp_servers.pathology.walk import Piece, walk
    from mcp_servers.slides.source import release

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

    def add(piece: Piece) -> None:
        origin = (piece.x * view.mpp, piece.y * view.mpp)
        add_block(survey, piece.image, piece.tissue, piece.inner, origin, view.mpp, lock)

    pieces = walk(view, mask, overview.scale, context, halo=halo, message="cells", span=span)
    waiting: deque[Future[None]] = deque()
    pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="survey")
    try:
        for piece in pieces:
            waiting.append(pool.submit(add, piece))
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
    """Read patches of 256 px spread evenly over a mask; the patches are always the same.

    Parameters
    ----------
    mask : (height, width)
    mask_scale : level-0 pixels per mask pixel
    mpp : µm per pixel of the patches
    """
    from mcp_servers.slides.arrays import spread_over

    view = slide.view(mpp)
    out = []
    for row, column in spread_over(mask, count, ends=False):
        x = int((column + 0.5) * mask_scale / view.scale) - 128
        y = int((row + 0.5) * mask_scale / view.scale) - 128
        out.append(view.read(x, y, 256, 256))
    return out
