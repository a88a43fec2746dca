"""Shared components of registered tests: minimum data, design matrix and outcome format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sage.core.errors import InputError
from validation.contracts.contract import Scale, TestPlan, Within
from validation.inputs.study import Study
from validation.results.results import Book, Effect, TestOutcome, p_text
from validation.statistics.binary import logistic
from validation.statistics.continuous import linear
from validation.statistics.cox import cox
from validation.statistics.errors import ConvergenceError, SeparationError
from validation.statistics.imputation import outcome_predictors

if TYPE_CHECKING:
    from validation.statistics.base import FloatArray

HORIZONS = (12, 36, 60)


def enough(study: Study, plan: TestPlan) -> None:
    """Raise an error if the contract's rules require more data, before anything is computed."""
    rules = study.contract.rules
    keep = study.complete(plan.endpoint)
    if not keep.any():
        raise InputError(f'no patient has both the exposure and endpoint "{plan.endpoint}"')
    if study.exposed.grouped:
        x = study.exposed.x[keep]
        sizes = {
            study.contract.exposed: int((x == 1).sum()),
            study.contract.reference: int((x == 0).sum()),
        }
        small = min(sizes, key=lambda name: sizes[name])
        if sizes[small] < rules.min_group:
            raise InputError(
                f'group "{small}" has {sizes[small]} patients for {plan.endpoint}; the contract '
                f"requires at least {rules.min_group}"
            )
    value, event = study.outcome(plan.endpoint)
    kind = study.contract.endpoint(plan.endpoint).kind
    if kind == "continuous":
        return
    seen = (value if event is None else event)[keep]
    events = int((seen == 1).sum())
    if events == 0:
        others = int((seen == 2).sum()) if kind == "competing" else 0
        raise InputError(
            f"no events for {plan.endpoint} among {int(keep.sum())} patients"
            + (f": all {others} events are competing" if others else "")
        )
    if kind == "binary":
        events = min(events, int((seen == 0).sum()))
    if events < rules.min_events:
        raise InputError(
            f"{events} events for {plan.endpoint}; the contract requires at least "
            f"{rules.min_events}"
        )
    if not np.isfinite(value[keep]).all():
        raise InputError(f"{plan.endpoint}: contains non-finite values")
    if event is not None and np.all(value[keep] == value[keep][0]):
        raise InputError(
            f"{plan.endpoint}: all {int(keep.sum())} patients have the same time, "
            f"{value[keep][0]:g} months, so nothing can be compared. Check the time column"
        )


def outcome_of(plan: TestPlan, patients: Any, events: Any = None, **values: Any) -> TestOutcome:
    """Build the outcome of a completed test.

    Parameters
    ----------
    patients, events : (n,) mask of the patients and event flags, or their counts
    """
    return TestOutcome.model_validate(
        {
            "id": plan.id,
            "role": plan.role,
            "method": plan.method,
            "endpoint": plan.endpoint,
            "status": "ok",
            "claim": plan.claim,
            "n": int(np.sum(patients)),
            "events": None if events is None else int(np.sum(events)),
            **values,
        }
    )


def bearable(study: Study, plan: TestPlan) -> None:
    """Reject a covariate or stratum missing in more patients than the contract allows.

    Complete cases would then be a small and unrepresentative part of the population.
    """
    keep = study.complete(plan.endpoint)
    limit = study.contract.missing.most_missing
    for key in (*plan.covariates, *plan.strata):
        missing = float(study.rows.loc[keep, key].isna().mean())
        if missing > limit:
            raise InputError(
                f"{key} is missing in {missing:.0%} of {int(keep.sum())} patients; the contract "
                f"allows {limit:.0%}. Remove it, or complete the data"
            )


def matrix(study: Study, plan: TestPlan) -> tuple[Any, Any, list[str], list[str]]:
    """Return kept patients, the design matrix with the exposure first, its names, and notes."""
    bearable(study, plan)
    keep = study.complete(plan.endpoint, (*plan.covariates, *plan.strata))
    lost = int(study.complete(plan.endpoint).sum() - keep.sum())
    what = " or ".join(
        word for word, keys in (("covariates", plan.covariates), ("strata", plan.strata)) if keys
    )
    notes = [f"{lost} patient{'s' * (lost > 1)} excluded for missing {what}"] if lost else []
    if lost and plan.covariates and study.contract.missing.policy == "multiple_imputation":
        notes[0] += " (nothing is imputed here)"
    Z, names = study.design(plan.covariates, keep)
    if plan.within is not None:
        inner = within_columns(study, plan.within)
        notes.append(plan.note)
        X = np.column_stack([*(column[keep] for _, column in inner), *([Z] if names else [])])
        return keep, X, [*(name for name, _ in inner), *names], notes
    main = [(name, part[keep]) for name, part in study.adjusters()]
    columns = [study.exposed.x[keep], *(part for _, part in main)]
    X = np.column_stack([*columns, Z]) if Z.shape[1] else np.column_stack(columns)
    return keep, X, [study.first_term, *(name for name, _ in main), *names], notes


def within_columns(study: Study, within: Within) -> list[tuple[str, FloatArray]]:
    """Return the columns for one exposure, the other exposure, and their product.

    In the product, the other exposure is centered at the level at which it is held fixed, so
    that the first coefficient is the exposure's effect at that level.
    """
    uses, parts = study.contract.exposures, study.exposed.parts
    mine, other = within.exposure - 1, 2 - within.exposure
    groups = set(parts[other][parts[other] == parts[other]]) <= {0.0, 1.0}
    side = 1.0 if within.other == "exposed" else 0.0 if groups else -1.0
    return [
        (f"{uses[mine].label} where {uses[other].label} is held", parts[mine]),
        (uses[other].label, parts[other]),
        ("interaction", parts[mine] * (parts[other] - side)),
    ]


def layers_of(study: Study, plan: TestPlan, keep: Any, event: FloatArray, notes: list[str]) -> Any:
    """Return the kept patients' strata (None if the plan has none), and add a note.

    Patients are compared only within their stratum: a stratum without events, or (for groups)
    without both groups, contributes nothing.

    Parameters
    ----------
    keep : (n,) mask of the study's patients to keep
    event : (kept,) 1 if follow-up ends in the event

    Returns
    -------
    (kept,) stratum number for each patient.
    """
    layers = study.layers(plan.strata, keep)
    if layers is None:
        return None
    labels = [
        variable.label
        for key in plan.strata
        for variable in study.contract.variables
        if variable.key == key
    ]
    x, silent, patients = study.exposed.x[keep], 0, 0
    for code in np.unique(layers):
        mine = layers == code
        if event[mine].sum() == 0 or (study.exposed.grouped and len(np.unique(x[mine])) < 2):
            silent, patients = silent + 1, patients + int(mine.sum())
    text = f"stratified by {', '.join(dict.fromkeys(labels))}: {len(np.unique(layers))} strata"
    if silent:
        text += f", of which {silent} ({patients} patients) allow no comparison"
    notes.append(text)
    return layers


def fit_cox(
    time: FloatArray,
    event: FloatArray,
    X: FloatArray,
    names: list[str],
    study: Study,
    notes: list[str],
    strata: Any = None,
    entry: Any = None,
    cluster: Any = None,
) -> Any:
    """Fit a Cox model, with Firth's penalty if the contract's rule finds few or separated events.

    With `cluster`, standard errors, limits and p-values are robust to correlation between the
    rows of a person.

    Parameters
    ----------
    time : (n,) follow-up in months
    event : (n,) 1 if follow-up ends in the event
    X : (n, k) covariates
    study : study whose contract sets the events per covariate
    strata : (n,) stratum numbers; each stratum has its own baseline
    entry : (n,) months from which a record is at risk
    cluster : (n,) person for each row
    """
    events = int((event == 1).sum())
    limit = study.contract.rules.events_per_covariate
    if events / X.shape[1] < limit:
        notes.append(
            f"Firth's penalty: {events} events for {X.shape[1]} terms, under {limit:g} for each"
        )
        return cox(
            time, event, X, names, strata=strata, entry=entry, cluster=cluster, penalty="firth"
        )
    try:
        return cox(time, event, X, names, strata=strata, entry=entry, cluster=cluster)
    except SeparationError as error:
        notes.append(f"Firth's penalty: {error}")
        return cox(
            time, event, X, names, strata=strata, entry=entry, cluster=cluster, penalty="firth"
        )


def clusters_of(study: Study, keep: Any, notes: list[str]) -> Any:
    """Return the kept rows' clusters (None if each row is a different patient), and add a note."""
    cluster = study.clusters(keep)
    if cluster is not None:
        notes.append(
            f"{len(cluster)} rows of {len(np.unique(cluster))} patients: robust variance by patient"
        )
    return cluster


def fit_logistic(
    y: FloatArray, X: FloatArray, names: list[str], study: Study, notes: list[str]
) -> Any:
    """Fit a logistic model by the contract's rule, with Firth's penalty as in `fit_cox`.

    Parameters
    ----------
    y : (n,) outcome, 0 or 1
    X : (n, k) covariates, without an intercept
    study : study whose contract sets the events per covariate
    """
    rarer = int(min((y == 1).sum(), (y == 0).sum()))
    if rarer / X.shape[1] < study.contract.rules.events_per_covariate:
        notes.append(f"Firth's penalty: {rarer} patients with the rarer outcome")
        return logistic(y, X, names, penalty="firth")
    try:
        return logistic(y, X, names)
    except (SeparationError, ConvergenceError) as error:
        notes.append(f"Firth's penalty: {error}")
        return logistic(y, X, names, penalty="firth")


@dataclass(frozen=True)
class Fitter:
    """A model for an endpoint in the patients kept, by the contract's rules.

    `fit` takes the (kept, k) design and its names. `size` counts the events in a Cox model,
    otherwise the patients; `predictors` (kept, q) is the outcome in the form used for
    imputation.
    """

    fit: Callable[[FloatArray, list[str]], Any]
    scale: Scale
    size: int
    events: int | None
    predictors: FloatArray


def fitter_of(study: Study, plan: TestPlan, keep: Any, notes: list[str]) -> Fitter:
    """Choose the model for an endpoint's kind, and add notes on how each fit is made."""
    kind = study.contract.endpoint(plan.endpoint).kind
    if kind in ("survival", "competing"):
        t, e, entry = study.at_risk(plan.endpoint, keep)
        layers = layers_of(study, plan, keep, e, notes)
        cluster = clusters_of(study, keep, notes)
        return Fitter(
            lambda X, names: fit_cox(t, e, X, names, study, notes, layers, entry, cluster),
            "hazard ratio", int(e.sum()), int(e.sum()), outcome_predictors(t, e, entry),
        )  # fmt: skip
    y = study.outcome(plan.endpoint)[0][keep]
    if kind == "binary":
        return Fitter(
            lambda X, names: fit_logistic(y, X, names, study, notes),
            "odds ratio", len(y), int((y == 1).sum()), y[:, None],
        )  # fmt: skip
    y = y / float(y.std(ddof=1))
    return Fitter(
        lambda X, names: linear(y, X, names, robust=True),
        "difference (SD)", len(y), None, y[:, None],
    )  # fmt: skip


_COLUMN: dict[Scale, str] = {
    "hazard ratio": "hr",
    "subdistribution hazard ratio": "hr",
    "odds ratio": "odds_ratio",
    "difference (SD)": "coef",
}


def effect_of(fit: Any, scale: Scale, at: int = 0) -> Effect:
    """Return the effect of a term in a fitted model, by default the first."""
    value = getattr(fit, _COLUMN[scale])[at]
    return Effect(
        value=float(value), lower=float(fit.lower[at]), upper=float(fit.upper[at]), scale=scale
    )


def row_at(fit: Any, name: str, scale: Scale, at: int = 0) -> dict[str, str]:
    """Build a table row for a single term in a fitted model."""
    value = getattr(fit, _COLUMN[scale])[at]
    return row_of(name, value, fit.lower[at], fit.upper[at], fit.p[at], scale)


def rows_of(fit: Any, names: list[str], scale: Scale) -> list[dict[str, str]]:
    """Build a table with all terms in a fitted model."""
    return [row_at(fit, name, scale, at) for at, name in enumerate(names)]


def wald_outcome(
    plan: TestPlan,
    fit: Any,
    names: list[str],
    scale: Scale,
    notes: list[str],
    book: Book,
    tables: dict[str, Any],
) -> TestOutcome:
    """Build the outcome for a model tested by its first term; record its effect and table."""
    effect = effect_of(fit, scale)
    book.add_effect(plan.id, effect, float(fit.p[0]))
    tables[plan.id] = rows_of(fit, names, scale)
    return outcome_of(
        plan,
        fit.n,
        fit.events,
        effect=effect,
        p=float(fit.p[0]),
        statistic=float(fit.coef[0] / fit.se[0]),
        df=1,
        notes=notes,
    )


def row_of(name: str, value: Any, lower: Any, upper: Any, p: Any, scale: str) -> dict[str, str]:
    """Build a table row."""
    return {
        "term": name,
        scale: f"{float(value):.2f}",
        "95% CI": f"{float(lower):.2f} to {float(upper):.2f}",
        "p": p_text(float(p)),
    }


def slug(name: str) -> str:
    """Convert a name to lowercase, with underscores in place of other characters."""
    return "".join(text if text.isalnum() else "_" for text in name.casefold()).strip("_")
