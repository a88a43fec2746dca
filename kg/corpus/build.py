"""Literature to graph: incremental, resumable, and the same bytes from the same input.

Every stage is keyed by content. Files are read once per reader, chunks once per extractor, names
embedded once per model; a killed build resumes where it stopped, and adding ten papers to
a thousand reads ten. The graph is derived from the store at the end.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from kg.corpus import corpus
from kg.corpus.build_report import BuildOptions, BuildReport, Excluded
from kg.corpus.chunks import Chunk, chunk
from kg.corpus.places import GRAPHML, REPORT, STORE, graph_folder
from kg.corpus.store import Store
from kg.extract.base import Extraction, Extractor
from kg.extract.related import BROAD
from kg.extract.verify import UNGROUNDED
from kg.gather.topic import parse_topic, score_relevance
from kg.lexicon.index import Lexicon
from kg.lexicon.names import Names
from kg.lexicon.ontology import Ontology
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
"""Share of a topic's concepts that a document has to name (`kg.gather.topic.score_relevance`)."""
_OPENING = 5000
"""Characters of a document that are compared with the topic."""


@runtime_checkable
class Estimating(Protocol):
    """An extractor that costs money: it can say how much before and after."""

    usd: float

    def estimate(self, chunks: Sequence[Chunk]) -> Estimate:
        """Estimate the cost of reading these chunks."""


def build(
    sources: Sequence[Path],
    out: Path,
    options: BuildOptions | None = None,
    ontology: Ontology | None = None,
    *,
    lexicons: Sequence[Lexicon] = (),
    client: Model | None = None,
    embedder: Embedder | None = None,
    progress: Progress | None = None,
    on_estimate: Callable[[Estimate], None] | None = None,
) -> BuildReport:
    """Read `sources`, extract triples, fuse them, and write the graph to `out`.

    Parameters
    ----------
    out : a folder, or a path ending in `.graphml` (the folder is then `<stem>.kg/` beside it)
    lexicons : imported lexicons, after the ontology in rank
    on_estimate : called with the estimated cost before the first paid call; raise to stop

    Raises
    ------
    InputError
        If a source is missing, no file in them can be read, or the options ask for what was not
        given.
    """
    options = options or BuildOptions()
    if ontology is None:
        raise InputError("build needs an ontology: load it with Ontology.load(folder)")
    if not sources:
        raise InputError("no sources: name files or folders with papers")
    folder = graph_folder(Path(out))
    folder.mkdir(parents=True, exist_ok=True)
    report = BuildReport(out=str(folder), graphml=str(folder / GRAPHML), as_of=options.as_of)
    report_progress = progress or (lambda _stage, _done, _total: None)
    extractor = _extractor(options, ontology, lexicons, client, report_progress)
    report.extractor = extractor.key
    if options.embedder != "none" and embedder is None:
        from kg.embedding import embed

        embedder = embed.by_name(options.embedder, folder / "vectors.sqlite")
    query = parse_topic(options.topic, ontology) if options.topic else None
    with Store(folder / STORE) as store:
        reading = ReadOptions(ocr=options.ocr)
        with _record_time(report, "read"):
            order = _read_sources(store, sources, reading, options, report, report_progress)
        _require_papers(report, sources)
        with _record_time(report, "screen"):
            documents = _select(store, order, reading, options, report, query)
        with _record_time(report, "chunk"):
            chunks, hashes = _chunk(
                store, documents, reading, options, extractor, report, report_progress
            )
        if chunks and on_estimate is not None and isinstance(extractor, Estimating):
            on_estimate(extractor.estimate(chunks))
        with _record_time(report, "extract"):
            _extract(store, chunks, hashes, extractor, report, report_progress)
        _derive(
            store, folder, options, Names(ontology, lexicons), embedder, report, report_progress
        )
    if Path(out).suffix.lower() == ".graphml":
        with (folder / GRAPHML).open("rb") as source, writing(Path(out)) as target:
            shutil.copyfileobj(source, target, 1 << 20)
        report.graphml = str(out)
    write_text(folder / REPORT, report.model_dump_json(indent=1))
    return report


def _require_papers(report: BuildReport, sources: Sequence[Path]) -> None:
    """Refuse a corpus of which no file could be read.

    Raises
    ------
    InputError
        Naming the first files and why each was not read.
    """
    if report.files_read:
        return
    named = ", ".join(map(str, sources))
    failures = [f"{item.path}: {item.reason}" for item in report.sources[:3]]
    more = f", and {len(report.sources) - 3} more" if len(report.sources) > 3 else ""
    why = f" ({'; '.join(failures)}{more})" if failures else ""
    raise InputError(
        f"{named}: no papers to read{why}; name PDF, XML, MEDLINE, BibTeX, Markdown or text files"
    )


def _extractor(
    options: BuildOptions,
    ontology: Ontology,
    lexicons: Sequence[Lexicon],
    client: Model | None,
    report_progress: Progress,
) -> Extractor:
    if options.extractor == "rules":
        from kg.extract.rules import RulesExtractor

        return RulesExtractor(ontology, lexicons, workers=options.workers, broad=options.broad)
    if client is None or options.chat is None:
        raise InputError(
            "the chat extractor needs a model: configure it, or use the rules extractor"
        )
    from kg.extract.chat import ChatExtractor

    return ChatExtractor(ontology, client, model=options.chat, concurrency=options.concurrency)


def _read_sources(
    store: Store,
    sources: Sequence[Path],
    reading: ReadOptions,
    options: BuildOptions,
    report: BuildReport,
    report_progress: Progress,
) -> list[tuple[str, str]]:
    reports, order, cached = corpus.read_sources(
        store, sources, reading, options.workers, report_progress
    )
    report.sources = reports
    report.files = len(reports)
    report.files_cached = cached
    for item in reports:
        if item.status == "read":
            report.files_read += 1
            report.pages += item.pages or 0
            for tier in (item.tier or "").split("+"):
                if tier:
                    report.tiers[tier] = report.tiers.get(tier, 0) + 1
        elif item.status == "failed":
            report.files_failed += 1
        else:
            report.files_skipped += 1
    return order


def _select(
    store: Store,
    order: Sequence[tuple[str, str]],
    reading: ReadOptions,
    options: BuildOptions,
    report: BuildReport,
    query: Query | None,
) -> list[Document]:
    rows, documents, notes = corpus.select(store, order, reading)
    report.notes += notes
    report.duplicates = sum(1 for row in rows if not row["included"])
    report.duplicates += len(order) - len({doc_id for doc_id, _ in order})
    by_id = {row["doc_id"]: row for row in rows}
    kept = []
    for document in documents:
        row = by_id[document.id]
        reason = None
        if document.retracted:
            report.retracted += 1
            if not options.include_retracted:
                reason = "retracted"
        if query is not None and reason is None:
            record = Record(title=document.title, abstract=document.text[:_OPENING])
            row["score"] = share = score_relevance(query, record)
            if share < TOPIC_SHARE:
                reason = f"off topic: names {share:.0%} of the topic's concepts"
                report.screened_out += 1
        if reason:
            row["included"], row["reason"] = 0, reason
            report.excluded.append(
                Excluded(path=document.path, title=document.title, reason=reason)
            )
        else:
            kept.append(document)
    store.set_corpus(rows)
    store.set_meta("reader", reading.key)
    report.documents = len(kept)
    return kept


def _chunk(
    store: Store,
    documents: Sequence[Document],
    reading: ReadOptions,
    options: BuildOptions,
    extractor: Extractor,
    report: BuildReport,
    report_progress: Progress,
) -> tuple[list[Chunk], list[str]]:
    """Chunks that still need the extractor, and the hashes of all chunks."""
    cut = f"3:{options.chunk_tokens}:{options.chunk_overlap}"
    known = store.list_extracted(extractor.key)
    pending: dict[str, Chunk] = {}
    hashes: list[str] = []
    fresh: list[Chunk] = []
    for number, document in enumerate(documents):
        before = store.load_chunk_hashes(document.id, reading.key, cut)
        if before and all(chunk_hash in known for _, chunk_hash in before):
            hashes += [chunk_hash for _, chunk_hash in before]
            continue
        pieces = list(chunk(document, options.chunk_tokens, options.chunk_overlap))
        if not before:
            fresh += pieces
        for piece in pieces:
            piece_hash = piece.hash
            hashes.append(piece_hash)
            if piece_hash not in known:
                pending.setdefault(piece_hash, piece)
        report_progress("chunk", number + 1, len(documents))
    store.add_chunks(fresh, reading.key, cut)
    store.set_meta("cut", cut)
    report.chunks = len(hashes)
    report.chunks_cached = sum(1 for chunk_hash in hashes if chunk_hash in known)
    return list(pending.values()), hashes


def _extract(
    store: Store,
    chunks: Sequence[Chunk],
    hashes: Sequence[str],
    extractor: Extractor,
    report: BuildReport,
    report_progress: Progress,
) -> None:
    done = 0

    def emit(piece: Chunk, result: Extraction) -> None:
        nonlocal done
        done += 1
        report.prompt_tokens += result.prompt_tokens
        report.completion_tokens += result.completion_tokens
        store.add_extraction(piece.hash, extractor.key, result)
        report_progress("extract", done, len(chunks))

    with store.batch():
        extractor.extract(chunks, emit)
    if isinstance(extractor, Estimating):
        report.cost = round(extractor.usd, 6)
    store.set_meta("extractor", extractor.key)
    failures = store.failures(extractor.key, hashes)
    report.chunks_failed = len(failures)
    report.failures = dict(sorted(failures.items())[:50])
    if failures:
        report.notes.append(
            f"{len(failures)} chunks failed and are missing from the graph; build again to retry "
            f"them (first error: {next(iter(report.failures.values()))})"
        )
    report.dropped = store.count_dropped(extractor.key, hashes)


def _derive(
    store: Store,
    folder: Path,
    options: BuildOptions,
    names: Names,
    embedder: Embedder | None,
    report: BuildReport,
    report_progress: Progress,
) -> None:
    from kg.fusion.fuse import collector_paused, fuse
    from kg.fusion.model import FusionOptions
    from kg.graph import graphml
    from kg.graph.model import Graph
    from kg.graph.sidecar import SIDECAR

    with _record_time(report, "triples"), collector_paused():
        triples = list(store.triples(options.as_of, options.include_retracted))
    report.triples = len(triples)
    report.triples_negated = sum(t.negated for t in triples)
    report.triples_speculative = sum(t.speculative for t in triples)
    ungrounded = sum(count for reason, count in report.dropped.items() if reason in UNGROUNDED)
    if triples or ungrounded:
        report.grounding = len(triples) / (len(triples) + ungrounded)
    if not triples:
        report.notes.append("no triples: the graph is empty")
    report_progress("fuse", 0, 1)
    with _record_time(report, "fuse"), collector_paused():
        base = FusionOptions.paper() if options.fusion == "paper" else FusionOptions()
        update: dict[str, Any] = {
            "prune_below": options.prune_below,
            "min_confidence": min(options.min_confidence, BROAD)
            if options.broad
            else options.min_confidence,
        }
        if options.tau is not None:
            update["tau"] = options.tau
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
    report_progress("fuse", 1, 1)
    with _record_time(report, "write"):
        graph.save_sidecar(folder / SIDECAR)
        graphml.write(graph, folder / GRAPHML)
    report.embedder = fused.embedder
    report.nodes = graph.n_nodes
    report.edges = graph.n_edges
    report.pruned = {name: count for name, count in fused.dropped.items() if count}
    for merge in fused.merges:
        report.merges[merge.tier.value] = report.merges.get(merge.tier.value, 0) + 1


@contextmanager
def _record_time(report: BuildReport, stage: str) -> Iterator[None]:
    start = time.perf_counter()
    try:
        yield
    finally:
        report.seconds[stage] = round(time.perf_counter() - start, 3)
