"""What the report says first and last: what would change the mind, and the checklist."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.findings.answer import capitalize
from sage.report.curve import curve_of
from sage.report.facts import Facts, free_numbers
from sage.report.reading import (
    CHANGES,
    MANY_MISSING,
    OBJECTIONS,
    Item,
    Reached,
    checklists,
    read_items,
    would_change,
)
from validation.results.results import Effect, Reason, Verdict
from validation.verdict.verdict import TURNED_ROUND

CRUDE = Effect(value=1.8, lower=1.0, upper=3.0, scale="hazard ratio")
OTHERS = ("Other patients", "A smaller effect in patients")
ROWS_OF_CHANGE: tuple[tuple[str, str, str, str, tuple[str, ...]], ...] = (
    # verdict, because, answers, rule that prevents, how each line begins
    ("supported", "evidence", "yes|yes|yes", "",
     ("Other patients in whom", "A smaller effect")),
    ("supported", "evidence", "yes|yes|unclear", "",
     ("Other patients in whom", "A narrower interval")),
    ("not_supported", "evidence", "no|no|no", "",
     ("Other patients, as many", "An interval that reaches")),
    ("not_supported", "evidence", "no|no|no|turned", "",
     ("Other patients, as many", "Other patients, for whom the direction")),
    ("inconclusive", "power", "unclear|unclear|unclear", "power", ("More events",)),
    ("inconclusive", "multiplicity", "unclear|yes|yes", "ledger", ("More events",)),
    ("inconclusive", "assumption", "unclear|unclear|unclear", "direction", ("A claim about the",)),
    ("inconclusive", "relevance", "unclear|unclear|no", "relevant effect",
     ("An interval that reaches",)),
    ("small_effect", "evidence", "yes|yes|no", "", ("An interval that reaches",)),
    ("inconclusive", "independence", "unclear|no|no", "adjusted model",
     ("A reason, given before",)),
    ("inconclusive", "independence", "yes|unclear|unclear", "adjusted model",
     ("The adjusted model with more events.",)),
    ("inconclusive", "independence", "yes|unclear|unclear|missing", "adjusted model",
     ("The adjusted model with more events, or with fewer missing",)),
    ("inconclusive", "independence", "yes|not answered|yes", "adjusted model",
     ("An adjusted model, with",)),
    ("inconclusive", "independence", "no|yes|no", "adjusted model", ("Agreement of the tests",)),
    ("inconclusive", "control", "yes|yes|yes", "random features",
     ("A test in other patients",)),
    ("inconclusive", "assumption", "yes|yes|yes", "proportional hazards",
     ("An effect that lasts over follow-up",)),
    ("inconclusive", "data", "", "data", ("A primary test that can be computed",)),
)  # fmt: skip
"""What would change a verdict: one row per rule of `validation.verdict.verdict`."""


def reached(verdict: str, because: str, given: str, rule: str, simulated: bool) -> Reached:
    words = given.split("|") if given else []
    questions = ("association", "independence", "relevance")
    answers = [
        {
            "question": question,
            "answer": answer,
            "text": "",
            "effect": CRUDE,
        }
        for question, answer in zip(questions, words, strict=False)
    ]
    found = Verdict.model_validate(
        {
            "verdict": verdict,
            "because": because,
            "answers": answers,
            "reasons": [Reason(rule=rule, outcome="prevents", text="t")] if rule else [],
            "qualifiers": (TURNED_ROUND,) if "turned" in words else (),
        }
    )
    return Reached(found, simulated, MANY_MISSING if "missing" in words else MANY_MISSING - 0.01)


@pytest.mark.parametrize("row", ROWS_OF_CHANGE, ids=lambda row: "-".join(row[:4]))
def test_only_what_could_change_a_verdict_is_said_to(
    row: tuple[str, str, str, str, tuple[str, ...]],
) -> None:
    begins = row[4]
    said = would_change(reached(*row[:4], simulated=False))
    assert len(said) == len(begins), said
    for line, start in zip(said, begins, strict=True):
        assert line.startswith(start) and line.endswith(".") and not free_numbers(line)
    invented = would_change(reached(*row[:4], simulated=True))
    assert invented == tuple(line for line in said if not line.startswith(OTHERS))


def test_every_line_of_what_would_change_a_verdict_has_a_row() -> None:
    shown = {
        line for row in ROWS_OF_CHANGE for line in would_change(reached(*row[:4], simulated=False))
    }
    assert {line for line, _ in CHANGES} <= shown


def page(tables: Any = (), **more: Any) -> Any:
    empty = {"id": "h1", "contract": None, "limits": (), "summary": None}
    return SimpleNamespace(**(empty | more), results=SimpleNamespace(tables=tables))


def remark(given: Any, facts: Facts) -> tuple[Item, ...]:
    return checklists(given, facts)[0].items


def test_whatever_objects_is_named_first() -> None:
    reasons = [
        Reason(rule="primary", outcome="for", text="x"),
        Reason(rule="adjusted model", outcome="prevents", text="its own answer says this"),
        Reason(rule="random features", outcome="prevents", text="40 of 200 do as well"),
        Reason(rule="a rule to come", outcome="prevents", text="y"),
    ]
    found = reached("inconclusive", "independence", "yes|no|yes", "", simulated=False).verdict
    said = would_change(Reached(found.model_copy(update={"reasons": tuple(reasons)})))
    assert said == (
        f"{capitalize(OBJECTIONS['random features'])}.",
        "This check, resolved: a rule to come.",
        next(line for line, _ in CHANGES if line.startswith("A reason, given before")),
    )


def test_a_claim_on_predictions_has_a_checklist_of_its_own() -> None:
    calibration = SimpleNamespace(title="Calibration of the adjusted model")
    model = SimpleNamespace(statements=(), names=(), predicts=True)
    (own,) = checklists(page(tables=[calibration]), Facts())
    assert own.name == "REMARK"
    _, tripod = checklists(page(tables=[calibration], contract=model), Facts())
    assert len(tripod.items) == 52
    held = {item.number for item in tripod.items if item.reported}
    assert {"12g", "15", "23a"} <= held
    never = {"3a", "5b", "8b", "14", "17", "18a", "18b", "19", "27b"}
    everything = page(
        tables=[calibration], limits=("few",), summary="s",
        contract=SimpleNamespace(
            statements=("Population Endpoint Exposure Power",), names=("a",), predicts=True
        ),
    )  # fmt: skip
    _, tripod = checklists(everything, Facts())
    assert not never & {item.number for item in tripod.items if item.reported}


def test_nothing_is_ticked_that_the_run_does_not_hold() -> None:
    assert [item.number for item in remark(page(), Facts())] == [str(n) for n in range(1, 21)]
    assert not any(item.held for item in remark(page(), Facts()))


def test_the_page_of_remark_has_a_row_for_each_item() -> None:
    text = (Path(__file__).parents[2] / "docs" / "remark.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \|(.*)\|(.*)\|(.*)\|$", text, re.MULTILINE)
    items = read_items("remark")
    assert [row[0] for row in rows] == [item["number"] for item in items]
    for (number, _, where, held), item in zip(rows, items, strict=True):
        assert item["where"] in where
        expected = "not" if number == "5" else "partly" if item["lacks"] else "present"
        assert held.strip().startswith(expected), number


def test_each_item_is_ticked_by_its_own_source() -> None:
    facts = Facts()
    facts.add("h2.primary.effect", 2.0)  # another hypothesis' number
    contract = SimpleNamespace(
        statements=("Endpoint OS: overall survival",), names=(), predicts=False
    )
    items = {item.number: item for item in remark(page(contract=contract), facts)}
    assert {number for number, item in items.items() if item.held} == {"1", "7"}
    assert items["1"].reported and items["7"].in_part and not items["7"].reported
    facts.add("h1.primary.effect", 2.0)
    tables = [SimpleNamespace(title="Flow of patients")]
    given = page(contract=contract, tables=tables, limits=("few patients",))
    held = {item.number for item in remark(given, facts) if item.held}
    assert held == {"1", "7", "12", "15", "19"}
    assert len(items) == 20


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
