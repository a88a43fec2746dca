"""Tool that looks up the meaning of names in the bundled ontology, without a graph."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from kg.lexicon.asked import Asked, Between, describe_names
from mcp_servers.context import ToolContext
from mcp_servers.knowledge.graphs import SUITE
from mcp_servers.spec import Resources, Validity, tool
from sage.core.data import data_root
from sage.core.models import Strict

Name = Annotated[str, Field(min_length=1, max_length=400)]


class TermsInput(Strict):
    """Names to look up."""

    names: list[Name] = Field(
        min_length=1, max_length=20, description="Names, or sentences that contain names"
    )


class TermsResult(BaseModel):
    """Meaning of each name, and relations between known names."""

    names: list[Asked]
    between: list[Between]
    unknown: list[str]


@tool(
    "ontology_terms",
    SUITE,
    "1.0.0",
    "Look up the meaning of names in the ontology (concept, definition, synonyms, public "
    "identifiers) and how two or more are related: same concept, broader, opposite, or none of "
    "these.",
    Resources(memory_mb=1024, seconds_per_item=2),
    Validity(known_failures=("A name that is not in the bundled ontology has no meaning",)),
    title="Look up names in the ontology",
)
def ontology_terms(given: TermsInput, context: ToolContext) -> TermsResult:
    """Look up names in the bundled ontology."""
    from kg.lexicon.ontology import Ontology

    names, between = describe_names(given.names, Ontology.load(data_root() / "ontology"))
    unknown = [answer.name for answer in names if not answer.meanings]
    return TermsResult(names=names, between=between, unknown=unknown)
