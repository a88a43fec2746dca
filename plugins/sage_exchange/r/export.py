"""Export of a contract's analysis as a standalone R script with its data and SAGE's numbers.

The script reads three files in its own folder and needs R with its `survival` package (and `cmprsk`
for competing risks). It derives the population, cut-points, groups, and models on its own from
the values in the table, and compares its results with those that SAGE reported.
"""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pandas as pd

from sage.core.errors import InputError
from sage.core.files import write_text
from validation.analysis.analysis import Analysis
from validation.contracts.contract import Contract, FrozenContract, TestPlan, VariableUse
from validation.core.dictionary import known_since
from validation.core.hypothesis import Filter
from validation.core.levels import is_positive
from validation.inputs.population import Cut, exposure_values
from validation.results.results import AnalysisResult

BODY = "analysis.R"
OWN_DRAWS = "based on SAGE's own random draws"
NOT_IN_R: dict[str, str] = {
    "maximally_selected": OWN_DRAWS,
    "calibration": OWN_DRAWS,
    "decision_curve": OWN_DRAWS,
}
IN_R = (
    "kaplan_meier",
    "logrank",
    "cox",
    "spline",
    "schoenfeld",
    "rmst",
    "cause_specific",
    "fine_gray",
    "gray",
    "fisher",
    "logistic",
    "rank",
    "linear",
    "concordance",
    "joint_groups",
    "ordered_groups",
    "nested",
    "mediation",
    "recalibration",
    "calibration_slope",
    "time_dependent",
)
PENALIZED = ("logrank", "cox", "spline", "cause_specific", "logistic", "time_dependent")
"""Tests for which the script replicates Firth's penalty."""
DESCRIBING = ("table_one", "missing_data", "univariable", "cumulative_incidence")
THRESHOLD = "decision_curve.threshold"
QUANTITIES = (
    "effect",
    "lower",
    "upper",
    "p",
    "n",
    "events",
    "difference",
    "global_p",
    "nonlinearity.p",
    "intercept",
    "score",
    "all",
    "with.harrell",
    "without.harrell",
    *(
        f"{side}.{name}"
        for side in ("exposed", "reference")
        for name in ("median", "at_12", "at_36", "at_60")
    ),
)


def export_r(inputs: Path, analysis: AnalysisResult, folder: Path) -> Path:
    """Write `analysis.R`, `table.csv`, `columns.csv` and `expected.csv` to `folder`.

    Returns
    -------
    The script's path. Run it with `Rscript FOLDER/analysis.R`; it exits with status 1 if a
    number differs.

    Raises
    ------
    InputError
        If the inputs are missing or changed, or belong to another contract.
    """
    opened = Analysis.open(inputs)
    if opened.frozen.sha256 != analysis.contract_sha256 or opened.part != analysis.part:
        raise InputError(f"{inputs}: these inputs belong to another analysis")
    contract, table = opened.contract, opened.table
    if contract.hypothesis.penalty is not None:
        raise InputError(f"{inputs}: a claim with a `penalty` has no R script; it is {OWN_DRAWS}")
    for use in contract.exposures:
        table[use.key] = exposure_values(table, use.model_copy(update={"rescale": None}))
    folder.mkdir(parents=True, exist_ok=True)
    handed_over = opened.part == "confirmation"
    text = _plan(contract, analysis, analysis.cuts if handed_over else ())
    body = (Path(__file__).parent / BODY).read_text(encoding="utf-8")
    write_text(folder / "table.csv", table.to_csv(index_label="patient"))
    write_text(folder / "columns.csv", _columns(table))
    write_text(folder / "expected.csv", _expected_rows(analysis))
    write_text(folder / BODY, _head(opened.frozen, opened.part) + text + "\n\n" + body)
    return folder / BODY


def _head(frozen: FrozenContract, part: str) -> str:
    statement = " ".join(frozen.contract.hypothesis.statement.split())
    printable = "".join(item if item.isprintable() else " " for item in statement)
    return (
        f"# Validation contract {frozen.sha256}, {part} patients.\n# {printable}\n#\n# Rscript "
        "analysis.R: repeats the registered tests on table.csv and compares the numbers\n# with "
        "expected.csv. Needs R with the package survival; cmprsk for competing risks.\n# "
        "table.csv contains patients' values under pseudonyms: store it as securely as the "
        "cohort.\n\n"
    )


def _columns(table: pd.DataFrame) -> str:
    rows = [("patient", "character")]
    for name in table.columns:
        number = pd.api.types.is_numeric_dtype(table[name])
        rows.append((str(name), "numeric" if number else "character"))
    return _csv(("column", "class"), rows)


def _expected_rows(analysis: AnalysisResult) -> str:
    rows: list[tuple[str, object]] = []
    for outcome in analysis.tests:
        if outcome.status != "ok" or outcome.id.startswith("control."):
            continue
        found: dict[str, float | int | None] = {"n": outcome.n, "events": outcome.events}
        for name in QUANTITIES:
            number = analysis.numbers.get(f"{outcome.id}.{name}")
            if number is not None:
                found[name] = number.value
        if outcome.effect is not None:
            found |= {"effect": outcome.effect.value, "p": outcome.p}
            found |= {"lower": outcome.effect.lower, "upper": outcome.effect.upper}
        rows += [(f"{outcome.id}.{name}", item) for name, item in found.items() if item is not None]
    return _csv(("key", "value"), rows)


def _csv(head: tuple[str, ...], rows: list[Any]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    return text.getvalue()


def _plan(contract: Contract, analysis: AnalysisResult, cuts: tuple[Cut, ...]) -> str:
    """Render the test plan for the script as an R list."""
    exposures: list[dict[str, Any]] = []
    for at, use in enumerate(contract.exposures):
        entry: dict[str, Any] = {"key": use.key, "level": use.level or "high"}
        entry["rule"] = str(use.cut.value) if use.cut is not None else "median"
        if use.rescale is not None:
            entry["rescale"] = use.rescale
        if use.threshold is not None:
            entry["threshold"] = use.threshold
        if cuts:
            kept = ("lower", "upper", "mean", "sd", "points")
            entry["cut"] = {
                name: list(value) if isinstance(value, tuple) else value
                for name in kept
                if (value := getattr(cuts[at], name)) is not None
            }
        exposures.append(entry)
    tests = [
        {
            "id": plan.id,
            "method": plan.method,
            "endpoint": plan.endpoint,
            "covariates": _Vector(plan.covariates),
            "strata": _Vector(plan.strata),
            **({"subgroup": _filter(plan.subgroup)} if plan.subgroup is not None else {}),
            **({"within": plan.within.model_dump()} if plan.within is not None else {}),
            "penalty": _penalized(plan, analysis),
            "skip": _skip(contract, plan, analysis),
        }
        for plan in contract.tests
        if plan.method not in DESCRIBING
    ]
    plan = {
        "comparison": contract.comparison.value,
        "exposures": exposures,
        "filters": [_filter(condition) for condition in contract.filters],
        "kinds": {endpoint.key: endpoint.kind for endpoint in contract.endpoints},
        "primary_endpoint": contract.primary_test.endpoint,
        "cluster": contract.cluster or "",
        "rmst_months": contract.rules.rmst_months,
        "late": [
            {"key": use.key, "since": known_since(use.key), "before": _value_before(contract, use)}
            for use in {variable.key: variable for variable in contract.variables}.values()
            if contract.hypothesis.time_dependent and use.known_at == "column"
        ],
        "tests": tests,
        "calibration": None
        if (given := contract.hypothesis.calibration) is None
        else given.model_dump(exclude={"source"}, exclude_none=True)
        | {"threshold": near.value if (near := analysis.numbers.get(THRESHOLD)) else 0.5},
    }
    plan = {name: item for name, item in plan.items() if item is not None}
    return f"plan <- {_r(plan)}"


def _value_before(contract: Contract, use: VariableUse) -> str | int | float | bool | None:
    """Return the value that applies before the variable is known; a number for an exposure."""
    text = str(use.before).casefold()
    exposure = use.key in {exposure.key for exposure in contract.exposures}
    if not exposure or text.replace(".", "", 1).isdigit():
        return use.before
    return int(is_positive(text))


def _penalized(plan: TestPlan, analysis: AnalysisResult) -> bool:
    """Return True if SAGE fitted the model with Firth's penalty."""
    outcome = analysis.test(plan.id)
    return outcome is not None and "Firth" in " ".join(outcome.notes)


def _skip(contract: Contract, plan: TestPlan, analysis: AnalysisResult) -> str:
    """Return the reason why R cannot replicate a test, or an empty string if it can."""
    outcome = analysis.test(plan.id)
    if outcome is None or outcome.status != "ok":
        return "not computed by SAGE" if outcome is None else f"{outcome.status}: {outcome.reason}"
    notes = " ".join(outcome.notes)
    repeated = plan.method in PENALIZED and contract.cluster is None
    if _penalized(plan, analysis) and not repeated:
        return "the script does not implement Firth's penalty here"
    if "imputed" in notes and "nothing is imputed" not in notes:
        return OWN_DRAWS
    score = plan.method == "decision_curve" and not contract.associates
    if plan.method not in IN_R and not score:
        return NOT_IN_R.get(plan.method, "not part of this script")
    return ""


def _filter(condition: Filter) -> dict[str, Any]:
    values = condition.value if isinstance(condition.value, tuple) else (condition.value,)
    texts = [
        str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
        for value in values
        if value is not None
    ]
    return {"variable": condition.variable, "op": condition.op, "values": _Vector(texts)}


class _Vector(tuple[str, ...]):
    """Strings to render as an R character vector."""


def _r(value: Any, indent: int = 0) -> str:
    """Render a value as an R expression; strings are quoted as in JSON."""
    if isinstance(value, _Vector):
        return f"c({', '.join(_text(item) for item in value)})" if value else "character()"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, int | float):
        return repr(value)
    pad = "  " * (indent + 1)
    if isinstance(value, dict):
        inner = [f"{pad}`{name}` = {_r(item, indent + 1)}" for name, item in value.items()]
    else:
        inner = [f"{pad}{_r(item, indent + 1)}" for item in value]
    return "list(\n" + ",\n".join(inner) + "\n" + "  " * indent + ")" if inner else "list()"


def _text(value: str) -> str:
    """Quote a string for R, whose escapes match JSON's except for surrogate pairs."""
    quoted = json.dumps(value, ensure_ascii=False)
    return quoted.replace("\\/", "/").replace("\\b", "\\u0008").replace("\\f", "\\u000c")
