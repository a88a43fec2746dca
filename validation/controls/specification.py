"""Specification curve for a claim: the registered model under every registered choice."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from sage.core.errors import InputError
from validation.contracts.contract import DIFFERENCES, MissingRule, TestPlan
from validation.contracts.registered import ADJUSTED, SEARCHING
from validation.controls.curve import Specification, SpecificationCurve
from validation.controls.unadjusted import add_unadjusted
from validation.core.hypothesis import Comparison, CutRule, Direction
from validation.inputs.population import Cut, Exposed, cut_for, expose, exposure_values
from validation.inputs.study import Study
from validation.methods import METHODS
from validation.results.controls import ControlStatus, Specifications
from validation.results.results import Book, Effect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from validation.statistics.base import BoolArray


CLAIMED = "as claimed"
"""Name for the claim's own cuts if each exposure has its own rule, unlike in the curve."""


def specification(study: Study, primary: Effect) -> tuple[Specifications, SpecificationCurve]:
    """Fit every registered specification and count those with the expected sign.

    If the claim names no direction, the expected sign is that of the primary estimate.

    Raises `InputError` if no specification could be estimated.
    """
    contract = study.contract
    complete = contract.model_copy(update={"missing": MissingRule()})
    study = replace(study, contract=complete)
    null = 0.0 if contract.model_scale in DIFFERENCES else 1.0
    curve = SpecificationCurve.of(_specifications(study), contract.rules.alpha, null)
    sites = tuple(_without_sites(study))
    added, rows = add_unadjusted(
        replace(study, contract=contract), {"cut-point": _own_cut(study), "follow-up": "all"}
    )
    curve = replace(curve, beside=(*sites, *rows))
    higher = contract.direction is Direction.HIGHER_RISK
    if contract.direction is Direction.EITHER:
        higher = primary.distance_from_null(primary.value) > 0
    found = _summary(study, curve, higher, sites)
    return found.model_copy(update={"unadjusted": added}), curve


def _specifications(study: Study) -> Iterator[Specification]:
    """Fit the model under each combination of the registered choices."""
    plan = study.contract.specification
    timed = study.outcome(study.contract.primary_test.endpoint)[1] is not None
    limits = plan.follow_up_months if timed else (None,)
    exclusions = plan.exclude_first_months if timed else (0.0,)
    strata = plan.strata_sets if timed else ((),)
    parts = [
        (
            {
                "follow-up": "all" if limit is None else f"{limit:g} months",
                "exclusions": "none" if least == 0 else f"under {least:g} month",
            },
            *_follow(study, limit, least),
        )
        for limit, least in product(limits, exclusions)
    ]
    for (cut, exposed), keys, (followed, part, rows), layers in product(
        _exposures(study).items(), plan.covariate_sets, parts, strata
    ):
        choices = {"cut-point": cut, "covariates": _labels(study, keys) or "none", **followed}
        if len(strata) > 1:
            choices["strata"] = _labels(study, layers) or "none"
        yield _estimate(replace(part, exposed=exposed.select(rows)), keys, layers, choices)


def _without_sites(study: Study) -> Iterator[Specification]:
    """Fit the claim's own cut with each site left out in turn, under each set of covariates."""
    own, site = _own_cut(study), study.contract.site
    if site is None or own not in (exposures := _exposures(study)):
        return
    study = replace(study, exposed=exposures[own])
    for keys in study.contract.specification.covariate_sets:
        for label in sorted(study.rows[site].dropna().astype(str).unique()):
            rows = (study.rows[site].astype(str) != label).to_numpy()
            choices = {"cut-point": own, "covariates": _labels(study, keys) or "none"}
            choices |= {"follow-up": "all", "exclusions": f"without site {label}"}
            yield _estimate(study.select(rows), keys, study.contract.strata, choices)


def _estimate(
    study: Study, covariates: tuple[str, ...], strata: tuple[str, ...], choices: dict[str, str]
) -> Specification:
    """Fit the registered model for the primary endpoint, regardless of group sizes."""
    contract = study.contract
    endpoint = contract.primary_test.endpoint
    _, event = study.outcome(endpoint)
    method = "cox" if event is not None else ADJUSTED[contract.endpoint(endpoint).kind]
    plan = TestPlan(
        id="specification", role="adjusted", method=method, endpoint=endpoint,
        covariates=covariates, strata=strata,
    )  # fmt: skip
    try:
        found = METHODS[method](study, plan, Book(), {})
    except InputError as refusal:
        keep = study.complete(endpoint, (*covariates, *strata))
        events = 0 if event is None else int((event[keep] == 1).sum())
        reason = f"{getattr(refusal, 'code', 'input')}: {refusal}"
        nan = math.nan
        return Specification(choices, nan, nan, nan, nan, int(keep.sum()), events, reason)
    effect = found.effect
    assert effect is not None and found.p is not None and found.n is not None
    return Specification(
        choices, effect.value, effect.lower, effect.upper, found.p, found.n, found.events or 0
    )


def _follow(study: Study, limit: float | None, least: float) -> tuple[Study, BoolArray]:
    """Truncate follow-up at a limit and drop patients followed for less; return the rows kept."""
    endpoint, rows = study.contract.primary_test.endpoint, study.rows
    keep = np.ones(len(rows), dtype=bool)
    if least > 0:
        keep &= study.months_followed(endpoint) >= least
    if limit is not None:
        time, event = rows[f"{endpoint}.time"], rows[f"{endpoint}.event"]
        cut = {"time": time.clip(upper=limit), "event": event.where(time <= limit, 0.0)}
        rows = rows.assign(**{f"{endpoint}.{name}": column for name, column in cut.items()})
        if f"{endpoint}.entry" in rows:
            keep &= (rows[f"{endpoint}.entry"] < limit).to_numpy()
    return replace(study, rows=rows).select(keep), keep


def _summary(
    study: Study, curve: SpecificationCurve, higher: bool, sites: Sequence[Specification]
) -> Specifications:
    contract, own_cut, kept = study.contract, _own_cut(study), curve.fitted
    if not kept:
        raise InputError("no specification could be estimated")
    alone = SpecificationCurve(tuple(sites), curve.alpha, curve.null)
    values = [item.value for item in alone.fitted]
    first = {"cut-point": own_cut, "covariates": "none", "follow-up": "all"}
    first |= {"exclusions": "none", "strata": _labels(study, contract.strata) or "none"}
    own = any(
        all(str(first.get(key)) == value for key, value in choices.items())
        for item in kept
        for choices in (item.choices, *item.same)
    )
    # A searched cut-point or a spline is not among the curve's choices.
    searched = contract.exposures[0].cut not in contract.specification.cuts
    return Specifications(
        status=ControlStatus.RAN,
        expected_sign=curve.share(higher=higher),
        own=own or searched,
        n=len(kept),
        failed=curve.failed,
        significant=curve.share(higher=higher, below=curve.alpha),
        median=curve.median,
        lowest=kept[0].value,
        highest=kept[-1].value,
        left_out=len(values) if sites else None,
        left_out_lowest=min(values, default=None),
        left_out_highest=max(values, default=None),
        left_out_sign=alone.share(higher=higher) if values else None,
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


def _cuts(study: Study, rule: CutRule) -> tuple[Cut, ...] | None:
    """Cut all exposures by a rule; return None if the rule does not apply to them.

    The claim's own cuts are reused unchanged: a confirmation part uses those from the
    discovery part.
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


def _exposures(study: Study) -> dict[str, Exposed]:
    """Code the exposure under each registered cut that applies, by the cut's name."""
    if study.contract.hypothesis.penalty is not None:  # the score is trained on the claim's coding
        return {_own_cut(study): study.exposed}
    rules = {rule.value: _cuts(study, rule) for rule in study.contract.specification.cuts}
    if _own_cut(study) == CLAIMED:
        rules[CLAIMED] = study.cuts
    return {name: _exposed(study, cuts) for name, cuts in rules.items() if cuts is not None}


def _exposed(study: Study, cuts: tuple[Cut, ...]) -> Exposed:
    """Code the exposure under these cuts."""
    contract = study.contract
    values = tuple(exposure_values(study.rows, use) for use in contract.exposures)
    comparison = contract.comparison
    slope = comparison in (Comparison.PER_SD, Comparison.PER_DOUBLING)
    if slope and cuts[0].rule is not CutRule.CONTINUOUS:
        comparison = Comparison.EXTREMES
    return expose(comparison, contract.exposures, values, cuts)
