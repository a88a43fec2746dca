"""`sage kg`: literature to graph, screening, lexicons, and the graph's quality."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sage.cli import kg_about, kg_build, kg_foresight, kg_gather, kg_graph
from sage.cli.kg_options import Lexicons, OntologyDir, Sources, load_lexicons, load_ontology
from sage.cli.options import AsJson
from sage.core.errors import InputError

app = typer.Typer(
    add_completion=False,
    name="kg",
    help="Literature to knowledge graph: gather, build, paths, export, quality.",
    no_args_is_help=True,
)
lexicon_app = typer.Typer(
    add_completion=False, name="lexicon", help="Large vocabularies.", no_args_is_help=True
)
app.add_typer(lexicon_app)
kg_graph.register(app)
kg_about.register(app)
kg_foresight.register(app)
kg_gather.register(app)
app.command("build")(kg_build.build_graph)


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
    from kg.corpus.screen import ScreenOptions, screen
    from kg.sources import SourceReport, read
    from sage.cli.console import counting, err, out, print_json
    from sage.run.wiring import make_embedder
    from sage.settings import load

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
        Path | None, typer.Option("--out", help="Folder for the sheet; without, GRAPH/review.")
    ] = None,
    size: Annotated[int, typer.Option(min=1, help="Triples in the sample.")] = 200,
    seed: Annotated[int, typer.Option(help="Seed of the sample.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Draw triples for human review, or compute the five quality figures from a filled sheet.

    Example: sage kg evaluate graph/

    Example: sage kg evaluate graph/ --sheet graph/review/review.csv
    """
    from benchmarks.adapters.triple_review import score_sheet, stratified, write_sheet
    from kg.corpus.places import STORE, graph_folder
    from kg.corpus.store import Store
    from sage.cli.console import out, print_json

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
    look_up: Annotated[
        Path | None,
        typer.Option(
            "--look-up", help="Corpus whose annotated strings are looked up: the baseline of names."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Score the rules extractor on a corpus that experts annotated.

    Example: sage kg score-extractor BioRED/Dev.PubTator --lexicon big.lex

    Example: sage kg score-extractor BioRED/Dev.PubTator --look-up BioRED/Train.PubTator
    """
    from benchmarks.adapters.extraction import score_extractor
    from sage.cli.console import counting, out, print_json

    with counting("scoring", quiet=as_json) as progress:
        result = score_extractor(
            corpus, load_ontology(ontology), load_lexicons(lexicon), progress, look_up
        )
    if as_json:
        print_json(result.table())
        return
    from rich.table import Table

    table = Table("", "precision", "recall", "F1", "found", "expected")
    rows = [(f"{k}, exact", v) for k, v in result.entities_exact.items()]
    rows += [(f"{k}, strings looked up", v) for k, v in result.entities_looked_up.items()]
    rows += [(f"{k}, relaxed", v) for k, v in result.entities_relaxed.items()]
    rows += [
        ("pairs, entities given", result.pairs_given_entities),
        ("the same with --broad", result.pairs_given_entities_broad),
        ("every pair in a sentence", result.pairs_in_a_sentence),
        ("pairs, end to end", result.pairs_end_to_end),
    ]
    rows += [(f"{k}, own identifiers", v) for k, v in result.concepts.items()]
    rows.append(("pairs, end to end with own identifiers", result.pairs_own_identifiers))
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

    from kg.lexicon.vocabularies import import_lexicons
    from sage.cli.console import err, print_json
    from sage.cli.console import out as console

    with err.status("compiling"):
        report = import_lexicons(files, out)
    if as_json:
        print_json(asdict(report))
        return
    for name, count in report.files.items():
        console.print(f"{count:8,}  {name}{'' if count else ' (tree numbers of MeSH, no names)'}")
    for reason, count in sorted(report.left_out.items()):
        console.print(f"{count:8,}  left out: {reason}", style="dim")
    console.print(f"{report.entries:,} entries, {report.terms:,} spellings in {out}")
