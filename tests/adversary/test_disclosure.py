"""Attacks on one patient through aggregates: differences of calls, extremes, small counts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
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
from validation.core.dictionary import Variable
from validation.disclosure import (
    MIN_COUNT,
    SHARED,
    Looks,
    count_text,
    round_to_error,
    safe_count,
    shown_finding,
    shown_months,
    shown_quantiles,
    shown_variable,
    winsorized,
)

N, PLANTED = 120, 98765.4321
"""Patients of the cohort, and the value of a single one of them."""
DRAW = np.random.default_rng(3)
SCORE = DRAW.normal(size=N)
DAYS, DEAD = DRAW.integers(30, 2000, N), DRAW.integers(0, 2, N)
CAUSE = np.where(DEAD == 1, np.where(np.arange(N) % 3, 1, 2), 0)
GRADE = ["" if at in (3, 8) else str(DRAW.integers(1, 4)) for at in range(N)]
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
    lines = ["id,age,marker,stage,grade,days,dead,cause"] + [
        f"P{at},{AGE[at]},{MARKER[at]},{stage[at]},{GRADE[at]},{DAYS[at]},{DEAD[at]},{CAUSE[at]}"
        for at in range(N)
    ]
    (folder / "clinical.csv").write_text("\n".join(lines) + "\n")
    (folder / "cohort.toml").write_text(
        'id = "small"\ntitle = "Small"\nmin_level = 1\npatient = { table = "clinical" }\n'
        'tables.clinical = { file = "clinical.csv", key = "id" }\n[variables]\n'
        'age = { table = "clinical", column = "age", kind = "continuous" }\n'
        'marker = { table = "clinical", column = "marker", kind = "continuous" }\n'
        'stage = { table = "clinical", column = "stage", kind = "categorical" }\n'
        'grade = { table = "clinical", column = "grade", kind = "continuous" }\n'
        '[endpoints.OS]\nkind = "survival"\ntable = "clinical"\ntime = "days"\n'
        'time_unit = "days"\nevent = "dead"\nevent_values = [1]\ncensored_values = [0]\n'
        '[endpoints.DSS]\nkind = "competing"\ntable = "clinical"\ntime = "days"\n'
        'time_unit = "days"\nevent = "cause"\nevent_values = [1]\ncompeting_values = [2]\n'
        "censored_values = [0]\n"
    )
    return ToolContext(roots=Roots.resolve([tmp_path / "in"], tmp_path / "out"))


def save(context: ToolContext, name: str, values: Any) -> str:
    """A table of the caller's with a column `x`; NaN leaves a patient out, a list averages."""
    rows = [
        f"P{at},{part}"
        for at, value in enumerate(values)
        for part in (value if isinstance(value, list) else [value])
        if part == part
    ]
    path = context.roots.inputs[0] / f"{name}.csv"
    path.write_text("\n".join(["patient,x", *rows]) + "\n")
    return path.name


def moved(values: Any, patient: int, value: float) -> Any:
    """The values, with one patient's replaced."""
    return np.where(np.arange(N) == patient, value, values)


Calls = Callable[[ToolContext], list[Any]]
AGED = "clinical:age"


def column_calls(tool: str, *columns: Any, beside: Sequence[str] = ()) -> Calls:
    """Calls on columns of the caller's, the last of which must be refused."""

    def calls(context: ToolContext) -> list[Any]:
        given: list[Any] = []
        for name, values in zip("abcdef", columns, strict=False):
            key = f"imaging:{name}_x"
            base: dict[str, Any] = {
                "cohort": "cohort",
                "endpoint": "DSS" if tool == "competing_risks" else "OS",
                "tables": [save(context, name, values)],
            }
            kinds: dict[str, dict[str, Any]] = {
                "concordance": {"risk": key, "bootstrap": 100},
                "cox": {"covariates": [key, *beside]},
                "strata": {"group": AGED, "strata": key},
                "filter": {"filters": [{"variable": key, "op": "present"}]},
                "screen": {"features": [key]},
            }
            own = kinds.get(tool, {"group": key})
            name = {"strata": "logrank", "filter": "kaplan_meier"}.get(tool, tool)
            given.append((name, base | own))
        return given

    return calls


def filter_calls(*filters: list[Any]) -> Calls:
    """Calls on patients chosen by filters; the last must be refused."""
    return lambda context: [
        ("kaplan_meier", {"cohort": "cohort", "endpoint": "OS", "filters": [
            dict(zip(("variable", "op", "value"), item, strict=True)) for item in chosen]})
        for chosen in filters
    ]  # fmt: skip


def group_calls(*groups: dict[str, Any], **more: Any) -> Calls:
    """Calls on groups by age; the last must be refused."""
    return lambda context: [
        ("logrank", {"cohort": "cohort", "endpoint": "OS", "group": AGED} | given | more)
        for given in groups
    ]


def threshold_calls(*thresholds: float, **more: Any) -> Calls:
    """Calls on groups at these ages; the last must be refused."""
    return group_calls(*({"threshold": at} for at in thresholds), **more)


def model(context: ToolContext, terms: str, names: list[str]) -> dict[str, Any]:
    """Arguments for a table of random columns; the last is the sum of all, but for a patient."""
    columns = DRAW.normal(size=(N, len(names)))
    columns[:, -1] = columns[:, :-1].sum(axis=1) + 2 * (np.arange(N) == 5)
    lines = [",".join([f"P{at}", *map(str, row)]) for at, row in enumerate(columns)]
    text = "\n".join([",".join(["patient", *names]), *lines])
    (context.roots.inputs[0] / "m.csv").write_text(text)
    keys = [f"imaging:m_{name}" for name in names]
    return {"cohort": "cohort", "endpoint": "OS", "tables": ["m.csv"], terms: keys}


def stratified(tool: str) -> Calls:
    """A call on groups that differ within the stratum of five only, by one of its patients."""
    strata = np.where(np.arange(N) < 5, 0.0, DRAW.integers(1, 5, N))
    groups = moved((strata > 2).astype(float), 3, 1.0)
    return lambda context: [(tool, {
        "cohort": "cohort", "endpoint": "OS", "strata": "imaging:s_x",
        "tables": [save(context, "s", strata), save(context, "g", groups)],
        **({"group": "imaging:g_x"} if tool == "logrank" else {"covariates": ["imaging:g_x"]}),
    })]  # fmt: skip


LOW, HIGH = SCORE.min() - 1, SCORE.max() + 1
LEVELS = (SCORE > 0).astype(float)
ODD = moved(LEVELS, 3, 1 - LEVELS[3])
ONLY = moved(np.zeros(N), 5, 1.0)
THIRD = moved(SCORE, 5, np.nan)
ORDER = np.argsort(SCORE)
TOP = int(ORDER[-1])
SWAPPED = moved(SCORE, int(ORDER[0]), HIGH)
for _at in range(10, 110, 20):
    SWAPPED[ORDER[[_at, _at + 1]]] = SWAPPED[ORDER[[_at + 1, _at]]]
TIED = np.where(np.arange(N) < 13, np.arange(N) + 2.0, 0.0)
HALF = (np.arange(N) < 60).astype(float)
ALIVE = np.isin(np.arange(N), np.flatnonzero(DEAD == 0)[:5]).astype(float)
SIXTY = np.where(HALF == 1, SCORE, np.nan)
OLD = [{"variable": AGED, "op": "gt", "value": 100}]
ATTACKS: dict[str, Calls] = {
    "lowest, then highest": column_calls(
        "concordance", moved(SCORE, 5, LOW), moved(SCORE, 5, HIGH)),
    "in another unit": column_calls("concordance", SCORE, moved(SCORE, 5, HIGH) * 1000 + 3),
    "transformed": column_calls("concordance", SCORE, np.exp(moved(SCORE, 5, HIGH))),
    "turned": column_calls("concordance", SCORE, -moved(SCORE, 5, HIGH)),
    "four at once": column_calls(
        "concordance", SCORE, np.where(np.arange(N) < 4, HIGH + np.arange(N), SCORE)),
    "one left out": column_calls("concordance", SCORE, THIRD),
    "one left out, another moved": column_calls(
        "concordance", SCORE, moved(THIRD, 9, HIGH) * -2),
    "one swapped for another": column_calls("concordance", THIRD, moved(SCORE, 6, np.nan)),
    "two rows of one patient": column_calls(
        "concordance", SCORE, [[LOW, HIGH * 9] if at == 5 else v for at, v in enumerate(SCORE)]),
    "a walk of four steps": column_calls("concordance", *(
        np.where(np.arange(N) < at, HIGH + np.arange(N), SCORE) for at in (0, 20, 40, 41))),
    "one moved far and ten a little": column_calls("concordance", SCORE, SWAPPED),
    "out of a tie": column_calls("concordance", TIED, moved(TIED, 50, 1.0)),
    "one level more than groups have": column_calls(
        "concordance", np.minimum(TIED, 12), moved(np.minimum(TIED, 12), 50, 13.0)),
    "by a value that keeps its rank": column_calls("cox", SCORE, moved(SCORE, TOP, 30.0)),
    "a value that outweighs all": column_calls("cox", moved(SCORE, TOP, 1e6)),
    "a value of the cohort that outweighs all": lambda context: [
        ("cox", {"cohort": "cohort", "endpoint": "OS", "covariates": ["clinical:marker"]})],
    "of a single patient": column_calls("concordance", ONLY),
    "in a Cox model": column_calls("cox", moved(SCORE, 9, LOW), moved(SCORE, 9, HIGH)),
    "beside a covariate": column_calls(
        "cox", SCORE, moved(SCORE, 9, LOW), beside=[AGED, "clinical:grade"]),
    "a single patient in a Cox model": column_calls("cox", ONLY),
    "in a screen": column_calls("screen", moved(SCORE, 9, LOW), moved(SCORE, 9, HIGH)),
    "a single patient in a screen": column_calls("screen", ONLY),
    "one in the other group": column_calls("logrank", LEVELS, ODD),
    "groups renamed": column_calls("kaplan_meier", LEVELS, 5 - ODD),
    "incidence of groups": column_calls("competing_risks", LEVELS, ODD),
    "from another test": lambda context: [
        column_calls("competing_risks", LEVELS)(context)[0],
        column_calls("logrank", LEVELS, ODD)(context)[1]],
    "as a stratum": column_calls("strata", LEVELS, ODD),
    "a stratum of one": column_calls("strata", ONLY),
    "a small stratum": group_calls({"strata": "clinical:stage"}),
    "a filter on it": column_calls("filter", THIRD),
    "all but one": filter_calls([(AGED, "gt", 40)]),
    "all but four": filter_calls([(AGED, "ge", 44)]),
    "all but the outlier": filter_calls([("clinical:marker", "lt", 1000)]),
    "all who have a value": filter_calls([("clinical:grade", "present", None)]),
    "one more": filter_calls([(AGED, "gt", 80)], [(AGED, "gt", 81)]),
    "by two filters": filter_calls(
        [(AGED, "gt", 70)], [(AGED, "gt", 60), (AGED, "gt", 72)]),
    "by another level": filter_calls([("clinical:stage", "ne", "rare")]),
    "by a list": filter_calls([("clinical:stage", "in", ("one", "two"))]),
    "threshold past one": threshold_calls(80, 81),
    "threshold past four": threshold_calls(80, 90, 94),
    "threshold past the median": group_calls({"cut": "median"}, {"threshold": 100}),
    "curves at thresholds": lambda context: [
        ("kaplan_meier", given) for _, given in threshold_calls(80, 81)(context)],
    "thresholds among the old": threshold_calls(120, 122, filters=OLD),
    "median of the old, then a threshold": group_calls(
        {"cut": "median"}, {"threshold": 132}, filters=OLD),
    "a side of a filter without anybody": filter_calls([("clinical:marker", "lt", 2 * PLANTED)]),
    "such a side among the old": filter_calls([(AGED, "gt", 100), (AGED, "lt", 400)]),
    "a side of a threshold without anybody": threshold_calls(400),
    "by a filter, then as a group": lambda context: [
        column_calls("filter", SIXTY)(context)[0],
        column_calls("logrank", SIXTY, np.where(
            moved(HALF, 5, 0.0) == 0, 1, DRAW.integers(2, 4, N)))(context)[1]],
    "one group of three": column_calls("logrank", *(
        np.where(half == 1, 1, DRAW.integers(2, 4, N)) for half in (HALF, moved(HALF, 70, 1.0)))),
    "a group in which nobody died": column_calls("logrank", ALIVE),
    "a term of those who lived": column_calls("cox", ALIVE),
    "one patient apart within strata": stratified("logrank"),
    "one patient apart within strata of a model": stratified("cox"),
    "what other terms leave of a term": lambda context: [
        ("cox", model(context, "covariates", ["a", "b", "c"]))],
    "what terms leave in a model of two risks": lambda context: [("competing_risks", model(
        context, "covariates", ["a", "b", "c"]) | {"group": AGED, "endpoint": "DSS"})],
    "in a file with another name": lambda context: [
        ("concordance", {"cohort": "cohort", "endpoint": "OS", "risk": f"imaging:{name}_x",
         "tables": [save(context, f"{name}_", moved(SCORE, 5, end))]})
        for name, end in (("a", LOW), ("b", HIGH))],
    "a column for every third patient": lambda context: [("screen", model(
        context, "features", [f"x{at}" for at in range(N // 3)]))],
}  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_call_whose_difference_is_about_a_few_patients_is_refused(
    attack: str, registry: Registry, context: ToolContext
) -> None:
    *before, (tool, given) = ATTACKS[attack](context)
    for name, arguments in before:
        registry.run(name, arguments, context)
    with pytest.raises(InputError, match=r"fewer than|limit of"):
        registry.run(tool, given, replace(context, caller="another"))


def test_mean_survival_is_compared_at_shown_months_only(
    registry: Registry, context: ToolContext
) -> None:
    given = {"cohort": "cohort", "endpoint": "OS", "group": AGED, "every": 1}
    for tau in (25.3, 999.0):  # neither the first event nor the last patient decides the answer
        found = registry.run("kaplan_meier", given | {"tau": tau}, context).result
        shown = [{point["months"] for point in curve["points"]} for curve in found["curves"]]
        assert found["tau"] == max(month for month in shown[0] & shown[1] if month <= tau)
    with pytest.raises(InputError):
        registry.run("kaplan_meier", given | {"tau": 0.9}, context)


def test_a_file_of_the_cohort_is_no_table_of_the_caller_s(
    registry: Registry, context: ToolContext
) -> None:
    with pytest.raises(InputError, match="of the cohort"):
        registry.run("describe_cohort", {"cohort": "cohort", "tables": ["cohort/clinical.csv"]},
                     context)  # fmt: skip


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


def test_counts_of_a_variable_give_no_small_one_by_subtraction() -> None:
    for levels in ({"a": 94, "b": 67, "c": 78, "d": 1}, {"a": 50, "b": 4}, {"a": 9, "b": 2, "c": 2},
                   {"a": 5, "b": 1, "c": 1}, {"a": 300, "b": 3, "c": 0}):  # fmt: skip
        known = sum(levels.values())
        for missing in (0, 1, 4, 30):
            variable = Variable(
                key="clinical:x", label="x", modality="clinical", kind="categorical", n=known,
                missing=missing / (known + missing), levels=levels,
            )  # fmt: skip
            shown = shown_variable(variable, known + missing)
            counts = [shown.n, *shown.levels.values()]
            assert all(n % MIN_COUNT == 0 or n == known + missing for n in counts)
            assert all(levels.get(level, MIN_COUNT) >= MIN_COUNT for level in shown.levels)
            assert shown.missing in (0, round(1 - shown.n / (known + missing), 3))
    assert [safe_count(n, 100) for n in (0, 3, 50, 98, 100)] == [0, None, 50, None, 100]
    assert [count_text(n, 100) for n in (0, 3, 50, 98)] == [
        "0", "fewer than 5", "50", "more than 95"]  # fmt: skip


def test_no_quantile_is_a_value_of_one_patient() -> None:
    for values in (MARKER, DRAW.standard_cauchy(57), np.append(np.zeros(30), PLANTED)):
        shown = shown_quantiles(values)
        assert shown and max(shown.values()) <= np.sort(values)[-MIN_COUNT // 2]
        moved_far = shown_quantiles(np.where(values == values.max(), 1e9, values))
        assert shown == moved_far


def test_rounding_keeps_the_first_digit_of_the_error() -> None:
    assert round_to_error(0.61234, 0.0312) == 0.61
    assert round_to_error(12345.6, 310.0) == 12300
    assert round_to_error(0.5, 0.0) == 0.5


def test_looks_know_no_outcome_and_tell_callers_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("validation.disclosure.PATIENTS_PER_LOOK", N // 2)
    ann, bob = (Looks("c", who, tmp_path) for who in ("ann", "bob"))
    for looks in (ann, ann, bob):
        looks.admit(SCORE)
    lines = [json.loads(line) for line in ann.path.read_text().splitlines()]
    assert [line["by"] for line in lines] == ["ann", "bob"]
    assert all(np.median(np.abs(line["values"])) == 1 for line in lines)
    for looks, whose in ((ann, "yours"), (bob, "yours"), (Looks("c", "eve", tmp_path), "another")):
        with pytest.raises(InputError, match=whose):
            looks.admit(moved(SCORE, 5, HIGH))
    ann.admit(LEVELS)
    with pytest.raises(InputError, match="limit of 2"):
        ann.admit(np.roll(SCORE, 40))
    bob.admit(np.roll(SCORE, 40))  # the budget is each caller's own


@pytest.mark.parametrize(
    "line", ['{"by":"ann","ranks":[0,1]}', "[1]", "{", '{"by":1,"values":[""]}']
)
def test_nothing_is_answered_where_earlier_looks_cannot_be_read(line: str, tmp_path: Path) -> None:
    looks = Looks("small", "ann", tmp_path)
    looks.path.write_text(line + "\n")
    with pytest.raises(InputError, match=r"small\.jsonl"):
        looks.admit(np.arange(40.0))
    assert looks.path.read_text() == line + "\n"


def test_every_count_of_a_result_is_rounded(registry: Registry, context: ToolContext) -> None:
    base = {"cohort": "cohort", "endpoint": "OS"}
    told = [
        registry.run(tool, given, context).result
        for tool, given in (
            ("describe_cohort", {"cohort": "cohort"}),
            ("kaplan_meier", base | {"group": "clinical:grade"}),
            ("logrank", base | {"group": AGED}),
            ("cox", base | {"covariates": ["clinical:grade"]}),
            ("concordance", base | {"risk": AGED, "bootstrap": 100}),
            ("competing_risks", base | {"endpoint": "DSS", "group": AGED}),
        )
    ]
    counts = re.findall(r'"(n|events|competing|at_risk|one|two)": (\d+)[,}]', json.dumps(told))
    assert len(counts) > 30 and all(int(count) % MIN_COUNT == 0 for _, count in counts)
    words = registry.run("logrank", base | {"group": "clinical:marker"}, context).result["grouping"]
    assert f"{np.median(MARKER):.6g}" not in words


def test_the_grid_of_a_curve_shows_nobody_s_own_time(
    registry: Registry, context: ToolContext
) -> None:
    with pytest.raises(InputError):
        registry.run("kaplan_meier", {"cohort": "cohort", "endpoint": "OS", "every": 0.1}, context)


@pytest.mark.parametrize("seed", range(30))
def test_no_step_of_a_curve_is_about_few_patients(seed: int) -> None:
    draw = np.random.default_rng(seed)
    kinds = [draw.exponential(draw.uniform(3, 200), draw.integers(0, 300)) for _ in range(2)]
    months = shown_months(kinds, 90.0)
    assert (months == np.round(months)).all() and (np.diff(months) > 0).all()
    for times in kinds:
        happened = np.searchsorted(np.sort(times), months, side="right")
        steps = np.diff(happened, prepend=0)
        assert ((steps == 0) | (steps >= MIN_COUNT)).all()
    # Among few events, no point says when the first of them happened.
    assert shown_months([np.array([30.0, 31.0, 32.0])], 90.0).tolist() == [0.0]


@pytest.mark.parametrize("tool", ["kaplan_meier", "competing_risks"])
def test_points_and_picture_of_a_curve_are_the_same_steps_of_five(
    tool: str, registry: Registry, context: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib.axes import Axes

    drawn: list[tuple[Any, Any]] = []
    step = Axes.step

    def draw(self: Axes, x: Any, y: Any, *more: Any, **look: Any) -> Any:
        drawn.append((x, y))
        return step(self, x, y, *more, **look)

    monkeypatch.setattr(Axes, "step", draw)
    endpoint = "OS" if tool == "kaplan_meier" else "DSS"
    given = {"cohort": "cohort", "endpoint": endpoint, "group": AGED, "every": 1}
    curves = registry.run(tool, given, context).result["curves"]
    young = np.median(AGE) >= AGE
    flags = [DEAD == 1] if endpoint == "OS" else [CAUSE == 1, CAUSE == 2]
    shown: set[float] = set()
    for curve in curves:
        side = young if curve["group"] == "low" else ~young
        months = np.array([point["months"] for point in curve["points"]])
        assert len(months) > (2 if endpoint == "OS" else 0)
        for flag in flags:
            died = np.sort(DAYS[side & flag] / 30.4375)
            steps = np.diff(np.searchsorted(died, months, side="right"), prepend=0)
            assert ((steps == 0) | (steps >= MIN_COUNT)).all()
        for name in ("survival", "event", "competing"):
            shown |= {point[name] for point in curve["points"] if name in point}
    assert drawn
    for x, y in drawn:
        assert (np.asarray(x) == np.round(x)).all() and set(np.asarray(y).tolist()) <= shown


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
