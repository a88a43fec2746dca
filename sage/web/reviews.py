"""Reviewers' comments and votes, stored in a run's folder or a plugin's database."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sage.core import clock
from sage.core.files import append_line
from sage.core.hooks import require_hooks
from sage.run.folder import RunFolder

if TYPE_CHECKING:
    from sage.settings import Settings

FILE = "reviews.jsonl"
"""Name of the file in a run's folder, with one JSON object per line, oldest first."""


class Reviews:
    """Comments and votes stored in a file in each run's folder."""

    def add(self, run: RunFolder, who: str, **fields: Any) -> None:
        """Store a reviewer's comment or vote, returning once it is on disk."""
        self._write(run, make_line(who, fields))

    def entries(self, run: RunFolder) -> list[dict[str, Any]]:
        """Return a run's comments and votes, oldest first."""
        return [json.loads(line) for line in list_lines(run)]

    def _write(self, run: RunFolder, line: str) -> None:
        append_line(run.root / FILE, line)


def make_line(who: str, fields: dict[str, Any]) -> str:
    """Format a line of the file with the time, the reviewer and the fields."""
    line = {"time": clock.stamp(), "reviewer": who, **fields}
    return json.dumps(line)


def list_lines(run: RunFolder) -> list[str]:
    """Read the lines of a run's file; empty if the file does not exist."""
    path = run.root / FILE
    # Not splitlines, which also splits at separators that a comment may contain.
    return path.read_text(encoding="utf-8").rstrip("\n").split("\n") if path.is_file() else []


@contextmanager
def open_reviews(settings: Settings) -> Iterator[Reviews]:
    """Open the reviews for all runs, in the runs' folders or the configured database."""
    if settings.checkpoint_url is None:
        yield Reviews()
        return
    with require_hooks("checkpoint_url").open_reviews(settings) as reviews:
        yield reviews
