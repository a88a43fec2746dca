"""Specification curve of a claim under every registered choice: estimates, sign and spread."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sage.core.errors import InputError
from validation.contracts.registered import SEARCHING
from validation.controls.curve import (
    cox_model,
    fit_specification_curve,
    leave_one_out,
    linear_model,
    logistic_model,
)
from validation.controls.run import all_layers
from validation.controls.unadjusted import add_unadjusted
from validation.core.hypothesis import Comparison, CutRule, Direction
from validation.inputs.population import Cut, cut_for, expose, exposure_values
from validation.inputs.study import Study
from validation.results.controls import ControlStatus, Specifications
from validation.results.results import Effect

if TYPE_CHECKING:
    from validation.controls.curve import Model, Specification, SpecificationCurve
    from validation.statistics.base import BoolArray, FloatArray


CLAIMED = "as claimed"
"""Name of the claim's own cuts if each exposure has its own rule, unlike in the curve."""


def specification(study: Study, primary: Effect) -> tuple[Specifications, SpecificationCurve]:
    """Fit every registered specification and count those with the expected sign.

    It is the sign of the primary estimate if the claim names no direction.

    Raises `InputError` if no specification could be estimated.
    """
    contract = study.contract
    known = _outcome_rows(study)
    own_cut = _own_cut(study)
    choices = _choices(study, known)
    curve = fit_specification_curve(_model(study, known), *choices, alpha=contract.rules.alpha)
    sites: tuple[Specification, ...] = ()
    if contract.site is not None and own_cut in choices.exposures:
        sites = _leave_out_sites(study, known, choices, own_cut)
    added, rows = add_unadjusted(study, {"cut-point": own_cut, "follow-up": "all"})
    curve = replace(curve, beside=(*sites, *rows))
    higher = study.contract.direction is Direction.HIGHER_RISK
    if study.contract.direction is Direction.EITHER:
        higher = primary.distance_from_null(primary.value) > 0
    found = _summary(study, curve, own_cut, higher, sites)
    return found.model_copy(update={"unadjusted": added}), curve


def _outcome_rows(study: Study) -> BoolArray:
    """Return the (n,) mask of patients whose primary outcome is known."""
    value, event = study.outcome(study.contract.primary_test.endpoint)
    known = ~np.isnan(value)
    return known if event is None else known & ~np.isnan(event)


class _Choices(NamedTuple):
    """The registered choices by label, over the patients whose outcome is known."""

    exposures: dict[str, FloatArray]
    covariates: dict[str, Any]
    follow_up: dict[str, float | None]
    exclusions: dict[str, BoolArray | None]
    strata: dict[str, Any]


def _choices(study: Study, known: BoolArray) -> _Choices:
    plan = study.contract.specification
    endpoint = study.contract.primary_test.endpoint
    exposures: dict[str, FloatArray] = {}
    for rule in plan.cuts:
        cuts = _cuts(study, rule)
        if cuts is not None:
            exposures[rule.value] = _exposure(study, cuts)[known]
    if _own_cut(study) == CLAIMED:
        exposures[CLAIMED] = _exposure(study, study.cuts)[known]
    sets: dict[str, Any] = {}
    for keys in plan.covariate_sets:
        X, names = study.design(keys, known, missing=True)
        sets[_labels(study, keys) if names else "none"] = (names, X) if names else None
    if study.outcome(endpoint)[1] is None:
        return _Choices(exposures, sets, {"all": None}, {"none": None}, {"none": None})
    follow_up = {
        "all" if month is None else f"{month:g} months": month for month in plan.follow_up_months
    }
    exclusions = {
        "none" if months == 0 else f"under {months:g} month": None
        if months == 0
        else study.months_followed(endpoint)[known] >= months
        for months in plan.exclude_first_months
    }
    strata = {}
    for keys in plan.strata_sets:
        layers = all_layers(study) if keys else None
        strata[_labels(study, keys) or "none"] = None if layers is None else layers[known]
    return _Choices(exposures, sets, follow_up, exclusions, strata)


def _leave_out_sites(
    study: Study, known: BoolArray, choices: _Choices, own_cut: str
) -> tuple[Specification, ...]:
    """Estimate the effect with the claim's own cut and each site left out in turn."""
    layers = all_layers(study)
    column = study.rows.loc[known, study.contract.site]
    return leave_one_out(
        _model(study, known),
        choices.exposures[own_cut],
        choices.covariates,
        column.astype(object).where(column.notna(), None),
        None if layers is None else layers[known],
        choices={"cut-point": own_cut, "follow-up": "all"},
    )


def _summary(
    study: Study,
    curve: SpecificationCurve,
    own_cut: str,
    expected: bool,
    sites: tuple[Specification, ...],
) -> Specifications:
    contract = study.contract
    kept = [specification for specification in curve.specifications if specification.ok]
    if not kept:
        raise InputError("no specification could be estimated")
    agree = [found for found in kept if (found.value > curve.null) == expected]
    alone = [specification for specification in sites if specification.ok]
    same = sum((found.value > curve.null) == expected for found in alone)
    first = {"cut-point": own_cut, "covariates": "none", "follow-up": "all"}
    first |= {"exclusions": "none", "strata": _labels(study, contract.strata) or "none"}
    own = any(
        all(str(first.get(key)) == value for key, value in choices.items())
        for specification in kept
        for choices in (specification.choices, *specification.same)
    )
    # A searched cut-point or a spline is not among the curve's choices.
    searched = contract.exposures[0].cut not in contract.specification.cuts
    small = sum(specification.p < contract.rules.alpha for specification in agree)
    return Specifications(
        status=ControlStatus.RAN,
        expected_sign=len(agree) / len(kept),
        own=own or searched,
        n=len(kept),
        failed=curve.failed,
        significant=small / len(kept),
        median=float(curve.median),
        lowest=float(kept[0].value),
        highest=float(kept[-1].value),
        left_out=len(alone) if sites else None,
        left_out_lowest=min((specification.value for specification in alone), default=None),
        left_out_highest=max((specification.value for specification in alone), default=None),
        left_out_sign=same / len(alone) if alone else None,
    )


def _own_cut(study: Study) -> str:
    """Return the curve's name for the claim's own cut rule; `CLAIMED` if there are several."""
    rules = {str(use.cut) for use in study.contract.exposures}
    slope = study.contract.comparison in (Comparison.PER_SD, Comparison.PER_DOUBLING)
    if slope and not rules & set(SEARCHING):
        return CutRule.CONTINUOUS.value
    return rules.pop() if len(rules) == 1 else CLAIMED


def _labels(study: Study, keys: tuple[str, ...]) -> str:
    found = [
        variable.label
        for key in keys
        for variable in study.contract.variables
        if variable.key == key
    ]
    return ", ".join(f"{label}" for label in dict.fromkeys(found))


def _model(study: Study, known: BoolArray) -> Model:
    """Build the model of the primary endpoint for the specification curve."""
    endpoint = study.contract.primary_test.endpoint
    value, event = study.outcome(endpoint)
    if event is not None:
        limit = study.contract.rules.events_per_covariate
        flags = (event[known] == 1).astype(float)
        return cox_model(
            value[known],
            flags,
            events_per_term=limit,
            entry=study.entry(endpoint, known),
            cluster=study.clusters(known),
        )
    if study.contract.endpoint(endpoint).kind == "binary":
        return logistic_model(value[known])
    return linear_model(value[known])


def _cuts(study: Study, rule: CutRule) -> tuple[Cut, ...] | None:
    """Cut all exposures by a rule; return None if the rule does not apply to them.

    The claim's own cuts are reused unchanged: a confirmation part has those of the discovery part.
    """
    uses = study.contract.exposures
    if rule.value == _own_cut(study) == study.cuts[0].rule.value:
        return study.cuts
    if rule is CutRule.FIXED and any(use.threshold is None for use in uses):
        return None
    try:
        return tuple(
            cut_for(study.contract.comparison, exposure_values(study.rows, use), use, rule)
            for use in uses
        )
    except InputError:
        return None


def _exposure(study: Study, cuts: tuple[Cut, ...]) -> FloatArray:
    """Return the (n,) exposure under these cuts; (n, 3) for a product with both main effects."""
    contract = study.contract
    values = tuple(exposure_values(study.rows, use) for use in contract.exposures)
    comparison = contract.comparison
    slope = comparison in (Comparison.PER_SD, Comparison.PER_DOUBLING)
    if slope and cuts[0].rule is not CutRule.CONTINUOUS:
        comparison = Comparison.EXTREMES
    exposed = expose(comparison, contract.exposures, values, cuts)
    return np.column_stack([exposed.x, *exposed.model_parts]) if exposed.model_parts else exposed.x
