"""`sage kg build`: build a graph from papers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sage.cli.kg_options import (
    AsOf,
    Lexicons,
    MaxCost,
    OntologyDir,
    Sources,
)
from sage.cli.options import AsJson
from sage.core.errors import InputError
from sage.core.extras import require_extra
from sage.core.printable import count_noun

if TYPE_CHECKING:
    from kg.corpus.build_report import BuildReport, Recipe
    from kg.extract.chat import Estimate
    from sage.settings import Settings


def build_graph(
    sources: Sources,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder to create, or a path ending in .graphml.")
    ],
    extractor: Annotated[
        Literal["rules", "chat"], typer.Option(help="Extractor; `rules` needs no model.")
    ] = "rules",
    broad: Annotated[
        bool,
        typer.Option(
            help="With the rules extractor, also keep pairs that are likely related even if "
            "the text does not state how."
        ),
    ] = False,
    as_of: AsOf = None,
    fusion: Annotated[
        Literal["guarded", "paper"],
        typer.Option(help="Method for merging names; `paper` uses only cosine similarity."),
    ] = "guarded",
    tau: Annotated[
        float | None, typer.Option(help="Cosine similarity above which names are merged.")
    ] = None,
    embedder: Annotated[
        str | None,
        typer.Option(help="Embedding model: `default`, `none`, or a sentence-transformers model."),
    ] = None,
    ocr: Annotated[bool, typer.Option(help="Read scanned pages with tesseract.")] = False,
    topic: Annotated[
        str | None, typer.Option(help="Omit papers that are not about this topic.")
    ] = None,
    include_retracted: Annotated[bool, typer.Option(help="Keep retracted papers.")] = False,
    workers: Annotated[
        int, typer.Option(help="Number of processes for PDFs and rules.", min=1)
    ] = 2,
    max_cost: MaxCost = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Skip the confirmation before paid calls.")
    ] = False,
    ontology: OntologyDir = None,
    lexicon: Lexicons = None,
    as_json: AsJson = False,
) -> None:
    """Read papers and build the knowledge graph; call again to add papers or to resume.

    Example: sage kg build papers/ --out graph/

    Example: sage kg build refs.bib articles/ --out blca.graphml --as-of 2018
    """
    from kg.corpus.build_report import BuildOptions, Recipe
    from kg.corpus.places import graph_folder
    from sage.cli.console import print_json
    from sage.settings import load

    if broad and extractor != "rules":
        raise InputError("--broad applies only to the rules extractor; omit it with chat")
    settings = load()
    options = BuildOptions(
        extractor=extractor,
        broad=broad,
        as_of=as_of,
        fusion=fusion,
        tau=tau,
        embedder=embedder or settings.embedding_model,
        ocr=ocr,
        topic=topic,
        include_retracted=include_retracted,
        workers=workers,
        chat=settings.models.mini if extractor == "chat" else None,
        concurrency=settings.concurrency,
    )
    folder = graph_folder(out).absolute()

    def relative_to_graph(path: Path) -> str:
        return os.path.relpath(path.absolute(), folder)

    recipe = Recipe(
        sources=tuple(map(relative_to_graph, sources)),
        out=relative_to_graph(out),
        options=options,
        ontology=relative_to_graph(ontology) if ontology else None,
        lexicons=tuple(map(relative_to_graph, lexicon or ())),
    )
    given = [fetch_source(source, out, settings) for source in sources]
    report = build_from_recipe(recipe, given, out, max_cost=max_cost, yes=yes, quiet=as_json)
    if as_json:
        print_json(report)
    else:
        _print_report(report)


def build_from_recipe(
    recipe: Recipe,
    sources: list[Path],
    out: Path,
    *,
    max_cost: float | None,
    yes: bool,
    quiet: bool,
) -> BuildReport:
    """Build a graph from the sources in a recipe, and store the recipe with the graph.

    `max_cost` limits the chat extractor's cost in USD; `yes` skips the confirmation before
    paid calls.

    Raises
    ------
    InputError
        If the chat extractor has no model, or its cost is limited but no prices are set.
    """
    from kg.corpus.build import build
    from kg.corpus.places import RECIPE, graph_folder
    from sage.cli.console import counting
    from sage.core.files import write_json
    from sage.run.wiring import load_lexicons, make_ontology
    from sage.settings import load

    require_extra("literature", "building a graph")
    client = None
    if recipe.options.extractor == "chat":
        from sage.core.llm.budget import Meter
        from sage.core.llm.client import Client

        settings = load()
        if settings.effective_reasoner != "chat":
            raise InputError(
                "the chat extractor requires a model: set base_url (`sage admin "
                "config` shows where), or use --extractor rules"
            )
        if max_cost is not None and not settings.models.mini.has_prices:
            raise InputError(
                "--max-cost requires prices: set models.mini.price_in and price_out (USD per "
                "million tokens) in sage.toml"
            )
        client = Client(settings.endpoint, Meter(budget_usd=max_cost))
    folder = graph_folder(out)
    known = make_ontology(resolve_source(folder, recipe.ontology) if recipe.ontology else None)
    with counting("building", quiet=quiet) as progress:
        report = build(
            sources,
            out,
            recipe.options,
            known,
            lexicons=load_lexicons([resolve_source(folder, path) for path in recipe.lexicons]),
            client=client,
            progress=progress,
            on_estimate=None if yes else _ask,
        )
    write_json(folder / RECIPE, recipe)
    return report


def resolve_source(folder: Path, path: str) -> Path:
    """Resolve a recipe's path lexically, since a new graph's folder does not exist yet."""
    return Path(os.path.normpath(folder.absolute() / path))


def fetch_source(source: Path, out: Path, settings: Settings) -> Path:
    """Fetch the PubMed records for a list of identifiers into a folder; keep other sources."""
    if source.suffix.lower() != ".ids" or not source.is_file():
        return source
    from kg.corpus.places import graph_folder
    from kg.literature.pubmed import PubMed
    from kg.sources.fetch import fetch_ids, read_ids
    from sage.cli.console import err

    folder = graph_folder(out) / "fetched" / source.stem
    report = fetch_ids(
        read_ids(source.read_text(encoding="utf-8").splitlines()),
        folder,
        PubMed(settings.services, settings.contact_email),
    )
    err.print(f"{source}: {len(report.written)} fetched, {len(report.present)} already present")
    for identity in report.missing:
        err.print(f"[yellow]not in PubMed[/] {identity}")
    return folder


def _ask(estimate: Estimate) -> None:
    from sage.cli.console import err

    price = f"about {estimate.cost:.2f} USD" if estimate.cost else "price unknown"
    err.print(
        f"{count_noun(estimate.chunks, 'chunk')}, about {estimate.prompt_tokens:,} prompt and "
        f"{estimate.completion_tokens:,} reply tokens ({price})"
    )
    if not typer.confirm("Continue?", err=True):
        raise InputError("stopped before any paid calls; use --yes to skip this confirmation")


def _print_report(report: BuildReport) -> None:
    from rich.table import Table

    from sage.cli.console import err, out

    table = Table(title="Build", show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column()

    def counts(values: dict[str, int]) -> str:
        return ", ".join(f"{name} {count:,}" for name, count in values.items()) or "none"

    table.add_row(
        "files",
        f"{report.files_read} read ({report.files_cached} from the store), "
        f"{report.files_failed} failed, {report.files_skipped} skipped",
    )
    unread = report.unread_characters
    lost = f"; {unread:,} characters could not be read" if unread else ""
    table.add_row("pages", f"{report.pages:,} (files by tier: {counts(report.tiers)}){lost}")
    table.add_row(
        "documents",
        f"{report.documents} in the graph; {report.duplicates} duplicates, {report.retracted} "
        f"retracted, {report.screened_out} screened out",
    )
    table.add_row(
        "chunks",
        f"{report.chunks:,} ({report.chunks_cached:,} read before, {report.chunks_failed} failed)",
    )
    grounding = "" if report.grounding is None else f"; grounding {report.grounding:.1%}"
    table.add_row(
        "triples",
        f"{report.triples:,} kept ({report.triples_negated} negated, "
        f"{report.triples_speculative} speculative){grounding}",
    )
    table.add_row("dropped", counts(report.dropped))
    table.add_row(
        "graph",
        f"{count_noun(report.nodes, 'node')}, {count_noun(report.edges, 'edge')} "
        f"({report.edges_shown:,} in the default view)",
    )
    table.add_row("merges", counts(report.merges))
    table.add_row("pruned", counts(report.pruned))
    if report.cost is not None:
        unknown = not report.cost and report.completion_tokens
        price = "price unknown" if unknown else f"{report.cost:.4f} USD"
        table.add_row(
            "cost",
            f"{price} ({report.prompt_tokens:,} + {report.completion_tokens:,} tokens)",
        )
    table.add_row("seconds", ", ".join(f"{k} {v:.2f}" for k, v in report.seconds.items()))
    table.add_row("written", report.graphml)
    for source in report.sources:
        if source.status == "failed":
            err.print(f"[yellow]unreadable[/] {source.path}: {source.reason}")
        elif source.status == "read" and source.reason:
            err.print(f"[yellow]note[/] {source.path}: {source.reason}")
        for note in source.notes:
            err.print(f"[yellow]note[/] {source.path}: {note}")
    for note in report.notes:
        err.print(f"[yellow]note[/] {note}")
    out.print(table)
