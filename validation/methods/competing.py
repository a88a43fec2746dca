"""Competing risks: hazards of the cause, incidence, and the tests of each.

The event of interest is coded 1, whatever competes with it 2, censoring 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from validation.contract import TestPlan
from validation.errors import InputError
from validation.methods.shared import HORIZONS, fit_cox, matrix, outcome_of, row_of
from validation.results import Book, Effect, TestOutcome
from validation.study import Study

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from validation.statistics.competing import CumulativeIncidence

    Floats = NDArray[np.float64]
    Codes = NDArray[np.int64]

NONE_COMPETE = "nobody had a competing event"


def status_of(study: Study, endpoint: str, keep: Any) -> tuple[Floats, Codes]:
    """Times and codes (0, 1, 2) of the kept patients.

    Raises
    ------
    InputError
        If the endpoint has no time.
    """
    time, event = study.outcome(endpoint)
    if event is None:
        raise InputError(f'endpoint "{endpoint}" has no follow-up time')
    return time[keep], event[keep].astype(int)


def cause_specific(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    """Cox model of the event's own hazard; whoever had a competing event is censored there."""
    keep, X, names, notes = matrix(study, plan)
    time, codes = status_of(study, plan.endpoint, keep)
    fit = fit_cox(time, (codes == 1).astype(float), X, names, study, notes)
    effect = _effect(fit, 0, "hazard ratio")
    book.effect(plan.id, effect, float(fit.p[0]))
    book.put(f"{plan.id}.n", len(codes), "patients")
    book.put(f"{plan.id}.events", int((codes == 1).sum()), "events")
    book.put(f"{plan.id}.competing", int((codes == 2).sum()), "events")
    tables[plan.id] = _rows(fit, names, "hazard ratio")
    return outcome_of(
        plan,
        n=len(codes),
        events=int((codes == 1).sum()),
        effect=effect,
        p=float(fit.p[0]),
        statistic=float(fit.coef[0] / fit.se[0]),
        df=1,
        notes=notes,
    )


def fine_gray(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    """Fine and Gray's model of the subdistribution hazard."""
    from validation.statistics.fine_gray import fine_gray

    keep, X, names, notes = matrix(study, plan)
    time, codes = status_of(study, plan.endpoint, keep)
    fit = fine_gray(time, codes, X, names)
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
    effect = _effect(fit, 0, "subdistribution hazard ratio")
    book.effect(plan.id, effect, float(fit.p[0]))
    tables[plan.id] = _rows(fit, names, "subdistribution hazard ratio")
    return outcome_of(
        plan,
        n=fit.n,
        events=fit.events,
        effect=effect,
        p=float(fit.p[0]),
        statistic=float(fit.coef[0] / fit.se[0]),
        df=1,
        notes=notes,
    )


def gray(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    """Gray's test of equal cumulative incidence, of the event and of what competes with it."""
    from validation.statistics.competing import gray_test
    from validation.statistics.errors import StatisticsError

    if not study.exposed.grouped:
        raise InputError("Gray's test compares groups; this exposure is a slope or an interaction")
    keep = study.complete(plan.endpoint)
    time, codes = status_of(study, plan.endpoint, keep)
    group = study.exposed.x[keep]
    found = gray_test(time, codes, group)
    book.put(f"{plan.id}.statistic", found.statistic, "chi-squared, 1 df")
    book.put(f"{plan.id}.p", found.p, "p-value")
    notes = []
    if not (codes == 2).any():
        notes.append(f"{NONE_COMPETE}: this is close to the log-rank test")
    else:
        try:
            other = gray_test(time, codes, group, cause=2)
            book.put(f"{plan.id}.competing_p", other.p, "p-value")
        except StatisticsError as error:
            notes.append(f"competing event: {error}")
    return outcome_of(
        plan,
        n=len(codes),
        events=int((codes == 1).sum()),
        p=found.p,
        statistic=found.statistic,
        df=found.df,
        notes=notes,
    )


def sides_of(study: Study, keep: Any) -> list[tuple[str, str, Any]]:
    """Role, name and patients of each group; everybody where the exposure has no groups."""
    if not study.exposed.grouped:
        return [("all", "all patients", keep)]
    return [
        ("exposed", study.contract.exposed, keep & (study.exposed.x == 1.0)),
        ("reference", study.contract.reference, keep & (study.exposed.x == 0.0)),
    ]


def incidence(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    """Aalen-Johansen incidence of the event and of the competing one, by group."""
    from validation.statistics.competing import aalen_johansen

    keep = study.complete(plan.endpoint)
    rows = []
    for name, label, mine in sides_of(study, keep):
        time, codes = status_of(study, plan.endpoint, mine)
        event, other = (aalen_johansen(time, codes, cause, need_events=False) for cause in (1, 2))
        key = f"{plan.id}.{name}"
        book.put(f"{key}.events", event.n_events, "events")
        book.put(f"{key}.competing", other.n_events, "events")
        row = {"group": label, "n": str(event.n), "events": str(event.n_events)}
        row["competing"] = str(other.n_events)
        for months in HORIZONS:
            if months > float(time.max()):
                continue
            for curve, part, column in (
                (event, "at", "event"),
                (other, "competing_at", "other event"),
            ):
                value, text = _at(curve, months)
                book.put(f"{key}.{part}_{months}", value, "share", text)
                row[f"{column} by {months} months"] = text
        rows.append(row)
    tables[plan.id] = rows
    codes = status_of(study, plan.endpoint, keep)[1]
    return outcome_of(plan, n=len(codes), events=int((codes == 1).sum()))


def _at(curve: CumulativeIncidence, months: float) -> tuple[float, str]:
    """Incidence by a time, and how it is printed with its interval."""
    at = int(curve.at(months))
    if at < 0 or curve.incidence[at] == 0.0:
        return 0.0, "0%"
    value, low, high = (float(one[at]) for one in (curve.incidence, curve.lower, curve.upper))
    return value, f"{100 * value:.0f}% ({100 * low:.0f} to {100 * high:.0f}%)"


def _effect(fit: Any, at: int, scale: str) -> Effect:
    return Effect.model_validate(
        {
            "value": float(fit.hr[at]),
            "lower": float(fit.lower[at]),
            "upper": float(fit.upper[at]),
            "scale": scale,
        }
    )


def _rows(fit: Any, names: list[str], scale: str) -> list[dict[str, str]]:
    return [
        row_of(name, fit.hr[at], fit.lower[at], fit.upper[at], fit.p[at], scale)
        for at, name in enumerate(names)
    ]
