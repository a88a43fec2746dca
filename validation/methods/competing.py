"""Tests for competing risks: cause-specific hazard and cumulative incidence.

The event of interest is coded 1, competing events 2, and censoring 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sage.core.errors import InputError
from validation.contracts.contract import TestPlan
from validation.inputs.study import Study, refuse_entry
from validation.methods.imputed import imputed, imputes
from validation.methods.shared import (
    HORIZONS,
    clusters_of,
    fit_cox,
    matrix,
    outcome_of,
    wald_outcome,
)
from validation.results.results import Book, TestOutcome
from validation.statistics.competing import aalen_johansen, gray_test
from validation.statistics.errors import StatisticsError

if TYPE_CHECKING:
    from validation.statistics.competing import CumulativeIncidence

NONE_COMPETE = "nobody had a competing event"


def cause_specific(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    """Fit a Cox model for the cause-specific hazard, censoring patients at a competing event."""
    if imputes(study, plan):
        return imputed(study, plan, book, tables)
    keep, X, names, notes = matrix(study, plan)
    time, codes, entry = study.status(plan.endpoint, keep)
    cluster = clusters_of(study, keep, notes)
    flags = (codes == 1).astype(float)
    fit = fit_cox(time, flags, X, names, study, notes, entry=entry, cluster=cluster)
    outcome = wald_outcome(plan, fit, names, "hazard ratio", notes, book, tables)
    book.add(f"{plan.id}.n", len(codes), "patients")
    book.add(f"{plan.id}.events", int((codes == 1).sum()), "events")
    book.add(f"{plan.id}.competing", int((codes == 2).sum()), "events")
    return outcome


def fine_gray(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    """Fit the Fine-Gray model for the subdistribution hazard."""
    from validation.statistics.fine_gray import fine_gray

    keep, X, names, notes = matrix(study, plan)
    time, codes, entry = study.status(plan.endpoint, keep)
    fit = fine_gray(time, codes, X, names, entry=entry)
    if entry is not None:
        notes.append("weights by the distributions of censoring and of entry (Geskus 2011)")
    if fit.competing == 0:
        notes.append(
            f"{NONE_COMPETE}: the subdistribution hazard is the hazard, and this is Cox's model "
            "with Breslow's ties and a robust variance"
        )
    limit = study.contract.rules.events_per_covariate
    if fit.events / X.shape[1] < limit:
        notes.append(
            f"{fit.events} events for {X.shape[1]} terms, under {limit:g} for each, and no penalty "
            "in this model: read the interval with care"
        )
    return wald_outcome(plan, fit, names, "subdistribution hazard ratio", notes, book, tables)


def gray(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    """Run Gray's test for equal cumulative incidence, for the event and its competing events."""
    if not study.exposed.grouped:
        raise InputError("Gray's test compares groups; this exposure is a slope or an interaction")
    keep = study.complete(plan.endpoint)
    time, codes, entry = study.status(plan.endpoint, keep)
    refuse_entry(entry, plan.endpoint)
    group = study.exposed.x[keep]
    found = gray_test(time, codes, group)
    book.add(f"{plan.id}.statistic", found.statistic, "chi-squared, 1 df")
    book.add(f"{plan.id}.p", found.p, "p-value")
    notes = []
    if not (codes == 2).any():
        notes.append(f"{NONE_COMPETE}: this is close to the log-rank test")
    else:
        try:
            other = gray_test(time, codes, group, cause=2)
            book.add(f"{plan.id}.competing_p", other.p, "p-value")
        except StatisticsError as error:
            notes.append(f"competing event: {error}")
    return outcome_of(
        plan,
        len(codes),
        codes == 1,
        p=found.p,
        statistic=found.statistic,
        df=found.df,
        notes=notes,
    )


def sides_of(study: Study, keep: Any) -> list[tuple[str, str, Any]]:
    """Return role, name and patients for each group; all patients if the exposure has no groups."""
    if not study.exposed.grouped:
        return [("all", "all patients", keep)]
    return [
        ("exposed", study.contract.exposed, keep & (study.exposed.x == 1.0)),
        ("reference", study.contract.reference, keep & (study.exposed.x == 0.0)),
    ]


def incidence(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    """Compute Aalen-Johansen incidence of the event and of the competing event, by group."""
    keep = study.complete(plan.endpoint)
    rows = []
    for name, label, mine in sides_of(study, keep):
        time, codes, entry = study.status(plan.endpoint, mine)
        event, other = (
            aalen_johansen(time, codes, cause, entry, need_events=False) for cause in (1, 2)
        )
        key = f"{plan.id}.{name}"
        book.add(f"{key}.events", event.n_events, "events")
        book.add(f"{key}.competing", other.n_events, "events")
        row = {"group": label, "n": str(event.n), "events": str(event.n_events)}
        row["competing"] = str(other.n_events)
        for months in HORIZONS:
            if months > float(time.max()):
                continue
            for curve, part, column in (
                (event, "at", "event"),
                (other, "competing_at", "other event"),
            ):
                value, text = _incidence_at(curve, months)
                book.add(f"{key}.{part}_{months}", value, "share", text)
                row[f"{column} by {months} months"] = text
        rows.append(row)
    tables[plan.id] = rows
    codes = study.status(plan.endpoint, keep)[1]
    return outcome_of(plan, len(codes), codes == 1)


def _incidence_at(curve: CumulativeIncidence, months: float) -> tuple[float, str]:
    """Return incidence by a time, and its printed form with the interval."""
    at = int(curve.index_at(months))
    if at < 0 or curve.incidence[at] == 0.0:
        return 0.0, "0%"
    value, low, high = (float(values[at]) for values in (curve.incidence, curve.lower, curve.upper))
    return value, f"{100 * value:.0f}% ({100 * low:.0f} to {100 * high:.0f}%)"
