"""All sources by name."""

from __future__ import annotations

from kg.literature.arxiv import Arxiv
from kg.literature.biorxiv import Biorxiv
from kg.literature.crossref import Crossref
from kg.literature.europe_pmc import EuropePmc
from kg.literature.openalex import OpenAlex
from kg.literature.protocol import LiteratureSource
from kg.literature.pubmed import PubMed
from kg.literature.semantic_scholar import SemanticScholar

NAMES = ("pubmed", "semantic_scholar", "europe_pmc", "biorxiv", "arxiv", "crossref")
"""The six databases of SAGE, 3.2.5."""


def all_sources(
    *,
    email: str | None = None,
    ncbi_key: str | None = None,
    semantic_scholar_key: str | None = None,
) -> tuple[LiteratureSource, ...]:
    """The six sources; a contact address and keys raise the published rates."""
    return (
        PubMed(api_key=ncbi_key, email=email),
        SemanticScholar(api_key=semantic_scholar_key),
        EuropePmc(),
        Biorxiv(),
        Arxiv(),
        Crossref(email=email),
    )


def retraction_source(*, email: str | None = None, key: str | None = None) -> OpenAlex:
    """The second opinion on retractions."""
    return OpenAlex(api_key=key, email=email)
