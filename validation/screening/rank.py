"""Ranking of thousands of features by their relation to survival, each in a Cox model.

A first pass computes a score test for every feature given the covariates; Newton's method
then fits all models together (`validation.statistics.batched`). The Benjamini-Hochberg
adjustment covers all requested features: a feature that could not be fitted counts with p
= 1 and is not left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.special import chdtrc, ndtr

from validation.statistics.base import (
    Z95,
    BoolArray,
    FloatArray,
    HazardRatios,
    IntArray,
    as_float,
    design,
    survival_arrays,
)
from validation.statistics.batched import batched_cox
from validation.statistics.cox import cox
from validation.statistics.errors import (
    CollinearError,
    MissingValuesError,
    SeparationError,
    ShapeError,
    StatisticsError,
    TooManyCovariatesError,
)
from validation.statistics.multiplicity import bh

LEAST_PRESENT = 0.5


@dataclass(frozen=True)
class ScreenResult(HazardRatios):
    """Results per feature, in the order given.

    `coef` and `hr` are per standard deviation of the feature if `per_sd`, otherwise per unit;
    NaN if `status` is not "ok". `p` is the Wald p-value, `p_score` that of the score test,
    and `q` the Benjamini-Hochberg adjusted `p`. `n_used` is below `n` for features with
    missing values, which are fitted on the patients that have them.
    """

    p_score: FloatArray
    score: FloatArray
    q: FloatArray
    status: tuple[str, ...]
    n_used: IntArray
    covariates: tuple[str, ...]
    per_sd: bool

    @cached_property
    def ok(self) -> BoolArray:
        """Boolean mask of features that have an estimate."""
        return np.array([s == "ok" for s in self.status], dtype=bool)

    def ranking(self) -> IntArray:
        """Return feature positions from most to least related, with unfitted features last.

        Features are ranked by the score test if the Wald test agrees, and by the larger of the
        two p-values if they differ: for a feature driven by a handful of patients (such as a gene
        that is silent in all other patients), the score statistic far exceeds the evidence.
        """
        worse = np.fmax(self.p, self.p_score)
        return np.argsort(np.where(self.ok, worse, np.inf), kind="stable").astype(np.int64)

    def count_refused(self) -> dict[str, int]:
        """Count refused features by reason."""
        reasons = [s for s in self.status if s != "ok"]
        return {reason: reasons.count(reason) for reason in sorted(set(reasons))}


def screen(
    time: npt.ArrayLike,
    event: npt.ArrayLike,
    features: npt.ArrayLike,
    covariates: npt.ArrayLike | None = None,
    names: Sequence[str] | None = None,
    *,
    covariate_names: Sequence[str] | None = None,
    per_sd: bool = True,
    workers: int | None = None,
) -> ScreenResult:
    """Fit one Cox model per feature, each with the same covariates.

    Parameters
    ----------
    time, event : (n,) follow-up and 0/1 flags
    features : (n, p) a column per feature; NaN allowed in up to half of a column
    covariates : (n, q) complete
    names : p feature names (default: 0, 1, ...)
    per_sd : report per standard deviation of each feature (comparable between features)

    Returns
    -------
    The results per feature. A feature that is constant, has too many missing values or an
    infinite estimate has a `status` with the reason, and NaN for numbers.

    Raises
    ------
    NoEventsError, BadTimesError, BadEventsError, ShapeError,
    MissingValuesError (in covariates), CollinearError, TooManyCovariatesError
    """
    t, e = survival_arrays(time, event)
    x = as_float(features, "features")
    if x.ndim != 2 or len(x) != len(t) or x.shape[1] == 0:
        raise ShapeError(f"features have shape {x.shape} for {len(t)} patients")
    p = x.shape[1]
    labels = tuple(str(i) for i in range(p)) if names is None else tuple(names)
    if len(labels) != p:
        raise ShapeError(f"got {len(labels)} names for {p} features")
    c, c_names = _covariates(covariates, covariate_names, t, e)
    missing = ~np.isfinite(x)
    any_missing = missing.any(axis=0)
    present = np.where(missing, 0.0, x) if any_missing.any() else x
    mean = present.mean(axis=0)
    sd = np.sqrt(np.maximum((present**2).mean(axis=0) - mean**2, 0.0))
    constant = np.ptp(present, axis=0) == 0.0
    # The single-pass variance loses digits if the mean is large relative to the spread.
    fragile = ~constant & (sd < 1e-3 * np.abs(mean))
    sd[fragile] = present[:, fragile].std(axis=0)
    status = np.full(p, "ok", dtype=object)
    status[constant] = "constant_feature"
    whole = ~any_missing & ~constant
    coef, se, score = np.full(p, np.nan), np.full(p, np.nan), np.full(p, np.nan)
    n_used = np.full(p, len(t), dtype=np.int64)
    if whole.any():
        z = x - mean if whole.all() else x[:, whole] - mean[whole]
        z /= sd[whole]
        batch = batched_cox(t, e, z, c, workers=workers)
        coef[whole], se[whole], score[whole] = batch.coef, batch.se, batch.score
        status[np.flatnonzero(whole)[batch.separated]] = SeparationError.code
    scale = np.where(constant, 1.0, sd)
    unsettled = whole & ~np.isfinite(coef) & (status == "ok")
    for j in np.flatnonzero(unsettled | any_missing):
        rows = ~missing[:, j]
        n_used[j] = int(rows.sum())
        status[j], coef[j], se[j], score[j], scale[j] = _fit_single(
            t, e, x[:, j], c, rows, labels[j]
        )
    unit = np.ones(p) if per_sd else scale
    with np.errstate(over="ignore", invalid="ignore"):
        half = Z95 * se
        wald = 2.0 * ndtr(-np.abs(coef / se))
        p_score = chdtrc(1.0, score)
        limits = [np.exp(v / unit) for v in (coef, coef - half, coef + half)]
    return ScreenResult(
        names=labels,
        coef=coef / unit,
        se=se / unit,
        hr=limits[0],
        lower=limits[1],
        upper=limits[2],
        p=wald,
        p_score=p_score,
        score=score,
        q=bh(np.where(np.isnan(wald), 1.0, wald)),
        status=tuple(str(s) for s in status),
        n_used=n_used,
        n=len(t),
        events=int(e.sum()),
        covariates=c_names,
        per_sd=per_sd,
    )


def _covariates(
    covariates: npt.ArrayLike | None, names: Sequence[str] | None, t: FloatArray, e: BoolArray
) -> tuple[FloatArray | None, tuple[str, ...]]:
    """Return standardized covariates; reject those that no model could include."""
    if covariates is None:
        return None, ()
    raw = as_float(covariates, "covariates")
    raw = raw[:, None] if raw.ndim == 1 else raw
    given = names or [f"covariate {i + 1}" for i in range(raw.shape[1])]
    c, labels = design(raw, given, len(t))
    if c.shape[1] + 1 >= int(e.sum()):
        raise TooManyCovariatesError(f"{c.shape[1]} covariates for {int(e.sum())} events")
    z = (c - c.mean(axis=0)) / c.std(axis=0)
    if np.linalg.matrix_rank(z) < z.shape[1]:
        raise CollinearError(f"covariates {', '.join(labels)} are linearly dependent")
    cox(t, e, c, labels)  # reject separation among the covariates here, naming the covariates
    return z, labels


def _fit_single(
    t: FloatArray, e: BoolArray, x: FloatArray, c: FloatArray | None, rows: BoolArray, name: str
) -> tuple[str, float, float, float, float]:
    """Fit one feature on the patients that have it; return (status, coef, se, score, sd)."""
    nothing = (float("nan"), float("nan"), float("nan"), 1.0)
    if rows.mean() < LEAST_PRESENT:
        return (MissingValuesError.code, *nothing)
    sd = float(x[rows].std())
    if sd == 0.0:
        return ("constant_feature", *nothing)
    z = ((x[rows] - x[rows].mean()) / sd)[:, None]
    full = z if c is None else np.column_stack((z, c[rows]))
    try:
        fit = cox(t[rows], e[rows], full, [name, *(f"c{i}" for i in range(full.shape[1] - 1))])
    except StatisticsError as refusal:
        return (refusal.code, *nothing)
    first = batched_cox(t[rows], e[rows], z, None if c is None else full[:, 1:], newton=False)
    return "ok", float(fit.coef[0]), float(fit.se[0]), float(first.score[0]), sd
