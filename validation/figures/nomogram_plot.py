"""Nomogram: a line of values per variable under a scale of points, and the risk for their sum."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from validation.figures.style import INK, MUTED, Look, drawing, wrap_text
from validation.methods.nomogram import Line, Nomogram

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROW = 0.52
SHORTEST = 7.0
"""Length in points below which a line's marks are too close and only its ends are labeled."""
GAP, WIDTH = 1.5, 1.15
"""Spacing in points between labels on the same side of a line, and points per letter."""


def nomogram_figure(found: Nomogram, path: Path, **look: Unpack[Look]) -> Path:
    """Draw a line per variable, the sum of points, and the risk by the horizon."""
    rows = len(found.lines) + 3
    height = 0.75 + ROW * rows
    with drawing(path, 7.2, height, **look) as figure:
        axes = figure.add_axes((0.25, 0.02, 0.72, (ROW * rows) / height))
        axes.set_xlim(-1, 101)
        axes.set_ylim(-0.5, rows - 0.5)
        axes.axis("off")
        scale = Line("Points", tuple((str(index), float(index)) for index in range(0, 101, 10)))
        step = max(10, round(found.total / 10 / 10) * 10)
        sums = [
            (str(index), 100.0 * index / found.total)
            for index in range(0, int(found.total) + 1, step)
        ]
        risks = [(f"{100 * risk:.0f}", 100.0 * at / found.total) for at, risk in found.risks]
        lines = [
            scale,
            *found.lines,
            Line("Sum of points", tuple(sums)),
            Line(f"Risk by {found.horizon:.0f} months (%)", tuple(risks)),
        ]
        for place, line in enumerate(lines):
            _row(axes, rows - 1 - place, line)
    return path


def _row(axes: Axes, y: float, line: Line) -> None:
    marks = sorted(line.marks, key=lambda mark: mark[1])
    axes.text(-3, y, wrap_text(line.label, 26), ha="right", va="center", fontsize=8, color=INK)
    if not marks:
        axes.text(0, y, "outside the range", fontsize=7.5, color=MUTED, va="center")
        return
    axes.plot([marks[0][1], marks[-1][1]], [y, y], color=INK, linewidth=0.9)
    if marks[-1][1] - marks[0][1] < SHORTEST and len(marks) > 1:
        ends = f"{_short(marks[0][0])} to {_short(marks[-1][0])}"
        axes.text(marks[-1][1] + GAP, y, ends, fontsize=7.5, va="center")
        return
    ends_at = {1: -100.0, -1: -100.0}  # end of the last word above and below the line
    for text, at in marks:
        half = WIDTH * len(_short(text)) / 2
        room = [side for side in (1, -1) if at - half > ends_at[side] + GAP]
        sign = room[0] if room else 1
        axes.plot([at, at], [y, y + sign * 0.1], color=INK, linewidth=0.9)
        if room:
            va = "bottom" if sign > 0 else "top"
            axes.text(at, y + sign * 0.15, _short(text), ha="center", va=va, fontsize=7.5)
            ends_at[sign] = at + half


def _short(text: str) -> str:
    return text if len(text) <= 14 else text[:13] + "…"
