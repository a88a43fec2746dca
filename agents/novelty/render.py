"""The debate in words, for the report and the terminal."""

from __future__ import annotations

from agents.novelty.types import CRITICS, DebateOutcome, Turn


def to_markdown(outcome: DebateOutcome, title: str = "Novelty debate") -> str:
    """The transcript as Markdown: scores per round, who said what citing what, the records.

    Retracted records are marked where they are listed and named once more at the end; sources
    that did not answer are named with the reason.
    """
    lines = [f"# {title}", "", _verdict(outcome), ""]
    for one in outcome.rounds:
        given = [(critic, one.scores[critic]) for critic in CRITICS if critic in one.scores]
        scores = ", ".join(f"{critic} {score:.1f}" for critic, score in given)
        name = "Opening" if one.number == 0 else f"Round {one.number}"
        lines += [f"## {name}", "", f"Scores: {scores}; sigma {one.sigma:.2f}.", ""]
        for turn in outcome.transcript:
            if turn.round == one.number:
                lines += [*_turn(turn), ""]
    lines += ["## Records", ""]
    lines += [f"- {one.ref}: {one.record.citation()}" for one in outcome.records] or ["None."]
    if outcome.retracted:
        lines += ["", f"Retracted: {', '.join(outcome.retracted)}."]
    for missing in outcome.missing_sources:
        lines += ["", f"Not answered in some round: {missing.name} ({missing.reason})."]
    lines += [text for note in outcome.notes for text in ("", note)]
    return "\n".join(lines).rstrip() + "\n"


def _verdict(outcome: DebateOutcome) -> str:
    how = f"after {outcome.debate_rounds} rounds of debate" if outcome.debated else "undebated"
    text = f"Score {outcome.score:.1f} of 10 ({how}, critics: {outcome.reasoner})"
    if outcome.specious:
        text += f"; upheld as specious: {', '.join(outcome.specious)} (-{outcome.penalty:g})"
    if outcome.below_threshold:
        text += f"; below the threshold of {outcome.threshold:g}"
    return text + "."


def _turn(turn: Turn) -> list[str]:
    position = turn.position
    head = f"**{turn.critic.capitalize()}** ({position.score:.1f}, "
    lines = [f"{head}confidence {position.confidence:.2f}): {position.summary}"]
    if position.kind == "prover":
        said = [(f"{one.id}: {one.text}", one.citations) for one in position.claims]
    elif position.kind == "verifier":
        said = [
            (f"{one.claim} {one.verdict}: {one.text}", one.citations) for one in position.answers
        ]
        said += [
            (f"{one.claim} flagged as specious: {one.reason}", one.citations)
            for one in position.specious
        ]
    else:
        said = [(f"{claim}: specious, upheld", ()) for claim in position.upheld]
        said += [(f"{claim}: flag overruled", ()) for claim in position.overruled]
        if position.citations:
            lines[0] += f" [{', '.join(position.citations)}]"
    for text, refs in said:
        lines.append(f"- {text}" + (f" [{', '.join(refs)}]" if refs else ""))
    lines += [f"- rejected: {one}" for one in turn.rejected]
    return lines
