"""Cumulative incidence of an event and its competing events, with numbers at risk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from validation.figures.curves import Frame, band, count_text, follow_up, steps
from validation.figures.style import INK, OKABE_ITO, wrap_text
from validation.statistics.base import FloatArray, IntArray
from validation.statistics.competing import CumulativeIncidence

MARKERS = ("o", "^", "s", "D", "v", "P", "X", "*")
DASHED: Any = (0, (4, 1.8))
LINE = 0.165  # inches of a line of the legend


@dataclass(frozen=True)
class Incidences:
    """A group's curves: the event of interest, and all competing events (None if absent)."""

    event: CumulativeIncidence
    competing: CumulativeIncidence | None = None

    @property
    def times(self) -> FloatArray:
        """Times of both curves in ascending order."""
        return self.event.times

    @property
    def at_risk(self) -> IntArray:
        """Number of patients at risk and free of any event just before each time."""
        return self.event.at_risk

    @property
    def n(self) -> int:
        """Number of patients in the group."""
        return self.event.n


def cumulative_incidence_figure(
    curves: Mapping[str, Incidences],
    path: Path,
    *,
    event: str = "Event of interest",
    competing: str = "Competing event",
    annotation: Sequence[str] = (),
    smallest: int = 1,
    **frame: Unpack[Frame],
) -> Path:
    """Draw the event as a solid line with a band, and competing events dashed and thinner.

    Each group has one color and one marker, so that groups can be distinguished without color or
    dashes.
    """
    from matplotlib.lines import Line2D

    some = any(curve.competing is not None for curve in curves.values())
    # The legend is above the curves, with its own height.
    room = LINE * (len(curves) + len(annotation) + 1 + some) + 0.08
    with follow_up(curves, path, extra=room, smallest=smallest, **frame) as (
        figure,
        axes,
        marks,
        end,
    ):
        handles, highest = [], 0.0
        for number, (name, both) in enumerate(curves.items()):
            color, marker = OKABE_ITO[number], MARKERS[number]
            last = min(end, _followed_to(both, smallest)) if smallest > 1 else end
            band(axes, both.times, both.event.lower, both.event.upper, last, color)
            within = both.times <= last
            highest = max(highest, float(both.event.upper[within].max(initial=0.0)))
            others = 0
            for incidence, dash, width in ((both.event, "-", 1.7), (both.competing, DASHED, 1.2)):
                if incidence is None:
                    continue
                times, values = _from_zero(incidence)
                look = {"color": color, "linestyle": dash, "linewidth": width}
                steps(axes, times, values, last, **look)
                at = marks[(marks > 0) & (marks <= min(last, float(times[-1])))]
                axes.plot(
                    at,
                    values[np.searchsorted(times, at, side="right") - 1],
                    marker,
                    color=color,
                    markersize=4.5,
                    markerfacecolor=color if incidence is both.event else "white",
                )
                highest = max(highest, float(values[times <= last].max(initial=0.0)))
                others = incidence.n_events if incidence is both.competing else others
            seen, others_seen = (
                count_text(both.event.n_events, smallest),
                count_text(others, smallest),
            )
            counts = f"{seen} events, {others_seen} competing, of {both.n}"
            label = f"{wrap_text(name, 36, lines=1)}: {counts}"
            handles.append(
                Line2D([], [], color=color, marker=marker, markersize=4.5, linewidth=1.7,
                       label=label)
            )  # fmt: skip
        handles.append(Line2D([], [], color=INK, linewidth=1.7, label=f"{event} (95% band)"))
        if some:
            handles.append(
                Line2D([], [], color=INK, linestyle=DASHED, linewidth=1.2, label=competing)
            )
        inches = axes.get_position().height * figure.get_figheight()
        top = min(1.0, max(0.1, highest * 1.02))
        step = next(value for value in (0.02, 0.05, 0.1, 0.2, 0.25) if top / value <= 5.5)
        ticks_y = np.arange(0.0, top + 1e-9, step)
        axes.set_ylim(0, top * inches / (inches - room))
        axes.set_yticks(ticks_y, [f"{100 * value:.0f}" for value in ticks_y])
        axes.set_ylabel("Cumulative incidence (%)")
        axes.yaxis.set_label_coords(-0.085, top / axes.get_ylim()[1] / 2)
        axes.legend(
            handles=handles,
            loc="upper left",
            fontsize=8,
            handlelength=3.0,
            borderaxespad=0.1,
            title="\n".join(annotation) or None,
            title_fontsize=8,
            alignment="left",
        )
    return path


def _followed_to(both: Incidences, smallest: int) -> float:
    """Return the last time at which at least `smallest` patients are at risk."""
    held = both.times[both.at_risk >= smallest]
    return float(held[-1]) if len(held) else 0.0


def _from_zero(curve: CumulativeIncidence) -> tuple[FloatArray, FloatArray]:
    """Prepend the start of follow-up, with no events, to times and incidences."""
    if curve.times[0] == 0.0:
        return curve.times, curve.incidence
    return np.concatenate(([0.0], curve.times)), np.concatenate(([0.0], curve.incidence))
