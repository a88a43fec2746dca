"""`sage kg`: literature to graph, screening, names and lexicons."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sage.cli import kg_build, kg_gather, kg_graph
from sage.cli.kg_options import Lexicons, OntologyDir, Sources, load_lexicons, load_ontology
from sage.cli.options import AsJson

if TYPE_CHECKING:
    from kg.lexicon.asked import Asked, Between

app = typer.Typer(
    add_completion=False,
    name="kg",
    help="Literature to knowledge graph: gather, build, paths, export.",
    no_args_is_help=True,
)
for name, command in {
    "gather": kg_gather.gather_papers,
    "build": kg_build.build_graph,
    "update": kg_gather.update_graph,
    "paths": kg_graph.find_paths,
    "show": kg_graph.show,
    "communities": kg_graph.summarize_communities,
    "export": kg_graph.export,
}.items():
    app.command(name)(command)


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


@app.command("lexicon")
def import_lexicon(
    files: Annotated[
        list[Path], typer.Argument(help="NCBI gene_info, HGNC table, OBO, MeSH (.gz allowed).")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The lexicon file to write.")],
    as_json: AsJson = False,
) -> None:
    """Compile vocabularies into one compact lexicon for `sage kg build --lexicon`.

    Example: sage kg lexicon Homo_sapiens.gene_info.gz doid.obo --out big.lex
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


@app.command("term")
def define_terms(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="Names, or sentences that hold names.")
    ],
    ontology: OntologyDir = None,
    lexicon: Lexicons = None,
    as_json: AsJson = False,
) -> None:
    """Look names up in the ontology, and show how two or more of them are related.

    Exit code 1 if a name is not in it.

    Example: sage kg term "complete response" "pathological complete response"

    Example: sage kg term "NAC before cystectomy"
    """
    from kg.lexicon.asked import ask
    from sage.cli.console import print_json

    answers, between = ask(names, load_ontology(ontology), load_lexicons(lexicon))
    if as_json:
        print_json(
            {
                "names": [answer.model_dump(mode="json") for answer in answers],
                "between": [pair.model_dump(mode="json") for pair in between],
            }
        )
    else:
        for answer in answers:
            _print_term(answer)
        _print_between(between)
    if not all(answer.meanings for answer in answers):
        raise typer.Exit(1)


def _print_term(answer: Asked) -> None:
    from sage.cli.console import out

    out.print(answer.name, style="bold", markup=False)
    for meaning in answer.meanings:
        part = "" if meaning.whole else f"“{meaning.text}”: "
        out.print(f"  {part}{meaning.concept} ({meaning.type.value})", markup=False)
        if meaning.definition:
            out.print(f"    {meaning.definition}", markup=False, style="dim")
        for label, others in (
            ("also called", meaning.synonyms),
            ("identifiers", _list_identifiers(meaning.identifiers)),
            *((kind.replace("_", " "), found) for kind, found in meaning.related.items()),
        ):
            if others:
                out.print(f"    {label}: {', '.join(others)}", markup=False)
    if not answer.meanings:
        out.print("  not in the ontology", style="yellow")


def _list_identifiers(identifiers: dict[str, str]) -> list[str]:
    return [
        number if ":" in number else f"{space} {number}" for space, number in identifiers.items()
    ]


def _print_between(between: list[Between]) -> None:
    from kg.lexicon.asked import UNRELATED
    from sage.cli.console import out

    # Among many names, unrelated pairs would hide the related ones.
    related = [pair for pair in between if len(between) == 1 or pair.words != UNRELATED]
    for pair in related:
        out.print(f"{pair.first} and {pair.second}: {pair.words}", markup=False)
    if len(related) < len(between):
        out.print(f"{len(between) - len(related)} pairs: {UNRELATED}")
