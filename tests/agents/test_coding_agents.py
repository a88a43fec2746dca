"""The task and data agents: their rules pass their checks, and the checks catch what is wrong."""

from __future__ import annotations

import pytest

from agents.coding.data import DATA_AGENT, DataInput, DataPlan, Extraction, ToolOffer, check_data
from agents.coding.task import TASK_AGENT, TaskInput, check_plan
from agents.coding.types import ContractBrief
from agents.coding.validation import VALIDATION_AGENT, ProgramInput
from agents.core.base import Resources
from agents.core.prompting import render
from agents.core.rules import RulesReasoner
from kg.lexicon.ontology import Ontology
from validation.contracts.contract import TestPlan, VariableUse
from validation.reproduction.compare import SecondTest, Task

RULES = RulesReasoner(Resources(ontology=Ontology((), ())))
BRIEF = ContractBrief(
    sha256="c" * 64,
    statement="High FABP5 with scarce lymphoid aggregates shortens survival.",
    cohort="demo",
    simulated=True,
    population="all",
    exposed="FABP5 high and TLS low",
    reference="everybody else",
    columns=(
        VariableUse(key="expression:FABP5", label="FABP5", kind="continuous", role="exposure"),
        VariableUse(key="clinical:stage", label="stage", kind="ordinal", role="covariate"),
        VariableUse(key="clinical:stage", label="stage", kind="ordinal", role="known_positive"),
    ),
    endpoints=("OS",),
    tests=(
        TestPlan(id="primary", role="primary", method="cox", endpoint="OS"),
        TestPlan(id="km", role="descriptive", method="kaplan_meier", endpoint="OS"),
    ),
    primary="primary",
    seed=0,
)
TOOLS = (
    ToolOffer(name="tls_detect", suite="pathology", version="1.2.0",
              summary="Find lymphoid aggregates.", returns=("count", "tls_density", "area_mm2")),
    ToolOffer(name="collagen", suite="pathology", version="1.0.0",
              summary="Measure collagen.", returns=("collagen_fraction",)),
)  # fmt: skip
WANTED = DataInput(
    cohort="demo",
    wanted=("expression:FABP5", "imaging:tls_density", "imaging:mitotic_count"),
    present=("expression:FABP5", "clinical:age"),
    slides=12,
    tools=TOOLS,
)


def test_the_plan_holds_every_registered_test_once_and_no_other() -> None:
    plan = RULES.ask(TASK_AGENT, TaskInput(contract=BRIEF)).output
    assert [test for step in plan.steps for test in step.tests] == ["km", "primary"]
    assert plan.data == ("expression:FABP5", "clinical:stage")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"contract_sha256": "d" * 64}, "contract_sha256 must be"),
        ({"data": ("expression:FABP5",)}, 'variable "clinical:stage" of the contract is not in'),
        ({"data": ("expression:FABP5", "clinical:stage", "x:y")}, '"x:y" is not in the contract'),
        ({"endpoints": ("OS", "PFI")}, 'endpoint "PFI" is not in the contract'),
        ({"steps": ()}, 'test "primary" of the contract is not in the plan'),
    ],
)
def test_a_plan_that_leaves_the_contract_is_sent_back(change: dict[str, object], says: str) -> None:
    given = TaskInput(contract=BRIEF)
    plan = RULES.ask(TASK_AGENT, given).output.model_copy(update=change)
    assert says in " ".join(check_plan(given, plan))


def test_a_variable_that_does_not_exist_yet_finds_the_tool_that_measures_it() -> None:
    plan = RULES.ask(DATA_AGENT, WANTED).output
    assert plan.found == ("expression:FABP5",)
    assert [(exposure.variable, exposure.tool, exposure.field) for exposure in plan.extract] == [
        ("imaging:tls_density", "tls_detect", "tls_density")
    ]
    assert plan.missing == ("imaging:mitotic_count",)


def test_without_slides_nothing_is_extracted() -> None:
    plan = RULES.ask(DATA_AGENT, WANTED.model_copy(update={"slides": 0})).output
    assert plan.extract == () and "imaging:tls_density" in plan.missing


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        (DataPlan(found=("imaging:tls_density",)), 'the cohort has no "imaging:tls_density"'),
        (DataPlan(missing=WANTED.wanted[:2]), '"imaging:mitotic_count" is not accounted for'),
        (DataPlan(missing=WANTED.wanted), '"expression:FABP5" is not missing'),
        (DataPlan(missing=(*WANTED.wanted, "x:y")), '"x:y" was not asked for'),
        (DataPlan(extract=(Extraction(variable="imaging:tls_density", tool="no", field="x"),)),
         'tool "no" is not registered'),
        (DataPlan(extract=(Extraction(variable="imaging:tls_density", tool="collagen",
                                      field="tls"),)), 'returns no "tls"'),
    ],
)  # fmt: skip
def test_a_data_plan_that_invents_something_is_sent_back(plan: DataPlan, says: str) -> None:
    assert says in " ".join(check_data(WANTED, plan))


def test_the_prompts_render_with_all_that_the_agents_read() -> None:
    plan = RULES.ask(TASK_AGENT, TaskInput(contract=BRIEF)).output
    given = ProgramInput(
        contract=BRIEF, plan=plan, allowed_imports=("numpy",),
        task=Task(contract_sha256="c" * 64, part="all", tests=(SecondTest(
            id="primary", method="cox", time="OS.time", event="OS.event", terms=("exposure",),
            report=("n", "p")),)),
        round=2, previous="print(0)", feedback=("KeyError: 'x'",),
    )  # fmt: skip
    _, user = render(VALIDATION_AGENT.prompt, given)
    assert '"id":"primary"' in user and "KeyError: 'x'" in user and "Round 2 of 3" in user
    _, user = render(TASK_AGENT.prompt, TaskInput(contract=BRIEF, tasks=("Do it.",)))
    assert "- primary: cox on OS" in user and "Do it." in user
    _, user = render(DATA_AGENT.prompt, WANTED)
    assert "- expression:FABP5 (in the cohort)" in user and "tls_detect" in user
