"""Error control over many tests: Benjamini-Hochberg, e-values and e-BH.

References: Benjamini and Hochberg 1995 (J R Stat Soc B); Vovk and Wang 2021 (Annals of
Statistics) for calibrators; Wang and Ramdas 2022 (J R Stat Soc B) for e-BH.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from validation.statistics.base import BoolArray, FloatArray, as_float
from validation.statistics.errors import ShapeError


def p_values(p: npt.ArrayLike) -> FloatArray:
    """Validate (m,) p-values; raise `ShapeError` if they are not valid."""
    values = as_float(p, "p").ravel()
    if not ((values >= 0.0) & (values <= 1.0)).all():
        raise ShapeError("p-values must be between 0 and 1; a crashed test counts as p = 1")
    return values


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


def p_to_e(p: npt.ArrayLike) -> FloatArray:
    """Calibrate p-values into e-values, whose expectation is at most 1 under the null hypothesis.

    The calibrator averages kappa p^(kappa - 1) over kappa in (0, 1), which gives
    e = (1 - p + p log p) / (p log(p)^2). It integrates to 1 over uniform p. p = 0 is rejected,
    since no valid test returns it.
    """
    values = p_values(p)
    if (values <= 0.0).any():
        raise ShapeError("p = 0 cannot be calibrated: report permutation p as (1 + k) / (1 + B)")
    log = np.log(values)
    near_one = values > 1.0 - 1e-4
    safe = np.where(near_one, 0.5, values)
    safe_log = np.log(safe)
    exact = (1.0 - safe + safe * safe_log) / (safe * safe_log**2)
    # Use a series at p = 1 - d, where the exact form loses all digits.
    series = 0.5 - log / 6.0
    return np.where(near_one, series, exact)


def e_bh(e: npt.ArrayLike, alpha: float = 0.05) -> BoolArray:
    """Mask the hypotheses rejected by e-BH at false discovery rate `alpha`.

    The procedure is valid under any dependence. It rejects the hypotheses with the k largest
    e-values, where k is the greatest with k e_(k) / m >= 1 / alpha.
    """
    values = as_float(e, "e").ravel()
    if (values < 0.0).any() or np.isnan(values).any():
        raise ShapeError("e-values must be non-negative; a crashed test counts as e = 0")
    m = len(values)
    order = np.argsort(-values, kind="stable")
    enough = values[order] * np.arange(1, m + 1) >= m / alpha
    rejected = np.zeros(m, dtype=bool)
    if enough.any():
        rejected[order[: int(np.flatnonzero(enough)[-1]) + 1]] = True
    return rejected
