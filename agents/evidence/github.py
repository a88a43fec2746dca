"""GitHub: is a repository alive?

Rate: 60 requests an hour without a token, 5,000 with one. Docs: docs.github.com/rest.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date

from kg.literature.reading import as_json, day_of, field
from sage.core.http.client import Limit, Request, ServiceClient

BASE = "https://api.github.com"
_NAME = re.compile(r"github\.com[/:]([A-Za-z0-9_.-]{1,64})/([A-Za-z0-9_.-]{1,100})")


@dataclass(frozen=True)
class Repository:
    """Activity of a repository. `idle_days` counts from its last push to `today`."""

    name: str
    stars: int
    open_issues: int
    archived: bool
    pushed: date | None

    def idle_days(self, today: date) -> int | None:
        """Days since the last push."""
        return (today - self.pushed).days if self.pushed else None


def repository_of(url: str) -> str | None:
    """ "owner/name" out of a repository's address."""
    match = _NAME.search(url)
    return f"{match[1]}/{match[2].removesuffix('.git')}" if match else None


class GitHub:
    """Repository facts."""

    name = "github"

    def __init__(self, *, base_url: str = BASE, token: str | None = None) -> None:
        self.base_url = base_url.rstrip("/")
        self.limit = Limit(5000 if token else 60, 3600.0, concurrency=2)
        self._secret = {"Authorization": f"Bearer {token}"} if token else {}

    async def repository(self, client: ServiceClient, name: str) -> Repository:
        """The repository `owner/name`.

        Raises
        ------
        ValueError
            If `name` is not of the form owner/name.
        """
        if not re.fullmatch(r"[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+", name) or ".." in name:
            raise ValueError(f'"{name}" is not owner/name')
        request = Request(
            self.name,
            self.limit,
            f"{self.base_url}/repos/{name}",
            headers={"Accept": "application/vnd.github+json"},
            secret_headers=self._secret,
        )
        return await client.fetch(request, self._read)

    def _read(self, body: bytes) -> Repository:
        one = as_json(self.name, body)
        return Repository(
            name=field(self.name, one, "full_name", str),
            stars=field(self.name, one, "stargazers_count", int),
            open_issues=field(self.name, one, "open_issues_count", int),
            archived=field(self.name, one, "archived", bool) if "archived" in one else False,
            pushed=day_of(field(self.name, one, "pushed_at", (str, type(None)))),
        )
