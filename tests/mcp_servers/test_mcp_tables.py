"""Tables that callers save, cohorts and slides that they list."""

from __future__ import annotations

import csv
import json
from typing import Any

import pytest

from mcp_servers.context import ToolContext
from mcp_servers.registry import load
from sage.core.errors import InputError
from tests.mcp_servers.test_mcp_oncology import small_cohort


def save(context: ToolContext, **given: Any) -> dict[str, Any]:
    return load("oncology").run("save_table", {"name": "mine", **given}, context).result


def test_a_saved_table_reads_back_value_for_value_and_has_its_units(context: ToolContext) -> None:
    rows = [
        {"patient": "p1", "density": 0.1 + 0.2, "count": 3, "grade": "low", "any": True},
        {"patient": "p2", "density": None, "count": -1, "grade": 'a, "b"\nc', "any": False},
        {"patient": "p2", "count": 2**40},
    ]
    found = save(context, rows=rows, units={"density": "per mm²"})
    assert found["variables"] == [f"imaging:mine_{name}" for name in ("density", "count", "any")]
    assert found["patients"] == 2
    assert found["missing"] == {"density": 2, "count": 0, "grade": 1, "any": 1}
    with (context.roots.output / "mine.csv").open(newline="", encoding="utf-8") as stream:
        read = list(csv.DictReader(stream))
    for row, back in zip(rows, read, strict=True):
        for column in ("density", "count", "any"):
            value = row.get(column)
            assert back[column] == "" if value is None else float(back[column]) == value
    assert read[1]["grade"] == rows[1]["grade"]
    about = json.loads((context.roots.output / "mine.columns.json").read_text(encoding="utf-8"))
    assert about["density"] == {"kind": "number", "unit": "per mm²"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"rows": [{"patient": 7, "count": 1}]}, "patient"),
        ({"rows": [{"patient": "p", "c": 1}, {"patient": "q", "c": "2"}]}, "row 1"),
        ({"rows": [{"patient": "p", "c": float("inf")}]}, "finite"),
        ({"rows": [{"patient": "p", "c": "x"}]}, "numbers"),
        ({"rows": [{"patient": "=1+1", "c": 1}]}, "=1"),
        ({"rows": [{"patient": "p", "c; d": 1}]}, "c; d"),
        ({"rows": [{"patient": "p", "c": 1}], "units": {"d": "mm"}}, "numeric"),
        ({"rows": []}, "rows"),
        ({"rows": [{"patient": "p", "c": 1}], "name": "../x"}, "name"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused_and_nothing_is_written(
    context: ToolContext, given: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        save(context, **given)
    assert [path for path in context.roots.output.rglob("*") if path.is_file()] == []


def test_a_saved_table_is_joined_by_patient(context: ToolContext) -> None:
    rows = [(f"p{i}", "ab"[i % 2], 100 + i, i % 2) for i in range(40)]
    cohort = small_cohort(context.roots.inputs[0] / "c", rows)
    table = [{"patient": f"p{i}", "tls": float(i)} for i in range(30)]
    save(context, rows=table, units={"tls": "per mm²"})
    run = load("oncology").run
    given = {"cohort": cohort, "endpoint": "OS", "group": "imaging:mine_tls"}
    found = run("logrank", {**given, "tables": ["mine.csv"]}, context).result
    assert sum(group["n"] for group in found["groups"]) == 30
    with pytest.raises(InputError, match="mine_tls"):
        run("logrank", given, context)
    save(context, name="others", rows=[{"patient": "nobody", "tls": 1}])
    with pytest.raises(InputError, match="others"):
        run("logrank", {**given, "tables": ["others.csv"]}, context)
    with pytest.raises(InputError):
        run("logrank", {**given, "tables": ["/etc/passwd"]}, context)


def test_a_table_cannot_single_out_patients(context: ToolContext) -> None:
    rows = [(f"p{i}", "ab"[i % 2], 100 + i, i % 2) for i in range(40)]
    cohort = small_cohort(context.roots.inputs[0] / "c", rows)
    save(context, rows=[{"patient": f"p{i}", "one": int(i < 4)} for i in range(40)])
    given = {"cohort": cohort, "endpoint": "OS", "tables": ["mine.csv"]}
    for tool in ("logrank", "kaplan_meier"):
        with pytest.raises(InputError, match="5 patients"):
            load("oncology").run(tool, {**given, "group": "imaging:mine_one"}, context)
    for tool, said in (
        ("cox", {"covariates": ["imaging:mine_one"]}),
        ("concordance", {"risk": "imaging:mine_one"}),
        ("screen", {"features": ["imaging:mine_one"]}),
    ):
        with pytest.raises(InputError, match="5 patients"):
            load("oncology").run(tool, {**given, **said}, context)
    save(context, name="few", rows=[{"patient": f"p{i}", "x": i} for i in range(9)])
    alone = {**given, "tables": ["few.csv"], "group": "imaging:few_x"}
    with pytest.raises(InputError):
        load("oncology").run("logrank", alone, context)


def test_cohorts_are_listed_with_those_that_cannot_be_read(context: ToolContext) -> None:
    root = context.roots.inputs[0]
    small_cohort(root / "deep" / "small", [("p", "a", 1, 0)])
    (root / "torn").mkdir()
    (root / "torn" / "cohort.toml").write_text("[")
    (root / ".hidden").mkdir()
    (root / ".hidden" / "cohort.toml").write_text("[")
    found = load("oncology").run("list_cohorts", {}, context).result
    assert [row["cohort"] for row in found["cohorts"]] == ["deep/small", "gbsg2"]
    assert found["cohorts"][0]["endpoints"] == ["OS"]
    assert len(found["unreadable"]) == 1
    found = load("oncology").run("list_cohorts", {"search": "breast"}, context).result
    assert [row["cohort"] for row in found["cohorts"]] == ["gbsg2"]


def test_slides_are_listed_by_the_names_that_tools_take(context: ToolContext) -> None:
    root = context.roots.inputs[0]
    outside = root.parent / "secret.svs"
    outside.write_bytes(b"x")
    (root / "a").mkdir()
    for name in ("a/TCGA-2F-A9KO-01Z-00-DX1.abc.svs", "a/b.tiff", "c.ndpi", "notes.txt", ".d.svs"):
        (root / name).write_bytes(b"12345")
    (root / "link.svs").symlink_to(outside)
    job = context.roots.output / "tls" / "0123456789ab"
    job.mkdir(parents=True)
    (job / "overlay.png").write_bytes(b"x")
    run = load("pathology").run
    found = run("list_slides", {}, context).result
    assert [(row["slide"], row["patient"]) for row in found["slides"]] == [
        ("a/TCGA-2F-A9KO-01Z-00-DX1.abc.svs", "TCGA-2F-A9KO"),
        ("a/b.tiff", "b"),
        ("c.ndpi", "c"),
    ]
    assert found["folders"] == {".": 1, "a": 2}
    for row in found["slides"]:
        assert context.roots.input(row["slide"], "file").is_file()
    page = run("list_slides", {"folder": "a", "start": 1, "limit": 1}, context).result
    assert ([row["slide"] for row in page["slides"]], page["total"]) == (["a/b.tiff"], 2)
    assert run("list_slides", {"pattern": "*.ndpi"}, context).result["total"] == 1
    with pytest.raises(InputError, match="outside"):
        run("list_slides", {"folder": ".."}, context)
