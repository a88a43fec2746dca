"""Volcano plot for a screen, of effect against evidence, with the strongest features labeled."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

import numpy as np

from sage.core.errors import InputError
from validation.figures.style import INK, MUTED, OKABE_ITO, Look, drawing, ratio_ticks
from validation.screening.rank import ScreenResult
from validation.statistics.base import FloatArray

LETTER = 0.0107
"""Width of a letter in a name, as a fraction of the axis width."""


def volcano(
    result: ScreenResult,
    path: Path,
    *,
    alpha: float = 0.05,
    labels: int = 12,
    highlight: tuple[str, ...] = (),
    **look: Unpack[Look],
) -> Path:
    """Draw hazard ratios against p-values and write the figure.

    Features with q below `alpha` are colored by direction (and differ in shape); the `labels`
    strongest features and those in `highlight` are labeled.

    Parameters
    ----------
    result : a screen's hazard ratios, p and q per feature
    alpha : q-value below which a feature is colored

    Raises
    ------
    InputError
        If no feature has an estimate.
    """
    ok = result.ok
    if not ok.any():
        raise InputError("volcano: no feature in this screen has an estimate")
    hr, p, q = result.hr[ok], np.maximum(result.p[ok], 1e-300), result.q[ok]
    names = [n for n, good in zip(result.names, ok, strict=True) if good]
    y = -np.log10(p)
    up, down = (q < alpha) & (hr > 1), (q < alpha) & (hr <= 1)
    note = (
        f"{int(up.sum())} features with higher and {int(down.sum())} with lower risk"
        f" of {len(result.names):,}; n = {result.n}, {result.events} events"
    )
    look.setdefault("description", note)
    with drawing(path, 6.2, 4.6, **look) as figure:
        axes = figure.add_axes((0.10, 0.115, 0.87, 0.72 if look.get("subtitle") else 0.765))
        rest = ~(up | down)
        axes.plot(
            hr[rest], y[rest], ".", color="#B5B5B5", markersize=2.6, rasterized=len(hr) > 3000
        )
        axes.plot(hr[up], y[up], "^", color=OKABE_ITO[1], markersize=3.6, markeredgewidth=0)
        axes.plot(hr[down], y[down], "v", color=OKABE_ITO[0], markersize=3.6, markeredgewidth=0)
        reach = float(np.exp(np.quantile(np.abs(np.log(hr)), 0.9995))) * 1.12
        wanted = [int(i) for i in np.argsort(p, kind="stable")[:labels]]
        wanted += [i for i, n in enumerate(names) if n in highlight and i not in wanted]
        shown = [_label(name) for name in names]
        # Room for the names next to the outermost labeled points.
        longest = max((len(shown[i]) for i in wanted), default=0)
        outermost = float(np.abs(np.log(hr[wanted])).max()) if wanted else 0.0
        reach = max(reach, float(np.exp(outermost / (0.9 - 2 * LETTER * longest))))
        ratio_ticks(axes, 1 / max(reach, 1.3), max(reach, 1.3))
        axes.set_ylim(0, float(y.max()) * 1.1 + 0.3)
        axes.axvline(1.0, color=INK, linewidth=0.6, zorder=0)
        hits = np.flatnonzero(up | down)
        if len(hits):
            limit = float(y[hits].min())
            axes.axhline(limit, color=MUTED, linewidth=0.6, linestyle="--", zorder=0)
            axes.text(
                0.505, limit, f"FDR {alpha:.0%}", fontsize=7, color=MUTED, ha="left", va="bottom",
                transform=axes.get_yaxis_transform(),
            )  # fmt: skip
        per = "per SD" if result.per_sd else "per unit"
        axes.set_xlabel(f"Hazard ratio {per}")
        axes.set_ylabel("−log10 p (Wald)")
        axes.text(0.0, 1.015, note, transform=axes.transAxes, fontsize=7.5, va="bottom")
        _name(axes, hr, y, wanted, shown, {_label(name) for name in highlight})
    return path


def _label(name: str) -> str:
    """Return a feature's name, without its table if space is short."""
    plain = name.rpartition(":")[2]
    return plain if len(plain) <= 24 else plain[:23] + "…"


def _name(  # type: ignore[no-untyped-def]
    axes, hr: FloatArray, y: FloatArray, wanted: list[int], names: list[str], bold: set[str]
) -> None:
    """Label points in columns on both sides, joined by thin lines, without overlaps."""
    gap = 0.036 * float(axes.get_ylim()[1])
    for side in (-1, 1):
        points = sorted((i for i in wanted if (hr[i] > 1) == (side > 0)), key=lambda i: -y[i])
        if not points:
            continue
        edge = max(hr[i] for i in points) if side > 0 else min(hr[i] for i in points)
        low, high = axes.get_xlim()
        column = float(edge) * (high / low) ** (side * 0.05)
        levels: list[float] = []
        for i in points:
            levels.append(min(float(y[i]), levels[-1] - gap) if levels else float(y[i]))
        # Labels pushed below the axis move up together.
        short = gap / 2.0 - levels[-1]
        for at in range(len(levels) - 1, -1, -1):
            floor = gap / 2.0 if at == len(levels) - 1 else levels[at + 1] + gap
            levels[at] = max(levels[at], floor) if short > 0 else levels[at]
        for i, level in zip(points, levels, strict=True):
            axes.annotate(
                names[i],
                (float(hr[i]), float(y[i])),
                xytext=(column, level),
                fontsize=7,
                ha="left" if side > 0 else "right",
                va="center",
                weight="bold" if names[i] in bold else "normal",
                bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.6},
                arrowprops={"arrowstyle": "-", "color": MUTED, "linewidth": 0.4, "shrinkB": 2},
            )
