"""Cox models for the exposure: plain, penalized and spline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from validation.contracts.contract import TestPlan
from validation.inputs.study import Study
from validation.methods.imputed import imputed, imputes
from validation.methods.shared import (
    effect_of,
    fit_cox,
    fitter_of,
    layers_of,
    matrix,
    outcome_of,
    slug,
    wald_outcome,
)
from validation.results.results import Book, TestOutcome
from validation.statistics.base import Z95, chi2_p
from validation.statistics.cutpoint import maximally_selected
from validation.statistics.errors import ConstantFeatureError
from validation.statistics.splines import rcs_basis, rcs_knots

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from validation.statistics.base import FloatArray
    from validation.statistics.cox import CoxFit


def cox(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    """Fit a Cox model for the endpoint, on start-stop records if the exposure changes over time.

    At each event, patients at risk are compared by their status until then. Source: Crowley
    and Hu 1977 (Journal of the American Statistical Association); the records are those
    produced by `tmerge` in the R package survival.
    """
    if imputes(study, plan):
        return imputed(study, plan, book, tables)
    keep, X, names, notes = matrix(study, plan)
    fit = fitter_of(study, plan, keep, notes).fit(X, names)
    patients = study.patients(keep)
    if patients < fit.n:
        notes.append(f"{fit.n} records of {patients} patients")
    outcome = wald_outcome(plan, fit, names, "hazard ratio", notes, book, tables)
    for at, name in enumerate(names[1:], start=1):
        term = effect_of(fit, "hazard ratio", at)
        book.add_effect(f"{plan.id}.terms.{slug(name)}", term, float(fit.p[at]))
    return outcome.model_copy(update={"n": patients})


@dataclass(frozen=True)
class Splined:
    """A claim's exposure as a restricted cubic spline (Harrell 2015), with its fit."""

    keep: NDArray[np.bool_]
    x: FloatArray
    knots: FloatArray
    fit: CoxFit

    def curve(
        self, grid: FloatArray, reference: float
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Compute hazard ratios at the values `grid` relative to `reference`, with 95% limits."""
        apart = rcs_basis(grid, self.knots) - rcs_basis(np.array([reference]), self.knots)
        log = apart @ self.fit.coef
        half = Z95 * np.sqrt(((apart @ self.fit.covariance) * apart).sum(axis=1))
        return np.exp(log), np.exp(log - half), np.exp(log + half)


def fit_spline(study: Study, plan: TestPlan) -> Splined:
    """Fit the exposure as a spline with 4 knots, or with 3 if its values are too tied for 4."""
    from validation.statistics.cox import cox

    keep, X, _, _ = matrix(study, plan)
    t, e, entry = study.at_risk(plan.endpoint, keep)
    try:
        knots = rcs_knots(X[:, 0], 4)
    except ConstantFeatureError:
        knots = rcs_knots(X[:, 0], 3)
    basis = rcs_basis(X[:, 0], knots)
    terms = [f"spline {number}" for number in range(1, basis.shape[1] + 1)]
    layers = layers_of(study, plan, keep, e, [])
    fit = cox(t, e, basis, terms, strata=layers, entry=entry)
    return Splined(keep, X[:, 0], knots, fit)


def spline(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    """Test a restricted cubic spline by likelihood ratio; the effect is the linear slope.

    Both likelihood ratios come from plain models, even if the slope is estimated with Firth's
    penalty. For time-dependent claims, they are computed on start-stop records.
    """
    from validation.statistics.cox import cox

    keep, X, names, notes = matrix(study, plan)
    t, e, entry = study.at_risk(plan.endpoint, keep)
    layers = layers_of(study, plan, keep, e, notes)
    linear = fit_cox(t, e, X[:, :1], names[:1], study, notes, layers, entry)
    curve = fit_spline(study, plan)
    if len(curve.knots) == 3:
        notes.append("3 knots: too many patients share a value for 4")
    straight = cox(t, e, X[:, :1], names[:1], strata=layers, entry=entry)
    statistic = 2 * (curve.fit.loglik - curve.fit.loglik_null)
    df = len(curve.fit.coef)
    bend = 2 * (curve.fit.loglik - straight.loglik)
    effect = effect_of(linear, "hazard ratio")
    p = chi2_p(statistic, df)
    book.add_effect(plan.id, effect, p)
    book.add(f"{plan.id}.nonlinearity.p", chi2_p(max(bend, 0.0), df - 1), "p-value")
    notes.append("p tests any association (spline); the effect is the linear slope per SD")
    return outcome_of(
        plan,
        study.patients(keep),
        e,
        effect=effect,
        p=p,
        statistic=statistic,
        df=df,
        notes=notes,
    )


def best_cut(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    """Compute the maximally selected log-rank statistic, with p corrected for searching every cut.

    The reported effect is the slope per standard deviation, since the effect at the best cut
    would be overestimated.
    """
    keep, X, names, notes = matrix(study, plan)
    t, e = study.follow_up(plan.endpoint, keep)
    fit = fit_cox(t, e, X[:, :1], names[:1], study, notes)
    contract = study.contract
    draws = contract.controls.permutations
    found = maximally_selected(t, e, X[:, 0], permutations=draws, seed=contract.seed)
    effect = effect_of(fit, "hazard ratio")
    use, cut = contract.exposures[0], study.cuts[0]
    assert cut.mean is not None
    assert cut.sd is not None
    sign = 1.0 if use.level == "high" else -1.0
    book.add_effect(plan.id, effect, found.p)
    book.add(f"{plan.id}.cut", cut.mean + sign * found.cut * cut.sd, use.unit or "unit")
    book.add(f"{plan.id}.p_uncorrected", found.p_uncorrected, "p-value")
    notes.append(
        f"best of {found.candidates} cuts; p corrected for the search, effect per SD (linear)"
    )
    return outcome_of(
        plan, keep, e, effect=effect, p=found.p, statistic=found.statistic, notes=notes
    )
