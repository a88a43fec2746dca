"""Sentences rendered from the fields of the critics' replies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agents.novelty.types import Change, Claim, Novel, Revision
from kg.literature.types import Record
from sage.core.printable import ForeignText, join_names

CLAIMS: dict[Novel, str] = {
    "combination": "claimed new: the combination of {}",
    "population": "claimed new: {} in this population",
    "measurement": "claimed new: the way {} is measured",
    "endpoint": "claimed new: this outcome of {}",
    "direction": "claimed new: the direction of the association of {}",
    "mechanism": "claimed new: a mechanism through {}",
}
CHANGES: dict[Change, str] = {
    "add_part": "Add a part that was not studied in {}.",
    "narrow_population": "Narrow the population to one not studied in {}.",
    "change_endpoint": "Choose an endpoint that was not studied in {}.",
    "answer_record": "Answer the finding of {}.",
    "use_other_terms": "Describe the parts in terms that papers use.",
}


def describe_claim(claim: Claim) -> str:
    """Describe a claim; its citations are the nearest records."""
    named = join_names(ForeignText(part) for part in claim.parts)
    return claim.text or CLAIMS[claim.kind].format(named)


def describe_revision(revision: Revision, records: Mapping[str, Record]) -> str:
    """Describe a proposed change, citing records by author and year."""
    if revision.text:
        return revision.text
    cited: Iterable[str] = (records[ref].citation() for ref in revision.citations if ref in records)
    return CHANGES[revision.change].format(join_names(cited) or "the records found")
