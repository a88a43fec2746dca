"""Fine and Gray's model: proportional subdistribution hazards with their own variance.

Fine and Gray 1999 (J Am Stat Assoc 94:496): `_influence` computes equations 7 and 8 and the
appendix of that paper, as does the R function cmprsk::crr, against which the tests compare it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from validation.statistics.base import Z95, FloatArray, HazardRatios, IntArray, design
from validation.statistics.competing import causes
from validation.statistics.concordance import censoring_weight
from validation.statistics.errors import ConvergenceError, SeparationError, TooManyCovariatesError
from validation.statistics.newton import Likelihood, maximize


@dataclass(frozen=True)
class FineGray(HazardRatios):
    """Subdistribution hazard ratios with Fine and Gray's standard errors.

    `competing` is 0 if nobody had another event: the model is then a Cox model with Breslow's ties
    and a robust variance.
    """

    competing: int
    converged: bool


@dataclass(frozen=True)
class _Sample:
    """Patients in order of time.

    `late` is 1 / G(X-) for patients with a competing event, otherwise 0. `when`, `d` and `g` are
    the distinct event times, the number of events there and G just before; `first` is the first
    patient still followed at each event time.
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

    def over_risk_sets(self, values: FloatArray) -> FloatArray:
        """Compute (J, ...) weighted sums of (n, ...) values over the subdistribution's risk sets.

        Patients still followed have weight 1; patients with an earlier competing event have weight
        G(s-) / G(X-). Two running sums suffice, without a matrix of patients by times.
        """
        shape = (-1,) + (1,) * (values.ndim - 1)
        after = _running(values[::-1])[::-1][self.first]
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
) -> FineGray:
    """Fit proportional subdistribution hazards.

    A patient with a competing event stays in the risk set with weight G(t-) / G(own time-), where G
    is the Kaplan-Meier estimate of the censoring survival and events precede censorings at tied
    times. Ties are handled by Breslow's method. The standard errors are Fine and Gray's: a sandwich
    of the per-patient score residuals that includes the uncertainty from estimating G.

    Parameters
    ----------
    status : (n,) 0 if censored, otherwise the number of the cause
    X : (n, k) covariates

    Raises
    ------
    NoEventsError, BadEventsError, TooManyCovariatesError, SeparationError, ConvergenceError
    """
    t, codes = causes(time, status, cause)
    x, labels = design(X, names, len(t))
    events = int((codes == cause).sum())
    if x.shape[1] >= events:
        raise TooManyCovariatesError(f"{x.shape[1]} covariates for {events} events of the cause")
    scale = x.std(axis=0)
    sample = _sample(t, codes, (x - x.mean(axis=0)) / scale, cause)
    beta, information = _maximize(sample)
    residual = _influence(sample, beta)
    inverse = np.linalg.inv(information)
    se_z = np.sqrt(np.maximum(np.diag(inverse @ (residual.T @ residual) @ inverse), 0.0))
    if not np.all(se_z > 1e-12):
        raise ConvergenceError(
            "Fine and Gray's model leaves no residual variation to estimate the errors of its "
            "coefficients: too few events"
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


def _sample(t: FloatArray, codes: IntArray, z: FloatArray, cause: int) -> _Sample:
    order = np.argsort(t, kind="stable")
    t, codes, z = t[order], codes[order], z[order]
    main = codes == cause
    when, d = np.unique(t[main], return_counts=True)
    own = censoring_weight(t, codes > 0, np.nextafter(t, -np.inf))
    other = (codes > 0) & ~main
    return _Sample(
        t=t,
        codes=codes,
        main=main,
        z=z,
        late=np.where(other, 1.0 / own, 0.0),
        when=when,
        d=d.astype(np.float64),
        g=censoring_weight(t, codes > 0, np.nextafter(when, -np.inf)),
        first=np.searchsorted(t, when, side="left").astype(np.int64),
    )


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
            "a covariate separates the events of this cause: its subdistribution hazard ratio"
            " is infinite. Read Gray's test, or the cause-specific model with Firth's penalty"
        )
    if best.ended != "converged":
        raise ConvergenceError(
            "Fine and Gray's model did not converge: its covariates may depend on each other;"
            " simplify it"
        )
    return best.beta, best.at.information


def _influence(sample: _Sample, beta: FloatArray) -> FloatArray:
    """Compute (n, k) eta_i + psi_i, each patient's contribution to the score.

    eta_i = integral (z_i - E(s)) w_i(s) dM_i(s), where M_i is the subdistribution's martingale
    residual; psi_i = integral q(u) / pi(u) dM_i^c(u), the contribution to the error of the weights,
    where M_i^c is the martingale residual of the censoring and q(u) = - sum over i of the part of
    eta_i that weights after u (with X_i <= u) contribute.
    """
    t, z, late, when = sample.t, sample.z, sample.late, sample.when
    risk = np.exp(z @ beta)
    s0 = sample.over_risk_sets(risk)
    mean = sample.over_risk_sets(risk[:, None] * z) / s0[:, None]
    jump = sample.d / s0
    hazard, moved = _running(jump), _running(jump[:, None] * mean)
    weighted = _running(sample.g * jump)
    weighted_moved = _running((sample.g * jump)[:, None] * mean)

    row = np.searchsorted(when, t, side="right")
    eta = -risk[:, None] * (z * hazard[row][:, None] - moved[row])
    eta[sample.main] += z[sample.main] - mean[row[sample.main] - 1]
    ahead = (weighted[-1] - weighted[row])[:, None]
    eta -= (risk * late)[:, None] * (z * ahead - (weighted_moved[-1] - weighted_moved[row]))

    censored = sample.codes == 0
    if not censored.any() or not (late > 0.0).any():
        return np.asarray(eta)
    u, c = np.unique(t[censored], return_counts=True)
    past, row_u = np.searchsorted(t, u, side="right"), np.searchsorted(when, u, side="right")
    held = _running(risk * late)[past][:, None]
    held_z = _running((risk * late)[:, None] * z)[past]
    ahead_u = (weighted[-1] - weighted[row_u])[:, None]
    q = held_z * ahead_u - held * (weighted_moved[-1] - weighted_moved[row_u])
    at_risk = (len(t) - past + c).astype(np.float64)
    share = q / at_risk[:, None]
    compensator = _running(share * (c / at_risk)[:, None])
    # A patient with an event at u leaves the risk set before any censoring at u.
    seen = np.where(
        censored, np.searchsorted(u, t, side="right"), np.searchsorted(u, t, side="left")
    )
    psi = -compensator[seen]
    psi[censored] += share[np.searchsorted(u, t[censored], side="left")]
    return np.asarray(eta + psi)
