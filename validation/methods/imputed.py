"""Adjusted models with multiply imputed covariates, pooled by Rubin's rules.

The outcome is among the predictors of missing values (White and Royston 2009, Statistics in
Medicine); exposure and outcome themselves are never imputed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from validation.contracts.contract import Scale, TestPlan
from validation.inputs.study import Study
from validation.methods.shared import (
    bearable,
    clusters_of,
    fit_cox,
    fit_logistic,
    layers_of,
    outcome_of,
    row_of,
)
from validation.results.results import Book, Effect, TestOutcome
from validation.statistics.continuous import linear
from validation.statistics.imputation import impute, outcome_predictors, pool

if TYPE_CHECKING:
    from validation.statistics.base import BoolArray, FloatArray

    Fit = Callable[[FloatArray, list[str]], Any]


def imputes(study: Study, plan: TestPlan) -> bool:
    """Check whether the contract imputes and the test has covariates and one exposure effect."""
    return (
        plan.within is None
        and plan.method != "time_dependent"
        and study.contract.missing.policy == "multiple_imputation"
        and bool(plan.covariates)
    )


def imputed_cox(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    """Fit Cox models on every completed copy, with strata as registered."""
    keep = study.complete(plan.endpoint, plan.strata)
    t, e, entry = study.at_risk(plan.endpoint, keep)
    notes: list[str] = []
    layers = layers_of(study, plan, keep, e, notes)
    cluster = clusters_of(study, keep, notes)

    def fit(X: FloatArray, names: list[str]) -> Any:
        return fit_cox(t, e, X, names, study, notes, layers, entry, cluster)

    events, predictors = int(e.sum()), outcome_predictors(t, e, entry)
    return _pool_fits(
        study, plan, book, tables, keep, predictors, fit, events, "hazard ratio",
        {"events": events, "notes": notes},
    )  # fmt: skip


def imputed_logistic(
    study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]
) -> TestOutcome:
    """Fit logistic models on every completed copy."""
    keep = study.complete(plan.endpoint)
    value, _ = study.outcome(plan.endpoint)
    y = value[keep]
    notes: list[str] = []
    return _pool_fits(
        study, plan, book, tables, keep, y[:, None],
        lambda X, names: fit_logistic(y, X, names, study, notes),
        len(y), "odds ratio", {"events": int((y == 1).sum()), "notes": notes},
    )  # fmt: skip


def imputed_linear(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    """Fit linear models (differences in standard deviations) on every completed copy."""
    keep = study.complete(plan.endpoint)
    value, _ = study.outcome(plan.endpoint)
    y = value[keep] / float(value[keep].std(ddof=1))
    return _pool_fits(
        study, plan, book, tables, keep, y[:, None],
        lambda X, names: linear(y, X, names, robust=True), len(y), "difference (SD)",
        {"notes": []},
    )  # fmt: skip


def _pool_fits(
    study: Study,
    plan: TestPlan,
    book: Book,
    tables: dict[str, Any],
    keep: BoolArray,
    predictors: FloatArray,
    fit: Fit,
    size: int,
    scale: Scale,
    more: dict[str, Any],
) -> TestOutcome:
    """Impute, fit each copy and pool; `size` is events (Cox model) or patients, for the df."""
    bearable(study, plan)
    rule = study.contract.missing
    Z, names = study.design(plan.covariates, keep, missing=True)
    main = [(name, part[keep]) for name, part in study.adjusters()]
    first = np.column_stack([study.exposed.x[keep], *(part for _, part in main)])
    label = [study.first_term, *(name for name, _ in main)]
    helpers = np.column_stack([first, predictors])
    copies = impute(Z, names, outcome=helpers, m=rule.imputations, seed=study.contract.seed)
    terms = [*label, *names]
    fits = [fit(np.column_stack([first, copy]), terms) for copy in copies]
    pooled = pool(
        np.vstack([fit.coef for fit in fits]),
        np.vstack([fit.se**2 for fit in fits]),
        complete_df=float(size) - len(terms),
    )

    def on_scale(value: float) -> float:
        return float(value) if scale == "difference (SD)" else math.exp(float(value))

    effect = Effect(
        value=on_scale(pooled.value[0]),
        lower=on_scale(pooled.lower[0]),
        upper=on_scale(pooled.upper[0]),
        scale=scale,
    )
    book.add_effect(plan.id, effect, float(pooled.p[0]))
    tables[plan.id] = [
        row_of(
            name,
            on_scale(pooled.value[at]),
            on_scale(pooled.lower[at]),
            on_scale(pooled.upper[at]),
            pooled.p[at],
            scale,
        )
        for at, name in enumerate(terms)
    ]
    said = f"{rule.imputations} imputations of the covariates, pooled by Rubin's rules"
    return outcome_of(
        plan,
        keep,
        **(more | {"notes": [said, *dict.fromkeys(more["notes"])]}),
        effect=effect,
        p=float(pooled.p[0]),
        df=1,
    )
