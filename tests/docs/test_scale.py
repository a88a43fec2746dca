"""The page of what a server for many needs is what its script computes from what was measured."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks import scale


def test_the_page_is_computed_from_the_measured_costs() -> None:
    assert scale.page(json.loads(scale.RESULTS.read_text())) == scale.PAGE.read_text()


def test_twice_the_cost_of_a_run_is_twice_the_core_hours() -> None:
    unit = json.loads(Path(scale.RESULTS).read_text()) | {"cpu_s_to_ask": 0.0}

    def hours(seconds: float) -> float:
        text = scale.page(unit | {"cpu_s_of_a_run": seconds})
        line = next(line for line in text.splitlines() if line.startswith("| CPU for runs"))
        return float(line.split("|")[2].split()[0])

    assert hours(36.0) == 10.0
    assert hours(72.0) == 20.0
