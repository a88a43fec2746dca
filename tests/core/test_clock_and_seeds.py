"""One clock and one source of chance, and no way around them."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

import sage
from sage.core import clock
from sage.core.seeds import generator
from tests.core.clocks import SetClock

HOUSE = Path(sage.__file__).parents[1]
OURS = ("sage", "agents", "kg", "validation", "mcp_servers", "sandbox")


@pytest.mark.parametrize(
    "names",
    [
        ("datetime.now", "datetime.utcnow", "date.today", "time.time"),
        ("default_rng", "random.seed", "random.Random", "RandomState"),
    ],
)
def test_time_and_chance_come_from_one_source(names: tuple[str, ...]) -> None:
    """No file outside the ground floor calls another clock or generator."""
    found = []
    for path in (path for package in OURS for path in (HOUSE / package).rglob("*.py")):
        place, text = path.relative_to(HOUSE).as_posix(), path.read_text(encoding="utf-8")
        if place in ("sage/core/clock.py", "sage/core/seeds.py", "sandbox/warm_inside.py"):
            continue  # the last stands alone, and gives each program chance of its own
        if any(f"{name}(" in text for name in names):
            found += [
                f"{place}:{node.lineno}"
                for node in ast.walk(ast.parse(text))
                if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(names)
            ]
    assert found == []


def test_a_clock_that_is_set_rules_inside_its_block_alone() -> None:
    with clock.using(SetClock(86_400.25)):
        assert clock.stamp() == "1970-01-02T00:00:00.250+00:00"
        assert (clock.seconds(), clock.monotonic()) == (86_400.25, 86_400.25)
        with clock.using(SetClock(7.0)):
            assert clock.seconds() == 7.0
        assert clock.seconds() == 86_400.25
    assert clock.now().year >= 2024
    before = clock.monotonic()
    assert clock.monotonic() >= before


@pytest.mark.parametrize("seed", [0, 2**64 - 1])
def test_a_seed_gives_the_numbers_that_numpy_gives_for_it(seed: int) -> None:
    drawn = generator(seed).random(5)
    assert np.array_equal(drawn, np.random.default_rng(seed).random(5))
    again = generator(seed, 3, 11).random(5)
    assert np.array_equal(again, np.random.default_rng([seed, 3, 11]).random(5))
    assert not np.array_equal(drawn, again)
