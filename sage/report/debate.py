"""The novelty debate, as shown in the report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from agents.core.types import Citation
from agents.core.words import ModelText
from agents.novelty.render import describe_claim
from agents.novelty.types import Claim
from sage.report.facts import Facts


@dataclass
class Point:
    """A claim, answer or flag, worded by SAGE, with its citations."""

    text: str
    citations: list[Citation] = field(default_factory=list)


@dataclass
class Turn:
    """One critic's turn in the debate."""

    critic: str
    when: str
    summary: str | ModelText
    points: list[Point]


def _citation(record: dict[str, Any]) -> Citation:
    return Citation(
        title=record["title"],
        year=record.get("year"),
        doi=record.get("doi"),
        pmid=record.get("pmid"),
        retracted=bool(record.get("retracted")),
    )


def debate_sources(debate: dict[str, Any]) -> list[Citation]:
    """Collect the records supplied to the critics."""
    return [_citation(record["record"]) for record in debate["records"]]


NOT_JUDGED = "not judged"


def debate_facts(debate: dict[str, Any], name: str, facts: Facts) -> None:
    """Add the debate's scores, deviations and counts to the facts."""
    judged = debate.get("judged", True)
    for key in ("score", "threshold"):
        facts.add(f"{name}.novelty.{key}", debate[key], f"{debate[key]:.1f}".removesuffix(".0"))
    for key in ("initial_sigma", "sigma", "penalty"):
        facts.add(f"{name}.novelty.{key}", debate[key], f"{debate[key]:.2f}")
    if not judged:
        facts.add(f"{name}.novelty.score", None, NOT_JUDGED)
    for axis in ("plausibility", "interest"):
        value = debate.get(axis) if judged else None
        shown = NOT_JUDGED if value is None else f"{value:.1f} of 10"
        facts.add(f"{name}.{axis}.judge", value, shown)
    coverage = debate.get("coverage", {})
    facts.add(f"{name}.novelty.relevant", len(coverage.get("relevant", debate["records"])))
    facts.add(f"{name}.novelty.most_confident", coverage.get("most_confident", 1.0))
    facts.add(f"{name}.novelty.rounds", len(debate["rounds"]) - 1)
    facts.add(f"{name}.novelty.records", len(debate["records"]))
    facts.add(f"{name}.novelty.contradictions", debate["contradictions"])
    for part in ("initial", "final"):
        for critic, score in debate[part].items():
            facts.add(
                f"{name}.novelty.{part}.{critic}",
                score if judged else None,
                f"{score:.1f}" if judged else NOT_JUDGED,
            )


def describe_novelty(debate: dict[str, Any]) -> str:
    """Describe whether the claim counts as new, with the scores as `[[key]]`."""
    searched = ", ".join(debate.get("coverage", {}).get("searched") or debate["served_by"])
    if not debate.get("judged", True):
        return f"Novelty not judged: absence from what was searched ({searched}) is not novelty."
    basis = "from co-mentions" if debate["reasoner"] == "rules" else "judged by a model"
    new = "Not new" if debate["below_threshold"] else "New"
    return (
        f"{new} by SAGE's measure: [[novelty.score]] of [[scale.ten]], [[novelty.threshold]]"
        f" needed ({basis}; searched: {searched})."
    )


def describe_papers(
    debate: dict[str, Any],
    name: str,
    facts: Facts,
    elsewhere: Callable[[str], object],
    reported: Sequence[tuple[Citation, bool | None]],
) -> str:
    """Describe how many of the retrieved papers study the claim, with counts as `[[key]]`.

    Parameters
    ----------
    elsewhere : returns true for a text about cancers other than the question's
    reported : findings on the claim's variables, with their agreement with its direction
    """
    coverage = debate.get("coverage", {})
    if coverage.get("foreign"):
        return (
            f"{coverage['foreign']} is found in none of the [[novelty.records]] papers retrieved."
        )
    refs = coverage.get("relevant", [item["ref"] for item in debate["records"]])
    found = [item["record"] for item in debate["records"] if item["ref"] in refs]
    other = sum(
        bool(elsewhere(". ".join((record["title"], record["abstract"], *record["snippets"]))))
        for record in found
    )
    facts.add(f"{name}.novelty.elsewhere", other)
    text = "[[novelty.relevant]] of [[novelty.records]] papers retrieved study part of this claim"
    if other:
        text += f" ({'all' if other == len(found) else '[[novelty.elsewhere]]'} in other cancers)"
    if reported:
        keys = {_citation(record).key for record in found}
        same, opposite = (
            keys & {cited.key for cited, agrees in reported if agrees is wanted}
            for wanted in (True, False)
        )
        for part, count in (
            ("same", len(same - opposite)),
            ("opposite", len(opposite)),
            ("neither", len(keys - same - opposite)),
        ):
            facts.add(f"{name}.novelty.{part}", count)
        text += (
            ": [[novelty.same]] report its direction for one of its variables,"
            " [[novelty.opposite]] report the opposite direction or no association, and"
            " [[novelty.neither]] report neither"
        )
    if debate["contradictions"]:
        text += "; findings of [[novelty.contradictions]] speak against it or a part of it"
    return f"{text}."


AGAINST = {
    "refutes": "against",
    "weakens": "in part against",
    "stands": "leaves it standing",
    "overlaps": "overlaps",
}
"""Wording for each verifier answer; a sentence from a record cannot refute by itself."""


ORDINALS = ("initial assessment", "first round", "second round", "third round")


def list_turns(debate: dict[str, Any]) -> list[Turn]:
    """List the transcript's turns, with the citations for each point resolved to records."""
    records = {record["ref"]: _citation(record["record"]) for record in debate["records"]}
    found = []
    for turn in debate["transcript"]:
        position = turn["position"]
        points = [
            Point(
                describe_claim(Claim.model_validate(claim)),
                _resolve(claim["citations"], records),
            )
            for claim in position.get("claims", [])
        ]
        points += [
            Point(
                ": ".join(filter(None, (AGAINST[answer["verdict"]], answer["text"]))),
                _resolve(answer["citations"], records),
            )
            for answer in position.get("answers", [])
        ]
        points += [
            Point(
                ": ".join(filter(None, ("specious", item["reason"]))),
                _resolve(item["citations"], records),
            )
            for item in position.get("specious", [])
        ]
        if position.get("citations"):
            points.append(Point("rests on", _resolve(position["citations"], records)))
        number = turn["round"]
        when = ORDINALS[number] if number < len(ORDINALS) else "a later round"
        found.append(Turn(turn["critic"], when, _words(position["summary"]), points))
    return found


def _words(value: Any) -> str | ModelText:
    """Return SAGE's own text unchanged, and a model's text with the model's name."""
    return value if isinstance(value, str) else ModelText.model_validate(value)


def _resolve(refs: list[str], records: dict[str, Citation]) -> list[Citation]:
    return [records[ref] for ref in refs if ref in records]
