"""A prediction model as a nomogram: points for each term, and the risk for their sum.

The 100-point scale is set by the term with the widest span of the linear predictor
(Iasonos and others 2008, Journal of Clinical Oncology).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from validation.core.hypothesis import Comparison
from validation.inputs.population import exposure_values
from validation.inputs.prediction import PredictionModel, Term

if TYPE_CHECKING:
    from validation.inputs.study import Study
    from validation.statistics.base import FloatArray

Marks = list[tuple[str, float]]
"""Printed values with their contributions to the linear predictor."""

RISKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99)
SPAN = (0.025, 0.975)
"""Quantiles that limit a numeric variable's line, so that no single patient is shown."""
MOST_LEVELS = 6
"""Maximum number of distinct values shown as ordered levels (such as stage), each with a mark."""


@dataclass(frozen=True)
class Line:
    """A variable's line, with printed values and their points."""

    label: str
    marks: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Nomogram:
    """Lines with at most 100 points each; `risks` pairs point totals with the predicted risks."""

    lines: tuple[Line, ...]
    total: float
    risks: tuple[tuple[float, float], ...]
    horizon: float


def nomogram_of(model: PredictionModel, study: Study) -> Nomogram | None:
    """Compute points for every term of a model at the values that these patients have.

    Returns
    -------
    The nomogram; None for an interaction, whose terms cannot be read separately, and for a
    model without effect.
    """
    import math

    if any(term.kind == "part" for term in model.terms):
        return None
    spans: list[tuple[str, Marks]] = []
    factors: dict[str, list[Term]] = {}
    for term in model.terms:
        if term.kind == "level":
            factors.setdefault(term.key, []).append(term)
        elif term.kind == "number":
            values = study.rows[term.key].dropna().to_numpy(dtype=float)
            spans.append((_name(term), _numeric(values, term)))
        elif study.exposed.grouped:
            spans.append((term.name, [("no", 0.0), ("yes", term.coefficient)]))
        else:
            spans.append(_exposure(term, model, study))
    for key, terms in factors.items():
        reference = set(model.levels.get(key, ())) - {str(term.level) for term in terms}
        first = " or ".join(sorted(reference)) or "other"
        marks = [(first, 0.0), *((str(term.level), term.coefficient) for term in terms)]
        spans.append((terms[0].name.rpartition(":")[0] or key, marks))
    widest = max(max(v for _, v in marks) - min(v for _, v in marks) for _, marks in spans)
    if not widest > 0:
        return None
    scale = 100.0 / widest
    lines, lowest, total = [], 0.0, 0.0
    for label, marks in spans:
        least = min(value for _, value in marks)
        lowest += least
        points = tuple((text, (value - least) * scale) for text, value in marks)
        total += max(value for _, value in points)
        lines.append(Line(label, points))
    risks = []
    for risk in RISKS:
        linear = math.log(-math.log(1.0 - risk) / model.baseline)
        at = (linear - lowest) * scale
        if 0.0 <= at <= total:
            risks.append((at, risk))
    return Nomogram(tuple(lines), total, tuple(risks), model.horizon)


def _name(term: Term) -> str:
    return term.name.removesuffix(" (per SD)")


def _exposure(term: Term, model: PredictionModel, study: Study) -> tuple[str, Marks]:
    """Return a continuous exposure in its own unit, or a joint exposure in standard deviations."""
    own_unit = study.contract.comparison not in (Comparison.PER_DOUBLING, Comparison.TREND)
    if len(study.contract.exposures) == 1 and len(model.cuts) == 1 and own_unit:
        cut, use = model.cuts[0], study.contract.exposures[0]
        if cut.mean is not None and cut.sd is not None:
            turn = 1.0 if study.contract.hypothesis.exposures[0].level == "high" else -1.0
            own = term.model_copy(
                update={
                    "mean": cut.mean, "sd": cut.sd, "coefficient": turn * term.coefficient,
                }
            )  # fmt: skip
            values = exposure_values(study.rows[study.rows[use.key].notna()], use)
            unit = f", {use.rescale or use.unit}" if use.rescale or use.unit else ""
            return f"{use.label}{unit}", _numeric(values, own)
    known = study.exposed.x[~np.isnan(study.exposed.x)]
    low, high = (float(item) for item in np.quantile(known, SPAN))
    scores = np.linspace(low, high, 5)
    return term.name, [(f"{score:.1f}", score * term.coefficient) for score in scores]


def _numeric(values: FloatArray, term: Term) -> Marks:
    """Choose round marks over most of a variable's range, with their linear predictor."""
    from matplotlib.ticker import MaxNLocator

    levels = np.unique(values)
    if len(levels) <= MOST_LEVELS:
        return [
            (f"{level:g}", (level - term.mean) / term.sd * term.coefficient) for level in levels
        ]
    low, high = (float(item) for item in np.quantile(values, SPAN))
    marks = [float(value) for value in MaxNLocator(5).tick_values(low, high)]
    # Rounded outward, but not below zero if nothing is: nobody's value is left of the line.
    marks = [mark for mark in marks if mark >= 0 or low < 0] or [low, high]
    return [(f"{mark:.4g}", (mark - term.mean) / term.sd * term.coefficient) for mark in marks]
