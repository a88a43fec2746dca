"""Screening of papers by explicit rules, with a reason for each exclusion."""

from __future__ import annotations

import re

from kg.literature.topic import score_relevance
from kg.literature.types import Query
from sage_literature.gather.types import Plan
from sage_literature.records import Found

_ENGLISH = frozenset({"en", "eng", "english"})
_NO_RESEARCH = {
    "retraction of publication": "retraction notice", "retraction notice": "retraction notice",
    "retraction": "retraction notice", "published erratum": "erratum", "erratum": "erratum",
    "correction": "erratum", "expression of concern": "expression of concern",
    "editorial": "editorial", "comment": "comment", "letter": "letter", "letter to the editor":
    "letter", "lettersandcomments": "letter", "news": "news", "newspaper article": "news",
    "biography": "biography", "interview": "interview", "obituary": "biography",
    "patient education handout": "patient leaflet", "paratext": "front or back matter",
    "peer-review": "peer review", "dataset": "data set", "grant": "grant",
    "supplementary-materials": "supplement",
}  # fmt: skip
_NOTICE = re.compile(
    r"\W*(retraction|erratum|corrigendum|correction|expression of concern|retraction notice|"
    r"publisher correction|author correction)( (note|notice))?\s*(:|to\b|of:|$)",
    re.IGNORECASE,
)


def find_objection(found: Found, query: Query, plan: Plan) -> str | None:
    """Return the first reason to exclude a paper, or None if it is kept."""
    if found.retracted:
        return f"retracted (according to {', '.join(found.retraction_sources) or 'its title'})"
    kind = next((_NO_RESEARCH[kind] for kind in found.kinds if kind in _NO_RESEARCH), None)
    if kind or _NOTICE.match(found.title):
        return f"not a research article: {kind or 'notice about another paper'}"
    if found.language and found.language not in _ENGLISH:
        return f"not in English ({found.language})"
    if plan.since and found.year and found.year < plan.since:
        return f"published before {plan.since}"
    if not found.abstract and not found.pmcid and not found.pdfs:
        return "no abstract and no open full text"
    # Without an abstract, the title alone cannot show that a concept is missing.
    if found.abstract and (share := score_relevance(query, found)) < plan.threshold:
        named = round(share * len(query.groups()))
        return (
            f"off topic: mentions {named} of {len(query.groups())} concepts, a share below "
            f"{plan.threshold:g}"
        )
    return None


def mark_retracted(records: list[Found]) -> list[Found]:
    """Mark records as retracted if another record is a retraction notice for them."""
    named = {key for found in records for key in found.retracts}
    return [
        found.model_copy(
            update={
                "retracted": True,
                "retraction_sources": (*found.retraction_sources, "its retraction notice"),
            }
        )
        if named.intersection(found.identities()) and not found.retracts and not found.retracted
        else found
        for found in records
    ]
