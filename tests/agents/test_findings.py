"""Statements of every kind: which a result bears out, how they read, what is refused."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from agents.core.base import Resources
from agents.core.words import KEYED
from agents.findings.check import refuse_findings
from agents.findings.hold import hold
from agents.findings.types import LIMITS, RESULTS, BesideOther, Finding, Held
from agents.interpreter.agent import (
    ContractView,
    InterpreterInput,
    ResultsView,
    check_interpretation,
    interpret,
)
from agents.summary.agent import (
    FeasibilityView,
    NoveltyView,
    SummaryInput,
    check_summary,
    summarize,
    verdict_view,
)
from kg.lexicon.ontology import Ontology
from tests.agents.nov_helpers import expanded
from tests.validation.verdict_table import controls, estimate, evidence, outcome
from tests.validation.verdict_table import random_features as features
from validation.contracts.contract import Contract, EndpointUse
from validation.core.hypothesis import Comparison, Direction, Hypothesis
from validation.results.controls import Missingness, PermutedOutcome
from validation.results.results import Book, Results
from validation.verdict.verdict import judge

RESOURCES = Resources(ontology=Ontology([], []))
MODELS = get_args(get_args(Finding)[0])
KINDS = {get_args(item.model_fields["kind"].annotation)[0] for item in MODELS}
ONE: TypeAdapter[Finding] = TypeAdapter(Finding)
CASES: dict[str, dict[str, Any]] = {
    "supported": {"primary": estimate(2.0)},
    "small_effect": {"primary": estimate(1.2, 0.05)},
    "not_supported": {"primary": estimate(0.97, 0.05), "ran": {"permuted": 0.6, "random": 0.4}},
    "inconclusive": {
        "primary": estimate(1.2, 0.2), "ran": {"random": 0.6, "missing": 9}, "events": 90,
        "covariates": (), "untested": ("the role of CCL21",), "simulated": True,
    },
}  # fmt: skip
"""A result of each verdict."""


@lru_cache(maxsize=8)
def result(verdict: str) -> tuple[Results, Contract]:
    """A result with every kind of test, and its contract."""
    case = CASES[verdict]
    ran = case.get("ran", {})
    plan: dict[str, Any] = {} if "covariates" not in case else {"covariates": case["covariates"]}
    ends = [
        EndpointUse(key=key, kind="survival", label=label)
        for key, label in (("OS", "Overall survival"), ("PFI", "Progression-free interval"))
    ]
    tested = evidence(
        primary=case["primary"] | {"events": case.get("events", 200), "n": 400},
        plan=plan | {"endpoints": ends},
        ran=controls(
            permuted=PermutedOutcome(status="ran", p=ran.get("permuted", 0.001), draws=1000),
            random=(features(ran.get("random", 0.99)), features(0.98)),
            missingness=Missingness(status="ran", missing=ran.get("missing", 0), n=400),
        ),
        others=(
            outcome("schoenfeld", role="assumption", p=0.3),
            outcome("PFI.secondary", role="secondary", endpoint="PFI", method="logrank",
                    **case["primary"]),
            outcome("subgroup.1", role="subgroup", method="logrank", **estimate(0.8, 0.3)),
        ),
    )  # fmt: skip
    book = Book()
    for name in ("primary", "adjusted", "PFI.secondary"):
        book.add_effect(name, case["primary"]["effect"], case["primary"]["p"])
    for end, value in (("gain", 0.02), ("gain_lower", -0.01), ("gain_upper", 0.05)):
        book.add(f"concordance.{end}", value, "")
    book.add_effect("joint_groups.second.beside", case["primary"]["effect"], case["primary"]["p"])
    book.add("power.required_events", 191, "events")
    agreed = tested.contract
    claim = agreed.hypothesis.model_copy(update={"untested": case.get("untested", ())})
    found = Results(
        contract_sha256="0", cohort="toy", simulated=case.get("simulated", False), hypothesis="h",
        verdict=judge(tested), numbers=book.numbers,
        tests=tuple(sorted(tested.analysis.tests, key=lambda test: test.id != "primary")),
        controls=tested.analysis.controls, figures={},
    )  # fmt: skip
    return found, agreed.model_copy(update={"hypothesis": claim})


def held(verdict: str) -> tuple[Held, ...]:
    return hold(*result(verdict))


def given_results(verdict: str) -> InterpreterInput:
    found, _ = result(verdict)
    view = ResultsView(
        verdict=found.verdict.verdict, badge=found.verdict.badge, held=held(verdict), reasons=(),
        limits=(), numbers=(), figures=(),
    )  # fmt: skip
    return InterpreterInput(
        expanded=expanded(), contract=ContractView(sha256="0", statements=()), results=view
    )


def test_every_kind_is_borne_out_by_some_result_and_shown_in_some_section() -> None:
    shown = {item.finding.kind for verdict in CASES for item in held(verdict)}
    assert shown | {"interaction"} == KINDS
    assert {*RESULTS, *LIMITS, "assumption", "next_step"} == KINDS


TABLE = {
    "supported": (
        "primary:significant adjusted:significant permuted outcome:passed FABP5:passed "
        "events:enough exposure:none toy:one_cohort",
        {"confounding", "measurement"}, {"repeat", "test_endpoint"},
    ),
    "small_effect": (
        "primary:significant adjusted:significant permuted outcome:passed FABP5:passed "
        "events:enough exposure:none toy:one_cohort",
        {"confounding", "measurement"}, {"repeat", "test_endpoint"},
    ),
    "not_supported": (
        "primary:not_significant adjusted:not_significant permuted outcome:failed FABP5:failed "
        "events:enough exposure:none toy:one_cohort",
        {"chance", "confounding", "measurement"}, {"repeat"},
    ),
    "inconclusive": (
        "primary:not_significant permuted outcome:passed FABP5:failed events:too_few "
        "exposure:some toy:simulated",
        {"chance", "confounding", "selection", "measurement"},
        {"repeat", "enlarge", "adjust", "measure"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("verdict", CASES)
def test_the_table_of_outcomes_explanations_and_next_steps(verdict: str) -> None:
    assert result(verdict)[0].verdict.verdict == verdict
    outcomes, explanations, steps = TABLE[verdict]
    found = [item.finding for item in held(verdict)]
    told = " ".join(f"{one.subject}:{getattr(one, 'outcome', '')}" for one in found)
    assert all(word in told.split() for word in outcomes.split())
    assert {one.subject for one in found if one.kind == "alternative_explanation"} == explanations
    assert {one.design for one in found if one.kind == "next_step"} == steps
    assert ("adjusted" in told) == ("adjusted" in outcomes)


@pytest.mark.parametrize("verdict", CASES)
def test_a_sentence_names_only_numbers_that_the_results_hold(verdict: str) -> None:
    found, _ = result(verdict)
    for item in held(verdict):
        assert set(KEYED.findall(item.sentence)) <= set(found.numbers)
        plain = KEYED.sub("", item.sentence).replace("FABP5", "").replace("CCL21", "")
        assert not [
            char for char in plain.replace("95% CI", "").replace("80% power", "") if char.isdigit()
        ]


@pytest.mark.parametrize(("p", "outcome"), [(0.001, "adds"), (0.4, "open"), (None, None)])
def test_what_an_exposure_adds_beside_the_other(p: float | None, outcome: str | None) -> None:
    found, agreed = result("supported")
    book = Book()
    if p is not None:
        book.add_effect("joint_groups.second.beside", found.tests[0].effect, p)
    told = hold(found.model_copy(update={"numbers": book.numbers}), agreed)
    beside = [item for item in told if isinstance(item.finding, BesideOther)]
    second = agreed.exposures[1:]
    assert [getattr(item.finding, "outcome", "") for item in beside] == [outcome] * len(beside)
    assert len(beside) == (len(second) if p is not None else 0)
    for item in beside:
        assert KEYED.findall(item.sentence)[0] == "joint_groups.second.beside.p"


@pytest.mark.parametrize(
    ("lower", "upper", "p", "outcome"),
    [(0.7, 1.4, 0.4, "unrelated"), (0.5, 1.4, 0.4, "unclear"), (1.2, 2.0, 0.01, "related")],
)
def test_too_few_patients_without_a_value_show_nothing(
    lower: float, upper: float, p: float, outcome: str
) -> None:
    found, agreed = result("supported")
    lost = Missingness(status="ran", missing=30, n=400, p=p, hr=1.0, lower=lower, upper=upper)
    ran = found.controls.model_copy(update={"missingness": lost})
    told = hold(found.model_copy(update={"controls": ran}), agreed)
    assert outcome in [
        getattr(item.finding, "outcome", "") for item in told if item.finding.kind == "missing_data"
    ]


def test_a_claim_on_a_product_is_an_interaction() -> None:
    found, agreed = result("supported")
    claim = agreed.hypothesis.model_copy(update={"comparison": Comparison.INTERACTION})
    first = hold(found, agreed.model_copy(update={"hypothesis": claim}))[0].finding
    assert (first.kind, first.subject) == ("interaction", "primary")
    assert isinstance(claim, Hypothesis)


def test_a_claim_without_a_direction_tells_the_directions_found() -> None:
    """The primary test and a subgroup point apart; the subgroup shows nothing."""
    found, agreed = result("supported")
    either = agreed.model_copy(update={"direction": Direction.EITHER})
    told = {item.finding.subject: item for item in hold(found, either)}
    primary, subgroup = told["primary"], told["subgroup.1"]
    assert getattr(primary.finding, "direction", "") == "higher"
    assert "with shorter overall survival" in primary.sentence
    assert getattr(subgroup.finding, "direction", "") == "unknown"


def test_a_significance_that_the_ledger_takes_back_is_open() -> None:
    found, agreed = result("supported")
    book = Book()
    book.add("primary.q", 0.2, "q-value")
    first = hold(found.model_copy(update={"numbers": book.numbers}), agreed)[0].finding
    assert getattr(first, "outcome", "") == "open"


@pytest.mark.parametrize(
    ("verdict", "lie", "fields"),
    [
        ("supported", {"kind": "effect", "subject": "primary", "direction": "opposite",
                       "outcome": "significant"}, ["direction"]),
        ("not_supported", {"kind": "effect", "subject": "primary", "direction": "expected",
                           "outcome": "significant"}, ["direction", "outcome"]),
        ("supported", {"kind": "secondary_endpoint", "subject": "OS.secondary",
                       "direction": "expected", "outcome": "significant"}, ["subject"]),
        ("supported", {"kind": "alternative_explanation", "subject": "chance"}, ["subject"]),
        ("supported", {"kind": "next_step", "subject": "patients", "design": "repeat"},
         ["subject"]),
    ],
)  # fmt: skip
def test_a_statement_is_refused_by_the_fields_that_contradict_the_results(
    verdict: str, lie: dict[str, Any], fields: list[str]
) -> None:
    true = held(verdict)[0].finding
    problems = refuse_findings("findings", (true, ONE.validate_python(lie)), held(verdict))
    assert [problem.split(":")[0] for problem in problems] == [
        f"findings.1.{field}" for field in fields
    ]


@given(text=st.text(min_size=1, max_size=30), kind=st.sampled_from(sorted(KINDS)))
def test_no_statement_holds_a_text_of_its_writer(text: str, kind: str) -> None:
    """A subject that the results do not hold is refused, and no other field takes a text."""
    told = {"kind": kind, "subject": text}
    known = {item.finding.subject for item in held("inconclusive")}
    try:
        found = ONE.validate_python(told)
    except ValidationError:
        return
    assert found.subject in known or refuse_findings("f", (found,), held("inconclusive"))


@pytest.mark.parametrize("verdict", CASES)
def test_the_rules_choose_statements_that_pass_their_own_check(verdict: str) -> None:
    whole = given_results(verdict)
    answer = interpret(whole, RESOURCES)
    assert check_interpretation(whole, answer) == []
    said = SummaryInput(
        interpretation=answer,
        verdict=verdict_view(whole.results),
        expanded=whole.expanded,
        novelty=NoveltyView(score=None, threshold=5, specious=False, summary="Not judged."),
        feasibility=FeasibilityView(score=90, verdict="feasible", summary="Feasible."),
    )
    summary = summarize(said, RESOURCES)
    assert check_summary(said, summary) == []
    assert summary.findings[0] == held(verdict)[0].finding
    assert {item.kind for item in summary.next_steps} == {"next_step"}
