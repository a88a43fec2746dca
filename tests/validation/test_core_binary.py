"""A yes or no reads as its levels, not as high and low."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.validation.core_help import claim, load, patients
from validation.drafting.draft import draft
from validation.inputs.population import two_levels

ARM = '[variables.arm]\ntable = "clinical"\ncolumn = "arm"\nkind = "binary"\n'


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        (("0", "1"), ("0", "1")),
        (("2", "1"), ("1", "2")),
        (("10", "9"), ("9", "10")),
        (("yes", "no"), ("no", "yes")),
        (("FEMALE", "MALE"), ("FEMALE", "MALE")),
        (("wild type", "mutated"), ("wild type", "mutated")),
        (("+", "-"), ("-", "+")),
        (("R1", "R0"), ("R0", "R1")),
        (("C1", "C2"), None),
        (("MUT", "WT"), ("WT", "MUT")),
        (("mutiert", "Wild-type"), ("Wild-type", "mutiert")),
        (("neg", "pos"), ("neg", "pos")),
        (("oui", "non"), ("non", "oui")),
        (("A", "B"), None),
        (("yes", "true"), None),
        (("1",), None),
        (("0", "1", "2"), None),
        ((), None),
    ],
)
def test_the_level_that_counts_as_one_stands_last(
    levels: tuple[str, ...], expected: tuple[str, str] | None
) -> None:
    assert two_levels(levels) == expected


@pytest.mark.parametrize(
    ("level", "codes", "groups"),
    [
        ("high", ("1", "2"), ("treatment = 2", "treatment = 1")),
        ("low", ("1", "2"), ("treatment = 1", "treatment = 2")),
        ("high", ("no", "yes"), ("treatment = yes", "treatment = no")),
    ],
)
def test_groups_of_a_yes_or_no_are_named_by_their_levels(
    level: str, codes: tuple[str, str], groups: tuple[str, str], tmp_path: Path
) -> None:
    table = patients()
    table["arm"] = np.where(np.arange(len(table)) % 3 == 0, codes[1], codes[0])
    cohort = load(tmp_path, table, more=ARM)
    exposure = {"variable": "clinical:arm", "label": "treatment", "level": level}
    contract = draft(claim(exposures=[exposure]), cohort.dictionary())
    assert (contract.exposed, contract.reference) == groups
    joint = claim(exposures=[exposure, {"variable": "clinical:marker", "label": "marker"}])
    contract = draft(joint, cohort.dictionary())
    assert (contract.exposed, contract.reference) == (f"{groups[0]} and high marker", "all others")
