"""Calibration plot: predicted versus observed risk, with the distribution of predictions below."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

import numpy as np
import numpy.typing as npt

from sage.core.errors import InputError
from validation.figures.style import INK, MUTED, OKABE_ITO, PLATE, Look, drawing
from validation.statistics.calibration import Calibration


def calibration_figure(
    found: Calibration,
    predictions: npt.ArrayLike,
    path: Path,
    *,
    by: str | None,
    annotation: Sequence[str] = (),
    **look: Unpack[Look],
) -> Path:
    """Draw observed risk (Kaplan-Meier, 95% interval) per group of predicted risk.

    Parameters
    ----------
    predictions : (n,) predicted risk of every patient at the horizon, for the histogram
    by : horizon with its unit; None without time to event
    annotation : lines printed inside the plot (slope, concordance)
    """
    risk = np.asarray(predictions, dtype=np.float64)
    if not len(risk):
        raise InputError("calibration_figure: no predictions given")
    high = float(max(np.nanmax(found.upper, initial=0.0), found.predicted.max(), risk.max()))
    end = min(1.0, np.ceil(high * 10 + 0.5) / 10)
    with drawing(path, 4.6, 5.2, **look) as figure:
        axes = figure.add_axes((0.14, 0.31, 0.82, 0.565))
        axes.plot(
            [0, end], [0, end], color=MUTED, linewidth=0.9, linestyle="--", zorder=1, label="ideal"
        )
        axes.errorbar(
            found.predicted,
            found.observed,
            yerr=np.vstack([found.observed - found.lower, found.upper - found.observed]),
            fmt="o",
            color=OKABE_ITO[0],
            markersize=5,
            elinewidth=1.1,
            capsize=2.5,
            zorder=3,
            label=f"{len(found.n)} groups of predicted risk",
        )
        axes.set_xlim(0, end)
        axes.set_ylim(0, end)
        ticks = np.linspace(0, end, 6 if round(end * 10) % 5 == 0 else 5)
        percent = [f"{100 * tick:.0f}" for tick in ticks]
        axes.set_xticks(ticks, [])
        axes.set_yticks(ticks, percent)
        until = "" if by is None else f" by {by}"
        axes.set_ylabel(f"Observed risk{until} (%)")
        if annotation:
            axes.text(
                0.03,
                0.97,
                "\n".join(annotation),
                transform=axes.transAxes,
                fontsize=8,
                va="top",
                bbox=PLATE,
                zorder=5,
            )
        axes.legend(loc="lower right", fontsize=8, borderaxespad=0.2)
        below = figure.add_axes((0.14, 0.115, 0.82, 0.155))
        below.hist(
            risk,
            bins=[float(item) for item in np.linspace(0, end, 41)],
            color=OKABE_ITO[0],
            alpha=0.55,
        )
        below.set_xlim(0, end)
        below.set_xticks(ticks, percent)
        below.set_ylabel("Patients", color=INK)
        below.set_xlabel(f"Predicted risk{until} (%)")
    return path
