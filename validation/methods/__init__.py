"""Implementations of the registered tests, each from a study and a plan to an outcome.

Each function records numbers in the book and returns a `TestOutcome`. Data that do not
support a test raise a named error (`StatisticsError` or `InputError`), which becomes the
outcome's reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from validation.contracts.contract import TestPlan
from validation.inputs.study import Study
from validation.methods import (
    absolute,
    clinical,
    competing,
    groups,
    imputed,
    mediation,
    other,
    penalized,
    prediction,
    regression,
    sites,
    survival,
)
from validation.methods.shared import enough
from validation.results.results import Book, TestOutcome


def run_method(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    """Run a registered test.

    Raises
    ------
    StatisticsError, InputError
        If the data do not support the test.
    """
    if plan.subgroup is not None:
        study = study.subgroup(plan.subgroup)
    if plan.method not in DESCRIBING:
        enough(study, plan)
    return METHODS[plan.method](study, plan, book, tables)


METHODS: dict[str, Callable[[Study, TestPlan, Book, dict[str, Any]], TestOutcome]] = {
    "kaplan_meier": survival.kaplan_meier,
    "logrank": survival.logrank,
    "cox": regression.cox,
    "spline": regression.spline,
    "maximally_selected": regression.best_cut,
    "schoenfeld": survival.schoenfeld,
    "rmst": survival.rmst,
    "period_hazards": survival.periods,
    "cumulative_incidence": competing.incidence,
    "cause_specific": competing.cause_specific,
    "fine_gray": competing.fine_gray,
    "gray": competing.gray,
    "fisher": other.fisher,
    "logistic": other.logistic,
    "rank": other.linear,
    "linear": other.linear,
    "nested": other.nested_models,
    "penalized": penalized.penalized,
    "mediation": mediation.mediation,
    "concordance": survival.concordance,
    "calibration": prediction.calibration,
    "recalibration": prediction.recalibration,
    "calibration_slope": prediction.recalibration,
    "joint_groups": groups.joint_groups,
    "ordered_groups": groups.joint_groups,
    "site": sites.site,
    "time_dependent": regression.cox,
    "table_one": clinical.table_one,
    "univariable": clinical.univariable,
    "missing_data": clinical.missing_data,
    "decision_curve": clinical.decision_curve,
    "risk_difference": absolute.risk_difference,
    "censoring": absolute.censoring,
    "tipping_point": absolute.tipping_point,
    "tipping_covariates": imputed.tipping_covariates,
}
DESCRIBING = ("table_one", "missing_data")
"""Methods that make no comparison, and therefore need neither large groups nor events."""
