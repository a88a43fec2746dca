"""Shared style of figures: colors, fonts, canvas and output."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Required, TypedDict

import numpy as np

from sage.core import printable
from sage.core.errors import InputError
from sage.core.files import write_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, in an order whose first four also differ in lightness.
OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.6)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
INK = "#222222"
MUTED = "#767676"
DPI = 200
PLATE = {"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "pad": 1.5}
"""Background box for text that curves or bars may cross."""

_RC: Any = {
    "svg.hashsalt": "sage",
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",
    "font.size": 8.5,
    "axes.titlesize": 10,
    "axes.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "text.parse_math": False,
    "path.simplify": False,
}


class Look(TypedDict, total=False):
    """Text in a figure: title, subtitle on patients shown, simulated-data mark, description."""

    title: Required[str]
    subtitle: str
    simulated: bool
    description: str


@contextmanager
def drawing(
    path: Path,
    width: float,
    height: float,
    *,
    title: str,
    subtitle: str = "",
    simulated: bool = False,
    description: str = "",
) -> Iterator[Figure]:
    """Open a figure of this size in inches with its heading; save it when the block ends."""
    with canvas(width, height) as figure:
        heading(figure, title, subtitle, simulated=simulated, left=0.02)
        yield figure
        save(figure, path, title=title, description=description or subtitle)


@contextmanager
def canvas(width: float, height: float) -> Iterator[Figure]:
    """Open a figure of this size in inches, with the house style, on an Agg canvas."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_RC):
        figure = Figure(figsize=(width, height), dpi=DPI, facecolor="white")
        FigureCanvasAgg(figure)
        yield figure


def save(figure: Figure, path: Path, *, title: str, description: str = "") -> Path:
    """Write SVG or PNG by the path's suffix, or both from one layout if there is no suffix.

    Each file is written completely or not at all. Files contain no date or program version, so that
    equal figures give equal files.

    Raises `InputError` for any other suffix.
    """
    from matplotlib.text import Text

    kinds = [path.suffix.lower()] if path.suffix else [".svg", ".png"]
    if not {".svg", ".png"}.issuperset(kinds):
        raise InputError(f"{path}: figures must be written as .svg or .png")
    for text in figure.findobj(Text):
        text.set_text(clean_text(text.get_text()))
    for kind in kinds:
        metadata: dict[str, str | None] = {
            "Title": clean_text(title),
            "Description": clean_text(description),
        }
        metadata |= {"Date": None, "Creator": "SAGE"} if kind == ".svg" else {"Software": None}
        image = BytesIO()
        figure.savefig(image, format=kind[1:], dpi=DPI, metadata=metadata)
        write_bytes(path if path.suffix else path.with_suffix(kind), image.getvalue())
    return path


LONGEST = 300
"""Maximum number of characters in a drawn line, several times the width of any figure."""


def clean_text(text: str) -> str:
    """Clean text for a figure and an SVG: printable characters, in lines of bounded length."""
    lines = printable.clean_text(text).split("\n")
    return "\n".join(line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…" for line in lines)


def heading(figure: Figure, title: str, subtitle: str, *, simulated: bool, left: float) -> None:
    """Draw the title from `left` (share of the width), a subtitle and a simulated-data label."""
    height = figure.get_figheight()
    figure.text(left, 1 - 0.12 / height, title, fontsize=10.5, weight="bold", va="top")
    if subtitle:
        figure.text(left, 1 - 0.34 / height, subtitle, fontsize=8.5, color=MUTED, va="top")
    if simulated:
        figure.text(
            0.985,
            1 - 0.10 / height,
            "SIMULATED DATA",
            fontsize=8,
            weight="bold",
            ha="right",
            va="top",
            color="white",
            bbox={"facecolor": "#B00020", "edgecolor": "none", "boxstyle": "square,pad=0.3"},
        )


def wrap_text(text: str, width: int, lines: int = 2) -> str:
    """Wrap text into at most `lines` lines; the rest is replaced by an ellipsis."""
    parts = textwrap.wrap(text, width, break_long_words=True)
    if len(parts) > lines:
        parts = [*parts[: lines - 1], parts[lines - 1][: width - 1].rstrip() + "…"]
    return "\n".join(parts)


def p_text(p: float) -> str:
    """Format a p-value for a figure."""
    if p != p:
        return "p n/a"
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}" if p < 0.1 else f"p = {p:.2f}"


STEPS = (1, 0.5, 2, 0.2, 5, 0.1, 10, 0.33, 3, 0.67, 1.5, 0.05, 20, 0.8, 1.25)
"""Candidate ticks for a ratio axis, most useful first."""
DIGIT, LINE = 0.08, 0.17
"""Inches occupied by a character of a tick label and by a line."""


def ratio_ticks(axes: Axes, low: float, high: float, *, vertical: bool = False) -> None:
    """Set plain ticks (0.5, 1, 2) on a logarithmic axis from low to high, as many as fit."""
    from matplotlib.ticker import FixedLocator, NullLocator

    box = axes.get_position()
    width, height = axes.get_figure().get_size_inches()  # type: ignore[union-attr]
    length = float(box.height * height if vertical else box.width * width)

    def room(step: float) -> float:
        return LINE if vertical else DIGIT * (len(f"{step:g}") + 1)

    ticks: list[float] = []
    for step in STEPS:
        if not low <= step <= high:
            continue
        apart = (abs(np.log(step / tick) / np.log(high / low)) * length for tick in ticks)
        if all(d >= (room(step) + room(t)) / 2 for d, t in zip(apart, ticks, strict=True)):
            ticks.append(step)
    axis = axes.yaxis if vertical else axes.xaxis
    if vertical:
        axes.set_yscale("log")
        axes.set_ylim(low, high)
    else:
        axes.set_xscale("log")
        axes.set_xlim(low, high)
    axis.set_major_locator(FixedLocator(sorted(ticks)))
    axis.set_minor_locator(NullLocator())
    axis.set_ticklabels([f"{tick:g}" for tick in sorted(ticks)])
