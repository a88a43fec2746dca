"""Statements of the debate by rules on records."""

from __future__ import annotations

from typing import Any

import pytest

from agents.core.base import Resources
from agents.core.rules import RulesReasoner
from agents.core.types import ExpandedHypothesis
from agents.novelty.coverage import relevant_refs
from agents.novelty.debate import hold_debate
from agents.novelty.evidence import count_mentions
from agents.novelty.judge import JUDGE
from agents.novelty.parts import body_key, parts_of
from agents.novelty.prover import PROVER
from agents.novelty.types import CitedRecord, CriticInput, DebateOutcome, Turn
from agents.novelty.verifier import VERIFIER
from kg.literature.cancers import list_other_cancers
from kg.literature.text import mentions, phrase_key
from kg.literature.types import Record, SearchAnswer
from sage.report.debate import list_turns
from tests.agents.nov_helpers import expanded
from tests.kg.in_helpers import ontology
from validation.core.hypothesis import Exposure

ONTOLOGY = ontology()
B_CELLS = ("B-cell infiltration", "cancer-specific survival", "muscle-invasive bladder cancer")


def b_cells() -> ExpandedHypothesis:
    """High B-cell transcripts, shorter cancer-specific survival, muscle-invasive cancer."""
    exposure = Exposure(variable="signature:b_cell", label="B-cell transcripts")
    return expanded(B_CELLS, exposures=(exposure,), endpoint="CSS")


def hold(claim: ExpandedHypothesis, *records: Record) -> DebateOutcome:
    def retrieve(wanted: Any) -> Any:
        return {name: SearchAnswer(records=records, served_by=("local index",)) for name in wanted}

    reasoner = RulesReasoner(Resources(ontology=ONTOLOGY))
    return hold_debate(claim, reasoner, retrieve, ontology=ONTOLOGY)


def render(claim: ExpandedHypothesis, *records: Record) -> str:
    """The transcript, as the report prints it."""
    outcome = hold(claim, *records)
    if not outcome.transcript:  # nothing bears on the claim, so nobody was asked
        reasoner, turns = RulesReasoner(Resources(ontology=ONTOLOGY)), ()
        for agent in (PROVER, VERIFIER, JUDGE):
            given = CriticInput(
                expanded=claim, records=outcome.records, coverage=outcome.coverage, debate=turns
            )
            position = reasoner.ask(agent, given).output
            turns += (Turn(round=0, critic=agent.name, position=position),)
        outcome = outcome.model_copy(update={"transcript": turns})
    found = list_turns(outcome.model_dump(mode="json"))
    return "\n".join(
        line
        for turn in found
        for line in (str(turn.summary), *(point.text for point in turn.points))
    )


@pytest.mark.parametrize(
    ("text", "phrase", "named"),
    [
        ("In non-muscle-invasive bladder cancer", "muscle-invasive bladder cancer", False),
        ("non-muscle-invasive and muscle-invasive disease", "muscle-invasive disease", True),
        ("In non-muscle-invasive bladder cancer", "bladder cancer", True),
        ("PD-L1-negative tumors", "PD-L1-positive tumors", False),
        ("shorter overall (p=0.005) and progression-free survival", "overall survival", True),
        ("overall response and recurrence-free survival", "overall survival", False),
        ("a high mutation or neoantigen burden", "mutation burden", True),
    ],
)
def test_a_name_inside_its_own_negation_is_not_named(text: str, phrase: str, named: bool) -> None:
    assert mentions(phrase_key(text), [phrase]) is named


@pytest.mark.parametrize(
    ("part", "text", "met"),
    [
        ("estrogen receptor", "ER+ tumors of 200 patients recurred late.", "estrogen receptor"),
        ("progesterone receptor", "ER/PR-positive cancers", "progesterone receptor"),
        ("estrogen receptor", "ER stress in tumors", None),
        ("CD8A expression", "Cytotoxic T cells were dense in the margin.", "CD8 T cell"),
        ("CD8A expression", "CD8A was high.", "CD8A expression"),
    ],
)
def test_a_receptor_s_letters_and_a_marker_s_cell_are_read(
    part: str, text: str, met: str | None
) -> None:
    [looked_for] = [one for one in parts_of(expanded((part,)), ONTOLOGY) if one.name == part]
    assert looked_for.find_mention(body_key(Record(title="t", snippets=(text,)))) == met


@pytest.mark.parametrize(
    ("sentence", "verdict"),
    [
        ("High B-cell infiltration is associated with longer cancer-specific survival in MIBC.",
         "against: "),
        ("B-cell infiltration is not associated with cancer-specific survival in MIBC.",
         "against: "),
        ("High B cells: longer cancer-specific survival in non-muscle-invasive bladder cancer.",
         "negative finding on B-cell infiltration"),
        ("B-cell infiltration is not associated with recurrence-free survival in MIBC.",
         "negative finding on B-cell infiltration, muscle-invasive bladder cancer"),
        ("High B-cell infiltration predicts shorter cancer-specific survival in MIBC.", ""),
        ("Metformin shows no association with cancer-specific survival in MIBC.", ""),
    ],
)  # fmt: skip
def test_only_a_finding_on_exposure_outcome_and_disease_is_against_the_claim(
    sentence: str, verdict: str
) -> None:
    text = render(b_cells(), Record(title="A cohort", snippets=(sentence,)))
    assert ("against: " in text) is (verdict == "against: ")
    assert ("negative finding" in text) is verdict.startswith("negative")
    assert verdict in text


def test_a_null_finding_on_one_of_two_exposures_weakens_and_does_not_refute() -> None:
    null = "FABP5 is not associated with overall survival in bladder cancer."
    text = render(expanded(), Record(title="A cohort", snippets=(null,)))
    assert "in part against: " in text


def test_what_counts_for_a_part_by_kinship_counts_and_is_said() -> None:
    claim = expanded(("COL3A1", "progression-free interval", "muscle-invasive bladder cancer"))
    records = (Record(title="COL3A1 and progression-free survival in MIBC"),)
    cited = [CitedRecord(ref="R1", record=records[0])]
    assert count_mentions(claim, cited, ONTOLOGY).unseen_pairs() == ()
    assert "progression-free survival for progression-free interval" in render(claim, *records)


@pytest.mark.parametrize(
    ("parts", "title"),
    [
        (("immune phenotypes", "overall survival", "urothelial carcinoma"),
         "TGF-beta in immune-excluded urothelial carcinoma"),
        (B_CELLS, "CD20+ B cells in MIBC"),
    ],
)  # fmt: skip
def test_a_kind_of_the_exposure_bears_on_the_claim(parts: tuple[str, ...], title: str) -> None:
    cited = [CitedRecord(ref="R1", record=Record(title=title))]
    assert relevant_refs(expanded(parts), cited, ONTOLOGY) == ("R1",)


@pytest.mark.parametrize("part", ["PD-L1 expression", "PD-L1 on immune cells (IC level)", "CD274"])
def test_a_part_under_another_name_is_found(part: str) -> None:
    record = Record(title="PD-L1 subgroups and longer OS in urothelial carcinoma")
    claim = expanded((part, "overall survival", "urothelial carcinoma"))
    assert (
        count_mentions(claim, [CitedRecord(ref="R1", record=record)], ONTOLOGY).unseen_pairs() == ()
    )


def test_a_gene_measured_in_the_place_of_a_cell_counts_for_it_and_is_said() -> None:
    exposure = Exposure(variable="expression:FOXP3", label="FOXP3 expression")
    record = Record(
        title="Infiltration by CD8+, FoxP3+, CD20+ and PD-1+ immune cells in bladder cancer"
    )
    two = expanded(("macrophages", "regulatory T cells"), exposures=(exposure,))
    assert "FOXP3 for regulatory T cells" in render(two, record)
    assert "FOXP3 for macrophages" not in render(two, record)
    unknown = expanded(("macrophages", "B cells"), exposures=(exposure,))
    assert "FOXP3 for" not in render(unknown, record)


@pytest.mark.parametrize(
    ("part", "text", "counted"),
    [
        ("positive lymph nodes", "lymph-node metastasis and overall survival", "lymph, node"),
        ("positive lymph nodes", "nodes of a graph, and overall survival with lymphoma", ""),
        ("tumor mutational burden", "burdens of mutation and overall survival", "mutation, burden"),
    ],
)  # fmt: skip
def test_what_is_said_in_other_words_is_counted_and_said(
    part: str, text: str, counted: str
) -> None:
    """A part counts as absent only if not even its words occur near each other."""
    output = render(expanded((part, "overall survival")), Record(title=text))
    assert (f" {counted} for {part}" in output) is bool(counted)
    assert ("together in no record" in output) is not bool(counted)


@pytest.mark.parametrize(
    ("text", "disease", "others"),
    [
        ("shorter survival in metastatic renal cell carcinoma", "bladder cancer",
         ("metastatic renal cell carcinoma",)),
        ("in renal cell carcinoma and urothelial carcinoma", "bladder cancer", ()),
        ("in NMIBC", "muscle-invasive bladder cancer", ("non-muscle-invasive bladder cancer",)),
    ],
)  # fmt: skip
def test_a_passage_of_another_cancer_is_told_from_one_of_the_questions(
    text: str, disease: str, others: tuple[str, ...]
) -> None:
    assert list_other_cancers(text, disease, ONTOLOGY) == others
