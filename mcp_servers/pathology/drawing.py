"""Legend and scale bar for pictures, and the colors that all pictures share.

The colors are those of Okabe and Ito (2008), which can be told apart with any type of color vision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mcp_servers.slides.arrays import U8, AnyArray
from mcp_servers.slides.geometry import Polygon

Color = tuple[int, int, int]
VERMILLION: Color = (213, 94, 0)
GREEN: Color = (0, 158, 115)
YELLOW: Color = (240, 228, 66)
BLUE: Color = (0, 114, 178)
SKY: Color = (86, 180, 233)
ORANGE: Color = (230, 159, 0)
BLACK: Color = (0, 0, 0)
GRAY: Color = (110, 110, 110)
_STEPS = (1, 2, 5)


def line_width(picture: U8) -> int:
    """Return the width of an outline that stays visible when the picture is shown at half size."""
    return int(max(2, round(max(picture.shape[:2]) / 700)))


def bar_length(um_per_px: float, width: int) -> tuple[float, int]:
    """Choose a round length in µm of an eighth to a third of `width` pixels; also in pixels."""
    most = um_per_px * width / 3
    power = 10.0 ** np.floor(np.log10(max(most, 1e-9)))
    length = max(step * power for step in _STEPS if step * power <= most * (1 + 1e-9))
    return float(length), max(1, round(length / um_per_px))


def bar_text(um: float) -> str:
    """Format a length for readers."""
    return f"{um / 1000:g} mm" if um >= 1000 else f"{um:g} um"


def captioned(
    picture: U8,
    um_per_px: float | None,
    legend: Mapping[str, Color] | None = None,
    ramp: tuple[U8, str, str] | None = None,
    note: str = "",
) -> U8:
    """Add a `caption` below the picture, whose own pixels keep their positions.

    Parameters
    ----------
    picture : (height, width, 3)
    um_per_px : for the scale bar; None draws none
    ramp : colors from low to high, with the text at either end
    """
    return np.concatenate([picture, caption(picture.shape[1], um_per_px, legend, ramp, note)])


def caption(
    width: int,
    um_per_px: float | None,
    legend: Mapping[str, Color] | None = None,
    ramp: tuple[U8, str, str] | None = None,
    note: str = "",
) -> U8:
    """Draw a white strip of `width` pixels with scale bar, legend, color ramp and note.

    Parameters
    ----------
    um_per_px : µm per pixel of the picture; no scale bar if None
    ramp : (n, 3) colors from low to high with the text at either end
    """
    import cv2

    size = float(np.clip(width / 1400, 0.45, 1.3))
    thick = 1 if size < 0.8 else 2
    row = round(34 * size)
    items: list[tuple[str, str, object]] = []
    if um_per_px:
        um, px = bar_length(um_per_px, width)
        items.append(("bar", bar_text(um), px))
    items += [("box", label, color) for label, color in (legend or {}).items()]
    if ramp is not None:
        items.append(("ramp", ramp[1], ramp))
    items += [("text", note, None)] if note else []

    def wide(text: str) -> int:
        return int(cv2.getTextSize(text, cv2.FONT_HERSHEY_SIMPLEX, 0.6 * size, thick)[0][0])

    gap, swatch = round(12 * size), round(22 * size)
    lines: list[list[tuple[str, str, object, int]]] = [[]]
    x = gap
    for kind, text, extra in items:
        need = {"bar": 0, "box": swatch, "ramp": 0, "text": 0}[kind] + wide(text) + 3 * gap
        if isinstance(extra, int):
            need += extra
        if ramp is not None and kind == "ramp":
            need += round(160 * size) + wide(ramp[2])
        if lines[-1] and x + need > width:
            lines.append([])
            x = gap
        lines[-1].append((kind, text, extra, x))
        x += need
    strip = np.full((row * len(lines), width, 3), 255, np.uint8)

    def write(text: str, x: int, y: int) -> None:
        at = (x, y + round(6 * size))
        cv2.putText(
            strip, text, at, cv2.FONT_HERSHEY_SIMPLEX, 0.6 * size, BLACK, thick, cv2.LINE_AA
        )

    for number, line in enumerate(lines):
        y = row * number + row // 2
        for kind, text, extra, x in line:
            half = swatch // 2
            if kind == "bar" and isinstance(extra, int):
                cv2.rectangle(strip, (x, y - half // 3), (x + extra, y + half // 3), BLACK, -1)
                write(text, x + extra + gap // 2, y)
            elif kind == "box":
                color = tuple(int(v) for v in np.asarray(extra))
                cv2.rectangle(strip, (x, y - half), (x + swatch, y + half), color, -1)
                cv2.rectangle(strip, (x, y - half), (x + swatch, y + half), GRAY, 1)
                write(text, x + swatch + gap // 2, y)
            elif kind == "ramp" and ramp is not None:
                write(text, x, y)
                start = x + wide(text) + gap // 2
                colors = np.ascontiguousarray(ramp[0][None], dtype=np.uint8)
                drawn = cv2.resize(colors, (round(160 * size), swatch))
                end = min(start + drawn.shape[1], strip.shape[1])
                if end > start:
                    strip[y - half : y - half + swatch, start:end] = drawn[:, : end - start]
                write(ramp[2], start + drawn.shape[1] + gap // 2, y)
            elif kind == "text":
                write(text, x, y)
    return strip


def ramp_of(low: str, high: str) -> tuple[U8, str, str]:
    """Return the colors of `formats.images.colorize` with the text at either end."""
    from mcp_servers.formats.images import colorize

    return colorize(np.linspace(0, 1, 64), 0, 1), low, high


def draw_outlines(picture: U8, polygons: Sequence[Polygon], scale: float, color: Color) -> U8:
    """Draw outlines with a white rim, so that they stand out on any stain.

    Parameters
    ----------
    picture : (height, width, 3)
    polygons : level-0 pixels
    scale : level-0 pixels per pixel of the picture
    color : red, green, blue, 0 to 255
    """
    from mcp_servers.formats.images import draw_polygons

    width = line_width(picture)
    rim = draw_polygons(picture, polygons, scale, (255, 255, 255), width + 2)
    return draw_polygons(rim, polygons, scale, color, width)


def dots(
    picture: U8, points: AnyArray, color: Color, scale: float, um_per_px: float, um: float = 4.0
) -> None:
    """Draw rings of radius `um` µm around level-0 points in the picture.

    Dots are drawn instead if a ring would be too small.

    Parameters
    ----------
    picture : (height, width, 3); modified
    points : (n, 2) level-0 pixels
    color : red, green, blue, 0 to 255
    scale : level-0 pixels per pixel of the picture
    um_per_px : µm per pixel of the picture
    """
    import cv2

    radius = um / um_per_px
    at = np.round(points / scale).astype(int)
    if radius < 3:  # millions of nuclei share few pixels
        for x, y in np.unique(at, axis=0).tolist():
            cv2.circle(picture, (x, y), max(1, round(radius)), color, -1, cv2.LINE_AA)
        return
    for x, y in at.tolist():
        cv2.circle(picture, (x, y), round(radius), color, 1 if radius < 8 else 2, cv2.LINE_AA)
