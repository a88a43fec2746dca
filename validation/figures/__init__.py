"""Figures for print and for the color-blind: survival, incidence, calibration, forest, and others.

Every figure is drawn on its own canvas (no global plotting state) and written as SVG, or as PNG at
200 dpi by the path's suffix. The same input gives the same bytes. Colors are Okabe and Ito's;
lines also differ in their dashes, so that they survive a black-and-white printer.
"""

from __future__ import annotations

from validation.figures.calibration_plot import calibration_figure
from validation.figures.cumulative_incidence import Incidences, cumulative_incidence_figure
from validation.figures.decision_curve_plot import decision_curve_figure
from validation.figures.forest_plot import ForestRow, forest
from validation.figures.kaplan_meier import kaplan_meier_figure
from validation.figures.nomogram_plot import nomogram_figure
from validation.figures.specification_plot import specification_curve_figure
from validation.figures.spline_plot import spline_figure
from validation.figures.style import OKABE_ITO

__all__ = [
    "OKABE_ITO",
    "ForestRow",
    "Incidences",
    "calibration_figure",
    "cumulative_incidence_figure",
    "decision_curve_figure",
    "forest",
    "kaplan_meier_figure",
    "nomogram_figure",
    "specification_curve_figure",
    "spline_figure",
]
