"""Comparison of all groups: those formed by two cut exposures, or a trend's ordered groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sage.core.errors import InputError
from sage.core.printable import within_sentence
from validation.cohort.tables import text_of
from validation.contracts.contract import TestPlan, VariableUse
from validation.core.hypothesis import Comparison, CutRule
from validation.inputs.population import two_levels
from validation.inputs.study import Study
from validation.methods.other import compare_pair
from validation.methods.shared import effect_of, fit_cox, layers_of, outcome_of, row_at
from validation.results.results import Book, TestOutcome
from validation.statistics.survival import kaplan_meier, logrank, logrank_trend

if TYPE_CHECKING:
    from validation.statistics.base import IntArray


def groups_of(study: Study) -> tuple[tuple[str, ...], IntArray]:
    """Return a claim's group names and each patient's group (-1 if an exposure is unknown).

    Two exposures form four groups; in the first, neither exposure is at its exposed level
    ("not high" also includes the middle third). For a trend, the groups are ordered from the
    unexposed end.
    """
    if study.contract.comparison is Comparison.TREND:
        use, cut = study.contract.exposures[0], study.cuts[0]
        x, count = study.exposed.x, len(cut.points) + 1
        up = use.level != "low"
        names = tuple(
            f"{use.label}, group {at if up else count + 1 - at} of {count}"
            for at in range(1, count + 1)
        )
        return names, np.where(np.isnan(x), -1, np.nan_to_num(x)).astype(np.int64)
    first, second = study.contract.exposures
    names = tuple(
        f"{_side(study, first, a)}, {_side(study, second, b)}"
        for a in (False, True)
        for b in (False, True)
    )
    x, y = study.exposed.parts
    known = ~(np.isnan(x) | np.isnan(y))
    codes = np.where(known, 2 * np.nan_to_num(x) + np.nan_to_num(y), -1).astype(np.int64)
    return names, codes


def _side(study: Study, use: VariableUse, exposed: bool) -> str:
    if use.kind == "binary":
        found = two_levels({text_of(value) for value in study.rows[use.key].dropna()})
        if found is not None:
            return f"{use.label} = {found[(use.level == 'high') == exposed]}"
    if exposed:
        return f"{use.level} {within_sentence(use.label)}"
    if use.cut is CutRule.TERTILE:
        return f"not {use.level} {within_sentence(use.label)}"
    return f"{'low' if use.level == 'high' else 'high'} {within_sentence(use.label)}"


def joint_groups(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    """Run the log-rank test over all groups; estimate each hazard ratio against the first group.

    For the ordered groups of a trend, it is the log-rank test for trend. Two exposures are also
    compared beside each other, with the adjusted model's covariates, in all patients who have them.
    """
    names, codes = groups_of(study)
    time, event = study.outcome(plan.endpoint)
    assert event is not None
    keep = (codes >= 0) & ~np.isnan(time) & ~np.isnan(event)
    for key in plan.strata:
        keep &= study.rows[key].notna().to_numpy()
    t, e, entry = study.at_risk(plan.endpoint, keep)
    g = codes[keep]
    least = study.contract.rules.min_group
    for code, name in enumerate(names):
        if (g == code).sum() < least:
            raise InputError(
                f'group "{name}" has {int((g == code).sum())} patients; the contract requires at '
                f"least {least}"
            )
    notes: list[str] = []
    layers = layers_of(study, plan, keep, e, notes)
    test = logrank_trend if plan.method == "ordered_groups" else logrank
    found = test(t, e, g, layers, entry)
    X = np.column_stack([(g == code).astype(float) for code in range(1, len(names))])
    fit = fit_cox(t, e, X, list(names[1:]), study, notes, layers, entry)
    book.add(f"{plan.id}.p", found.p, "p-value")
    book.add(f"{plan.id}.statistic", found.statistic, f"chi-squared, {found.df} df")
    rows = []
    for code, name in enumerate(names):
        mine = g == code
        curve = kaplan_meier(t[mine], e[mine], None if entry is None else entry[mine])
        key = f"{plan.id}.{JOINT[code] if len(study.exposed.parts) == 2 else code + 1}"
        book.add(f"{key}.n", curve.n, "patients")
        book.add(f"{key}.events", curve.n_events, "events")
        book.add(f"{key}.median", curve.median, "months")
        row = {"group": name, "n": str(curve.n), "events": str(curve.n_events)}
        row["median (months)"] = book.numbers[f"{key}.median"].text
        if code:
            at = code - 1
            book.add_effect(key, effect_of(fit, "hazard ratio", at), float(fit.p[at]))
            row |= row_at(fit, name, "hazard ratio", at)
            row.pop("term")
        else:
            row |= {"hazard ratio": "1 (reference)", "95% CI": "", "p": ""}
        rows.append(row)
    tables[plan.id] = rows
    if len(study.exposed.parts) == 2:
        covariates = next(
            (t.covariates for t in study.contract.tests
             if t.role == "adjusted" and t.endpoint == plan.endpoint), ()
        )  # fmt: skip
        complete = keep & study.rows[list(covariates)].notna().all(axis=1).to_numpy()
        Z, labels = study.design(covariates, complete)
        a, b = (part[complete][:, None] for part in study.exposed.parts)
        terms = [*(_side(study, use, True) for use in study.contract.exposures), *labels]
        pair = compare_pair(study, plan, complete, a, b, Z, terms, book, notes)
        tables["beside_each_other"] = pair.rows
    return outcome_of(plan, keep, e, p=found.p, statistic=found.statistic, df=found.df, notes=notes)


JOINT = ("neither", "only_second", "only_first", "both")
"""Exposures that are at the claimed level, by the code of the joint group."""
