"""SAGE's own sentences on a claim, its variables and its numbers."""

from __future__ import annotations

import pytest

from agents.core.base import Resources
from agents.core.types import Citation, ReviewedHypothesis
from agents.expansion.agent import ExpansionInput, expand
from kg.lexicon.ontology import Ontology
from tests.agents.nov_helpers import hypothesis
from tests.kg.in_helpers import ontology
from validation.results.results import percent

RESOURCES = Resources(ontology=Ontology([], []))


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
    assert isinstance(output, str)
    assert -1 < output.find("are frequent") < output.find("Against") < output.find("are not")


def test_a_passage_whose_title_alone_names_another_cancer_says_which() -> None:
    quote = "A radiomics model predicts lymph-node metastasis."
    for title, named in (("bladder", "(in bladder cancer)"), ("breast", ""), ("", "")):
        claim = ReviewedHypothesis(
            hypothesis=hypothesis(),
            review="approved",
            citations=(Citation(title=f"Radiomics of {title} cancer", doi="10.1/a", quote=quote),),
            concepts=("positive lymph nodes", "breast cancer"),
        )
        output = expand(ExpansionInput(reviewed=claim), Resources(ontology=ontology())).background
        assert output == f'"{quote}" {named}'.strip()
