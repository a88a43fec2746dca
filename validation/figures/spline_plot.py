"""Spline plot: hazard ratio as a smooth function of a continuous exposure, with observed values."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

import numpy as np
import numpy.typing as npt

from validation.figures.style import INK, MUTED, OKABE_ITO, PLATE, Look, drawing, wrap_text

MOST_MARKS = 1000
"""Maximum number of rug marks; for more values, an evenly spaced selection is drawn."""


def spline_figure(
    grid: npt.ArrayLike,
    curve: Sequence[npt.ArrayLike],
    values: npt.ArrayLike,
    path: Path,
    *,
    exposure: str,
    reference: float,
    knots: Sequence[float],
    annotation: Sequence[str] = (),
    **look: Unpack[Look],
) -> Path:
    """Draw hazard ratios relative to the reference value, their 95% band, and a rug of the values.

    Parameters
    ----------
    grid : (m,) exposure values at which the curve is known, in the exposure's unit
    curve : hazard ratio, lower limit and upper limit, each (m,)
    values : (n,) the patients' values, for the rug
    """
    at = np.asarray(grid, dtype=np.float64)
    ratio, lower, upper = (np.asarray(part, dtype=np.float64) for part in curve)
    known = np.sort(np.asarray(values, dtype=np.float64))
    known = known[(known >= at.min()) & (known <= at.max())]
    picked = np.linspace(0, len(known) - 1, min(len(known), MOST_MARKS)).round().astype(int)
    with drawing(path, 5.6, 4.0, **look) as figure:
        axes = figure.add_axes((0.12, 0.155, 0.85, 0.70))
        axes.set_yscale("log")
        axes.axhline(1.0, color=MUTED, linewidth=0.9, linestyle="--", zorder=1)
        axes.fill_between(at, lower, upper, color=OKABE_ITO[0], alpha=0.18, linewidth=0, zorder=2)
        axes.plot(at, ratio, color=OKABE_ITO[0], linewidth=1.8, zorder=3)
        axes.plot([reference], [1.0], "o", color=INK, markersize=4.5, zorder=4)
        low, high = float(np.nanmin(lower)), float(np.nanmax(upper))
        low, high = max(low, float(ratio.min()) / 20), min(high, float(ratio.max()) * 20)
        room = (high / low) ** 0.08
        axes.set_ylim(low / room**1.8, high * room)
        axes.set_xlim(float(at.min()), float(at.max()))
        _ratio_ticks(axes, low, high)
        across = axes.get_xaxis_transform()
        axes.plot(known[picked], np.full(len(picked), 0.018), "|", color=INK, markersize=6,
                  markeredgewidth=0.4, alpha=0.5, transform=across, zorder=2)  # fmt: skip
        inside = [knot for knot in knots if at.min() <= knot <= at.max()]
        axes.plot(inside, np.full(len(inside), 0.055), "v", color=MUTED, markersize=4,
                  transform=across, clip_on=False, zorder=3)  # fmt: skip
        axes.set_xlabel(wrap_text(exposure, 80))
        axes.set_ylabel(f"Hazard ratio against {reference:.3g}")
        if annotation:
            axes.text(0.98, 0.97, "\n".join(annotation), transform=axes.transAxes, fontsize=8,
                      va="top", ha="right", bbox=PLATE, zorder=5)  # fmt: skip
    return path


def _ratio_ticks(axes: object, low: float, high: float) -> None:
    """Set plain numbers on a logarithmic axis, as finely spaced as its range requires."""
    from matplotlib.axes import Axes
    from matplotlib.ticker import NullLocator

    assert isinstance(axes, Axes)
    fine = (1, 1.25, 1.5, 2, 3, 4, 5, 7) if high / low < 12 else (1, 2, 5)
    ticks = [step * 10.0**power for power in range(-6, 7) for step in fine]
    ticks = sorted({*ticks, *(1 / tick for tick in ticks)} if high / low < 3 else set(ticks))
    shown = [tick for tick in ticks if low <= tick <= high] or [1.0]
    axes.set_yticks(shown, [f"{tick:.3g}" for tick in shown])
    axes.yaxis.set_minor_locator(NullLocator())
