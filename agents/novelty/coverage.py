"""Coverage of a panel's searches, and the confidence it supports."""

from __future__ import annotations

from collections.abc import Sequence

from agents.core.types import ExpandedHypothesis
from agents.novelty.parts import body_key, parts_of
from agents.novelty.types import CitedRecord, Coverage, Position
from kg.lexicon.ontology import Ontology
from kg.literature.types import MissingSource
from kg.types import EntityType

LOCAL = "local index"
LOCAL_ALONE = 0.5
"""Highest confidence if only the run's own notes were searched.

A finding missing from the notes may still be known.
"""
SERVICES = 0.9
"""Highest confidence if literature services answered; 10% less for each that did not."""
NOTHING = 0.3
"""Highest confidence if no retrieved record is relevant to the claim."""


def measure_coverage(
    expanded: ExpandedHypothesis,
    records: Sequence[CitedRecord],
    *,
    served: Sequence[str],
    missing: Sequence[MissingSource],
    local_records: int | None,
    ontology: Ontology | None = None,
) -> Coverage:
    """Measure the coverage of a panel's searches so far."""
    relevant = relevant_refs(expanded, records, ontology)
    foreign = foreign_to(expanded, records, ontology) if set(served) <= {LOCAL} else ""
    if foreign:
        relevant = ()
    if not relevant:
        most = NOTHING
    elif set(served) <= {LOCAL}:
        most = LOCAL_ALONE
    else:
        most = SERVICES * 0.9 ** len(missing)
    sized = f"{LOCAL} of {local_records} records" if local_records is not None else LOCAL
    if foreign:
        sized += f", {foreign} in none of those found"
    return Coverage(
        searched=tuple(sized if name == LOCAL else name for name in served),
        missing=tuple(f"{item.name}: {item.reason}" for item in missing),
        most_confident=round(most, 2),
        relevant=relevant,
        foreign=foreign,
    )


def foreign_to(
    expanded: ExpandedHypothesis, records: Sequence[CitedRecord], ontology: Ontology | None
) -> str:
    """Return the claim's disease if no record mentions it.

    An index of papers on another disease cannot show what is known about this disease. The
    result is empty if a record mentions the disease, or if the claim names none.
    """
    keys = [body_key(cited.record) for cited in records]
    for part in parts_of(expanded, ontology):
        entry = ontology.find(part.name) if ontology is not None else None
        if entry is None or entry.type is not EntityType.DISEASE:
            continue
        if keys and not any(part.find_mention(key) for key in keys):
            return entry.name
    return ""


def relevant_refs(
    expanded: ExpandedHypothesis, records: Sequence[CitedRecord], ontology: Ontology | None
) -> tuple[str, ...]:
    """Find records that are relevant to the claim beyond its disease and survival.

    A record must mention a specific part (neither disease nor endpoint) and, if the claim has
    other parts, at least one of them. For the definition of a mention, see
    `kg.literature.expansion.list_related`.
    """
    parts = parts_of(expanded, ontology)
    telling = [part.role == "subject" for part in parts]
    if not any(telling):
        telling = [True] * len(parts)
    found = []
    for cited in records:
        key = body_key(cited.record)
        hits = [part.find_mention(key, loose=True) is not None for part in parts]
        named = any(hit and subject for hit, subject in zip(hits, telling, strict=True))
        if named and sum(hits) >= min(2, len(parts)):
            found.append(cited.ref)
    return tuple(found)


def explain_irrelevance(coverage: Coverage) -> str:
    """Explain why no record is relevant to the claim."""
    if coverage.foreign:
        return (
            f"no literature on {coverage.foreign} is at hand, for no record names it; "
            "`sage literature gather` would get it"
        )
    return (
        "none of the records found mentions an exposure of the claim together with another part "
        "of it"
    )


def within_coverage(position: Position, coverage: Coverage) -> tuple[Position, float | None]:
    """Cap the confidence at the limit set by the coverage; also return the original if lowered."""
    if position.confidence <= coverage.most_confident:
        return position, None
    allowed = position.model_copy(update={"confidence": coverage.most_confident})
    return allowed, position.confidence
