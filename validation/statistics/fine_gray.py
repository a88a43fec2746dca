"""Fine and Gray's model: proportional subdistribution hazards with their own variance.

Fine and Gray 1999 (J Am Stat Assoc 94:496): `_influence` computes equations 7 and 8 and the
appendix of that paper, as does the R function cmprsk::crr, against which the tests compare it.
Geskus 2011 (Biometrics 67:39) for weights by the distribution of entry, as in survival::finegray.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from validation.statistics.base import (
    Z95,
    FloatArray,
    HazardRatios,
    IntArray,
    design,
    entry_array,
)
from validation.statistics.competing import causes
from validation.statistics.concordance import censoring_weight
from validation.statistics.errors import (
    BadTimesError,
    ConvergenceError,
    SeparationError,
    TooManyCovariatesError,
)
from validation.statistics.newton import Likelihood, maximize


@dataclass(frozen=True)
class FineGray(HazardRatios):
    """Subdistribution hazard ratios with Fine and Gray's standard errors.

    `competing` is 0 if no patient had another event: the model is then a Cox model with
    Breslow's ties and a robust variance.
    """

    competing: int
    converged: bool


@dataclass(frozen=True)
class _Sample:
    """Patients in order of time.

    `late` is 1 / W(X-) for patients with a competing event, otherwise 0, where W is the probability
    G of not being censored, times that of having entered (H) with delayed `entry`. `when`, `d` and
    `g` are the distinct event times, the number of events there and W just before; `first` is the
    first patient still followed at each event time.
    """

    t: FloatArray
    codes: IntArray
    main: npt.NDArray[np.bool_]
    z: FloatArray
    late: FloatArray
    when: FloatArray
    d: FloatArray
    g: FloatArray
    first: IntArray
    entry: FloatArray | None = None

    def over_risk_sets(self, values: FloatArray) -> FloatArray:
        """Compute (J, ...) weighted sums of (n, ...) values over the subdistribution's risk sets.

        Patients followed have weight 1; patients with an earlier competing event have weight
        W(s-) / W(X-). Running sums suffice, without a matrix of patients by times.
        """
        shape = (-1,) + (1,) * (values.ndim - 1)
        after = _running(values[::-1])[::-1][self.first]
        if self.entry is not None:
            order = np.argsort(self.entry, kind="stable")
            outside = np.searchsorted(self.entry[order], self.when, side="left")
            after = after - _running(values[order][::-1])[::-1][outside]
        before = _running(self.late.reshape(shape) * values)[self.first]
        return np.asarray(after + self.g.reshape(shape) * before)


def _running(values: FloatArray) -> FloatArray:
    """Compute cumulative sums with a leading zero."""
    total: FloatArray = np.zeros((len(values) + 1, *values.shape[1:]))
    np.cumsum(values, axis=0, out=total[1:])
    return total


def fine_gray(
    time: npt.ArrayLike,
    status: npt.ArrayLike,
    X: npt.ArrayLike,
    names: Sequence[str],
    cause: int = 1,
    entry: npt.ArrayLike | None = None,
) -> FineGray:
    """Fit proportional subdistribution hazards.

    A patient with a competing event stays in the risk set with weight G(t-) / G(own time-), where G
    is the Kaplan-Meier estimate of the censoring survival and events precede censorings at tied
    times. With delayed entry, the weight is G(t-) H(t-) / (G(own time-) H(own time-)), where H is
    the product-limit estimate of the distribution of entry, in reversed time. Ties are handled by
    Breslow's method. The standard errors are Fine and Gray's: a sandwich of the per-patient score
    residuals that includes the uncertainty from estimating G and H.

    Parameters
    ----------
    status : (n,) 0 if censored, otherwise the number of the cause
    X : (n, k) covariates
    entry : (n,) delayed entry, in the unit of time

    Raises
    ------
    NoEventsError, BadEventsError, TooManyCovariatesError, SeparationError, ConvergenceError
    BadTimesError
        If the distribution of entry is zero at a competing event, as nobody observed before it was
        still observed when others entered after it.
    """
    t, codes = causes(time, status, cause)
    started = entry_array(entry, t)
    x, labels = design(X, names, len(t))
    events = int((codes == cause).sum())
    if x.shape[1] >= events:
        raise TooManyCovariatesError(f"{x.shape[1]} covariates for {events} events for this cause")
    scale = x.std(axis=0)
    sample = _sample(t, codes, (x - x.mean(axis=0)) / scale, cause, started)
    beta, information = _maximize(sample)
    residual = _influence(sample, beta)
    inverse = np.linalg.inv(information)
    se_z = np.sqrt(np.maximum(np.diag(inverse @ (residual.T @ residual) @ inverse), 0.0))
    if not np.all(se_z > 1e-12):
        raise ConvergenceError(
            "Fine and Gray's model leaves no residual variation for estimating the errors of its "
            "coefficients; there are too few events"
        )
    half = Z95 * se_z
    return FineGray(
        names=labels,
        coef=beta / scale,
        se=se_z / scale,
        hr=np.exp(beta / scale),
        lower=np.exp((beta - half) / scale),
        upper=np.exp((beta + half) / scale),
        p=2.0 * ndtr(-np.abs(beta / se_z)),
        n=len(t),
        events=events,
        competing=int(((codes > 0) & (codes != cause)).sum()),
        converged=True,
    )


def _sample(
    t: FloatArray, codes: IntArray, z: FloatArray, cause: int, entry: FloatArray | None = None
) -> _Sample:
    order = np.argsort(t, kind="stable")
    t, codes, z = t[order], codes[order], z[order]
    entry = None if entry is None else entry[order]
    main = codes == cause
    other = (codes > 0) & ~main
    when, d = np.unique(t[main], return_counts=True)

    def weight_before(at: FloatArray) -> FloatArray:
        found = censoring_weight(t, codes > 0, np.nextafter(at, -np.inf), entry)
        if entry is not None:
            u, new, at_risk = _entries(t, entry)
            later = np.cumprod((1.0 - new / at_risk)[::-1])[::-1]
            found = found * np.append(later, 1.0)[np.searchsorted(u, at, side="left")]
        return np.asarray(found)

    own = weight_before(t)
    if (own[other] <= 0.0).any():
        raise BadTimesError(
            "entry: everybody observed at a competing event had left before the next patient "
            "entered, so that it has no weight later; start follow-up after that time"
        )
    return _Sample(
        t=t,
        codes=codes,
        main=main,
        z=z,
        late=np.where(other, 1.0 / np.where(other, own, 1.0), 0.0),
        when=when,
        d=d.astype(np.float64),
        g=weight_before(when),
        first=np.searchsorted(t, when, side="left").astype(np.int64),
        entry=entry,
    )


def _entries(t: FloatArray, entry: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return distinct times of entry, the patients who enter there, and those then observed."""
    u, new = np.unique(entry, return_counts=True)
    entered = np.searchsorted(np.sort(entry), u, side="right")
    left = np.searchsorted(t, u, side="right")
    return u, new.astype(np.float64), (entered - left).astype(np.float64)


def _maximize(sample: _Sample) -> tuple[FloatArray, FloatArray]:
    """Maximize over the standardized covariates; return the coefficients and the information."""
    z, d = sample.z, sample.d
    total = z[sample.main].sum(axis=0)
    outer = z[:, :, None] * z[:, None, :]

    def evaluate(beta: FloatArray) -> Likelihood:
        risk = np.exp(z @ beta)
        s0 = sample.over_risk_sets(risk)
        mean = sample.over_risk_sets(risk[:, None] * z) / s0[:, None]
        second = sample.over_risk_sets(risk[:, None, None] * outer) / s0[:, None, None]
        return Likelihood(
            value=float(total @ beta - d @ np.log(s0)),
            score=total - (d[:, None] * mean).sum(axis=0),
            information=(d[:, None, None] * (second - mean[:, :, None] * mean[:, None, :])).sum(0),
        )

    best = maximize(evaluate, np.zeros(z.shape[1]), z)
    if best.ended == "infinite":
        raise SeparationError(
            "a covariate separates the events for this cause, so its subdistribution hazard ratio"
            " is infinite. Use Gray's test, or the cause-specific model with Firth's "
            "penalty"
        )
    if best.ended != "converged":
        raise ConvergenceError(
            "Fine and Gray's model did not converge; its covariates may be collinear; simplify it"
        )
    return best.beta, best.at.information


def _influence(sample: _Sample, beta: FloatArray) -> FloatArray:
    """Compute (n, k) eta_i + psi_i, each patient's contribution to the score.

    eta_i = integral (z_i - E(s)) w_i(s) dM_i(s), where M_i is the subdistribution's martingale
    residual; psi_i = integral q(u) / pi(u) dM_i^c(u), the contribution to the error of the weights,
    where M_i^c is the martingale residual of the censoring and q(u) = - sum over i of the part of
    eta_i that weights after u (with X_i <= u) contribute. Delayed entry contributes the same
    integral over its martingale residual in reversed time, with the opposite sign.
    """
    t, z, late, when, entry = sample.t, sample.z, sample.late, sample.when, sample.entry
    risk = np.exp(z @ beta)
    s0 = sample.over_risk_sets(risk)
    mean = sample.over_risk_sets(risk[:, None] * z) / s0[:, None]
    jump = sample.d / s0
    hazard, moved = _running(jump), _running(jump[:, None] * mean)
    weighted = _running(sample.g * jump)
    weighted_moved = _running((sample.g * jump)[:, None] * mean)

    row = np.searchsorted(when, t, side="right")
    since = np.zeros_like(row) if entry is None else np.searchsorted(when, entry, side="right")
    at_risk = (hazard[row] - hazard[since])[:, None]
    eta = -risk[:, None] * (z * at_risk - (moved[row] - moved[since]))
    eta[sample.main] += z[sample.main] - mean[row[sample.main] - 1]
    ahead = (weighted[-1] - weighted[row])[:, None]
    eta -= (risk * late)[:, None] * (z * ahead - (weighted_moved[-1] - weighted_moved[row]))
    if not (late > 0.0).any():
        return np.asarray(eta)

    def share_of(u: FloatArray, at_risk: FloatArray) -> FloatArray:
        """Return (m, k) q(u) per patient at risk."""
        past, row_u = np.searchsorted(t, u, side="right"), np.searchsorted(when, u, side="right")
        held = _running(risk * late)[past][:, None]
        held_z = _running((risk * late)[:, None] * z)[past]
        ahead_u = (weighted[-1] - weighted[row_u])[:, None]
        q = held_z * ahead_u - held * (weighted_moved[-1] - weighted_moved[row_u])
        return np.asarray(q / at_risk[:, None])

    censored = sample.codes == 0
    if censored.any():
        u, c = np.unique(t[censored], return_counts=True)
        followed = (len(t) - np.searchsorted(t, u, side="right") + c).astype(np.float64)
        # A patient with an event at u leaves the risk set before any censoring at u.
        seen = np.where(
            censored, np.searchsorted(u, t, side="right"), np.searchsorted(u, t, side="left")
        )
        since = np.zeros_like(seen)
        if entry is not None:
            since = np.searchsorted(u, entry, side="right")
            followed -= len(t) - np.searchsorted(np.sort(entry), u, side="left")
        share = share_of(u, followed)
        compensator = _running(share * (c / followed)[:, None])
        eta -= compensator[seen] - compensator[since]
        eta[censored] += share[np.searchsorted(u, t[censored], side="left")]
    if entry is not None:
        u, new, observed = _entries(t, entry)
        share = share_of(u, np.maximum(observed - new, 1.0))
        compensator = _running(share * (new / observed)[:, None])
        own = np.searchsorted(u, entry, side="left")
        eta += compensator[np.searchsorted(u, t, side="left")] - compensator[own]
        eta -= share[own]
    return np.asarray(eta)
