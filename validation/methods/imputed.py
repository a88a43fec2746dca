"""Adjusted models with multiply imputed covariates, pooled by Rubin's rules.

The outcome is included among the predictors of missing values (White and Royston 2009,
Statistics in Medicine); exposure and outcome themselves are never imputed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from validation.contracts.contract import TestPlan
from validation.inputs.study import Study
from validation.methods.shared import bearable, fitter_of, outcome_of, row_of
from validation.results.results import Book, Effect, TestOutcome
from validation.statistics.imputation import impute, pool


def imputes(study: Study, plan: TestPlan) -> bool:
    """Check whether the contract imputes and the test has covariates and one exposure effect."""
    return (
        plan.within is None
        and plan.method != "time_dependent"
        and study.contract.missing.policy == "multiple_imputation"
        and bool(plan.covariates)
    )


def imputed(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    """Fit the endpoint's model on every completed copy of the covariates, and pool the fits."""
    keep = study.complete(plan.endpoint, plan.strata)
    notes: list[str] = []
    model = fitter_of(study, plan, keep, notes)
    bearable(study, plan)
    rule = study.contract.missing
    Z, names = study.design(plan.covariates, keep, missing=True)
    main = [(name, part[keep]) for name, part in study.adjusters()]
    first = np.column_stack([study.exposed.x[keep], *(part for _, part in main)])
    label = [study.first_term, *(name for name, _ in main)]
    helpers = np.column_stack([first, model.predictors])
    copies = impute(Z, names, outcome=helpers, m=rule.imputations, seed=study.contract.seed)
    terms = [*label, *names]
    fits = [model.fit(np.column_stack([first, copy]), terms) for copy in copies]
    pooled = pool(
        np.vstack([fit.coef for fit in fits]),
        np.vstack([fit.se**2 for fit in fits]),
        complete_df=float(model.size) - len(terms),
    )

    found = np.column_stack([pooled.value, pooled.lower, pooled.upper])
    if model.scale != "difference (SD)":
        found = np.exp(found)
    value, lower, upper = (float(number) for number in found[0])
    effect = Effect(value=value, lower=lower, upper=upper, scale=model.scale)
    book.add_effect(plan.id, effect, float(pooled.p[0]))
    tables[plan.id] = [
        row_of(name, numbers[0], numbers[1], numbers[2], p, model.scale)
        for name, numbers, p in zip(terms, found, pooled.p, strict=True)
    ]
    said = f"{rule.imputations} imputations of the covariates, pooled by Rubin's rules"
    return outcome_of(
        plan,
        keep,
        model.events,
        notes=[said, *dict.fromkeys(notes)],
        effect=effect,
        p=float(pooled.p[0]),
        df=1,
    )
