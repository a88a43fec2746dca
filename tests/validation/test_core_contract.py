"""The contract: what it states, what freezing binds, and what is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from sage.core.errors import InputError
from tests.validation.core_help import NODE, claim, frozen_for, load, patients
from validation.contracts.contract import FrozenContract, SplitRule, read_hypothesis
from validation.core.hypothesis import CutRule
from validation.drafting.draft import draft
from validation.drafting.freezing import freeze
from validation.inputs.population import find_cut, population_mask


def test_power_is_the_formula_of_schoenfeld_on_the_available_events(tmp_path: Path) -> None:
    cohort = load(tmp_path, patients())
    power = frozen_for(cohort).contract.power
    events = round(power.events or 0)
    expected = math.exp((1.959964 + 0.841621) / math.sqrt(events * 0.25))
    assert power.minimum_detectable == pytest.approx(expected, rel=1e-3)
    assert power.required_events == math.ceil(((1.959964 + 0.841621) / math.log(1.5)) ** 2 / 0.25)


def test_freezing_never_depends_on_who_had_the_event(tmp_path: Path) -> None:
    raw = patients()
    first = frozen_for(load(tmp_path / "a", raw)).contract
    shuffled = raw.assign(dead=raw["dead"].sample(frac=1, random_state=1).to_numpy())
    second = frozen_for(load(tmp_path / "b", shuffled)).contract
    assert first == second


def test_a_frozen_contract_cannot_be_changed_unnoticed(tmp_path: Path) -> None:
    frozen = frozen_for(load(tmp_path, patients()))
    path = frozen.save(tmp_path / "contract.json")
    assert FrozenContract.load(path) == frozen
    value = json.loads(path.read_text())
    value["contract"]["rules"]["alpha"] = 0.2
    path.write_text(json.dumps(value))
    with pytest.raises(InputError, match=r"contract\.json"):
        FrozenContract.load(path)


def test_a_contract_for_another_cohort_is_refused(tmp_path: Path) -> None:
    from validation import cohort as cohorts

    plan = draft(claim(), load(tmp_path, patients()).dictionary())
    with pytest.raises(InputError, match=r"toy.*gbsg2"):
        freeze(plan, cohorts.load("gbsg2"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"endpoint": "PFS"}, "PFS"),
        (
            {"exposures": [{"variable": "clinical:marker", "label": "m", "cut": "continuous"}],
             "comparison": "extremes"},
            "extremes",
        ),
        (
            {"population": {"description": "x", "filters": [
                {"variable": "clinical:sex", "op": "eq", "value": "men"}]}},
            "population",
        ),
    ],
)  # fmt: skip
def test_a_hypothesis_that_the_cohort_cannot_test_is_refused(
    tmp_path: Path, change: dict[str, object], words: str
) -> None:
    dictionary = load(tmp_path, patients()).dictionary()
    with pytest.raises(InputError, match=words):
        draft(claim(**change), dictionary)


def test_a_variable_that_holds_the_outcome_does_not_adjust_it(tmp_path: Path) -> None:
    more = NODE.replace('label = "Node positivity"',
                        'label = "N"\ncontained_in = ["clinical:stage"]')  # fmt: skip
    dictionary = load(tmp_path, patients(), more=more).dictionary()
    plan = draft(claim(secondary_endpoints=["node"]), dictionary)
    assert plan.test("adjusted").covariates == ("clinical:stage", "clinical:sex")
    assert plan.test("node.adjusted").covariates == ("clinical:sex",)
    plan = draft(claim(endpoint="node", covariates=["clinical:stage", "clinical:sex"]), dictionary)
    assert plan.specification.covariate_sets == ((), ("clinical:sex",))
    stage = {"variable": "clinical:stage", "label": "stage"}
    for endpoints in ({"endpoint": "node"}, {"secondary_endpoints": ["node"]}):
        with pytest.raises(InputError, match=r"stage.*node"):
            draft(claim(exposures=[stage], **endpoints), dictionary)


def test_a_median_of_a_value_that_half_share_still_makes_two_groups() -> None:
    import numpy as np

    use = draft_use()
    many_zeros = np.array([0.0] * 6 + [1.0, 2.0, 3.0, 4.0])
    cut = find_cut(many_zeros, use, CutRule.MEDIAN)
    assert cut.upper == 0.0
    mostly_top = np.array([1.0, 2.0] + [5.0] * 8)
    cut = find_cut(mostly_top, use, CutRule.MEDIAN)
    assert cut.upper == 2.0


def draft_use():
    from validation.contracts.contract import VariableUse

    return VariableUse(
        key="clinical:marker", role="exposure", label="marker", kind="continuous", cut="median",
        level="high",
    )  # fmt: skip


def test_filters_keep_only_known_values(tmp_path: Path) -> None:
    raw = patients()
    raw.loc[:9, "sex"] = ""
    cohort = load(tmp_path, raw)
    men = claim(population={"description": "men", "filters": [
        {"variable": "clinical:sex", "op": "eq", "value": "male"}]})  # fmt: skip
    plan = draft(men, cohort.dictionary())
    table = cohort.table(plan.keys(), ["OS"])
    assert int(population_mask(table, plan).sum()) == int((raw["sex"] == "male").sum())
    assert "clinical:sex" not in plan.covariates


def test_a_broken_hypothesis_file_names_its_field(tmp_path: Path) -> None:
    path = tmp_path / "h.json"
    path.write_text('{"id": "x"}')
    with pytest.raises(InputError, match=r"h\.json: population"):
        read_hypothesis(path)
    path.write_text("{")
    with pytest.raises(InputError, match=r"h\.json"):
        read_hypothesis(path)


def test_confirmation_patients_are_the_same_for_every_contract_of_a_seed(tmp_path: Path) -> None:
    from validation.inputs.population import in_confirmation

    dictionary = load(tmp_path, patients()).dictionary()
    rule = SplitRule(policy="discovery_confirmation")
    one, two = draft(claim(), dictionary, split=rule), draft(claim(id="b"), dictionary, split=rule)
    held = [in_confirmation(f"P{at:04d}", one) for at in range(400)]
    assert held == [in_confirmation(f"P{at:04d}", two) for at in range(400)]
    assert 160 < sum(held) < 240
