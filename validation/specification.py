"""The specification curve: one claim under every defensible choice, and how stable its sign is.

Simonsohn, Simmons and Nelson 2020 (Nature Human Behaviour). A specification fixes a cut-point, the
covariates, the follow-up and the exclusions; none of these may look at the outcome.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt

from validation.statistics.base import BoolArray, FloatArray, as_float, survival_arrays
from validation.statistics.cox import cox
from validation.statistics.errors import ShapeError, StatisticsError


@dataclass(frozen=True)
class Specification:
    """One set of choices and what came out. `reason` is set where nothing could be estimated."""

    choices: dict[str, str]
    hr: float
    lower: float
    upper: float
    p: float
    n: int
    events: int
    reason: str = ""

    @property
    def ok(self) -> bool:
        """True when there is an estimate."""
        return not self.reason


@dataclass(frozen=True)
class SpecificationCurve:
    """All specifications, sorted by hazard ratio, those without an estimate last.

    `sign_stability` is the share of estimates on the side of the median; `significant` the share
    with p below `alpha` on that side.
    """

    specifications: tuple[Specification, ...]
    median_hr: float
    sign_stability: float
    significant: float
    alpha: float
    failed: int

    def table(self) -> list[dict[str, str | float | int]]:
        """One row per specification, for a file."""
        return [
            {**s.choices, "hr": s.hr, "lower": s.lower, "upper": s.upper, "p": s.p, "n": s.n,
             "events": s.events, "reason": s.reason}
            for s in self.specifications
        ]  # fmt: skip


def specification_curve(
    time: npt.ArrayLike,
    event: npt.ArrayLike,
    exposures: Mapping[str, npt.ArrayLike],
    covariates: Mapping[str, tuple[Sequence[str], npt.ArrayLike] | None] | None = None,
    follow_up: Mapping[str, float | None] | None = None,
    exclusions: Mapping[str, npt.ArrayLike | None] | None = None,
    strata: Mapping[str, npt.ArrayLike | None] | None = None,
    *,
    alpha: float = 0.05,
) -> SpecificationCurve:
    """Fit the exposure's Cox model under all combinations of choices.

    Parameters
    ----------
    exposures : name of the cut rule to the (n,) exposure it gives (NaN: not in the comparison)
    covariates : name of the set to (names, (n, q) array), or None for no covariates; rows with a
        missing value are left out of those specifications
    follow_up : name to the time at which follow-up is cut (None: all of it)
    exclusions : name to the (n,) mask of patients kept (None: all)
    strata : name to the (n,) codes of the strata (-1: unknown, left out), or None for no strata

    Every refusal of a single specification (no events in a group, say) is kept with its reason.
    """
    t, e = survival_arrays(time, event)
    if not exposures:
        raise ShapeError("a specification curve needs at least one exposure")
    found = []
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
        found.append(_specification(t, e, as_float(x, cut), c, limit, mask, codes, choices))
    estimates = sorted((s for s in found if s.ok), key=lambda s: s.hr)
    failed = [s for s in found if not s.ok]
    log_hr = np.log([s.hr for s in estimates])
    side = float(np.sign(np.median(log_hr))) if estimates else 0.0
    same = np.sign(log_hr) == side
    small = np.array([s.p < alpha for s in estimates], dtype=bool)
    return SpecificationCurve(
        specifications=(*estimates, *failed),
        median_hr=float(np.exp(np.median(log_hr))) if estimates else float("nan"),
        sign_stability=float(same.mean()) if estimates else float("nan"),
        significant=float((same & small).mean()) if estimates else float("nan"),
        alpha=alpha,
        failed=len(failed),
    )


def _specification(
    t: FloatArray,
    e: BoolArray,
    x: FloatArray,
    c: tuple[Sequence[str], npt.ArrayLike] | None,
    limit: float | None,
    mask: npt.ArrayLike | None,
    codes: npt.ArrayLike | None,
    choices: dict[str, str],
) -> Specification:
    rows: BoolArray = np.isfinite(x)
    names: list[str] = ["exposure"]
    columns = x[:, None]
    if mask is not None:
        rows = rows & np.asarray(mask, dtype=bool)
    if c is not None:
        names += list(c[0])
        extra = as_float(c[1], "covariates").reshape(len(t), -1)
        rows = rows & np.isfinite(extra).all(axis=1)
        columns = np.column_stack((columns, extra))
    layers = None
    if codes is not None:
        every = np.asarray(codes, dtype=np.int64)
        rows = rows & (every >= 0)
        layers = every[rows]
    time, event = t[rows], e[rows]
    if limit is not None:
        time, event = np.minimum(time, limit), event & (time <= limit)
    nan = float("nan")
    try:
        fit = cox(time, event, columns[rows], names, strata=layers)
    except StatisticsError as refusal:
        return Specification(
            choices, nan, nan, nan, nan, len(time), int(event.sum()), f"{refusal.code}: {refusal}"
        )
    return Specification(
        choices,
        float(fit.hr[0]),
        float(fit.lower[0]),
        float(fit.upper[0]),
        float(fit.p[0]),
        fit.n,
        fit.events,
    )
