"""Legend and scale bar for pictures, and their shared colors.

The colors are those of Okabe and Ito (2008), which can be distinguished with any type of
color vision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mcp_servers.context import ToolContext
from mcp_servers.formats.images import colorize, draw_polygons
from mcp_servers.lazy import cv2
from mcp_servers.pathology.common import save_png
from mcp_servers.slides.arrays import U8, AnyArray
from mcp_servers.slides.geometry import Polygon
from mcp_servers.slides.slide import Slide

Color = tuple[int, int, int]
VERMILLION: Color = (213, 94, 0)
GREEN: Color = (0, 158, 115)
YELLOW: Color = (240, 228, 66)
BLUE: Color = (0, 114, 178)
SKY: Color = (86, 180, 233)
ORANGE: Color = (230, 159, 0)
Ramp = tuple[U8, str, str]
"""Colors (n, 3) from low to high, and the text at either end."""
BLACK: Color = (0, 0, 0)
GRAY: Color = (110, 110, 110)
_STEPS = (1, 2, 5)


def line_width(picture: U8) -> int:
    """Return the width of an outline that stays visible when the picture is shown at half size."""
    return int(max(2, round(max(picture.shape[:2]) / 700)))


def bar_length(um_per_px: float, width: int) -> tuple[float, int]:
    """Choose a round length in µm, an eighth to a third of `width` pixels; also return pixels."""
    most = um_per_px * width / 3
    power = 10.0 ** np.floor(np.log10(max(most, 1e-9)))
    length = max(step * power for step in _STEPS if step * power <= most * (1 + 1e-9))
    return float(length), max(1, round(length / um_per_px))


def captioned(
    picture: U8,
    um_per_px: float | None,
    legend: Mapping[str, Color] | None = None,
    ramp: Ramp | None = None,
) -> U8:
    """Add a `caption` below the (height, width, 3) picture, whose own pixels keep their positions.

    No scale bar is drawn if `um_per_px` is None.
    """
    return np.concatenate([picture, caption(picture.shape[1], um_per_px, legend, ramp)])


def caption(
    width: int,
    um_per_px: float | None,
    legend: Mapping[str, Color] | None = None,
    ramp: Ramp | None = None,
) -> U8:
    """Draw a white strip of `width` pixels with scale bar, legend and color ramp.

    The bar requires `um_per_px`, the µm per picture pixel. Items that do not fit into a row
    are drawn in the next row.
    """
    size = float(np.clip(width / 1400, 0.45, 1.3))
    thick = 1 if size < 0.8 else 2
    row, gap, side = round(34 * size), round(12 * size), round(22 * size)
    items: list[tuple[str, U8, str]] = []  # text before, picture, text after
    if um_per_px:
        um, px = bar_length(um_per_px, width)
        bar = np.zeros((2 * (side // 6) + 1, px, 3), np.uint8)
        items.append(("", bar, f"{um / 1000:g} mm" if um >= 1000 else f"{um:g} um"))
    for label, color in (legend or {}).items():
        box = np.full((side, side, 3), GRAY, np.uint8)
        box[1:-1, 1:-1] = color
        items.append(("", box, label))
    if ramp is not None:
        colors, low, high = ramp
        across = cv2.resize(np.ascontiguousarray(colors[None]), (round(160 * size), side))
        items.append((low, np.asarray(across, dtype=np.uint8), high))

    def wide(text: str) -> int:
        return int(cv2.getTextSize(text, cv2.FONT_HERSHEY_SIMPLEX, 0.6 * size, thick)[0][0])

    def write(text: str, x: int, y: int) -> None:
        at, black = (x, y + round(6 * size)), (0, 0, 0)
        font = cv2.FONT_HERSHEY_SIMPLEX
        cv2.putText(strip, text, at, font, 0.6 * size, black, thick, cv2.LINE_AA)

    places, line, x = [], 0, gap
    for before, swatch, after in items:
        need = wide(before) + swatch.shape[1] + wide(after) + 3 * gap
        if x > gap and x + need > width:
            line, x = line + 1, gap
        places.append((x, row * line + row // 2))
        x += need
    strip = np.full((row * (line + 1), width, 3), 255, np.uint8)
    for (x, y), (before, swatch, after) in zip(places, items, strict=True):
        if before:
            write(before, x, y)
            x += wide(before) + gap // 2
        top = y - len(swatch) // 2
        part = strip[top : top + len(swatch), x : x + swatch.shape[1]]
        part[:] = swatch[:, : part.shape[1]]
        write(after, x + swatch.shape[1] + gap // 2, y)
    return strip


def save_overlay(
    context: ToolContext, slide: Slide, name: str, picture: U8, legend: Mapping[str, Color]
) -> str:
    """Write a drawing over a slide's thumbnail, with its caption, and return the name."""
    um = slide.need_mpp() * slide.width / picture.shape[1]
    return save_png(context, name, captioned(picture, um, legend))


def ramp_of(low: str, high: str) -> Ramp:
    """Return the colors used by `formats.images.colorize`, with text at either end."""
    return colorize(np.linspace(0, 1, 64), 0, 1), low, high


def draw_outlines(picture: U8, polygons: Sequence[Polygon], scale: float, color: Color) -> U8:
    """Draw outlines with a white rim, so that they stand out on any stain.

    Parameters
    ----------
    picture : (height, width, 3)
    polygons : outlines in level-0 pixels
    scale : level-0 pixels per picture pixel
    color : red, green, blue, 0 to 255
    """
    width = line_width(picture)
    rim = draw_polygons(picture, polygons, scale, (255, 255, 255), width + 2)
    return draw_polygons(rim, polygons, scale, color, width)


def dots(picture: U8, points: AnyArray, color: Color, scale: float, um_per_px: float) -> None:
    """Draw rings of 4 µm radius around level-0 points in the picture.

    Dots are drawn instead if a ring would be too small.

    Parameters
    ----------
    picture : (height, width, 3); modified
    points : (n, 2) positions in level-0 pixels
    color : red, green, blue, 0 to 255
    scale : level-0 pixels per picture pixel
    um_per_px : µm per picture pixel
    """
    radius = 4.0 / um_per_px
    at = np.round(points / scale).astype(int)
    if radius < 3:  # millions of nuclei share few pixels
        for x, y in np.unique(at, axis=0).tolist():
            cv2.circle(picture, (x, y), max(1, round(radius)), color, -1, cv2.LINE_AA)
        return
    for x, y in at.tolist():
        cv2.circle(picture, (x, y), round(radius), color, 1 if radius < 8 else 2, cv2.LINE_AA)
