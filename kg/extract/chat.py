"""The `chat` extractor: a language model with structured output, behind an injected completion.

This package knows no model client. The caller passes an async callable; replies are validated here,
a reply that fails its schema goes back with the error a bounded number of times, and what still
fails is a failure of its chunk, recorded and retried on the next build. The extractor's key hashes
prompt, model and schema, the store adds the chunk's text: nothing is paid for twice.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kg.corpus.chunks import Chunk, count_tokens
from kg.extract.align import align
from kg.extract.base import MIN_CONFIDENCE, Emit, Extraction, Statement
from kg.lexicon.ontology import Ontology
from kg.printable import one_line, quoted
from kg.types import EntityType, Polarity
from sage.core.errors import FaultError
from sage.core.models import Strict

PROMPT = "triples.v1.md"
VERSION = "3"
_REPLY_TOKENS = 60  # of one triple in a reply, for the estimate
_TRIPLES_PER_SENTENCE = 0.5


class Reply(Strict):
    """What a completion returns: the text (JSON), and what it cost."""

    content: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None


class Completion(Protocol):
    """An async model call with structured output.

    `schema` is the JSON schema that the reply must follow. Raises whatever the client raises;
    the chunk then counts as failed.
    """

    async def __call__(self, *, system: str, user: str, schema: dict[str, Any]) -> Reply: ...


class ModelTriple(BaseModel):
    """One relation in a model's reply."""

    model_config = ConfigDict(extra="ignore")

    head: str
    head_type: EntityType
    relation_text: str
    relation: str
    tail: str
    tail_type: EntityType
    confidence: float = Field(ge=0.0, le=1.0)
    polarity: Polarity
    negated: bool
    speculative: bool
    evidence: str


class ModelReply(BaseModel):
    """The reply as a whole."""

    triples: list[ModelTriple]


@dataclass(frozen=True, slots=True)
class Price:
    """Currency units per million tokens."""

    prompt: float = 0.0
    completion: float = 0.0

    def of(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Cost of so many tokens."""
        return (prompt_tokens * self.prompt + completion_tokens * self.completion) / 1e6


class Estimate(BaseModel):
    """What the extraction of the chunks not yet read will take, before it starts."""

    chunks: int
    prompt_tokens: int
    completion_tokens: int
    cost: float


@dataclass(slots=True)
class Ledger:
    """What was spent so far. `limit` stops the extraction before it is exceeded."""

    price: Price = field(default_factory=Price)
    limit: float | None = None
    requests: int = 0
    failures: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0

    def add(self, reply: Reply) -> None:
        """Count a reply; its own cost if the client knows it, else by price."""
        self.requests += 1
        self.prompt_tokens += reply.prompt_tokens
        self.completion_tokens += reply.completion_tokens
        own = reply.cost
        self.cost += (
            own if own is not None else self.price.of(reply.prompt_tokens, reply.completion_tokens)
        )

    @property
    def spent(self) -> bool:
        """Whether the limit is reached."""
        return self.limit is not None and self.cost >= self.limit


class ChatExtractor:
    """Extracts statements by a model.

    Parameters
    ----------
    completion : the model call
    model : its name, part of the cache key
    concurrency : calls in flight at once
    attempts : how often a chunk may ask before it counts as failed (schema errors included)
    timeout : seconds for one call
    """

    name = "chat"

    def __init__(
        self,
        ontology: Ontology,
        completion: Completion,
        *,
        model: str,
        concurrency: int = 8,
        attempts: int = 3,
        timeout: float = 180.0,
        ledger: Ledger | None = None,
    ) -> None:
        self._ontology = ontology
        self._completion = completion
        self._concurrency = concurrency
        self._attempts = attempts
        self._timeout = timeout
        self.ledger = ledger or Ledger()
        self._schema = ModelReply.model_json_schema()
        template = (Path(__file__).parent / "prompts" / PROMPT).read_text(encoding="utf-8")
        self._system = template.format(
            types=", ".join(EntityType),
            relations=", ".join(relation.canonical for relation in ontology.relations()),
        )
        parts = [VERSION, self._system, model, json.dumps(self._schema, sort_keys=True)]
        self._key = f"chat-{hashlib.sha256(chr(31).join(parts).encode()).hexdigest()[:16]}"

    @property
    def key(self) -> str:
        """Hash of prompt, model, schema and version."""
        return self._key

    def estimate(self, chunks: Sequence[Chunk]) -> Estimate:
        """Tokens and cost of reading `chunks`, from their lengths."""
        overhead = count_tokens(self._system) * 4 // 3
        prompt = sum(overhead + chunk.tokens * 4 // 3 for chunk in chunks)
        sentences = sum(max(1, chunk.tokens // 25) for chunk in chunks)
        completion = int(sentences * _TRIPLES_PER_SENTENCE * _REPLY_TOKENS)
        return Estimate(
            chunks=len(chunks),
            prompt_tokens=prompt,
            completion_tokens=completion,
            cost=round(self.ledger.price.of(prompt, completion), 4),
        )

    def extract(self, chunks: Sequence[Chunk], emit: Emit) -> None:
        """Read the chunks concurrently; results are emitted as they arrive.

        Raises
        ------
        FaultError
            If every one of the first calls fails (a wrong key or endpoint), or the cost limit is
            reached. What was emitted before stays.
        """
        if chunks:
            asyncio.run(self._all(chunks, emit))

    async def _all(self, chunks: Sequence[Chunk], emit: Emit) -> None:
        queue = list(reversed(chunks))
        good = bad = 0
        last = ""

        async def worker() -> None:
            nonlocal good, bad, last
            while queue and not self.ledger.spent and not (bad >= 5 and good == 0):
                chunk = queue.pop()
                result = await self._one(chunk)
                if result.error is None:
                    good += 1
                else:
                    bad += 1
                    last = result.error
                    self.ledger.failures += 1
                emit(chunk, result)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._concurrency, len(chunks))):
                group.create_task(worker())
        if queue and bad >= 5 and good == 0:
            raise FaultError(
                f"the model answered none of {bad} chunks ({last}); check model and endpoint, then "
                f"build again: finished chunks are kept"
            )
        if queue and self.ledger.spent:
            raise FaultError(
                f"the cost limit of {self.ledger.limit} is reached after {self.ledger.requests} "
                f"requests; {len(queue)} chunks remain. Raise the limit and build again: finished "
                f"chunks are kept"
            )

    async def _one(self, chunk: Chunk) -> Extraction:
        result = Extraction()
        user = f"Section: {quoted(chunk.section or 'unknown')}\n\nPassage: {quoted(chunk.text)}"
        complaint = ""
        error = "no attempt was made"
        for attempt in range(self._attempts):
            try:
                reply = await asyncio.wait_for(
                    self._completion(
                        system=self._system, user=user + complaint, schema=self._schema
                    ),
                    self._timeout,
                )
            except TimeoutError:
                error = f"no answer within {self._timeout:g} s"
            except Exception as failure:  # noqa: BLE001 - recorded as this chunk's failure
                error = f"{type(failure).__name__}: {str(failure)[:200]}"
            else:
                self.ledger.add(reply)
                result.prompt_tokens += reply.prompt_tokens
                result.completion_tokens += reply.completion_tokens
                try:
                    parsed = ModelReply.model_validate_json(_unfenced(reply.content))
                except ValidationError as invalid:
                    where = invalid.errors()[0]
                    place = ".".join(map(str, where["loc"]))
                    error = f"reply does not fit the schema: {place}: {where['msg']}"
                    complaint = f"\n\nYour last reply was rejected: {one_line(error)}. Reply again."
                else:
                    self._keep(parsed, chunk, result)
                    return result
            if attempt + 1 < self._attempts and not complaint:
                await asyncio.sleep(min(8.0, 0.5 * 2**attempt))
        result.error = error
        return result

    def _keep(self, reply: ModelReply, chunk: Chunk, result: Extraction) -> None:
        seen = set()
        for triple in reply.triples:
            head, tail = triple.head.strip(), triple.tail.strip()
            if not head or not tail or head.casefold() == tail.casefold():
                result.drop("empty or same entities")
                continue
            if triple.confidence < MIN_CONFIDENCE:
                result.drop("confidence below 0.5")
                continue
            span = align(triple.evidence, chunk.text)
            if span is None:
                result.drop("evidence not in the chunk")
                continue
            known = {relation.canonical for relation in self._ontology.relations()}
            canonical = triple.relation.strip().lower().replace(" ", "_")
            if canonical not in known:
                canonical = self._ontology.relation(triple.relation_text).canonical
            key = (head, canonical, tail, span)
            if key in seen:
                result.drop("said twice")
                continue
            seen.add(key)
            head_entry, tail_entry = self._ontology.find(head), self._ontology.find(tail)
            result.statements.append(
                Statement(
                    head=head_entry.name if head_entry else head,
                    head_type=head_entry.type if head_entry else triple.head_type,
                    relation_text=triple.relation_text,
                    relation=canonical,
                    tail=tail_entry.name if tail_entry else tail,
                    tail_type=tail_entry.type if tail_entry else triple.tail_type,
                    confidence=triple.confidence,
                    polarity=Polarity.NEUTRAL if triple.negated else triple.polarity,
                    negated=triple.negated,
                    speculative=triple.speculative,
                    start=span[0],
                    end=span[1],
                )
            )


def _unfenced(content: str) -> str:
    """The JSON of a reply without a code fence around it."""
    content = content.strip()
    if content.startswith("```"):
        content = content.split("\n", 1)[-1].rsplit("```", 1)[0]
    return content
