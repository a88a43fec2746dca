"""The prediction model behind a calibration, and its predictions for other patients.

A model developed in one cohort is applied to another with its original coefficients,
scales and baseline hazard; nothing is refitted. Sources: TRIPOD (Collins et al. 2015),
items 10d and 15a (the full model is reported); Harrell, Lee and Mark 1996 (Statistics in
Medicine) for the bootstrap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field

from sage.core.errors import InputError
from sage.core.models import Strict
from validation.inputs.population import Cut

if TYPE_CHECKING:
    from validation.statistics.base import FloatArray


FOLLOWED = 10
"""Minimum number of patients followed beyond a horizon for comparing risks at that horizon."""


class Term(Strict):
    """A term in the linear predictor: (value - mean) / sd, or 1 at a level; times `coefficient`.

    `kind` is "exposure" for the claim's own coding, "part" for a main effect in an
    interaction.
    """

    name: str
    kind: Literal["exposure", "part", "number", "level"]
    key: str = ""
    level: str | None = None
    mean: float = 0.0
    sd: float = 1.0
    coefficient: float


class PredictionModel(Strict):
    """A Cox model that predicts risk at a horizon: 1 - exp(-baseline * exp(sum of terms)).

    `levels` are the levels of each categorical variable in the development patients,
    including the reference and the rare levels merged into it. `cuts` are the exposure's
    cut-points in those patients. `baseline` is the cumulative hazard at `horizon` (months)
    for a patient whose terms are all zero; `earlier` holds (months, that hazard) at earlier
    times, for cohorts with shorter follow-up. `shrinkage` is the optimism-corrected
    calibration slope found when the model was developed; predictions below are made without
    it.
    """

    endpoint: str
    cohort: str
    cuts: tuple[Cut, ...] = ()
    levels: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    horizon: float
    baseline: float
    earlier: tuple[tuple[float, float], ...] = ()
    terms: tuple[Term, ...]
    n: int
    events: int
    shrinkage: float | None = None

    def linear(self, X: FloatArray) -> FloatArray:
        """Compute the (n,) linear predictor of a design matrix whose columns are the terms.

        Terms are summed row by row: a matrix product may give identical patients risks that differ
        in the last bit, which would break their tie in a concordance.
        """
        coef = np.asarray([term.coefficient for term in self.terms])
        return np.asarray((X * coef).sum(axis=1), dtype=float)

    def survival(self, X: FloatArray) -> FloatArray:
        """Predict survival (n,) at the horizon."""
        return np.asarray(np.exp(-self.baseline * np.exp(self.linear(X))), dtype=float)

    def at_horizon_of(self, time: FloatArray) -> PredictionModel:
        """Return the model at its longest horizon with at least `FOLLOWED` patients beyond it.

        `time` is in months. Raises `InputError` if too few patients are followed beyond any
        horizon.
        """
        for months, hazard in ((self.horizon, self.baseline), *reversed(self.earlier)):
            if np.count_nonzero(time > months) >= FOLLOWED:
                return self.model_copy(update={"horizon": months, "baseline": hazard})
        shortest = min((months for months, _ in self.earlier), default=self.horizon)
        raise InputError(
            f"fewer than {FOLLOWED} of {len(time)} patients are followed beyond {shortest:g} "
            "months, so predicted risks cannot be assessed"
        )
