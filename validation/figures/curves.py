"""Shared components of survival figures: time axis, bands, and numbers at risk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Required, Unpack

import numpy as np

from sage.core.errors import InputError
from validation.figures.style import DASHES, INK, OKABE_ITO, Look, drawing, wrap_text
from validation.statistics.base import FloatArray, IntArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


WIDTH = 4.2
"""Width in inches; narrow, so that text stays legible in a page column and on a phone."""
LEFT = 0.14
"""Left end of the axes as a share of the figure's width."""


class Followed(Protocol):
    """A curve with the number of patients still followed just before each of its times."""

    @property
    def times(self) -> FloatArray: ...
    @property
    def at_risk(self) -> IntArray: ...
    @property
    def n(self) -> int: ...


class Frame(Look, total=False):
    """Text around the curves and the time axis of a figure.

    time_unit : the unit of all times
    until : end of the time axis (default: the last time with ten patients at risk, so that
        the tail without patients is not read as a result; the caption states this)
    """

    time_unit: Required[str]
    until: float | None


@contextmanager
def follow_up(
    curves: Mapping[str, Followed],
    path: Path,
    *,
    time_unit: str,
    until: float | None = None,
    extra: float = 0.0,
    smallest: int = 1,
    dashed: bool = False,
    **look: Unpack[Look],
) -> Iterator[tuple[Figure, Axes, FloatArray, float]]:
    """Open a figure with axes over follow-up and numbers at risk below them; see `Frame`.

    Yields the figure, the axes, the times in the table and the end of the time axis. `extra`
    inches are added to the axes' height; counts below `smallest` are not shown. With
    `dashed`, the names in the table show the curves' line styles and thus serve as the
    legend.

    Raises `InputError` if there are no curves, or more curves than colors.
    """
    from matplotlib.lines import Line2D

    if not curves:
        raise InputError("figure: no curves given")
    if len(curves) > len(OKABE_ITO):
        raise InputError(
            f"figure: at most {len(OKABE_ITO)} groups are supported, got {len(curves)}"
        )
    end = until if until is not None else supported(curves)
    marks = round_ticks(end, time_unit)
    labels = {name: wrap_text(name, 54, 3) for name in curves}
    lines = 1 + max(label.count("\n") for label in labels.values())
    step = 0.17 + 0.14 * lines
    table = 0.62 + step * len(curves)
    height = 3.3 + table + extra
    with drawing(path, WIDTH, height, **look) as figure:
        top = 0.62 if look.get("subtitle") else 0.42
        axes = figure.add_axes(
            (LEFT, (table + 0.28) / height, 0.97 - LEFT, 1 - (table + 0.28 + top) / height)
        )
        axes.set_xlim(0, end * 1.005)
        axes.set_xticks(marks)
        axes.set_xticklabels([f"{m:g}" for m in marks])
        axes.set_xlabel(f"Time ({time_unit})")
        below = table - 0.28
        figure.text(0.02, below / height, "At risk", fontsize=8, weight="bold", va="center")
        for number, (name, curve) in enumerate(curves.items()):
            y = below - 0.12 - number * step
            look_of: dict[str, Any] = {
                "fontsize": 8,
                "color": OKABE_ITO[number],
                "va": "top",
                "linespacing": 1.05,
            }
            figure.text(0.12 if dashed else 0.02, y / height, labels[name], **look_of)
            if dashed:
                line = {"color": OKABE_ITO[number], "linestyle": DASHES[number % len(DASHES)]}
                middle = [(y - 0.06) / height] * 2
                figure.add_artist(Line2D([0.02, 0.1], middle, linewidth=1.7, **line))
            for mark, count in zip(marks, at_risk(curve, marks), strict=True):
                x = LEFT + (0.97 - LEFT) * float(mark) / (end * 1.005)
                text = count_text(int(count), smallest)
                at = (y - 0.07 - 0.14 * lines) / height
                figure.text(x, at, text, fontsize=8, ha="center", va="center", color=INK)
        yield figure, axes, marks, end


def band(
    axes: Axes, times: FloatArray, lower: FloatArray, upper: FloatArray, end: float, color: str
) -> None:
    """Draw a pale step band from each (m,) lower to upper limit, up to the time `end`."""
    shown = times <= end
    axes.fill_between(
        np.append(times[shown], end),
        repeat_last(lower[shown]),
        repeat_last(upper[shown]),
        step="post",
        color=color,
        alpha=0.16,
        linewidth=0,
    )


def steps(axes: Axes, times: FloatArray, values: FloatArray, end: float, **look: Any) -> None:
    """Draw a right-continuous step line through (m,) values, up to the time `end`."""
    shown = times <= end
    axes.step(np.append(times[shown], end), repeat_last(values[shown]), where="post", **look)


def at_risk(curve: Followed, when: FloatArray) -> IntArray:
    """Return the number of patients still followed just before each time in `when`."""
    position = np.searchsorted(curve.times, when, side="left")
    padded = np.append(curve.at_risk, 0)
    return np.asarray(padded[position], dtype=np.int64)


def count_text(count: int, smallest: int) -> str:
    """Format a count, hiding counts that are too small."""
    return f"<{smallest}" if smallest > 1 and count < smallest else str(count)


def repeat_last(values: FloatArray) -> FloatArray:
    """Append the last value again for the end of the axis."""
    return np.append(values, values[-1])


def supported(curves: Mapping[str, Followed]) -> float:
    """Return the last time with ten patients at risk in any group, at least half the follow-up."""
    longest = max(float(c.times[-1]) for c in curves.values())
    held = [float(c.times[c.at_risk >= 10][-1]) for c in curves.values() if c.n >= 10]
    return max([0.5 * longest, *held]) if held else longest


def round_ticks(end: float, time_unit: str) -> FloatArray:
    """Choose ticks for four to eight steps: whole years for months, else 1, 2, 2.5 or 5 x 10^k."""
    sizes: list[float] = [1, 3, 6, 12, 24, 36, 60, 120]
    if time_unit != "months" or end > 840:
        power = 10.0 ** np.floor(np.log10(end))
        sizes = [b * s for s in (power / 10, power) for b in (1, 2, 2.5, 5)]
    step = next((s for s in sizes if end / s <= 8.5), sizes[-1])
    return np.asarray(np.arange(0.0, end + 1e-9, step), dtype=np.float64)
