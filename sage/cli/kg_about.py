"""What a graph says of a community of concepts and of one, and what the ontology says of names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sage.cli.kg_graph import GraphPath, load_graph
from sage.cli.kg_options import Lexicons, OntologyDir, load_lexicons, load_ontology
from sage.cli.options import AsJson
from sage.core.errors import InputError

if TYPE_CHECKING:
    from kg.communities.find import Community
    from kg.communities.summary import ChatSummaries, Summary
    from kg.graph.concept import ConceptReport
    from kg.lexicon.asked import Asked, Between


def register(app: typer.Typer) -> None:
    """Add these commands to the `kg` group."""
    app.command("communities")(communities)
    app.command("concept")(concept)
    app.command("term")(term)


def communities(
    graph: GraphPath,
    limit: Annotated[int, typer.Option(min=1, help="How many, the largest first.")] = 10,
    resolution: Annotated[float, typer.Option(help="Above 1: more and smaller ones.")] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="Of the method's random choices.")] = 0,
    text: Annotated[
        Literal["rules", "chat"], typer.Option(help="Who writes: `rules` needs no model.")
    ] = "rules",
    max_cost: Annotated[
        float | None, typer.Option(min=0, help="Stop the model at this cost (USD).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Summarize the communities of a graph (Leiden), each sentence with the statements it cites.

    A model's sentences are checked against the statements that they cite; what names or says
    anything else is removed and counted.

    Example: sage kg communities --graph graph/ --limit 3
    """
    from kg.communities.find import communities as find
    from kg.communities.summary import by_rule
    from sage.cli.console import out, print_json

    found = find(load_graph(graph), resolution, seed)
    model = _summaries(max_cost) if text == "chat" else None
    written = [
        (community, model.summarize(community) if model else by_rule(community))
        for community in found[:limit]
    ]
    if as_json:
        print_json(
            [
                {**community.model_dump(mode="json"), "summary": summary.model_dump(mode="json")}
                for community, summary in written
            ]
        )
        return
    for community, summary in written:
        _print_community(community, summary)
    concepts = sum(len(community.concepts) for community in found)
    out.print(f"{len(written)} of {len(found)} communities over {concepts} concepts (Leiden)")


def _summaries(max_cost: float | None) -> ChatSummaries:
    from kg.communities.summary import ChatSummaries
    from sage.core.llm.budget import Meter
    from sage.run.wiring import make_client, make_ontology
    from sage.settings import load

    settings = load()
    if settings.effective_reasoner != "chat":
        raise InputError(
            "--text chat needs a model: set base_url or api_key (`sage admin config` shows"
            " where), or "
            "leave it out"
        )
    client = make_client(settings, Meter(budget_usd=max_cost))
    return ChatSummaries(client, settings.models.mini, make_ontology())


def _print_community(community: Community, summary: Summary) -> None:
    from sage.cli.console import out

    span = f", {community.first_year} to {community.last_year}" if community.first_year else ""
    out.print(
        f"[bold]{community.number}[/] {', '.join(community.concepts[:6])} "
        f"[dim]({len(community.concepts)} concepts, {community.relations} relations from "
        f"{community.papers} papers{span}; {community.outside} lead out)[/]"
    )
    for sentence in summary.sentences:
        cited = ", ".join(map(str, sentence.cites))
        out.print(f"   {sentence.text} \\[{cited}]", highlight=False)
    if not summary.sentences:
        out.print("   no statement stands inside it", style="dim")
    for reason, count in summary.dropped.items():
        out.print(f"   {count} of the model's sentences removed: {reason}", style="yellow")
    if summary.note:
        out.print(f"   written by rule: {summary.note}", style="yellow", markup=False)


def concept(
    name: Annotated[str, typer.Argument(help="Name, alias or id.")],
    graph: GraphPath,
    as_of: Annotated[int | None, typer.Option(metavar="YEAR", help="The graph as it was.")] = None,
    out_path: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write an HTML page that opens offline.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Relations to print.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Show one concept: its relations, and the papers for and against them by year.

    Example: sage kg concept FABP5 --graph graph/

    Example: sage kg concept FABP5 --graph graph/ --out fabp5.html
    """
    from kg.graph.concept import concept_page, concept_report
    from sage.cli.console import out, print_json
    from sage.core.files import write_text

    report = concept_report(load_graph(graph, as_of), name, as_of)
    if out_path is not None:
        write_text(out_path, concept_page(report))
    if as_json:
        print_json(report)
        return
    if out_path is not None:
        out.print(f"{out_path}: {len(report.relations)} relations")
        return
    _print_concept(report, limit)


def _print_concept(report: ConceptReport, limit: int) -> None:
    from sage.cli.console import out

    node = report.node
    out.print(f"[bold]{node.name}[/] ({node.type.value})")
    if node.definition:
        out.print(f"  {node.definition}", markup=False)
    if report.links:
        out.print("  " + ", ".join(label for label, _ in report.links))
    for count in report.years:
        bars = "+" * count.papers_for + "-" * count.papers_against
        out.print(f"  {count.year}  {count.papers_for} for, {count.papers_against} against  {bars}")
    if any(report.undated):
        out.print("  no year  {} for, {} against".format(*report.undated))
    for relation in report.relations[:limit]:
        denied = "denied: " if relation.denied else ""
        sign = "" if relation.polarity.value == "neutral" else f" ({relation.polarity.value})"
        out.print(
            f"  {denied}{relation.head} {relation.relation.replace('_', ' ')} "
            f"[bold]{relation.tail}[/]{sign}: {relation.papers_for} for, "
            f"{relation.papers_against} against"
        )
        against = [quotation for quotation in relation.quotations if not quotation.speaks_for]
        for quotation in (*[q for q in relation.quotations if q.speaks_for][:2], *against[:2]):
            mark = "·" if quotation.speaks_for else "✗"
            source = ", ".join(map(str, filter(None, (quotation.year, quotation.paper))))
            out.print(f"      {mark} “{quotation.text}” ({source})", style="dim", markup=False)
    rest = len(report.relations) - limit
    more = f" ({rest} more: --limit)" if rest > 0 else ""
    out.print(
        f"papers: {report.papers_for} for, {report.papers_against} against; "
        f"relations: {len(report.relations)}{more}"
    )


def term(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="Names, or sentences that hold names.")
    ],
    ontology: OntologyDir = None,
    lexicon: Lexicons = None,
    as_json: AsJson = False,
) -> None:
    """Ask the ontology what names mean, and how two or more of them are related.

    Exit code 1 if a name means nothing to it.

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
            (
                "identifiers",
                [
                    one if ":" in one else f"{space} {one}"
                    for space, one in meaning.identifiers.items()
                ],
            ),
            *((kind.replace("_", " "), found) for kind, found in meaning.related.items()),
        ):
            if others:
                out.print(f"    {label}: {', '.join(others)}", markup=False)
    if not answer.meanings:
        out.print("  nothing that the ontology knows", style="yellow")


def _print_between(between: list[Between]) -> None:
    from kg.lexicon.asked import UNRELATED
    from sage.cli.console import out

    # Of many names, the pairs that nothing relates would hide those that something does.
    told = [pair for pair in between if len(between) == 1 or pair.words != UNRELATED]
    for pair in told:
        out.print(f"{pair.first} and {pair.second}: {pair.words}", markup=False)
    if len(told) < len(between):
        out.print(f"{len(between) - len(told)} pairs: {UNRELATED}")
