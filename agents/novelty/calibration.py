"""Calibration of the novelty panel: time travel over known cases, and human-scored sets.

Source: SAGE, 4.4, D.1, Tables 3, 10 and 11.
"""

from __future__ import annotations

import csv
import json
import math
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field, ValidationError

from agents.base import Spent, View
from agents.errors import InputError
from agents.novelty.debate import Retriever
from agents.novelty.types import CRITICS, DebateOutcome
from agents.types import ExpandedHypothesis
from kg.literature.local import NAME, LocalIndex
from kg.literature.merge import merge
from kg.literature.rank import rank
from kg.literature.types import Query, Record, SearchAnswer, clean_doi, title_key
from validation.hypothesis import Comparison, Direction, Exposure, Hypothesis, Population

Tier = Literal["A", "B", "C", "D", "E"]

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


class Proposal(View):
    """One known case. `own_title` is the paper that the case is about: never used as evidence."""

    id: str
    tier: Tier
    statement: str
    parts: tuple[str, ...] = Field(min_length=2)
    as_of: date
    domain: str = ""
    own_title: str = ""
    reference: str = ""
    doi: str | None = None


class Idea(View):
    """One idea with experts' label and the papers that were found for it."""

    id: str
    statement: str
    parts: tuple[str, ...]
    label: float
    papers: tuple[Record, ...]


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


def read_proposals(path: Path) -> list[Proposal]:
    """Proposals, one JSON object per line.

    Raises
    ------
    InputError
        If a line is no proposal: names the line and the field.
    """
    found = []
    for number, line in enumerate(_text(path).splitlines(), start=1):
        if not line.strip():
            continue
        try:
            found.append(Proposal.model_validate_json(line))
        except ValidationError as problem:
            first = problem.errors()[0]
            where = ".".join(str(one) for one in first["loc"]) or "line"
            raise InputError(f'{path}:{number}: "{where}": {first["msg"]}') from None
    if not found:
        raise InputError(f"{path}: no proposal; give one JSON object per line")
    return found


def read_literature(path: Path) -> list[Record]:
    """Dated records with findings, one JSON object per line (`data/novelty/literature.jsonl`)."""
    records = []
    for number, line in enumerate(_text(path).splitlines(), start=1):
        if not line.strip():
            continue
        try:
            one = json.loads(line)
            retracted = bool(one.get("retracted"))
            records.append(
                Record(
                    title=one["title"],
                    authors=tuple(one.get("authors", ())),
                    year=one["year"],
                    published=_day(one.get("published")),
                    venue=one.get("venue"),
                    doi=clean_doi(one.get("doi")),
                    retracted=retracted,
                    retracted_on=_day(one.get("retracted_on")),
                    retraction_sources=(NAME,) if retracted else (),
                    sources=(NAME,),
                    snippets=tuple(one.get("findings", ())),
                )
            )
        except (ValueError, KeyError, TypeError) as problem:
            raise InputError(f"{path}:{number}: no dated record ({problem})") from None
    return records


def read_ideas(path: Path) -> list[Idea]:
    """Ideas labeled novel or not by experts, with ten papers each (a CSV of that benchmark).

    Parts are the phrases that the idea itself sets in bold; words are otherwise too many.
    """
    csv.field_size_limit(min(sys.maxsize, 10_000_000))
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    missing = {"idea", "class", "paper0_title"} - set(rows[0] if rows else ())
    if missing:
        raise InputError(f"{path}: no column {', '.join(sorted(missing))}; is this the idea set?")
    ideas = []
    for number, row in enumerate(rows, start=1):
        bold = [_squeeze(one) for one in re.findall(r"\*\*(.+?)\*\*", row["idea"])]
        plain = _squeeze(row["idea"].replace("**", ""))
        parts = tuple(dict.fromkeys(one for one in bold if one))[:6] or tuple(plain.split()[:6])
        papers = tuple(
            Record(
                title=_squeeze(row[f"paper{n}_title"]),
                abstract=_squeeze(row.get(f"paper{n}_abstract") or ""),
                sources=("dataset",),
            )
            for n in range(10)
            if (row.get(f"paper{n}_title") or "").strip()
        )
        label = 1.0 if row["class"].strip().lower() == "novel" else 0.0
        ideas.append(Idea(id=str(number), statement=plain, parts=parts, label=label, papers=papers))
    return ideas


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
                        one for one in answer.records if not own or title_key(one.title) != own
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


def local_retriever(index: LocalIndex, k: int, as_of: date) -> Retriever:
    """A retriever over a local index, bounded in time."""

    def retrieve(wanted: Mapping[str, Sequence[Query]]) -> Mapping[str, SearchAnswer]:
        answers = {}
        for name, queries in wanted.items():
            pool = merge(one for query in queries for one in index.search(query, k, as_of))
            known = [one.as_known(as_of) for one in pool]
            answers[name] = SearchAnswer(
                records=tuple(rank(known, queries, k)), served_by=(NAME,), as_of=as_of
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
    judged = [one for one in rows if one.tier is not None]
    hits = 0
    for one in judged:
        assert one.tier is not None
        low, high = RANGES[one.tier]
        hits += low <= one.scores[configuration] <= high
    return hits / len(judged) if judged else math.nan


def gap(rows: Sequence[Scored], configuration: str) -> float:
    """Mean score of tier A less that of tier E."""
    means = tier_means(rows, configuration)
    return means.get("A", math.nan) - means.get("E", math.nan)


def tier_means(rows: Iterable[Scored], configuration: str) -> dict[Tier, float]:
    """Mean score per tier."""
    groups: dict[Tier, list[float]] = defaultdict(list)
    for one in rows:
        if one.tier is not None:
            groups[one.tier].append(one.scores[configuration])
    return {tier: float(np.mean(values)) for tier, values in sorted(groups.items())}


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Spearman's rho; NaN where a side is constant."""
    from scipy.stats import spearmanr

    if len(set(one)) < 2 or len(set(other)) < 2:
        return math.nan
    return float(spearmanr(one, other).statistic)


def tier_correlation(rows: Sequence[Scored], configuration: str) -> float:
    """Spearman's rho between score and tier (A highest)."""
    judged = [one for one in rows if one.tier is not None]
    return rank_correlation(
        [-"ABCDE".index(one.tier or "E") for one in judged],
        [one.scores[configuration] for one in judged],
    )


def separation(labels: Sequence[float], scores: Sequence[float]) -> float:
    """Probability that a novel idea scores above a known one (ties half): area under the ROC."""
    high = [score for label, score in zip(labels, scores, strict=True) if label > 0.5]
    low = [score for label, score in zip(labels, scores, strict=True) if label <= 0.5]
    if not high or not low:
        return math.nan
    wins = sum((a > b) + 0.5 * (a == b) for a in high for b in low)
    return wins / (len(high) * len(low))


def reviewer_agreement(path: Path) -> dict[str, float]:
    """How far human reviewers agree on novelty, from blind reviews of the same ideas.

    The set holds scores and reasons without the ideas' texts, so that nothing can be scored on
    it; it tells how much agreement any scorer could reach. Returns the number of reviews, of
    ideas with two or more, the mean absolute difference of two reviewers of one idea, and the
    correlation of one reviewer with another of the same idea (all ordered pairs).
    """
    try:
        columns = json.loads(_text(path))
        scores = [float(str(one).split(" ")[0]) for one in columns["novelty_score"]]
        ideas = [str(one) for one in columns["idea_id"]]
    except (ValueError, KeyError, TypeError) as problem:
        raise InputError(f"{path}: no review set ({problem}); it needs novelty_score") from None
    by_idea: dict[str, list[float]] = defaultdict(list)
    for idea, score in zip(ideas, scores, strict=True):
        by_idea[idea].append(score)
    pairs = [
        (a, b)
        for values in by_idea.values()
        for i, a in enumerate(values)
        for j, b in enumerate(values)
        if i != j
    ]
    one, other = np.array(pairs).T if pairs else (np.zeros(0), np.zeros(0))
    return {
        "reviews": float(len(scores)),
        "ideas_with_two_or_more": float(sum(len(values) > 1 for values in by_idea.values())),
        "mean_absolute_difference": float(np.abs(one - other).mean()) if pairs else math.nan,
        "pearson_between_reviewers": float(np.corrcoef(one, other)[0, 1]) if pairs else math.nan,
        "mean": float(np.mean(scores)),
        "sd": float(np.std(scores)),
    }


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as problem:
        raise InputError(f"{path}: cannot be read ({problem})") from None


def _day(value: object) -> date | None:
    return date.fromisoformat(value) if isinstance(value, str) else None


def _squeeze(text: str) -> str:
    return " ".join(text.split())
