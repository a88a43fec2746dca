"""Decision curve plot: net benefit versus the threshold risk for treatment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Unpack

import numpy as np
import numpy.typing as npt

from sage.core.errors import InputError
from validation.figures.style import DASHES, INK, MUTED, OKABE_ITO, Look, drawing, wrap_text
from validation.statistics.decision_curve import NAMES


def decision_curve_figure(
    thresholds: npt.ArrayLike,
    benefit: Mapping[str, npt.ArrayLike],
    path: Path,
    *,
    risk_of: str = "the event",
    **look: Unpack[Look],
) -> Path:
    """Draw the net benefit of each strategy, with treating no patients as the zero line.

    Parameters
    ----------
    thresholds : (m,) risks in (0, 1)
    benefit : maps a strategy to its (m,) net benefit ("with", "without", "all")
    """
    at = 100.0 * np.asarray(thresholds, dtype=np.float64)
    if not len(at):
        raise InputError("decision_curve_figure: no thresholds given")
    curves = {name: np.asarray(item, dtype=np.float64) for name, item in benefit.items()}
    top = max(float(np.max(curve)) for curve in curves.values())
    with drawing(path, 4.8, 3.9, **look) as figure:
        axes = figure.add_axes((0.15, 0.15, 0.82, 0.67))
        axes.axhline(0.0, color=MUTED, linewidth=0.9, label="nobody", zorder=1)
        for place, (name, curve) in enumerate(curves.items()):
            color = INK if name == "all" else OKABE_ITO[place]
            axes.plot(at, curve, color=color, linestyle=DASHES[place], label=NAMES.get(name, name))
        axes.set_ylim(-0.15 * max(top, 0.02), 1.12 * max(top, 0.02))
        axes.set_xlim(0, float(at.max()))
        axes.set_xlabel(wrap_text(f"Risk of {risk_of} at which treatment starts (%)", 58))
        axes.set_ylabel("Net benefit per patient")
        axes.legend(loc="upper right", fontsize=8, title="act by", title_fontsize=8)
    return path
