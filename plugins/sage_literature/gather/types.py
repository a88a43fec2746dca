"""Plan, records, and report of a gathering."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sage.core.models import Name, Passage, Strict

Stage = Literal["screening", "full text"]


class Plan(Strict):
    """Topic and limits of a gathering.

    `most` limits the records per catalog and the papers kept. `threshold` is the fraction of
    the topic's concepts that a paper must mention (`topic.score_relevance`).
    """

    topic: Name = Field(min_length=1, max_length=500)
    since: int | None = Field(default=None, ge=1500, le=2200)
    most: int = Field(default=1000, ge=1, le=100_000)
    threshold: float = Field(default=0.6, ge=0.0, le=1.0)
    pdfs: bool = True


class Kept(Strict):
    """A paper's entry in the folder; `file` is relative to it, or None after a removal.

    `tried` lists the sources that returned no full text, with their replies. `pending` marks
    a source that did not respond, so that it is tried again.
    """

    keys: tuple[str, ...]
    title: Name
    file: str | None
    text: Literal["full text", "abstract", "none"]
    source: str
    license: str
    tried: dict[str, str] = Field(default_factory=dict)
    pending: bool = False
    retracted: bool = False


class LeftOut(Strict):
    """A paper excluded from the corpus, with the stage and the reason."""

    title: Name
    year: int | None
    keys: tuple[str, ...]
    sources: tuple[str, ...]
    stage: Stage
    reason: Passage


class CatalogFlow(Strict):
    """Records read from a catalog. `problem` explains why it is missing or incomplete."""

    name: str
    asked: Passage
    total: int = 0
    taken: int = 0
    unread: int = 0
    problem: Passage | None = None
    notes: tuple[Passage, ...] = ()


class Change(Strict):
    """A paper's change in an update."""

    what: Literal["new", "retracted"]
    title: Name
    keys: tuple[str, ...]
    why: Passage = ""


class Flow(Strict):
    """A PRISMA 2020 flow that counts every record once, from identification to the corpus.

    `left_out` counts papers by stage and reason; `changes` lists the changes from the last
    update.
    """

    plan: Plan
    concepts: tuple[tuple[str, ...], ...]
    round: int
    date: str
    catalogs: tuple[CatalogFlow, ...]
    identified: int
    duplicates: int
    screened: int
    left_out: dict[str, dict[str, int]]
    sought: int
    retrieved: int
    included: int
    abstracts: int
    texts: dict[Name, int]
    licenses: dict[Name, int]
    pending: int = 0
    notes: tuple[Passage, ...] = ()
    changes: tuple[Change, ...] = ()

    @property
    def earlier(self) -> int:
        """Number of records found by searches in earlier rounds but not in this round."""
        return self.identified - sum(catalog.taken for catalog in self.catalogs)

    @property
    def missing(self) -> tuple[CatalogFlow, ...]:
        """Catalogs that did not return complete results."""
        return tuple(catalog for catalog in self.catalogs if catalog.problem)
