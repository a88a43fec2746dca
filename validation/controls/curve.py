"""Specification curve of a claim under every defensible choice, and the stability of its sign.

Simonsohn, Simmons and Nelson 2020 (Nature Human Behaviour). A specification fixes a cut-point, the
covariates, the strata, the follow-up and the exclusions; none of these choices may depend on the
outcome. Choices that give the same model in the same patients (such as a follow-up limit that
nobody reaches) are one specification, so that none is counted twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import numpy as np
import numpy.typing as npt

from validation.statistics.base import BoolArray, FloatArray, IntArray, as_float, survival_arrays
from validation.statistics.binary import logistic
from validation.statistics.continuous import linear
from validation.statistics.cox import cox
from validation.statistics.errors import (
    ConvergenceError,
    SeparationError,
    ShapeError,
    StatisticsError,
)


@dataclass(frozen=True)
class Specification:
    """Estimate under a set of choices. `reason` is set if nothing could be estimated.

    `same` lists further choices that lead to this same fit.
    """

    choices: dict[str, str]
    value: float
    lower: float
    upper: float
    p: float
    n: int
    events: int
    reason: str = ""
    same: tuple[dict[str, str], ...] = ()

    @property
    def ok(self) -> bool:
        """Whether there is an estimate."""
        return not self.reason


@dataclass(frozen=True)
class SpecificationCurve:
    """All specifications sorted by estimate, with those that lack an estimate last.

    `null` is the estimate of no effect: 1 for ratios, 0 for differences. `sign_stability` is the
    share of estimates on the same side of `null` as the median; `significant` is the share that
    also have p below `alpha`. `beside` holds the fits of the claim's own choices with each site
    left out, or with variables that the contract leaves out; they count in neither share.
    """

    specifications: tuple[Specification, ...]
    median: float
    sign_stability: float
    significant: float
    alpha: float
    failed: int
    null: float = 1.0
    beside: tuple[Specification, ...] = ()

    def table(self) -> list[dict[str, str | float | int]]:
        """Return one row of text per specification, to be written to a file."""
        return [
            {**s.choices, "estimate": s.value, "lower": s.lower, "upper": s.upper, "p": s.p,
             "n": s.n, "events": s.events, "reason": s.reason, "same fit": _further_choices(s)}
            for s in (*self.specifications, *self.beside)
        ]  # fmt: skip


def _further_choices(kept: Specification) -> str:
    """List a fit's further choices by what distinguishes them: "follow-up 60 months; …"."""
    return "; ".join(
        ", ".join(f"{name} {value}" for name, value in other.items() if value != kept.choices[name])
        for other in kept.same
    )


@dataclass(frozen=True)
class Chosen:
    """Data of a specification: rows kept, design matrix (rows, k) and names."""

    rows: BoolArray
    X: FloatArray
    names: list[str]
    limit: float | None
    layers: IntArray | None


@dataclass(frozen=True)
class Model:
    """Fitting method of a specification.

    `size` counts rows and events before a fit is attempted; `read` returns the outcome that the fit
    uses.
    """

    n: int
    null: float
    size: Callable[[Chosen], tuple[int, int]]
    read: Callable[[Chosen], tuple[npt.NDArray[np.generic], ...]]
    fit: Callable[[Chosen], tuple[float, float, float, float]]


def cox_model(
    time: npt.ArrayLike,
    event: npt.ArrayLike,
    *,
    events_per_term: float = 0.0,
    entry: npt.ArrayLike | None = None,
    cluster: npt.ArrayLike | None = None,
) -> Model:
    """Build the model for hazard ratios, with follow-up cut at `limit` and a baseline per stratum.

    As in the registered tests, Firth's penalty is used if there are fewer than `events_per_term`
    events per term, or if a covariate separates the events. With `entry`, each row is a record that
    begins at that time (time-dependent exposures); records that begin after the limit are left out.

    Parameters
    ----------
    time : (n,) follow-up, in any unit
    event : (n,) 1 if follow-up ends in the event
    entry : (n,) times from which a record is at risk
    cluster : (n,) person of each row; standard errors are robust within persons
    """
    t, e = survival_arrays(time, event)
    begin = np.full(len(t), -1.0) if entry is None else as_float(entry, "entry")

    def cut_follow_up(chosen: Chosen) -> tuple[BoolArray, FloatArray, BoolArray]:
        mine, flags = t[chosen.rows], e[chosen.rows]
        if chosen.limit is not None:
            mine, flags = np.minimum(mine, chosen.limit), flags & (mine <= chosen.limit)
        return np.asarray(begin[chosen.rows] < mine), mine, flags

    def size(chosen: Chosen) -> tuple[int, int]:
        begun, _, flags = cut_follow_up(chosen)
        return int(begun.sum()), int(flags[begun].sum())

    def fit(chosen: Chosen) -> tuple[float, float, float, float]:
        begun, mine, flags = cut_follow_up(chosen)
        few = flags[begun].sum() / chosen.X.shape[1] < events_per_term
        model = partial(
            cox,
            mine[begun],
            flags[begun],
            chosen.X[begun],
            chosen.names,
            strata=None if chosen.layers is None else chosen.layers[begun],
            entry=None if entry is None else begin[chosen.rows][begun],
            cluster=None if cluster is None else np.asarray(cluster)[chosen.rows][begun],
        )
        try:
            found = model(penalty="firth" if few else None)
        except SeparationError:
            found = model(penalty="firth")
        return _first(found.hr, found.lower, found.upper, found.p)

    return Model(len(t), 1.0, size, cut_follow_up, fit)


def logistic_model(y: npt.ArrayLike) -> Model:
    """Build the model for odds ratios of a 0/1 outcome."""
    flags = as_float(y, "outcome")

    def fit(chosen: Chosen) -> tuple[float, float, float, float]:
        try:
            found = logistic(flags[chosen.rows], chosen.X, chosen.names)
        except (SeparationError, ConvergenceError):
            found = logistic(flags[chosen.rows], chosen.X, chosen.names, penalty="firth")
        return _first(found.odds_ratio, found.lower, found.upper, found.p)

    def size(chosen: Chosen) -> tuple[int, int]:
        return int(chosen.rows.sum()), int(flags[chosen.rows].sum())

    return Model(len(flags), 1.0, size, lambda chosen: (flags[chosen.rows],), fit)


def linear_model(y: npt.ArrayLike) -> Model:
    """Build the model for differences in a continuous outcome, in its standard deviations."""
    values = as_float(y, "outcome")
    spread = float(values.std(ddof=1))

    def fit(chosen: Chosen) -> tuple[float, float, float, float]:
        found = linear(values[chosen.rows] / spread, chosen.X, chosen.names, robust=True)
        return _first(found.coef, found.lower, found.upper, found.p)

    def size(chosen: Chosen) -> tuple[int, int]:
        return int(chosen.rows.sum()), 0

    return Model(len(values), 0.0, size, lambda chosen: (values[chosen.rows],), fit)


def _first(
    value: FloatArray, lower: FloatArray, upper: FloatArray, p: FloatArray
) -> tuple[float, float, float, float]:
    return float(value[0]), float(lower[0]), float(upper[0]), float(p[0])


def fit_specification_curve(
    model: Model,
    exposures: Mapping[str, npt.ArrayLike],
    covariates: Mapping[str, tuple[Sequence[str], npt.ArrayLike] | None] | None = None,
    follow_up: Mapping[str, float | None] | None = None,
    exclusions: Mapping[str, npt.ArrayLike | None] | None = None,
    strata: Mapping[str, npt.ArrayLike | None] | None = None,
    *,
    alpha: float = 0.05,
) -> SpecificationCurve:
    """Fit the exposure's model under all combinations of choices.

    Parameters
    ----------
    exposures : maps the cut rule's name to the (n,) exposure it gives (NaN: not in the comparison),
        or to an (n, 1 + q) block whose further columns are in every model (an interaction's main
        effects)
    covariates : maps the set's name to (names, (n, q) array), or None for no covariates; rows with
        a missing value are left out of those specifications
    follow_up : maps a name to the time at which follow-up is cut (None: all of it)
    exclusions : maps a name to the (n,) mask of patients kept (None: all)
    strata : maps a name to the (n,) codes of the strata (-1: unknown, left out), or None for no
        strata

    Choices that lead to the same fit are one specification, which names all of them. If a
    specification cannot be estimated (for example because a group has no events), it is kept with
    the reason.
    """
    if not exposures:
        raise ShapeError("a specification curve needs at least one exposure")
    fits: dict[tuple[object, ...], Specification] = {}
    failed = []
    layered = strata or {"none": None}
    for (cut, x), (adjust, c), (until, limit), (kept, mask), (layer, codes) in product(
        exposures.items(),
        (covariates or {"none": None}).items(),
        (follow_up or {"all": None}).items(),
        (exclusions or {"none": None}).items(),
        layered.items(),
    ):
        choices = {"cut-point": cut, "covariates": adjust, "follow-up": until, "exclusions": kept}
        if len(layered) > 1:
            choices["strata"] = layer
        block = as_float(x, cut).reshape(model.n, -1)
        chosen = _chosen(block, c, limit, mask, codes)
        fit = _identity(model, chosen)
        if fit in fits:
            fits[fit] = replace(fits[fit], same=(*fits[fit].same, choices))
            continue
        found = _specification(model, chosen, choices)
        if found.ok:
            fits[fit] = found
        else:
            failed.append(found)
    estimates = sorted(fits.values(), key=lambda s: s.value)
    values = np.array([s.value for s in estimates])
    signs = np.sign(values - model.null)
    middle = _median(values, model.null)
    same = signs == np.sign(middle - model.null)
    small = np.array([s.p < alpha for s in estimates], dtype=bool)
    return SpecificationCurve(
        specifications=(*estimates, *failed),
        median=middle,
        sign_stability=float(same.mean()) if estimates else float("nan"),
        significant=float((same & small).mean()) if estimates else float("nan"),
        alpha=alpha,
        failed=len(failed),
        null=model.null,
    )


def leave_one_out(
    model: Model,
    exposure: npt.ArrayLike,
    covariates: Mapping[str, tuple[Sequence[str], npt.ArrayLike] | None],
    sites: npt.ArrayLike,
    codes: npt.ArrayLike | None = None,
    *,
    choices: Mapping[str, str],
) -> tuple[Specification, ...]:
    """Refit an exposure's model with each site left out in turn, under each set of covariates.

    Parameters
    ----------
    sites : (n,) site of each patient, or None if unknown (these patients are always kept)
    codes : (n,) codes of the strata (-1: unknown), or None
    """
    block = as_float(exposure, "exposure").reshape(model.n, -1)
    label = np.array(["" if site is None else str(site) for site in np.asarray(sites, object)])
    return tuple(
        _specification(
            model,
            _chosen(block, c, None, label != site, codes),
            {**choices, "covariates": adjust, "exclusions": f"without site {site}"},
        )
        for adjust, c in covariates.items()
        for site in sorted(set(label) - {""})
    )


def _median(values: FloatArray, null: float) -> float:
    """Compute the median of the estimates, on the log scale for ratios."""
    if not len(values):
        return float("nan")
    return float(np.exp(np.median(np.log(values))) if null == 1.0 else np.median(values))


def _chosen(
    block: FloatArray,
    c: tuple[Sequence[str], npt.ArrayLike] | None,
    limit: float | None,
    mask: npt.ArrayLike | None,
    codes: npt.ArrayLike | None,
) -> Chosen:
    rows: BoolArray = np.asarray(np.isfinite(block).all(axis=1))
    names = ["exposure", *(f"main effect {at}" for at in range(1, block.shape[1]))]
    if mask is not None:
        rows = rows & np.asarray(mask, dtype=bool)
    if c is not None:
        names += list(c[0])
        extra = as_float(c[1], "covariates").reshape(len(block), -1)
        rows = rows & np.isfinite(extra).all(axis=1)
        block = np.column_stack((block, extra))
    layers = None
    if codes is not None:
        every = np.asarray(codes, dtype=np.int64)
        rows = rows & (every >= 0)
        layers = every[rows]
    return Chosen(rows, block[rows], names, limit, layers)


def _identity(model: Model, chosen: Chosen) -> tuple[object, ...]:
    """Build a key of a fit that is equal for choices that give the same fit."""
    layers = chosen.layers
    if layers is not None and len(set(layers.tolist())) < 2:
        layers = None  # a single stratum is the same as no stratification
    read = (chosen.rows, chosen.X, *model.read(chosen))
    return (
        *(np.ascontiguousarray(part).tobytes() for part in read),
        chosen.X.shape,
        None if layers is None else layers.tobytes(),
    )


def _specification(model: Model, chosen: Chosen, choices: dict[str, str]) -> Specification:
    n, events = model.size(chosen)
    try:
        value, lower, upper, p = model.fit(chosen)
    except StatisticsError as refusal:
        nan = float("nan")
        return Specification(choices, nan, nan, nan, nan, n, events, f"{refusal.code}: {refusal}")
    return Specification(choices, value, lower, upper, p, n, events)
