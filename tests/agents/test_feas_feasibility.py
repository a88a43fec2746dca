"""Feasibility: facts, weights, verdicts, and what would make it feasible."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.core.base import Resources
from agents.core.prompting import parse, render
from agents.core.rules import RulesReasoner
from agents.core.types import dictionary_view
from agents.feasibility.agent import FEASIBILITY, check_feasibility
from agents.feasibility.collect import gather
from agents.feasibility.packages import find_package
from agents.feasibility.plan import ContractNumbers, contract_numbers
from agents.feasibility.registries import ExternalFact
from agents.feasibility.rule import judge
from agents.feasibility.settings import FeasibilitySettings
from agents.feasibility.types import (
    STEPS,
    EvidenceItem,
    FeasibilityInput,
    FeasibilityVerdict,
    Machine,
)
from kg.lexicon.ontology import Ontology
from tests.agents.nov_helpers import dictionary, expanded, hypothesis
from validation.core.dictionary import Endpoint, Variable
from validation.core.hypothesis import Comparison, Exposure, Filter, Population

ROOT = Path(__file__).resolve().parents[2]


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


def assess_all(change: dict[str, Any] | None = None, **more: Any) -> FeasibilityVerdict:
    tools = more.pop("tools", ())
    machine = more.pop("machine", None)
    registries = more.pop("registries", None)
    cohort = dictionary(**more)
    whole = expanded(**(change or {}))
    evidence = gather(whole, cohort, tools, registries, machine=machine)
    given = FeasibilityInput(
        expanded=whole,
        dictionary=dictionary_view(cohort, list(whole.parts)),
        evidence=tuple(evidence),
    )
    rules = RulesReasoner(Resources(ontology=Ontology.load(ROOT / "data" / "ontology")))
    return rules.ask(FEASIBILITY, given).output


def text_of(verdict: FeasibilityVerdict) -> str:
    return verdict.model_dump_json()


def test_the_four_steps_carry_the_weights_of_the_protocol() -> None:
    verdict = assess_all()
    assert [(step.name, step.weight) for step in verdict.steps] == [
        ("data", 35),
        ("tools", 25),
        ("logic", 25),
        ("resources", 15),
    ]
    total = sum(step.weight * step.score for step in verdict.steps) / 100
    assert verdict.score == pytest.approx(total)


def test_a_testable_hypothesis_is_feasible_with_counts_of_patients_and_events() -> None:
    verdict = assess_all()
    assert verdict.may_run
    assert verdict.verdict in ("feasible", "conditionally_feasible")
    assert "190 events expected among 380 patients" in text_of(verdict)
    assert "measured in 380 of 400 patients" in text_of(verdict)


def test_power_states_the_smallest_visible_hazard_ratio() -> None:
    from validation.statistics.power import minimum_detectable_hr

    facts = gather(expanded(), dictionary())
    power = next(fact for fact in facts if fact.check == "power")
    # 380 of 400 have TLS density: 190 of the 200 events; two median cuts expose a quarter.
    assert power.value == pytest.approx(minimum_detectable_hr(190, 0.25, 0.05, 0.8), abs=1e-4)
    assert "hazard ratio" in power.statement
    assert power.value is not None
    assert f"{power.value:.2f} (or {1 / power.value:.2f})" in power.statement


def test_a_missing_variable_is_infeasible_and_a_near_match_is_offered() -> None:
    exposures = (Exposure(variable="expression:FABP6", label="FABP6"),)
    verdict = assess_all({"exposures": exposures})
    assert verdict.verdict == "infeasible" and not verdict.may_run
    assert "FABP6 (expression:FABP6) is not in demo" in verdict.blockers[0]
    assert "Near matches: FABP" in verdict.what_would_make_it_feasible[0]


def test_a_missing_endpoint_names_those_that_exist() -> None:
    verdict = assess_all({"endpoint": "PFI"})
    assert verdict.verdict == "infeasible"
    assert "it has: OS" in verdict.blockers[0]


def test_too_few_events_are_infeasible_and_say_how_many_are_needed() -> None:
    few = (Endpoint(key="OS", label="Overall survival", kind="survival", n=400, events=12),)
    verdict = assess_all(endpoints=few)
    assert verdict.verdict == "infeasible"
    assert any("At least 20 events" in item for item in verdict.what_would_make_it_feasible)


def test_a_variable_missing_in_most_patients_is_as_good_as_absent() -> None:
    verdict = assess_all(expression_n=100)
    assert verdict.verdict == "infeasible"
    assert "measured in 100 of 400" in verdict.blockers[0]


def test_an_unadjusted_confounder_is_a_condition() -> None:
    verdict = assess_all({"covariates": ("clinical:age",)})
    assert verdict.verdict == "conditionally_feasible"
    assert any("Adjust for clinical:stage" in condition for condition in verdict.conditions)


def test_a_yes_or_no_is_not_cut() -> None:
    base = dictionary().variables
    treated = Variable(
        key="clinical:tamoxifen", label="Tamoxifen", modality="clinical", kind="binary", n=400,
        missing=0.0, levels={"no": 200, "yes": 200},
    )  # fmt: skip
    exposure = Exposure(variable=treated.key, label="Tamoxifen")
    found = text_of(assess_all({"exposures": (exposure,)}, variables=(*base, treated)))
    assert "not look at the outcome: the two values of a yes or no." in found
    assert "not look at the outcome: median." in text_of(assess_all())


def test_an_exposure_that_is_the_endpoint_is_circular() -> None:
    verdict = assess_all(
        {"exposures": (Exposure(variable="clinical:age", label="Age"),), "endpoint": "age"},
        endpoints=(Endpoint(key="age", label="Age", kind="survival", n=400, events=200),),
    )
    assert verdict.verdict == "infeasible"
    assert any("the endpoint itself" in blocker for blocker in verdict.blockers)


def test_a_population_filter_on_an_absent_variable_blocks() -> None:
    population = Population(
        description="men", filters=(Filter(variable="clinical:sex", op="eq", value="MALE"),)
    )
    verdict = assess_all({"population": population})
    assert verdict.verdict == "infeasible"


def test_slides_are_timed_by_the_tools_own_costs() -> None:
    exposures = (Exposure(variable="imaging:nuclear_density", label="nuclear density"),)
    facts = gather(
        expanded(exposures=exposures),
        dictionary(slides=400),
        (Tool(),),
        machine=Machine(cores=4, memory_mb=8192),
    )
    runtime = next(fact for fact in facts if fact.check == "runtime")
    assert runtime.value == pytest.approx((60 + 24 + 30 * 400 / 4) / 3600)
    assert "nuclear_density 30 s per slide, 400 slides" in runtime.statement


def test_a_tool_that_needs_a_gpu_blocks_a_machine_without() -> None:
    exposures = (Exposure(variable="imaging:nuclear_density", label="nuclear density"),)
    tools = (Tool(resources=Needs(gpu="required")),)
    facts = gather(expanded(exposures=exposures), dictionary(slides=10), tools)
    gpu = next(fact for fact in facts if fact.check == "accelerator")
    assert gpu.found is False and gpu.blocking and "with a GPU" in gpu.remedy


def test_a_feature_that_no_tool_measures_is_named() -> None:
    exposures = (Exposure(variable="imaging:mitotic_count", label="mitotic count"),)
    facts = gather(expanded(exposures=exposures), dictionary(), (Tool(),))
    image = next(fact for fact in facts if fact.check == "image features")
    assert image.found is False
    assert "No registered tool measures mitotic count" in image.statement


def test_an_unanswered_registry_counts_neither_way() -> None:
    class Silent:
        def facts(self, expanded):
            return [
                ExternalFact("data", "public data sets", "GEO could not be asked.", "GEO", None, 0)
            ]

    with_silence = assess_all(registries=Silent())
    assert with_silence.score == pytest.approx(assess_all().score)
    assert "GEO could not be asked" in text_of(with_silence)
    check = next(
        check for check in with_silence.steps[0].checks if check.name == "public data sets"
    )
    assert check.passed is None


def test_every_check_names_gathered_facts() -> None:
    facts = gather(expanded(), dictionary())
    known = {fact.id for fact in facts}
    verdict = assess_all()
    for step in verdict.steps:
        assert step.checks
        for check in step.checks:
            assert check.evidence and set(check.evidence) <= known


def test_its_numbers_are_those_of_the_contract_that_is_frozen(tmp_path: Path) -> None:
    """The same count of events and detectable effect, with the filters applied, in every fact."""
    from validation import cohort as cohorts
    from validation.drafting.draft import draft
    from validation.drafting.freezing import freeze
    from validation.simulate import write_world

    write_world(tmp_path / "world", seed=5, patients=200)
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
    assert f"{power.n} patients whom the draft compares" in by_check["endpoint"].statement
    assert by_check["events per model term"].value == round(power.events) / 2
    assert power.n < known.n_patients / 2


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
    numbers = ContractNumbers(refused="the population keeps nobody")
    evidence = gather(expanded(), known, numbers=numbers)
    verdict = judge(evidence, FeasibilitySettings())
    assert verdict.verdict == "infeasible"
    assert "the population keeps nobody" in verdict.what_would_make_it_feasible[0]
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
    verdict = judge(evidence, FeasibilitySettings())
    assert 0 <= verdict.score <= 100
    blocked = any(item.blocking and item.found is False for item in evidence)
    assert not blocked or verdict.verdict == "infeasible"
    assert (verdict.verdict != "conditionally_feasible") or verdict.conditions
    assert (verdict.verdict != "infeasible") or verdict.what_would_make_it_feasible
    assert (verdict.verdict != "feasible") or verdict.score >= 70


def run_check(**change: Any) -> list[str]:
    whole, cohort = expanded(), dictionary()
    evidence = tuple(gather(whole, cohort))
    given_to = FeasibilityInput(
        expanded=whole, dictionary=dictionary_view(cohort, []), evidence=evidence
    )
    verdict = judge(evidence, FeasibilitySettings())
    return check_feasibility(given_to, verdict.model_copy(update=change))


def test_a_models_verdict_is_held_to_arithmetic_and_evidence() -> None:
    verdict = assess_all()
    assert run_check() == []
    assert "but the weighted steps give" in run_check(score=12.0)[0]
    assert "four steps once each" in run_check(steps=verdict.steps[:3])[0]
    check = verdict.steps[0].checks[0].model_copy(update={"evidence": ("E99",)})
    step = verdict.steps[0].model_copy(update={"checks": (check,)})
    assert any(
        "E99, which was not gathered" in item
        for item in run_check(steps=(step, *verdict.steps[1:]))
    )
    assert any("what would make it" in item for item in run_check(verdict="infeasible"))


def test_a_model_cannot_pass_over_a_blocker() -> None:
    whole, cohort = expanded(endpoint="PFI"), dictionary()
    evidence = tuple(gather(whole, cohort))
    verdict = judge(evidence, FeasibilitySettings()).model_copy(update={"verdict": "feasible"})
    given_to = FeasibilityInput(
        expanded=whole, dictionary=dictionary_view(cohort, []), evidence=evidence
    )
    assert any(
        "blocks: the verdict has to be" in item for item in check_feasibility(given_to, verdict)
    )


def test_the_prompt_renders_facts_and_no_patient() -> None:
    whole, cohort = expanded(), dictionary()
    given_to = FeasibilityInput(
        expanded=whole,
        dictionary=dictionary_view(cohort, list(whole.parts)),
        evidence=tuple(gather(whole, cohort)),
    )
    system, user = render(FEASIBILITY.prompt, given_to)
    assert parse(FEASIBILITY.prompt).version >= 1
    assert "E1 [data, exposures] found" in user
    assert "Genes named by the task: FABP5 (of 2)" in user
    assert "blocking" in system


def test_covariates_that_exist_and_were_not_asked_for_are_named() -> None:
    known = dictionary()
    one = next(item for item in known.variables if item.key.startswith("clinical:"))
    held = [
        one.model_copy(update={"key": f"clinical:{key}", "label": label})
        for key, label in (("gender", "Sex"), ("ecog", "ECOG"), ("smoking", "Smoking history"))
    ]
    late = one.model_copy(update={"key": "clinical:chemo", "label": "Chemo", "known_at": "later"})
    others = [item for item in known.variables if not item.key.startswith("clinical:")]
    bare = known.model_copy(update={"variables": (*others, *held, late)})
    claim = hypothesis(covariates=("clinical:gender",))
    facts = gather(expanded().model_copy(update={"hypothesis": claim}), bare)
    said = next(fact.statement for fact in facts if fact.check == "confounders")
    assert said == (
        "The cohort records neither age nor stage nor grade; not adjusted for either, as only age,"
        " sex, stage and grade are without being asked: ECOG, Smoking history."
    )


def test_an_installed_package_states_version_and_status() -> None:
    package = find_package("pandas")
    assert package is not None
    assert "pandas" in package.sentence() and package.version in package.sentence()
    assert package.maturity == 1.0
    assert find_package("surely-not-installed-anywhere") is None
