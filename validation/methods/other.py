"""Binary and continuous outcomes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sage.core.errors import InputError
from validation.contracts.contract import TestPlan
from validation.inputs.study import Study
from validation.methods.imputed import imputed_linear, imputed_logistic, imputes
from validation.methods.shared import effect_of, fit_logistic, matrix, outcome_of, rows_of
from validation.results import Book, Effect, TestOutcome

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


def fisher(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    from validation.statistics.binary import fisher

    keep = study.complete(plan.endpoint)
    value, _ = study.outcome(plan.endpoint)
    y, g = value[keep], study.exposed.x[keep]
    counts = [[int(((g == side) & (y == flag)).sum()) for flag in (1, 0)] for side in (1.0, 0.0)]
    found = fisher(counts)
    notes = []
    effect = Effect(value=found.value, lower=found.lower, upper=found.upper, scale="odds ratio")
    if min(min(row) for row in counts) == 0:
        from validation.statistics.binary import logistic

        fit = logistic(y, g[:, None], [study.contract.exposed], penalty="firth")
        effect = effect_of(fit, "odds ratio")
        notes.append("Firth's penalty: nobody in one cell of the table; p is Fisher's")
    book.effect(plan.id, effect, found.p)
    rows = []
    names = (("exposed", study.contract.exposed), ("reference", study.contract.reference))
    for (name, label), (yes, no) in zip(names, counts, strict=True):
        share = yes / (yes + no)
        text = f"{yes} of {yes + no} ({100 * share:.0f}%)"
        book.put(f"{plan.id}.{name}.n", yes + no, "patients")
        book.put(f"{plan.id}.{name}.events", yes, "patients")
        book.put(f"{plan.id}.{name}.share", share, "share", text)
        rows.append({"group": label, "with": text})
    tables[plan.id] = rows
    return outcome_of(
        plan, n=int(keep.sum()), events=int(y.sum()), effect=effect, p=found.p, notes=notes
    )


def logistic(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    if imputes(study, plan):
        return imputed_logistic(study, plan, book, tables)
    keep, X, names, notes = matrix(study, plan)
    value, _ = study.outcome(plan.endpoint)
    y = value[keep]
    fit = fit_logistic(y, X, names, study, notes)
    effect = effect_of(fit, "odds ratio")
    book.effect(plan.id, effect, float(fit.p[0]))
    tables[plan.id] = rows_of(fit, names, "odds ratio")
    return outcome_of(
        plan,
        n=int(keep.sum()),
        events=int((y == 1).sum()),
        effect=effect,
        p=float(fit.p[0]),
        df=1,
        notes=notes,
    )


def linear(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    """Difference in standard deviations of the outcome (least squares)."""
    from validation.statistics.continuous import linear, rank_test

    if imputes(study, plan):
        return imputed_linear(study, plan, book, tables)
    keep, X, names, notes = matrix(study, plan)
    value, _ = study.outcome(plan.endpoint)
    y = value[keep]
    spread = float(y.std(ddof=1))
    if spread == 0:
        raise InputError(f"{plan.endpoint} is the same for all patients")
    fit = linear(y / spread, X, names, robust=True)
    effect = effect_of(fit, "difference (SD)")
    p, statistic = float(fit.p[0]), None
    if plan.method == "rank":
        test = rank_test(y, X[:, 0]).test
        p, statistic = test.p, test.statistic
    book.effect(plan.id, effect, p)
    return outcome_of(plan, n=int(keep.sum()), effect=effect, p=p, statistic=statistic, notes=notes)
