"""Forest plot: effects with intervals on a logarithmic axis, with their numbers alongside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

import numpy as np

from sage.core.errors import InputError
from validation.figures.style import INK, MUTED, OKABE_ITO, Look, drawing, p_text, ratio_ticks

BOLD, PLAIN = 0.0093, 0.0080
"""Share of the figure's width occupied by a character of a label."""
SHORT = 14
"""Maximum number of characters in a measure's name that fit above its column."""


@dataclass(frozen=True)
class ForestRow:
    """A row in a forest plot. `heading` rows have only a label; `primary` rows are diamonds."""

    label: str
    value: float = float("nan")
    lower: float = float("nan")
    upper: float = float("nan")
    p: float | None = None
    n: str = ""
    heading: bool = False
    primary: bool = False
    reason: str = ""


def forest(
    rows: Sequence[ForestRow],
    path: Path,
    *,
    measure: str = "Hazard ratio",
    **look: Unpack[Look],
) -> Path:
    """Draw ratios (hazard, odds) with their intervals and write the figure.

    Intervals that extend beyond the axis end in an arrow. A row whose value is NaN shows its
    `reason` instead of the interval.

    Raises `InputError` if there are no rows.
    """
    if not rows:
        raise InputError("forest: no rows given")
    drawn = [r for r in rows if np.isfinite(r.value) and r.value > 0]
    low, high = _range(drawn)
    height = 1.55 + 0.27 * len(rows)
    widest = max(len(r.label) * (BOLD if r.heading or r.primary else PLAIN) for r in rows)
    left = min(0.42, max(0.2, 0.035 + widest))
    with_p = any(r.p is not None for r in rows)
    right, estimate = (0.60, 0.75) if with_p else (0.66, 0.81)
    top = 0.85 if look.get("subtitle") else 0.7
    with drawing(path, 7.4, height, **look) as figure:
        axes = figure.add_axes((left, 0.62 / height, right - left, 1 - (0.62 + top) / height))
        axes.set_ylim(len(rows) - 0.5, -0.5)
        ratio_ticks(axes, low, high)
        axes.axvline(1.0, color=INK, linewidth=0.8)
        short = measure if len(measure) <= SHORT else "Ratio"  # the axis states which
        columns = ((right + 0.03, "events / n"), (estimate, f"{short} (95% CI)"), (0.985, "p"))
        head = 1 - (top - 0.10) / height
        for x, text in columns:
            if text == "p" and not with_p:
                continue
            align = "right" if text == "p" else "left"
            figure.text(x, head, text, fontsize=8, weight="bold", ha=align, va="center")
        for y, row in enumerate(rows):
            _row(axes, y, row, low, high)
            place = 1 - (top + (y + 0.5) * 0.27 * _stretch(height, top, len(rows))) / height
            weight = "bold" if row.heading or row.primary else "normal"
            figure.text(0.02, place, row.label, fontsize=8.5, va="center", weight=weight)
            if row.heading:
                continue
            figure.text(right + 0.03, place, row.n, fontsize=8, va="center")
            if np.isfinite(row.value):
                text = f"{row.value:.2f} ({row.lower:.2f}–{row.upper:.2f})"
                figure.text(estimate, place, text, fontsize=8, va="center")
            else:
                figure.text(
                    estimate, place, row.reason or "not estimable", fontsize=7.5, va="center",
                    style="italic", color=MUTED,
                )  # fmt: skip
            if row.p is not None and np.isfinite(row.p):
                text = p_text(row.p).removeprefix("p = ").removeprefix("p ")
                figure.text(0.985, place, text, fontsize=8, ha="right", va="center")
        axes.spines["left"].set_visible(False)
        axes.set_yticks([])
        axes.set_xlabel(f"← lower risk      {measure}      higher risk →", fontsize=8)
    return path


def _stretch(height: float, top: float, rows: int) -> float:
    """Compute the scale of a row's height relative to 0.27 inch."""
    return (height - 0.62 - top) / (0.27 * rows)


def _range(rows: Sequence[ForestRow]) -> tuple[float, float]:
    """Choose axis limits that include all values, and intervals where they stay readable."""
    if not rows:
        return 0.5, 2.0
    ends = [v for r in rows for v in (r.lower, r.upper) if np.isfinite(v) and v > 0]
    values = [r.value for r in rows]
    low = max(min([*ends, *values]), min(values) / 4, 0.05)
    high = min(max([*ends, *values]), max(values) * 4, 20.0)
    return min(low / 1.1, 0.67), max(high * 1.1, 1.5)


def _row(axes, y: int, row: ForestRow, low: float, high: float) -> None:  # type: ignore[no-untyped-def]
    if row.heading or not np.isfinite(row.value):
        return
    color = OKABE_ITO[1] if row.primary else OKABE_ITO[0]
    a, b = max(row.lower, low), min(row.upper, high)
    axes.plot([a, b], [y, y], color=color, linewidth=1.5, solid_capstyle="butt")
    for cut, at, marker in ((row.lower < low, low, "<"), (row.upper > high, high, ">")):
        if cut:
            axes.plot([at], [y], marker, color=color, markersize=5, clip_on=False)
    if low <= row.value <= high:
        axes.plot([row.value], [y], "D" if row.primary else "s", color=color, markersize=5.5)
