"""Tables and curves that a clinical reader expects with the registered comparison.

Table 1 without p-values (STROBE: Vandenbroucke and others 2007) but with standardized differences;
univariable and multivariable estimates in the same patients (REMARK); patterns of missing values
(Carpenter and Smuk 2021, Biometrical Journal); decision curves from cross-validated predictions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from sage.core.errors import InputError
from sage.core.seeds import generator
from validation.contracts.contract import TestPlan, VariableUse
from validation.inputs.study import Study
from validation.methods.shared import fit_cox, fit_logistic, fitter_of, matrix, outcome_of
from validation.results.results import Book, TestOutcome, p_text
from validation.statistics.calibration import baseline_hazard
from validation.statistics.decision_curve import NAMES, net_benefit
from validation.statistics.survival import kaplan_meier

if TYPE_CHECKING:
    from validation.statistics.base import BoolArray, FloatArray

FOLDS = 10
FEWEST_EVENTS_OF_A_FOLD = 3
MOST_PATTERNS = 8
MOST_GRADES = 8
"""Maximum number of levels for an ordinal variable to be counted by level in table 1."""
STEP = 0.01
REACHED = 0.9
"""Quantile of predicted risk up to which curves are drawn, since few patients lie beyond."""


def table_one(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    """Tabulate patients by group: n (%), or median and quartiles; standardized difference.

    If the claim is a slope, patients are split at the exposure's median, for description
    only.
    """
    sides = _sides(study)
    everybody = ("both groups", sides[0][1] | sides[1][1])
    columns = [everybody, *sides]
    heads = ["all", "exposed", "reference"]
    rows = [
        {"variable": "group"} | dict(zip(heads, (label for label, _ in columns), strict=True)),
        {"variable": "patients"}
        | {head: f"{mine.sum()}" for head, (_, mine) in zip(heads, columns, strict=True)},
    ]
    uses: dict[str, VariableUse] = {
        use.key: use
        for use in study.contract.variables
        if use.role in ("exposure", "covariate", "stratum", "known_positive")
    }
    for use in uses.values():
        rows += _described(study.rows[use.key], use, heads, [mine for _, mine in columns])
    rows += _follow_up_rows(study, plan, heads, [mine for _, mine in columns])
    tables[plan.id] = rows
    return outcome_of(plan, everybody[1])


def _sides(study: Study) -> list[tuple[str, BoolArray]]:
    x, contract = study.exposed.x, study.contract
    if study.exposed.grouped:
        return [(contract.exposed, x == 1.0), (contract.reference, x == 0.0)]
    use = contract.claimed[0]
    label, score = use.label, study.exposed.parts[contract.exposures.index(use)]
    middle = float(np.nanmedian(score))
    if middle == np.nanmax(score):  # A binary exposure that most patients have.
        middle = float(np.nanmin(score))
    more, less = ("above", "at or below")
    if use.level == "low":  # Scores are oriented so that high is exposed.
        more, less = ("below", "at or above")
    return [(f"{label} {more} median", score > middle), (f"{label} {less} median", score <= middle)]


def _described(
    column: pd.Series, use: VariableUse, heads: list[str], masks: list[BoolArray]
) -> list[dict[str, str]]:
    missing = int(column[masks[0]].isna().sum())
    absent = f"{missing} ({100 * missing / max(int(masks[0].sum()), 1):.0f}%)"
    unit = f", {use.unit}" if use.unit else ""
    numeric = pd.api.types.is_numeric_dtype(column)
    known = np.unique(column.dropna()) if numeric else np.empty(0)
    graded = use.kind == "ordinal" and 2 < len(known) <= MOST_GRADES
    if numeric and not graded and set(known) - {0, 1}:
        parts = [column[mine].dropna().to_numpy(dtype=float) for mine in masks]
        row = {"variable": f"{use.label}{unit}, median (quartiles)"}
        row |= {head: _quartiles(part) for head, part in zip(heads, parts, strict=True)}
        return [row | {"difference (SD)": _difference(parts[1:]), "missing": absent}]
    texts = column
    if numeric:
        texts = column.map(lambda value: f"{value:g}" if graded else "yes" if value == 1 else "no")
    texts = texts.where(column.notna()).astype("object")
    levels = sorted(texts.dropna().unique(), key=str)
    shares = [
        np.asarray([(texts[mine].dropna() == level).mean() for level in levels]) for mine in masks
    ]
    gap = _distance(shares[1][1:], shares[2][1:])
    rows: list[dict[str, str]] = []
    for place, level in enumerate(levels):
        if levels == ["no", "yes"] and level == "no":
            continue
        name = use.label if levels == ["no", "yes"] else f"{use.label}: {level}"
        row = {"variable": f"{name}, n (%)"}
        for head, mine, share in zip(heads, masks, shares, strict=True):
            row[head] = f"{int((texts[mine] == level).sum())} ({100 * share[place]:.0f}%)"
        first = not rows
        rows.append(
            row | {"difference (SD)": gap if first else "", "missing": absent if first else ""}
        )
    return rows


def _quartiles(values: FloatArray) -> str:
    if not values.size:
        return "none known"
    low, middle, high = (float(item) for item in np.quantile(values, [0.25, 0.5, 0.75]))
    return f"{middle:.3g} ({low:.3g} to {high:.3g})"


def _difference(sides: list[FloatArray]) -> str:
    """Compute the standardized mean difference between two groups, with the pooled SD."""
    if min(len(side) for side in sides) < 2:
        return "not known"
    spread = math.sqrt(sum(float(side.var(ddof=1)) for side in sides) / 2)
    gap = abs(float(sides[0].mean()) - float(sides[1].mean()))
    return f"{gap / spread:.2f}" if spread > 0 else "0.00"


def _distance(floats: FloatArray, two: FloatArray) -> str:
    """Compute the standardized difference of proportions over k levels.

    This is the Mahalanobis distance between the shares of all levels but the first (Yang and Dalton
    2012, SAS Forum).
    """
    if not floats.size or not np.isfinite([*floats, *two]).all():
        return "not known"
    covariance = sum(np.diag(share) - np.outer(share, share) for share in (floats, two)) / 2
    gap = floats - two
    return f"{math.sqrt(max(float(gap @ np.linalg.pinv(covariance) @ gap), 0.0)):.2f}"


def _follow_up_rows(
    study: Study, plan: TestPlan, heads: list[str], masks: list[BoolArray]
) -> list[dict[str, str]]:
    """Return rows for follow-up (reverse Kaplan-Meier median) and events of a survival endpoint."""
    kind = study.contract.endpoint(plan.endpoint).kind
    if kind not in ("survival", "competing"):
        return []
    label = study.contract.endpoint(plan.endpoint).label
    followed: dict[str, str] = {"variable": "follow-up, months, median (reverse Kaplan-Meier)"}
    events: dict[str, str] = {"variable": f"{label}, events (%)"}
    for head, mine in zip(heads, masks, strict=True):
        known = mine & study.complete(plan.endpoint)
        time, codes, entry = study.status(plan.endpoint, known)
        if not len(time):
            followed[head] = events[head] = "none known"
            continue
        lasted = time if entry is None else time - entry
        middle = kaplan_meier(lasted, (codes == 0).astype(float)).median
        followed[head] = f"{middle:.1f}" if math.isfinite(middle) else "not reached"
        count = int((codes == 1).sum())
        events[head] = f"{count} ({100 * count / len(time):.0f}%)"
    blank = {"difference (SD)": "", "missing": ""}
    return [followed | blank, events | blank]


def univariable(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    """Fit each term separately, and all together, in the same complete patients."""
    keep, X, names, notes = matrix(study, plan)
    model = fitter_of(study, plan, keep, notes)
    scale = model.scale
    together = model.fit(X, names)
    rows = []
    spans = _spans(study, plan, keep, names)
    for start, stop in spans:
        alone = model.fit(X[:, start:stop], names[start:stop])
        for at in range(start, stop):
            rows.append(
                {
                    "term": names[at],
                    "univariable": _ratio(alone, scale, at - start),
                    "p, univariable": p_text(float(alone.p[at - start])),
                    "multivariable": _ratio(together, scale, at),
                    "p, multivariable": p_text(float(together.p[at])),
                }
            )
    tables[plan.id] = rows
    notes.append(f"{scale}s with 95% confidence intervals, all in the same {int(keep.sum())}")
    return outcome_of(plan, keep, model.events, notes=list(dict.fromkeys(notes)))


def _spans(study: Study, plan: TestPlan, keep: Any, names: list[str]) -> list[tuple[int, int]]:
    """Find the columns for each variable: three for an interaction, one per level for a factor."""
    start = 1 + len(study.adjusters())
    found = [(0, start)]
    columns = study.columns(plan.covariates, keep)
    for key in dict.fromkeys(column.key for column in columns):
        count = sum(column.key == key for column in columns)
        found.append((start, start + count))
        start += count
    assert start == len(names)
    return found


def _ratio(fit: Any, scale: str, at: int) -> str:
    value = (fit.odds_ratio if scale == "odds ratio" else fit.hr)[at]
    return f"{value:.2f} ({fit.lower[at]:.2f} to {fit.upper[at]:.2f})"


def missing_data(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    """Tabulate jointly missing values and the patients left for the adjusted model."""
    keep = study.complete(plan.endpoint)
    keys = tuple(dict.fromkeys((*plan.covariates, *plan.strata)))
    labels = {use.key: use.label for use in study.contract.variables}
    absent = study.rows.loc[keep, list(keys)].isna()
    n = int(keep.sum())
    complete = int((~absent.any(axis=1)).sum())
    book.add(f"{plan.id}.complete", complete / n, "share")
    rows = []
    for key in keys:
        count = int(absent[key].sum())
        book.add(f"{plan.id}.{key.replace(':', '.')}", count, "patients")
        rows.append({"missing": labels[key], "patients": f"{count} ({100 * count / n:.0f}%)"})
    together = absent.value_counts()
    shown = 0
    for flags, times in zip(together.index.tolist(), together.tolist(), strict=True):
        lacking = [labels[key] for key, flag in zip(keys, flags, strict=True) if flag]
        if len(lacking) > 1 and shown < MOST_PATTERNS:
            shown += 1
            said = f"{' and '.join(lacking)} together"
            rows.append({"missing": said, "patients": f"{times} ({100 * times / n:.0f}%)"})
    rows.append({"missing": "nothing", "patients": f"{complete} ({100 * complete / n:.0f}%)"})
    notes = []
    if 0 < complete < n:
        value, event = study.outcome(plan.endpoint)
        seen = (value if event is None else event)[keep] == 1
        some = absent.any(axis=1).to_numpy()
        if study.contract.endpoint(plan.endpoint).kind != "continuous":
            notes.append(
                f"{100 * float(np.mean(seen[some])):.0f}% with the event where something is "
                f"missing, {100 * float(np.mean(seen[~some])):.0f}% where nothing is"
            )
    tables[plan.id] = rows
    return outcome_of(plan, n, notes=notes)


def decision_curve(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    """Compute net benefit for models with and without the exposure, and for treating all or none.

    Risks are cross-validated (10 folds), so that no patient's prediction is based on that
    patient.
    """
    curves = curves_of(study, plan)
    horizon = curves.horizon
    overall = curves.overall
    at = int(np.argmin(np.abs(curves.thresholds - overall)))
    if math.isfinite(horizon):
        book.add(f"{plan.id}.horizon", horizon, "months")
    threshold = float(curves.thresholds[at])
    book.add(f"{plan.id}.threshold", threshold, "share")
    for name, curve in curves.benefit.items():
        book.add(f"{plan.id}.{name}", float(curve[at]), "net benefit", f"{curve[at]:.3f}")
    plain = np.maximum(curves.benefit["all"], 0.0)
    model, other = curves.benefit.get("with"), curves.benefit.get("without", plain)
    gains = (curves.benefit["score"] if model is None else model) - other
    book.add(f"{plan.id}.gain", float(gains[at]), "net benefit", f"{gains[at]:+.3f}")
    if model is None:
        book.add(f"{plan.id}.useful", float((gains > 0).mean()), "share")
    whole = np.round(100 * curves.thresholds).astype(int)
    tables[plan.id] = [
        {"treat at a risk of": f"{whole[place]}%"}
        | {NAMES[name]: f"{curve[place]:.3f}" for name, curve in curves.benefit.items()}
        | {"nobody": "0"}
        for place in range(len(whole))
        if whole[place] % (10 if len(whole) > 10 else 1) == 0
    ]
    notes = [
        *curves.notes,
        "net benefit per patient: true positives less false positives, weighted by the odds of "
        "the threshold",
    ]
    return outcome_of(plan, curves.n, curves.events, notes=notes)


@dataclass(frozen=True)
class DecisionCurves:
    """Net benefit of each strategy at every threshold; `overall` is the risk of all patients.

    `horizon` is in months, and infinite for an outcome that is not time to event.
    """

    thresholds: FloatArray
    benefit: dict[str, FloatArray]
    overall: float
    horizon: float
    n: int
    events: int
    notes: tuple[str, ...]


def curves_of(study: Study, plan: TestPlan) -> DecisionCurves:
    """Compute curves with and without the exposure and for treating all patients.

    Thresholds run from 1% to the point at which no patient is treated. The curves are stored
    in the study: the test computes them, and the figure draws them.

    Raises `InputError` if no covariate varies, or there are too few events for
    cross-validation.
    """
    kept: DecisionCurves | None = study.curves.get(plan.id)
    if kept is not None:
        return kept
    given = study.contract.hypothesis.calibration
    if given is not None:
        keep, risk = study.risks(plan.endpoint)
        time, event, horizon = outcome_by(study, plan, keep)
        risks, notes = {"score": risk}, ["risks as the score predicts them"]
        first, last = (round(end / STEP) for end in given.thresholds)
    else:
        keep, X, names, notes = matrix(study, plan)
        main = 1 + len(study.adjusters())
        if X.shape[1] == main:
            raise InputError(
                "no covariate varies in the population, so there is no model for comparison"
            )
        time, event, horizon = outcome_by(study, plan, keep)
        risks = {
            "with": cross_validated(study, time, event, X, names, horizon),
            "without": cross_validated(study, time, event, X[:, main:], names[main:], horizon),
        }
        notes.append("cross-validated risks")
        top = min(0.99, max(float(np.quantile(risk, REACHED)) for risk in risks.values()))
        first, last = 1, max(1, math.floor(top / STEP))
    when = horizon if math.isfinite(horizon) else float(time.max())
    overall = 1.0 - float(kaplan_meier(time, event).survival_at([when])[0])
    thresholds = np.arange(max(1, first), last + 1) * STEP
    benefit = {
        name: net_benefit(time, event, risk, when, thresholds) for name, risk in risks.items()
    }
    benefit["all"] = net_benefit(time, event, np.ones(len(time)), when, thresholds)
    found = DecisionCurves(
        thresholds=np.asarray(thresholds, dtype=float),
        benefit=benefit,
        overall=overall,
        horizon=horizon,
        n=len(time),
        events=int(event.sum()),
        notes=tuple(notes),
    )
    study.curves[plan.id] = found
    return found


def outcome_by(study: Study, plan: TestPlan, keep: Any) -> tuple[FloatArray, FloatArray, float]:
    """Return times and flags, with the horizon in months (infinite without time to event)."""
    if study.contract.endpoint(plan.endpoint).kind == "binary":
        value, _ = study.outcome(plan.endpoint)
        event = (value[keep] == 1).astype(float)
        # An immediate event, or none ever: the Kaplan-Meier risk is then the plain share.
        return np.where(event == 1, 1.0, 2.0), event, math.inf
    time, event = study.follow_up(plan.endpoint, keep)
    if (given := study.contract.hypothesis.calibration) is not None and given.horizon:
        return time, event, given.horizon
    return time, event, min(study.contract.rules.rmst_months, float(np.quantile(time, 0.75)))


def cross_validated(
    study: Study,
    time: FloatArray,
    event: FloatArray,
    X: FloatArray,
    names: list[str],
    horizon: float,
) -> FloatArray:
    """Predict each patient's (n,) risk by the horizon from a model fitted to the other folds.

    Folds are balanced over events and drawn with the contract's seed.

    Parameters
    ----------
    time : (n,) follow-up in months
    event : (n,) 1 if follow-up ends in the event
    X : (n, k) covariates
    horizon : horizon in months

    Raises
    ------
    InputError
        If there are too few events for two folds.
    """
    n, events = len(time), int(event.sum())
    folds = min(FOLDS, events // FEWEST_EVENTS_OF_A_FOLD)
    if folds < 2:
        raise InputError(f"too few events ({events}) for cross-validation")
    rng = generator(study.contract.seed, n, 11)
    fold = np.empty(n, dtype=np.int64)
    for flag in (0.0, 1.0):
        mine = np.flatnonzero(event == flag)
        fold[rng.permutation(mine)] = np.arange(len(mine)) % folds
    risk = np.empty(n)
    for number in range(folds):
        held, rest = fold == number, fold != number
        varies = np.ptp(X[rest], axis=0) > 0
        chosen = [name for name, kept in zip(names, varies, strict=True) if kept]
        said: list[str] = []
        block = X[:, varies]
        if math.isfinite(horizon):
            fit = fit_cox(time[rest], event[rest], block[rest], chosen, study, said)
            linear = (block * fit.coef).sum(axis=1)
            hazard = baseline_hazard(time[rest], event[rest], linear[rest], horizon)
            risk[held] = 1.0 - np.exp(-hazard * np.exp(linear[held]))
        else:
            fit = fit_logistic(event[rest], block[rest], chosen, study, said)
            linear = fit.intercept + (block[held] * fit.coef).sum(axis=1)
            risk[held] = 1.0 / (1.0 + np.exp(-linear))
    return np.clip(risk, 0.0, 1.0)
