"""Declaration of columns as `cohort.toml` variables: kind, timing, and report."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from sage.core.errors import InputError
from sage.core.models import Strict
from sage_import.intake.guesses import Confidence, Corrections
from sage_import.intake.levels import Levels, classify_column, implies_baseline, parse_order
from sage_import.intake.names import (
    ADMINISTRATIVE,
    AFTER,
    BEFORE,
    OUTCOME,
    is_path,
    label_from,
    slug,
    tokens,
    unit_in,
    words,
)
from sage_import.intake.values import Column

SUSPECT = "may be from after follow-up began"
"""Warning about a variable that a general answer for all variables does not cover."""


class ColumnGuess(Strict):
    """Decision about a column's use."""

    column: str
    table: str
    role: str
    kind: str = ""
    key: str = ""
    known_at: str = ""
    levels: dict[str, int] = Field(default_factory=dict)
    missing: float = 0.0
    codes: dict[str, int] = Field(default_factory=dict)
    evidence: str = ""
    confidence: Confidence = "likely"
    warning: str = ""
    remedy: str = ""


MOST_DIFFERING = 0.05
"""Maximum fraction of patients whose rows may differ in a patient-level variable."""


class Variables:
    """Declares variables and keeps a report on every column."""

    def __init__(self, said: Corrections) -> None:
        self.said = said
        self.reports: list[ColumnGuess] = []

    def declare(
        self, column: Column, taken: set[str], people: list[str | None], several: bool
    ) -> tuple[str, dict[str, Any]] | None:
        """Declare a column as a `cohort.toml` variable with its key; None if it is omitted."""
        said = self.said.columns.get(column.name, {})
        if column.name in self.said.dropped_columns:
            self._add(column, "left out", evidence="as set")
            return None
        text = words(column.name)
        outcome = OUTCOME.search(text)
        if outcome and "kind" not in said and not BEFORE.search(text):
            self._add(
                column,
                "left out",
                warning=f"“{outcome[0]}”: known only after follow-up began, so it would "
                "reveal the outcome",
            )
            return None
        found = classify_column(column)
        if isinstance(found, str) and said.get("kind", "") in ("binary", "categorical"):
            found = Levels(said["kind"], "as set")
        if isinstance(found, str) or (ADMINISTRATIVE.search(text) and "kind" not in said):
            why = found if isinstance(found, str) else "administrative"
            self._add(column, "left out", evidence=why)
            return None
        if len(column.counts) > 20 and found.kind != "continuous":
            self._add(column, "left out", evidence="an identifier or text")
            return None
        found = self._as_said(column, found, said)
        if found.kind == "continuous" and self._identifies(column):
            self._add(column, "left out", evidence="numbers the rows; not a measurement")
            return None
        return self._declare_variable(column, found, said, taken, people, several)

    def _as_said(self, column: Column, found: Levels, said: dict[str, str]) -> Levels:
        if "order" in said:
            order = parse_order(said["order"], list(column.counts), column.name)
            if isinstance(order, str):
                raise InputError(f"--set {order}")
            return Levels("ordinal", "as set", order, drops_others=True)
        kind = said.get("kind")
        if kind in (None, "skip", found.kind):
            return found
        if kind == "continuous" and not column.numeric:
            raise InputError(f"--set {column.name}.kind: the column contains no numbers")
        if kind == "ordinal" and not (found.values or column.numeric):
            raise InputError(
                f"--set {column.name}.kind: specify the order of its levels, "
                f"{column.name}.order={'<'.join(sorted(column.counts))[:80]}"
            )
        if kind == "binary" and len(column.counts) != 2:
            raise InputError(
                f"--set {column.name}.kind: the column has {len(column.counts)} "
                "values, but binary requires 2"
            )
        values = found.values if kind == "ordinal" else {}
        return Levels(kind, "as set", values, found.drops_others)

    def _identifies(self, column: Column) -> bool:
        values = column.numbers
        named = set(tokens(column.name))
        whole = bool((values % 1 == 0).all())
        steps = values.diff().dropna()
        if not column.suffix and values.iloc[0] in (0, 1) and bool((steps == 1).all()):
            return True  # an index of rows
        return (
            whole
            and len(column.counts) >= max(20, 0.95 * len(column.present))
            and bool(
                named & {"id", "patient", "sample", "nr", "no", "x", "index", "row", "unnamed"}
            )
        )

    def _declare_variable(
        self,
        column: Column,
        found: Levels,
        said: dict[str, str],
        taken: set[str],
        people: list[str | None],
        several: bool,
    ) -> tuple[str, dict[str, Any]] | None:
        key = slug(column.name.rpartition(".")[2] if is_path(column.name) else column.name, taken)
        made: dict[str, Any] = {
            "table": column.table,
            "column": column.name,
            "kind": found.kind,
            "label": column.label or label_from(column.name),
        }
        if found.kind == "continuous" and (unit := unit_in(column.name)):
            made["unit"] = unit
        elif found.kind == "continuous" and column.suffix:
            made["unit"] = column.suffix
        elif (
            found.kind == "continuous"
            and "age" in tokens(column.name)
            and (column.numbers.max() <= 120 or column.numbers.min() > 3650)
        ):
            made["unit"] = "years" if column.numbers.max() <= 120 else "days"
        if column.table == "mutations":
            made["modality"] = "mutation"
        if found.values:
            made["values"] = found.values
        if found.drops_others:
            made["other"] = "missing"
        differ, of = self._count_differing(column, people) if several else (0, 0)
        if differ > MOST_DIFFERING * of and found.kind != "continuous" and "kind" not in said:
            self._add(
                column, "left out", evidence=f"differs between the rows of {differ} of {of} "
                "patients, so it does not describe a patient")  # fmt: skip
            return None
        if differ:
            made["collapse"] = "mean" if found.kind == "continuous" else "first"
        warning = f"the rows of {differ} patients contradict; {made.get('collapse')} is used" * (
            differ > 0
        )
        text = f"{words(column.name)} {words(column.label)}"
        if "known_at" in said:
            made["known_at"], evidence = said["known_at"], "as set"
        elif AFTER.search(text) and not BEFORE.search(text):
            made["known_at"], evidence = "unknown", ""
            warning = f"{SUSPECT}; set {column.name}.known_at"
        elif implies_baseline(column.name):
            made["known_at"] = "baseline"
            evidence = "baseline: its name suggests that it was recorded at diagnosis"
        elif self.said.whole.get("known_at") == "baseline":
            evidence = "baseline: as set for all variables"
        else:
            evidence = ""
        known = made.get("known_at") or self.said.whole.get("known_at", "unknown")
        text = "; ".join(part for part in (found.evidence, evidence) if part)
        self._add(
            column,
            "variable",
            kind=found.kind,
            key=key,
            known_at=known,
            evidence=text,
            confidence="likely" if found.sure else "unsure",
            warning=warning,
        )
        return key, made

    def _count_differing(self, column: Column, people: list[str | None]) -> tuple[int, int]:
        """Count patients with several distinct values, and patients with several rows.

        Only rows with a value count.
        """
        known = column.present
        owner = [people[place] for place in range(len(people)) if not column.absent.iloc[place]]
        groups = known.groupby(owner)
        return int((groups.nunique() > 1).sum()), int((groups.size() > 1).sum())

    def _add(self, *what: Any, **more: Any) -> None:
        self.reports.append(self.report(*what, **more))

    def report(self, column: Column, role: str, kind: str = "", **more: Any) -> ColumnGuess:
        """Report a column's role, levels, and fraction of missing values."""
        many = len(column.counts) > 20
        levels = (
            {}
            if many or (column.numeric and kind == "continuous")
            else {level[:60]: n for level, n in column.counts.most_common(8)}
        )
        if role == "left out" and len(column.counts) > 1:
            more["remedy"] = f'--set "{column.name}.kind=KIND" keeps it'
        return ColumnGuess(
            column=column.name,
            table=column.table,
            role=role,
            kind=kind,
            levels=levels,
            missing=round(float(column.absent.mean()), 4),
            codes={code[:30]: n for code, n in column.missing_codes.most_common(4)},
            **more,
        )
