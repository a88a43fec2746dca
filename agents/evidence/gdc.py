"""Genomic Data Commons (TCGA and others): projects of a primary site.

Rate: none published; kept at 5 requests/s. Docs: docs.gdc.cancer.gov/API.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from kg.literature.reading import as_json, field, text
from sage.core.http.client import Limit, Request, ServiceClient

BASE = "https://api.gdc.cancer.gov"

SITES = {
    "bladder": "Bladder",
    "urothelial": "Bladder",
    "breast": "Breast",
    "lung": "Bronchus and lung",
    "colon": "Colon",
    "colorectal": "Colon",
    "kidney": "Kidney",
    "renal": "Kidney",
    "liver": "Liver and intrahepatic bile ducts",
    "hepatocellular": "Liver and intrahepatic bile ducts",
    "melanoma": "Skin",
    "ovarian": "Ovary",
    "pancrea": "Pancreas",
    "prostate": "Prostate gland",
    "gastric": "Stomach",
    "stomach": "Stomach",
    "glioma": "Brain",
    "head and neck": "Larynx",
}
"""Words of a disease and the primary site that the commons files it under."""


@dataclass(frozen=True)
class Project:
    """One project with its number of cases."""

    id: str
    name: str
    cases: int


def site_of(concepts: tuple[str, ...]) -> str | None:
    """The primary site that the concepts speak of, or None."""
    joined = " ".join(concepts).lower()
    return next((site for word, site in SITES.items() if word in joined), None)


class Gdc:
    """Open cancer genomics projects."""

    name = "gdc"
    limit = Limit(5, 1.0, concurrency=2)

    def __init__(self, *, base_url: str = BASE) -> None:
        self.base_url = base_url.rstrip("/")

    async def projects(self, client: ServiceClient, site: str) -> list[Project]:
        """Projects of a primary site, the largest first."""
        filters = {"op": "in", "content": {"field": "primary_site", "value": [site]}}
        request = Request(
            self.name,
            self.limit,
            f"{self.base_url}/projects",
            params={
                "filters": json.dumps(filters, separators=(",", ":")),
                "fields": "project_id,name,summary.case_count",
                "size": 50,
                "format": "json",
            },
        )
        found = await client.fetch(request, self._read)
        return sorted(found, key=lambda project: -project.cases)

    def _read(self, body: bytes) -> list[Project]:
        hits = field(self.name, as_json(self.name, body), "data.hits", list)
        return [
            Project(
                id=field(self.name, hit, "project_id", str),
                name=text(hit.get("name")),
                cases=field(self.name, hit, "summary.case_count", int),
            )
            for hit in hits
        ]
