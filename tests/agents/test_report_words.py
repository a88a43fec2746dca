"""SAGE's own sentences on a claim, its variables and its numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.core.base import Resources
from agents.core.types import Citation, ReviewedHypothesis
from agents.expansion.agent import ExpansionInput, expand
from agents.instructions.agent import list_tasks
from kg.lexicon.ontology import Ontology
from tests.agents.nov_helpers import hypothesis
from validation.core.hypothesis import Comparison, Exposure
from validation.results.results import percent

RESOURCES = Resources(ontology=Ontology([], []))


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


def test_the_tasks_name_the_covariates_of_the_contract() -> None:
    registered = hypothesis(covariates=("a", "b", "grade"))
    assert "Repeat adjusted for a, b, grade." in list_tasks(registered)
    bare = list_tasks(registered.model_copy(update={"covariates": ()}))
    assert not [task for task in bare if "adjusted" in task]


@pytest.mark.parametrize(
    ("share", "digits", "text"),
    [(1, 0, "100%"), (0.9998, 0, "99.98%"), (0.996, 0, "99.6%"), (0.95, 0, "95%"), (0, 1, "0.0%"),
     (0.0004, 1, "0.04%"), (0.5, 1, "50.0%")],
)  # fmt: skip
def test_all_and_none_are_said_only_where_it_is_so(share: float, digits: int, text: str) -> None:
    assert percent(share, digits) == text


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
