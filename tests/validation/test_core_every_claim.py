"""Imputation, random features and specification curves serve every kind of claim."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.validation.core_help import NODE, STRONG, claim, frozen_for, load, patients, run_once

BOTH = {
    "comparison": "interaction",
    "exposures": [{"variable": "clinical:marker", "label": "marker"},
                  {"variable": "clinical:stage", "label": "stage"}],
}  # fmt: skip


@pytest.mark.parametrize(("endpoint", "scale"), [("node", "odds ratio"), ("size", "difference")])
def test_binary_and_continuous_outcomes_are_imputed_too(
    tmp_path: Path, endpoint: str, scale: str
) -> None:
    import statsmodels.api as sm

    from validation.contracts.contract import MissingRule

    raw = patients(300, log_hr=STRONG)
    missing = MissingRule(policy="multiple_imputation", imputations=5)
    plan = {"hypothesis": claim(endpoint=endpoint), "missing": missing, "more": NODE}
    known = run_once(tmp_path / "whole", raw, claim_tests=True, **plan)
    high = (raw["marker"] > raw["marker"].median()).astype(float)
    female = (raw["sex"] == "female").astype(float)
    stage = (raw["stage"] - raw["stage"].mean()) / raw["stage"].std()
    X = sm.add_constant(np.column_stack([high, female, stage]))
    if endpoint == "node":
        theirs = float(np.exp(sm.Logit(raw["node"] == "N1", X).fit(disp=False).params.iloc[1]))
    else:
        theirs = float(sm.OLS(raw["size"] / raw["size"].std(), X).fit().params.iloc[1])
    # with nothing missing every copy is the same, and pooling changes nothing
    assert known.numbers["adjusted.effect"].value == pytest.approx(theirs, rel=1e-4)
    holes = raw.assign(stage=raw["stage"].where(raw.index % 4 != 0))
    found = run_once(tmp_path / "holes", holes, claim_tests=True, **plan)
    adjusted = found.test("adjusted")
    assert adjusted is not None
    assert adjusted.n == 300
    assert adjusted.effect is not None
    assert scale in adjusted.effect.scale
    assert found.numbers["adjusted.effect"].value == pytest.approx(theirs, abs=0.15)


@pytest.mark.parametrize("changes", [{"endpoint": "node"}, BOTH])
def test_every_claim_has_its_random_features_and_its_specification_curve(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    given = claim(covariates=["clinical:sex"], **changes)
    raw = patients(300, log_hr=STRONG)
    found = run_once(tmp_path, raw, hypothesis=given, claim_tests=True, more=NODE)
    states = {test.id: (test.status, test.reason) for test in found.tests if test.role == "control"}
    for name in ("permuted", "random.1", "specification_curve"):
        assert states[f"control.{name}"] == ("ok", "")
    assert found.numbers["specification.n"].value >= 4
    # the claim's own choices are one of the specifications, with the claim's own estimate
    own = found.numbers["adjusted.effect"].value
    rows = found.tables["specification"]
    assert any(abs(float(row["estimate"]) - own) < 6e-4 for row in rows)


def test_an_interaction_of_chance_does_not_beat_random_features(tmp_path: Path) -> None:
    """Main effects alone must not make a product look rare among random products."""
    shares = []
    for seed in range(3):
        raw, both = patients(200, log_hr=1.0, seed=seed), claim(**BOTH)
        found = run_once(tmp_path / str(seed), raw, hypothesis=both, claim_tests=True)
        shares.append(found.numbers["control.random.1.percentile"].value)
    assert 0.1 < np.mean(shares) < 0.9


def test_the_power_of_an_interaction_is_that_of_its_product_given_the_main_effects(
    tmp_path: Path,
) -> None:
    """Two independent halves: the product's standard deviation given both is one quarter."""
    cohort = load(tmp_path / "cohort", patients(800, seed=2))
    both = claim(
        comparison="interaction",
        exposures=[
            {"variable": "clinical:marker", "label": "marker"},
            {"variable": "clinical:stage", "label": "stage", "cut": "fixed", "threshold": 2},
        ],
    )
    power = frozen_for(cohort, both).contract.power
    needed = (1.959964 + 0.841621) ** 2 / np.log(1.5) ** 2 / 0.25**2
    assert power.required_events == pytest.approx(needed, rel=0.03)
    detectable = np.exp((1.959964 + 0.841621) / 0.25 / np.sqrt(power.events))
    assert power.minimum_detectable == pytest.approx(detectable, rel=0.03)


def test_an_empty_cell_gives_a_penalized_odds_ratio_that_can_be_read_back(tmp_path: Path) -> None:
    from scipy.stats import fisher_exact

    from validation.results.results import Results

    raw = patients(200, log_hr=STRONG)
    high = raw["marker"] > raw["marker"].median()
    raw["node"] = np.where(high & (raw.index % 3 == 0), "N1", "N0")
    found = run_once(tmp_path, raw, hypothesis=claim(endpoint="node"), more=NODE)
    again = Results.load(tmp_path / "out" / "results.json")
    primary = again.test("primary")
    assert primary is not None
    assert primary.effect is not None
    assert np.isfinite(primary.effect.value) and primary.effect.lower > 1
    positive = raw["node"] == "N1"
    table = [[int((high & positive).sum()), int((high & ~positive).sum())],
             [int((~high & positive).sum()), int((~high & ~positive).sum())]]  # fmt: skip
    assert primary.p == pytest.approx(fisher_exact(table).pvalue)
    assert any("Firth" in note for note in primary.notes)
    assert found.verdict.reasons == again.verdict.reasons


def test_the_curve_estimates_the_claims_own_choices_where_a_group_has_no_event(
    tmp_path: Path,
) -> None:
    raw = patients(80, log_hr=STRONG)
    high = raw["marker"] > raw["marker"].median()
    raw.loc[~high, "dead"] = 0
    found = run_once(tmp_path, raw, claim_tests=True)
    assert found.numbers["specification.own"].value == 1
    rows = [table for table in found.tables["specification"] if table["cut-point"] == "median"]
    assert rows and not any(row["reason"] for row in rows)
