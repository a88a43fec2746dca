"""Few draws for all tests of validation, and a run that those share which only read it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.draws import draw_few, few_draws
from tests.validation.core_help import STRONG, patients, run_once
from validation.results.results import Results

__all__ = ["few_draws"]


@dataclass(frozen=True)
class Strong:
    """A validated claim about a strong effect in 400 patients, and its folder."""

    folder: Path
    found: Results


@pytest.fixture(scope="session")
def strong(tmp_path_factory: pytest.TempPathFactory) -> Strong:
    place = tmp_path_factory.mktemp("strong")
    with pytest.MonkeyPatch.context() as patch:
        draw_few(patch)
        return Strong(place, run_once(place, patients(400, log_hr=STRONG), reproduce=True))
