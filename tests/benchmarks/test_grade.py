"""The grade of a process: what a trace shows counts, and what rules said for a model does not."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.adapters.grade import grade, list_texts, run
from sage.core.errors import InputError
from sage.core.llm.trace import TraceLine
from tests.adversary.hostile import hostile_run

KINDS = ("effect", "adjusted_effect", "control", "assumption", "missing_data", "sample",
         "not_adjusted_for", "replication")  # fmt: skip
GOOD: dict[str, dict[str, Any]] = {
    "scientist": {"candidates": [{"hypothesis": {"covariates": ["clinical:age"]}, "remark": "R",
                                  "support": [{"chain": 1, "step": 1}], "sources": []}]},
    "prover": {"claims": [{"citations": ["R1"]}]},
    "validation_agent": {"code": "x"},
    "interpreter": {"findings": [{"kind": kind} for kind in KINDS], "remark": "I"},
    "summary": {"findings": [], "next_steps": [{"kind": "next_step"}], "remark": "S"},
}  # fmt: skip


def make_trace(outputs: dict[str, Any], reasoner: str = "chat") -> list[TraceLine]:
    """A trace in which each agent answers at once, after a look at the design."""
    lines = []
    for number, (agent, output) in enumerate(outputs.items()):
        more: list[dict[str, Any]] = [
            {"kind": "ask", "reasoner": reasoner}, {"kind": "tool", "tool": "design_power"},
            {"kind": "end", "output": output, "outcome": "answered" if output else "failed"},
        ]  # fmt: skip
        lines += [
            TraceLine(time="", episode=f"{reasoner}{number}", agent=agent, **it) for it in more
        ]
    return lines


def test_a_careful_process_has_every_item_and_each_omission_costs_its_own() -> None:
    whole = grade(make_trace(GOOD))
    assert set(whole.values()) == {1.0} and len(whole) == 15
    for kind in ("assumption", "missing_data", "sample", "control", "replication"):
        left = [{"kind": it} for it in KINDS if it != kind]
        fewer = grade(make_trace(GOOD | {"interpreter": {"findings": left, "remark": ""}}))
        assert sum(fewer.values()) == 14
    bare = {"candidates": [*GOOD["scientist"]["candidates"], {
        "hypothesis": {"covariates": []}, "support": [], "sources": [], "remark": ""}]}  # fmt: skip
    assert sum(grade(make_trace(GOOD | {"scientist": bare})).values()) == 14


def test_what_rules_said_for_a_model_earns_nothing() -> None:
    failed = grade(make_trace(dict.fromkeys(GOOD)) + make_trace(GOOD, "rules"))
    assert sum(failed.values()) == 1  # that it looked at the design
    assert set(grade(make_trace(GOOD, "rules")).values()) == {1.0}  # a run by rules is graded too


def test_readers_see_no_run_and_their_scores_come_back(tmp_path: Path) -> None:
    assert list(list_texts(make_trace(GOOD))) == ["R", "I", "S"]
    failed = make_trace(dict.fromkeys(GOOD)) + make_trace(GOOD, "rules")
    assert list(list_texts(failed)) == []  # readers would grade rules in the model's name
    folder, sheet = hostile_run(), tmp_path / "sheet.csv"
    report = run([folder], sheet=sheet)
    assert 5 < sum(report.data[0]["items"].values()) <= 15
    rows = list(csv.DictReader(sheet.open()))
    assert rows and folder.name not in json.dumps(rows)
    readings = []
    for name, score in (("a", 2), ("b", 1)):
        readings.append(tmp_path / f"{name}.csv")
        with readings[-1].open("w", newline="") as file:
            csv.writer(file).writerows([("id", "score"), *((row["id"], score) for row in rows)])
    (row,) = run([folder], reading=readings).rows
    assert f"{len(rows)} texts: 0.75 of 1" in row.notes[0]
    readings[0].write_text(f"id,score\n{rows[0]['id']},9\n")
    with pytest.raises(InputError, match="between 0 and 2"):
        run([folder], reading=readings)
