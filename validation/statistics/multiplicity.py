"""Error control for multiple tests.

References: Holm 1979 (Scand J Stat); Benjamini and Hochberg 1995 (J R Stat Soc B).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from validation.statistics.base import FloatArray, as_float
from validation.statistics.errors import ShapeError


def p_values(p: npt.ArrayLike) -> FloatArray:
    """Validate (m,) p-values; raise `ShapeError` if they are not valid."""
    values = as_float(p, "p").ravel()
    if not ((values >= 0.0) & (values <= 1.0)).all():
        raise ShapeError("p-values must be between 0 and 1; a crashed test counts as p = 1")
    return values


def holm(p: npt.ArrayLike) -> FloatArray:
    """Compute Holm's adjusted p-values: max over j <= i of (m - j + 1) p_(j), in input order.

    This controls the probability of any false finding under any dependence. An additional
    p-value never lowers the other adjusted p-values: below p_(i) it raises both m and the
    rank by one, and above it only m.
    """
    values = p_values(p)
    order = np.argsort(values)
    raw = values[order] * np.arange(len(values), 0, -1)
    found = np.empty_like(values)
    found[order] = np.minimum(np.maximum.accumulate(raw), 1.0)
    return found


def bh(p: npt.ArrayLike) -> FloatArray:
    """Compute Benjamini-Hochberg adjusted p-values: min over j >= i of m p_(j) / j, in input order.

    This controls the false discovery rate under independence or positive dependence.
    """
    values = p_values(p)  # scipy has it too, but importing it takes longer than a screen's tests
    order = np.argsort(values)
    raw = values[order] * (len(values) / np.arange(1, len(values) + 1))
    q = np.empty_like(values)
    q[order] = np.minimum(np.minimum.accumulate(raw[::-1])[::-1], 1.0)
    return q
