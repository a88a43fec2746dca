"""Color maps of values on the grid of a survey, written some rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from mcp_servers.pathology.surveying import Surveyed
    from mcp_servers.slides.arrays import F32, U8
    from mcp_servers.slides.slide import Slide

LEAST = 1000
"""Approximate longer side, in pixels, to which small maps are enlarged by a whole factor."""


def write_map(
    path: Path,
    slide: Slide,
    surveyed: Surveyed,
    values: Callable[[slice], F32],
    bounds: tuple[float, float],
    ramp: tuple[U8, str, str],
) -> None:
    """Write a PNG of values between `bounds`, white outside tissue, with scale bar and ramp.

    `values` returns some rows of the grid at a time; anything beyond the slide's border is omitted.

    Parameters
    ----------
    values : function from a slice of rows to a (rows, columns) array
    bounds : values with the first and the last color
    ramp : colors from low to high, with the text at either end
    """
    from mcp_servers.formats.images import colorize, write_png_rows
    from mcp_servers.pathology.drawing import caption

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
