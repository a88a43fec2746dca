"""Parameters shared by several `sage kg` commands: papers, graph, ontology and lexicons."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from kg.graph.model import Graph

Sources = Annotated[
    list[Path],
    typer.Argument(
        help="Files or folders: PDF, JATS, PubMed XML, NBIB, BibTeX, text, Markdown; a file ending "
        "in .ids lists PMIDs and DOIs to fetch from PubMed."
    ),
]
GraphPath = Annotated[
    Path, typer.Option("--graph", "-g", help="Output of `sage kg build`, or a .graphml file.")
]
AsOf = Annotated[
    int | None, typer.Option(metavar="YEAR", help="Use only literature up to this year.")
]
MaxCost = Annotated[float | None, typer.Option(min=0, help="Stop the model at this cost (USD).")]
OntologyDir = Annotated[
    Path | None, typer.Option("--ontology", help="Folder with entities.tsv and relations.tsv.")
]
Lexicons = Annotated[
    list[Path] | None,
    typer.Option(
        "--lexicon", help="Compiled lexicon, used before the vocabulary that ships; repeatable."
    ),
]


MinBelief = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=1,
        help="Show statements from this support on (0: all); default: 0.75 for a graph built with "
        "rules.",
    ),
]


def load_graph(path: Path, as_of: int | None = None, min_belief: float | None = None) -> Graph:
    """Load a view of a graph, restricted to what was known in the year `as_of`."""
    from rich.markup import escape

    from kg.corpus.places import graph_folder
    from sage.cli.console import err
    from sage.run.wiring import open_graph
    from sage.settings import load

    folder = graph_folder(path)
    graph = open_graph(folder if folder.is_dir() else path, load(), min_belief)
    for note in graph.meta.get("notes") or ():
        err.print(f"[yellow]note[/] {path}: {escape(note)}", soft_wrap=True)
    return graph.as_of(as_of) if as_of is not None else graph
