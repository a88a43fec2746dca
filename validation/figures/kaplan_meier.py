"""Kaplan-Meier plot: survival curves with confidence bands, censoring marks and numbers at risk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Unpack

import numpy as np

from validation.figures.curves import Frame, band, follow_up, steps
from validation.figures.style import DASHES, MUTED, OKABE_ITO, PLATE
from validation.statistics.base import IntArray
from validation.statistics.survival import KaplanMeier


def kaplan_meier_figure(
    curves: Mapping[str, KaplanMeier],
    path: Path,
    *,
    endpoint: str = "Survival",
    annotation: Sequence[str] = (),
    **frame: Unpack[Frame],
) -> Path:
    """Draw a curve per group, labeled with its events next to the numbers at risk."""
    counted = {f"{name} ({curve.n_events} events)": curve for name, curve in curves.items()}
    with follow_up(counted, path, dashed=True, **frame) as (_, axes, _, end):
        for number, curve in enumerate(curves.values()):
            color, dash = OKABE_ITO[number], DASHES[number % len(DASHES)]
            band(axes, curve.times, curve.lower, curve.upper, end, color)
            look = {"color": color, "linestyle": dash, "linewidth": 1.7}
            steps(axes, curve.times, curve.survival, end, **look)
            censored = (_count_censored(curve) > 0) & (curve.times <= end)
            axes.plot(
                curve.times[censored],
                curve.survival[censored],
                "|",
                color=color,
                markersize=4.5,
                markeredgewidth=0.8,
            )
        axes.set_ylim(0, 1.02)
        axes.set_yticks([0, 0.25, 0.5, 0.75, 1.0], ["0", "25", "50", "75", "100"])
        axes.set_ylabel(f"{endpoint} (%)")
        axes.axhline(0.5, color=MUTED, linewidth=0.5, linestyle=":", zorder=0)
        if annotation:
            axes.text(
                0.015,
                0.03,
                "\n".join(annotation),
                transform=axes.transAxes,
                fontsize=8,
                va="bottom",
                bbox=PLATE,
                zorder=5,
            )
    return path


def _count_censored(curve: KaplanMeier) -> IntArray:
    """Count patients censored at each time."""
    after = np.append(curve.at_risk[1:], 0)
    return np.asarray(curve.at_risk - curve.events - after, dtype=np.int64)
