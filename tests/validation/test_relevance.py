"""One scale of relevance for a claim, however its marker is cut."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sage.core.errors import InputError
from tests.validation.core_help import claim, frozen_for, load, patients
from validation.cohort.cohort import Cohort
from validation.contracts.contract import RATIO_SOURCE, Contract
from validation.drafting.amending import amend
from validation.drafting.draft import draft
from validation.statistics.power import HALVES

MARKER = {"variable": "clinical:marker", "label": "marker"}
SEX = {"variable": "clinical:sex", "label": "sex"}


@pytest.fixture(scope="module")
def cohort(tmp_path_factory: pytest.TempPathFactory) -> Cohort:
    raw = patients(2000)
    raw["marker"] = np.exp2(raw["marker"])  # a doubling is a standard deviation
    return load(tmp_path_factory.mktemp("relevance") / "cohort", raw)


def contract(cohort: Cohort, *exposures: dict[str, object], **changes: object) -> Contract:
    found: Contract = frozen_for(cohort, claim(exposures=exposures, **changes)).contract
    return found


@pytest.mark.parametrize(
    ("exposures", "comparison", "contrast"),
    [
        ([MARKER], "exposed_vs_rest", 1),
        ([MARKER], "per_sd", HALVES),
        ([MARKER], "per_doubling", HALVES),
        ([MARKER | {"cut": "tertile"}], "trend", HALVES * math.sqrt(2 / 3)),
        ([MARKER | {"cut": "quartile"}], "trend", HALVES * math.sqrt(5 / 4)),
        ([MARKER | {"cut": "tertile"}], "extremes", HALVES / 2.182),
        ([MARKER | {"cut": "tertile"}], "exposed_vs_rest", HALVES / 1.636),
        ([SEX], "exposed_vs_rest", 1),
        ([SEX], "per_sd", 1 / math.sqrt(0.24)),
        ([MARKER | {"cut": "continuous"}, SEX], "modification", HALVES),
        ([MARKER | {"cut": "continuous"}] , "exposed_vs_rest", HALVES),
    ],
)  # fmt: skip
def test_the_same_effect_is_relevant_however_the_marker_is_cut(
    cohort: Cohort, exposures: list[dict[str, object]], comparison: str, contrast: float
) -> None:
    found = contract(cohort, *exposures, comparison=comparison)
    assert found.relevant_effect * contrast == pytest.approx(math.log(1.5), rel=0.03)
    drafted = draft(claim(exposures=exposures, comparison=comparison), cohort.dictionary())
    if exposures[0] is not SEX and "extremes" not in comparison:
        assert drafted.relevant_effect == pytest.approx(found.relevant_effect, rel=0.05)


def test_a_claim_states_its_smallest_relevant_effect(cohort: Cohort) -> None:
    assert contract(cohort, MARKER).relevant.source == RATIO_SOURCE  # type: ignore[union-attr]
    own = {"size": 1.2, "source": "the clinic"}
    found = contract(cohort, MARKER, relevant=own)
    assert math.exp(found.relevant_effect) == pytest.approx(1.2)
    assert (found.power.required_events or 0) > 900
    with pytest.raises(InputError, match=r"relevant\.size"):
        contract(cohort, MARKER, relevant=own | {"size": 0.8})


def test_an_amendment_changes_the_smallest_relevant_effect(cohort: Cohort) -> None:
    first = frozen_for(cohort)
    own = {"size": 1.2, "source": "the clinic"}
    second = amend(first, cohort, reason="too strict", changes={"hypothesis.relevant": own})
    assert second.contract.relevant_effect == pytest.approx(math.log(1.2))
