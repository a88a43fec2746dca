"""Plans of studies: their power in simulated trials, and what costs patients."""

from __future__ import annotations

import math

import numpy as np
import pytest
from typer.testing import CliRunner

from sage.cli.app import app
from sage.core.errors import InputError
from sage_planning.planning import Accrual, Question, plan


def test_a_plan_reaches_its_power_in_simulated_trials() -> None:
    from validation.statistics.survival import logrank

    accrual = Accrual(median_survival=24, recruitment=24, follow_up=36, lost=0.05)
    answer = plan(Question(hazard_ratio=1.6, exposed=0.4, accrual=accrual))
    rng = np.random.default_rng(5)
    n, hits, seen = answer.patients, 0, 0
    for _ in range(400):
        group = (np.arange(n) < 0.4 * n).astype(float)
        time = rng.exponential(24 / math.log(2) / np.where(group == 1, 1.6, 1.0))
        leave = rng.exponential(-12 / math.log(1 - 0.05), n)
        stop = np.minimum(leave, rng.uniform(36, 60, n))
        event = time <= stop
        seen += event.sum() / 400
        hits += logrank(np.minimum(time, stop), event, group).p < 0.05
    assert seen == pytest.approx(answer.events, rel=0.03)
    assert 0.74 < hits / 400 < 0.87


def test_splits_claims_and_missing_data_cost_patients() -> None:
    base = {"hazard_ratio": 1.5, "event_share": 0.5}
    n = plan(Question(**base)).patients
    assert plan(Question(**base, confirmation=0.5)).patients == pytest.approx(2 * n, abs=2)
    assert plan(Question(**base, missing=0.2)).patients == pytest.approx(n / 0.8, abs=2)
    assert plan(Question(**base, claims=10)).patients > 1.5 * n
    assert plan(Question(**base, design="interaction")).patients > 3.9 * n


def test_a_plan_answers_from_the_command_line() -> None:
    done = CliRunner().invoke(app, ["plan", "--hazard-ratio", "1.5", "--event-share", "0.4"])
    assert done.exit_code == 0
    assert "191 events, 478 patients" in done.output


@pytest.mark.parametrize(
    "wrong",
    [
        ["--hazard-ratio", "1", "--event-share", "0.4"],
        ["--hazard-ratio", "1.5"],
        ["--hazard-ratio", "1.5", "--event-share", "0"],
        ["--hazard-ratio", "1.5", "--event-share", "0.4", "--design", "guess"],
        ["--hazard-ratio", "1.0000001", "--event-share", "0.4"],
    ],
)
def test_plans_that_cannot_be_made_are_refused(wrong: list[str]) -> None:
    done = CliRunner().invoke(app, ["plan", *wrong])
    assert isinstance(done.exception, InputError)
