"""The `chat` extractor, which calls a language model with structured output.

Calls go through the shared client; replies are validated here. A reply that does not
match the schema is sent back with the error, up to a fixed number of times; if none
matches, the chunk is recorded as failed and retried in the next build. The extractor's
key hashes prompt, model and schema, and the store adds the chunk's text, so that nothing
is paid for twice.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kg.corpus.chunks import Chunk, count_tokens
from kg.corpus.textnorm import sentences
from kg.extract.align import align
from kg.extract.base import MIN_CONFIDENCE, Emit, Extraction, Statement
from kg.extract.prose import quoted_matter
from kg.extract.rules import RulesExtractor
from kg.extract.verify import NOT_QUOTED, NOT_STATED, Claim, Verifier
from kg.graph.belief import SYSTEMATIC
from kg.lexicon.index import Lexicon
from kg.lexicon.names import Names
from kg.lexicon.ontology import Ontology
from kg.types import EntityType, Polarity
from sage.core.errors import FaultError, InputError, explain_validation
from sage.core.llm.budget import BudgetError
from sage.core.llm.client import Model
from sage.core.llm.messages import Message, ModelChoice, Request
from sage.core.llm.repair import fit, read_object
from sage.core.printable import one_line, quote_text

PROMPT = "triples.v1.md"
VERSION = "4"
_REPLY_TOKENS = 60  # of a triple in a reply, for the estimate
_TRIPLES_PER_SENTENCE = 0.5


class ModelTriple(BaseModel):
    """A relation in a model's reply."""

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
    """The model's reply as a whole."""

    triples: list[ModelTriple]


class Estimate(BaseModel):
    """Estimated cost of the chunks that have not been extracted yet."""

    chunks: int
    prompt_tokens: int
    completion_tokens: int
    cost: float


class ChatExtractor:
    """Extractor that reads statements with a language model.

    Parameters
    ----------
    lexicons : imported names, in which heads and tails are looked up after the ontology
    concurrency : number of chunks processed at the same time
    attempts : number of replies requested for a chunk before it fails to match the schema
    """

    name = "chat"
    shown = MIN_CONFIDENCE

    def __init__(
        self,
        ontology: Ontology,
        client: Model,
        *,
        model: ModelChoice,
        lexicons: Sequence[Lexicon] = (),
        concurrency: int = 8,
        attempts: int = 3,
    ) -> None:
        self._ontology = ontology
        self._names = Names(ontology, lexicons)
        self._verifier = Verifier(ontology, self._names)
        self._rules = RulesExtractor(ontology, lexicons)
        self._client = client
        self._model = model
        self._concurrency = concurrency
        self._attempts = attempts
        self.requests = 0
        self.usd = 0.0
        self._schema = ModelReply.model_json_schema()
        template = (Path(__file__).parent / "prompts" / PROMPT).read_text(encoding="utf-8")
        self._system = template.format(
            types=", ".join(EntityType),
            relations=", ".join(relation.canonical for relation in ontology.relations()),
        )
        parts = [VERSION, self._system, model.name, json.dumps(self._schema, sort_keys=True)]
        parts += [lexicon.digest for lexicon in lexicons]
        self._key = f"chat-{hashlib.sha256(chr(31).join(parts).encode()).hexdigest()[:16]}"

    @property
    def key(self) -> str:
        """Hash of prompt, model, schema and version."""
        return self._key

    def estimate(self, chunks: Sequence[Chunk]) -> Estimate:
        """Estimate the tokens and cost of reading `chunks` from their lengths."""
        overhead = count_tokens(self._system) * 4 // 3
        prompt = sum(overhead + chunk.tokens * 4 // 3 for chunk in chunks)
        sentences = sum(max(1, chunk.tokens // 25) for chunk in chunks)
        completion = int(sentences * _TRIPLES_PER_SENTENCE * _REPLY_TOKENS)
        return Estimate(
            chunks=len(chunks),
            prompt_tokens=prompt,
            completion_tokens=completion,
            cost=round(self._model.cost(prompt, completion), 4),
        )

    def extract(self, chunks: Sequence[Chunk], emit: Emit) -> None:
        """Read the chunks concurrently and emit results as they arrive.

        Raises
        ------
        FaultError
            If all of the first calls fail (a wrong key or endpoint), or if the cost limit is
            reached. Results emitted before that remain valid.
        """
        if chunks:
            asyncio.run(self._all(chunks, emit))

    async def _all(self, chunks: Sequence[Chunk], emit: Emit) -> None:
        queue = list(reversed(chunks))
        good = bad = 0
        last = ""
        spent: BudgetError | None = None

        async def worker() -> None:
            nonlocal good, bad, last, spent
            while queue and not (bad >= 5 and good == 0):
                chunk = queue.pop()
                try:
                    result = await self._read_chunk(chunk)
                except BudgetError as error:
                    queue.append(chunk)
                    spent = error
                    return  # workers with a call in progress continue with the rest
                if result.error is None:
                    good += 1
                else:
                    bad += 1
                    last = result.error
                emit(chunk, result)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._concurrency, len(chunks))):
                group.create_task(worker())
        if queue and bad >= 5 and good == 0:
            raise FaultError(
                f"the model answered none of {bad} chunks ({last}); check the model and "
                "endpoint, then build again (finished chunks are kept)"
            )
        if queue and spent is not None:
            raise FaultError(
                f"the cost limit of {spent.budget_usd} is reached after {self.requests} "
                f"requests; {len(queue)} chunks remain. Raise the limit and build again "
                "(finished chunks are kept)"
            )

    async def _read_chunk(self, chunk: Chunk) -> Extraction:
        """Query the model about a chunk until a reply matches the schema.

        Raises
        ------
        BudgetError
            If the next call could exceed the cost limit.
        """
        result = Extraction()
        section = quote_text(chunk.section or "unknown")
        user = f"Section: {section}\n\nPassage: {quote_text(chunk.text)}"
        complaint = ""
        for _ in range(self._attempts):
            request = Request(
                agent="extractor",
                model=self._model,
                messages=(
                    Message(role="system", text=self._system),
                    Message(role="user", text=user + complaint),
                ),
                schema=self._schema,
                title="triples",
            )
            try:
                answer = await self._client.ask_async(request)
            except BudgetError:
                raise
            except (InputError, FaultError) as failure:
                result.error = str(failure)
                return result
            self.requests += 1
            self.usd += answer.usd
            result.prompt_tokens += answer.reply.prompt_tokens
            result.completion_tokens += answer.reply.completion_tokens
            try:
                parsed = fit(read_object(answer.reply.content), ModelReply)
            except ValidationError as invalid:
                result.error = f"reply does not match the schema: {explain_validation(invalid)}"
            except ValueError as invalid:
                result.error = f"reply does not match the schema: {invalid}"
            else:
                result.error = None
                self._keep(parsed, chunk, result)
                return result
            complaint = f"\n\nYour last reply was rejected: {one_line(result.error)}. Reply again."
        return result

    def _keep(self, reply: ModelReply, chunk: Chunk, result: Extraction) -> None:
        seen = set()
        read = {
            (s.head, s.tail, s.polarity, s.negated): s.confidence
            for s in self._rules.read_chunk(chunk).statements
        }
        others = list(quoted_matter(chunk.text, list(sentences(chunk.text))))
        for triple in reply.triples:
            head, tail = triple.head.strip(), triple.tail.strip()
            if not head or not tail or head.casefold() == tail.casefold():
                result.drop("empty or identical entities")
                continue
            if triple.confidence < MIN_CONFIDENCE:
                result.drop("confidence below 0.5")
                continue
            span = align(triple.evidence, chunk.text)
            if span is None:
                result.drop(NOT_QUOTED)
                continue
            if any(low <= span[0] < high for low, high in others):
                result.drop(NOT_STATED)
                continue
            known = {relation.canonical for relation in self._ontology.relations()}
            canonical = triple.relation.strip().lower().replace(" ", "_")
            if canonical not in known:
                canonical = self._ontology.relation(triple.relation_text).canonical
            claim = Claim(
                head, triple.relation_text, canonical, tail, triple.polarity, triple.negated
            )
            fault = self._verifier.fault(claim, chunk.text, span, chunk.abbreviations)
            if fault is not None:
                result.drop(fault)
                continue
            key = (head, canonical, tail, span)
            if key in seen:
                result.drop("said twice")
                continue
            seen.add(key)
            head_entry, tail_entry = self._names.find(head), self._names.find(tail)
            sign = Polarity.NEUTRAL if triple.negated else triple.polarity
            names = (
                head_entry.name if head_entry else head,
                tail_entry.name if tail_entry else tail,
            )
            second = read.get((*names, sign, triple.negated), 0.0)
            result.statements.append(
                Statement(
                    head=names[0],
                    head_type=head_entry.type if head_entry else triple.head_type,
                    relation_text=triple.relation_text,
                    relation=canonical,
                    tail=names[1],
                    tail_type=tail_entry.type if tail_entry else triple.tail_type,
                    confidence=_combine_confidence(triple.confidence, second),
                    polarity=sign,
                    negated=triple.negated,
                    speculative=triple.speculative,
                    start=span[0],
                    end=span[1],
                )
            )


def _combine_confidence(model: float, rules: float) -> float:
    """Combine the model's confidence in a statement with that of the rules.

    If the two readers err independently, a statement found by both is wrong only if both err:
    1 - (1 - m)(1 - r), where the model's own confidence is trusted up to its systematic
    error.

    Source: the belief model of INDRA, Gyori et al., Molecular Systems Biology 2017.
    """
    if not rules:
        return model
    return round(1.0 - (1.0 - model * (1.0 - SYSTEMATIC)) * (1.0 - rules), 3)
