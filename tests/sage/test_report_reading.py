"""What the report says first and last: what would change the mind, and the checklist."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

from hypothesis import given
from hypothesis import strategies as st

from agents.wording import free_numbers
from sage.report.curve import curve_of
from sage.report.facts import Facts
from sage.report.reading import (
    CHANGES,
    OBJECTIONS,
    REMARK,
    REMARK_LACKS,
    TRIPOD_AI,
    Item,
    checklists,
    would_change,
)
from validation.results import Answer, Reason


def test_every_answer_of_a_verdict_says_what_would_change_it() -> None:
    fields = Answer.model_fields
    for question in get_args(fields["question"].annotation):
        for answer in get_args(fields["answer"].annotation):
            (said,) = would_change([(question, answer)])
            assert said.endswith(".") and not free_numbers(said)
    assert len(CHANGES) == 12
    assert would_change([("relevance", "no"), ("relevance", "no")]) == (CHANGES["relevance", "no"],)


def page(**more: Any) -> Any:
    empty = {"id": "h1", "contract": None, "tables": [], "limits": (), "summary": None}
    return SimpleNamespace(**(empty | more))


def remark(given: Any, facts: Facts) -> tuple[Item, ...]:
    return checklists(given, facts)[0].items


def test_whatever_objects_is_named_first() -> None:
    reasons = [
        Reason(rule="primary", outcome="for", text="x"),
        Reason(rule="adjusted model", outcome="prevents", text="its own answer says this"),
        Reason(rule="random features", outcome="prevents", text="40 of 200 do as well"),
        Reason(rule="a rule to come", outcome="prevents", text="y"),
    ]
    said = would_change([("relevance", "no")], reasons)
    assert said == (
        "The control “random features” objects: 40 of 200 do as well. It would take"
        f" {OBJECTIONS['random features']}.",
        "The check “a rule to come” objects: y. It would take this to be resolved.",
        CHANGES["relevance", "no"],
    )


def test_a_model_whose_predictions_are_judged_has_a_checklist_of_its_own() -> None:
    calibration = SimpleNamespace(title="Calibration of the adjusted model")
    (own,) = checklists(page(), Facts())
    assert own.name == "REMARK"
    _, tripod = checklists(page(tables=[calibration]), Facts())
    assert len(tripod.items) == len(TRIPOD_AI) == 52
    held = {item.number for item in tripod.items if item.reported}
    assert held == {"12g", "15", "23a"} and tripod.reported == 3
    never = {"3a", "5b", "8b", "14", "17", "18a", "18b", "19", "27b"}
    everything = page(
        tables=[calibration], limits=("few",), summary="s",
        contract=SimpleNamespace(statements=("Population Endpoint Exposure Power",), names=("a",)),
    )  # fmt: skip
    _, tripod = checklists(everything, Facts())
    assert not never & {item.number for item in tripod.items if item.reported}


def test_nothing_is_ticked_that_the_run_does_not_hold() -> None:
    assert [item.number for item in remark(page(), Facts())] == [str(n) for n in range(1, 21)]
    assert not any(item.held for item in remark(page(), Facts()))


def test_the_page_of_remark_says_what_the_report_holds() -> None:
    text = (Path(__file__).parents[2] / "docs" / "remark.md").read_text(encoding="utf-8")
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if re.match(r"\| \d+ \|", line)
    ]
    assert [row[0] for row in rows] == [number for number, *_ in REMARK]
    for row, (number, asks, where, _) in zip(rows, REMARK, strict=True):
        assert row[1] == asks and where in row[2]
        expected = "not" if number == "5" else "partly" if number in REMARK_LACKS else "present"
        assert row[3].startswith(expected), number
        assert REMARK_LACKS.get(number, "") in row[3]


def test_each_item_is_ticked_by_its_own_source() -> None:
    facts = Facts()
    facts.put("h2.primary.effect", 2.0)  # another hypothesis' number
    contract = SimpleNamespace(statements=("Endpoint OS: overall survival",), names=())
    items = {item.number: item for item in remark(page(contract=contract), facts)}
    assert {number for number, item in items.items() if item.held} == {"1", "7"}
    assert items["1"].reported and items["7"].in_part and not items["7"].reported
    facts.put("h1.primary.effect", 2.0)
    tables = [SimpleNamespace(title="Flow of patients")]
    given = page(contract=contract, tables=tables, limits=("few patients",))
    held = {item.number for item in remark(given, facts) if item.held}
    assert held == {"1", "7", "12", "15", "19"}
    assert len(REMARK) == 20


ROWS = [
    {"cut-point": "median", "covariates": "none", "estimate": "1.65", "lower": "1.17",
     "upper": "2.3", "n": "280", "events": "138", "p": "0.004", "reason": ""},
    {"cut-point": "tertile", "covariates": "none", "estimate": "0.9", "lower": "0.7",
     "upper": "1.2", "n": "180", "events": "98", "p": "0.4", "reason": ""},
    {"cut-point": "tertile", "covariates": "none", "estimate": "", "lower": "", "upper": "",
     "n": "9", "events": "3", "p": "", "reason": "too few events"},
]  # fmt: skip


def test_a_curve_orders_what_could_be_estimated_and_counts_the_rest() -> None:
    curve = curve_of(ROWS, "hazard ratio")
    assert curve is not None
    assert [p.row["estimate"] for p in curve.points] == ["0.9", "1.65"] and curve.failed == 1
    assert curve.rows == (("cut-point", "tertile"), ("cut-point", "median"))
    assert [point.shown for point in curve.points] == [False, True]
    for point in curve.points:
        assert 0 <= point.high < point.at < point.low <= curve.top
        assert len(point.marks) == 1 and curve.top < point.marks[0] < curve.height
    assert curve.points[0].at > curve.null > curve.points[1].at
    assert curve_of(ROWS[1:], "hazard ratio") is None


@given(
    st.lists(st.floats(0.01, 100), min_size=2, max_size=40),
    st.sampled_from(["hazard ratio", "difference (SD)"]),
)
def test_every_mark_of_a_curve_lies_on_it(estimates: list[float], scale: str) -> None:
    rows = [{"estimate": f"{e:.3f}", "lower": f"{e / 2:.4f}", "upper": f"{e * 2:.3f}", "p": ""}
            for e in estimates]  # fmt: skip
    curve = curve_of(rows, scale)
    assert curve is not None and len(curve.points) == len(rows)
    places = [point.at for point in curve.points]
    assert places == sorted(places, reverse=True)
    for point in curve.points:
        assert 0 <= point.high <= point.at <= point.low <= curve.top
    heights = [at for at, _ in curve.ticks]
    assert all(abs(a - b) >= 14 for n, a in enumerate(heights) for b in heights[:n])
