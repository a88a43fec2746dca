"""Calibration of the novelty panel: time travel over known cases, and human-scored sets.

Source: SAGE, 4.4, D.1, Tables 3, 10 and 11.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import date

import numpy as np

from agents.core.base import View
from agents.core.types import ExpandedHypothesis
from agents.novelty.debate import Retriever
from agents.novelty.types import CRITICS, DebateOutcome
from benchmarks.novelty_sets import Tier
from kg.literature.local import NAME, LocalIndex
from kg.literature.merge import merge
from kg.literature.rank import Embed, rank
from kg.literature.types import Query, Record, SearchAnswer, title_key
from sage.core.llm.turns import Spent
from validation.core.hypothesis import Comparison, Direction, Exposure, Hypothesis, Population

RANGES: dict[Tier, tuple[float, float]] = {
    "A": (8.5, 10.0),
    "B": (7.0, 8.5),
    "C": (5.0, 7.0),
    "D": (3.5, 5.0),
    "E": (1.0, 3.5),
}
"""Ground-truth score ranges (SAGE, Table 10)."""

CONFIGURATIONS = ("single", "two critics", "three without debate", "full")
"""SAGE, 4.4: one critic (the judge), prover and verifier, all three, all three with debate."""


class Scored(View):
    """One proposal's scores per configuration, with what the debate took."""

    id: str
    tier: Tier | None
    scores: dict[str, float]
    initial_sigma: float
    debated: bool
    rounds: int
    retrieved: int
    cited: int
    contradictions: int
    specious: bool
    seconds: float
    usd: float
    tokens: int


def as_expanded(id: str, statement: str, parts: tuple[str, ...]) -> ExpandedHypothesis:
    """A proposal in the form that the critics read; they see its statement and parts alone."""
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


def without_own(retrieve: Retriever, own_title: str) -> Retriever:
    """The retriever, blind to the paper that the proposal is taken from."""
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


def over(papers: Sequence[Record], k: int) -> Retriever:
    """A retriever over a fixed set of papers."""
    pool = merge(papers)

    def retrieve(wanted: Mapping[str, Sequence[Query]]) -> Mapping[str, SearchAnswer]:
        return {
            name: SearchAnswer(records=tuple(rank(pool, queries, k)), served_by=("dataset",))
            for name, queries in wanted.items()
        }

    return retrieve


def local_retriever(
    index: LocalIndex, k: int, as_of: date, embed: Embed | None = None
) -> Retriever:
    """A retriever over a local index, bounded in time; `embed` joins in the ranking.

    Parameters
    ----------
    index : of the papers
    k : papers per query, at most
    as_of : day after which papers are not seen
    embed : vectors of texts; None ranks by words alone
    """

    def retrieve(wanted: Mapping[str, Sequence[Query]]) -> Mapping[str, SearchAnswer]:
        answers = {}
        for name, queries in wanted.items():
            pool = merge(record for query in queries for record in index.search(query, k, as_of))
            known = [record.as_known(as_of) for record in pool]
            answers[name] = SearchAnswer(
                records=tuple(rank(known, queries, k, embed)), served_by=(NAME,), as_of=as_of
            )
        return answers

    return retrieve


def scored(id: str, tier: Tier | None, outcome: DebateOutcome) -> Scored:
    """The four configurations out of one debate: its opening scores are those without debate."""
    first = [outcome.initial[critic] for critic in CRITICS]
    spent: Spent = outcome.spent
    return Scored(
        id=id,
        tier=tier,
        scores=dict(
            zip(
                CONFIGURATIONS,
                (first[2], (first[0] + first[1]) / 2.0, sum(first) / 3.0, outcome.score),
                strict=True,
            )
        ),
        initial_sigma=outcome.initial_sigma,
        debated=outcome.debated,
        rounds=outcome.debate_rounds,
        retrieved=len(outcome.records),
        cited=len(cited_refs(outcome)),
        contradictions=outcome.contradictions,
        specious=bool(outcome.specious),
        seconds=spent.seconds,
        usd=spent.usd,
        tokens=spent.prompt_tokens + spent.completion_tokens,
    )


def cited_refs(outcome: DebateOutcome) -> set[str]:
    """Records that any critic cited."""
    found: set[str] = set()
    for turn in outcome.transcript:
        position = turn.position
        if position.kind == "prover":
            found.update(ref for claim in position.claims for ref in claim.citations)
        elif position.kind == "verifier":
            found.update(ref for answer in position.answers for ref in answer.citations)
        else:
            found.update(position.citations)
    return found


def accuracy(rows: Sequence[Scored], configuration: str) -> float:
    """Share of proposals whose score lies in its tier's range."""
    judged = [row for row in rows if row.tier is not None]
    hits = 0
    for scored in judged:
        assert scored.tier is not None
        low, high = RANGES[scored.tier]
        hits += low <= scored.scores[configuration] <= high
    return hits / len(judged) if judged else math.nan


def gap(rows: Sequence[Scored], configuration: str) -> float:
    """Mean score of tier A less that of tier E."""
    means = tier_means(rows, configuration)
    return means.get("A", math.nan) - means.get("E", math.nan)


def tier_means(rows: Iterable[Scored], configuration: str) -> dict[Tier, float]:
    """Mean score per tier."""
    groups: dict[Tier, list[float]] = defaultdict(list)
    for row in rows:
        if row.tier is not None:
            groups[row.tier].append(row.scores[configuration])
    return {tier: float(np.mean(values)) for tier, values in sorted(groups.items())}


def tier_statistics(rows: Sequence[Scored]) -> dict[str, dict[str, float]]:
    """Per tier: share debated, mean rounds of those debated, retrieval, contradictions, cost."""
    groups: dict[str, list[Scored]] = defaultdict(list)
    for row in rows:
        groups[row.tier or "?"].append(row)
    return {
        tier: {
            "n": float(len(group)),
            "debated": float(np.mean([scored.debated for scored in group])),
            "rounds": float(np.mean([scored.rounds for scored in group if scored.debated] or [0])),
            "retrieved": float(np.mean([scored.retrieved for scored in group])),
            "retrieved_sd": float(np.std([scored.retrieved for scored in group])),
            "cited": float(np.mean([scored.cited for scored in group])),
            "contradictions": float(np.mean([scored.contradictions for scored in group])),
            "contradictions_sd": float(np.std([scored.contradictions for scored in group])),
            "seconds": float(np.mean([scored.seconds for scored in group])),
            "usd": float(np.mean([scored.usd for scored in group])),
            "tokens": float(np.mean([scored.tokens for scored in group])),
        }
        for tier, group in sorted(groups.items())
    }


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Spearman's rho; NaN where a side is constant."""
    from scipy.stats import spearmanr

    if len(set(one)) < 2 or len(set(other)) < 2:
        return math.nan
    return float(spearmanr(one, other).statistic)


def tier_correlation(rows: Sequence[Scored], configuration: str) -> float:
    """Spearman's rho between score and tier (A highest)."""
    judged = [row for row in rows if row.tier is not None]
    ranks = [-float("ABCDE".index(scored.tier or "E")) for scored in judged]
    return rank_correlation(
        ranks,
        [scored.scores[configuration] for scored in judged],
    )


def separation(labels: Sequence[float], scores: Sequence[float]) -> float:
    """Probability that a novel idea scores above a known one (ties half): area under the ROC."""
    high = [score for label, score in zip(labels, scores, strict=True) if label > 0.5]
    low = [score for label, score in zip(labels, scores, strict=True) if label <= 0.5]
    if not high or not low:
        return math.nan
    wins = sum((a > b) + 0.5 * (a == b) for a in high for b in low)
    return wins / (len(high) * len(low))
