"""Types of the critics and of a debate."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Literal

from pydantic import Field

from agents.core.base import View
from agents.core.types import ExpandedHypothesis
from agents.core.words import OwnText, Words
from kg.literature.types import MissingSource, Record
from sage.core.llm.turns import Spent

Score = Annotated[float, Field(ge=1.0, le=10.0)]
Confidence = Annotated[float, Field(ge=0.0, le=1.0)]
Critic = Literal["prover", "verifier", "judge"]
CRITICS: tuple[Critic, ...] = ("prover", "verifier", "judge")


class DebateSettings(View):
    """Debate settings: values stated in SAGE, 3.2.5, and our own choices, marked as such.

    `debate_above_sigma` and `converged_below_sigma` are compared with the population standard
    deviation (divisor n) of the three scores: the three critics are the whole panel, not a
    sample.
    """

    debate_above_sigma: float = Field(default=1.0, ge=0.0)
    """Standard deviation above which a debate starts (SAGE, 3.2.5; strict inequality)."""

    converged_below_sigma: float = Field(default=0.5, ge=0.0)
    """Standard deviation below which a debate ends (SAGE, 3.2.5; strict inequality)."""

    max_rounds: int = Field(default=3, ge=0)
    """Maximum number of rounds (SAGE, 3.2.5: at most three)."""

    own_weight: float = Field(default=3.0, gt=0.0)
    """Weight of a critic's current score, in numbers of proposals (ours; see `update`).

    With three equally confident critics it halves sigma in each round that brings no new
    evidence.
    """

    specious_penalty: float = Field(default=2.0, ge=0.0)
    """Points deducted once from every score when the judge upholds a specious flag.

    The paper mentions a penalty but not its size; this number is ours.
    """

    threshold: float = Field(default=5.0, ge=1.0, le=10.0)
    """Score below which a hypothesis returns to expansion (ours; "predefined" in the paper)."""

    records_per_critic: int = Field(default=12, ge=1)
    """Number of retrieved records shown to a critic per retrieval (ours)."""

    queries_per_critic: int = Field(default=6, ge=1)
    """Number of searches that a critic may request per round (ours)."""

    patience_seconds: float = Field(default=1.0, ge=0.0)
    """Maximum wait for a slot under a service's published rate limit (ours).

    A service that would exceed it is reported as missing in that round.
    """


class CitedRecord(View):
    """A retrieved record with the short key ("R3") by which the critics cite it."""

    ref: str
    record: Record


class Coverage(View):
    """Coverage of the panel's searches, and the confidence that it supports.

    `searched` lists the sources that answered; the local index is listed with its size.
    `relevant` lists the relevant records: they mention a part of the claim other than disease
    and endpoint, and another part. `foreign` is the claim's disease if no record mentions it;
    then no record is relevant.
    """

    searched: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    most_confident: Confidence = 1.0
    relevant: tuple[str, ...] = ()
    foreign: str = ""


Novel = Literal["combination", "population", "measurement", "endpoint", "direction", "mechanism"]
Change = Literal[
    "add_part", "narrow_population", "change_endpoint", "answer_record", "use_other_terms"
]


class Claim(View):
    """A claim of novelty: a gap not covered by the nearest records, `citations`.

    `parts` are the parts of the hypothesis that the claim concerns.
    """

    id: str
    kind: Novel
    parts: tuple[str, ...]
    text: OwnText = ""
    citations: tuple[str, ...]


class Answer(View):
    """The verifier's answer to a claim, or to the whole hypothesis ("hypothesis").

    "weakens" means a finding against a part of the claim; "refutes", a finding against the
    claim itself. For a claim that "stands", the cited finding may concern another exposure,
    outcome or disease.
    """

    claim: str
    verdict: Literal["overlaps", "weakens", "refutes", "stands"]
    text: OwnText = ""
    citations: tuple[str, ...]


class SpeciousFlag(View):
    """A claim that appears new but that retrieved literature directly refutes."""

    claim: str
    reason: OwnText = ""
    citations: tuple[str, ...]


class Revision(View):
    """A change to the hypothesis that would make it novel, and the records that call for it."""

    change: Change
    text: OwnText = ""
    citations: tuple[str, ...] = ()


class ProverPosition(View):
    """The prover's assessment: the novel aspects, compared with the nearest existing work."""

    kind: Literal["prover"] = "prover"
    score: Score
    confidence: Confidence
    summary: Words
    claims: tuple[Claim, ...] = ()
    queries: tuple[str, ...] = ()


class VerifierPosition(View):
    """The verifier's assessment: the aspects that are already known or refuted."""

    kind: Literal["verifier"] = "verifier"
    score: Score
    confidence: Confidence
    summary: Words
    answers: tuple[Answer, ...] = ()
    specious: tuple[SpeciousFlag, ...] = ()
    queries: tuple[str, ...] = ()


class JudgePosition(View):
    """The judge's synthesis. `upheld` and `overruled` list the claims flagged as specious.

    `reasons` list the changes needed in a revision. `plausibility` (consistency with current
    knowledge) and `interest` (importance of the answer) are separate axes, not part of the
    score; None if they were not judged.
    """

    kind: Literal["judge"] = "judge"
    score: Score
    confidence: Confidence
    summary: Words
    citations: tuple[str, ...] = ()
    upheld: tuple[str, ...] = ()
    overruled: tuple[str, ...] = ()
    reasons: tuple[Revision, ...] = ()
    plausibility: Score | None = None
    interest: Score | None = None


Position = Annotated[ProverPosition | VerifierPosition | JudgePosition, Field(discriminator="kind")]


class Turn(View):
    """A critic's position in a round (round 0 is the initial assessment).

    `lowered_from` is the confidence that the critic claimed, if the searches support only a
    lower value.
    """

    round: int
    critic: Critic
    position: Position
    rejected: tuple[str, ...] = ()
    lowered_from: Confidence | None = None


class CriticInput(View):
    """Input to a critic: the expanded hypothesis, retrieved literature and the debate so far."""

    expanded: ExpandedHypothesis
    records: tuple[CitedRecord, ...]
    missing_sources: tuple[MissingSource, ...] = ()
    coverage: Coverage = Coverage()
    as_of: date | None = None
    debate: tuple[Turn, ...] = ()
    round: int = 0


class Round(View):
    """The scores after a round, less `penalty`, and their population standard deviation."""

    number: int
    scores: dict[Critic, Score]
    sigma: float
    retrieval_seconds: float = 0.0
    requests: int = 0
    new_records: int = 0
    penalty: float = 0.0


class DebateOutcome(View):
    """Novelty of the hypothesis, and every step leading to that score.

    `initial` and `final` are the critics' scores, `sigma` is the final population standard
    deviation, and `score` is the unweighted mean of `final` (SAGE, 3.2.5). `rounds[0]` is the
    initial assessment; `debated` is True if a debate took place. `reasons` are the reasons
    for a revision. If no retrieved record is relevant, the claim is not `judged`: the scores
    are the critics' default positions, and no threshold applies. `plausibility` and
    `interest` are the judge's ratings on separate axes.
    """

    initial: dict[Critic, Score]
    final: dict[Critic, Score]
    initial_sigma: float
    sigma: float
    debated: bool
    rounds: tuple[Round, ...]
    transcript: tuple[Turn, ...]
    specious: tuple[str, ...]
    penalty: float
    score: Score
    threshold: float
    below_threshold: bool
    judged: bool = True
    plausibility: Score | None = None
    interest: Score | None = None
    coverage: Coverage = Coverage()
    reasons: tuple[str, ...]
    records: tuple[CitedRecord, ...]
    retracted: tuple[str, ...]
    contradictions: int
    missing_sources: tuple[MissingSource, ...]
    served_by: tuple[str, ...]
    notes: tuple[str, ...]
    reasoner: str
    as_of: date | None
    spent: Spent

    @property
    def debate_rounds(self) -> int:
        """Number of debate rounds that took place."""
        return len(self.rounds) - 1
