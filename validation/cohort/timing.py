"""Times at which a cohort's variables became known, in months from the start of follow-up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sage.core.errors import InputError
from validation.cohort.collapse import collapse
from validation.cohort.endpoints import TO_MONTHS
from validation.cohort.model import SOURCE_SITE, Known, KnownSpec, TimeUnit
from validation.cohort.tables import numeric, text_of
from validation.core.hypothesis import KnownAt

if TYPE_CHECKING:
    import pandas as pd

    from validation.cohort.data import CohortData


def declared_timing(cohort: CohortData, key: str) -> Known:
    """Return a variable's declared timing: its own, or else the table's or the cohort's.

    The tissue source site in a barcode is known at baseline.
    """
    said: tuple[Known | None, ...]
    if key in cohort.variables:
        spec = cohort.variables[key]
        said = (spec.known_at, cohort.tables[spec.table].spec.known_at)
    elif key == SOURCE_SITE:
        return "baseline"
    else:
        said = (None if cohort.spec.expression is None else cohort.spec.expression.known_at,)
    return next((word for word in said if word is not None), cohort.spec.known_at)


def known_at(cohort: CohortData, key: str) -> KnownAt:
    """Return when a variable became known; a derived variable has its last input's timing."""
    if key in cohort.derived:
        parts = [known_at(cohort, name) for name in cohort.derived[key].of]
        for state in ("unknown", "column"):
            if state in parts:
                return state
        return max((part for part in parts if isinstance(part, float)), default="baseline")
    said = declared_timing(cohort, key)
    if isinstance(said, KnownSpec):
        if said.time is None:
            return "column"
        return said.time * TO_MONTHS[_unit(cohort, key, said.unit)]
    if isinstance(said, str):
        return said
    return said * TO_MONTHS[_unit(cohort, key, None)] if said > 0 else "baseline"


def value_before(cohort: CohortData, key: str) -> str | float | None:
    """Return a variable's value before it becomes known; None if not declared."""
    said = None if key in cohort.derived else declared_timing(cohort, key)
    if not isinstance(said, KnownSpec) or said.before is None:
        return None
    spec = cohort.variables[key]
    text = text_of(said.before)
    value = text_of(spec.values.get(text, said.before))
    if spec.kind in ("continuous", "ordinal"):
        try:
            return float(value)
        except ValueError:
            raise InputError(
                f"cohort.toml: variables.{key.split(':', 1)[1]}: `before` is {text!r}, but the "
                f"variable is {spec.kind}; give a number"
            ) from None
    return value


def months_known(cohort: CohortData, key: str) -> pd.Series:
    """Return the months until each patient's value became known, by identifier; NaN if never."""
    import pandas as pd

    if key in cohort.derived:
        parts = [months_known(cohort, name) for name in cohort.derived[key].of]
        return pd.concat(parts, axis=1).max(axis=1, skipna=False)
    said = declared_timing(cohort, key)
    if not isinstance(said, KnownSpec) or said.column is None:
        when = known_at(cohort, key)
        if when == "unknown":
            raise InputError(
                f'cohort "{cohort.id}" does not specify when {key} became known; declare `known_at`'
            )
        return pd.Series(when if isinstance(when, float) else 0.0, index=cohort.patients)
    table = cohort.tables[cohort.variables[key].table]
    where = f"known_at of {key} ({table.path.name})"
    raw = table.column(said.column, f"variables.{key.split(':', 1)[1]}.known_at")
    months = numeric(raw, table.missing, where) * TO_MONTHS[_unit(cohort, key, said.unit)]
    rule = cohort.variables[key].collapse or table.spec.rows_per_patient
    return collapse(months, table.patient, rule, where).reindex(cohort.patients)


def _unit(cohort: CohortData, key: str, given: TimeUnit | None) -> TimeUnit:
    unit = given or cohort.spec.follow_up_unit
    if unit is None:
        raise InputError(
            f"cohort.toml: known_at for {key}: the outcomes use different time units (or there "
            'are none); write known_at = { time = 6, unit = "months" }'
        )
    return unit
