"""Data dictionary entries: a cohort's variables, endpoints and joins, without rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from validation.cohort.endpoints import coding_text, followed
from validation.cohort.model import ContinuousSpec, TimedSpec
from validation.cohort.tables import text_of
from validation.cohort.timing import known_at, value_before
from validation.core.dictionary import Endpoint, JoinReport, Variable, pool_levels

if TYPE_CHECKING:
    import pandas as pd

    from validation.cohort.columns import CohortColumns


def variable_of(cohort: CohortColumns, key: str) -> Variable:
    """Build the dictionary entry of a variable."""
    values = cohort.column(key)
    known = int(values.notna().sum())
    common: dict[str, Any] = {
        "key": key,
        "n": known,
        "missing": round(1 - known / len(values), 4),
        "known_at": known_at(cohort, key),
    }
    if key in cohort.variables:
        spec = cohort.variables[key]
        levels: dict[str, int] = {}
        if spec.kind != "continuous":
            levels = _levels(values.dropna(), cohort.spec.min_level)
        return Variable(
            label=spec.label or spec.column,
            modality=spec.modality,
            kind=spec.kind,
            unit=spec.unit,
            source=f"{cohort.tables[spec.table].path.name}:{spec.column}",
            levels=levels,
            synonyms=spec.synonyms,
            before=value_before(cohort, key),
            note=spec.note,
            **common,
        )
    if key in cohort.derived:
        ratio = cohort.derived[key]
        return Variable(
            label=ratio.label or key,
            modality="derived",
            kind="continuous",
            unit=ratio.unit,
            source=f"{ratio.formula} of {', '.join(ratio.of)}",
            synonyms=ratio.synonyms,
            note=ratio.note,
            **common,
        )
    if key == cohort.site:
        return Variable(
            label="Tissue source site",
            modality="clinical",
            kind="categorical",
            source="barcode",
            levels=_levels(values, cohort.spec.min_level),
            **common,
        )
    signature = cohort.signatures[key]
    assert cohort.expression is not None
    present = [gene for gene in signature.genes if gene in cohort.expression]
    return Variable(
        label=signature.label,
        modality=signature.modality,
        kind="continuous",
        unit="mean z-score" if signature.method == "mean_z" else "enrichment score",
        source=f"{len(present)} of {len(signature.genes)} genes; {signature.source}",
        synonyms=signature.synonyms,
        note=signature.note,
        **common,
    )


def endpoint_of(cohort: CohortColumns, name: str) -> Endpoint:
    """Build the dictionary entry of an endpoint: counts, coding, median follow-up."""
    spec = cohort.spec.endpoints[name]
    outcome = cohort.outcome(name)
    in_time = isinstance(spec, TimedSpec)
    events: int | None
    if in_time:
        events = int((outcome["event"] == 1).sum())
    elif isinstance(spec, ContinuousSpec):
        events = None
    else:
        events = int(outcome["value"].sum())
    return Endpoint(
        key=name,
        label=spec.label or name,
        kind=spec.kind,
        unit="months" if in_time else getattr(spec, "unit", None),
        n=len(outcome),
        events=events,
        median_follow_up=_reverse_median(outcome) if in_time else None,
        coding=coding_text(spec),
        contained_in=getattr(spec, "contained_in", ()),
        entry="entry" in outcome,
        time_zero=getattr(spec, "time_zero", None) or "",
        note=spec.note,
    )


def joins_of(cohort: CohortColumns) -> tuple[JoinReport, ...]:
    """List the steps from the files to the patients, with losses and their reasons."""
    reports: list[JoinReport] = []
    base = cohort.spec.patient.table
    everybody = set(cohort.patients)
    for name, table in cohort.tables.items():
        reports.extend(table.reports)
        found = set(table.patient)
        if len(table.patient) != len(found):
            reports.append(
                JoinReport(
                    step=f"{name}: rows to patients",
                    before=len(table.patient),
                    after=len(found),
                    reason=f"several rows per patient ({table.spec.rows_per_patient})",
                )
            )
        if name != base:
            reports.append(_join(name, base, everybody, found))
    if cohort.expression is not None:
        reports.extend(cohort.expression.reports)
        reports.append(_join("expression", base, everybody, set(cohort.expression.patients)))
    return tuple(reports)


def _levels(values: pd.Series, minimum: int) -> dict[str, int]:
    """Count patients per level; pool levels under `minimum`, and drop a pool still under it."""
    tally = values.map(text_of).value_counts()
    counts = sorted((str(level), int(count)) for level, count in tally.items())
    return pool_levels(dict(counts), minimum)


def _reverse_median(outcome: pd.DataFrame) -> float | None:
    """Estimate median follow-up by the reverse Kaplan-Meier method (Schemper and Smith 1996)."""
    if outcome.empty:
        return None
    time = followed(outcome).to_numpy(dtype=float)
    censored = (outcome["event"].to_numpy(dtype=float) == 0).astype(float)
    survival = 1.0
    for moment in np.unique(time):
        at_risk = float((time >= moment).sum())
        survival *= 1 - float(censored[time == moment].sum()) / at_risk
        if survival <= 0.5:
            return round(float(moment), 1)
    return None


def _join(name: str, base: str, everybody: set[str], found: set[str]) -> JoinReport:
    strangers = len(found - everybody)
    return JoinReport(
        step=f"{base} with {name}",
        before=len(everybody),
        after=len(everybody & found),
        reason=f"{len(everybody - found)} patients without a row in {name}"
        + (f"; {strangers} patients of {name} are not in {base}" if strangers else ""),
    )
