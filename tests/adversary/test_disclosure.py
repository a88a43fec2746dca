"""Attacks on one patient through aggregates: differences of calls, extremes, small counts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agents.coding.appendix import Table
from mcp_servers.context import ToolContext
from mcp_servers.registry import Registry, load
from mcp_servers.roots import Roots
from sage.core.errors import InputError
from sage_nova.code_acting.exploring import Tables, most_shown
from validation.cohort.codes import CODES, report
from validation.disclosure import (
    MIN_COUNT,
    SHARED,
    Looks,
    round_to_error,
    safe_count,
    shown_finding,
    shown_levels,
    winsorized,
)

N, PLANTED = 120, 98765.4321
"""Patients of the cohort, and the value of a single one of them."""
DRAW = np.random.default_rng(3)
SCORE = DRAW.normal(size=N)
DAYS, DEAD = DRAW.integers(30, 2000, N), DRAW.integers(0, 2, N)
AGE = DRAW.permutation(np.arange(40, 40 + N))
MARKER = np.where(np.arange(N) == 7, PLANTED, DRAW.normal(50, 9, N).round(2))


@pytest.fixture(scope="module")
def registry() -> Registry:
    return load("oncology")


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ToolContext:
    """A context over a cohort with a rare level, an outlier, and 120 patients."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    folder = tmp_path / "in" / "cohort"
    folder.mkdir(parents=True)
    stage = ["rare"] * 1 + ["one"] * 40 + ["two"] * 79
    lines = ["id,age,marker,stage,days,dead"] + [
        f"P{at},{AGE[at]},{MARKER[at]},{stage[at]},{DAYS[at]},{DEAD[at]}" for at in range(N)
    ]
    (folder / "clinical.csv").write_text("\n".join(lines) + "\n")
    (folder / "cohort.toml").write_text(
        'id = "small"\ntitle = "Small"\nmin_level = 1\npatient = { table = "clinical" }\n'
        'tables.clinical = { file = "clinical.csv", key = "id" }\n[variables]\n'
        'age = { table = "clinical", column = "age", kind = "continuous" }\n'
        'marker = { table = "clinical", column = "marker", kind = "continuous" }\n'
        'stage = { table = "clinical", column = "stage", kind = "categorical" }\n'
        '[endpoints.OS]\nkind = "survival"\ntable = "clinical"\ntime = "days"\n'
        'time_unit = "days"\nevent = "dead"\nevent_values = [1]\ncensored_values = [0]\n'
    )
    return ToolContext(roots=Roots.resolve([tmp_path / "in"], tmp_path / "out"))


def save(context: ToolContext, name: str, values: Any) -> str:
    """A table of the caller's with a column `x`; NaN leaves a patient out."""
    rows = [f"P{at},{value}" for at, value in enumerate(values) if value == value]
    path = context.roots.inputs[0] / f"{name}.csv"
    path.write_text("\n".join(["patient,x", *rows]) + "\n")
    return path.name


def moved(values: Any, patient: int, value: float) -> Any:
    """The values, with one patient's replaced."""
    return np.where(np.arange(N) == patient, value, values)


def column_calls(tool: str, first: Any, second: Any) -> Callable[[ToolContext], list[Any]]:
    """Two calls on a column of the caller's, the second of which must be refused."""

    def calls(context: ToolContext) -> list[Any]:
        given: list[Any] = []
        for name, values in (("a", first), ("b", second)):
            key = f"imaging:{name}_x"
            base: dict[str, Any] = {
                "cohort": "cohort",
                "endpoint": "OS",
                "tables": [save(context, name, values)],
            }
            more: dict[str, Any] = {
                "concordance": {"risk": key, "bootstrap": 100},
                "cox": {"covariates": [key]},
                "logrank": {"group": key},
                "kaplan_meier": {"group": key},
                "screen": {"features": [key]},
            }[tool]
            given.append((tool, base | more))
        return given

    return calls


def filter_calls(*filters: list[Any]) -> Callable[[ToolContext], list[Any]]:
    """Calls on patients chosen by filters; the last must be refused."""
    return lambda context: [
        ("kaplan_meier", {"cohort": "cohort", "endpoint": "OS", "filters": [
            dict(zip(("variable", "op", "value"), item, strict=True)) for item in chosen]})
        for chosen in filters
    ]  # fmt: skip


def threshold_calls(*thresholds: float) -> Callable[[ToolContext], list[Any]]:
    """Calls on groups at these ages; the last must be refused."""
    return lambda context: [
        (
            "logrank",
            {"cohort": "cohort", "endpoint": "OS", "group": "clinical:age", "threshold": at},
        )
        for at in thresholds
    ]


LOW, HIGH = SCORE.min() - 1, SCORE.max() + 1
LEVELS = (SCORE > 0).astype(float)
MISSING = moved(SCORE, 5, np.nan)
AGED = "clinical:age"
ATTACKS = {
    "lowest, then highest": column_calls(
        "concordance", moved(SCORE, 5, LOW), moved(SCORE, 5, HIGH)),
    "in another unit": column_calls("concordance", SCORE, moved(SCORE, 5, HIGH) * 1000 + 3),
    "transformed": column_calls("concordance", SCORE, np.exp(moved(SCORE, 5, HIGH))),
    "turned": column_calls("concordance", SCORE, -moved(SCORE, 5, HIGH)),
    "four at once": column_calls(
        "concordance", SCORE, np.where(np.arange(N) < 4, HIGH + np.arange(N), SCORE)),
    "one left out": column_calls("concordance", SCORE, MISSING),
    "in a Cox model": column_calls("cox", moved(SCORE, 9, LOW), moved(SCORE, 9, HIGH)),
    "in a screen": column_calls("screen", moved(SCORE, 9, LOW), moved(SCORE, 9, HIGH)),
    "one in the other group": column_calls("logrank", LEVELS, moved(LEVELS, 3, 1 - LEVELS[3])),
    "groups renamed": column_calls(
        "kaplan_meier", LEVELS, 5 - moved(LEVELS, 3, 1 - LEVELS[3])),
    "all but one": filter_calls([(AGED, "gt", 40)]),
    "all but four": filter_calls([(AGED, "ge", 44)]),
    "one more": filter_calls([(AGED, "gt", 80)], [(AGED, "gt", 81)]),
    "by two filters": filter_calls(
        [(AGED, "gt", 70)], [(AGED, "gt", 60), (AGED, "gt", 72)]),
    "by another level": filter_calls([("clinical:stage", "ne", "rare")]),
    "threshold past one": threshold_calls(80, 81),
    "threshold past four": threshold_calls(80, 90, 94),
}  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_call_whose_difference_is_about_a_few_patients_is_refused(
    attack: str, registry: Registry, context: ToolContext
) -> None:
    *before, (tool, given) = ATTACKS[attack](context)
    for name, arguments in before:
        registry.run(name, arguments, context)
    with pytest.raises(InputError, match="fewer than"):
        registry.run(tool, given, context)


def test_honest_calls_of_one_caller_are_answered(registry: Registry, context: ToolContext) -> None:
    other = DRAW.normal(size=N)
    noisy = SCORE + 0.3 * DRAW.normal(size=N)
    for calls in (
        column_calls("concordance", SCORE, other), column_calls("concordance", SCORE, noisy),
        column_calls("concordance", SCORE, SCORE * 2 + 1),
        column_calls("logrank", LEVELS, (other > 0).astype(float)),
        threshold_calls(70, 80, 100), filter_calls([(AGED, "gt", 70)], [(AGED, "gt", 90)]),
    ):  # fmt: skip
        for name, given in calls(context) * 2:
            assert registry.run(name, given, context).result


def test_no_door_gives_back_a_planted_extreme(registry: Registry, context: ToolContext) -> None:
    told = json.dumps(registry.run("describe_cohort", {"cohort": "cohort"}, context).result)
    assert "outlier" in told
    for digits in ("98765", "9.88e", "98800", "99000"):
        assert digits not in told
    finding = report("outlier", "variables.marker", f"1 implausible value (up to {PLANTED})")
    assert "98765" not in shown_finding(finding).model_dump_json()
    values = winsorized(MARKER)
    for summary in (values.mean(), values.std(), values.max()):
        assert summary < 100
    assert {"outlier", "impossible_value", "copied_patients", "few_events"} <= CODES.keys() - SHARED


def test_a_hidden_level_is_not_what_is_missing_from_the_sum() -> None:
    for levels in ({"a": 94, "b": 67, "c": 78, "d": 1}, {"a": 50, "b": 4}, {"a": 9, "b": 2, "c": 2},
                   {"a": 5, "b": 1, "c": 1}, {"a": 300, "b": 3, "c": 0}):  # fmt: skip
        shown = shown_levels(levels)
        hidden = {level: n for level, n in levels.items() if n and level not in shown}
        assert len(hidden) != 1 or len(levels) == 1, levels
        assert sum(hidden.values()) >= MIN_COUNT, levels
        assert all(n >= MIN_COUNT for n in shown.values() if n)
    assert [safe_count(n, 100) for n in (0, 3, 50, 98, 100)] == [0, None, 50, None, 100]


def test_rounding_keeps_the_first_digit_of_the_error() -> None:
    assert round_to_error(0.61234, 0.0312) == 0.61
    assert round_to_error(12345.6, 310.0) == 12300
    assert round_to_error(0.5, 0.0) == 0.5


def test_looks_know_no_outcome_and_bound_a_caller(tmp_path: Path) -> None:
    looks = Looks("c", tmp_path)
    looks.admit(SCORE)
    looks.admit(SCORE)
    assert len(looks.path.read_text().splitlines()) == 1
    assert sorted(json.loads(looks.path.read_text())) == list(range(N))


@pytest.mark.parametrize("patients", [40, 240, 10_000])
def test_an_exploration_shows_fewer_numbers_than_half_of_the_patients(patients: int) -> None:
    column = DRAW.normal(size=patients).round(2)
    tables = Tables(column[:, None], frozenset(), MIN_COUNT, left=most_shown(patients))
    blocks = [
        Table(name=f"t{at}", columns=("n", *"abcdefg"),
              rows=tuple((str(row), *map(str, column[row : row + 8])) for row in range(20)))
        for at in range(40)
    ]  # fmt: skip
    shown, _ = tables._select_tables(blocks)
    assert sum(len(table.rows) * len(table.columns) for table in shown) <= patients // 2
