"""Fewer resamples than a user gets: what most tests hold does not hang on their number."""

from __future__ import annotations

import runpy
import sys
from functools import partial

import pytest

from validation.contracts.contract import ControlPlan
from validation.drafting import draft
from validation.methods import prediction
from validation.run import prepare


def draw_few(patch: pytest.MonkeyPatch) -> None:
    """Draw 20 bootstraps, and for drafted contracts 400 permutations and 200 random features."""
    patch.setattr(prediction, "RESAMPLES", 20)
    patch.setattr(draft, "ControlPlan", partial(ControlPlan, permutations=400, random_features=200))


def draw_nothing(patch: pytest.MonkeyPatch) -> None:
    """Have compiled analyses draw no figures, which takes a third of their time."""
    patch.setattr(prepare, "CODE", prepare.CODE.replace("(out)", "(out, figures=False)"))


@pytest.fixture(autouse=True)
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw few; `monkeypatch.undo()` gives a test what a user gets."""
    draw_few(monkeypatch)


if __name__ == "__main__":
    draw_few(pytest.MonkeyPatch())
    sys.argv[0] = "sage"
    runpy.run_module("sage", run_name="__main__", alter_sys=True)
