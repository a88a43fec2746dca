"""Tests for binary and continuous outcomes, and nested models for any outcome."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from sage.core.errors import InputError
from validation.contracts.contract import Scale, TestPlan
from validation.inputs.study import Study
from validation.methods.imputed import imputed, imputes
from validation.methods.shared import (
    effect_of,
    fitter_of,
    layers_of,
    matrix,
    outcome_of,
    row_at,
    row_of,
    rows_of,
    slug,
    wald_outcome,
)
from validation.results.results import Book, Effect, TestOutcome
from validation.statistics.base import chi2_p
from validation.statistics.cox import cox

if TYPE_CHECKING:
    from validation.statistics.base import BoolArray, FloatArray


def fisher(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    """Run Fisher's exact test for exposure and outcome."""
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
        notes.append("Firth's penalty: nobody in a cell of the table; p is Fisher's")
    book.add_effect(plan.id, effect, found.p)
    rows = []
    names = (("exposed", study.contract.exposed), ("reference", study.contract.reference))
    for (name, label), (yes, no) in zip(names, counts, strict=True):
        share = yes / (yes + no)
        text = f"{yes} of {yes + no} ({100 * share:.0f}%)"
        book.add(f"{plan.id}.{name}.n", yes + no, "patients")
        book.add(f"{plan.id}.{name}.events", yes, "patients")
        book.add(f"{plan.id}.{name}.share", share, "share", text)
        rows.append({"group": label, "with": text})
    tables[plan.id] = rows
    return outcome_of(plan, keep, y, effect=effect, p=found.p, notes=notes)


def logistic(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    """Fit a logistic regression for the outcome."""
    if imputes(study, plan):
        return imputed(study, plan, book, tables)
    keep, X, names, notes = matrix(study, plan)
    model = fitter_of(study, plan, keep, notes)
    return wald_outcome(plan, model.fit(X, names), names, model.scale, notes, book, tables)


def linear(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    """Estimate the difference in standard deviations of the outcome by least squares.

    The statistic of a rank test is the probability that an exposed patient has the higher
    value.
    """
    from validation.statistics.continuous import linear, rank_test

    if imputes(study, plan):
        return imputed(study, plan, book, tables)
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
        ranks = rank_test(y, X[:, 0])
        p, statistic = ranks.test.p, ranks.superiority
    book.add_effect(plan.id, effect, p)
    return outcome_of(plan, keep, effect=effect, p=p, statistic=statistic, notes=notes)


def nested_models(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    """Compare the covariate model with and without all exposures; report every term.

    Hazard and logistic models are compared by the likelihood ratio, least squares by the
    F-test. The effect and its direction are those of the exposures' mean, per standard
    deviation, with each exposure oriented toward its exposed level. A model with too few
    events for its terms is refused: the likelihood ratio of a penalized fit does not follow a
    chi-squared distribution.
    """
    if study.exposed.second:
        return _added(study, plan, book, tables)
    keep, X, names, notes = matrix(study, plan)
    Z, uses = X[:, 1:], study.contract.exposures
    terms = [part[keep] for part in study.exposed.parts]
    full, labels = np.column_stack([*terms, Z]), [use.label for use in uses] + names[1:]
    compare, scale = _nested_models(study, plan, keep, notes)
    found = compare(X, Z, full, [*names], labels, len(terms))
    effect = effect_of(found.mean, scale)
    book.add_effect(plan.id, effect, found.p)
    book.add(f"{plan.id}.statistic", found.statistic, f"{found.name}, {len(terms)} df")
    for at, use in enumerate(uses):
        term = effect_of(found.full, scale, at)
        book.add_effect(f"{plan.id}.terms.{slug(use.label)}", term, float(found.full.p[at]))
    mean = row_at(found.mean, "mean of the exposures (per SD)", scale)
    tables[plan.id] = [*rows_of(found.full, labels, scale), mean]
    return outcome_of(
        plan,
        keep,
        found.events,
        effect=effect,
        p=found.p,
        statistic=found.statistic,
        df=len(terms),
        notes=[
            *notes,
            f"p tests all {len(terms)} terms ({found.name}); the effect is their mean's",
        ],
    )


def _added(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    """Test the gain from adding the second exposure to the first, in all patients.

    The other models from `compare_pair` are also reported, with the covariates in each.
    """
    keep, X, names, notes = matrix(study, plan)
    pair = compare_pair(
        study, plan, keep, X[:, 1:2], X[:, :1], X[:, 2:], [names[1], names[0], *names[2:]],
        book, notes, main="second.beside",
    )  # fmt: skip
    tables[plan.id], primary = pair.rows, pair.found.get("second.beside")
    if primary is None:
        raise InputError(notes[-1])
    return outcome_of(
        plan,
        keep,
        primary.events,
        effect=effect_of(primary.mean, pair.scale),
        p=primary.p,
        statistic=primary.statistic,
        df=1,
        notes=[*notes, f"p compares {names[1]} + {names[0]} with {names[1]} ({primary.name})"],
    )


@dataclass(frozen=True)
class Pair:
    """Models for two exposures, by key, and their table rows."""

    found: dict[str, _Nested]
    rows: list[dict[str, str]]
    scale: Scale


def compare_pair(
    study: Study,
    plan: TestPlan,
    keep: BoolArray,
    a: FloatArray,
    b: FloatArray,
    Z: FloatArray,
    names: list[str],
    book: Book,
    notes: list[str],
    *,
    main: str = "",
) -> Pair:
    """Estimate two exposures separately (`first`), jointly (`first.beside`), and their `product`.

    Each is tested against the model without its term. A model that cannot be estimated is
    noted.

    Parameters
    ----------
    a, b : (kept, 1) exposures
    Z : (kept, k) covariates in every model
    names : names of both exposures and of the covariates
    main : key of the model whose numbers use the plan's own key
    """
    compare, scale = _nested_models(study, plan, keep, [])
    first, second, *covariates = names
    product = f"{first} × {second}"
    pair = Pair({}, [], scale)
    models: tuple[tuple[str, str, FloatArray, list[str], FloatArray], ...] = (
        ("first", first, a, [], Z),
        ("second", second, b, [], Z),
        ("first.beside", first, a, [second], np.column_stack([b, Z])),
        ("second.beside", second, b, [first], np.column_stack([a, Z])),
        ("product", product, a * b, [first, second], np.column_stack([a, b, Z])),
    )
    for key, term, column, held, base in models:
        whole, labels = np.column_stack([column, base]), [term, *held, *covariates]
        try:
            found = compare(whole, base, whole, labels, labels, 1)
        except InputError as error:
            notes.append(f"{' + '.join([*held, term])} could not be estimated: {error}")
            continue
        effect, name = effect_of(found.mean, scale), plan.id if key == main else f"{plan.id}.{key}"
        book.add_effect(name, effect, found.p)
        book.add(f"{name}.statistic", found.statistic, f"{found.name}, 1 df")
        row = row_of(term, effect.value, effect.lower, effect.upper, found.p, scale)
        pair.rows.append({"model": " + ".join([*held, term]), "against": " + ".join(held)} | row)
        pair.found[key] = found
    return pair


@dataclass(frozen=True)
class _Nested:
    """Comparison of two nested models: the fits of all terms and of their mean, and the test."""

    full: Any
    mean: Any
    statistic: float
    p: float
    name: str
    events: int | None


def _nested_models(
    study: Study, plan: TestPlan, keep: Any, notes: list[str]
) -> tuple[Callable[..., _Nested], Scale]:
    """Fit and compare an endpoint's nested models, and choose the scale of their effects."""
    kind = study.contract.endpoint(plan.endpoint).kind
    limit = study.contract.rules.events_per_covariate

    def by_likelihood(
        fit: Callable[..., Any], events: int, rarer: int, X: FloatArray, Z: FloatArray,
        full: FloatArray, names: Any, labels: Any, k: int,
    ) -> _Nested:  # fmt: skip
        if rarer / full.shape[1] < limit:
            raise InputError(
                f"{rarer} events for {full.shape[1]} terms; a test of nested models requires "
                f"{limit:g} per term. Use fewer exposures or covariates"
            )
        found = fit(full, labels)
        base = fit(Z, names[1:]).loglik if Z.shape[1] else found.loglik_null
        statistic = 2 * (found.loglik - base)
        return _Nested(found, fit(X, names), statistic, chi2_p(statistic, k), RATIO, events)

    def differences(
        X: FloatArray, Z: FloatArray, full: FloatArray, names: Any, labels: Any, k: int
    ) -> _Nested:
        from scipy.stats import f as f_distribution

        from validation.statistics.continuous import linear

        y = study.outcome(plan.endpoint)[0][keep]
        y = y / float(y.std(ddof=1))

        def residual_sum(block: FloatArray) -> float:
            M = np.column_stack([np.ones(len(y)), block])
            residual = y - M @ np.linalg.lstsq(M, y, rcond=None)[0]
            return float(residual @ residual)

        free = len(y) - full.shape[1] - 1
        statistic = (residual_sum(Z) - residual_sum(full)) / k / (residual_sum(full) / free)
        p = float(f_distribution.sf(statistic, k, free))
        fit, mean = linear(y, full, labels, robust=True), linear(y, X, names, robust=True)
        return _Nested(fit, mean, statistic, p, "F", None)

    if kind == "continuous":
        return differences, "difference (SD)"
    if kind == "binary":
        from validation.statistics.binary import logistic

        y = study.outcome(plan.endpoint)[0][keep]
        events = int((y == 1).sum())
        rarer = min(events, int((y == 0).sum()))
        return partial(by_likelihood, partial(logistic, y), events, rarer), "odds ratio"
    t, e, entry = study.at_risk(plan.endpoint, keep)
    layers, events = layers_of(study, plan, keep, e, notes), int(e.sum())
    model = partial(cox, t, e, strata=layers, entry=entry)
    return partial(by_likelihood, model, events, events), "hazard ratio"


RATIO = "likelihood ratio"
