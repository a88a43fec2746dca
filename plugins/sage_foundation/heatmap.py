"""Heat maps of tile scores drawn over a slide."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from mcp_servers.context import ToolContext
from mcp_servers.pathology.common import SUITE, SlideInput, SlideResult, of_slide, open_slide
from mcp_servers.spec import InputPath, OutputName, Resources, tool
from sage.core.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    from mcp_servers.slides.arrays import F64, I64


class HeatmapInput(SlideInput):
    """Scores to draw and the range of the color scale."""

    scores: InputPath = Field(
        description="CSV with columns x, y and the score, or HDF5 with coords and the score"
    )
    column: str = Field(default="score", description="Name of the column or dataset")
    tile_px_level0: float | None = Field(
        default=None,
        gt=0,
        description="Side of a tile in level-0 pixels; default: from the file or the grid",
    )
    low: float | None = Field(
        default=None, description="Score drawn in blue; default: the 1st percentile"
    )
    high: float | None = Field(
        default=None, description="Score drawn in yellow; default: the 99th percentile"
    )


class HeatmapResult(SlideResult):
    """Heat map image and the range of its color scale."""

    tiles: int
    low: float
    high: float
    mean: float
    image: OutputName


@tool(
    "heatmap",
    SUITE,
    "1.0.1",
    "Draw scores of tiles (attention, text similarity, any column) over a slide.",
    resources=Resources(memory_mb=512, seconds_per_item=0.5),
    title="Draw a heat map of tile scores",
)
def heatmap(given: HeatmapInput, context: ToolContext) -> HeatmapResult:
    """Draw a slide's heat map; tiles without a score are left uncolored."""
    import cv2
    import numpy as np

    from mcp_servers.formats.images import colorize, write_png
    from mcp_servers.pathology.drawing import captioned, ramp_of

    slide = open_slide(given, context)
    coords, scores, stored = read_scores(context.input(given.scores, "file"), given.column)
    inside = (coords >= 0).all(axis=1) & (coords < [slide.width, slide.height]).all(axis=1)
    if not inside.all():
        raise InputError(f"{given.scores}: {int((~inside).sum())} tiles are outside this slide")
    finite = np.isfinite(scores)
    if not finite.any():
        raise InputError(f'{given.scores}: "{given.column}" contains no numbers')
    warnings = list(slide.warnings)
    if not finite.all():
        warnings.append(f"{int((~finite).sum())} tiles have no score and are not drawn")
    coords, scores = coords[finite], scores[finite]
    size = given.tile_px_level0 or stored or _spacing(coords)
    low = float(np.percentile(scores, 1)) if given.low is None else given.low
    high = float(np.percentile(scores, 99)) if given.high is None else given.high
    if high < low:
        raise InputError(f"high ({high:g}) is below low ({low:g})")
    colors = colorize(scores, low, max(high, low + 1e-9))
    picture = slide.thumbnail(2048)
    ratio = slide.width / picture.shape[1]
    layer = picture.copy()
    for (x, y), color in zip(coords, colors, strict=True):
        a = (round(x / ratio), round(y / ratio))
        b = (round((x + size) / ratio) - 1, round((y + size) / ratio) - 1)
        cv2.rectangle(layer, a, b, tuple(int(v) for v in color), -1)
    name = f"{slide.name}.{_safe(given.column)}.heatmap.png"
    with context.writing(name) as path:
        drawn = np.asarray(cv2.addWeighted(layer, 0.55, picture, 0.45, 0), dtype=np.uint8)
        um = slide.mpp * ratio if slide.mpp else None
        ramp = ramp_of(f"{given.column} {low:.3g}", f"{high:.3g}")
        write_png(path, captioned(drawn, um, ramp=ramp))
    return HeatmapResult(
        **of_slide(slide),
        warnings=warnings,
        tiles=len(scores),
        low=low,
        high=high,
        mean=float(scores.mean()),
        image=name,
    )


def _safe(text: str) -> str:
    return "".join(c if c.isalnum() or c in "-_" else "_" for c in text)[:60]


def _spacing(coords: I64) -> float:
    """Infer the tile size from the smallest step between tile corners."""
    import numpy as np

    steps = [np.diff(np.unique(coords[:, axis])) for axis in (0, 1)]
    every = np.concatenate(steps)
    return float(every.min()) if len(every) else 256.0


def read_scores(path: Path, column: str) -> tuple[I64, F64, float | None]:
    """Read (n, 2) corners, (n,) scores, and the tile size if the file states it.

    Raises `InputError` if columns are missing or lengths differ.
    """
    import numpy as np

    if path.suffix.lower() in {".h5", ".hdf5"}:
        from sage_foundation.features import dataset, open_hdf5, read_coords

        coords, attributes = read_coords(path)
        with open_hdf5(path) as file:
            scores = np.asarray(dataset(file, column, path)[()], dtype=np.float64).ravel()
        if len(scores) != len(coords):
            raise InputError(f"{path}: {len(coords)} coordinates but {len(scores)} scores")
        side = attributes.get("patch_size_level0")
        return coords, scores, None if side is None else float(side)
    import pandas as pd

    try:
        table = pd.read_csv(path)
    except (ValueError, OSError) as error:
        raise InputError(f"{path}: not a readable CSV file: {error}") from error
    missing = [name for name in ("x", "y", column) if name not in table.columns]
    if missing:
        held = ", ".join(map(str, table.columns[:20]))
        raise InputError(f"{path}: unknown column {', '.join(missing)}; available columns: {held}")
    try:
        coords = table[["x", "y"]].to_numpy(dtype=np.float64).round().astype(np.int64)
        scores = table[column].to_numpy(dtype=np.float64)
    except ValueError as error:
        raise InputError(f"{path}: x, y and {column} must be numbers: {error}") from error
    return coords, scores, None
