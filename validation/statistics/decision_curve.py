"""Net benefit of acting on a predicted risk, compared with treating all or no patients.

Vickers and Elkin 2006 (Medical Decision Making); Vickers and others 2008 (BMC Medical
Informatics and Decision Making) for censored outcomes: the risk among patients above a
threshold is estimated by Kaplan-Meier.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from validation.statistics.base import FloatArray, as_float, survival_arrays
from validation.statistics.errors import BadTimesError, ShapeError
from validation.statistics.survival import kaplan_meier

NAMES = {
    "with": "covariates and exposure", "without": "covariates alone", "score": "the score",
    "all": "everybody",
}  # fmt: skip
"""Names of the strategies that are compared."""


def net_benefit(
    time: npt.ArrayLike,
    event: npt.ArrayLike,
    risk: npt.ArrayLike,
    when: float,
    thresholds: npt.ArrayLike,
) -> FloatArray:
    """Compute the net benefit of treating patients whose predicted risk reaches each threshold.

    The net benefit is s * (F - (1 - F) * t / (1 - t)), where s is the share of patients at or
    above threshold t and F their Kaplan-Meier risk by `when`: per patient, true positives
    minus false positives weighted by the odds at the threshold. To treat all patients, pass a
    risk of 1 for each; treating none has net benefit 0.

    Parameters
    ----------
    time, event : (n,) follow-up and 0/1 flags
    risk : (n,) predicted risk by `when`, 0 to 1
    thresholds : (m,) in (0, 1)

    Returns
    -------
    (m,) net benefit per patient.

    Raises
    ------
    BadTimesError
        If no patient is followed to `when`.
    """
    t, e = survival_arrays(time, event, need_events=False)
    predicted, at = as_float(risk, "risk"), as_float(thresholds, "thresholds")
    if predicted.shape != t.shape or not ((predicted >= 0.0) & (predicted <= 1.0)).all():
        raise ShapeError("the predicted risk must have one probability per patient")
    if at.ndim != 1 or not ((at > 0.0) & (at < 1.0)).all():
        raise ShapeError("thresholds must be between 0 and 1")
    if t.max() < when:
        raise BadTimesError(f"nobody is followed to {when:g}, so net benefit cannot be computed")
    found = np.zeros(len(at))
    for place, threshold in enumerate(at):
        treated = predicted >= threshold
        if not treated.any():
            continue
        reached = 1.0 - float(kaplan_meier(t[treated], e[treated]).survival_at([when])[0])
        odds = threshold / (1.0 - threshold)
        found[place] = treated.mean() * (reached - (1.0 - reached) * odds)
    return found
