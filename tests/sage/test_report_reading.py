"""What the report says first and last: what would change the mind, and the checklist."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, get_args

from agents.wording import free_numbers
from sage.report.facts import Facts
from sage.report.reading import CHANGES, REMARK, remark, would_change
from validation.results import Answer


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


def test_nothing_is_ticked_that_the_run_does_not_hold() -> None:
    assert [item.number for item in remark(page(), Facts())] == [str(n) for n in range(1, 21)]
    assert not any(item.reported for item in remark(page(), Facts()))


def test_each_item_is_ticked_by_its_own_source() -> None:
    facts = Facts()
    facts.put("h2.primary.effect", 2.0)  # another hypothesis' number
    contract = SimpleNamespace(statements=("Endpoint OS: overall survival",), names=())
    held = {item.number for item in remark(page(contract=contract), facts) if item.reported}
    assert held == {"1", "7"}
    facts.put("h1.primary.effect", 2.0)
    tables = [SimpleNamespace(title="Flow of patients")]
    given = page(contract=contract, tables=tables, limits=("few patients",))
    held = {item.number for item in remark(given, facts) if item.reported}
    assert held == {"1", "7", "12", "15", "19"}
    assert len(REMARK) == 20
