"""The prover, which argues for novelty and must name the most similar existing work."""

from __future__ import annotations

from agents.core.base import Agent, Resources, Role, prompt_file
from agents.novelty.checks import check_prover
from agents.novelty.evidence import (
    Reading,
    confidence,
    count_mentions,
    score_after_objections,
    score_of,
)
from agents.novelty.types import Claim, CriticInput, ProverPosition
from sage.core.printable import join_names

_CLAIMS = 3


def argue(given: CriticInput, resources: Resources) -> ProverPosition:
    """Claim novelty for the pairs of parts that no retrieved record names together.

    The score is 0.6 times the share of unseen pairs plus 0.4 times the distance to the
    nearest prior claim, shrunk toward an optimistic prior if little literature was seen.
    After the verifier has answered, the prover moves halfway to the judge for each round with
    a standing objection.
    """
    seen = count_mentions(given.expanded, given.records, resources.ontology)
    novelty = 0.6 * seen.unseen_share + 0.4 * (1.0 - seen.closest)
    score = score_of(novelty, seen.weight, prior=0.75)
    judged = score_after_objections(given.debate)
    if judged is not None:
        score += (judged - score) / 2.0
    return ProverPosition(
        score=score,
        confidence=confidence(seen, given.missing_sources),
        summary=_summary(seen, judged is not None),
        claims=_claims(seen, given.round),
        queries=tuple(f"{first} {second}" for first, second in seen.unseen_pairs()[:_CLAIMS]),
    )


def _claims(seen: Reading, round_number: int) -> tuple[Claim, ...]:
    if not seen.nearest:
        return ()
    claims = []
    for number, (first, second) in enumerate(seen.unseen_pairs()[:_CLAIMS], start=1):
        near = [found for found in seen.nearest if first in found.parts or second in found.parts]
        cited = tuple(found.ref for found in (near or seen.nearest)[:2])
        claims.append(
            Claim(
                id=f"P{round_number}.{number}",
                kind="combination",
                parts=(first, second),
                text=f"{first} and {second} were mentioned together in no retrieved "
                f"record{('; in those cited one of them was found' if near else '')}",
                citations=cited,
            )
        )
    if not claims:
        top = seen.nearest[0]
        rest = [part for part in seen.parts if part not in top.parts]
        text = (
            "Every pair of parts was found in some record, but the nearest record does not "
            f"mention: {join_names(rest)}."
            if rest
            else "At least one record mentions every part of the claim; whether it makes the "
            f"claim was not checked{seen.describe_unsearched()}."
        )
        claims.append(
            Claim(
                id=f"P{round_number}.1",
                kind="combination",
                parts=tuple(seen.parts),
                text=text,
                citations=(top.ref,),
            )
        )
    return tuple(claims)


def _summary(seen: Reading, objected: bool) -> str:
    if not seen.nearest:
        return (
            "No part of the hypothesis was found in a retrieved record; this is absence of "
            "evidence, not evidence of novelty."
        )
    unseen, pairs = len(seen.unseen_pairs()), len(seen.pairs)
    counted = (
        f"Of {pairs} pairs of parts, {unseen} {('was' if unseen == 1 else 'were')} mentioned "
        "together in no retrieved record"
        if unseen
        else "Every pair of parts was mentioned together in some retrieved record"
    )
    text = f"{counted}; {seen.names_of_nearest()}."
    return text + (" The verifier's objections are partly conceded." if objected else "")


PROVER = Agent(
    name="prover",
    role=Role.MINI,
    reads=CriticInput,
    returns=ProverPosition,
    prompt=prompt_file(__file__, "panel.md", "prover.md"),
    rule=argue,
    check=check_prover,
    spare=("records",),
)
