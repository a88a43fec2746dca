"""Feasibility: facts, weights, verdicts, and what would make it feasible."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.core.base import Resources
from agents.core.rules import RulesReasoner
from agents.core.types import dictionary_view
from agents.feasibility.agent import FEASIBILITY, check_feasibility, judge, list_conditions
from agents.feasibility.collect import gather
from agents.feasibility.data_facts import find_held
from agents.feasibility.plan import ContractNumbers, contract_numbers
from agents.feasibility.registries import ExternalFact
from agents.feasibility.types import (
    STEPS,
    EvidenceItem,
    FeasibilityInput,
    FeasibilityVerdict,
    Machine,
)
from tests.agents.nov_helpers import dictionary, expanded, hypothesis
from tests.kg.in_helpers import ontology
from validation.core.dictionary import Endpoint, Variable, level_key
from validation.core.hypothesis import Comparison, Exposure, Filter, Population


@dataclass(frozen=True)
class Needs:
    gpu: str = "none"
    memory_mb: int = 1024
    seconds_per_item: float | None = 30.0


@dataclass(frozen=True)
class Tool:
    name: str = "nuclear_density"
    version: str = "1.0.0"
    summary: str = "Measure nuclear density and nuclear texture on H&E slides."
    resources: Needs = Needs()


def gather_all(change: dict[str, Any] | None = None, **more: Any) -> list[EvidenceItem]:
    options = {name: more.pop(name, None) for name in ("registries", "machine")}
    tools = more.pop("tools", ())
    return gather(expanded(**(change or {})), dictionary(**more), lambda: tools, **options)


def assess_all(change: dict[str, Any] | None = None, **more: Any) -> FeasibilityVerdict:
    evidence = gather_all(change, **more)
    for name in ("tools", "registries", "machine"):
        more.pop(name, None)
    whole = expanded(**(change or {}))
    given = FeasibilityInput(
        expanded=whole,
        dictionary=dictionary_view(dictionary(**more), list(whole.parts)),
        evidence=tuple(evidence),
    )
    return rules().ask(FEASIBILITY, given).output


@lru_cache(maxsize=1)
def rules() -> RulesReasoner:
    return RulesReasoner(Resources(ontology=ontology()))


def test_a_testable_hypothesis_is_feasible_with_counts_of_patients_and_events() -> None:
    verdict = assess_all()
    assert verdict.may_run
    assert verdict.verdict in ("feasible", "conditionally_feasible")
    told = " ".join(fact.statement for fact in gather_all())
    assert "190 events" in told and "380 of 400 patients" in told
    for step in verdict.steps:
        assert step.checks and all(check.evidence for check in step.checks)


@pytest.mark.parametrize(("levels", "found"), [(("A",), True), (("A", "B"), True), (("X",), False)])
def test_a_level_of_a_variable_is_held_by_a_cohort_that_has_it(
    levels: tuple[str, ...], found: bool
) -> None:
    subtype = Variable(
        key="clinical:subtype", label="Subtype", modality="clinical", kind="categorical",
        levels={"A": 150, "B": 150, "C": 60}, n=360, missing=0.1,
    )  # fmt: skip
    held = find_held(dictionary(variables=(subtype,)), level_key("clinical:subtype", levels))
    assert (held is not None) is found
    assert held is None or (held.n, held.missing) == (360, 0.1)


FEW = (Endpoint(key="OS", label="Overall survival", kind="survival", n=400, events=12),)
ABSENT = Population(
    description="men", filters=(Filter(variable="clinical:sex", op="eq", value="MALE"),)
)
AGE = (Endpoint(key="age", label="Age", kind="survival", n=400, events=200),)


@pytest.mark.parametrize(
    ("change", "more", "names"),
    [
        ({"exposures": (Exposure(variable="expression:FABP6", label="FABP6"),)}, {}, "FABP5"),
        ({"endpoint": "PFI"}, {}, "OS"),
        ({}, {"endpoints": FEW}, "20"),
        ({}, {"expression_n": 100}, "100 of 400"),
        ({"population": ABSENT}, {}, "clinical:sex"),
        ({"exposures": (Exposure(variable="clinical:age", label="Age"),), "endpoint": "age"},
         {"endpoints": AGE}, "clinical:age"),
    ],
    ids=["variable", "endpoint", "events", "missing", "filter", "circular"],
)  # fmt: skip
def test_what_cannot_be_tested_is_infeasible_and_names_what_is_there(
    change: dict[str, Any], more: dict[str, Any], names: str
) -> None:
    verdict = assess_all(change, **more)
    assert verdict.verdict == "infeasible" and not verdict.may_run
    assert names in " ".join(list_conditions(verdict, gather_all(change, **more)))


@pytest.mark.parametrize(
    ("covariates", "demanded"), [(("clinical:age",), ("clinical:stage",)), ((), ())]
)
def test_what_relates_to_the_exposure_and_is_not_in_the_model_is_a_condition(
    covariates: tuple[str, ...], demanded: tuple[str, ...]
) -> None:
    numbers = contract_numbers(hypothesis(covariates=covariates), dictionary())
    numbers = numbers.model_copy(update={"unadjusted": {"clinical:stage": "Tumor stage"}})
    evidence = gather(expanded(covariates=covariates), dictionary(), numbers=numbers)
    verdict = judge(evidence)
    assert verdict.verdict == "conditionally_feasible"
    assert verdict.adjust_for == demanded
    assert any("Tumor stage" in line for line in list_conditions(verdict, evidence))


def test_slides_are_timed_by_the_tools_own_costs() -> None:
    exposures = (Exposure(variable="imaging:nuclear_density", label="nuclear density"),)
    facts = gather(
        expanded(exposures=exposures),
        dictionary(slides=400),
        lambda: (Tool(),),
        machine=Machine(cores=4, memory_mb=8192),
    )
    runtime = next(fact for fact in facts if fact.check == "runtime")
    assert runtime.value == pytest.approx((60 + 24 + 30 * 400 / 4) / 3600)


def test_an_unanswered_registry_counts_neither_way() -> None:
    class Silent:
        def facts(self, expanded):
            return [
                ExternalFact(
                    "data", "public data sets", "GEO could not be queried.", "GEO", None, 0
                )
            ]

    with_silence = assess_all(registries=Silent())
    assert with_silence.score == pytest.approx(assess_all().score)
    check = next(
        check for check in with_silence.steps[0].checks if check.name == "public data sets"
    )
    assert check.passed is None


def test_its_numbers_are_those_of_the_contract_that_is_frozen(tmp_path: Path) -> None:
    """The same count of events and detectable effect, with the filters applied, in every fact."""
    from validation import cohort as cohorts
    from validation.drafting.draft import draft
    from validation.drafting.freezing import draft_on, freeze
    from validation.simulate import write_world

    write_world(tmp_path / "world", seed=5, patients=120)
    cohort = cohorts.load(tmp_path / "world")
    women = Filter(variable="clinical:gender", op="eq", value="FEMALE")
    claim = hypothesis(
        exposures=(Exposure(variable="expression:FABP5", label="FABP5"),),
        comparison=Comparison.EXPOSED_VS_REST,
        covariates=("clinical:age",),
        population=Population(description="women", filters=(women,)),
    )
    known = cohort.dictionary()
    power = freeze(draft(claim, known), cohort).contract.power
    facts = gather(
        expanded().model_copy(update={"hypothesis": claim}),
        known,
        numbers=contract_numbers(claim, known, cohort),
    )
    by_check = {fact.check: fact for fact in facts}
    assert power.events is not None and power.minimum_detectable is not None
    assert by_check["endpoint"].value == round(power.events)
    assert by_check["power"].value == power.minimum_detectable
    assert str(power.n) in by_check["endpoint"].statement
    assert by_check["events per model term"].value == round(power.events) / 2
    assert power.n < known.n_patients / 2
    frozen = freeze(draft_on(claim, cohort), cohort).contract
    left = {use.key: use.label for use in frozen.variables if use.role == "unadjusted"}
    assert contract_numbers(claim, known, cohort).unadjusted == left


@pytest.mark.parametrize(
    ("comparison", "terms", "scale"),
    [
        (Comparison.EXPOSED_VS_REST, 3, "hazard ratio"),
        (Comparison.EXTREMES, 3, "hazard ratio"),
        (Comparison.INTERACTION, 5, "ratio of two hazard ratios"),
        (Comparison.MODIFICATION, 5, "ratio of two hazard ratios"),
    ],
)
def test_exposures_that_form_groups_are_one_term_and_a_product_is_one_more(
    comparison: Comparison, terms: int, scale: str
) -> None:
    numbers = contract_numbers(hypothesis(comparison=comparison), dictionary())
    assert not numbers.refused
    assert (numbers.terms, numbers.scale) == (terms, scale)


def test_a_claim_of_which_no_contract_can_be_drafted_is_infeasible() -> None:
    known = dictionary()
    numbers = ContractNumbers(refused="the population contains no patients")
    evidence = gather(expanded(), known, numbers=numbers)
    verdict = judge(evidence)
    assert verdict.verdict == "infeasible"
    assert "the population contains no patients" in list_conditions(verdict, evidence)[0]
    assert not [fact for fact in evidence if fact.check in ("endpoint", "power")]


facts = st.lists(
    st.builds(
        EvidenceItem,
        id=st.integers(1, 99).map("E{}".format),
        step=st.sampled_from(STEPS),
        check=st.sampled_from(["a", "b"]),
        statement=st.just("A fact."),
        source=st.just("test"),
        found=st.sampled_from([True, False, None]),
        share=st.floats(0, 1),
        blocking=st.booleans(),
        remedy=st.sampled_from(["", "Do this."]),
    ),
    max_size=12,
)


@settings(deadline=None)
@given(facts)
def test_a_verdict_is_always_consistent(evidence) -> None:
    verdict = judge(evidence)
    assert 0 <= verdict.score <= 100
    blocked = any(item.blocking and item.found is False for item in evidence)
    assert not blocked or verdict.verdict == "infeasible"
    failed = {item.id for item in evidence if item.found is False}
    assert set(verdict.conditions) <= failed
    assert bool(list_conditions(verdict, evidence)) == (verdict.verdict != "feasible")
    assert (verdict.verdict != "feasible") or verdict.score >= 70


def run_check(**change: Any) -> list[str]:
    whole, cohort = expanded(), dictionary()
    evidence = tuple(gather(whole, cohort))
    given_to = FeasibilityInput(
        expanded=whole, dictionary=dictionary_view(cohort, []), evidence=evidence
    )
    verdict = judge(evidence)
    return check_feasibility(given_to, verdict.model_copy(update=change))


def test_a_models_verdict_is_held_to_arithmetic_and_evidence() -> None:
    verdict = assess_all()
    assert run_check() == []
    assert "12" in run_check(score=12.0)[0]
    assert run_check(steps=verdict.steps[:3])
    check = verdict.steps[0].checks[0].model_copy(update={"evidence": ("E99",)})
    step = verdict.steps[0].model_copy(update={"checks": (check,)})
    assert any("E99" in item for item in run_check(steps=(step, *verdict.steps[1:])))
    assert any("E1" in item for item in run_check(conditions=("E1",)))


def test_a_model_cannot_pass_over_a_blocker() -> None:
    whole, cohort = expanded(endpoint="PFI"), dictionary()
    evidence = tuple(gather(whole, cohort))
    verdict = judge(evidence).model_copy(update={"verdict": "feasible"})
    given_to = FeasibilityInput(
        expanded=whole, dictionary=dictionary_view(cohort, []), evidence=evidence
    )
    assert check_feasibility(given_to, verdict)
