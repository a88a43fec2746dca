"""Terms of a prediction model from a fit, and its design matrix for other patients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from sage.core.errors import InputError
from validation.inputs.population import Cut
from validation.inputs.prediction import PredictionModel, Term
from validation.inputs.study import Column, Study

if TYPE_CHECKING:
    from validation.statistics.base import BoolArray, FloatArray
    from validation.statistics.cox import CoxFit


def terms_of(
    fit: CoxFit, exposed: str, parts: list[str], columns: list[Column]
) -> tuple[Term, ...]:
    """Return the fitted terms with the coding of each column; the exposure comes first.

    Parameters
    ----------
    columns : covariate columns, with the level or unit of each
    """
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


def unknown_levels(study: Study, model: PredictionModel) -> BoolArray:
    """Mask (rows,) patients with a level that was absent from the model's development cohort."""
    found = np.zeros(len(study.rows), dtype=bool)
    for key, levels in model.levels.items():
        if key in study.rows.columns:
            column = study.rows[key]
            found |= (column.notna() & ~column.astype(str).isin(levels)).to_numpy()
    return found


def recut(study: Study, model: PredictionModel) -> bool:
    """Check whether the exposure is cut or standardized differently here than in the model."""
    grouped = study.exposed.grouped

    def cut_values(cuts: tuple[Cut, ...]) -> list[tuple[float | None, ...]]:
        return [(cut.lower, cut.upper) if grouped else (cut.mean, cut.sd) for cut in cuts]

    return bool(model.cuts) and cut_values(study.cuts) != cut_values(model.cuts)


def design_for(study: Study, model: PredictionModel) -> tuple[BoolArray, FloatArray]:
    """Build the model's design matrix for patients with every term known.

    Returns the mask of the patients kept and their (kept, terms) scaled values. Patients with
    a level unknown to the model are left out.

    Raises `InputError` if these patients lack a variable in the model, or code it in other
    levels.
    """
    keys = tuple(dict.fromkeys(term.key for term in model.terms if term.key))
    lacking = [key for key in keys if key not in study.rows.columns]
    if lacking:
        raise InputError(
            f"the model developed in {model.cohort} requires {', '.join(lacking)}, which this "
            "cohort does not have, so it cannot be applied here"
        )
    keep = study.complete(model.endpoint, keys)
    known = keep & ~unknown_levels(study, model)
    if keep.any() and not known.any():
        named = "; ".join(f"{key}: {', '.join(level)}" for key, level in model.levels.items())
        raise InputError(
            f"no patient has a level known to the model ({named}); the cohorts use different coding"
        )
    keep = known
    rows = study.rows[keep]
    columns: list[FloatArray] = []
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
                    f"{term.key} is a number in the cohort where the model was developed "
                    f"({model.cohort}), but text here; use the same coding in the "
                    "cohort's `values`"
                )
            columns.append((raw - term.mean) / term.sd)
        else:
            same = (rows[term.key].astype(str) == term.level).to_numpy()
            columns.append(same.astype(float))
    return keep, np.column_stack(columns)
