"""Restricted cubic splines: smooth effects that stay linear in the tails.

Harrell 2015 (Regression Modeling Strategies): knots are placed at fixed percentiles, and
the basis is scaled by the squared range of the knots so that all columns have the unit of
x.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from validation.statistics.base import FloatArray, as_float
from validation.statistics.errors import ConstantFeatureError, ShapeError

_PERCENTILES = {
    3: (10.0, 50.0, 90.0),
    4: (5.0, 35.0, 65.0, 95.0),
    5: (5.0, 27.5, 50.0, 72.5, 95.0),
    6: (5.0, 23.0, 41.0, 59.0, 77.0, 95.0),
    7: (2.5, 18.33, 34.17, 50.0, 65.83, 81.67, 97.5),
}


def rcs_knots(x: npt.ArrayLike, knots: int = 4) -> FloatArray:
    """Place knots at Harrell's percentiles of x (3 to 7 knots)."""
    if knots not in _PERCENTILES:
        raise ShapeError(f"restricted cubic splines support 3 to 7 knots, got {knots}")
    values = as_float(x, "x")
    if not np.isfinite(values).any():
        raise ShapeError("x has no values, so no knots can be placed")
    found = np.percentile(values[np.isfinite(values)], _PERCENTILES[knots])
    if len(np.unique(found)) < knots:
        raise ConstantFeatureError(
            f"x has too few distinct values for {knots} knots; use fewer knots, or a linear term"
        )
    return np.asarray(found, dtype=np.float64)


def rcs_basis(x: npt.ArrayLike, knots: int | npt.ArrayLike = 4) -> FloatArray:
    """Compute the (n, knots - 1) basis of a restricted cubic spline.

    The columns are x itself, then knots - 2 cubic terms that vanish below the first knot. Term j is
    [(x - t_j)+^3 - (x - t_(k-1))+^3 (t_k - t_j)/(t_k - t_(k-1)) + (x - t_k)+^3 (t_(k-1) - t_j)/(t_k
    - t_(k-1))] / (t_k - t_1)^2.
    """
    values = as_float(x, "x")
    t = rcs_knots(values, knots) if isinstance(knots, int) else np.sort(as_float(knots, "knots"))
    if len(t) < 3:
        raise ShapeError("restricted cubic splines require at least three knots")

    def cube(knot: float) -> FloatArray:
        return np.asarray(np.maximum(values - knot, 0.0) ** 3, dtype=np.float64)

    last, before = float(t[-1]), float(t[-2])
    scale = (last - float(t[0])) ** 2
    columns = [values]
    for knot in t[:-2]:
        k = float(knot)
        term = (
            cube(k)
            - cube(before) * (last - k) / (last - before)
            + cube(last) * (before - k) / (last - before)
        )
        columns.append(term / scale)
    return np.stack(columns, axis=-1)
