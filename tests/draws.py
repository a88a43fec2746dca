"""Fewer resamples than a user gets: what most tests hold does not hang on their number."""

from __future__ import annotations

from functools import partial

import pytest

from validation.contracts.contract import ControlPlan


@pytest.fixture(autouse=True)
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw 20 bootstraps, and for drafted contracts 400 permutations and 200 random features.

    `monkeypatch.undo()` gives a test what a user gets.
    """
    monkeypatch.setattr("validation.methods.prediction.RESAMPLES", 20)
    few = partial(ControlPlan, permutations=400, random_features=200)
    monkeypatch.setattr("validation.drafting.draft.ControlPlan", few)
