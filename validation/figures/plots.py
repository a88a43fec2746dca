"""Figures for an analysis, drawn only from finished tests."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from sage.core.hashes import hash_file
from sage.core.log import logger
from validation.controls.keys import Key
from validation.core.hypothesis import Direction
from validation.core.types import Number
from validation.figures.calibration_plot import calibration_figure
from validation.figures.cumulative_incidence import Incidences, cumulative_incidence_figure
from validation.figures.decision_curve_plot import decision_curve_figure
from validation.figures.forest_plot import ForestRow, forest
from validation.figures.nomogram_plot import nomogram_figure
from validation.figures.specification_plot import specification_curve_figure
from validation.figures.spline_plot import spline_figure
from validation.figures.style import wrap_text
from validation.methods.clinical import curves_of
from validation.methods.competing import sides_of
from validation.methods.groups import groups_of
from validation.methods.nomogram import nomogram_of
from validation.methods.predicting import design_for
from validation.methods.prediction import scored
from validation.methods.regression import fit_spline
from validation.results.results import Effect, Figure, p_is
from validation.statistics.calibration import calibration
from validation.statistics.competing import aalen_johansen
from validation.statistics.survival import kaplan_meier

if TYPE_CHECKING:
    from validation.contracts.contract import Contract
    from validation.controls.curve import SpecificationCurve
    from validation.inputs.prediction import PredictionModel
    from validation.inputs.study import Study
    from validation.results.results import TestOutcome

log = logger(__name__)

SEEN = ("kaplan_meier", "cumulative_incidence", "forest", "specification")
"""Main figures, also written as PNG for a vision model that interprets the results."""


class Finished(Protocol):
    """Parts of `validation.analysis.analysis.Analysis` that the figures read."""

    contract: Contract
    provenance: dict[str, Any]
    part: str
    model: PredictionModel | None
    curve: SpecificationCurve | None

    @property
    def tests(self) -> tuple[TestOutcome, ...]: ...
    @property
    def numbers(self) -> Mapping[str, Number]: ...


class _Sheet(NamedTuple):
    """An analysis with its study and the folder for its figures."""

    analysis: Finished
    study: Study
    out: Path

    def draw(
        self,
        name: str,
        title: str,
        caption: str,
        function: Callable[..., object],
        /,
        *data: object,
        **words: object,
    ) -> Figure:
        """Draw a figure for the report (SVG); also write the main figures as bitmaps (PNG).

        Every figure names its cohort and is marked if the data are simulated. No incomplete
        figure is left behind.
        """
        path = self.out / f"{name.replace('.', '_')}.svg"
        with ExitStack() as undone:
            for suffix in (".svg", ".png"):
                undone.callback(path.with_suffix(suffix).unlink, missing_ok=True)
            function(
                *data,
                path=path.with_suffix("") if path.stem in SEEN else path,
                subtitle=self.analysis.provenance["title"],
                simulated=self.analysis.contract.simulated,
                **words,
            )
            undone.pop_all()
        return Figure(file=path.name, title=title, caption=caption, sha256=hash_file(path))


def draw(analysis: Finished, study: Study, out: Path) -> tuple[dict[str, Figure], list[str]]:
    """Draw every figure for which the tests have finished."""
    done = {test.id: test for test in analysis.tests if test.status == "ok"}
    by_method = {
        "kaplan_meier": _kaplan_meier,
        "joint_groups": _joint_groups,
        "ordered_groups": _joint_groups,
        "calibration": _calibration,
        "recalibration": _recalibration,
        "cumulative_incidence": _incidence,
        "decision_curve": _decision,
        "spline": _spline,
    }
    sheet = _Sheet(analysis, study, out)
    jobs: dict[str, Callable[[], Figure | None]] = {
        name: partial(by_method[test.method], sheet, test)
        for name, test in done.items()
        if test.method in by_method
    }
    if analysis.model is not None and "calibration" in done and analysis.part != "replication":
        jobs["nomogram"] = partial(_nomogram, sheet, analysis.model)
    jobs["forest"] = partial(_forest, sheet, done)
    if analysis.curve is not None and "control.specification_curve" in done:
        jobs["specification"] = partial(_specification, sheet, analysis.curve)
    figures: dict[str, Figure] = {}
    failed: list[str] = []
    for name, job in jobs.items():
        try:
            drawn = job()
        except Exception as error:  # noqa: BLE001 - a picture must not cost the results
            log.failed("figure not drawn", error, figure=name)
            failed.append(f"figure {name} could not be drawn ({type(error).__name__})")
            continue
        if drawn is not None:
            figures[name] = drawn
    return figures, failed


def _sides(contract: Contract) -> str:
    return f"{_capitalized(contract.exposed)}, compared with {contract.reference}"


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


def _cohort_words(analysis: Finished) -> str:
    return f"Cohort {analysis.provenance['cohort']}."


def _kaplan_meier(sheet: _Sheet, outcome: TestOutcome) -> Figure:
    from validation.figures.kaplan_meier import kaplan_meier_figure

    analysis, study, contract = sheet.analysis, sheet.study, sheet.analysis.contract
    label = contract.endpoint(outcome.endpoint).label
    keep = study.complete(outcome.endpoint)
    curves = {}
    for name, side in ((contract.exposed, 1.0), (contract.reference, 0.0)):
        mine = keep & (study.exposed.x == side)
        curves[name] = kaplan_meier(*study.at_risk(outcome.endpoint, mine))
    prefix = outcome.id.removesuffix("kaplan_meier")
    names = (f"{prefix}primary", f"{prefix}secondary")
    test = next((test for test in analysis.tests if test.id in names), None)
    notes = []
    if test is not None and test.effect is not None and test.p is not None:
        within = "stratified " if contract.test(test.id).strata else ""
        summary = analysis.numbers[f"{test.id}.summary"].text
        notes = [summary, f"{within}log-rank {p_is(test.p)}"]
    title = f"{label}. {_sides(contract)}"
    return sheet.draw(
        outcome.id,
        title,
        "Kaplan-Meier estimate with 95% confidence bands and numbers at risk."
        f" {_cohort_words(analysis)}",
        kaplan_meier_figure,
        curves,
        time_unit="months",
        title=label,
        endpoint=label,
        annotation=notes,
        description=title,
    )


def _joint_groups(sheet: _Sheet, outcome: TestOutcome) -> Figure:
    """Draw Kaplan-Meier curves for the four groups formed by two exposures."""
    from validation.figures.kaplan_meier import kaplan_meier_figure

    study, contract = sheet.study, sheet.analysis.contract
    label = contract.endpoint(outcome.endpoint).label
    names, codes = groups_of(study)
    time, event = study.outcome(outcome.endpoint)
    assert event is not None
    keep = (codes >= 0) & (time == time) & (event == event)
    strata = contract.test(outcome.id).strata
    for key in strata:
        keep &= study.rows[key].notna().to_numpy()
    curves = {
        name: kaplan_meier(*study.at_risk(outcome.endpoint, keep & (codes == code)))
        for code, name in enumerate(names)
    }
    p = p_is(sheet.analysis.numbers[f"{outcome.id}.p"].value)
    within = "stratified " if strata else ""
    asked = "trend over" if outcome.method == "ordered_groups" else "over"
    return sheet.draw(
        outcome.id,
        f"{label} in all groups that the exposures form",
        "Kaplan-Meier estimates with 95% confidence bands and numbers at risk. Descriptive: the "
        "claim is the prespecified primary comparison.",
        kaplan_meier_figure,
        curves,
        time_unit="months",
        title=f"{label}, all groups",
        endpoint=label,
        annotation=[f"{within}log-rank {asked} {len(names)} groups {p}"],
        description=f"{label} in all groups of {contract.hypothesis.id}",
    )


def _calibration(sheet: _Sheet, outcome: TestOutcome) -> Figure:
    study, numbers, model = sheet.study, sheet.analysis.numbers, sheet.study.model
    assert model is not None
    keep, X = design_for(study, model)
    time, event = study.follow_up(model.endpoint, keep)
    slope = numbers[f"{outcome.id}.slope"].text
    corrected = ", corrected for optimism"
    where = "The model was fitted to these patients: the points are apparent."
    if f"{outcome.id}.ratio" in numbers:
        model = model.at_horizon_of(time)
        low, high = (numbers[f"{outcome.id}.slope_{end}"].text for end in ("lower", "upper"))
        slope, corrected = f"{slope} (95% CI {low} to {high})", ""
        where = f"The model was developed in {model.cohort}; nothing is fitted here."
    survival = model.survival(X)
    harrell = numbers[f"{outcome.id}.harrell"].text
    label = sheet.analysis.contract.endpoint(outcome.endpoint).label
    return sheet.draw(
        outcome.id,
        f"Predicted and observed risk, {label.lower()}",
        "Observed risk (one minus Kaplan-Meier, 95% confidence interval) by groups of predicted "
        f"risk, and the distribution of predictions. {where}",
        calibration_figure,
        calibration(time, event, survival, model.horizon),
        1.0 - survival,
        by=f"{model.horizon:.0f} months",
        title=f"Calibration, {label[:1].lower() + label[1:] if ' ' in label else label}",
        annotation=[f"slope {slope}{corrected}", f"concordance {harrell}{corrected}"],
        description=f"Predicted and observed risk of {label}",
    )


def _recalibration(sheet: _Sheet, outcome: TestOutcome) -> Figure:
    contract = sheet.analysis.contract
    _, time, event, risk, when = scored(sheet.study, contract.test(outcome.id))
    survival = contract.endpoint(outcome.endpoint).kind == "survival"
    title = f"Risk of {_risk_of(contract, outcome.endpoint)}, predicted and observed"
    return sheet.draw(
        outcome.id,
        title,
        "Observed risk (95% confidence interval) by groups of predicted risk, and the "
        "distribution of predictions. Nothing is fitted to these patients.",
        calibration_figure,
        calibration(time, event, 1.0 - risk, when),
        risk,
        by=f"{when:.0f} months" if survival else None,
        title=f"Calibration of {contract.exposures[0].label}",
        annotation=[sheet.analysis.numbers[f"{outcome.id}.summary"].text],
        description=title,
    )


def _spline(sheet: _Sheet, outcome: TestOutcome) -> Figure:
    """Draw the hazard ratio along the exposure, between its 1st and 99th percentiles."""
    contract, study = sheet.analysis.contract, sheet.study
    use, cut = contract.exposures[0], study.cuts[0]
    found = fit_spline(study, contract.test(outcome.id))
    assert cut.mean is not None
    assert cut.sd is not None
    scale = cut.sd if use.level == "high" else -cut.sd
    low, high = (float(end) for end in np.percentile(found.x, (1, 99)))
    grid = np.linspace(low, high, 200)
    middle = float(np.median(found.x))
    values = [cut.mean + scale * x for x in (grid, found.x, found.knots, np.array(middle))]
    label = contract.endpoint(outcome.endpoint).label
    bend = sheet.analysis.numbers[f"{outcome.id}.nonlinearity.p"].value
    return sheet.draw(
        outcome.id,
        f"Hazard of {label.lower()} along {use.label}",
        "Hazard ratio against the median (dot) by a restricted cubic spline, unadjusted, with its "
        "95% band; marks below are patients' values, triangles the knots.",
        spline_figure,
        values[0],
        found.curve(grid, middle),
        values[1],
        exposure=f"{use.label} ({use.unit})" if use.unit else use.label,
        reference=float(values[3]),
        knots=values[2].tolist(),
        title=label,
        annotation=[f"any association {p_is(outcome.p)}", p_is(bend, "nonlinearity p")],
        description=f"Hazard ratio of {label} along {use.label}",
    )


def _decision(sheet: _Sheet, outcome: TestOutcome) -> Figure:
    contract = sheet.analysis.contract
    curves = curves_of(sheet.study, contract.test(outcome.id))
    risk_of = _risk_of(contract, outcome.endpoint)
    by = f" by {curves.horizon:.0f} months" if math.isfinite(curves.horizon) else ""
    return sheet.draw(
        "decision_curve",
        f"Net benefit of acting on the predicted risk of {risk_of}{by}",
        "Net benefit per patient by risk threshold, for the model with and without the "
        "exposure, for acting on everybody and on nobody. Risks are cross-validated. If the two "
        "models cannot be distinguished, the exposure changes no decision."
        if contract.associates
        else "Net benefit per patient by risk threshold, for acting on the score, on everybody "
        "and on nobody.",
        decision_curve_figure,
        curves.thresholds,
        curves.benefit,
        title="Decision curve",
        risk_of=risk_of,
        description=f"Net benefit of acting on the predicted risk of {risk_of}",
    )


def _risk_of(contract: Contract, key: str) -> str:
    """Name the event to which a risk refers, even if the endpoint is named for its absence."""
    endpoint = contract.endpoint(key)
    return endpoint.label if endpoint.kind == "binary" else f"the event ({endpoint.label})"


def _nomogram(sheet: _Sheet, model: PredictionModel) -> Figure | None:
    found = nomogram_of(model, sheet.study)
    if found is None:
        return None
    contract = sheet.analysis.contract
    risk_of = _risk_of(contract, model.endpoint)
    return sheet.draw(
        "nomogram",
        f"Nomogram of the adjusted model: risk of {risk_of} by {found.horizon:.0f} months",
        "Read the points of each line above it, add them, and read the risk below their sum. Drawn "
        "from the apparent coefficients of these patients: not for decisions about patients.",
        nomogram_figure,
        found,
        title=wrap_text(f"Nomogram: {contract.endpoint(model.endpoint).label}", 70, 1),
        description=f"Points of each term, and the risk of {risk_of} for their sum",
    )


def _incidence(sheet: _Sheet, outcome: TestOutcome) -> Figure:
    """Draw incidence of the event and competing event by group, or in all patients for a slope."""
    analysis, study, contract = sheet.analysis, sheet.study, sheet.analysis.contract
    label = contract.endpoint(outcome.endpoint).label
    curves = {}
    for role, name, mine in sides_of(study, study.complete(outcome.endpoint)):
        time, codes, entry = study.status(outcome.endpoint, mine)
        event, other = (
            aalen_johansen(time, codes, item, entry, need_events=False) for item in (1, 2)
        )
        curves["all patients" if role == "all" else name] = Incidences(
            event, other if other.n_events else None
        )
    prefix, numbers = outcome.id.removesuffix("cumulative_incidence"), analysis.numbers
    notes = []
    if study.exposed.grouped:
        if f"{prefix}fine_gray.summary" in numbers:
            notes.append(numbers[f"{prefix}fine_gray.summary"].text + ", Fine and Gray")
        if f"{prefix}gray.p" in numbers:
            notes.append(f"Gray's test {p_is(numbers[f'{prefix}gray.p'].value)}")
    title = f"{label}. {_sides(contract)}"
    return sheet.draw(
        outcome.id,
        title,
        "Aalen-Johansen estimate: the event with its 95% confidence band (solid), the competing "
        f"event (dashed), numbers at risk of either. {_cohort_words(analysis)}",
        cumulative_incidence_figure,
        curves,
        time_unit="months",
        title=f"{label}: cumulative incidence",
        event=label,
        annotation=notes,
        description=title,
    )


def _forest(sheet: _Sheet, done: dict[str, TestOutcome]) -> Figure | None:
    """Draw the exposure's effects in all models on the same scale, the primary first."""
    contract = sheet.analysis.contract
    primary = done.get(contract.primary)
    if primary is None or primary.effect is None or primary.effect.null != 1.0:
        return None
    rows = []
    for test in done.values():
        effect = test.effect or _control_effect(test.id, sheet.analysis.numbers)
        if effect is None or effect.scale != primary.effect.scale or test.n is None:
            continue
        rows.append(
            ForestRow(
                label=_model_label(contract, test),
                value=effect.value,
                lower=effect.lower,
                upper=effect.upper,
                n="" if test.events is None else f"{test.events} / {test.n}",
                primary=test.id == contract.primary,
            )
        )
    if len(rows) < 2:
        return None
    measure = primary.effect.scale.capitalize()
    if contract.comparison.is_product and primary.effect.scale == "hazard ratio":
        measure = "Ratio of HRs"
    return sheet.draw(
        "forest",
        _sides(contract),
        "Effects with 95% confidence intervals by endpoint and model.",
        forest,
        rows,
        title="Effect by endpoint and model",
        measure=measure,
        description=_sides(contract),
    )


def _control_effect(name: str, numbers: Mapping[str, Number]) -> Effect | None:
    """Build a control's effect from its numbers, since its ledger entry has no effect."""
    found = numbers.get(f"{name}.effect")
    if found is None or found.value is None:
        return None
    limits = (numbers[f"{name}.{end}"].value for end in ("lower", "upper"))
    lower, upper = (None if limit is None else float(limit) for limit in limits)
    return Effect.model_validate(
        {"value": found.value, "lower": lower, "upper": upper, "scale": found.unit}
    )


def _model_label(contract: Contract, test: TestOutcome) -> str:
    """Label a forest plot row with endpoint, model and patients."""
    control = test.id.startswith("control.")
    plan = contract.primary_test if control else contract.test(test.id)
    kinds = ["adjusted"] if test.role == "adjusted" else []
    kinds += ["stratified"] if plan.strata else []
    kinds += ["within sites"] if plan.method == "site" else []
    label = f"{contract.endpoint(test.endpoint).label}, {', '.join(kinds) or 'unadjusted'}"
    if control:
        return f"{label} (negative control)"
    if plan.within is not None:
        return f"{contract.endpoint(test.endpoint).label}: {plan.note}"
    if plan.subgroup is None:
        return label
    part = plan.subgroup
    name = next(use.label for use in contract.variables if use.key == part.variable)
    sign = {"eq": "=", "ne": "≠", "lt": "<", "le": "≤", "gt": ">", "ge": "≥"}.get(part.op, part.op)
    values = part.value if isinstance(part.value, tuple) else (part.value,)
    shown = ", ".join(str(value) for value in values if value is not None)
    return f"{label} ({name} {sign} {shown})".replace(" )", ")")


def _specification(sheet: _Sheet, curve: SpecificationCurve) -> Figure:
    contract, numbers = sheet.analysis.contract, sheet.analysis.numbers
    endpoint = contract.endpoint(contract.primary_test.endpoint)
    share, count = (numbers[key].text for key in (Key.EXPECTED_SIGN, Key.SPECIFICATIONS))
    failed = numbers[Key.SPECIFICATIONS_FAILED]
    unfit = f"; {failed.text} could not be estimated" if failed.value else ""
    either = contract.direction is Direction.EITHER
    sign = "the sign of the primary test" if either else "the expected sign"
    choices = "cut-point, covariates"
    choices += ", strata" if contract.strata else ""
    choices += ", follow-up and exclusions" if endpoint.kind in ("survival", "competing") else ""
    measure, title = contract.model_scale.capitalize(), f"{endpoint.label} by prespecified choice"
    return sheet.draw(
        "specification",
        title,
        f"{measure} by {choices}; {share} of {count} specifications have {sign}{unfit}.",
        specification_curve_figure,
        curve,
        title=title,
        measure=measure,
        description=f"Specification curve of {contract.exposed}",
    )
