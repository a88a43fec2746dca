"""The debate: initial scores, rounds while the critics disagree, and a mean final score.

The controller is deterministic given the answers from the reasoner and the retriever. It
does not score anything itself: it retrieves literature, asks the critics, rejects
citations that were not retrieved, applies the update rule, and keeps the transcript.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from itertools import combinations
from typing import Any, Protocol

from agents.core.base import Agent, Reasoner
from agents.core.types import ExpandedHypothesis
from agents.novelty.checks import without_unretrieved
from agents.novelty.coverage import measure_coverage, within_coverage
from agents.novelty.judge import JUDGE
from agents.novelty.prover import PROVER
from agents.novelty.render import describe_revision
from agents.novelty.types import (
    CRITICS,
    CitedRecord,
    Coverage,
    Critic,
    CriticInput,
    DebateOutcome,
    DebateSettings,
    JudgePosition,
    Position,
    ProverPosition,
    Round,
    Turn,
    VerifierPosition,
)
from agents.novelty.update import penalize, sigma, update
from agents.novelty.verifier import VERIFIER
from kg.lexicon.ontology import Ontology
from kg.literature.search import Literature
from kg.literature.types import (
    SHORTEST_TITLE,
    MissingSource,
    Query,
    Record,
    SearchAnswer,
    title_key,
)
from sage.core.llm.turns import Spent

_AGENTS: dict[Critic, Agent[Any, Any]] = {"prover": PROVER, "verifier": VERIFIER, "judge": JUDGE}


MIDDLE = 5.5
"""Placeholder score if nothing was judged; no result depends on it."""


class Retriever(Protocol):
    """A single literature search on behalf of several critics."""

    def __call__(self, wanted: Mapping[str, Sequence[Query]]) -> Mapping[str, SearchAnswer]:
        """Search, and return an answer for each name in `wanted`."""
        ...


def retriever(
    literature: Literature, settings: DebateSettings, as_of: date | None = None
) -> Retriever:
    """Build a retriever over `literature` that sends both critics' searches together."""

    def retrieve(wanted: Mapping[str, Sequence[Query]]) -> Mapping[str, SearchAnswer]:
        return literature.search_together(
            wanted, settings.records_per_critic, as_of, patience=settings.patience_seconds
        )

    return retrieve


def hold_debate(
    expanded: ExpandedHypothesis,
    reasoner: Reasoner,
    retrieve: Retriever,
    settings: DebateSettings | None = None,
    *,
    as_of: date | None = None,
    critics: Sequence[Critic] = CRITICS,
    debate: bool = True,
    ontology: Ontology | None = None,
) -> DebateOutcome:
    """Judge the novelty of `expanded` in a debate; reasoner errors propagate."""
    present: tuple[Critic, ...] = tuple(critic for critic in CRITICS if critic in critics)
    panel = _Debate(
        expanded, reasoner, retrieve, settings or DebateSettings(), as_of, present, ontology
    )
    return panel.run(debate)


@dataclass
class _Debate:
    expanded: ExpandedHypothesis
    reasoner: Reasoner
    retrieve: Retriever
    settings: DebateSettings
    as_of: date | None
    critics: tuple[Critic, ...]
    ontology: Ontology | None
    local_records: int | None = None
    coverage: Coverage = field(default_factory=Coverage)
    records: list[CitedRecord] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=dict)
    missing: dict[str, MissingSource] = field(default_factory=dict)
    served: dict[str, None] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)
    transcript: list[Turn] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    spent: Spent = field(default_factory=Spent)
    asked: set[Query] = field(default_factory=set)

    def run(self, debate: bool) -> DebateOutcome:
        found = self._search(
            {
                "prover": opening_queries(self.expanded),
                "verifier": counter_queries(self.expanded),
            }
        )
        self._measure()
        if not self.coverage.relevant:  # absence from what was searched is not novelty
            self._close_round(0, (), found)
            return self._outcome({}, (), (), 0.0)
        # No critic sees another's opening, so that the first scores are independent.
        opening = {critic: self._ask(critic, 0, debate=()) for critic in self.critics}
        beliefs = [opening[critic].score for critic in self.critics]
        scores = beliefs
        self._close_round(0, scores, found)
        initial = dict(zip(self.critics, scores, strict=True))
        counted: set[Argument] = set()
        for position in opening.values():
            counted |= list_arguments(position)
        upheld: tuple[str, ...] = ()
        penalty = 0.0
        if debate and self.rounds[0].sigma > self.settings.debate_above_sigma:
            for number in range(1, self.settings.max_rounds + 1):
                found = self._search(self._collect_queries())
                positions = [self._ask(critic, number) for critic in self.critics]
                heard = []
                for position in positions:
                    arguments = list_arguments(position)
                    heard.append(bool(arguments - counted))
                    counted |= arguments
                beliefs = update(
                    beliefs,
                    [position.score for position in positions],
                    [position.confidence for position in positions],
                    self.settings.own_weight,
                    heard,
                ).tolist()
                if not upheld and (upheld := _upheld(positions)):
                    penalty = self.settings.specious_penalty
                # The penalty is not part of the beliefs, so later proposals cannot undo it.
                scores = penalize(beliefs, penalty).tolist()
                self._close_round(number, scores, found, penalty)
                settled = self.rounds[-1].sigma < self.settings.converged_below_sigma
                if settled or not (any(heard) or found[2]):
                    break
        return self._outcome(initial, scores, upheld, penalty)

    def _search(self, wanted: Mapping[str, Sequence[Query]]) -> tuple[float, int, int]:
        """Run the searches not yet made; return seconds, requests and the number of new records."""
        limit = self.settings.queries_per_critic
        fresh = {
            name: [query for query in queries if query not in self.asked][:limit]
            for name, queries in wanted.items()
        }
        fresh = {name: queries for name, queries in fresh.items() if queries}
        if not fresh:
            return 0.0, 0, 0
        answers = self.retrieve(fresh)
        self.asked.update(query for queries in fresh.values() for query in queries)
        before = len(self.records)
        for answer in answers.values():
            for record in answer.records:
                self._file(record)
            self.missing.update({item.name: item for item in answer.missing})
            self.served.update(dict.fromkeys(answer.served_by))
            self.notes.update(dict.fromkeys(answer.notes))
            if answer.local_records is not None:
                self.local_records = answer.local_records
        seconds = max(answer.seconds for answer in answers.values())
        requests = max(answer.requests for answer in answers.values())
        return seconds, requests, len(self.records) - before

    def _file(self, record: Record) -> None:
        """Register a record once, even if it is found again under another identifier."""
        names = [record.key]
        if len(title := title_key(record.title)) >= SHORTEST_TITLE:
            names.append(f"title:{title}")
        if any(name in self.seen for name in names):
            return
        for name in names:
            self.seen[name] = len(self.records)
        self.records.append(CitedRecord(ref=f"R{len(self.records) + 1}", record=record))

    def _collect_queries(self) -> dict[str, list[Query]]:
        """Collect the searches that the verifier and prover requested in their last positions.

        The verifier comes first, so that a source that accepts only one query receives the
        verifier's.
        """
        last = {
            turn.critic: turn.position.queries
            for turn in self.transcript
            if isinstance(turn.position, ProverPosition | VerifierPosition)
        }
        order: tuple[Critic, ...] = ("verifier", "prover")
        return {
            critic: [Query(text=text) for text in last[critic] if text.strip()]
            for critic in order
            if critic in last
        }

    def _measure(self) -> None:
        self.coverage = measure_coverage(
            self.expanded,
            self.records,
            served=tuple(self.served),
            missing=tuple(self.missing.values()),
            local_records=self.local_records,
            ontology=self.ontology,
        )

    def _ask(self, critic: Critic, number: int, debate: tuple[Turn, ...] | None = None) -> Position:
        agent = _AGENTS[critic]
        self._measure()
        given = CriticInput(
            expanded=self.expanded,
            records=tuple(self.records),
            missing_sources=tuple(self.missing.values()),
            coverage=self.coverage,
            as_of=self.as_of,
            debate=tuple(self.transcript) if debate is None else debate,
            round=number,
        )
        reply = self.reasoner.ask(agent, given)
        position, rejected = without_unretrieved(given, reply.output)
        position, claimed = within_coverage(position, self.coverage)
        self.spent += reply.spent
        self.transcript.append(
            Turn(
                round=number,
                critic=critic,
                position=position,
                rejected=rejected,
                lowered_from=claimed,
            )
        )
        return position

    def _close_round(
        self,
        number: int,
        scores: Sequence[float],
        found: tuple[float, int, int],
        penalty: float = 0.0,
    ) -> None:
        seconds, requests, new = found
        self.rounds.append(
            Round(
                number=number,
                scores=dict(zip(self.critics, scores, strict=False)),  # none if nobody was asked
                sigma=sigma(scores) if scores else 0.0,
                retrieval_seconds=seconds,
                requests=requests,
                new_records=new,
                penalty=penalty,
            )
        )

    def _outcome(
        self,
        initial: dict[Critic, float],
        scores: Sequence[float],
        upheld: tuple[str, ...],
        penalty: float,
    ) -> DebateOutcome:
        score = sum(scores) / len(scores) if scores else MIDDLE
        last = {turn.critic: turn.position for turn in self.transcript}
        verdict = last.get("judge")
        found = verdict if isinstance(verdict, JudgePosition) else None
        judged = bool(self.coverage.relevant)
        return DebateOutcome(
            initial=initial,
            final=dict(zip(self.critics, scores, strict=False)),
            initial_sigma=self.rounds[0].sigma,
            sigma=self.rounds[-1].sigma,
            debated=len(self.rounds) > 1,
            rounds=tuple(self.rounds),
            transcript=tuple(self.transcript),
            specious=upheld,
            penalty=penalty,
            score=score,
            threshold=self.settings.threshold,
            below_threshold=judged and score < self.settings.threshold,
            judged=judged,
            plausibility=found.plausibility if found else None,
            interest=found.interest if found else None,
            coverage=self.coverage,
            reasons=tuple(
                describe_revision(item, {cited.ref: cited.record for cited in self.records})
                for item in (found.reasons if found else ())
            ),
            records=tuple(self.records),
            retracted=tuple(record.ref for record in self.records if record.record.retracted),
            contradictions=_contradictions(self.transcript),
            missing_sources=tuple(self.missing.values()),
            served_by=tuple(self.served),
            notes=tuple(self.notes),
            reasoner=self.reasoner.name,
            as_of=self.as_of,
            spent=self.spent,
        )


Argument = tuple[str, frozenset[str]]


def list_arguments(position: Position) -> set[Argument]:
    """List a position's arguments, each with its content and every supporting record.

    An argument is the same regardless of its wording or the id of its claim.
    """
    match position:
        case ProverPosition():
            said = [
                (f"{claim.kind}: {sorted(claim.parts)}", claim.citations)
                for claim in position.claims
            ]
        case VerifierPosition():
            said = [(answer.verdict, answer.citations) for answer in position.answers]
            said += [("specious", flag.citations) for flag in position.specious]
        case JudgePosition():
            said = [(reason.change, reason.citations) for reason in position.reasons]
            said += [("synthesis", position.citations)]
            said += [(f"upheld {claim}", ()) for claim in position.upheld]
    return {(words, frozenset(records)) for words, records in said if words or records}


def _upheld(positions: Sequence[Position]) -> tuple[str, ...]:
    """Return the claims that the verifier flagged and the judge upheld in this round."""
    flagged = {
        flag.claim
        for position in positions
        if isinstance(position, VerifierPosition)
        for flag in position.specious
    }
    return tuple(
        claim
        for position in positions
        if isinstance(position, JudgePosition)
        for claim in position.upheld
        if claim in flagged
    )


def _contradictions(transcript: Sequence[Turn]) -> int:
    """Count the distinct records that the verifier cites against the hypothesis or part of it."""
    return len(
        {
            ref
            for turn in transcript
            if isinstance(turn.position, VerifierPosition)
            for answer in turn.position.answers
            if answer.verdict in ("refutes", "weakens")
            for ref in answer.citations
        }
    )


def opening_queries(expanded: ExpandedHypothesis) -> list[Query]:
    """Build queries for the full combination, the statement and pairs, leading parts first."""
    parts = expanded.parts
    queries = []
    if len(parts) >= 2:
        queries.append(Query(text=" ".join(parts), phrases=parts))
    queries.append(Query(text=expanded.hypothesis.statement[:300]))
    queries += [Query(text=f"{a} {b}", phrases=(a, b)) for a, b in pairs(parts)]
    return queries


def counter_queries(expanded: ExpandedHypothesis) -> list[Query]:
    """Build queries for overlapping or refuting work: pairs of parts with words of denial."""
    doubts = ("not associated", "retracted", "failed to replicate")
    return [
        Query(text=f"{a} {b} {doubt}", phrases=(a, b))
        for a, b in pairs(expanded.parts)[:2]
        for doubt in doubts[:2]
    ] + [Query(text=f"{' '.join(expanded.parts)} {doubts[2]}")]


def pairs(parts: tuple[str, ...]) -> list[tuple[str, str]]:
    """List pairs of parts, starting with pairs that involve the leading parts."""
    return sorted(combinations(parts, 2), key=lambda pair: sum(parts.index(name) for name in pair))
