"""The prediction model behind a calibration: what it is, and what it predicts for other patients.

A model developed in one cohort is applied to another with its own coefficients, scales and baseline
hazard; nothing is fitted again there. Sources: TRIPOD (Collins et al. 2015), items 10d and 15a (the
full model is reported); Harrell, Lee and Mark 1996 (Statistics in Medicine) for the bootstrap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from sage.core.errors import InputError
from sage.core.models import Strict
from validation.inputs.population import Cut

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from validation.inputs.study import Column, Study
    from validation.statistics.cox import CoxFit

    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]


FOLLOWED = 10
"""Patients who must be followed beyond a horizon for its risks to be compared."""


class Term(Strict):
    """One term of the linear predictor: (value - mean) / sd, or 1 at a level; times `coefficient`.

    `kind` is "exposure" for the claim's own coding, "part" for a main effect beside an interaction.
    """

    name: str
    kind: Literal["exposure", "part", "number", "level"]
    key: str = ""
    level: str | None = None
    mean: float = 0.0
    sd: float = 1.0
    coefficient: float


class PredictionModel(Strict):
    """A Cox model that predicts risk at one horizon: 1 - exp(-baseline * exp(sum of terms)).

    `levels` are those of each categorical variable among the patients it was developed in, the
    reference and the rare ones (counted with it) included. `cuts` are the exposure's there.
    `baseline` is the cumulative hazard at `horizon` (months) of a patient whose terms are all zero;
    `earlier` holds (months, that hazard) before it, for cohorts that are followed for less.
    `shrinkage` is the optimism-corrected calibration slope found when the model was developed;
    predictions below are made without it.
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

    def linear(self, X: Floats) -> Floats:
        """(n,) linear predictor of a design matrix whose columns are the terms.

        Summed row by row: a matrix product may give equal patients risks that differ in the last
        bit, which untie them in a concordance.
        """
        import numpy as np

        coef = np.asarray([one.coefficient for one in self.terms])
        return np.asarray((X * coef).sum(axis=1), dtype=float)

    def survival(self, X: Floats) -> Floats:
        """(n,) predicted survival at the horizon."""
        import numpy as np

        return np.asarray(np.exp(-self.baseline * np.exp(self.linear(X))), dtype=float)

    def within(self, time: Floats) -> PredictionModel:
        """The model at its longest horizon beyond which `FOLLOWED` of `time` (months) reach.

        Raises
        ------
        InputError
            If too few reach any: a cohort followed for so little judges no risk.
        """
        import numpy as np

        for months, hazard in ((self.horizon, self.baseline), *reversed(self.earlier)):
            if np.count_nonzero(time > months) >= FOLLOWED:
                return self.model_copy(update={"horizon": months, "baseline": hazard})
        shortest = min((months for months, _ in self.earlier), default=self.horizon)
        raise InputError(
            f"fewer than {FOLLOWED} of {len(time)} patients are followed beyond {shortest:g} "
            "months: no predicted risk can be judged"
        )


def terms_of(
    fit: CoxFit, exposed: str, parts: list[str], columns: list[Column]
) -> tuple[Term, ...]:
    """The fitted coefficients with how each column was made; the exposure comes first."""
    kinds = [(exposed, "exposure"), *((name, "part") for name in parts)]
    found = [
        Term.model_validate({"name": name, "kind": kind, "coefficient": float(value)})
        for (name, kind), value in zip(kinds, fit.coef, strict=False)
    ]
    for column, value in zip(columns, fit.coef[len(kinds) :], strict=True):
        found.append(
            Term(
                name=column.name,
                kind="number" if column.level is None else "level",
                key=column.key,
                level=column.level,
                mean=column.mean,
                sd=column.sd,
                coefficient=float(value),
            )
        )
    return tuple(found)


def unknown_levels(study: Study, model: PredictionModel) -> Mask:
    """(rows,) patients with a level that nobody had where the model was developed."""
    import numpy as np

    found = np.zeros(len(study.rows), dtype=bool)
    for key, levels in model.levels.items():
        if key in study.rows.columns:
            column = study.rows[key]
            found |= (column.notna() & ~column.astype(str).isin(levels)).to_numpy()
    return found


def recut(study: Study, model: PredictionModel) -> bool:
    """True when these patients' exposure is cut or standardized otherwise than the model's."""
    grouped = study.exposed.grouped

    def used(cuts: tuple[Cut, ...]) -> list[tuple[float | None, ...]]:
        return [(one.lower, one.upper) if grouped else (one.mean, one.sd) for one in cuts]

    return bool(model.cuts) and used(study.cuts) != used(model.cuts)


def design_for(study: Study, model: PredictionModel) -> tuple[Mask, Floats]:
    """Who has every term of a model, and (kept, terms) their values on the model's own scales.

    Patients at a level that the model does not know are left out.

    Raises
    ------
    InputError
        If these patients lack a variable of the model, or code it in other levels.
    """
    import numpy as np
    import pandas as pd

    keys = tuple(dict.fromkeys(one.key for one in model.terms if one.key))
    lacking = [key for key in keys if key not in study.rows.columns]
    if lacking:
        raise InputError(
            f"the model developed in {model.cohort} needs {', '.join(lacking)}, which this cohort "
            "does not have: it cannot be applied here"
        )
    keep = study.complete(model.endpoint, keys)
    known = keep & ~unknown_levels(study, model)
    if keep.any() and not known.any():
        named = "; ".join(f"{key}: {', '.join(one)}" for key, one in model.levels.items())
        raise InputError(
            f"nobody here is at levels that the model knows ({named}): the cohorts code them "
            "differently"
        )
    keep = known
    rows = study.rows[keep]
    columns: list[Floats] = []
    parts = iter(study.adjusters())
    for term in model.terms:
        if term.kind == "exposure":
            columns.append(study.exposed.x[keep])
        elif term.kind == "part":
            columns.append(next(parts)[1][keep])
        elif term.kind == "number":
            raw = pd.to_numeric(rows[term.key], errors="coerce").to_numpy(dtype=float)
            if np.isnan(raw).any():
                raise InputError(
                    f"{term.key} is a number where the model was developed ({model.cohort}), and "
                    "text here: give the cohort's `values` the same coding"
                )
            columns.append((raw - term.mean) / term.sd)
        else:
            same = (rows[term.key].astype(str) == term.level).to_numpy()
            columns.append(same.astype(float))
    return keep, np.column_stack(columns)
