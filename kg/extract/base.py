"""Extraction results, and the protocol that both extractors implement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pydantic import Field

from kg.corpus.chunks import Chunk
from kg.types import EntityType, Polarity
from sage.core.models import Strict

MIN_CONFIDENCE = 0.5  # SAGE, 3.1: triples with c >= 0.5 are retained


@dataclass(frozen=True, slots=True)
class Mention:
    """An entity mentioned in a text; `start:end` are offsets in that text."""

    start: int
    end: int
    name: str
    type: EntityType
    entity_id: str | None = None


class Statement(Strict):
    """A triple as read in a chunk; `start:end` is its evidence span within the chunk."""

    head: str
    head_type: EntityType
    relation_text: str
    relation: str
    tail: str
    tail_type: EntityType
    confidence: float = Field(ge=0.0, le=1.0)
    polarity: Polarity = Polarity.NEUTRAL
    negated: bool = False
    speculative: bool = False
    start: int
    end: int


@dataclass(slots=True)
class Extraction:
    """The result for a chunk; a failure has `error` set, to distinguish it from an empty result."""

    statements: list[Statement] = field(default_factory=list)
    mentions: list[Mention] = field(default_factory=list)
    dropped: dict[str, int] = field(default_factory=dict)
    error: str | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def drop(self, reason: str, count: int = 1) -> None:
        """Count dropped statements under a given reason."""
        self.dropped[reason] = self.dropped.get(reason, 0) + count


Emit = Callable[[Chunk, Extraction], None]


class Extractor(Protocol):
    """Reader of chunks that emits one `Extraction` per chunk, in any order.

    `key` identifies everything besides the chunk itself that determines the result, so that results
    can be cached by chunk hash and key.
    """

    @property
    def name(self) -> str:
        """Short name: `rules` or `chat`."""

    @property
    def key(self) -> str:
        """Hash of everything that affects results: version, lexicon, prompt, model and schema."""

    @property
    def shown(self) -> float:
        """Support from which statements belong to a graph's default view."""

    def extract(self, chunks: Sequence[Chunk], emit: Emit) -> None:
        """Call `emit` once per chunk, as results arrive."""
