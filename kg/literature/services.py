"""Literature services: PubMed, Europe PMC, and those that plugins register.

The entry point group `sage.services` names functions of an `Access` and a contact address. Each
makes a service, which may search (`LiteratureSource`) or know retractions (`RetractionSource`).
"""

from __future__ import annotations

from typing import Any

from kg.literature.access import Access
from kg.literature.europe_pmc import EuropePmc
from kg.literature.protocol import LiteratureSource, RetractionSource
from kg.literature.pubmed import PubMed
from sage.core.plugins import find_plugins, load_plugin


def load_services(access: Access, email: str | None) -> list[Any]:
    """Every service that a plugin registers, in order of name."""
    return [
        load_plugin("sage.services", name)(access, email) for name in find_plugins("sage.services")
    ]


def make_sources(access: Access, email: str | None) -> list[LiteratureSource]:
    """Every source that can be searched; a contact address and keys raise the published rates."""
    return [
        PubMed(access, email),
        EuropePmc(access, email),
        *(made for made in load_services(access, email) if isinstance(made, LiteratureSource)),
    ]


def make_retraction_sources(access: Access, email: str | None) -> list[RetractionSource]:
    """Every source of second opinions on retractions."""
    return [made for made in load_services(access, email) if isinstance(made, RetractionSource)]
