"""Tests for survival differences between two groups, and for the underlying assumptions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from sage.core.errors import InputError
from sage.core.seeds import generator
from validation.contracts.contract import TestPlan
from validation.core.hypothesis import Comparison
from validation.inputs.study import Study
from validation.methods.shared import (
    HORIZONS,
    clusters_of,
    effect_of,
    fit_cox,
    layers_of,
    matrix,
    outcome_of,
    row_at,
    rows_of,
)
from validation.results.results import Book, TestOutcome, p_text
from validation.statistics.auc import auc_at
from validation.statistics.concordance import harrell, uno
from validation.statistics.proportional import cox_by_period
from validation.statistics.survival import rmst_difference

if TYPE_CHECKING:
    from validation.statistics.base import FloatArray

BOOTSTRAPS = 500


def logrank(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    """Run the log-rank test; its hazard ratio comes from a Cox model with only the group.

    With registered strata, both compare patients only within strata; with clusters, both have
    a robust variance.
    """
    from validation.statistics.survival import logrank

    keep, X, names, notes = matrix(study, plan)
    t, e, entry = study.at_risk(plan.endpoint, keep)
    g = X[:, 0]
    layers = layers_of(study, plan, keep, e, notes)
    cluster = clusters_of(study, keep, notes)
    found = logrank(t, e, g, layers, entry)
    fit = fit_cox(t, e, X, names, study, notes, layers, entry, cluster)
    if fit.robust_score is not None:
        found = fit.robust_score
        notes.append("the log-rank statistic's variance is that between patients, not rows")
    effect = effect_of(fit, "hazard ratio")
    book.add_effect(plan.id, effect, found.p)
    book.add(f"{plan.id}.statistic", found.statistic, "chi-squared, 1 df")
    book.add(f"{plan.id}.n", int(keep.sum()), "patients")
    book.add(f"{plan.id}.events", int(e.sum()), "events")
    for name, side in (("exposed", 1.0), ("reference", 0.0)):
        book.add(f"{plan.id}.{name}.n", int((g == side).sum()), "patients")
        book.add(f"{plan.id}.{name}.events", int(e[g == side].sum()), "events")
    tables[plan.id] = [
        row | {"p": p_text(found.p)} for row in rows_of(fit, names[:1], "hazard ratio")
    ]
    return outcome_of(
        plan, keep, e, effect=effect, p=found.p, statistic=found.statistic, df=1, notes=notes
    )


def kaplan_meier(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    """Estimate survival by group, with the log-rank test."""
    from validation.statistics.survival import kaplan_meier

    keep = study.complete(plan.endpoint)
    rows = []
    for name, label, side in (
        ("exposed", study.contract.exposed, 1.0),
        ("reference", study.contract.reference, 0.0),
    ):
        mine = keep & (study.exposed.x == side)
        time, event, entry = study.at_risk(plan.endpoint, mine)
        curve = kaplan_meier(time, event, entry)
        key = f"{plan.id}.{name}"
        book.add(f"{key}.median", curve.median, "months")
        row = {"group": label, "n": str(curve.n), "events": str(curve.n_events)}
        for end in ("lower", "upper"):
            book.add(f"{key}.median_{end}", getattr(curve, f"median_{end}"), "months")
        texts = [book.numbers[f"{key}.median{end}"].text for end in ("", "_lower", "_upper")]
        row["median (95% CI), months"] = "{} ({} to {})".format(*texts)
        first = 0.0 if entry is None else float(entry.min())
        for months in HORIZONS:
            if not first < months <= float(time.max()):
                continue
            at = int(np.searchsorted(curve.times, months, side="right")) - 1
            alive, low, high = (
                (float(part[at]) if at >= 0 else 1.0)
                for part in (curve.survival, curve.lower, curve.upper)
            )
            text = f"{100 * alive:.0f}% ({100 * low:.0f} to {100 * high:.0f}%)"
            book.add(f"{key}.at_{months}", alive, "share", text)
            row[f"free of event at {months} months"] = text
        rows.append(row)
    tables[plan.id] = rows
    events = study.at_risk(plan.endpoint, keep)[1]
    return outcome_of(plan, keep, events)


def schoenfeld(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    """Test proportional hazards for the exposure, in the adjusted model if there is one."""
    from validation.statistics.proportional import schoenfeld

    keep, X, names, notes = matrix(study, plan)
    t, e, entry = study.at_risk(plan.endpoint, keep)
    layers = layers_of(study, plan, keep, e, notes)
    fit = fit_cox(t, e, X, names, study, notes, layers, entry)
    found = schoenfeld(t, e, X, fit, strata=layers, entry=entry)
    if study.contract.cluster is not None:
        notes.append("this test treats rows as independent, which favors finding a change")
    book.add(f"{plan.id}.p", found.tests[0].p, "p-value")
    book.add(f"{plan.id}.global_p", found.global_test.p, "p-value")
    return outcome_of(
        plan, keep, e, p=found.tests[0].p, statistic=found.tests[0].statistic, df=1, notes=notes
    )


def rmst(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    """Compare restricted mean survival up to the contract's horizon.

    If follow-up in either group ends earlier, survival is compared up to that time.
    """
    keep = study.complete(plan.endpoint)
    t, e = study.follow_up(plan.endpoint, keep)
    g = study.exposed.x[keep]
    tau = min(
        study.contract.rules.rmst_months, *(float(t[g == value].max()) for value in (0.0, 1.0))
    )
    found = rmst_difference(t, e, g, tau)
    book.add(f"{plan.id}.horizon", tau, "months", f"{tau:.3g}")
    book.add(f"{plan.id}.difference", found.value, "months")
    book.add(f"{plan.id}.lower", found.lower, "months")
    book.add(f"{plan.id}.upper", found.upper, "months")
    book.add(f"{plan.id}.p", found.p, "p-value")
    text = f"{found.value:+.1f} months ({found.lower:+.1f} to {found.upper:+.1f}) to {tau:.0f}"
    book.add(f"{plan.id}.summary", found.value, "months", text)
    return outcome_of(plan, keep, e, p=found.p, statistic=found.value)


def periods(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    """Estimate hazard ratios before and after the median event time, to show changes over time."""
    keep = study.complete(plan.endpoint)
    t, e, entry = study.at_risk(plan.endpoint, keep)
    cut = float(np.median(t[e == 1]))
    found = cox_by_period(
        t,
        e,
        study.exposed.x[keep][:, None],
        [study.contract.exposed],
        [cut],
        penalty="firth",
        entry=entry,
        cluster=study.clusters(keep),
    )
    book.add(f"{plan.id}.cut", cut, "months")
    rows = []
    for name, period in zip(("early", "late"), found, strict=True):
        effect = effect_of(period.fit, "hazard ratio")
        book.add_effect(f"{plan.id}.{name}", effect, float(period.fit.p[0]))
        stop = "the end" if math.isinf(period.stop) else f"{period.stop:.1f}"
        rows.append(
            {"months": f"{period.start:.1f} to {stop}"} | row_at(period.fit, name, "hazard ratio")
        )
    tables[plan.id] = rows
    notes = ["hazard ratios with Firth's penalty, as each period has fewer events"]
    return outcome_of(plan, keep, e, notes=notes)


def concordance(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    """Compute concordance and AUC for the covariates with and without the exposure.

    The results are Harrell's and Uno's concordance, the AUC at the contract's horizon and at
    12, 36 and 60 months (if enough patients have had the event and enough are still
    followed), and a bootstrap interval for the gain in Harrell's concordance with both models
    held fixed.
    """
    keep, X, names, notes = matrix(study, plan)
    t, e = study.follow_up(plan.endpoint, keep)
    added = study.contract.comparison is Comparison.ADDED
    main = 1 if added else 1 + len(study.adjusters())
    if X.shape[1] == main:
        raise InputError(
            "no covariate varies in the population, so there is no model for comparison"
        )
    tau = float(np.quantile(t[e == 1], 0.95))
    horizon = min(study.contract.rules.rmst_months, float(np.quantile(t, 0.75)))
    later = [
        months
        for months in HORIZONS
        if (e[t <= months]).sum() >= study.contract.rules.min_events
        and (t > months).sum() >= study.contract.rules.min_group
    ]
    risks, rows = [], []
    for name, label, first in (
        ("without", f"covariates and {names[1]}" if added else "covariates alone", main),
        ("with", "with the exposure", 0),
    ):
        fit = fit_cox(t, e, X[:, first:], names[first:], study, notes)
        risk = (X[:, first:] * fit.coef).sum(axis=1)  # row by row, so that equal patients stay tied
        risks.append(risk)
        book.add(f"{plan.id}.{name}.harrell", harrell(t, e, risk), "concordance")
        book.add(f"{plan.id}.{name}.uno", uno(t, e, risk, tau=tau), "concordance")
        book.add(f"{plan.id}.{name}.auc", float(auc_at(t, e, risk, [horizon])[0]), "AUC")
        row = {
            "model": label,
            "Harrell's C": book.numbers[f"{plan.id}.{name}.harrell"].text,
            "Uno's C": book.numbers[f"{plan.id}.{name}.uno"].text,
        }
        for months, value in zip(later, auc_at(t, e, risk, later), strict=True):
            key = f"{plan.id}.{name}.auc_{months}"
            book.add(key, float(value), "AUC")
            row[f"AUC at {months} months"] = book.numbers[key].text
        rows.append(row)
    tables[plan.id] = rows
    value, lower, upper = _gain(t, e, risks[0], risks[1], study.contract.seed)
    book.add(f"{plan.id}.horizon", horizon, "months")
    book.add(f"{plan.id}.gain", value, "change in concordance", f"{value:.3f}")
    book.add(f"{plan.id}.gain_lower", lower, "change in concordance", f"{lower:.3f}")
    book.add(f"{plan.id}.gain_upper", upper, "change in concordance", f"{upper:.3f}")
    notes.append("apparent values, on the patients that the models were fitted to")
    return outcome_of(plan, keep, e, notes=notes)


def _gain(
    time: FloatArray, event: FloatArray, floats: FloatArray, two: FloatArray, seed: int
) -> tuple[float, float, float]:
    """Compute the gain in Harrell's concordance between two risks, with a bootstrap interval.

    A resample is a vector of counts w; its concordance is w'Aw / w'Lw, where A marks the
    concordant and L the comparable pairs, so that all resamples need only two matrix
    products.
    """
    n = len(time)
    cases = np.flatnonzero(event == 1)
    at, flag = time[cases, None], event == 1
    later = (time[None, :] > at) | ((time[None, :] == at) & ~flag[None, :])

    def right(risk: FloatArray) -> Any:
        mine = risk[cases, None]
        return (mine > risk[None, :]) + 0.5 * (mine == risk[None, :])

    gained = (later * (right(two) - right(floats))).astype(np.float32)
    pairs = later.astype(np.float32)
    value = float(gained.sum(dtype=float) / pairs.sum(dtype=float))
    rng = generator(seed, n)
    counts = rng.multinomial(n, np.full(n, 1 / n), size=BOOTSTRAPS).astype(np.float32)
    mine = counts[:, cases]
    above = (mine * (counts @ gained.T)).sum(axis=1, dtype=float)
    below = (mine * (counts @ pairs.T)).sum(axis=1, dtype=float)
    draws = above[below > 0] / below[below > 0]
    if len(draws) < 0.95 * BOOTSTRAPS:
        raise InputError("too few events to bootstrap the concordance")
    lower, upper = np.quantile(draws, [0.025, 0.975])
    return value, float(lower), float(upper)
