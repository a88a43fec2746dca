"""All sources by name."""

from __future__ import annotations

from kg.literature.access import Access
from kg.literature.arxiv import Arxiv
from kg.literature.biorxiv import Biorxiv
from kg.literature.crossref import Crossref
from kg.literature.europe_pmc import EuropePmc
from kg.literature.openalex import OpenAlex
from kg.literature.protocol import Catalog, LiteratureSource
from kg.literature.pubmed import PubMed
from kg.literature.semantic_scholar import SemanticScholar

NAMES = ("pubmed", "semantic_scholar", "europe_pmc", "biorxiv", "arxiv", "crossref")
"""The six databases of SAGE, 3.2.5."""


def make_sources(access: Access, email: str | None) -> tuple[LiteratureSource, ...]:
    """The six sources; a contact address and keys raise the published rates."""
    return (*_searched_and_gathered(access, email), Arxiv(), Crossref(email=email))


def make_catalogs(access: Access, email: str | None) -> tuple[Catalog, ...]:
    """The five that can be read to the last page, those whose word on a type counts most first."""
    pubmed, semantic_scholar, europe_pmc, biorxiv = _searched_and_gathered(access, email)
    return pubmed, europe_pmc, biorxiv, make_retraction_source(access, email), semantic_scholar


def _searched_and_gathered(
    access: Access, email: str | None
) -> tuple[PubMed, SemanticScholar, EuropePmc, Biorxiv]:
    return (
        PubMed(base_url=access.pubmed_url, api_key=access.key("ncbi"), email=email),
        SemanticScholar(
            base_url=access.semantic_scholar_url, api_key=access.key("semantic_scholar")
        ),
        EuropePmc(base_url=access.europe_pmc_url),
        Biorxiv(base_url=access.biorxiv_url, europe_pmc_url=access.europe_pmc_url),
    )


def make_retraction_source(access: Access, email: str | None) -> OpenAlex:
    """The second opinion on retractions."""
    return OpenAlex(base_url=access.openalex_url, api_key=access.key("openalex"), email=email)
