"""Ranking of candidates before any test, by the expected information from a test.

Expected information is the product of four parts, each in [0, 1] and each reported: the
power to detect a relevant effect, the plausibility of the claim, how little it has been
studied, and the share of the question that it answers. The question takes precedence:
claims that leave out fewer of the parts that the cohort can represent come first, however
informative the other claims are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from agents.core.base import View
from agents.core.statement import same_claim
from agents.core.types import Citation, OntologyBrief
from agents.novelty.evidence import denies
from agents.question.carried import account, beyond, unanswered
from agents.question.types import Intent, PartRole, Question
from agents.scientist.blind import DesignPower
from agents.scientist.views import Candidates, Proposal
from validation.core.hypothesis import Hypothesis

UNSUPPORTED = 0.2
"""Plausibility of a claim supported by no search result."""
ONE_SOURCE = 0.5
"""Plausibility of a claim for which the search found a single source."""
UNKNOWN_POWER = 0.5
CONTRADICTED = 0.7
CONJECTURED = 0.7
"""Factor applied to a claim's plausibility if no source gives its direction."""


class RankParts(View):
    """The components of a candidate's rank; `expected_information` is their product.

    `left_out` counts parts of the question that the cohort can represent and the claim omits;
    `added` counts exposures beyond those in a question that names all its parts. `detectable`
    is the smallest effect detectable with 80% power, on `scale`; `studied` counts records in
    the local index that name all exposures together.
    """

    power: float
    plausibility: float
    understudied: float
    relevance: float
    expected_information: float
    left_out: int = 0
    added: int = 0
    detectable: float | None = None
    scale: str = ""
    events: float | None = None
    studied: int | None = None


class RankedCandidate(View):
    """A candidate: its position, its rank components, and the resulting hypothesis, if any."""

    place: int
    statement: str
    parts: RankParts
    rating: float | None = None
    hypothesis_id: str = ""


class SetAside(View):
    """A candidate that was not ranked, and the reason."""

    statement: str
    reason: str


class Ranking(View):
    """Selection of the drafted candidates to be debated and tested."""

    wanted: int
    drafted: int
    order: str
    ranked: tuple[RankedCandidate, ...]
    set_aside: tuple[SetAside, ...] = ()


def without_rewordings(
    candidates: Candidates, statement: Callable[[Hypothesis], str]
) -> tuple[list[Proposal], list[SetAside]]:
    """Return the candidates that make different claims, keeping the first of each."""
    kept: dict[tuple[object, ...], Proposal] = {}
    aside = []
    for proposal in candidates.candidates:
        key = same_claim(proposal.hypothesis)
        if key in kept:
            first = statement(kept[key].hypothesis)
            reason = f"a rewording of: {first}"
            aside.append(SetAside(statement=statement(proposal.hypothesis), reason=reason))
        else:
            kept[key] = proposal
    return list(kept.values()), aside


def plausibility(proposal: Proposal, brief: OntologyBrief, found: dict[str, Citation]) -> float:
    """Compute the plausibility of the claim from the evidence read, in [0, 1].

    It is the geometric mean of the beliefs of the relationships that support the claim,
    reduced if any is contradicted; relationships from chains that are as strong in rewired
    graphs are excluded. It is instead, if larger, 1 minus a half for each source that is not
    retracted and reports no null finding, reduced if any source does. It is low with neither,
    and lower if the direction is a conjecture.
    """
    used = [item for item in proposal.supported_by(brief) if item.supported]
    cited = [found[key] for key in proposal.sources if key in found and not found[key].retracted]
    bearing = [source for source in cited if not denies(source.quote)]
    by_sources = 1 - (1 - ONE_SOURCE) ** len(bearing) if bearing else UNSUPPORTED
    by_sources *= CONTRADICTED if len(bearing) < len(cited) else 1.0
    mean = 0.0
    if used:
        beliefs = [max(item.belief, 0.01) for item in used]
        mean = math.exp(sum(map(math.log, beliefs)) / len(beliefs))
        mean *= CONTRADICTED if any(item.contradicted for item in used) else 1.0
    borne = max(mean, by_sources if cited or not used else 0.0)
    return round(borne * (CONJECTURED if proposal.conjecture else 1.0), 3)


def understudied(records: int) -> float:
    """Compute how little the exposures were studied: 1 if never, less with the log of records."""
    return round(1 / (1 + math.log1p(records)), 3)


def relevance(question: Question, hypothesis: Hypothesis) -> float:
    """Compute the share of the question's named parts in the claim; 1 if the question names none.

    Parts that the cohort cannot represent also count: a claim without them answers less of
    the question. The share is also reduced for added exposures if the question leaves nothing
    to discover.
    """
    parts = [
        row
        for part, row in zip(question.parts, account(question, hypothesis), strict=True)
        if not part.setting
    ]
    whole = len(parts) + len(added_to(question, hypothesis))
    return round(sum(row.kept for row in parts) / whole, 3) if parts else 1.0


def added_to(question: Question, hypothesis: Hypothesis) -> list[str]:
    """Return the claim's exposures beyond those that a question names.

    The result is empty if the question asks to explain, or to discover without a group to
    choose from ("stromal genes" is such a group, "genes" is not).
    """
    exposures = question.testable(PartRole.EXPOSURE)
    closed = any(part.every for part in exposures) and not any(part.open_to for part in exposures)
    if question.intent is Intent.EXPLAIN or (question.intent is Intent.DISCOVER and not closed):
        return []
    return beyond(question, hypothesis)


def parts_of(
    proposal: Proposal,
    design: DesignPower,
    *,
    question: Question,
    brief: OntologyBrief,
    found: dict[str, Citation],
    studied: int | None,
) -> RankParts:
    """Compute the four components of a candidate's rank and their product.

    Parameters
    ----------
    studied : number of records that name its exposures together; None if they could not be
        counted
    """
    power = UNKNOWN_POWER if design.power is None else design.power
    believed = plausibility(proposal, brief, found)
    fresh = 0.5 if studied is None else understudied(studied)
    answers = relevance(question, proposal.hypothesis)
    return RankParts(
        power=power,
        plausibility=believed,
        understudied=fresh,
        relevance=answers,
        expected_information=round(power * believed * fresh * answers, 4),
        left_out=len(unanswered(question, proposal.hypothesis)),
        added=len(added_to(question, proposal.hypothesis)),
        detectable=design.detectable,
        scale=design.scale,
        events=design.events,
        studied=studied,
    )


def by_expected_information(parts: Sequence[RankParts], ratings: Sequence[float] = ()) -> list[int]:
    """Rank the candidates: first by how fully they answer the question, then by information.

    Claims that omit fewer parts and add fewer exposures come first, followed by the most
    informative claims.

    If given, the `ratings` from a tournament replace the expected information. Ties keep the
    drafting order.
    """

    def key(at: int) -> tuple[int, int, float, int]:
        worth = ratings[at] if ratings else parts[at].expected_information
        return parts[at].left_out, parts[at].added, -worth, at

    return sorted(range(len(parts)), key=key)


def names_of(hypothesis: Hypothesis, concepts: Iterable[str]) -> list[tuple[str, ...]]:
    """List, for each exposure, the names by which it may appear in the literature."""
    held = list(concepts)
    found = []
    for exposure in hypothesis.exposures:
        tail = exposure.variable.split(":")[-1].replace("_", " ")
        label = exposure.label
        near = [name for name in held if name.lower() in f"{label} {tail}".lower()]
        found.append(tuple(dict.fromkeys((*near, tail, label))))
    return found
