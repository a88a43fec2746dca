"""Cox models of the exposure: plain, penalized, splined."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from validation.contract import TestPlan
from validation.methods.imputed import imputed_cox, imputes
from validation.methods.shared import fit_cox, layers_of, matrix, outcome_of, row_of, slug
from validation.results import Book, Effect, TestOutcome
from validation.study import Study

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


def cox(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    if imputes(study, plan):
        return imputed_cox(study, plan, book, tables)
    keep, X, names, notes = matrix(study, plan)
    time, event = study.outcome(plan.endpoint)
    assert event is not None
    flags = (event[keep] == 1).astype(float)
    layers = layers_of(study, plan, keep, flags, notes)
    fit = fit_cox(time[keep], flags, X, names, study, notes, layers)
    effect = Effect(
        value=float(fit.hr[0]),
        lower=float(fit.lower[0]),
        upper=float(fit.upper[0]),
        scale="hazard ratio",
    )
    book.effect(plan.id, effect, float(fit.p[0]))
    tables[plan.id] = [
        row_of(name, fit.hr[at], fit.lower[at], fit.upper[at], fit.p[at], "hazard ratio")
        for at, name in enumerate(names)
    ]
    for at, name in enumerate(names[1:], start=1):
        key = f"{plan.id}.terms.{slug(name)}"
        term = Effect(
            value=float(fit.hr[at]),
            lower=float(fit.lower[at]),
            upper=float(fit.upper[at]),
            scale="hazard ratio",
        )
        book.effect(key, term, float(fit.p[at]))
    return outcome_of(
        plan,
        n=int(keep.sum()),
        events=int(flags.sum()),
        effect=effect,
        p=float(fit.p[0]),
        statistic=float(fit.coef[0] / fit.se[0]),
        df=1,
        notes=notes,
    )


def spline(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    """Likelihood ratio of a restricted cubic spline (4 knots); the effect is the linear slope."""
    from validation.statistics.base import chi2_p
    from validation.statistics.cox import cox
    from validation.statistics.splines import rcs_basis

    keep, X, names, notes = matrix(study, plan)
    time, event = study.outcome(plan.endpoint)
    assert event is not None
    t, e = time[keep], (event[keep] == 1).astype(float)
    layers = layers_of(study, plan, keep, e, notes)
    linear = fit_cox(t, e, X[:, :1], names[:1], study, notes, layers)
    basis = rcs_basis(X[:, 0], 4)
    terms = [f"spline {one + 1}" for one in range(basis.shape[1])]
    curved = cox(t, e, basis, terms, strata=layers)
    statistic = 2 * (curved.loglik - curved.loglik_null)
    df = int(basis.shape[1])
    bend = 2 * (curved.loglik - linear.loglik)
    effect = Effect(
        value=float(linear.hr[0]),
        lower=float(linear.lower[0]),
        upper=float(linear.upper[0]),
        scale="hazard ratio",
    )
    p = chi2_p(statistic, df)
    book.effect(plan.id, effect, p)
    book.put(f"{plan.id}.nonlinearity.p", chi2_p(max(bend, 0.0), df - 1), "p-value")
    notes.append("p tests any association (spline); the effect is the linear slope per SD")
    return outcome_of(
        plan,
        n=int(keep.sum()),
        events=int(e.sum()),
        effect=effect,
        p=p,
        statistic=statistic,
        df=df,
        notes=notes,
    )


def best_cut(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    """Maximally selected log-rank statistic; p is corrected for having searched every cut.

    The effect is the slope per standard deviation: the one at the best cut would be too large.
    """
    from validation.statistics.cutpoint import maximally_selected

    keep, X, names, notes = matrix(study, plan)
    time, event = study.outcome(plan.endpoint)
    assert event is not None
    t, e = time[keep], (event[keep] == 1).astype(float)
    fit = fit_cox(t, e, X[:, :1], names[:1], study, notes)
    contract = study.contract
    draws = contract.controls.permutations
    found = maximally_selected(t, e, X[:, 0], permutations=draws, seed=contract.seed)
    effect = Effect(
        value=float(fit.hr[0]),
        lower=float(fit.lower[0]),
        upper=float(fit.upper[0]),
        scale="hazard ratio",
    )
    use, cut = contract.exposures[0], study.cuts[0]
    assert cut.mean is not None
    assert cut.sd is not None
    sign = 1.0 if use.level == "high" else -1.0
    book.effect(plan.id, effect, found.p)
    book.put(f"{plan.id}.cut", cut.mean + sign * found.cut * cut.sd, use.unit or "unit")
    book.put(f"{plan.id}.p_uncorrected", found.p_uncorrected, "p-value")
    notes.append(
        f"best of {found.candidates} cuts; p corrected for the search, effect per SD (linear)"
    )
    return outcome_of(
        plan,
        n=int(keep.sum()),
        events=int(e.sum()),
        effect=effect,
        p=found.p,
        statistic=found.statistic,
        notes=notes,
    )
