"""Patient flow from the whole cohort to the comparison: losses at each step and group sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from validation.contracts.contract import Contract
from validation.core.dictionary import JoinReport
from validation.inputs.population import apply_filters, outcome_mask
from validation.inputs.study import Study
from validation.results.results import Book

if TYPE_CHECKING:
    import pandas as pd


def group_numbers(study: Study, book: Book) -> None:
    """Record the population's size, the groups' sizes and the cut-points."""
    x = study.exposed.x
    book.add("population.n", study.patients(), "patients")
    book.add("population.in_comparison", study.patients(~np.isnan(x)), "patients")
    if study.exposed.grouped:
        book.add("groups.exposed.n", study.patients(x == 1), "patients")
        book.add("groups.reference.n", study.patients(x == 0), "patients")
        book.add("groups.neither.n", study.patients(np.isnan(x)), "patients")
    for number, cut in enumerate(study.cuts, start=1):
        use = study.contract.exposures[number - 1]
        if cut.upper is not None and cut.lower is not None:
            unit = use.unit or ""
            book.add(f"cut.{number}.upper", cut.upper, unit)
            if cut.lower != cut.upper:
                book.add(f"cut.{number}.lower", cut.lower, unit)


def patient_flow(
    contract: Contract, table: pd.DataFrame, joins: Sequence[dict[str, Any]]
) -> tuple[JoinReport, ...]:
    """Count the patients lost at each condition, following the cohort's own joins."""
    reports = [JoinReport.model_validate(join) for join in joins]
    keep = apply_filters(table, ())
    before = int(keep.sum())

    def step(name: str, reason: str) -> None:
        nonlocal before
        after = int(keep.sum())
        reports.append(JoinReport(step=name, before=before, after=after, reason=reason))
        before = after

    for condition in contract.filters:
        keep &= apply_filters(table, (condition,))
        value = "" if condition.value is None else f" {condition.value}"
        step("population", f"kept {condition.variable} {condition.op}{value}")
    for use in contract.exposures:
        keep &= table[use.key].notna()
        step("exposure", f"{use.label} known")
    keep &= outcome_mask(table, contract.primary_test.endpoint)
    step("outcome", f"{contract.primary_test.endpoint} known")
    if contract.hypothesis.time_dependent:
        keep &= table[f"{contract.primary_test.endpoint}.time"] > 0
        step("follow-up", "followed for longer than 0, in which a value can become known")
    for key in contract.strata:
        if key in table.columns:
            keep &= table[key].notna()
            step("stratum", f"{key} known")
    return tuple(reports)
