"""`sage kg`: literature to graph, screening, lexicons, and the graph's quality."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sage.cli import kg_graph
from sage.errors import InputError

if TYPE_CHECKING:
    from kg.build_report import BuildReport
    from kg.extract.chat import Completion, Estimate
    from kg.lexicon import Lexicon
    from kg.ontology import Ontology

app = typer.Typer(
    name="kg",
    help="Literature to knowledge graph: build, paths, export, quality.",
    no_args_is_help=True,
)
lexicon_app = typer.Typer(name="lexicon", help="Large vocabularies.", no_args_is_help=True)
app.add_typer(lexicon_app)
kg_graph.register(app)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, for machines.")]
Sources = Annotated[
    list[Path],
    typer.Argument(
        help="Files or folders: PDF, JATS, PubMed XML, NBIB, BibTeX, text, Markdown; a file ending "
        "in .ids lists PMIDs and DOIs to fetch from PubMed."
    ),
]
OntologyDir = Annotated[
    Path | None, typer.Option("--ontology", help="Folder with entities.tsv and relations.tsv.")
]
Lexicons = Annotated[
    list[Path] | None,
    typer.Option("--lexicon", help="Compiled lexicon (`sage kg lexicon import`); may repeat."),
]


def load_ontology(folder: Path | None) -> Ontology:
    """The ontology in `folder`, or the one that ships."""
    from kg.ontology import Ontology
    from sage.data import data_root

    return Ontology.load(folder or data_root() / "ontology")


def load_lexicons(paths: Sequence[Path] | None) -> list[Lexicon]:
    """Compiled lexicons by path."""
    from kg.lexicon import Lexicon

    return [Lexicon.load(path) for path in paths or ()]


@app.command("build")
def build_graph(
    sources: Sources,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="A folder, or a path ending in .graphml.")
    ],
    extractor: Annotated[
        Literal["rules", "chat"], typer.Option(help="`rules` needs no model.")
    ] = "rules",
    as_of: Annotated[
        int | None, typer.Option(help="Only literature up to this year.", metavar="YEAR")
    ] = None,
    fusion: Annotated[
        Literal["guarded", "paper"], typer.Option(help="`paper` is the bare cosine rule.")
    ] = "guarded",
    tau: Annotated[float | None, typer.Option(help="Cosine above which names are joined.")] = None,
    embedder: Annotated[
        str | None, typer.Option(help="`default`, `none`, or a sentence-transformers model.")
    ] = None,
    pdf_order: Annotated[
        Literal["fast", "paper"], typer.Option(help="Order of the PDF libraries.")
    ] = "fast",
    ocr: Annotated[bool, typer.Option(help="Read scanned pages with tesseract.")] = False,
    tables: Annotated[bool, typer.Option(help="Also read tables of PDFs (slow).")] = False,
    screen: Annotated[bool, typer.Option(help="Leave out papers off the topic.")] = False,
    include_retracted: Annotated[bool, typer.Option(help="Keep retracted papers.")] = False,
    workers: Annotated[int, typer.Option(help="Processes for PDFs and rules.", min=1)] = 2,
    max_cost: Annotated[
        float | None, typer.Option(help="Stop the chat extractor at this cost (USD).")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before paid calls.")] = False,
    ontology: OntologyDir = None,
    lexicon: Lexicons = None,
    as_json: AsJson = False,
) -> None:
    """Read papers and build the knowledge graph; call again to add papers or to go on after a stop.

    Example: sage kg build papers/ --out graph/

    Example: sage kg build refs.bib articles/ --out blca.graphml --screen --as-of 2018
    """
    from kg.build import BuildOptions, build
    from kg.screen import ScreenOptions
    from sage.console import counting, print_json
    from sage.settings import load

    settings = load()
    completion: Completion | None = None
    model = settings.models.mini
    if extractor == "chat":
        from sage.cli.kg_chat import make_completion

        completion = make_completion(settings)
    options = BuildOptions(
        extractor=extractor,
        as_of=as_of,
        fusion=fusion,
        tau=tau,
        embedder=embedder or settings.embedding_model,
        pdf_order=pdf_order,
        ocr=ocr,
        tables=tables,
        screen=ScreenOptions() if screen else None,
        include_retracted=include_retracted,
        workers=workers,
        model=model.name if extractor == "chat" else "",
        price_prompt=model.price_in or 0.0,
        price_completion=model.price_out or 0.0,
        max_cost=max_cost,
    )
    known, extra = load_ontology(ontology), load_lexicons(lexicon)
    sources = [_fetched(source, out, settings.contact_email) for source in sources]
    with counting("building", quiet=as_json) as progress:
        report = build(
            sources,
            out,
            options,
            known,
            lexicons=extra,
            completion=completion,
            progress=progress,
            on_estimate=None if yes else _ask,
        )
    if as_json:
        print_json(report)
    else:
        _print_report(report)


def _fetched(source: Path, out: Path, email: str | None) -> Path:
    """A folder with PubMed's records for a list of identifiers; other sources as they are."""
    if source.suffix.lower() != ".ids" or not source.is_file():
        return source
    from kg.build import graph_folder
    from kg.sources.fetch import fetch_ids, read_ids
    from sage.console import err

    folder = graph_folder(out) / "fetched" / source.stem
    report = fetch_ids(
        read_ids(source.read_text(encoding="utf-8").splitlines()), folder, email=email
    )
    err.print(f"{source}: {len(report.written)} fetched, {len(report.present)} there before")
    for identity in report.missing:
        err.print(f"[yellow]not in PubMed[/] {identity}")
    return folder


def _ask(estimate: Estimate) -> None:
    from sage.console import err

    price = f"about {estimate.cost:.2f} USD" if estimate.cost else "price unknown"
    err.print(
        f"{estimate.chunks} chunks, about {estimate.prompt_tokens:,} prompt and "
        f"{estimate.completion_tokens:,} reply tokens ({price})"
    )
    if not typer.confirm("Go on?", err=True):
        raise InputError("stopped before any paid call; --yes answers this question")


def _print_report(report: BuildReport) -> None:
    from rich.table import Table

    from sage.console import err, out

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
    table.add_row("pages", f"{report.pages:,} (files by tier: {counts(report.tiers)})")
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
    table.add_row("graph", f"{report.nodes:,} nodes, {report.edges:,} edges")
    table.add_row("merges", counts(report.merges))
    table.add_row("pruned", counts(report.pruned))
    if report.cost is not None:
        table.add_row(
            "cost",
            f"{report.cost:.4f} USD ({report.prompt_tokens:,} + {report.completion_tokens:,} "
            "tokens)",
        )
    table.add_row("seconds", ", ".join(f"{k} {v:.2f}" for k, v in report.seconds.items()))
    table.add_row("written", report.graphml)
    for source in report.sources:
        if source.status == "failed":
            err.print(f"[yellow]not read[/] {source.path}: {source.reason}")
    for note in report.notes:
        err.print(f"[yellow]note[/] {note}")
    out.print(table)


@app.command("screen")
def screen_papers(
    sources: Sources,
    threshold: Annotated[float, typer.Option(help="Score below which a paper is dropped.")] = 0.35,
    semantic: Annotated[
        bool, typer.Option(help="Also compare meaning, by the embedding model.")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Score papers by keywords, meaning, venue and substance; print what is dropped and why.

    Example: sage kg screen papers/ --threshold 0.4
    """
    from kg.screen import ScreenOptions, screen
    from kg.sources import SourceReport, read
    from sage.console import counting, err, out, print_json
    from sage.settings import load
    from sage.wiring import make_embedder

    reports: list[SourceReport] = []
    with counting("screening", quiet=as_json) as progress:
        documents = []
        for source in sources:
            for document in read(source, None, reports):
                documents.append(document)
                progress("read", len(documents), len(documents))
        model = make_embedder(load()) if semantic else None
        results = screen(documents, ScreenOptions(threshold=threshold), model)
    failed = [report for report in reports if report.status == "failed"]
    if as_json:
        print_json(
            {
                "papers": [result.model_dump() for result in results],
                "failed": [report.model_dump() for report in failed],
            }
        )
        return
    for result in sorted(results, key=lambda r: (r.kept, r.score)):
        parts = " ".join(f"{name} {value:.2f}" for name, value in result.parts.items())
        mark = "[green]kept[/]   " if result.kept else "[red]dropped[/]"
        out.print(f"{mark} {result.score:.2f}  {result.title[:80]}  [dim]({parts})[/]")
        if result.reason:
            out.print(f"        {result.reason}", style="dim")
    for report in failed:
        err.print(f"[yellow]not read[/] {report.path}: {report.reason}")
    dropped = sum(not result.kept for result in results)
    share = f" ({dropped / len(results):.0%})" if results else ""
    out.print(f"{len(results)} papers, {dropped} dropped{share}")


@app.command("evaluate")
def evaluate_graph(
    graph: Annotated[Path, typer.Argument(help="Output of `sage kg build`.")],
    sheet: Annotated[
        Path | None, typer.Option("--sheet", help="A filled review.csv: compute the figures.")
    ] = None,
    out_dir: Annotated[
        Path | None, typer.Option("--out", help="Folder for the sheet [default: GRAPH/review].")
    ] = None,
    size: Annotated[int, typer.Option(min=1, help="Triples in the sample.")] = 200,
    seed: Annotated[int, typer.Option(help="Seed of the sample.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Draw triples for human review, or compute the five quality figures from a filled sheet.

    Example: sage kg evaluate graph/

    Example: sage kg evaluate graph/ --sheet review.csv
    """
    from kg.build import STORE, graph_folder
    from kg.evaluate import score_sheet, stratified, write_sheet
    from kg.store import Store
    from sage.console import out, print_json

    if sheet is not None:
        report = score_sheet(sheet)
        if as_json:
            print_json(report)
            return
        for name, figure in report:
            if hasattr(figure, "low"):
                label = name.replace("_", " ")
                out.print(
                    f"{label:22} {figure.value:6.1%}  (95% CI {figure.low:.1%} to "
                    f"{figure.high:.1%}; {figure.count}/{figure.total})"
                )
        out.print(f"{report.reviewed} reviewed, {report.unanswered} not answered")
        return
    folder = graph_folder(graph)
    if not (folder / STORE).is_file():
        raise InputError(f"{folder}: no {STORE}; name the output of `sage kg build`")
    with Store(folder / STORE) as store:
        sample = stratified(list(store.triples()), size, seed)
    if not sample:
        raise InputError(f"{folder}: the store holds no triples to review")
    table, page = write_sheet(sample, out_dir or folder / "review")
    if as_json:
        print_json({"triples": len(sample), "sheet": str(table), "page": str(page)})
        return
    out.print(f"{len(sample)} triples\n  page   {page}\n  sheet  {table}")


@app.command("score-extractor")
def score(
    corpus: Annotated[
        Path, typer.Argument(help="PubTator file (BioRED, BC5CDR) or folder of brat files.")
    ],
    ontology: OntologyDir = None,
    lexicon: Lexicons = None,
    as_json: AsJson = False,
) -> None:
    """Score the rules extractor on a corpus that experts annotated.

    Example: sage kg score-extractor BioRED/Dev.PubTator --lexicon big.lex
    """
    from kg.score_extractor import score_extractor
    from sage.console import counting, out, print_json

    with counting("scoring", quiet=as_json) as progress:
        result = score_extractor(corpus, load_ontology(ontology), load_lexicons(lexicon), progress)
    if as_json:
        print_json(result.table())
        return
    from rich.table import Table

    table = Table("", "precision", "recall", "F1", "found", "expected")
    rows = [(f"{k}, exact", v) for k, v in result.entities_exact.items()]
    rows += [(f"{k}, relaxed", v) for k, v in result.entities_relaxed.items()]
    rows += [
        ("pairs, entities given", result.pairs_given_entities),
        ("pairs, end to end", result.pairs_end_to_end),
    ]
    if result.pairs_given_entities_typed is not None:
        rows.append(("pairs with type, entities given", result.pairs_given_entities_typed))
    for name, s in rows:
        table.add_row(
            name, f"{s.precision:.3f}", f"{s.recall:.3f}", f"{s.f1:.3f}", str(s.found),
            str(s.expected),
        )  # fmt: skip
    out.print(table)
    out.print(f"{result.documents} documents")


@lexicon_app.command("import")
def import_lexicon(
    files: Annotated[
        list[Path], typer.Argument(help="NCBI gene_info, HGNC table, OBO, MeSH (.gz allowed).")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The lexicon file to write.")],
    as_json: AsJson = False,
) -> None:
    """Compile vocabularies into one compact lexicon for `sage kg build --lexicon`.

    Example: sage kg lexicon import Homo_sapiens.gene_info.gz doid.obo --out big.lex
    """
    from dataclasses import asdict

    from kg.lexicon_import import import_lexicons
    from sage.console import err, print_json
    from sage.console import out as console

    with err.status("compiling"):
        report = import_lexicons(files, out)
    if as_json:
        print_json(asdict(report))
        return
    for name, count in report.files.items():
        console.print(f"{count:8,}  {name}")
    for reason, count in sorted(report.left_out.items()):
        console.print(f"{count:8,}  left out: {reason}", style="dim")
    console.print(f"{report.entries:,} entries, {report.terms:,} spellings in {out}")
