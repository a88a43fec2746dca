"""The verifier, which searches for work that overlaps with the hypothesis or refutes it."""

from __future__ import annotations

from agents.core.base import Agent, Resources, Role, prompt_file
from agents.novelty.checks import check_verifier
from agents.novelty.evidence import NEAR, Nearest, Reading, confidence, count_mentions, score_of
from agents.novelty.types import (
    Answer,
    CriticInput,
    ProverPosition,
    SpeciousFlag,
    VerifierPosition,
)
from sage.core.printable import join_names, quote_text

WHOLE = "hypothesis"


def challenge(given: CriticInput, resources: Resources) -> VerifierPosition:
    """Cite the nearest prior claim and every denying sentence against the hypothesis.

    The score is 0.7 times the distance to the nearest prior claim plus 0.3 times the share of
    unseen pairs, reduced by half if a record denies the claim and to 0 if a record refutes
    it, and shrunk toward a conservative prior if little literature was seen. A refutation (a
    retraction, a failed replication, an artifact) of most of the hypothesis is flagged as
    specious.
    """
    seen = count_mentions(given.expanded, given.records, resources.ontology)
    novelty = 0.7 * (1.0 - seen.closest) + 0.3 * seen.unseen_share
    refuted = refutations(seen)
    if refuted:
        novelty = 0.0
    elif seen.denials and seen.denials[0].overlap >= NEAR:
        novelty *= 0.5
    claims = _claims_before(given)
    flagged = tuple(
        SpeciousFlag(claim=WHOLE, reason=_reason(nearest), citations=(nearest.ref,))
        for nearest in refuted[:1]
    )
    return VerifierPosition(
        score=score_of(novelty, max(seen.weight, 0.8 if refuted else 0.0), prior=0.4),
        confidence=max(confidence(seen, given.missing_sources), 0.8 if refuted else 0.0),
        summary=_summary(seen, refuted),
        answers=_answers(seen, refuted, claims),
        specious=flagged,
        queries=_counter_queries(given),
    )


def refutations(seen: Reading) -> tuple[Nearest, ...]:
    """List refutations that cover most of the hypothesis."""
    return tuple(refutation for refutation in seen.refutations if refutation.overlap >= NEAR)


def _claims_before(given: CriticInput) -> tuple[str, ...]:
    positions = [
        turn.position for turn in given.debate if isinstance(turn.position, ProverPosition)
    ]
    return tuple(claim.id for claim in positions[-1].claims) if positions else ()


def _answers(
    seen: Reading, refuted: tuple[Nearest, ...], claims: tuple[str, ...]
) -> tuple[Answer, ...]:
    answers = [
        Answer(claim=WHOLE, verdict="refutes", text=_reason(nearest), citations=(nearest.ref,))
        for nearest in refuted[:3]
    ]
    answers += [
        Answer(
            claim=WHOLE,
            verdict="refutes" if denial.overlap >= NEAR and denial.whole else "weakens",
            text=f"Contradicts the claim ({denial.list_parts()}): {quote_text(denial.sentence)}",
            citations=(denial.ref,),
        )
        for denial in seen.denials[:3]
        if denial not in refuted
    ]
    answers += [
        Answer(
            claim=WHOLE,
            verdict="stands",
            text=f"A negative finding on {negative.list_parts()}{_unnamed_parts(negative, seen)}: "
            f"{quote_text(negative.sentence)}",
            citations=(negative.ref,),
        )
        for negative in seen.negatives[:3]
    ]
    near = [nearest for nearest in seen.nearest if nearest.overlap >= NEAR]
    answers += [
        Answer(
            claim=WHOLE,
            verdict="overlaps",
            text=f"Mentions {len(nearest.parts)} of {len(seen.parts)} parts of the claim: "
            f"{nearest.list_parts()}{seen.describe_unsearched()}.",
            citations=(nearest.ref,),
        )
        for nearest in near[:2]
    ]
    if not near and seen.nearest:
        answers += [
            Answer(
                claim=claim,
                verdict="stands",
                text=_nearest(seen) + ".",
                citations=(seen.nearest[0].ref,),
            )
            for claim in claims
        ]
    return tuple(answers)


def _unnamed_parts(negative: Nearest, seen: Reading) -> str:
    """List the parts of the claim that a sentence does not name."""
    rest = [part for part in seen.parts if part not in negative.parts]
    return f"; not found in the sentence: {join_names(rest)}" if rest else ""


def _counter_queries(given: CriticInput) -> tuple[str, ...]:
    parts = given.expanded.parts
    whole = " ".join(parts)
    return (
        f"{whole} no association",
        f"{whole} failed replication retraction",
        *(f"{part} negative finding" for part in parts[:2]),
    )


def _nearest(seen: Reading) -> str:
    said = seen.names_of_nearest()
    return said[0].upper() + said[1:]


def _reason(nearest: Nearest) -> str:
    return f"{nearest.record.citation()}: {quote_text(nearest.sentence)}"


def _summary(seen: Reading, refuted: tuple[Nearest, ...]) -> str:
    if refuted:
        n = len(refuted)
        said = f"{n} retrieved {'record reports' if n == 1 else 'records report'}"
        return (
            f"{said} most of the claim as refuted or not reproduced, or are retracted (first "
            f"{refuted[0].short()})."
        )
    if not seen.nearest:
        return "Nothing retrieved; novelty is unproven."
    text = _nearest(seen)
    if seen.denials:
        n = len(seen.denials)
        text += f"; {n} {('record contradicts' if n == 1 else 'records contradict')} the claim"
    if seen.negatives:
        text += f"; negative findings on parts of it: {len(seen.negatives)}"
    return text + "."


VERIFIER = Agent(
    name="verifier",
    role=Role.MINI,
    reads=CriticInput,
    returns=VerifierPosition,
    prompt=prompt_file(__file__, "panel.md", "verifier.md"),
    rule=challenge,
    check=check_verifier,
    spare=("records",),
)
