"""What SAGE's own sentences say of a claim, of its variables and of its numbers."""

from __future__ import annotations

import math

import pytest

from agents.base import Resources
from agents.coding_instructions import CodingInstructions, registered_tasks
from agents.expansion import expand
from agents.interpreter import (
    ContractView,
    InterpreterInput,
    KeyedNumber,
    ResultsView,
    interpret,
)
from agents.prose.check import early_judge
from agents.prose.facts import ResultFacts
from agents.summary import FeasibilityView, NoveltyView, SummaryInput, generated, verdict_view
from agents.types import ReviewedHypothesis
from agents.views import ExpansionInput
from kg.lexicon.ontology import Ontology
from tests.agents.nov_helpers import expanded, hypothesis
from validation.hypothesis import Comparison, Exposure
from validation.results import Book

RESOURCES = Resources(ontology=Ontology([], []))


def results(verdict: str = "not_supported") -> ResultsView:
    book = Book()
    book.put("kaplan_meier.exposed.median", math.inf, "months")
    book.put("kaplan_meier.reference.median", 15.5, "months")
    return ResultsView.model_validate(
        {
            "verdict": verdict,
            "badge": verdict,
            "facts": ResultFacts(verdict=verdict),
            "reasons": (),
            "limits": (),
            "figures": (),
            "numbers": [
                KeyedNumber(key=key, text=number.text) for key, number in book.numbers.items()
            ],
        }
    )


def interpreted() -> InterpreterInput:
    return InterpreterInput(
        expanded=expanded(),
        contract=ContractView(sha256="0", statements=()),
        results=results(),
    )


@pytest.mark.parametrize(
    ("variable", "said", "unsaid"),
    [
        ("imaging:tls_density", "from slides, where a pathologist can check it", "bulk"),
        ("expression:CCL21", "from a transcript measured in bulk tissue", "pathologist"),
        ("signature:b_cell", "from transcripts measured in bulk tissue", "pathologist"),
        ("mutation:FGFR3", "from the tumor's DNA", "pathologist"),
        ("clinical:age", "from the clinical record", "pathologist"),
        ("immune:leukocyte_fraction", "from values that the cohort gives", "pathologist"),
    ],
)
def test_only_slides_are_for_a_pathologist_to_check(variable: str, said: str, unsaid: str) -> None:
    claim = hypothesis(
        exposures=(Exposure(variable=variable, label="the marker"),),
        comparison=Comparison.EXPOSED_VS_REST,
    )
    given = ExpansionInput(reviewed=ReviewedHypothesis(hypothesis=claim, review="approved"))
    meaning = expand(given, RESOURCES).clinical_interpretation
    assert said in meaning and unsaid not in meaning
    assert "OS differs by exposure: patients with high the marker against all others." in meaning
    assert early_judge()(meaning) == []


def test_a_median_that_was_not_reached_has_no_unit() -> None:
    (line,) = [
        finding for finding in interpret(interpreted(), RESOURCES).findings if "Median" in finding
    ]
    assert line == (
        "Median time to event: exposed [[kaplan_meier.exposed.median]], reference"
        " [[kaplan_meier.reference.median]] months."
    )


def test_a_summary_begins_with_a_claim_and_not_with_a_fact() -> None:
    given = interpreted()
    summary = generated(
        SummaryInput(
            interpretation=interpret(given, RESOURCES),
            verdict=verdict_view(given.results),
            expanded=given.expanded,
            novelty=NoveltyView(score=None, threshold=5, specious=False, summary="Not judged."),
            feasibility=FeasibilityView(score=90, verdict="feasible", summary="Feasible."),
        )
    )
    assert summary.paragraphs[0] == f"Claim tested: {given.expanded.hypothesis.statement}"


def test_the_tasks_name_the_covariates_of_the_contract() -> None:
    own = CodingInstructions(covariates=("a", "b"), tasks=("First.", "Repeat adjusted for a, b."))
    assert registered_tasks(own, ("a", "b", "grade")) == (
        "First.",
        "Repeat adjusted for a, b, grade.",
    )
    models = own.model_copy(update={"tasks": ("Adjust for two.",)})
    assert registered_tasks(models, ("a", "b")) == models.tasks
    assert registered_tasks(models, ("a", "b", "grade")) == (
        "Adjust for two.",
        "Repeat adjusted for a, b, grade.",
    )
