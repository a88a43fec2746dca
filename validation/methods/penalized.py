"""Cross-validated score of many markers by a penalized Cox model, tested by permutation."""

from __future__ import annotations

from typing import Any

import numpy as np

from validation.contracts.contract import TestPlan
from validation.inputs.study import Study
from validation.methods.shared import effect_of, fitter_of, matrix, outcome_of, rows_of
from validation.results.results import Book, TestOutcome
from validation.statistics.base import BoolArray, FloatArray
from validation.statistics.cox import null_scores
from validation.statistics.cutpoint import logrank_scores
from validation.statistics.penalized import OUTER, out_of_fold
from validation.statistics.permuted import permutations, score_z

DRAWS, AT_ONCE = 199, 50
ENOUGH = 20
"""Number of permuted scores as strong as the claim's at which permutation stops early."""


def penalized(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    """Fit the out-of-fold score with the covariates; the p-value is from permutations.

    A score depends on the outcomes in other folds, so the Wald test does not apply. Each
    permutation reassigns the patients' markers at random and repeats the cross-validation.
    """
    keep, X, names, notes = matrix(study, plan)
    fit = fitter_of(study, plan, keep, notes).fit(X, names)
    effect, p = effect_of(fit, "hazard ratio"), float(fit.p[0])
    if (models := study.curves.get("penalized")) is not None:  # else only some of the patients
        observed, null = score_draws(study, plan, keep, X[:, 1:])
        p = float((1 + (null >= observed).sum()) / (1 + len(null)))
        book.add(f"{plan.id}.draws", len(null), "permutations")
        folds = (models.coefs[:, 0] != 0).sum(axis=0)
        kept = sorted(
            zip(folds.tolist(), (use.label for use in study.contract.exposures), strict=True),
            key=lambda item: -item[0],
        )
        notes += [
            f"{study.contract.hypothesis.penalty} Cox model of {len(kept)} markers, nested "
            f"cross-validation; one-sided p of {len(null)} permutations; the interval takes the "
            "score as given",
            f"in models of {OUTER} folds: {', '.join(f'{label} {n}' for n, label in kept)}",
        ]
    book.add_effect(plan.id, effect, p)
    tables[plan.id] = rows_of(fit, names, "hazard ratio")
    return outcome_of(plan, fit.n, fit.events, effect=effect, p=p, notes=notes)


def score_draws(
    study: Study, plan: TestPlan, keep: BoolArray, Z: FloatArray
) -> tuple[float, FloatArray]:
    """Return the score's standardized statistic given (kept, q) terms, and the permuted ones."""
    whole, drawn = permuted_scores(study)
    t, e = study.follow_up(plan.endpoint, keep)
    layers, inside = study.layers(plan.strata, keep), keep[whole]
    if Z.shape[1]:
        names = [f"term {at}" for at in range(Z.shape[1])]
        scores = null_scores(t, e, Z, names, layers)
    else:
        scores = logrank_scores(t, e == 1)
    columns = np.column_stack([study.exposed.x[keep], drawn.T[inside]])
    found = _standardized(scores, columns, Z if Z.shape[1] else None, layers)
    return float(found[0]), found[1:]


def permuted_scores(study: Study) -> tuple[BoolArray, FloatArray]:
    """Return the mask of scored patients and the (draws, scored) scores of permuted markers."""
    if (kept := study.curves.get("permuted scores")) is not None:
        found: tuple[BoolArray, FloatArray] = kept
        return found
    contract = study.contract
    plan, penalty = contract.primary_test, contract.hypothesis.penalty
    assert penalty is not None
    whole = study.complete(plan.endpoint)
    t, e = study.follow_up(plan.endpoint, whole)
    X, scores = study.markers(whole), logrank_scores(t, e == 1)
    observed = _standardized(scores, study.exposed.x[whole][:, None], None)[0]
    drawn, stronger = np.empty((0, len(t))), 0
    orders = permutations(len(t), DRAWS, contract.seed + 5)
    for start in range(0, DRAWS, AT_ONCE):
        dealt = X[orders[start : start + AT_ONCE]]
        more = out_of_fold(t, e == 1, dealt, penalty, contract.seed).scores
        drawn = np.vstack([drawn, more])
        stronger += int((_standardized(scores, more.T, None) >= observed).sum())
        if stronger >= ENOUGH:
            break
    study.curves["permuted scores"] = (whole, drawn)
    return whole, drawn


def _standardized(
    scores: FloatArray, columns: FloatArray, Z: FloatArray | None, layers: Any = None
) -> FloatArray:
    """Return standardized score statistics, 0 for a score that does not vary."""
    return np.nan_to_num(score_z(scores, columns, Z, layers), nan=0.0, posinf=0.0, neginf=0.0)
