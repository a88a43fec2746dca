"""The rules of the hypothesis agents: different, sensible, and checked like a model's answers."""

from __future__ import annotations

import pytest

from agents.core.base import Resources
from agents.core.types import (
    Citation,
    Definition,
    DictionaryView,
    OntologyBrief,
    Relationship,
    ReviewedHypothesis,
)
from agents.expansion.agent import ExpansionInput, check_expansion, expand
from agents.question.types import Level
from agents.scientist.agent import compose_draft, draft_from_chains, proposal_problems
from agents.scientist.chains import proposals
from agents.scientist.views import Proposal, ScientistInput
from kg.types import EntityType, Polarity
from tests.kg.in_helpers import ontology
from validation.core.dictionary import Endpoint, Variable
from validation.core.hypothesis import Comparison, Direction

RESOURCES = Resources(ontology=ontology())
PAPER = Citation(title="A paper", year=2020, doi="10.1000/x", quote="TLS go with survival.")


def _edge(chain: int, step: int, head: tuple[str, str], relation: str, tail: tuple[str, str],
          polarity: Polarity, forward: bool = True) -> Relationship:  # fmt: skip
    return Relationship(
        chain=chain, step=step, head=head[0], head_type=EntityType(head[1]), relation=relation,
        tail=tail[0], tail_type=EntityType(tail[1]), process=f"{head[0]} {relation} {tail[0]}",
        polarity=polarity, forward=forward, belief=0.9, evidence=(PAPER,),
    )  # fmt: skip


def _dictionary(*, genes: tuple[str, ...] = ("FABP5", "LTA")) -> DictionaryView:
    return DictionaryView(
        cohort="c", title="Cohort c", simulated=True, n_patients=300, genes=genes,
        genes_available=20000, expression_n=300,
        variables=(
            Variable(key="imaging:tls_density", label="TLS density", modality="imaging",
                     kind="continuous", n=290, missing=0.03,
                     synonyms=("tertiary lymphoid structure",)),
            Variable(key="clinical:age", label="Age", modality="clinical", kind="continuous",
                     n=300, missing=0.0),
        ),
        endpoints=(Endpoint(key="OS", label="Overall survival", kind="survival", n=300,
                            events=120),),
    )  # fmt: skip


TLS, OS = ("tertiary lymphoid structure", "TissueRegion"), ("overall survival", "ClinicalEndpoint")
FABP5, LTA = ("FABP5", "Gene"), ("LTA", "Gene")


def _brief(*edges: Relationship) -> OntologyBrief:
    names = {(edge.head, edge.head_type) for edge in edges} | {(e.tail, e.tail_type) for e in edges}
    return OntologyBrief(
        definitions=tuple(
            Definition(term=name, type=kind, definition="d", grounded=True)
            for name, kind in sorted(names)
        ),
        relationships=edges,
    )


def propose(given: ScientistInput) -> Proposal:
    return draft_from_chains(given, RESOURCES).candidates[0]


def test_scarce_tls_is_the_risk_where_tls_go_with_longer_survival() -> None:
    brief = _brief(
        _edge(1, 1, TLS, "associated_with", OS, Polarity.POSITIVE),
        _edge(1, 2, FABP5, "associated_with", OS, Polarity.NEGATIVE, forward=False),
    )
    given = ScientistInput(brief=brief, dictionary=_dictionary())
    proposal = propose(given)
    levels = {exposure.variable: exposure.level for exposure in proposal.hypothesis.exposures}
    assert levels == {"imaging:tls_density": "low", "expression:FABP5": "high"}
    assert proposal.hypothesis.direction is Direction.HIGHER_RISK
    assert proposal.hypothesis.comparison is Comparison.EXTREMES
    assert proposal_problems(given, proposal, given.dictionary, {}) == []


@pytest.mark.parametrize(
    ("outcome", "level"),
    [
        ("progression-free survival", "low"),
        ("overall survival", "low"),
        ("recurrence", "high"),
    ],
)
def test_more_of_an_outcome_is_harm_unless_it_is_the_time_free_of_it(
    outcome: str, level: str
) -> None:
    edge = _edge(1, 1, FABP5, "associated_with", (outcome, "ClinicalEndpoint"), Polarity.POSITIVE)
    proposal = propose(ScientistInput(brief=_brief(edge), dictionary=_dictionary()))
    assert proposal.hypothesis.exposures[0].level == level


@pytest.mark.parametrize(("known", "level"), [("high", "low"), ("low", "low")])
def test_a_chain_with_a_sign_outvotes_what_is_known_besides(known: Level, level: str) -> None:
    brief = _brief(
        _edge(1, 1, TLS, "contains", FABP5, Polarity.NEUTRAL),
        _edge(2, 1, TLS, "associated_with", OS, Polarity.POSITIVE),
    )
    given = ScientistInput(brief=brief, dictionary=_dictionary())
    unsigned = [
        proposal
        for proposal in proposals(given, RESOURCES, {"imaging:tls_density": known})
        if proposal.support[0].chain == 1
    ]
    levels = {
        exposure.level
        for proposal in unsigned
        for exposure in proposal.hypothesis.exposures
        if exposure.variable == "imaging:tls_density"
    }
    assert levels == {level}


def test_hypotheses_of_a_run_differ_and_then_run_out() -> None:
    brief = _brief(
        _edge(1, 1, LTA, "promotes", TLS, Polarity.POSITIVE),
        _edge(1, 2, TLS, "associated_with", OS, Polarity.POSITIVE),
    )
    already: tuple[str, ...] = ()
    for _ in range(3):
        given = ScientistInput(brief=brief, dictionary=_dictionary(), already=already)
        already += (propose(given).hypothesis.statement,)
    assert len(set(already)) == 3
    with pytest.raises(ValueError, match="hypothesis"):
        propose(ScientistInput(brief=brief, dictionary=_dictionary(), already=already))


def test_both_sides_of_the_literature_go_with_the_draft() -> None:
    against = PAPER.model_copy(update={"title": "Another", "doi": "10.1000/y"})
    edge = _edge(1, 1, TLS, "associated_with", OS, Polarity.POSITIVE).model_copy(
        update={"contradicted": True, "contradicting": (against,)}
    )
    brief = _brief(edge)
    proposal = propose(ScientistInput(brief=brief, dictionary=_dictionary()))
    draft = compose_draft(brief, proposal, "h1", _dictionary())
    assert [item.title for item in draft.contradicting] == ["Another"]


def _review() -> ReviewedHypothesis:
    brief = _brief(
        _edge(1, 1, LTA, "promotes", TLS, Polarity.POSITIVE),
        _edge(1, 2, TLS, "associated_with", OS, Polarity.POSITIVE),
    )
    given = ScientistInput(brief=brief, dictionary=_dictionary())
    draft = compose_draft(brief, propose(given), "h1", _dictionary())
    shown = draft.model_dump(exclude={"support_absent"})
    return ReviewedHypothesis(**{**shown, "review": "approved"})


def test_expansion_leaves_an_approved_hypothesis_alone() -> None:
    given = ExpansionInput(reviewed=_review())
    answer = expand(given, RESOURCES)
    assert answer.hypothesis is None
    assert check_expansion(given, answer) == []
    changed = given.reviewed.hypothesis.model_copy(update={"statement": "Something else."})
    assert check_expansion(given, answer.model_copy(update={"hypothesis": changed}))


def test_a_revision_keeps_the_narrowing_before_it() -> None:
    first = _review().hypothesis.exposures[0]
    offered = tuple(first.model_copy(update={"variable": f"expression:G{at}"}) for at in (1, 2))
    reviewed = _review().model_copy(update={"refinements": offered})
    counts = [len(reviewed.hypothesis.exposures)]
    for number in (1, 2):
        given = ExpansionInput(reviewed=reviewed, reasons=("too close",), round=number)
        changed = expand(given, RESOURCES).hypothesis or reviewed.hypothesis
        reviewed = reviewed.model_copy(update={"hypothesis": changed})
        counts.append(len(changed.exposures))
    assert counts == [counts[0], min(counts[0] + 1, 3), min(counts[0] + 2, 3)]


def test_a_revision_may_use_only_what_was_offered() -> None:
    given = ExpansionInput(reviewed=_review(), reasons=("too close to known work",), round=1)
    hypothesis = given.reviewed.hypothesis
    foreign = hypothesis.exposures[0].model_copy(update={"variable": "expression:TP53"})
    changed = hypothesis.model_copy(update={"exposures": (foreign,)})
    answer = expand(given, RESOURCES).model_copy(update={"hypothesis": changed})
    assert any("TP53" in item for item in check_expansion(given, answer))
