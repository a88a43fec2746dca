"""The candidates of a run and their ranking, as shown in the report."""

from __future__ import annotations

from agents.scientist.rank import Ranking
from sage.core.files import read_json
from sage.core.models import read_model
from sage.report.facts import Facts
from sage.run.folder import RunFolder

PARTS = ("power", "plausibility", "understudied", "relevance", "expected_information")


def rankings(folder: RunFolder) -> list[Ranking]:
    """Load every ranking in the run, in the order in which the scientist was called.

    Candidates edited by a reviewer are not shown as drafted, because a different claim was
    tested.

    Raises
    ------
    InputError
        If a ranking file is damaged.
    """
    paths = (folder.root / "outputs").glob("candidates-h*.json")
    edited = _find_edited(folder)
    found = []
    for path in sorted(paths, key=lambda path: (len(path.name), path.name)):
        ranking = read_model(path, Ranking)
        ranked = tuple(
            candidate.model_copy(update={"statement": CHANGED})
            if candidate.hypothesis_id in edited
            else candidate
            for candidate in ranking.ranked
        )
        found.append(ranking.model_copy(update={"ranked": ranked}))
    return found


CHANGED = "Changed at review; the rank is that of the draft."


def _find_edited(folder: RunFolder) -> set[str]:
    """Find the hypotheses edited by a reviewer."""
    path = folder.output("state")
    if not path.exists():
        return set()
    decisions = read_json(path).get("decisions", [])
    return {item["hypothesis_id"] for item in decisions if item["action"] == "edit"}


def read_candidates(folder: RunFolder, facts: Facts) -> list[Ranking]:
    """Load the rankings, adding their numbers to the facts as `candidatesN.placeM`, from 1."""
    found = rankings(folder)
    for number, ranking in enumerate(found, 1):
        key = f"candidates{number}"
        facts.add(f"{key}.wanted", ranking.wanted)
        facts.add(f"{key}.drafted", ranking.drafted)
        facts.add(f"{key}.set_aside", len(ranking.set_aside))
        for candidate in ranking.ranked:
            place = f"{key}.place{candidate.place}"
            facts.add(f"{place}.place", candidate.place)
            for part in PARTS:
                value = getattr(candidate.parts, part)
                facts.add(f"{place}.{part}", value, f"{value:.2f}")
                if candidate.hypothesis_id:
                    facts.add(f"{candidate.hypothesis_id}.rank.{part}", value, f"{value:.2f}")
            if candidate.parts.detectable is not None:
                facts.add(f"{place}.detectable", candidate.parts.detectable)
            if candidate.parts.studied is not None:
                facts.add(f"{place}.studied", candidate.parts.studied)
            if candidate.rating is not None:
                facts.add(f"{place}.rating", round(candidate.rating))
    return found
