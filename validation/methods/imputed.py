"""Adjusted models with multiply imputed covariates, pooled by Rubin's rules.

The outcome is included among the predictors of missing values (White and Royston 2009,
Statistics in Medicine); exposure and outcome themselves are never imputed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from sage.core.errors import InputError
from validation.contracts.contract import TestPlan
from validation.inputs.study import Study
from validation.methods.shared import Fitter, bearable, fitter_of, outcome_of, row_of, slug
from validation.results.results import Book, Effect, TestOutcome, effect_text, p_is, p_text
from validation.statistics.imputation import impute, pool

if TYPE_CHECKING:
    from validation.results.results import AnalysisResult
    from validation.statistics.base import BoolArray, FloatArray
    from validation.statistics.imputation import Pooled

SHIFTS = (1.0, 2.0)
"""Shifts of what is missing (SD, or log odds) at which effects are tabulated; none is larger."""
FRAGILE = 0.5
"""Shift within which a tipping point limits the claim."""
HALVINGS = 5
"""Bisections of a tipping point between two tabulated shifts."""
COPIES, CYCLES = 20, 3
"""Imputations for each shift, and cycles of the chained equations if several columns have gaps."""


def imputes(study: Study, plan: TestPlan) -> bool:
    """Check whether the contract imputes and the test has covariates and one exposure effect."""
    return (
        plan.within is None
        and plan.method != "time_dependent"
        and study.contract.missing.policy == "multiple_imputation"
        and bool(plan.covariates)
    )


@dataclass
class _Imputation:
    """Model of the endpoint on imputed covariates; `plain` is the exposure's column."""

    keep: BoolArray
    model: Fitter
    terms: list[str]
    plain: FloatArray
    missing: BoolArray
    names: tuple[str, ...]
    pooled: Callable[[FloatArray | None], Pooled]

    def effect(self, found: Pooled) -> Effect:
        """Return the pooled effect of the exposure."""
        ends = np.array([found.value[0], found.lower[0], found.upper[0]])
        ends = ends if self.model.scale == "difference (SD)" else np.exp(ends)
        value, lower, upper = (float(end) for end in ends)
        return Effect(value=value, lower=lower, upper=upper, scale=self.model.scale)


def _imputation(study: Study, plan: TestPlan, notes: list[str], m: int, cycles: int) -> _Imputation:
    keep = study.complete(plan.endpoint, plan.strata)
    model = fitter_of(study, plan, keep, notes)
    bearable(study, plan)
    seed = study.contract.seed
    Z, names = study.design(plan.covariates, keep, missing=True)
    main = [(name, part[keep]) for name, part in study.adjusters()]
    first = np.column_stack([study.exposed.x[keep], *(part for _, part in main)])
    terms = [study.first_term, *(name for name, _ in main), *names]
    helpers = np.column_stack([first, model.predictors])
    missing = np.isnan(Z)

    def pooled(shift: FloatArray | None) -> Pooled:
        copies = impute(Z, names, outcome=helpers, m=m, cycles=cycles, seed=seed, shift=shift)
        fits = [model.fit(np.column_stack([first, copy]), terms) for copy in copies]
        return pool(
            np.vstack([fit.coef for fit in fits]),
            np.vstack([fit.se**2 for fit in fits]),
            complete_df=float(model.size) - len(terms),
        )

    return _Imputation(keep, model, terms, first[:, 0], missing, names, pooled)


def imputed(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    """Fit the endpoint's model on every completed copy of the covariates, and pool the fits."""
    notes, copies = list[str](), study.contract.missing.imputations
    filled = _imputation(study, plan, notes, copies, 10)
    pooled, scale = filled.pooled(None), filled.model.scale
    found = np.column_stack([pooled.value, pooled.lower, pooled.upper])
    found = found if scale == "difference (SD)" else np.exp(found)
    effect = filled.effect(pooled)
    book.add_effect(plan.id, effect, float(pooled.p[0]))
    tables[plan.id] = [
        row_of(name, numbers[0], numbers[1], numbers[2], p, scale)
        for name, numbers, p in zip(filled.terms, found, pooled.p, strict=True)
    ]
    return outcome_of(
        plan,
        filled.keep,
        filled.model.events,
        notes=[
            f"{copies} imputations of the covariates, pooled by Rubin's rules",
            *dict.fromkeys(notes),
        ],
        effect=effect,
        p=float(pooled.p[0]),
        df=1,
    )


def tipping_covariates(
    study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]
) -> TestOutcome:
    """Shift missing covariates until the adjusted effect gains or loses significance.

    Each covariate in turn is imputed as from patients who are otherwise alike, plus a shift: of
    every missing value alike, or times the exposure (of exposed patients only), which confounds
    most. Shifts are in standard deviations, or in log odds of a level.

    Raises `InputError` if no covariate is missing.
    """
    notes: list[str] = []
    keep = study.complete(plan.endpoint, plan.strata)
    holes = int(np.isnan(study.design(plan.covariates, keep, missing=True)[0]).any(axis=0).sum())
    if not holes:
        raise InputError("no covariate is missing, so nothing is assumed of it")
    filled = _imputation(study, plan, notes, COPIES, CYCLES if holes > 1 else 1)
    gaps = filled.missing.sum(axis=0)
    alpha, plain = study.contract.rules.alpha, filled.pooled(None)
    effect, p = filled.effect(plain), float(plain.p[0])

    def changed(there: Pooled) -> bool:
        turned = p < alpha and there.value[0] * plain.value[0] < 0
        return bool(turned or (there.p[0] < alpha) != (p < alpha))

    rows = [_row("as in patients who are otherwise alike", effect, p)]
    tips: list[tuple[float, str]] = []
    whose = "in exposed patients" if study.exposed.grouped else "for each unit of the exposure"
    sides = (("alike", np.ones_like(filled.plain)), ("exposed", filled.plain))
    for (column, (side, by)), sign in product(product(np.flatnonzero(gaps), sides), (-1.0, 1.0)):
        name = filled.names[column].removesuffix(" (per SD)")
        unit = "SD" if name != filled.names[column] else "log odds"
        way = f"{unit} {'higher' if sign > 0 else 'lower'}"
        way += f" {whose}" if side == "exposed" else ""
        shift = np.zeros(filled.missing.shape)
        shift[:, column] = sign * by
        inside, outside = 0.0, math.nan
        for size in SHIFTS:
            there = filled.pooled(size * shift)
            label = f"missing {name} is {size:g} {way}"
            rows.append(_row(label, filled.effect(there), float(there.p[0])))
            if changed(there):
                outside = size
                break
            inside = size
        for _ in range(HALVINGS if math.isfinite(outside) else 0):
            middle = (inside + outside) / 2
            if changed(filled.pooled(middle * shift)):
                outside = middle
            else:
                inside = middle
        key = f"{plan.id}.{slug(name)}.{side}.{'higher' if sign > 0 else 'lower'}"
        tip = outside if math.isfinite(outside) else None
        none = f"none within {SHIFTS[-1]:g} {unit}"
        book.add(key, tip, unit, none if tip is None else f"{tip:.2f} {unit}")
        if tip is not None:
            tips.append((tip, f"if missing {name} is {tip:.2f} {way}"))
    tables[plan.id] = rows
    nearest = min(tips, default=(0.0, f"with no shift within {SHIFTS[-1]:g} SD or log odds"))[1]
    text = f"{effect_text(effect)}, {p_is(p)} with imputed covariates; "
    text += f"{'not ' * (p < alpha)}significant {nearest}"
    book.add(f"{plan.id}.sensitivity", effect.value, effect.scale, text)
    counts = ", ".join(f"{name} {gap}" for name, gap in zip(filled.names, gaps, strict=True) if gap)
    notes = list(dict.fromkeys([f"missing: {counts}; {COPIES} imputations for each shift", *notes]))
    return outcome_of(plan, filled.keep, filled.model.events, p=p, notes=notes)


def _row(label: str, effect: Effect, p: float) -> dict[str, str]:
    text = effect_text(effect).removeprefix(f"{effect.scale} ")
    return {"assumption": label, f"{effect.scale} (95% CI)": text, "p": p_text(p)}


def covariate_limits(analysis: AnalysisResult, alpha: float) -> list[str]:
    """List the limit that small shifts of missing covariates set to a claim."""
    test, numbers = analysis.test("tipping_covariates"), analysis.numbers
    if test is None or test.p is None or test.p >= alpha:
        return []
    near = [
        number.value
        for key, number in numbers.items()
        if key.startswith("tipping_covariates.") and key.endswith((".higher", ".lower"))
    ]
    if min((size for size in near if size is not None), default=math.inf) >= FRAGILE:
        return []
    return [f"rests on missing covariates: {numbers['tipping_covariates.sensitivity'].text}"]
