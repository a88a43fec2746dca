"""Lasso and ridge Cox models, and out-of-fold scores.

Tibshirani 1997 and Verweij and van Houwelingen 1994 (Statistics in Medicine) for the penalties;
Verweij and van Houwelingen 1993 (Statistics in Medicine) for the cross-validated likelihood;
Hoefling and Tibshirani 2008 (Annals of Applied Statistics) on why such scores are tested by
permutation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sage.core.seeds import generator
from validation.core.hypothesis import Penalty
from validation.statistics.base import BoolArray, FloatArray, IntArray, as_float, survival_arrays
from validation.statistics.errors import ConvergenceError, ShapeError

OUTER, INNER = 5, 3
RIDGE = (3.0, 1.0, 0.3, 0.1, 0.03, 0.01)
LASSO = (0.95, 0.6, 0.4, 0.25, 0.15, 0.08)
"""Fractions of the smallest penalty that excludes every marker."""
_STEPS, _SWEEPS, _SETTLED = 60, 200, 1e-9


class _Partial:
    """Breslow's partial likelihood per patient, for (b, n, k) markers and shared times."""

    def __init__(self, time: FloatArray, event: BoolArray, X: FloatArray) -> None:
        order = np.argsort(time, kind="stable")
        t, self.event, self.X = time[order], event[order], X[:, order]
        self.first = np.searchsorted(t, t[self.event], side="left")
        self.past = np.searchsorted(t[self.event], t, side="right")
        self.sum = self.X[:, self.event].sum(axis=1)
        self.n = len(t)

    def value(self, beta: FloatArray) -> FloatArray:
        """Return the (b,) log likelihoods of (b, k) coefficients."""
        eta = np.einsum("bnk,bk->bn", self.X, beta)
        total = np.cumsum(np.exp(eta[:, ::-1]), axis=1)[:, ::-1][:, self.first]
        return np.asarray((eta[:, self.event].sum(axis=1) - np.log(total).sum(axis=1)) / self.n)

    def derivatives(self, beta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the (b, k) scores and (b, k, k) information."""
        weight = np.exp(np.einsum("bnk,bk->bn", self.X, beta))
        moved = self.X * weight[:, :, None]
        total = np.cumsum(weight[:, ::-1], axis=1)[:, ::-1][:, self.first]
        mean = np.cumsum(moved[:, ::-1], axis=1)[:, ::-1][:, self.first] / total[:, :, None]
        hazard = np.cumsum(np.pad(1.0 / total, ((0, 0), (1, 0))), axis=1)[:, self.past]
        outer = np.matmul(moved.transpose(0, 2, 1) * hazard[:, None, :], self.X)
        information = outer - np.matmul(mean.transpose(0, 2, 1), mean)
        return (self.sum - mean.sum(axis=1)) / self.n, information / self.n


def _fit(
    partial: _Partial, penalty: Penalty, size: FloatArray, start: FloatArray
) -> tuple[FloatArray, BoolArray]:
    """Maximize the penalized likelihood from (b, k) `start`; return coefficients and convergence.

    Each step maximizes the quadratic approximation: for the lasso by coordinate descent.
    """

    def objective(beta: FloatArray) -> FloatArray:
        norm = np.abs(beta) if penalty == "lasso" else beta**2 / 2
        return np.asarray(partial.value(beta) - size * norm.sum(axis=1))

    beta, now = start.copy(), objective(start)
    done = np.zeros(len(beta), dtype=bool)
    for _ in range(_STEPS):
        score, information = partial.derivatives(beta)
        diagonal = np.maximum(np.einsum("bkk->bk", information), 1e-12)
        if penalty == "ridge":
            curved = information + size[:, None, None] * np.eye(beta.shape[1])
            pull = score - size[:, None] * beta
            aim = beta + np.linalg.solve(curved, pull[:, :, None])[:, :, 0]
        else:
            aim, slope = beta.copy(), score.copy()
            for _ in range(_SWEEPS):
                largest = 0.0
                for j in range(beta.shape[1]):
                    free = aim[:, j] * diagonal[:, j] + slope[:, j]
                    to = np.sign(free) * np.maximum(np.abs(free) - size, 0.0) / diagonal[:, j]
                    by = to - aim[:, j]
                    slope -= information[:, :, j] * by[:, None]
                    aim[:, j] = to
                    largest = max(largest, float(np.abs(by).max()))
                if largest < _SETTLED:
                    break
        step, share = aim - beta, np.ones(len(beta))
        with np.errstate(over="ignore", invalid="ignore"):
            for _ in range(30):
                worse = ~(objective(beta + share[:, None] * step) >= now - 1e-13)
                if not worse.any():
                    break
                share[worse] /= 2.0
        beta = beta + share[:, None] * step
        now = objective(beta)
        done = np.abs(step).max(axis=1) < _SETTLED * 10
        if done.all():
            break
    return beta, done


def penalized_cox(
    time: npt.ArrayLike, event: npt.ArrayLike, X: npt.ArrayLike, penalty: Penalty, size: float
) -> FloatArray:
    """Maximize log likelihood / n - size * sum |beta| (lasso), or size * sum beta^2 / 2 (ridge).

    Ties are handled by Breslow's method. `X` (n, k) is used as given: standardize it before.

    Returns
    -------
    (k,) log hazard ratios.

    Raises
    ------
    ConvergenceError
        If the maximum was not found.
    """
    t, e = survival_arrays(time, event)
    x = as_float(X, "markers")
    if x.ndim != 2 or len(x) != len(t):
        raise ShapeError("markers must have one row per patient")
    partial, start = _Partial(t, e, x[None]), np.zeros((1, x.shape[1]))
    beta, done = _fit(partial, penalty, np.array([size]), start)
    if not done.all():
        raise ConvergenceError(f"the {penalty} model did not converge: its markers may coincide")
    return np.asarray(beta[0])


@dataclass(frozen=True)
class OutOfFold:
    """Out-of-fold scores (b, n) and the (folds, b, k) coefficients of their models."""

    scores: FloatArray
    coefs: FloatArray


def out_of_fold(
    time: FloatArray, event: BoolArray, X: FloatArray, penalty: Penalty, seed: int
) -> OutOfFold:
    """Score each patient with a model fitted to, and tuned on, the other folds.

    Both the outer and the inner folds are balanced over events. The penalty maximizes the
    cross-validated partial likelihood of the inner folds.

    Parameters
    ----------
    time, event : (n,) follow-up and whether it ends in the event
    X : (b, n, k) standardized markers; the b sets are scored separately, in the same folds
    """
    rng = generator(seed, len(time), 17)
    folds = _folds(event, OUTER, rng)
    scores, coefs = np.empty(X.shape[:2]), []
    for fold in range(OUTER):
        rest, held = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        whole = _Partial(time[rest], event[rest], X[:, rest])
        zero = np.zeros((len(X), X.shape[2]))
        most = np.abs(whole.derivatives(zero)[0]).max(axis=1)
        path = [most * share for share in LASSO] if penalty == "lasso" else [
            np.full(len(X), size) for size in RIDGE
        ]  # fmt: skip
        gained = np.zeros((len(path), len(X)))
        inner = _folds(event[rest], INNER, rng)
        for part in range(INNER):
            mine = rest[inner != part]
            model, beta = _Partial(time[mine], event[mine], X[:, mine]), zero
            for at, size in enumerate(path):
                beta = _fit(model, penalty, size, beta)[0]
                gained[at] += whole.value(beta) * whole.n - model.value(beta) * model.n
        chosen = np.take_along_axis(np.array(path), gained.argmax(axis=0)[None], axis=0)[0]
        beta = _fit(whole, penalty, chosen, zero)[0]
        scores[:, held] = np.einsum("bnk,bk->bn", X[:, held], beta)
        coefs.append(beta)
    return OutOfFold(scores, np.array(coefs))


def _folds(event: BoolArray, count: int, rng: np.random.Generator) -> IntArray:
    found = np.empty(len(event), dtype=np.int64)
    for flag in (False, True):
        mine = np.flatnonzero(event == flag)
        found[rng.permutation(mine)] = np.arange(len(mine)) % count
    return found
