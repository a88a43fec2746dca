"""Candidates before any test: rewordings go, the parts of a rank are right, tournaments order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from agents.core.rules import RulesReasoner
from agents.core.statement import same_claim
from agents.core.types import Citation
from agents.question.types import Intent
from agents.scientist.rank import (
    RankParts,
    added_to,
    by_expected_information,
    plausibility,
    relevance,
)
from agents.scientist.tournament import START, TOURNAMENT, Contender, Pairing, comparisons, play
from agents.scientist.views import Proposal, StepRef
from sage.run.drafting import best_different
from sage.run.evaluation_nodes import rank
from sage.run.state import Evaluation
from tests.agents.bench import EDGES, FABP5, OS, RESOURCES, TLS, brief, question, relationship
from validation.core.hypothesis import Exposure, Hypothesis, Population


def claim(*exposures: dict[str, Any], **more: Any) -> Hypothesis:
    fields: dict[str, Any] = {
        "id": "draft", "statement": "s", "population": Population(description="all"),
        "exposures": tuple(Exposure(**({"label": "x"} | exposure)) for exposure in exposures),
        "comparison": "extremes" if len(exposures) > 1 else "exposed_vs_rest",
        "endpoint": "OS", "direction": "higher_risk",
    } | more  # fmt: skip
    return Hypothesis(**fields)


A, B = {"variable": "expression:A"}, {"variable": "expression:B"}
LOW_A, LOW_B = A | {"level": "low"}, B | {"level": "low"}


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (claim(A), claim(A | {"label": "y"}, covariates=("clinical:age",)), True),
        (claim(A), claim(LOW_A, direction="lower_risk"), True),
        (claim(A, B), claim(B, A), True),
        (claim(A), claim(A, endpoint="PFI"), False),
        (claim(A | {"cut": "tertile"}), claim(LOW_A | {"cut": "tertile"}, direction="lower_risk"),
         False),
        (claim(A | {"cut": "continuous"}, comparison="per_sd"),
         claim(LOW_A | {"cut": "continuous"}, comparison="per_sd", direction="lower_risk"), True),
        (claim(A), claim(A | {"cut": "continuous"}, comparison="per_sd"), False),
        (claim(A), claim(A, direction="lower_risk"), False),
        (claim(A, B), claim(A, B, comparison="exposed_vs_rest"), False),
        (claim(A), claim(A, strata=("clinical:stage",)), False),
        (claim(A, B, comparison="modification"), claim(B, A, comparison="modification"), False),
        (claim(A, B, comparison="exposed_vs_rest"),
         claim(LOW_A, LOW_B, comparison="exposed_vs_rest", direction="lower_risk"), False),
    ],
)  # fmt: skip
def test_two_claims_are_one_exactly_when_they_compare_the_same(
    one: Hypothesis, other: Hypothesis, same: bool
) -> None:
    assert (same_claim(one) == same_claim(other)) is same


PAPER = Citation(title="t", doi="10.1000/a")
RETRACTED = Citation(title="u", doi="10.1000/b", retracted=True)
NULL = Citation(title="v", doi="10.1000/c", quote="A was not associated with overall survival.")
FOUND = {cited.key: cited for cited in (PAPER, RETRACTED, NULL)}


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"support": (StepRef(chain=1, step=1),)}, 0.8),
        ({"support": (StepRef(chain=1, step=1),), "conjecture": True}, 0.56),
        ({"support": (StepRef(chain=3, step=1),)}, 0.56),
        ({"sources": (PAPER.key,)}, 0.5),
        ({"sources": (RETRACTED.key,)}, 0.2),
        ({"sources": (PAPER.key, NULL.key)}, 0.35),
        ({"support": (StepRef(chain=1, step=1),), "sources": (PAPER.key,)}, 0.8),
    ],
)
def test_plausibility_by_what_a_claim_rests_on(more: dict[str, Any], expected: float) -> None:
    edges = (*EDGES, relationship(3, 1, "A", "overall survival", contradicted=True))
    proposal = Proposal(hypothesis=claim(A), **more)
    assert plausibility(proposal, brief(*edges), FOUND) == pytest.approx(expected, abs=0.001)


@pytest.mark.parametrize(
    ("hypothesis", "expected"),
    [
        (claim({"variable": "imaging:tls_density"}, {"variable": "expression:FABP5"}), 1.0),
        (claim({"variable": "expression:FABP5"}), 2 / 3),
        (claim({"variable": "expression:FABP5"}, endpoint="PFI"), 1 / 3),
        (claim(A, endpoint="PFI"), 0.0),
    ],
)
def test_relevance_is_the_share_of_the_question_that_a_claim_carries(
    hypothesis: Hypothesis, expected: float
) -> None:
    assert relevance(question(TLS, FABP5, OS), hypothesis) == pytest.approx(expected, abs=0.001)
    assert relevance(question(), hypothesis) == 1.0


@pytest.mark.parametrize(
    ("intent", "alone", "with_another"),
    [(Intent.RELATE, 1.0, 2 / 3), (Intent.MODIFY, 1.0, 2 / 3), (Intent.DISCOVER, 1.0, 1.0)],
)
def test_a_named_claim_with_more_exposures_answers_less(
    intent: Intent, alone: float, with_another: float
) -> None:
    asked = question(FABP5, OS).model_copy(update={"intent": intent})
    fabp5 = {"variable": "expression:FABP5"}
    assert relevance(asked, claim(fabp5)) == alone
    assert relevance(asked, claim(fabp5, A)) == pytest.approx(with_another, abs=0.001)
    assert len(added_to(asked, claim(fabp5, A))) == (with_another < 1)


def test_a_class_that_is_named_is_all_that_may_be_discovered() -> None:
    stromal = FABP5.model_copy(
        update={"every": True, "variables": ("expression:FABP5", A["variable"])}
    )
    asked = question(stromal, OS).model_copy(update={"intent": Intent.DISCOVER})
    fabp5 = {"variable": "expression:FABP5"}
    assert added_to(asked, claim(fabp5)) == []
    assert len(added_to(asked, claim(fabp5, {"variable": "expression:OTHER"}))) == 1


def parts(power: float, left_out: int = 0, added: int = 0) -> RankParts:
    given = {"power": power, "plausibility": 0.5, "understudied": 0.5, "relevance": 1.0}
    product = 1.0
    for value in given.values():
        product *= value
    return RankParts(**given, expected_information=product, left_out=left_out, added=added)


def test_the_question_leads_whatever_else_there_is_to_learn() -> None:
    ranked = [parts(0.9, left_out=1), parts(0.1), parts(0.2), parts(1.0, left_out=2)]
    assert by_expected_information(ranked) == [2, 1, 0, 3]
    assert by_expected_information(ranked, [1300, 1250, 1200, 1400]) == [1, 2, 0, 3]
    as_asked = [parts(0.9, added=1), parts(0.1), parts(1.0, left_out=1)]
    assert by_expected_information(as_asked) == [1, 0, 2]


def test_the_best_are_on_different_variables() -> None:
    ordered = [claim(A), claim(A, B), claim(A | {"cut": "tertile"}), claim(B)]
    assert best_different(ordered, 1) == [0]
    assert best_different(ordered, 3) == [0, 1, 3]
    assert best_different(ordered, 4) == [0, 1, 2, 3]


def test_the_report_ranks_without_the_verdict_and_with_the_debate() -> None:
    def end(name: str, novelty: float | None, how: Any = "tested") -> Evaluation:
        return Evaluation(hypothesis_id=name, ended=how, novelty=novelty, feasibility=80)

    known = {"h1": parts(0.8), "h2": parts(0.8), "h3": parts(1.0)}
    assert rank([end("h1", 4.0), end("h2", 9.0)], known) == ["h2", "h1"]
    assert rank([end("h1", None), end("h2", 4.0)], known) == ["h1", "h2"]
    assert rank([end("h3", 9.0, "infeasible"), end("h1", 2.0)], known) == ["h1", "h3"]


def contender(power: float) -> Contender:
    return Contender(statement=f"power {power}", rationale="r", parts=parts(power))


@settings(max_examples=60, deadline=None)
@drawn(
    powers=st.lists(st.floats(0.01, 1.0), min_size=2, max_size=12, unique=True),
    seed=st.integers(0, 1000),
)
def test_a_tournament_keeps_the_points_and_crowns_the_one_that_always_wins(
    powers: list[float], seed: int
) -> None:
    contenders = [contender(power) for power in powers]
    asked = 0

    def prefer(one: Contender, other: Contender) -> Any:
        nonlocal asked
        asked += 1
        return "first" if one.parts.power > other.parts.power else "second"

    ratings = play(contenders, prefer, seed, rounds=20)
    assert sum(ratings) == pytest.approx(START * len(powers))
    assert max(range(len(powers)), key=ratings.__getitem__) == powers.index(max(powers))
    asked = 0
    assert play(contenders, prefer, seed) == play(contenders, prefer, seed)
    assert asked <= 2 * comparisons(len(powers))


def test_the_rules_prefer_more_expected_information_whoever_is_shown_first() -> None:
    for first, second, better in ((0.9, 0.2, "first"), (0.2, 0.9, "second")):
        pairing = Pairing(first=contender(first), second=contender(second))
        assert RulesReasoner(RESOURCES).ask(TOURNAMENT, pairing).output.better == better
