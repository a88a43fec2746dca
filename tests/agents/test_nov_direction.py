"""Sentences against a hypothesis's direction."""

from __future__ import annotations

import pytest

from agents.novelty.direction import Opposition
from tests.agents.nov_helpers import hypothesis
from validation.core.hypothesis import Direction

RISKY = hypothesis()
"""High FABP5 with low TLS density predicts shorter survival."""


@pytest.mark.parametrize(
    ("sentence", "against"),
    [
        ("High FABP5 expression is associated with longer median overall survival.", True),
        ("Loss of FABP5 is associated with shorter overall survival.", True),
        ("High FABP5 expression is associated with shorter overall survival.", False),
        ("High FABP5 is not associated with longer overall survival.", False),
        ("High FABP4 is associated with longer overall survival.", False),
        ("High FABP5: longer overall survival in women, shorter overall survival in men.", False),
    ],
)
def test_a_finding_runs_against_the_claim_only_when_level_and_outcome_do(
    sentence: str, against: bool
) -> None:
    assert Opposition(RISKY)(sentence) is against


def test_a_protective_claim_turns_the_reading_around() -> None:
    protective = hypothesis(direction=Direction.LOWER_RISK)
    assert Opposition(protective)("High FABP5 is associated with worse survival.")
    assert not Opposition(protective)("High FABP5 is associated with longer survival.")
