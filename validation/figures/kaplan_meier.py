"""Survival curves with confidence bands, censoring marks and numbers at risk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from validation.errors import InputError
from validation.figures.style import DASHES, INK, MUTED, OKABE_ITO, canvas, heading, save, wrapped
from validation.statistics.base import FloatArray, IntArray
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
    if not curves:
        raise InputError("kaplan_meier_figure: no curve given")
    if len(curves) > len(OKABE_ITO):
        raise InputError(f"kaplan_meier_figure: at most {len(OKABE_ITO)} groups, not {len(curves)}")
    end = until if until is not None else _supported(curves)
    marks = np.asarray(
        ticks if ticks is not None else _round_ticks(end, time_unit), dtype=np.float64
    )
    labels = {name: wrapped(name, 24) for name in curves}
    widest = max(len(line) for label in labels.values() for line in label.split("\n"))
    left = max(0.12, 0.033 + 0.0115 * widest)
    step = 0.31 if any("\n" in label for label in labels.values()) else 0.19
    block = step * len(curves)
    height = 3.9 + block
    with canvas(6.4, height) as figure:
        heading(figure, title, subtitle, simulated=simulated, left=0.02)
        table = 0.62 + block
        top = 0.62 if subtitle else 0.42
        axes = figure.add_axes(
            (left, (table + 0.28) / height, 0.97 - left, 1 - (table + 0.28 + top) / height)
        )
        for number, (name, curve) in enumerate(curves.items()):
            color, dash = OKABE_ITO[number], DASHES[number % len(DASHES)]
            shown = curve.times <= end
            times = np.append(curve.times[shown], end)
            line = _extended(curve.survival[shown])
            axes.fill_between(
                times,
                _extended(curve.lower[shown]),
                _extended(curve.upper[shown]),
                step="post",
                color=color,
                alpha=0.16,
                linewidth=0,
            )
            label = f"{name} ({curve.n_events}/{curve.n} events)"
            axes.step(
                times, line, where="post", color=color, linestyle=dash, linewidth=1.7, label=label
            )
            censored = _censored(curve)[shown] > 0
            axes.plot(
                curve.times[shown][censored],
                curve.survival[shown][censored],
                "|",
                color=color,
                markersize=4.5,
                markeredgewidth=0.8,
            )
        axes.set_xlim(0, end * 1.005)
        # Many groups need a long legend: room above the curves, so that it hides none of them.
        axes.set_ylim(0, 1.02 + (0.085 * len(curves) if len(curves) > 2 else 0.0))
        axes.set_yticks([0, 0.25, 0.5, 0.75, 1.0], ["0", "25", "50", "75", "100"])
        axes.set_xticks(marks)
        axes.set_xticklabels([f"{m:g}" for m in marks])
        axes.set_ylabel(f"{endpoint} (%)")
        axes.set_xlabel(f"Time ({time_unit})")
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
        first = (table - 0.28) / height
        figure.text(0.02, first, "At risk", fontsize=8, weight="bold", va="center")
        for number, (name, curve) in enumerate(curves.items()):
            y = first - (0.19 + number * step + (step - 0.19) / 2.0) / height
            figure.text(
                left - 0.035,
                y,
                labels[name],
                color=OKABE_ITO[number],
                fontsize=8,
                ha="right",
                va="center",
                linespacing=1.05,
            )
            for mark, count in zip(marks, at_risk(curve, marks), strict=True):
                x = left + (0.97 - left) * float(mark) / (end * 1.005)
                figure.text(x, y, str(int(count)), fontsize=8, ha="center", va="center", color=INK)
        return save(figure, path, title=title, description=description or subtitle)


def at_risk(curve: KaplanMeier, when: FloatArray) -> IntArray:
    """Patients still followed just before each time of `when`."""
    position = np.searchsorted(curve.times, when, side="left")
    padded = np.append(curve.at_risk, 0)
    return np.asarray(padded[position], dtype=np.int64)


def _extended(values: FloatArray) -> FloatArray:
    return np.append(values, values[-1])


def _censored(curve: KaplanMeier) -> IntArray:
    """Patients censored at each time."""
    after = np.append(curve.at_risk[1:], 0)
    return np.asarray(curve.at_risk - curve.events - after, dtype=np.int64)


def _supported(curves: Mapping[str, KaplanMeier]) -> float:
    """Last time at which ten patients are at risk in some group (at least half the follow-up)."""
    longest = max(float(c.times[-1]) for c in curves.values())
    held = [float(c.times[c.at_risk >= 10][-1]) for c in curves.values() if c.n >= 10]
    return max([0.5 * longest, *held]) if held else longest


def _round_ticks(end: float, time_unit: str) -> FloatArray:
    """Four to eight steps: whole years for months, else 1, 2, 2.5 or 5 times a power of ten."""
    sizes: list[float] = [1, 3, 6, 12, 24, 36, 60, 120]
    if time_unit != "months" or end > 840:
        power = 10.0 ** np.floor(np.log10(end))
        sizes = [b * s for s in (power / 10, power) for b in (1, 2, 2.5, 5)]
    step = next((s for s in sizes if end / s <= 8.5), sizes[-1])
    return np.asarray(np.arange(0.0, end + 1e-9, step), dtype=np.float64)
