"""Assessment of predictions: the adjusted model's calibration, and that of a published score."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from sage.core.errors import InputError
from sage.core.seeds import generator
from validation.contracts.contract import TestPlan
from validation.inputs.prediction import FOLLOWED, PredictionModel
from validation.inputs.study import Study
from validation.methods.clinical import outcome_by
from validation.methods.predicting import design_for, recut, terms_of, unknown_levels
from validation.methods.shared import bearable, fit_cox, matrix, outcome_of
from validation.results.results import Book, Effect, TestOutcome
from validation.statistics.batched import batched_cox
from validation.statistics.calibration import (
    baseline_hazard,
    calibration_slope,
    equivalence_p,
    logistic_recalibration,
    observed_ratio,
)
from validation.statistics.calibration import calibration as calibrate
from validation.statistics.cox import cox
from validation.statistics.errors import StatisticsError

if TYPE_CHECKING:
    from validation.statistics.base import BoolArray, FloatArray

RESAMPLES = 200
MOST_FAILED = 0.1
EARLIER = (6, 12, 18, 24, 36, 48)
"""Months at which the baseline hazard is also stored, for cohorts with shorter follow-up."""


def calibration(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    """Compare predicted with observed risk at the contract's horizon.

    If the model is developed here, slope and concordance are corrected for optimism
    (Harrell's bootstrap), while the risk groups are apparent, not corrected. If a model from
    an earlier part is given, its external calibration is assessed.
    """
    if study.model is not None:
        return _external(study, plan, study.model, book, tables)
    return _develop(study, plan, book, tables)


def _develop(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    keep, X, names, notes = matrix(study, plan)
    t, e = study.follow_up(plan.endpoint, keep)
    columns = study.columns(plan.covariates, keep)
    parts = [name for name, _ in study.adjusters()]
    strata = [key for key in plan.covariates if key not in study.contract.covariates]
    if strata:
        named = " and ".join(
            use.label
            for use in study.contract.variables
            if use.role == "stratum" and use.key in strata
        )
        notes.append(
            f"{named} is a covariate here, where the claim's tests stratify by it: a predicted "
            "risk needs a single baseline hazard"
        )
    fit = fit_cox(t, e, X, names, study, notes)
    horizon = min(study.contract.rules.rmst_months, float(np.quantile(t, 0.75)))
    slope, harrell, apparent = _optimism(t, e, X, names, fit, study.contract.seed, horizon)
    linear = (X * fit.coef).sum(axis=1)
    model = PredictionModel(
        endpoint=plan.endpoint,
        cohort=study.contract.cohort,
        cuts=study.cuts,
        levels={
            key: tuple(sorted({str(item) for item in study.rows.loc[keep, key]}))
            for key in dict.fromkeys(column.key for column in columns if column.level is not None)
        },
        horizon=horizon,
        baseline=baseline_hazard(t, e, linear, horizon),
        earlier=tuple(
            (float(when), baseline_hazard(t, e, linear, float(when)))
            for when in EARLIER
            if when < horizon
        ),
        terms=terms_of(fit, study.first_term, parts, columns),
        n=len(t),
        events=int(e.sum()),
        shrinkage=slope,
    )
    found = calibrate(t, e, model.survival(X), horizon)
    book.add(f"{plan.id}.horizon", horizon, "months")
    book.add(f"{plan.id}.slope", slope, "calibration slope")
    book.add(f"{plan.id}.harrell", harrell, "concordance")
    book.add(f"{plan.id}.harrell_apparent", apparent, "concordance")
    book.add(f"{plan.id}.brier", found.brier, "Brier score", f"{found.brier:.3f}")
    reference = found.brier_reference
    book.add(f"{plan.id}.brier_reference", reference, "Brier score", f"{reference:.3f}")
    tables[plan.id] = _rows(found)
    study.model = model
    notes.append(
        f"slope and concordance corrected for optimism ({RESAMPLES} bootstrap resamples); the "
        "groups of risk and the Brier score are apparent: the model was fitted to these patients"
    )
    return outcome_of(plan, len(t), e, notes=notes)


def _external(
    study: Study, plan: TestPlan, model: PredictionModel, book: Book, tables: dict[str, Any]
) -> TestOutcome:
    from validation.statistics.concordance import harrell

    bearable(study, plan)
    keep, X = design_for(study, model)
    t, e = study.follow_up(model.endpoint, keep)
    least = study.contract.rules.min_events
    if e.sum() < least:
        raise InputError(
            f"{int(e.sum())} events among {len(t)} patients with values for all model terms; the "
            f"contract requires at least {least}"
        )
    asked, model = model.horizon, model.at_horizon_of(t)
    found = calibrate(t, e, model.survival(X), model.horizon)
    book.add(f"{plan.id}.horizon", model.horizon, "months")
    book.add(f"{plan.id}.slope", found.slope.value, "calibration slope")
    book.add(f"{plan.id}.slope_lower", found.slope.lower, "calibration slope")
    book.add(f"{plan.id}.slope_upper", found.slope.upper, "calibration slope")
    book.add(f"{plan.id}.ratio", found.ratio, "observed / expected")
    book.add(f"{plan.id}.harrell", harrell(t, e, model.linear(X)), "concordance")
    book.add(f"{plan.id}.brier", found.brier, "Brier score", f"{found.brier:.3f}")
    reference = found.brier_reference
    book.add(f"{plan.id}.brier_reference", reference, "Brier score", f"{reference:.3f}")
    tables[plan.id] = _rows(found)
    notes = [
        f"external: coefficients, scales and baseline hazard of the model of {model.n} patients "
        f"({model.events} events) of {model.cohort}; nothing is fitted here"
    ]
    lost = int(study.complete(model.endpoint).sum()) - len(t)
    if lost:
        notes.append(f"{lost} patients excluded: a term of the model is missing")
    if model.horizon < asked:
        notes.append(
            f"risks by {model.horizon:g} months, since fewer than {FOLLOWED} patients are followed "
            f"beyond {asked:g}"
        )
    if recut(study, model):
        notes.append("the exposure is cut (or standardized) again in these patients")
    strange = int((study.complete(model.endpoint) & unknown_levels(study, model)).sum())
    if strange:
        notes.append(f"{strange} patients excluded: the model does not know their levels")
    return outcome_of(plan, len(t), e, notes=notes)


def scored(
    study: Study, plan: TestPlan
) -> tuple[BoolArray, FloatArray, FloatArray, FloatArray, float]:
    """Return a score's patients, their times and events, and their predicted risks by a time.

    Raises `InputError` if the outcome is known for too few of them.
    """
    keep, risk = study.risks(plan.endpoint)
    time, event, horizon = outcome_by(study, plan, keep)
    when = horizon if math.isfinite(horizon) else 1.0
    events, free = int(event[time <= when].sum()), int((time > when).sum())
    least = study.contract.rules.min_events
    if events < least or free < FOLLOWED:
        raise InputError(
            f"{events} patients have the event and {free} are free of it after {horizon:g} months; "
            f"at least {least} and {FOLLOWED} are required"
        )
    return keep, time, event, risk, when


def recalibration(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    """Estimate the ratio of observed to expected events, or the calibration slope.

    The slope's p is for its margins, and the ratio's for both. `events` are by the horizon.
    """
    given = study.contract.hypothesis.calibration
    keep, time, event, risk, when = scored(study, plan)
    assert given is not None
    if given.horizon is None:
        intercept, slope = logistic_recalibration(event, risk)
    else:
        intercept, slope = None, calibration_slope(time, event, risk, when)
    found, scale = slope, "calibration slope"
    p = equivalence_p(slope.value, slope.se, given.slope)
    if plan.method == "recalibration":
        found, scale = observed_ratio(time, event, risk, when), "observed/expected ratio"
        margins = (math.log(given.ratio[0]), math.log(given.ratio[1]))
        p = max(p, equivalence_p(math.log(found.value), found.se, margins))
        book.add(f"{plan.id}.expected", float(risk.mean()), "share")
        book.add(f"{plan.id}.observed", float(risk.mean()) * found.value, "share")
        if intercept is not None:
            book.add(f"{plan.id}.intercept", intercept, "log odds")
    limits = {name: getattr(found, name) for name in ("value", "lower", "upper")}
    effect = Effect.model_validate({**limits, "scale": scale})
    book.add_effect(plan.id, effect, p)
    return outcome_of(plan, keep, event[time <= when], effect=effect, p=p)


def _rows(found: Any) -> list[dict[str, str]]:
    """Tabulate predicted-risk groups, lowest first."""
    order = np.argsort(found.predicted)
    return [
        {
            "group": f"risk group {place} of {len(order)}",
            "n": str(int(found.n[at])),
            "predicted risk": f"{100 * found.predicted[at]:.0f}%",
            "observed risk (95% CI)": f"{100 * found.observed[at]:.0f}% "
            f"({100 * found.lower[at]:.0f} to {100 * found.upper[at]:.0f}%)"
            if math.isfinite(found.observed[at])
            else "unknown: nobody is followed that long",
        }
        for place, at in enumerate(order, start=1)
    ]


def _optimism(
    t: FloatArray,
    e: FloatArray,
    X: FloatArray,
    names: list[str],
    fit: Any,
    seed: int,
    horizon: float,
) -> tuple[float, float, float]:
    """Compute corrected slope (for events by the horizon), corrected and apparent concordance.

    Each resample's model is applied to the original patients. The corrected slope is the
    average slope there; the optimism of concordance is its average decrease from resample to
    original. All slopes come from one batch of single-covariate Cox models.
    """
    from validation.statistics.concordance import concordant_pairs, harrell

    rng = generator(seed, len(t), 7)
    coefs, chosen = [], []
    for _ in range(RESAMPLES):
        rows = rng.integers(0, len(t), len(t))
        try:
            one = cox(
                t[rows], e[rows], X[rows], names,
                penalty=fit.penalty, interval="wald", start=fit.coef,
            )  # fmt: skip
        except StatisticsError:
            continue
        coefs.append(one.coef)
        chosen.append(rows)
    if len(coefs) < (1 - MOST_FAILED) * RESAMPLES:
        raise InputError(
            f"the model could be fitted in only {len(coefs)} of {RESAMPLES} bootstrap resamples; "
            "there are too few events for its terms to assess calibration"
        )
    # Row by row, so that equal patients remain tied (see `PredictionModel.linear`).
    risks = np.column_stack([(X * coef).sum(axis=1) for coef in coefs])
    spread = risks.std(axis=0)
    until = (e == 1) & (t <= horizon)
    slopes = (
        batched_cox(np.minimum(t, horizon), until, (risks - risks.mean(axis=0)) / spread).coef
        / spread
    )
    kept = np.isfinite(slopes)
    drops = []
    ones = np.ones(len(t))
    for at, rows in enumerate(chosen):
        drawn = np.bincount(rows, minlength=len(t)).astype(float)
        weights = np.column_stack([drawn, ones])
        right, pairs = concordant_pairs(t, e == 1, risks[:, at], weights, weights)
        resampled, original = right / pairs
        drops.append(resampled - original)
    apparent = harrell(t, e, (X * fit.coef).sum(axis=1))
    return float(slopes[kept].mean()), apparent - float(np.mean(drops)), apparent
