"""Literature services: PubMed, Europe PMC, and services registered by plugins.

The `sage.services` entry point group lists functions that take an `Access` and a contact
address. Each returns a service that can be searched (`LiteratureSource`) or provides
retractions (`RetractionSource`).
"""

from __future__ import annotations

from typing import Any

from kg.literature.access import Access
from kg.literature.europe_pmc import EuropePmc
from kg.literature.protocol import LiteratureSource, RetractionSource
from kg.literature.pubmed import PubMed
from sage.core.plugins import find_plugins, load_plugin


def load_services(access: Access, email: str | None) -> list[Any]:
    """Load every service registered by a plugin, in name order."""
    return [
        load_plugin("sage.services", name)(access, email) for name in find_plugins("sage.services")
    ]


def make_sources(access: Access, email: str | None) -> list[LiteratureSource]:
    """Create all searchable sources; a contact address and keys allow higher request rates."""
    return [
        PubMed(access, email),
        EuropePmc(access, email),
        *(made for made in load_services(access, email) if isinstance(made, LiteratureSource)),
    ]


def make_retraction_sources(access: Access, email: str | None) -> list[RetractionSource]:
    """Create all sources that provide retraction flags."""
    return [made for made in load_services(access, email) if isinstance(made, RetractionSource)]
