"""The debate's numbers, its citations, its transcript; the rules behind the three critics."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from agents.core.base import Agent, I, O, Reply, Resources
from agents.core.prompting import render
from agents.core.rules import RulesReasoner
from agents.novelty.checks import check_judge, check_prover, check_verifier
from agents.novelty.debate import hold_debate, retriever
from agents.novelty.evidence import count_mentions
from agents.novelty.judge import JUDGE
from agents.novelty.prover import PROVER
from agents.novelty.types import (
    Answer,
    CitedRecord,
    Claim,
    CriticInput,
    DebateSettings,
    JudgePosition,
    ProverPosition,
    Revision,
    SpeciousFlag,
    Turn,
    VerifierPosition,
)
from agents.novelty.verifier import VERIFIER
from kg.literature.local import LocalIndex
from kg.literature.search import Literature
from kg.literature.types import Query, Record, SearchAnswer
from sage.core.llm.turns import Spent
from tests.agents.nov_helpers import PARTS, expanded
from tests.kg.in_helpers import ontology

ROOT = Path(__file__).resolve().parents[2]


@lru_cache(maxsize=1)
def rules() -> RulesReasoner:
    return RulesReasoner(Resources(ontology=ontology()))


def find(*records: Record) -> Callable[..., dict[str, SearchAnswer]]:
    def retrieve(wanted: dict[str, list[Query]]) -> dict[str, SearchAnswer]:
        return {name: SearchAnswer(records=records, served_by=("test",)) for name in wanted}

    return retrieve


class Scripted:
    """A reasoner that gives each critic its positions in turn; the last one repeats."""

    name = "scripted"

    def __init__(self, **positions: list[Any]) -> None:
        self.positions = positions
        self.given: list[tuple[str, CriticInput]] = []

    def ask(self, agent: Agent[I, O], given: I) -> Reply[O]:
        self.given.append((agent.name, given))  # type: ignore[arg-type]
        mine = self.positions[agent.name]
        output = mine.pop(0) if len(mine) > 1 else mine[0]
        return Reply(output, self.name, None, Spent(usd=0.01, calls=1))


def prover(score: float, sure: float = 0.5, *, cites: str = "R1", queries: tuple[str, ...] = ()):
    claims = (Claim(id="P1", kind="population", parts=PARTS[:1], citations=(cites,)),)
    return ProverPosition(score=score, confidence=sure, summary="p", claims=claims, queries=queries)


def verifier(score: float, sure: float = 0.5, *, flag: bool = False, queries=()):
    flags = (SpeciousFlag(claim="P1", citations=("R1",)),) if flag else ()
    return VerifierPosition(
        score=score, confidence=sure, summary="v", specious=flags, queries=queries
    )


def judge(score: float, sure: float = 0.5, *, upheld: tuple[str, ...] = ()):
    return JudgePosition(
        score=score,
        confidence=sure,
        summary="j",
        citations=("R1",),
        upheld=upheld,
        reasons=(Revision(change="add_part"),),
    )


PAPER = Record(title="A paper on FABP5 in bladder cancer", year=2020)


def arguing(position: Any) -> list[Any]:
    """The same score in the opening and in three rounds, each time with another argument."""
    match position:
        case ProverPosition(claims=(claim,)):
            kinds = ("population", "measurement", "endpoint", "mechanism")
            said = [{"claims": (claim.model_copy(update={"kind": kind}),)} for kind in kinds]
        case VerifierPosition():
            verdicts = ("overlaps", "weakens", "refutes", "stands")
            said = [
                {"answers": (Answer(claim="P1", verdict=verdict, citations=("R1",)),)}
                for verdict in verdicts
            ]
        case _:
            changes = ("add_part", "narrow_population", "change_endpoint", "use_other_terms")
            said = [{"reasons": (Revision(change=change),)} for change in changes]
    return [position.model_copy(update=update) for update in said]


def debate(p: list[Any], v: list[Any], j: list[Any], **settings: Any):
    reasoner = Scripted(prover=p, verifier=v, judge=j)
    outcome = hold_debate(expanded(), reasoner, find(PAPER), DebateSettings(**settings))
    return outcome, reasoner


def test_without_disagreement_nobody_debates_and_the_mean_is_unweighted() -> None:
    outcome, _ = debate([prover(6, 0.9)], [verifier(5, 0.1)], [judge(7, 0.5)])
    assert not outcome.debated
    assert outcome.score == pytest.approx(6.0)
    assert outcome.initial == outcome.final == {"prover": 6, "verifier": 5, "judge": 7}


def test_disagreement_is_debated_until_sigma_is_below_half() -> None:
    outcome, _ = debate(arguing(prover(8)), arguing(verifier(5)), arguing(judge(6.5)))
    assert outcome.initial_sigma == pytest.approx(1.2247, abs=1e-3)
    assert [round(item.sigma, 3) for item in outcome.rounds] == [1.225, 0.612, 0.306]
    assert outcome.debate_rounds == 2
    assert outcome.score == pytest.approx(6.5)


@pytest.mark.parametrize("bribed", [10.0, 1.0])
def test_who_only_repeats_an_argument_moves_nobody(bribed: float) -> None:
    outcome, _ = debate([prover(bribed, 1.0)], [verifier(bribed, 1.0)], [judge(5.0, 0.4)])
    assert outcome.initial == outcome.final and outcome.final["judge"] == 5.0
    assert outcome.debate_rounds == 1, "a round without anything new is the last"
    again, _ = debate(arguing(prover(bribed, 1.0)), [verifier(bribed, 1.0)], [judge(5.0, 0.4)])
    assert again.final["judge"] != 5.0


def test_the_opening_scores_are_given_without_hearing_the_others() -> None:
    _, reasoner = debate([prover(9)], [verifier(3)], [judge(6)])
    assert all(given.debate == () for _, given in reasoner.given[:3])
    first_round = [given for name, given in reasoner.given[3:6]]
    assert [len(given.debate) for given in first_round] == [3, 4, 5]


def test_a_specious_flag_upheld_by_the_judge_costs_the_stated_penalty_once() -> None:
    flags = [verifier(5), verifier(5, flag=True)]
    plain, _ = debate([prover(9)], list(flags), [judge(7, 0.0)])
    flagged, _ = debate([prover(9)], flags, [judge(7, 0.0), judge(7, 0.0, upheld=("P1",))])
    assert flagged.specious == ("P1",)
    penalty = DebateSettings().specious_penalty
    assert plain.score - flagged.score == pytest.approx(penalty, abs=0.01)
    assert [item.penalty for item in flagged.rounds] == [0.0, 2.0, 2.0]


def test_a_judge_cannot_uphold_what_nobody_flagged() -> None:
    outcome, _ = debate([prover(9)], [verifier(5)], [judge(7, upheld=("P1",))])
    assert outcome.specious == ()
    assert any("P1" in item for turn in outcome.transcript for item in turn.rejected)


def test_a_citation_that_was_not_retrieved_is_rejected_and_its_claim_goes() -> None:
    outcome, _ = debate([prover(6, cites="R9")], [verifier(6)], [judge(6)])
    turn = outcome.transcript[0]
    assert turn.position.claims == ()
    assert "R9" in " ".join(turn.rejected)


def given_with(*records: Record, debate: tuple[Turn, ...] = (), round: int = 0) -> CriticInput:
    cited = tuple(CitedRecord(ref=f"R{n}", record=item) for n, item in enumerate(records, 1))
    return CriticInput(expanded=expanded(), records=cited, debate=debate, round=round)


def test_the_checks_send_unretrieved_and_missing_citations_back_to_a_model() -> None:
    given = given_with(PAPER)
    assert check_prover(given, prover(6)) == []
    assert "R9" in check_prover(given, prover(6, cites="R9"))[0]
    bare = VerifierPosition(
        score=5,
        confidence=0.5,
        summary="",
        answers=(Answer(claim="P1", verdict="overlaps", citations=()),),
    )
    assert check_verifier(given, bare)
    assert "P1" in check_judge(given, judge(5, upheld=("P1",)))[0]
    assert "0.3" in check_prover(given_with(), prover(6, 0.9, cites="R1"))[-1]


def test_each_round_retrieves_what_the_critics_asked_and_nothing_twice() -> None:
    asked: list[dict[str, list[Query]]] = []

    def retrieve(wanted):
        asked.append({name: list(queries) for name, queries in wanted.items()})
        return {name: SearchAnswer(records=(PAPER,)) for name in wanted}

    reasoner = Scripted(
        prover=[prover(10, queries=("alpha",))],
        verifier=[verifier(1, queries=("beta", "alpha"))],
        judge=[judge(5)],
    )
    hold_debate(expanded(), reasoner, retrieve)
    assert set(asked[0]) == {"prover", "verifier"}
    assert next(iter(asked[1])) == "verifier"
    assert [[item.text for item in asked[1][name]] for name in ("prover", "verifier")] == [
        ["alpha"],
        ["beta", "alpha"],
    ]
    assert len(asked) == 2


def known(*parts: str, retracted: bool = False, text: str = "") -> Record:
    return Record(
        title=" ".join(parts) or text, snippets=(text,) if text else (), retracted=retracted
    )


def test_the_rules_call_an_unseen_combination_more_novel_than_a_seen_one() -> None:
    apart = find(*(known(part, PARTS[-1], f"study {n}") for part in PARTS[:2] for n in range(3)))
    together = find(*(known(*PARTS, f"study {n}") for n in range(12)))
    new = hold_debate(expanded(), rules(), apart)
    old = hold_debate(expanded(), rules(), together)
    assert new.score > 6 > 4 > old.score
    assert old.below_threshold and old.reasons


def test_a_retracted_claim_is_flagged_upheld_and_named() -> None:
    claim = known(*PARTS, retracted=True)
    related = [Record(title=f"FABP5 study {n}") for n in range(12)]
    outcome = hold_debate(expanded(), rules(), find(claim, *related))
    assert outcome.retracted == ("R1",)
    assert outcome.specious == ("hypothesis",)
    assert outcome.score < 3.5


def test_a_failed_replication_refutes_and_a_null_finding_only_weighs() -> None:
    refuting = Record(
        title="Replication",
        snippets=(
            "FABP5 with tertiary lymphoid structures could not be reproduced as a predictor of "
            "overall survival in bladder cancer.",
        ),
    )
    null = Record(
        title="Null", snippets=("FABP5 is not associated with overall survival in bladder cancer.",)
    )
    related = [Record(title=f"FABP5 study {n}") for n in range(12)]
    refuted = hold_debate(expanded(), rules(), find(refuting, *related))
    weighed = hold_debate(expanded(), rules(), find(null, *related))
    assert [bool(item.transcript[1].position.specious) for item in (refuted, weighed)] == [
        True,
        False,
    ]
    assert refuted.score < 3.5 < weighed.score
    assert weighed.contradictions == 1


def test_a_reading_counts_pairs_degrees_and_overlap_as_by_hand() -> None:
    given = given_with(
        known("FABP5", "bladder cancer"), known("FABP5"), known("bladder cancer"), known("urine")
    )
    seen = count_mentions(given.expanded, given.records)
    counts = dict(zip(seen.pairs, seen.together, strict=True))
    assert counts[("FABP5", "bladder cancer")] == 1
    assert sum(counts.values()) == 1
    assert seen.degree == (1, 0, 0, 1)
    assert seen.unseen_share == pytest.approx(5 / 6)
    assert seen.weight == pytest.approx(2 / (2 + 4))
    assert seen.nearest[0].ref == "R1"


def test_every_word_of_the_rules_cites_retrieved_records() -> None:
    with Literature((), None, LocalIndex.from_folder(ROOT / "data" / "corpus")) as literature:
        settings = DebateSettings()
        outcome = hold_debate(expanded(), rules(), retriever(literature, settings), settings)
    refs = {record.ref for record in outcome.records}
    for turn in outcome.transcript:
        assert turn.rejected == ()
        if turn.position.kind == "prover":
            assert turn.position.claims
            assert all(set(claim.citations) <= refs for claim in turn.position.claims)
    assert outcome.served_by == ("local index",)
    assert outcome == type(outcome).model_validate_json(outcome.model_dump_json())


OFF = Record(title="Survival after BCG in bladder cancer", abstract="Overall survival was long.")


@pytest.mark.parametrize(
    ("records", "judged"),
    [
        ((), False),
        ((OFF,), False),
        ((PAPER,), True),
        ((OFF, Record(title="Tertiary lymphoid structures and overall survival")), True),
    ],
)
def test_scores_without_a_record_that_bears_on_the_claim_pass_no_threshold(
    records: tuple[Record, ...], judged: bool
) -> None:
    """High scores of eager critics count for nothing where only other things were found."""
    reasoner = Scripted(prover=[prover(9, 1.0)], verifier=[verifier(8, 1.0)], judge=[judge(9, 1.0)])
    outcome = hold_debate(expanded(), reasoner, find(*records), ontology=ontology())
    assert outcome.judged is judged
    assert not outcome.below_threshold
    assert bool(outcome.transcript) is judged, "nobody is asked about what was not found"


def test_an_index_of_another_disease_judges_nothing() -> None:
    """A gap in bladder papers may be old news in breast cancer."""
    sure = Scripted(prover=[prover(9, 1.0)], verifier=[verifier(8, 1.0)], judge=[judge(9, 1.0)])
    claim = expanded(("FABP5", "tertiary lymphoid structure", "overall survival", "breast cancer"))
    with Literature((), None, LocalIndex([PAPER, OFF])) as literature:
        outcome = hold_debate(
            claim, sure, retriever(literature, DebateSettings()), ontology=ontology()
        )
    assert not outcome.judged
    assert "breast cancer" in outcome.coverage.searched[0]


def test_critics_are_told_what_was_searched_and_held_to_the_confidence_that_it_allows() -> None:
    sure = Scripted(prover=[prover(6, 0.95)], verifier=[verifier(6, 0.95)], judge=[judge(6, 0.2)])
    with Literature((), None, LocalIndex([PAPER, OFF])) as literature:
        settings = DebateSettings()
        outcome = hold_debate(expanded(), sure, retriever(literature, settings), settings)
    given = sure.given[0][1]
    assert given.coverage.most_confident == 0.5 and len(given.coverage.relevant) == 1
    assert [turn.position.confidence for turn in outcome.transcript] == [0.5, 0.5, 0.2]
    for agent in (PROVER, VERIFIER, JUDGE):
        _, user = render(agent.prompt, given)
        assert given.coverage.searched[0] in user and "1 of 2 records" in user and "0.5" in user
