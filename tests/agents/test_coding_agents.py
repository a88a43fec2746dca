"""The task and data agents: their rules pass their checks, and the checks catch what is wrong."""

from __future__ import annotations

import pytest

from agents.coding.data import DATA_AGENT, DataInput, DataPlan, Extraction, ToolOffer, check_data
from agents.coding.task import TASK_AGENT, TaskInput, check_plan
from agents.coding.types import ContractBrief
from agents.core.base import Resources
from agents.core.rules import RulesReasoner
from kg.lexicon.ontology import Ontology
from validation.contracts.contract import TestPlan, VariableUse

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
        ({"contract_sha256": "d" * 64}, "contract_sha256"),
        ({"data": ("expression:FABP5",)}, '"clinical:stage"'),
        ({"data": ("expression:FABP5", "clinical:stage", "x:y")}, '"x:y"'),
        ({"steps": ()}, '"primary"'),
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
        (DataPlan(found=("imaging:tls_density",)), '"imaging:tls_density"'),
        (DataPlan(missing=WANTED.wanted[:2]), '"imaging:mitotic_count"'),
        (DataPlan(missing=WANTED.wanted), '"expression:FABP5"'),
        (DataPlan(missing=(*WANTED.wanted, "x:y")), '"x:y"'),
        (DataPlan(extract=(Extraction(variable="imaging:tls_density", tool="no", field="x"),)),
         '"no"'),
        (DataPlan(extract=(Extraction(variable="imaging:tls_density", tool="collagen",
                                      field="tls"),)), '"tls"'),
    ],
)  # fmt: skip
def test_a_data_plan_that_invents_something_is_sent_back(plan: DataPlan, says: str) -> None:
    assert says in " ".join(check_data(WANTED, plan))
