"""Options and report of a build, as plain typed data."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from kg.sources.base import SourceReport
from sage.core.llm.messages import ModelChoice
from sage.core.models import Strict


class BuildOptions(Strict):
    """Options for a build.

    `tau` is the cosine above which names are merged; `None` uses the default of the mode
    (0.95 guarded, 0.9 paper). `workers` is the number of processes that read PDFs and apply
    rules. `embedder` is `default`, `hashing`, or the name of a sentence-transformers model;
    `none` disables the similarity tier. `chat` is the model of the chat extractor. With
    `broad`, the `rules` extractor also keeps pairs that are likely related although no phrase
    states how, as associations. If `topic` is given, documents that mention too few of its
    concepts are omitted.
    """

    extractor: Literal["rules", "chat"] = "rules"
    broad: bool = False
    as_of: int | None = Field(default=None, ge=1500, le=2200)
    fusion: Literal["guarded", "paper"] = "guarded"
    tau: float | None = Field(default=None, gt=0.0, le=1.0)
    embedder: str = "default"
    prune_below: int = Field(default=3, ge=1)
    ocr: bool = False
    include_retracted: bool = False
    topic: str | None = Field(default=None, min_length=1, max_length=500)
    chunk_tokens: int = Field(default=1500, ge=50)
    chunk_overlap: int = Field(default=150, ge=0)
    workers: int = Field(default=2, ge=1)
    chat: ModelChoice | None = None
    concurrency: int = Field(default=8, ge=1)


class Recipe(Strict):
    """A graph's sources and options, stored with it so that it can be rebuilt.

    Paths are relative to the graph's folder, so that both can be moved together.
    """

    sources: tuple[str, ...]
    out: str
    options: BuildOptions
    ontology: str | None = None
    lexicons: tuple[str, ...] = ()


class Excluded(BaseModel):
    """A document that was omitted, and the reason."""

    path: str
    title: str
    reason: str


class BuildReport(BaseModel):
    """Counts, costs and notes from a build."""

    out: str
    graphml: str
    files: int = 0
    files_read: int = 0
    files_failed: int = 0
    files_skipped: int = 0
    files_cached: int = 0
    documents: int = 0
    duplicates: int = 0
    retracted: int = 0
    screened_out: int = 0
    pages: int = 0
    unread_characters: int = 0
    tiers: dict[str, int] = Field(default_factory=dict)
    chunks: int = 0
    chunks_cached: int = 0
    chunks_failed: int = 0
    triples: int = 0
    triples_negated: int = 0
    triples_speculative: int = 0
    dropped: dict[str, int] = Field(default_factory=dict)
    grounding: float | None = None
    nodes: int = 0
    edges: int = 0
    edges_shown: int = 0
    merges: dict[str, int] = Field(default_factory=dict)
    pruned: dict[str, int] = Field(default_factory=dict)
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None
    seconds: dict[str, float] = Field(default_factory=dict)
    extractor: str = ""
    embedder: str | None = None
    as_of: int | None = None
    notes: list[str] = Field(default_factory=list)
    failures: dict[str, str] = Field(default_factory=dict)
    excluded: list[Excluded] = Field(default_factory=list)
    sources: list[SourceReport] = Field(default_factory=list)
