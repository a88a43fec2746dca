"""The claim's adjusted model with each related variable that the contract leaves out.

A claim that holds only while such a variable is left out has not been shown to be
independent of it. The data cannot show whether the variable confounds, mediates, or
measures the exposure again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from sage.core.errors import InputError
from validation.contracts.contract import TestPlan
from validation.contracts.registered import ADJUSTED, whole_of
from validation.controls.curve import Specification
from validation.methods import run_method
from validation.results.controls import Unadjusted
from validation.results.results import Book, TestOutcome
from validation.statistics.base import Z95, chi2_p
from validation.statistics.errors import StatisticsError

UNMOVED = 0.1
"""Largest change in an estimate and its interval's width that indicates no confounding."""

if TYPE_CHECKING:
    from validation.contracts.contract import Contract, VariableUse
    from validation.inputs.study import Study
    from validation.results.results import Effect


def add_unadjusted(
    study: Study, choices: Mapping[str, str]
) -> tuple[tuple[Unadjusted, ...], tuple[Specification, ...]]:
    """Estimate the effect with each unadjusted variable in the model, and with all of them.

    Returns the estimates, and their rows in the specification curve under `choices`. The
    joint model includes as many variables as the number of events allows.
    """
    contract = study.contract
    uses = tuple(use for use in contract.variables if use.role == "unadjusted")
    if not uses:
        return (), ()
    plan = _adjusted_plan(contract)
    try:
        registered = run_method(study, plan, Book(), {})
    except InputError as error:
        refused = Unadjusted(labels=tuple(use.label for use in uses), reason=str(error))
        return (refused,), ()
    groups: list[tuple[VariableUse, ...]] = [(use,) for use in uses]
    events = registered.events or registered.n or 0
    room = int(events / contract.rules.events_per_covariate) - len(plan.covariates) - 1
    if len(uses) > 1 and room > 1:
        groups.append(uses[:room])
    found = tuple(_add(study, plan, registered, group) for group in groups)
    labels = {use.key: use.label for use in contract.variables}
    own = ", ".join(labels[key] for key in plan.covariates)
    return found, tuple(
        _row(
            item,
            {
                **choices,
                "exclusions": "none",
                "covariates": " + ".join([own or "none", *item.labels]),
            },
            registered,
        )
        for item in found
    )


def _adjusted_plan(contract: Contract) -> TestPlan:
    """Return the registered adjusted test; without one, a model with only the strata."""
    for plan in contract.tests:
        if plan.id == "adjusted":
            return plan
    primary = contract.primary_test
    whole = whole_of(contract.hypothesis)
    method = whole[0] if whole is not None else ADJUSTED[contract.endpoint(primary.endpoint).kind]
    if contract.hypothesis.time_dependent:
        method = "time_dependent"
    given = {"id": "adjusted", "role": "adjusted", "method": method, "claim": False}
    return primary.model_copy(update=given)


def _add(
    study: Study, plan: TestPlan, registered: TestOutcome, uses: tuple[VariableUse, ...]
) -> Unadjusted:
    """Add variables to the model: for survival endpoints as strata, otherwise as terms."""
    survival = study.contract.endpoint(plan.endpoint).kind == "survival"
    apart = [use.key for use in uses if survival and use.kind == "categorical"][:1]
    terms = [use.key for use in uses if use.key not in apart]
    update = {"covariates": (*plan.covariates, *terms), "strata": (*plan.strata, *apart)}
    labels = tuple(use.label for use in uses)
    try:
        found = run_method(study, plan.model_copy(update=update), Book(), {})
        effect, p = found.effect, found.p
        if found.n != registered.n:
            known = study.rows[[use.key for use in uses]].notna().all(axis=1).to_numpy()
            effect, p = _move(registered, run_method(study.select(known), plan, Book(), {}), found)
    except StatisticsError as error:
        return Unadjusted(labels=labels, reason=str(error), inseparable=len(uses) == 1)
    except InputError as error:
        return Unadjusted(labels=labels, reason=str(error))
    if effect is None or p is None or not math.isfinite(effect.value):
        return Unadjusted(labels=labels, reason="the model gave no estimate")
    lower, upper = (x if math.isfinite(x) else None for x in (effect.lower, effect.upper))
    kept = False
    if (own := registered.effect) is not None:
        was, now = (each.distance_from_null(each.value) for each in (own, effect))
        wide = (1 + UNMOVED) * _width(own)
        kept = abs(now - was) <= UNMOVED * abs(was) and _width(effect) <= wide
    return Unadjusted(labels=labels, value=effect.value, lower=lower, upper=upper, p=p, n=found.n,
                      moved=not kept)  # fmt: skip


def _width(effect: Effect) -> float:
    return effect.distance_from_null(effect.upper) - effect.distance_from_null(effect.lower)


def _move(
    registered: TestOutcome, before: TestOutcome, after: TestOutcome
) -> tuple[Effect | None, float | None]:
    """Change the registered estimate by the change an added variable causes in its patients."""
    effect, z = after.effect, Z95
    if registered.effect is None or before.effect is None or effect is None:
        return None, None
    points = []
    for each in (registered.effect, before.effect, effect):
        points.append((each.distance_from_null(each.value), _width(each) / (2 * z)))
    (own, width), (was, narrow), (now, wide) = points
    value, error = own + now - was, width * wide / narrow
    if not (math.isfinite(value) and math.isfinite(error)):
        return effect, after.p
    limits = [value, value - z * error, value + z * error]
    if effect.null == 1.0:
        limits = [math.exp(limit) for limit in limits]
    moved = effect.model_copy(update=dict(zip(("value", "lower", "upper"), limits, strict=True)))
    return moved, chi2_p((value / error) ** 2, 1)


def _row(found: Unadjusted, choices: dict[str, str], registered: TestOutcome) -> Specification:
    """Return the estimate as a row of the specification curve."""
    value, lower, upper, p = (
        math.nan if number is None else number
        for number in (found.value, found.lower, found.upper, found.p)
    )
    n, events = found.n or registered.n or 0, registered.events or 0
    return Specification(choices, value, lower, upper, p, n, events, found.reason)
