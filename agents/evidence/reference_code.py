"""Reference implementations of methods: Hugging Face Papers.

Papers With Code closed in July 2025 and its address now leads to Hugging Face's paper pages, which
is why they serve here: they are the designated successor, they are alive, they link a paper to its
repository, and they have a search that needs no key. What was lost with Papers With Code (tables
of results per task) has no successor, and is not claimed.

Rate: kept at 1 request/s. Docs: huggingface.co/docs/hub/paper-pages.
"""

from __future__ import annotations

from dataclasses import dataclass

from kg.literature.boolean import plain
from kg.literature.reading import as_json, field, text
from sage.core.http.client import Limit, Request, ServiceClient


@dataclass(frozen=True)
class Implementation:
    """A paper with the repository that implements it, if one is linked."""

    arxiv: str
    title: str
    repository: str | None
    stars: int


class ReferenceCode:
    """Papers on a method, those with code first. Without `base_url`, the hub library's address."""

    name = "reference_code"
    limit = Limit(1, 1.0, concurrency=1)

    def __init__(self, *, base_url: str | None = None) -> None:
        self._base_url = base_url

    async def implementations(
        self, client: ServiceClient, method: str, k: int = 5
    ) -> list[Implementation]:
        """Papers on `method` with their linked repositories."""
        request = Request(
            self.name,
            self.limit,
            f"{self._address()}/api/papers/search",
            params={"q": plain(method)[:200]},
        )
        found = await client.fetch(request, self._read)
        return sorted(
            found,
            key=lambda implementation: (implementation.repository is None, -implementation.stars),
        )[:k]

    def _address(self) -> str:
        if self._base_url is None:
            from huggingface_hub.constants import ENDPOINT

            self._base_url = str(ENDPOINT)
        return self._base_url.rstrip("/")

    def _read(self, body: bytes) -> list[Implementation]:
        listed = as_json(self.name, body)
        if not isinstance(listed, list):
            raise TypeError("an object where a list is documented")
        found = []
        for item in listed:
            paper = field(self.name, item, "paper", dict)
            stars = paper.get("githubStars")
            found.append(
                Implementation(
                    arxiv=field(self.name, paper, "id", str),
                    title=text(paper.get("title")),
                    repository=text(paper.get("githubRepo")) or None,
                    stars=stars if isinstance(stars, int) else 0,
                )
            )
        return found
