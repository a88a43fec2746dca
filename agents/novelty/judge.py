"""The judge: weighs the prover against the verifier, and rules on flags of specious claims."""

from __future__ import annotations

from agents.core.base import Agent, Resources, Role, prompt_file
from agents.novelty.checks import check_judge, flags_raised
from agents.novelty.evidence import NEAR, Reading, confidence, count_mentions, score_of
from agents.novelty.types import CriticInput, JudgePosition, Revision
from agents.novelty.verifier import refutations
from sage.core.printable import join_names, quote_text


def synthesize(given: CriticInput, resources: Resources) -> JudgePosition:
    """Weigh unseen pairs and distance to prior claims equally; uphold flags supported by evidence.

    A specious flag is upheld if its citations refute most of the hypothesis in the judge's own
    assessment, and overruled otherwise.
    """
    seen = count_mentions(given.expanded, given.records, resources.ontology)
    novelty = 0.5 * seen.unseen_share + 0.5 * (1.0 - seen.closest)
    refuted = {refutation.ref for refutation in refutations(seen)}
    flags = flags_raised(given)
    upheld = tuple(flag.claim for flag in flags if refuted & set(flag.citations))
    if refuted:
        novelty *= 0.25
    elif seen.denials and seen.denials[0].overlap >= NEAR:
        novelty *= 0.75
    cited = [nearest.ref for nearest in seen.nearest[:2]]
    cited += [refutation.ref for refutation in (*seen.refutations, *seen.denials)[:2]]
    return JudgePosition(
        score=score_of(novelty, seen.weight, prior=0.55),
        confidence=max(confidence(seen, given.missing_sources), 0.8 if refuted else 0.0),
        summary=_summary(seen, bool(refuted)),
        citations=tuple(dict.fromkeys(cited)),
        upheld=upheld,
        overruled=tuple(flag.claim for flag in flags if flag.claim not in upheld),
        reasons=_reasons(seen, bool(refuted)),
    )


def _reasons(seen: Reading, refuted: bool) -> tuple[Revision, ...]:
    """List the changes needed in a revision, most important first."""
    reasons = []
    for refutation in seen.refutations[:2] if refuted else ():
        text = f"Refuted by {refutation.record.citation()}: {quote_text(refutation.sentence)}"
        reasons.append(Revision(change="answer_record", text=text, citations=(refutation.ref,)))
    for near in seen.nearest[:2]:
        if near.overlap >= NEAR:
            text = (
                f"{near.record.citation()} mentions "
                f"{near.list_parts()}{seen.describe_unsearched()}; add a part that it lacks, or "
                "a population or endpoint that it did not study."
            )
            reasons.append(Revision(change="add_part", text=text, citations=(near.ref,)))
    for denial in seen.denials[:2]:
        text = f"Answer this finding: {quote_text(denial.sentence)} ({denial.record.citation()})"
        reasons.append(Revision(change="answer_record", text=text, citations=(denial.ref,)))
    known = [f"{a} with {b}" for (a, b), n in zip(seen.pairs, seen.together, strict=True) if n >= 3]
    if known:
        text = f"Pairs found in three records or more: {', '.join(known[:3])}."
        reasons.append(Revision(change="add_part", text=text))
    if not seen.nearest:
        text = "No literature was retrieved for the parts; describe them with terms used in papers."
        reasons.append(Revision(change="use_other_terms", text=text))
    return tuple(reasons)


def _summary(seen: Reading, refuted: bool) -> str:
    if refuted:
        return "Retrieved work contradicts most of the claim; see the citations."
    alone = [part for part, links in zip(seen.parts, seen.degree, strict=True) if not links]
    apart = (
        f" Not mentioned together with another part in any record: {join_names(alone)}."
        if alone and seen.nearest
        else ""
    )
    counted = ", ".join(f"{name} for {part}" for part, name in seen.kin)
    kin = f" Related terms counted: {counted}." if counted else ""
    several, single = seen.several, seen.single
    if len(seen.parts) == 1:
        return f"Retrieved records that mention the claim's parts: {several}."
    own = "(outside brackets about others' reports)" if seen.aside else ""
    return (
        f"By a search for their names{own}, two or more parts of the claim were found in {several} "
        f"of the retrieved records and one in {single}; {_pairs(seen)}; {seen.names_of_nearest()}. "
        f"This is a count of co-mentions, not a reading of arguments.{apart}{kin}"
    )


def _pairs(seen: Reading) -> str:
    """Count the pairs of parts that no record names together."""
    unseen, pairs = len(seen.unseen_pairs()), len(seen.pairs)
    if not unseen:
        return f"each of {pairs} pairs of parts occurs together in some record"
    were = "was" if unseen == 1 else "were"
    return f"{unseen} of {pairs} pairs of parts {were} found together in no record"


JUDGE = Agent(
    name="judge",
    role=Role.MINI,
    reads=CriticInput,
    returns=JudgePosition,
    prompt=prompt_file(__file__, "panel.md", "judge.md"),
    rule=synthesize,
    check=check_judge,
    spare=("records",),
)
