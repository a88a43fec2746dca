"""Survival curves with confidence bands, censoring marks and numbers at risk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from validation.figures.curves import band, follow_up, steps, supported
from validation.figures.style import DASHES, MUTED, OKABE_ITO, save
from validation.statistics.base import IntArray
from validation.statistics.survival import KaplanMeier


def kaplan_meier_figure(
    curves: Mapping[str, KaplanMeier],
    path: Path,
    *,
    time_unit: str,
    title: str,
    subtitle: str = "",
    endpoint: str = "Survival",
    annotation: Sequence[str] = (),
    simulated: bool = False,
    ticks: Sequence[float] | None = None,
    until: float | None = None,
    description: str = "",
) -> Path:
    """Draw one curve per group and write the figure.

    Parameters
    ----------
    curves : group label to its curve; all times in `time_unit`
    annotation : lines printed inside the plot (hazard ratio with interval, then log-rank p)
    ticks : times at which numbers at risk are given (default: five to eight round ones)
    until : end of the time axis (default: the last time with ten patients at risk, so that the
        tail that nobody supports is not read as a result; the caption says so)

    Returns
    -------
    The path written (.svg, or .png at 200 dpi).
    """
    end = until if until is not None else supported(curves)
    with follow_up(
        curves,
        title=title,
        subtitle=subtitle,
        simulated=simulated,
        time_unit=time_unit,
        end=end,
        ticks=ticks,
    ) as (figure, axes, _):
        for number, (name, curve) in enumerate(curves.items()):
            color, dash = OKABE_ITO[number], DASHES[number % len(DASHES)]
            band(axes, curve.times, curve.lower, curve.upper, end, color)
            label = f"{name} ({curve.n_events}/{curve.n} events)"
            look = {"color": color, "linestyle": dash, "linewidth": 1.7, "label": label}
            steps(axes, curve.times, curve.survival, end, **look)
            censored = (_censored(curve) > 0) & (curve.times <= end)
            axes.plot(
                curve.times[censored],
                curve.survival[censored],
                "|",
                color=color,
                markersize=4.5,
                markeredgewidth=0.8,
            )
        # Many groups need a long legend: room above the curves, so that it hides none of them.
        axes.set_ylim(0, 1.02 + (0.085 * len(curves) if len(curves) > 2 else 0.0))
        axes.set_yticks([0, 0.25, 0.5, 0.75, 1.0], ["0", "25", "50", "75", "100"])
        axes.set_ylabel(f"{endpoint} (%)")
        axes.axhline(0.5, color=MUTED, linewidth=0.5, linestyle=":", zorder=0)
        axes.legend(loc="upper right", fontsize=8, handlelength=2.6, borderaxespad=0.1)
        if annotation:
            axes.text(
                0.015,
                0.03,
                "\n".join(annotation),
                transform=axes.transAxes,
                fontsize=8,
                va="bottom",
            )
        return save(figure, path, title=title, description=description or subtitle)


def _censored(curve: KaplanMeier) -> IntArray:
    """Patients censored at each time."""
    after = np.append(curve.at_risk[1:], 0)
    return np.asarray(curve.at_risk - curve.events - after, dtype=np.int64)
