"""Levels of few patients, as prompts and the scientist's looks show them."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.core.types import dictionary_view
from agents.scientist.blind import BlindCohort
from tests.agents.bench import clinical, world, write_clinical
from validation import cohort as cohorts
from validation.cohort.cohort import Cohort
from validation.core.dictionary import POOLED, pool_levels

KEY = "clinical:stage"


@pytest.fixture(scope="module")
def cohort(tmp_path_factory: pytest.TempPathFactory) -> Cohort:
    """A cohort of which seven patients have one stage and six another."""
    folder: Path = tmp_path_factory.mktemp("levels")
    world(folder)
    rows = clinical(folder)
    for at, row in enumerate(rows):
        row["stage"] = "Stage III" if at < 7 else "Stage IV" if at < 13 else "Stage II"
    write_clinical(folder, rows)
    return cohorts.load(folder)


@pytest.mark.parametrize(
    ("minimum", "small"), [(5, {"3": 5, "4": 5}), (7, {"3": 7}), (10, {POOLED: 10}), (14, {})]
)
def test_a_level_of_fewer_patients_than_the_settings_allow_is_not_shown(
    cohort: Cohort, minimum: int, small: dict[str, int]
) -> None:
    """The dictionary pools under the cohort's own minimum, the settings may ask for more."""
    view = dictionary_view(cohort.dictionary(), [], minimum)
    (levels,) = (variable.levels for variable in view.variables if variable.key == KEY)
    shown = BlindCohort(cohort, minimum).describe((KEY,)).variables[0].levels
    assert levels == shown
    assert {level: n for level, n in levels.items() if level != "2"} == small


def test_what_was_pooled_once_is_pooled_again() -> None:
    assert pool_levels({"a": 20, "b": 6, POOLED: 5}, 10) == {"a": 20, POOLED: 11}
    assert pool_levels({"a": 20}, 0) == {"a": 20}
