"""One budget for all who call at once: reserved before, settled after, never exceeded."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sage.core.llm.budget import BudgetError, Charge, Meter, charges, step
from sage.core.llm.client import Client, Endpoint
from sage.core.llm.messages import Message, ModelChoice, Request
from tests.openai_server import Answer, serve

MONEY = st.floats(0.0, 1.0, allow_nan=False)


def _charge(usd: float) -> Charge:
    return Charge(agent="a", model="m", prompt_tokens=1, completion_tokens=1, usd=usd)


@settings(max_examples=25, deadline=None)
@given(
    budget=MONEY,
    calls=st.lists(st.tuples(MONEY, st.floats(0.0, 1.0), st.booleans()), min_size=1, max_size=24),
    workers=st.integers(1, 8),
)
def test_no_order_of_calls_exceeds_the_budget(
    budget: float, calls: list[tuple[float, float, bool]], workers: int
) -> None:
    meter = Meter(budget_usd=budget)
    gate = threading.Barrier(workers)

    def work(mine: list[tuple[float, float, bool]]) -> float:
        paid = 0.0
        gate.wait()
        for most, share, fails in mine:
            try:
                with meter.reserve(most) as reserved:
                    assert meter.total_usd + meter._reserved <= budget + 1e-9
                    if fails:
                        continue
                    reserved.settle(_charge(most * share))
                    paid += most * share
            except BudgetError:
                continue
        return paid

    with ThreadPoolExecutor(workers) as pool:
        paid = sum(pool.map(work, [calls[place::workers] for place in range(workers)]))
    assert meter.total_usd == pytest.approx(paid)
    assert meter.total_usd <= budget + 1e-9
    assert meter._reserved == pytest.approx(0.0, abs=1e-9)


def test_settling_twice_or_after_a_release_counts_once() -> None:
    meter = Meter(budget_usd=1.0)
    reserved = meter.reserve(0.5)
    reserved.settle(_charge(0.1))
    reserved.settle(_charge(0.1))
    reserved.release()
    assert meter.total_usd == pytest.approx(0.1)
    assert meter.calls == 1
    assert meter._reserved == 0.0


def test_a_resumed_run_goes_on_with_what_was_spent(tmp_path: Path) -> None:
    path = tmp_path / "spending.jsonl"
    with step("novelty", "h1"):
        Meter(path, 1.0).reserve(0.5).settle(_charge(0.4))
    with path.open("a") as file:
        file.write('{"agent": "a", "us')
    again = Meter(path, 1.0)
    assert again.total_usd == pytest.approx(0.4)
    with pytest.raises(BudgetError, match="--budget-usd"):
        again.reserve(0.7)
    (line,) = charges(path)
    assert (line["node"], line["hypothesis"], line["outcome"]) == ("novelty", "h1", "answered")


def test_calls_at_once_share_one_budget_over_http(tmp_path: Path) -> None:
    model = ModelChoice(name="m", price_in=10.0, price_out=1000.0, max_tokens=100)
    most = model.cost(10, 100)
    meter = Meter(tmp_path / "spending.jsonl", budget_usd=3.5 * most)

    with serve(lambda body: Answer("x" * 40, silent=0.1)) as server:
        client = Client(Endpoint(base_url=server.url, retries=0), meter)

        def ask(number: int) -> bool:
            message = Message(role="user", text=f"question {number}")
            try:
                client.ask(Request(agent="a", model=model, messages=(message,)))
            except BudgetError:
                return False
            return True

        with ThreadPoolExecutor(8) as pool:
            served = sum(pool.map(ask, range(8)))
    assert served == len(server.requests) == 3
    assert all(body["max_tokens"] == 100 for body in server.requests)
    spent = [json.loads(line)["usd"] for line in (tmp_path / "spending.jsonl").open()]
    assert sum(spent) == pytest.approx(meter.total_usd) and meter.total_usd < 3.5 * most
