"""Pairs of analyses: a flawed one is drawn until the baseline believes it, and then refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.adapters.pairs import judge_pair, plain_p
from benchmarks.simulate.pairs import PAIRS, draw_pair, write_step
from validation import cohort as cohorts


@pytest.mark.parametrize(
    ("kind", "flawed", "verdict"),
    [("copies of patients", True, "refused"), ("truncated follow-up", False, "supported")],
)
def test_a_pair_is_carried_out_and_compared(kind: str, flawed: bool, verdict: str) -> None:
    found = judge_pair((kind, flawed, 1))
    assert (found.verdict, found.plain) == (verdict, True)


@pytest.mark.parametrize("kind", PAIRS)
def test_every_analysis_is_a_cohort_with_the_claims_variables(kind: str, tmp_path: Path) -> None:
    for at, step in enumerate(draw_pair(kind, True, 3)):
        write_step(tmp_path / f"{at}", step)
        known = cohorts.load(tmp_path / f"{at}").dictionary()
        for given in step.claims:
            keys = [*given["covariates"], given["exposures"][0]["variable"]]
            assert all(known.has_variable(key) for key in keys)
    assert 0 <= plain_p(step, step.claims[-1]) <= 1
