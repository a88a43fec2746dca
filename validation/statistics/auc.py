"""Time-dependent AUC with cumulative cases and dynamic controls, weighted for censoring.

Uno, Cai, Tian and Wei 2007 (J Am Stat Assoc); Hung and Chiang 2010 (Canadian J Stat).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from validation.statistics.base import FloatArray, as_float, survival_arrays
from validation.statistics.concordance import censoring_weight
from validation.statistics.errors import BadTimesError, NoEventsError, ShapeError


def auc_at(
    time: npt.ArrayLike, event: npt.ArrayLike, risk: npt.ArrayLike, horizons: npt.ArrayLike
) -> FloatArray:
    """Estimate AUC(t) under censoring.

    AUC(t) is the probability that a patient with an event by t has a higher risk than a patient who
    is still event-free after t. Cases (event by t) have weight 1 / G(their time), where G is the
    censoring survival; controls are the patients still followed after t. Equal risks count half.

    Parameters
    ----------
    risk : (n,) risk score, higher for patients expected to fail earlier
    horizons : (m,) times, each with at least one case and one control

    Returns
    -------
    (m,) AUC at each horizon
    """
    t, e = survival_arrays(time, event)
    r = as_float(risk, "risk")
    if r.shape != t.shape or not np.isfinite(r).all():
        raise ShapeError(f"risk must contain {len(t)} finite values, one per patient")
    g = censoring_weight(t, e, t)
    result = []
    for horizon in np.atleast_1d(as_float(horizons, "horizons")):
        case, control = e & (t <= horizon), t > horizon
        if not case.any():
            raise NoEventsError(f"no events by {horizon:g}, so the AUC cannot be computed")
        if not control.any():
            raise BadTimesError(
                f"nobody is followed beyond {horizon:g}, so the AUC cannot be computed"
            )
        weight = 1.0 / g[case]
        ordered = np.sort(r[control])
        below = np.searchsorted(ordered, r[case], side="left")
        equal = np.searchsorted(ordered, r[case], side="right") - below
        wins = (below + 0.5 * equal) / len(ordered)
        result.append(float((weight * wins).sum() / weight.sum()))
    return np.array(result)
