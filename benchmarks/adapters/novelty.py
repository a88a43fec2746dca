"""Novelty: time travel over known cases, in four configurations of the critics.

Source: SAGE, 4.4, D.1, Tables 3, 10 and 11.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from agents.core.base import Reasoner, Resources, View
from agents.core.rules import RulesReasoner
from agents.core.types import ExpandedHypothesis
from agents.novelty.debate import Retriever, hold_debate
from agents.novelty.types import CRITICS, DebateOutcome, DebateSettings
from benchmarks.novelty_sets import Proposal, Tier, load_literature
from benchmarks.runner import Report, Row, load_lines
from kg.literature.local import NAME, LocalIndex
from kg.literature.merge import merge
from kg.literature.rank import rank
from kg.literature.types import Query, SearchAnswer, title_key
from validation.core.hypothesis import Comparison, Direction, Exposure, Hypothesis, Population

RANGES: dict[Tier, tuple[float, float]] = {
    "A": (8.5, 10.0),
    "B": (7.0, 8.5),
    "C": (5.0, 7.0),
    "D": (3.5, 5.0),
    "E": (1.0, 3.5),
}
"""Ranges of the ground-truth score (SAGE, Table 10)."""

CONFIGURATIONS = ("single", "two critics", "three without debate", "full")
"""Critic configurations: the judge; prover and verifier; all; all with debate (SAGE, 4.4)."""


class Scored(View):
    """A proposal's scores per configuration, and the course of its debate.

    A proposal for which no record is relevant is not judged and has no scores.
    """

    id: str
    tier: Tier
    scores: dict[str, float]
    debated: bool
    rounds: int
    retrieved: int
    contradictions: int


def expand(id: str, statement: str, parts: tuple[str, ...]) -> ExpandedHypothesis:
    """Convert a proposal to the critics' input, which contains only its statement and parts."""
    return ExpandedHypothesis(
        hypothesis=Hypothesis(
            id=id,
            statement=statement,
            population=Population(description="as stated"),
            exposures=(Exposure(variable="text:claim", label=parts[0]),),
            comparison=Comparison.EXPOSED_VS_REST,
            endpoint="as stated",
            direction=Direction.HIGHER_RISK,
        ),
        background="",
        mechanism="",
        clinical_interpretation="",
        parts=parts,
    )


def hide_paper(retrieve: Retriever, own_title: str) -> Retriever:
    """Hide the paper from which the proposal was taken."""
    own = title_key(own_title)

    def blind(wanted: Mapping[str, Sequence[Query]]) -> Mapping[str, SearchAnswer]:
        return {
            name: answer.model_copy(
                update={
                    "records": tuple(
                        record
                        for record in answer.records
                        if not own or title_key(record.title) != own
                    )
                }
            )
            for name, answer in retrieve(wanted).items()
        }

    return blind


def retrieve_locally(index: LocalIndex, k: int, as_of: date) -> Retriever:
    """Build a retriever over a local index, limited to records before a date."""

    def retrieve(wanted: Mapping[str, Sequence[Query]]) -> Mapping[str, SearchAnswer]:
        answers = {}
        for name, queries in wanted.items():
            pool = merge(record for query in queries for record in index.search(query, k, as_of))
            known = [record.as_known(as_of) for record in pool]
            answers[name] = SearchAnswer(
                records=tuple(rank(known, queries, k)), served_by=(NAME,), as_of=as_of
            )
        return answers

    return retrieve


def score(id: str, tier: Tier, outcome: DebateOutcome) -> Scored:
    """Score the four configurations from one debate; its initial scores count as undebated."""
    scores: dict[str, float] = {}
    if outcome.judged:
        first = [outcome.initial[critic] for critic in CRITICS]
        two, three = (first[0] + first[1]) / 2.0, sum(first) / 3.0
        found = (first[2], two, three, outcome.score)
        scores = dict(zip(CONFIGURATIONS, found, strict=True))
    return Scored(
        id=id,
        tier=tier,
        scores=scores,
        debated=outcome.debated,
        rounds=outcome.debate_rounds,
        retrieved=len(outcome.records),
        contradictions=outcome.contradictions,
    )


def measure_accuracy(rows: Sequence[Scored], configuration: str) -> float:
    """Compute the share of proposals whose score is in the range for their tier.

    A proposal that was not judged is a miss.
    """
    hits = 0
    for scored in rows:
        if configuration not in scored.scores:
            continue
        low, high = RANGES[scored.tier]
        hits += low <= scored.scores[configuration] <= high
    return hits / len(rows) if rows else math.nan


def measure_gap(rows: Sequence[Scored], configuration: str) -> float:
    """Compute the mean score of tier A minus that of tier E."""
    means = average_by_tier(rows, configuration)
    return means.get("A", math.nan) - means.get("E", math.nan)


def average_by_tier(rows: Iterable[Scored], configuration: str) -> dict[Tier, float]:
    """Compute the mean score per tier over the judged proposals."""
    groups: dict[Tier, list[float]] = defaultdict(list)
    for row in rows:
        if configuration in row.scores:
            groups[row.tier].append(row.scores[configuration])
    return {tier: float(np.mean(values)) for tier, values in sorted(groups.items())}


def summarize_tiers(rows: Sequence[Scored]) -> dict[str, dict[str, float]]:
    """Summarize debates, rounds, retrieval and contradictions per tier."""
    groups: dict[str, list[Scored]] = defaultdict(list)
    for row in rows:
        groups[row.tier].append(row)
    return {
        tier: {
            "judged": float(np.mean([bool(scored.scores) for scored in group])),
            "debated": float(np.mean([scored.debated for scored in group])),
            "rounds": float(np.mean([scored.rounds for scored in group if scored.debated] or [0])),
            "retrieved": float(np.mean([scored.retrieved for scored in group])),
            "contradictions": float(np.mean([scored.contradictions for scored in group])),
        }
        for tier, group in sorted(groups.items())
    }


def correlate_tiers(rows: Sequence[Scored], configuration: str) -> float:
    """Compute Spearman's rho between score and tier (A highest) over the judged proposals."""
    from scipy.stats import spearmanr

    rows = [row for row in rows if configuration in row.scores]
    ranks = [-"ABCDE".index(scored.tier) for scored in rows]
    return float(spearmanr(ranks, [scored.scores[configuration] for scored in rows]).statistic)


def judge_proposals(
    path: Path, critics: Reasoner, threshold: float, limit: int | None
) -> list[Scored]:
    """Debate each proposal as of its date, over the bundled literature."""
    from sage.core.data import data_root

    debate = DebateSettings(threshold=threshold)
    records = load_literature(data_root() / "novelty" / "literature.jsonl")
    index = LocalIndex([*records, *LocalIndex.from_folder(data_root() / "corpus").records])
    rows = []
    for proposal in load_lines(path, Proposal, given=True)[:limit]:
        search = retrieve_locally(index, debate.records_per_critic, proposal.as_of)
        outcome = hold_debate(
            expand(proposal.id, proposal.statement, proposal.parts), critics,
            hide_paper(search, proposal.own_title), debate, as_of=proposal.as_of,
        )  # fmt: skip
        rows.append(score(proposal.id, proposal.tier, outcome))
    return rows


def run(
    dataset: Annotated[Path, typer.Argument(help="Proposals (.jsonl).")],
    chat: Annotated[bool, typer.Option("--chat", help="Ask the settings' model.")] = False,
    budget_usd: Annotated[float | None, typer.Option(min=0, help="Limit on the cost.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="First cases only.")] = None,
) -> Report:
    """Judge known cases, and compare the scores with their tiers."""
    from kg.lexicon.ontology import Ontology
    from sage.core.data import data_root
    from sage.run.wiring import make_chat
    from sage.settings import load

    settings = load(reasoner="chat" if chat else "rules")
    critics: Reasoner = RulesReasoner(Resources(ontology=Ontology.load(data_root() / "ontology")))
    if chat:
        critics = make_chat(settings, settings.cache_dir.expanduser() / "bench",
                            budget_usd=budget_usd)  # fmt: skip
    rows = judge_proposals(dataset, critics, settings.novelty_threshold, limit)
    tiers = "; ".join(
        f"{tier}: {stats['judged']:.0%} judged, {stats['debated']:.0%} debated,"
        f" {stats['rounds']:.2f} rounds,"
        f" {stats['retrieved']:.1f} retrieved, {stats['contradictions']:.1f} contradictions"
        for tier, stats in summarize_tiers(rows).items()
    )
    notes = (f"by {critics.name}. {tiers}.",)
    table = tuple(
        Row(
            benchmark=f"Novelty, {name}",
            measured=f"{len(rows)} proposals; accuracy (not judged: a miss), gap A to E, Spearman",
            sage=f"{measure_accuracy(rows, name):.1%}, {measure_gap(rows, name):.2f},"
            f" {correlate_tiers(rows, name):.2f}",
            notes=notes if name == "full" else (),
        )
        for name in CONFIGURATIONS
    )
    return Report(rows=table, data=[row.model_dump(mode="json") for row in rows])
