"""Specification curve plot: all estimates in order, with the choices behind each below."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

import numpy as np

from sage.core.errors import InputError
from validation.controls.curve import SpecificationCurve
from validation.figures.style import (
    INK,
    MUTED,
    OKABE_ITO,
    Look,
    clean_text,
    drawing,
    ratio_ticks,
    wrap_text,
)

_WIDTH = 38


def _rows(value: str) -> float:
    """Return the height of a choice's label in rows."""
    return 1.3 if "\n" in wrap_text(value, _WIDTH) else 1.0


def specification_curve_figure(
    curve: SpecificationCurve,
    path: Path,
    *,
    measure: str = "Hazard ratio",
    **look: Unpack[Look],
) -> Path:
    """Draw the curve and write the figure, with a count of inestimable specifications below it.

    Filled points have p below the curve's alpha; hollow points do not.

    Raises `InputError` if no specification has an estimate.
    """
    fitted = curve.fitted
    if not fitted:
        raise InputError("specification_curve: no specification could be estimated")
    keys = list(fitted[0].choices)
    used = {key: list(dict.fromkeys(s.choices[key] for s in curve.specifications)) for key in keys}
    keys = [key for key in keys if len(used[key]) > 1]
    lines = [(key, value) for key in keys for value in used[key]]
    block = 0.17 * sum(_rows(value) for _, value in lines) + 0.14 * len(keys)
    height = 3.25 + block
    widest = max([min(len(v), _WIDTH) for _, v in lines] + [12])
    left = min(0.42, max(0.16, 0.05 + 0.0095 * widest))
    higher = curve.median > curve.null
    stable, significant = curve.share(higher=higher), curve.share(higher=higher, below=curve.alpha)
    note = (
        f"median {curve.median:.2f}; {stable:.0%} on its side of {curve.null:g};"
        f" {significant:.0%} with p < {curve.alpha:g} (filled)"
    )
    if curve.failed:
        note += f"; {curve.failed} not estimable"
    look.setdefault("description", note)
    with drawing(path, 6.8, height, **look) as figure:
        below = 0.45 + block
        top = 0.8 if look.get("subtitle") else 0.6
        upper = figure.add_axes((left, below / height, 0.97 - left, 1 - (below + top) / height))
        x = np.arange(len(fitted))
        value = np.array([s.value for s in fitted])
        low = np.array([s.lower for s in fitted])
        high = np.array([s.upper for s in fitted])
        if curve.null == 1.0:
            bottom = max(0.05, min(float(low.min()), 0.75) / 1.05)
            ceiling = min(20.0, max(float(high.max()), 1.33) * 1.05)
            ratio_ticks(upper, bottom, ceiling, vertical=True)
        else:
            bottom = min(float(low.min()), -0.1) * 1.05
            ceiling = max(float(high.max()), 0.1) * 1.05
            upper.set_ylim(bottom, ceiling)
        upper.vlines(
            x, np.maximum(low, bottom), np.minimum(high, ceiling), color=MUTED, linewidth=0.9
        )
        small = np.array([s.p < curve.alpha for s in fitted])
        upper.plot(x[small], value[small], "o", color=OKABE_ITO[1], markersize=3.6)
        upper.plot(
            x[~small],
            value[~small],
            "o",
            markerfacecolor="white",
            color=OKABE_ITO[0],
            markersize=3.6,
        )
        upper.axhline(curve.null, color=INK, linewidth=0.8)
        upper.axhline(curve.median, color=MUTED, linewidth=0.8, linestyle="--")
        upper.set_xlim(-1, len(fitted))
        upper.set_xticks([])
        upper.spines["bottom"].set_visible(False)
        upper.set_ylabel(f"{measure} (95% CI)")
        # Placed from the right edge, since wide names of choices leave no room for it on the left.
        upper.text(
            1.0, 1.02, note, transform=upper.transAxes, fontsize=7.5, va="bottom", ha="right"
        )
        if lines:
            _choices(figure, fitted, keys, used, left, below, height)
    return path


def _choices(figure, fitted, keys, used, left, below, height) -> None:  # type: ignore[no-untyped-def]
    """Draw the matrix of choices: a mark where a specification uses a choice."""
    axes = figure.add_axes((left, 0.25 / height, 0.97 - left, (below - 0.45) / height))
    row, labels, places = 0.0, [], []
    for key in keys:
        axes.text(
            -left / (0.97 - left) + 0.02, row, key, fontsize=8, weight="bold", va="center",
            transform=axes.get_yaxis_transform(),
        )  # fmt: skip
        row += 0.82
        for value in used[key]:
            row += (_rows(value) - 1.0) / 2.0
            x = [i for i, s in enumerate(fitted) if s.choices[key] == value]
            axes.plot(x, [row] * len(x), "|", color=INK, markersize=6, markeredgewidth=1.1)
            axes.axhline(row, color="#E4E4E4", linewidth=0.5, zorder=0)
            labels.append(wrap_text(value, _WIDTH))
            places.append(row)
            row += (_rows(value) + 1.0) / 2.0
    axes.set_ylim(row - 0.3, -0.6)
    axes.set_xlim(-1, len(fitted))
    axes.set_yticks(places, [clean_text(label) for label in labels], fontsize=7.5)
    for label in axes.get_yticklabels():
        if "\n" in label.get_text():
            label.set_fontsize(6.5)
            label.set_linespacing(0.95)
    axes.tick_params(length=0)
    axes.set_xticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_xlabel(f"{len(fitted)} specifications, sorted by estimate", fontsize=8)
