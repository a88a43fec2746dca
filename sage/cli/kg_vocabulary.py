"""`sage kg vocabulary`: compile or fetch names beyond those that ship."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sage.cli.options import AsJson

app = typer.Typer(
    add_completion=False,
    name="vocabulary",
    help="Compile or fetch vocabularies of genes, diseases, chemicals, cells and processes.",
    no_args_is_help=True,
)
Out = Annotated[Path, typer.Option("--out", "-o", help="Lexicon file to write.")]


@app.command("compile")
def compile_vocabularies(
    files: Annotated[
        list[Path],
        typer.Argument(help="NCBI gene_info, HGNC table, OBO, MeSH, Hetionet nodes (.gz allowed)."),
    ],
    out: Out,
    as_json: AsJson = False,
) -> None:
    """Compile vocabularies into one compact lexicon for `sage kg build --lexicon`.

    Example: sage kg vocabulary compile Homo_sapiens.gene_info.gz doid.obo --out big.lex
    """
    _compile(files, out, as_json)


@app.command("fetch")
def fetch(
    out: Out,
    folder: Annotated[
        Path | None,
        typer.Option(help="Folder that keeps the downloaded files; default: next to the lexicon."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Fetch the complete vocabularies (about 350 MB) and compile them for `--lexicon`.

    Sources: NCBI Gene, MeSH, Disease Ontology, Cell Ontology, Gene Ontology, ChEBI, Cellosaurus.
    Files that are already in the folder are not fetched again.

    Example: sage kg vocabulary fetch --out full.lex
    """
    from kg.lexicon.fetch import fetch_vocabularies
    from sage.cli.console import err
    from sage.settings import load

    files = []
    for path, present in fetch_vocabularies(folder or out.with_suffix(".files"), load().services):
        err.print(f"{path}{': already present' if present else ''}", soft_wrap=True)
        files.append(path)
    _compile(files, out, as_json)


def _compile(files: list[Path], out: Path, as_json: bool) -> None:
    from dataclasses import fields

    from kg.lexicon.vocabularies import Evidence, import_lexicons
    from sage.cli.console import err, print_json
    from sage.cli.console import out as console
    from sage.core.data import data_folder

    with err.status("compiling"):
        evidence = Evidence.load(data_folder("vocabulary") / "evidence.tsv")
        report = import_lexicons(files, out, evidence)
    if as_json:
        print_json({field.name: getattr(report, field.name) for field in fields(report)})
        return
    for name, count in report.files.items():
        console.print(f"{count:8,}  {name}{'' if count else ' (tree numbers of MeSH, no names)'}")
    for reason, count in sorted(report.left_out.items()):
        console.print(f"{count:8,}  omitted: {reason}", style="dim")
    console.print(
        f"{report.entries:,} entries, {report.names:,} names ({report.ambiguous:,} of them "
        f"ambiguous), {report.terms:,} spellings in {out}"
    )
