"""Honesty of the whole path: simulated worlds through contract, runner and ledger to verdicts."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest

pytest.importorskip("validation.run.runner")

from benchmarks.adapters.worlds import HYPOTHESES, JOINT, claim_rates, judge_world
from validation.simulate import Effects


def test_null_worlds_lead_to_no_claims(tmp_path):
    judged = [judge_world(tmp_path, seed, null=True, patients=250) for seed in range(1)]
    assert [len(world) for world in judged] == [len(HYPOTHESES)]
    any_claim = claim_rates(judged)[-1]
    assert (any_claim.name, any_claim.runs, any_claim.hits) == ("any", 1, 0)
    assert all(0 < item.p <= 1 and item.events > 80 for world in judged for item in world)
    assert list(tmp_path.iterdir()) == []


def test_a_planted_effect_is_found_and_its_interval_holds_it(tmp_path):
    clinical = asdict(Effects().without_biomarkers())
    strong = Effects(**(clinical | {"fabp5_high_tls_low_hr": 2.6}))
    (found,) = judge_world(tmp_path, 0, effects=strong, hypotheses=(JOINT,))
    assert found.verdict == "supported"
    se = np.log(found.upper / found.lower) / (2 * 1.96)
    assert abs(np.log(found.value / 2.6)) < 3 * se
