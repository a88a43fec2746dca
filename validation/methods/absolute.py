"""Absolute risks in two groups by a horizon, and their assumptions about censored patients.

None of these tests supports a claim: they restate it as a difference in risk, and show
how far the result depends on the reasons for censoring, or on missing outcomes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from sage.core.errors import InputError
from validation.contracts.contract import TestPlan
from validation.inputs.prediction import FOLLOWED
from validation.inputs.study import Study
from validation.methods.shared import fit_cox, fit_logistic, matrix, outcome_of
from validation.results.results import Book, Effect, TestOutcome, effect_text, p_text, percent
from validation.statistics import absolute

if TYPE_CHECKING:
    from validation.contracts.contract import Scale
    from validation.core.types import Number
    from validation.results.results import AnalysisResult
    from validation.statistics.base import BoolArray, Estimate, FloatArray

DELTAS = (0.1, 0.5, 2.0, 10.0)
"""Factors applied to the hazard after censoring, for which risks are tabulated."""
FRAGILE = 2.0
"""Factor below which a tipping point limits the claim."""
HAZARD: Scale = "hazard ratio"
MOST_WEIGHT = 20.0
"""Maximum censoring weight; an estimate with larger weights is considered unreliable."""


def risk_difference(
    study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]
) -> TestOutcome:
    """Standardize the adjusted model's risks over the covariates (g-formula)."""
    keep, X, names, notes = matrix(study, plan)
    if study.contract.endpoint(plan.endpoint).kind == "binary":
        y, horizon = study.outcome(plan.endpoint)[0][keep], math.inf
        fit = fit_logistic(y, X, names, study, notes)
        risks, events = absolute.standardized_odds(y, X, fit), y == 1
    else:
        t, e, entry = study.at_risk(plan.endpoint, keep)
        horizon, events = _horizon(study, t, X[:, 0]), e == 1
        fit = fit_cox(t, e, X, names, study, notes, entry=entry)
        risks = absolute.standardized_hazards(t, events, X, fit, horizon, entry)
    tables[plan.id] = [_row("standardized over the covariates", risks)]
    text = _add_risks(plan.id, risks, horizon, book)
    found = risks.difference
    book.add(f"{plan.id}.summary", found.value, "share", text)
    return outcome_of(plan, keep, events, p=found.p, statistic=found.value, notes=notes)


def censoring(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    """Estimate risks with and without weights for censoring by exposure and covariates.

    Raises `InputError` if too few patients are censored, or if some have too much weight.
    """
    keep, X, names, notes = matrix(study, plan)
    t, flags = study.follow_up(plan.endpoint, keep)
    g = X[:, 0]
    horizon = _horizon(study, t, g)
    event, censored = (flags == 1) & (t <= horizon), (flags != 1) & (t < horizon)
    t, lost, least = np.minimum(t, horizon), int(censored.sum()), study.contract.rules.min_events
    if lost < least * X.shape[1]:
        raise InputError(
            f"{lost} patients censored before {horizon:.0f} months; a censoring model with "
            f"{X.shape[1]} terms requires {least} per term"
        )
    weighed, largest = absolute.weigh_censoring(t, event, censored, X, names)
    if largest > MOST_WEIGHT:
        raise InputError(
            f"one patient would represent {largest:.0f} censored patients; some were almost "
            "certain to be censored, so weights cannot replace them"
        )
    rows = []
    plain, _ = absolute.weigh_censoring(t, event, censored, X[:, :1], names)
    for label, key, given in (("no weights", "plain", plain), ("weighted", "weighted", weighed)):
        ratio = absolute.weighted_hazards(given, X[:, :1], names[:1])
        risks = absolute.weighted_risks(given, g, horizon)
        effect = Effect(value=ratio.value, lower=ratio.lower, upper=ratio.upper, scale=HAZARD)
        book.add_effect(f"{plan.id}.{key}", effect, ratio.p)
        text = effect_text(effect).removeprefix(f"{HAZARD} ")
        rows.append(_row(label, risks) | {f"{HAZARD} (95% CI)": text})
        _add_risks(f"{plan.id}.{key}.risks", risks, horizon, book)
    book.add(f"{plan.id}.largest", largest, "weight")
    book.add(f"{plan.id}.p", ratio.p, "p-value")
    text = "{} with weights, {} without".format(
        *(book.numbers[f"{plan.id}.{key}.summary"].text for key in ("weighted", "plain"))
    )
    book.add(f"{plan.id}.sensitivity", ratio.value, HAZARD, text)
    tables[plan.id] = rows
    notes.append(
        f"follow-up to {horizon:.0f} months, before which {lost} patients are censored; weights "
        f"up to {largest:.1f}"
    )
    return outcome_of(plan, keep, event, p=ratio.p, notes=notes)


def tipping_point(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    """Change the risk of patients without a complete outcome until the difference disappears.

    After censoring (from the start, if the outcome is unknown) a group's hazard is that of
    its patients still followed, times a factor. For a binary outcome the risk is 1 - (1 - r)
    ** factor, with r the risk in the group's patients with a known outcome.

    Raises `InputError` if every outcome is known.
    """
    keep = study.complete(plan.endpoint)
    g, unknown = study.exposed.x[keep], study.unknown[~np.isnan(study.unknown)]
    binary = study.contract.endpoint(plan.endpoint).kind == "binary"
    if binary:
        event: BoolArray = study.outcome(plan.endpoint)[0][keep] == 1
        time, horizon = np.where(event, 1.0, 2.0), 1.5
    else:
        time, flags = study.follow_up(plan.endpoint, keep)
        event, horizon = flags == 1, _horizon(study, time, g)
    time, g = np.append(time, np.zeros(len(unknown))), np.append(g, unknown)
    event = np.append(event, np.zeros(len(unknown), dtype=bool))
    lost = ~event & (time < horizon)
    if not lost.any():
        until = "" if binary else f" to {horizon:.0f} months"
        raise InputError(
            f"every patient's outcome is known{until}, so no assumption about censoring is needed"
        )

    def risks_at(exposed: float, reference: float) -> absolute.Risks:
        return absolute.doubted_risks(time, event, g, horizon, (exposed, reference))

    plain = risks_at(1.0, 1.0)
    rows = [_row("like the others of their group", plain)]
    rows += [_row(f"exposed: hazard × {delta:g}", risks_at(delta, 1.0)) for delta in DELTAS]
    rows += [
        _row("exposed none, reference all with the event", risks_at(0.0, math.inf)),
        _row("exposed all, reference none with the event", risks_at(math.inf, 0.0)),
    ]
    tables[plan.id] = rows
    text = _add_risks(plan.id, plain, math.inf if binary else horizon, book)
    found, tips = plain.difference, []
    sign = math.copysign(1.0, found.value)
    for name, side, at in (
        ("exposed", 1.0, lambda delta: risks_at(delta, 1.0).difference),
        ("reference", 0.0, lambda delta: risks_at(1.0, delta).difference),
    ):
        book.add(f"{plan.id}.{name}.lost", int((lost & (g == side)).sum()), "patients")
        if found.p < study.contract.rules.alpha:
            tip = absolute.tipping_delta(at, sign, up=(name == "reference") == (sign > 0))
            factor = f"none within {absolute.MOST_DELTA:g}-fold" if tip is None else f"{tip:.2f}"
            book.add(f"{plan.id}.{name}.delta", tip, "relative hazard", factor)
            tips += [] if tip is None else [f"{factor} times the hazard in lost {name} patients"]
    if found.p < study.contract.rules.alpha:
        undone = " or ".join(tips) or f"no {absolute.MOST_DELTA:g}-fold hazard in lost patients"
        text += f"; not significant with {undone}"
    book.add(f"{plan.id}.sensitivity", found.value, "share", text)
    notes = [f"{int(lost.sum())} patients without a complete outcome"]
    return outcome_of(plan, len(g), event, p=found.p, statistic=found.value, notes=notes)


def lost_limits(analysis: AnalysisResult, alpha: float) -> list[str]:
    """List limits on a claim from censoring weights or from uncertainty about lost patients."""
    limits, numbers = [], analysis.numbers
    plain, weighted = (numbers.get(f"censoring.{key}.p") for key in ("plain", "weighted"))
    if plain and weighted and _number(plain) < alpha <= _number(weighted):
        limits.append(
            "not significant if patients are weighted for censoring by the covariates: "
            f"{numbers['censoring.sensitivity'].text}"
        )
    for name in ("exposed", "reference"):
        tip = numbers.get(f"tipping_point.{name}.delta")
        if tip and tip.value and 1 / FRAGILE < tip.value < FRAGILE:
            limits.append(
                f"not significant if, after censoring, patients in the {name} group have "
                f"{tip.text} times the hazard of those still followed"
            )
    return limits


def _number(found: Number) -> float:
    return math.nan if found.value is None else found.value


def _horizon(study: Study, time: FloatArray, exposed: FloatArray) -> float:
    """Return the contract's horizon, or the latest at which a quarter are followed, if earlier.

    At least `FOLLOWED` patients in each group are followed until then.

    Raises `InputError` if a group has too few patients.
    """
    sides = [np.sort(time[exposed == side]) for side in (0.0, 1.0)]
    if min(map(len, sides)) < FOLLOWED:
        raise InputError(f"a group has fewer than {FOLLOWED} patients")
    latest = min(float(np.quantile(time, 0.75)), *(float(side[-FOLLOWED]) for side in sides))
    return min(study.contract.rules.rmst_months, latest)


def _add_risks(key: str, risks: absolute.Risks, horizon: float, book: Book) -> str:
    """Record both risks and their difference, as shares, with the horizon; return them as text."""
    if math.isfinite(horizon):
        book.add(f"{key}.horizon", horizon, "months")
    for name, risk in zip(("exposed", "reference"), risks.value, strict=True):
        book.add(f"{key}.{name}.risk", float(risk), "share")
    found = risks.difference
    for name in ("value", "lower", "upper"):
        book.add(f"{key}.difference.{name}", getattr(found, name), "share")
    book.add(f"{key}.p", found.p, "p-value")
    until = f" by {horizon:.0f} months" if math.isfinite(horizon) else ""
    return f"{_points(found)}{until}"


def _row(label: str, risks: absolute.Risks) -> dict[str, str]:
    """Make a table row with two risks and their difference."""
    found = risks.difference
    return {
        "assumption": label,
        "exposed": percent(float(risks.value[0]), 1),
        "reference": percent(float(risks.value[1]), 1),
        "difference (95% CI)": _points(found),
        "p": p_text(found.p),
    }


def _points(found: Estimate) -> str:
    value, lower, upper = (100 * end for end in (found.value, found.lower, found.upper))
    return f"{value:+.1f} points ({lower:+.1f} to {upper:+.1f})"
