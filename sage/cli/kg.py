"""`sage kg`: build a graph from literature, and look up names in the ontology."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sage.cli import kg_build, kg_graph, kg_vocabulary
from sage.cli.kg_options import Lexicons, OntologyDir
from sage.cli.options import AsJson
from sage.core.printable import quote_text

if TYPE_CHECKING:
    from kg.lexicon.asked import Asked, Between

app = typer.Typer(
    add_completion=False,
    name="kg",
    help="Build knowledge graphs from literature; find paths, export.",
    no_args_is_help=True,
)
app.command("build")(kg_build.build_graph)
app.command("paths")(kg_graph.list_paths)
app.command("show")(kg_graph.show)
app.command("communities")(kg_graph.summarize_communities)
app.command("export")(kg_graph.export)
app.add_typer(kg_vocabulary.app)


@app.command("term")
def define_terms(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="Names, or sentences that contain names.")
    ],
    ontology: OntologyDir = None,
    lexicon: Lexicons = None,
    as_json: AsJson = False,
) -> None:
    """Look up names in the ontology, and show how two or more of them are related.

    The exit code is 1 if a name is unknown.

    Example: sage kg term "complete response" "pathological complete response"

    Example: sage kg term "NAC before cystectomy" --json
    """
    from kg.lexicon.asked import describe_names
    from sage.cli.console import print_json
    from sage.run.wiring import load_lexicons, make_ontology

    answers, between = describe_names(names, make_ontology(ontology), load_lexicons(lexicon or ()))
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
        part = "" if meaning.whole else f"{quote_text(meaning.text)}: "
        out.print(f"  {part}{meaning.concept} ({meaning.type.value})", markup=False)
        if meaning.definition:
            out.print(f"    {meaning.definition}", markup=False, style="dim")
        identifiers = [
            number if ":" in number else f"{space} {number}"
            for space, number in meaning.identifiers.items()
        ]
        for label, others in (
            ("also called", meaning.synonyms),
            ("identifiers", identifiers),
            *((kind.replace("_", " "), found) for kind, found in meaning.related.items()),
        ):
            if others:
                out.print(f"    {label}: {', '.join(others)}", markup=False)
    if not answer.meanings:
        out.print("  not in the ontology", style="yellow")


def _print_between(between: list[Between]) -> None:
    from kg.lexicon.asked import UNRELATED
    from sage.cli.console import out

    # Among many names, unrelated pairs would hide related pairs.
    related = [pair for pair in between if len(between) == 1 or pair.words != UNRELATED]
    for pair in related:
        out.print(f"{pair.first} and {pair.second}: {pair.words}", markup=False)
    if len(related) < len(between):
        out.print(f"{len(between) - len(related)} pairs: {UNRELATED}")
