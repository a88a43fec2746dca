"""Incremental, resumable and reproducible builds of a graph from the literature.

Every stage is keyed by content: each file is read once per reader, each chunk once per extractor,
and each name is embedded once per model. A killed build resumes where it stopped, and adding ten
papers to a thousand reads only those ten. The graph is derived from the store at the end, and the
same input always gives the same bytes.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from kg.corpus import corpus
from kg.corpus.build_report import BuildOptions, BuildReport, Excluded
from kg.corpus.chunks import Chunk, chunk
from kg.corpus.places import GRAPHML, REPORT, STORE, graph_folder
from kg.corpus.store import Store
from kg.extract.base import Extraction, Extractor
from kg.extract.verify import UNGROUNDED
from kg.lexicon.index import Lexicon
from kg.lexicon.names import Names
from kg.lexicon.ontology import Ontology
from kg.literature.topic import parse_topic, score_relevance
from kg.literature.types import Query, Record
from kg.sources import ReadOptions
from kg.types import Document
from sage.core.errors import InputError
from sage.core.files import write_text, writing

if TYPE_CHECKING:
    from kg.embedding.embed import Embedder
    from kg.extract.chat import Estimate
    from sage.core.llm.client import Model

Progress = Callable[[str, int, int], None]
TOPIC_SHARE = 0.6
"""Minimum share of a topic's concepts that a document must mention to be on topic.

See `kg.literature.topic.score_relevance`.
"""
_OPENING = 5000
"""Number of leading characters of a document that are compared with the topic."""


@runtime_checkable
class Estimating(Protocol):
    """Paid extractor that reports its estimated and actual cost."""

    usd: float

    def estimate(self, chunks: Sequence[Chunk]) -> Estimate:
        """Estimate the cost of extraction from these chunks."""


def build(
    sources: Sequence[Path],
    out: Path,
    options: BuildOptions | None = None,
    ontology: Ontology | None = None,
    *,
    lexicons: Sequence[Lexicon] = (),
    client: Model | None = None,
    progress: Progress | None = None,
    on_estimate: Callable[[Estimate], None] | None = None,
) -> BuildReport:
    """Read `sources`, extract triples, fuse them, and write the graph to `out`.

    Parameters
    ----------
    out : a folder, or a path ending in `.graphml` (the folder is then `<stem>.kg/` next to it)
    lexicons : imported lexicons; the ontology takes precedence over them
    on_estimate : called with the estimated cost before the first paid call; raise to stop

    Raises
    ------
    InputError
        If a source is missing, if no file can be read, or if the options require an argument
        that was not given.
    """
    options = options or BuildOptions()
    if ontology is None:
        raise InputError("build requires an ontology: load it with Ontology.load(folder)")
    if not sources:
        raise InputError("no sources; give files or folders with papers")
    folder = graph_folder(Path(out))
    folder.mkdir(parents=True, exist_ok=True)
    report = BuildReport(out=str(folder), graphml=str(folder / GRAPHML), as_of=options.as_of)
    extractor = _extractor(options, ontology, lexicons, client)
    report.extractor = extractor.key
    embedder = None
    if options.embedder != "none":
        from kg.embedding import embed

        embedder = embed.by_name(options.embedder, folder / "vectors.sqlite")
    query = parse_topic(options.topic, ontology) if options.topic else None
    with Store(folder / STORE) as store:
        work = _Build(
            store,
            options,
            ReadOptions(ocr=options.ocr),
            extractor,
            report,
            progress or (lambda _stage, _done, _total: None),
        )
        with work.record_time("read"):
            order = work.read_sources(sources)
        _require_papers(report, sources)
        with work.record_time("screen"):
            documents = work.select(order, query)
        with work.record_time("chunk"):
            chunks, hashes = work.chunk(documents)
        if chunks and on_estimate is not None and isinstance(extractor, Estimating):
            on_estimate(extractor.estimate(chunks))
        with work.record_time("extract"):
            work.extract(chunks, hashes)
        work.derive(folder, Names(ontology, lexicons), embedder)
    if Path(out).suffix.lower() == ".graphml":
        with (folder / GRAPHML).open("rb") as source, writing(Path(out)) as target:
            shutil.copyfileobj(source, target, 1 << 20)
        report.graphml = str(out)
    write_text(folder / REPORT, report.model_dump_json(indent=1))
    return report


def _require_papers(report: BuildReport, sources: Sequence[Path]) -> None:
    """Reject a corpus if none of its files could be read.

    Raises
    ------
    InputError
        If no file could be read; the message names the first files and the reason for each.
    """
    if report.files_read:
        return
    named = ", ".join(map(str, sources))
    failures = [f"{item.path}: {item.reason}" for item in report.sources[:3]]
    more = f", and {len(report.sources) - 3} more" if len(report.sources) > 3 else ""
    why = f" ({'; '.join(failures)}{more})" if failures else ""
    raise InputError(
        f"{named}: no papers found{why}; give PDF, XML, MEDLINE, BibTeX, Markdown or text files"
    )


def _extractor(
    options: BuildOptions,
    ontology: Ontology,
    lexicons: Sequence[Lexicon],
    client: Model | None,
) -> Extractor:
    if options.extractor == "rules":
        from kg.extract.rules import RulesExtractor

        return RulesExtractor(ontology, lexicons, workers=options.workers, broad=options.broad)
    if client is None or options.chat is None:
        raise InputError(
            "the chat extractor requires a model: configure one, or use the rules extractor"
        )
    from kg.extract.chat import ChatExtractor

    return ChatExtractor(
        ontology,
        client,
        model=options.chat,
        lexicons=lexicons,
        concurrency=options.concurrency,
    )


@dataclass
class _Build:
    """The stages of a build, run on a store."""

    store: Store
    options: BuildOptions
    reading: ReadOptions
    extractor: Extractor
    report: BuildReport
    report_progress: Progress

    def read_sources(self, sources: Sequence[Path]) -> list[tuple[str, str]]:
        reports, order, cached = corpus.read_sources(
            self.store, sources, self.reading, self.options.workers, self.report_progress
        )
        self.report.sources = reports
        self.report.files = len(reports)
        self.report.files_cached = cached
        for item in reports:
            if item.status == "read":
                self.report.files_read += 1
                self.report.pages += item.pages or 0
                self.report.unread_characters += item.unread
                for tier in (item.tier or "").split("+"):
                    if tier:
                        self.report.tiers[tier] = self.report.tiers.get(tier, 0) + 1
            elif item.status == "failed":
                self.report.files_failed += 1
            else:
                self.report.files_skipped += 1
        return order

    def select(self, order: Sequence[tuple[str, str]], query: Query | None) -> list[Document]:
        rows, documents, notes = corpus.select(self.store, order, self.reading)
        self.report.notes += notes
        self.report.duplicates = sum(1 for row in rows if not row["included"])
        self.report.duplicates += len(order) - len({doc_id for doc_id, _ in order})
        by_id = {row["doc_id"]: row for row in rows}
        kept = []
        for document in documents:
            row = by_id[document.id]
            reason = None
            if document.retracted:
                self.report.retracted += 1
                if not self.options.include_retracted:
                    reason = "retracted"
            if query is not None and reason is None:
                record = Record(title=document.title, abstract=document.text[:_OPENING])
                row["score"] = share = score_relevance(query, record)
                if share < TOPIC_SHARE:
                    reason = f"off topic: mentions {share:.0%} of the topic's concepts"
                    self.report.screened_out += 1
            if reason:
                row["included"], row["reason"] = 0, reason
                self.report.excluded.append(
                    Excluded(path=document.path, title=document.title, reason=reason)
                )
            else:
                kept.append(document)
        self.store.set_corpus(rows)
        self.store.set_meta("reader", self.reading.key)
        self.report.documents = len(kept)
        return kept

    def chunk(self, documents: Sequence[Document]) -> tuple[list[Chunk], list[str]]:
        """Split documents into chunks; return those not yet extracted, and all chunk hashes."""
        cut = f"3:{self.options.chunk_tokens}:{self.options.chunk_overlap}"
        known = self.store.list_extracted(self.extractor.key)
        pending: dict[str, Chunk] = {}
        hashes: list[str] = []
        fresh: list[Chunk] = []
        for number, document in enumerate(documents):
            before = self.store.load_chunk_hashes(document.id, self.reading.key, cut)
            if before and all(chunk_hash in known for _, chunk_hash in before):
                hashes += [chunk_hash for _, chunk_hash in before]
                continue
            pieces = list(chunk(document, self.options.chunk_tokens, self.options.chunk_overlap))
            if not before:
                fresh += pieces
            for piece in pieces:
                piece_hash = piece.hash
                hashes.append(piece_hash)
                if piece_hash not in known:
                    pending.setdefault(piece_hash, piece)
            self.report_progress("chunk", number + 1, len(documents))
        self.store.add_chunks(fresh, self.reading.key, cut)
        self.store.set_meta("cut", cut)
        self.report.chunks = len(hashes)
        self.report.chunks_cached = sum(1 for chunk_hash in hashes if chunk_hash in known)
        return list(pending.values()), hashes

    def extract(self, chunks: Sequence[Chunk], hashes: Sequence[str]) -> None:
        done = 0

        def emit(piece: Chunk, result: Extraction) -> None:
            nonlocal done
            done += 1
            self.report.prompt_tokens += result.prompt_tokens
            self.report.completion_tokens += result.completion_tokens
            self.store.add_extraction(piece.hash, self.extractor.key, result)
            self.report_progress("extract", done, len(chunks))

        with self.store.batch():
            self.extractor.extract(chunks, emit)
        if isinstance(self.extractor, Estimating):
            self.report.cost = round(self.extractor.usd, 6)
        self.store.set_meta("extractor", self.extractor.key)
        failures = self.store.failures(self.extractor.key, hashes)
        self.report.chunks_failed = len(failures)
        self.report.failures = dict(sorted(failures.items())[:50])
        if failures:
            self.report.notes.append(
                f"{len(failures)} chunks failed and are missing from the graph; build again to "
                f"retry them (first error: {next(iter(self.report.failures.values()))})"
            )
        self.report.dropped = self.store.count_dropped(self.extractor.key, hashes)

    def derive(self, folder: Path, names: Names, embedder: Embedder | None) -> None:
        from kg.fusion.fuse import collector_paused, fuse
        from kg.fusion.model import FusionOptions
        from kg.graph import graphml
        from kg.graph.model import Graph
        from kg.graph.sidecar import SIDECAR

        with self.record_time("triples"), collector_paused():
            triples = list(self.store.triples(self.options.as_of, self.options.include_retracted))
        self.report.triples = len(triples)
        self.report.triples_negated = sum(t.negated for t in triples)
        self.report.triples_speculative = sum(t.speculative for t in triples)
        ungrounded = sum(
            count for reason, count in self.report.dropped.items() if reason in UNGROUNDED
        )
        if triples or ungrounded:
            self.report.grounding = len(triples) / (len(triples) + ungrounded)
        if not triples:
            self.report.notes.append("no triples were extracted, so the graph is empty")
        self.report_progress("fuse", 0, 1)
        with self.record_time("fuse"), collector_paused():
            base = FusionOptions.paper() if self.options.fusion == "paper" else FusionOptions()
            update: dict[str, Any] = {
                "prune_below": self.options.prune_below,
                "min_belief": self.extractor.shown,
            }
            if self.options.tau is not None:
                update["tau"] = self.options.tau
            if embedder is None:
                update["similarity"] = False
            fused = fuse(
                triples,
                base.model_copy(update=update),
                embedder,
                names,
                pair_cache=folder / "pairs.npz",
            )
            graph = Graph.from_fused(fused)
        self.report_progress("fuse", 1, 1)
        with self.record_time("write"):
            graph.save_sidecar(folder / SIDECAR)
            graphml.write(graph, folder / GRAPHML)
        self.report.embedder = fused.embedder
        self.report.nodes = graph.n_nodes
        self.report.edges = graph.n_edges
        self.report.edges_shown = graph.view().n_edges
        self.report.pruned = {name: count for name, count in fused.dropped.items() if count}
        for merge in fused.merges:
            self.report.merges[merge.tier.value] = self.report.merges.get(merge.tier.value, 0) + 1

    @contextmanager
    def record_time(self, stage: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.report.seconds[stage] = round(time.perf_counter() - start, 3)
