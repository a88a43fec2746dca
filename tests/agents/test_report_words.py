"""SAGE's own sentences on a claim, its variables and its numbers."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from agents.core.base import Resources
from agents.core.types import Citation, ReviewedHypothesis
from agents.expansion.agent import ExpansionInput, expand
from agents.instructions.agent import CodingInstructions, registered_tasks
from agents.interpreter.agent import (
    ContractView,
    InterpreterInput,
    KeyedNumber,
    ResultsView,
    interpret,
)
from agents.prose.check import early_judge
from agents.prose.facts import ResultFacts
from agents.summary.agent import (
    FeasibilityView,
    NoveltyView,
    SummaryInput,
    verdict_view,
    write_summary,
)
from kg.lexicon.ontology import Ontology
from tests.agents.nov_helpers import expanded, hypothesis
from validation.controls.keys import Key
from validation.core.hypothesis import Comparison, Exposure
from validation.results.results import Book, Effect, percent

RESOURCES = Resources(ontology=Ontology([], []))


def results(verdict: str = "not_supported") -> ResultsView:
    book = Book()
    book.add("kaplan_meier.exposed.median", math.inf, "months")
    book.add("kaplan_meier.reference.median", 15.5, "months")
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
        ("imaging:tls_density", "from a measurement on slides", "bulk"),
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
    summary = write_summary(
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


def test_a_finding_says_of_whom_it_is_and_what_it_is_per() -> None:
    book = Book()
    for name in ("primary", "adjusted", "PFI.secondary"):
        book.add_effect(name, Effect(value=0.7, lower=0.5, upper=0.9, scale="hazard ratio"), 0.006)
        book.add(f"{name}.q", 0.02, "q-value")
        book.add(f"{name}.n", 141, "patients")
        book.add(f"{name}.events", 61, "events")
    for name, value in (("slope", 0.84), ("horizon", 45.1), ("harrell", 0.74)):
        book.add(f"calibration.{name}", value, "months" if name == "horizon" else "")
    book.add("calibration.n", 140, "patients")
    book.add("calibration.events", 60, "events")
    for key, value in ((Key.KNOWN_POSITIVE_HR, 1.6), (Key.KNOWN_POSITIVE_P, 0.01)):
        book.add(key, value, "")
    book.add(Key.KNOWN_POSITIVE_EVENTS, 62, "events")
    numbers = tuple(KeyedNumber(key=key, text=one.text) for key, one in book.numbers.items())
    whose = {"part": "confirmation", "beside": "Age and Sex", "per": " per standard deviation"}
    given = interpreted().model_copy(
        update={
            "results": results().model_copy(update={"numbers": numbers, **whose}),
            "expanded": expanded(endpoint="OS", secondary_endpoints=("PFI",)),
        }
    )
    assert interpret(given, RESOURCES).findings == (
        "Primary comparison, in the patients held back to confirm it: [[primary.summary]] per"
        " standard deviation (p [[primary.p]]); q [[primary.q]] after error control over the"
        " ledger; [[primary.n]] patients, [[primary.events]] events.",
        "Adjusted for Age and Sex: [[adjusted.summary]] per standard deviation (p [[adjusted.p]]);"
        " [[adjusted.n]] patients, [[adjusted.events]] events.",
        "PFI (secondary, in patients whose OS is known): [[PFI.secondary.summary]] per standard"
        " deviation (p [[PFI.secondary.p]]); [[PFI.secondary.n]] patients,"
        " [[PFI.secondary.events]] events.",
        "Within the cohort, corrected for optimism, the adjusted model has calibration slope"
        " [[calibration.slope]] (events by [[calibration.horizon]] months) and concordance"
        " [[calibration.harrell]] (all follow-up); [[calibration.n]] patients,"
        " [[calibration.events]] events.",
        "The known positive gave a hazard ratio of [[control.known_positive.hr]] per standard"
        " deviation (p [[control.known_positive.p]]; [[control.known_positive.events]] events in"
        " the patients who have it).",
    )


@pytest.mark.parametrize(
    ("share", "digits", "text"),
    [(1, 0, "100%"), (0.9998, 0, "99.98%"), (0.996, 0, "99.6%"), (0.95, 0, "95%"), (0, 1, "0.0%"),
     (0.0004, 1, "0.04%"), (0.5, 1, "50.0%")],
)  # fmt: skip
def test_all_and_none_are_said_only_where_it_is_so(share: float, digits: int, text: str) -> None:
    assert percent(share, digits) == text


@pytest.mark.parametrize(
    "sentence",
    [
        "It is commonly held that breast cancer of young women recurs earlier.",
        "That is a gap of a small index, and the claim narrows an old question.",
        "The question has been studied for long.",
        "Whether that is a gradient is disputed.",
    ],
)
def test_general_knowledge_needs_a_source(sentence: str) -> None:
    problems = early_judge(refs=("R1",))(sentence)
    assert [problem.reason for problem in problems] == ["it states what is known without a source"]
    assert not early_judge(refs=("R1",))(f"{sentence[:-1]} (R1).")


def test_what_was_found_against_the_claim_is_background_against_it() -> None:
    null = Citation(title="A", doi="10.1/a", quote="CD68+ cells are not associated with OS.")
    found = Citation(title="B", doi="10.1/b", quote="CD68+ cells are frequent.")
    bare = Citation(title="C", doi="10.1/c", quote="")
    given = (null, found, bare)
    claim = ReviewedHypothesis(hypothesis=hypothesis(), review="approved", citations=given)
    output = expand(ExpansionInput(reviewed=claim), RESOURCES).background
    assert output == (
        "“CD68+ cells are frequent.” Against it, or finding nothing: “CD68+ cells are not"
        " associated with OS.”"
    )


def test_a_passage_whose_title_alone_names_another_cancer_says_which() -> None:
    ontology = Ontology.load(Path(__file__).resolve().parents[2] / "data" / "ontology")
    quote = "A radiomics model predicts lymph-node metastasis."
    titles = {
        "Radiomics of bladder cancer": "“A radiomics model predicts lymph-node metastasis.” "
        "(in bladder cancer)",
        "Radiomics of breast cancer": f"“{quote}”",
        "Radiomics": f"“{quote}”",
    }
    for title, background in titles.items():
        claim = ReviewedHypothesis(
            hypothesis=hypothesis(),
            review="approved",
            citations=(Citation(title=title, doi="10.1/a", quote=quote),),
            concepts=("positive lymph nodes", "breast cancer"),
        )
        output = expand(ExpansionInput(reviewed=claim), Resources(ontology=ontology)).background
        assert output == background
