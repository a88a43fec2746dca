"""`sage kg` commands for a finished graph: paths, show, communities, export."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sage.cli.kg_options import AsOf, GraphPath, MaxCost, MinBelief, load_graph
from sage.cli.options import AsJson
from sage.core.errors import InputError
from sage.core.printable import count_noun, quote_text

if TYPE_CHECKING:
    from kg.communities.find import Community
    from kg.communities.summary import ChatSummaries, Summary
    from kg.fusion.model import Merge
    from kg.graph.concept import ConceptReport
    from kg.graph.types import GraphStats
    from kg.types import ScoredPath


def list_paths(
    concepts: Annotated[list[str], typer.Argument(help="Two node names, or a question in quotes.")],
    graph: GraphPath,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of paths; default: from the settings.")
    ] = None,
    max_hops: Annotated[
        int | None,
        typer.Option(min=1, max=8, help="Maximum length of a path; default: from the settings."),
    ] = None,
    as_of: AsOf = None,
    min_belief: MinBelief = None,
    domain: Annotated[
        str | None, typer.Option(help="Disease or field against which relevance is measured.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed for ordering ties.")] = 0,
    rank: Annotated[
        Literal["mechanism", "paper"],
        typer.Option(help="Rank by mechanistic strength, or by the composite of the SAGE paper."),
    ] = "mechanism",
    as_json: AsJson = False,
) -> None:
    """Find paths between two concepts, or for a question, with the strongest mechanism first.

    Each path also shows how little its two ends have been studied together.

    Example: sage kg paths FABP5 "overall survival" --graph graph/

    Example: sage kg paths "How do TLS affect survival in bladder cancer?" --graph graph/
    """
    from kg.paths.find import find_between, find_paths
    from sage.cli.console import err, out, print_json
    from sage.run.wiring import make_embedder
    from sage.settings import load

    if len(concepts) > 2:
        raise InputError(f"got {len(concepts)} concepts; give two, or a question in quotes")
    settings = load()
    asked = {"k": limit, "max_hops": max_hops, "seed": seed, "rank": rank}
    options = settings.path_options(**{name: x for name, x in asked.items() if x is not None})
    loaded = load_graph(graph, as_of, min_belief)
    embedder = make_embedder(settings)
    with err.status("searching"):
        if len(concepts) == 2:
            found = find_between(loaded, concepts[0], concepts[1], options, embedder, domain=domain)
        else:
            found = find_paths(loaded, concepts[0], options, embedder, domain=domain)
    if not found.concepts or (found.unmatched and len(concepts) == 2):
        raise InputError(" ".join(found.notes))
    if as_json:
        print_json(found)
        return
    for match in found.concepts:
        out.print(f"[dim]{match.phrase} → {match.name} ({match.how}, {match.score:.2f})[/]")
    for phrase in found.unmatched:
        out.print(f"[yellow]not in the graph:[/] {phrase}")
    for number, path in enumerate(found.paths, 1):
        out.print(f"[bold]{number}.[/] {path.account()}")
        _print_axes(path)
        if rank == "paper":
            s = path.scores
            out.print(
                f"   composite {s.total:.3f}  logic {s.logic:.2f} ({s.logic_raw:.3f})  relevance "
                f"{s.relevance:.2f} ({s.relevance_raw:.3f})  novelty {s.novelty:.2f} "
                f"({s.novelty_raw:.3f})  surprise {s.surprise:.2f} ({s.surprise_raw:.3f})",
                style="dim",
            )
        for edge in path.edges:
            flag = " [yellow](contradicted)[/]" if edge.contradicted else ""
            out.print(
                f"     {edge.head} {edge.relation} {edge.tail}: belief {edge.belief:.2f}{flag}"
            )
            # A paper's abstract and body often share a sentence.
            unique = {(e.pmid or e.doi or e.title, e.text.strip()): e for e in edge.evidence}
            for evidence in list(unique.values())[:2]:
                source = (
                    f"PMID {evidence.pmid}" if evidence.pmid else evidence.doi or evidence.title
                )
                out.print(
                    f"       {quote_text(evidence.text)} ({source}, {evidence.year or 'no year'})"
                )
    for note in found.notes:
        err.print(f"[yellow]note[/] {note}")
    out.print(f"{len(found.paths)} of {found.candidates} candidate paths")


def _print_axes(path: ScoredPath) -> None:
    """Print a path's strength as a mechanism, and how much its ends were studied together."""
    from sage.cli.console import out

    if path.mechanism is None or path.papers is None:
        return
    causal = f"{path.mechanism.causal_steps} of {len(path.edges)} steps causal"
    out.print(f"   mechanism {path.mechanism.strength:.2f} ({causal})", style="dim")
    linked = "already linked, " if path.linked else ""
    papers = count_noun(path.papers, "paper")
    out.print(
        f"   under-studied: {path.understudied:.2f} ({linked}{papers} on both ends)", style="dim"
    )


def show(
    graph: GraphPath,
    name: Annotated[
        str | None, typer.Argument(help="Name, alias or ID of a concept; default: the whole graph.")
    ] = None,
    as_of: AsOf = None,
    min_belief: MinBelief = None,
    out_path: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write an HTML page that opens offline.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of relations to print.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Show a concept: its relations, the papers for and against them, and its merged names.

    Without a name, shows the graph's nodes and edges by type, components, hubs and years.

    Example: sage kg show --graph graph/

    Example: sage kg show FABP5 --graph graph/ --out fabp5.html
    """
    from kg.graph.concept import describe_concept, render_concept
    from sage.cli.console import out, print_json
    from sage.core.files import write_text

    loaded = load_graph(graph, as_of, min_belief)
    if name is None:
        _print_stats(loaded.stats(), as_json)
        return
    report = describe_concept(loaded, name, as_of)
    merges = loaded.merges(report.node.id)
    if out_path is not None:
        write_text(out_path, render_concept(report))
    if as_json:
        joined = [merge.model_dump(mode="json") for merge in merges]
        print_json({**report.model_dump(mode="json"), "merges": joined})
    elif out_path is not None:
        out.print(f"{out_path}: {count_noun(len(report.relations), 'relation')}")
    else:
        _print_concept(report, merges, limit)


def _print_stats(found: GraphStats, as_json: bool) -> None:
    from sage.cli.console import out, print_json

    if as_json:
        print_json(found)
        return
    for name, value in found:
        if isinstance(value, dict):
            value = ", ".join(f"{k} {v}" for k, v in value.items())
        elif isinstance(value, tuple):
            value = ", ".join(f"{k} ({v})" for k, v in value)
        elif isinstance(value, float):
            value = f"{value:.2f}"
        out.print(f"[bold]{name.replace('_', ' '):18}[/] {value}")


def _print_concept(report: ConceptReport, merges: Sequence[Merge], limit: int) -> None:
    from sage.cli.console import out

    node = report.node
    out.print(f"[bold]{node.name}[/] ({node.type.value})")
    if node.definition:
        out.print(f"  {node.definition}", markup=False)
    if node.aliases:
        out.print(f"  also: {', '.join(node.aliases)}", markup=False)
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
            out.print(
                f"      {mark} {quote_text(quotation.text)} ({source})", style="dim", markup=False
            )
    for merge in merges:
        score = f" {merge.score:.3f}" if merge.score is not None else ""
        out.print(
            f"  merged: {merge.joined} ({merge.tier.value}{score}: {merge.reason})", style="dim"
        )
    rest = len(report.relations) - limit
    more = f" ({rest} more: --limit)" if rest > 0 else ""
    out.print(
        f"papers: {report.papers_for} for, {report.papers_against} against; "
        f"relations: {len(report.relations)}{more}"
    )


def summarize_communities(
    graph: GraphPath,
    limit: Annotated[
        int, typer.Option(min=1, help="Maximum number of communities, largest first.")
    ] = 10,
    resolution: Annotated[
        float, typer.Option(help="Values above 1 produce more and smaller communities.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="Random seed for the method.")] = 0,
    reasoner: Annotated[
        Literal["rules", "chat"],
        typer.Option(help="Method for writing the summaries; `rules` needs no model."),
    ] = "rules",
    max_cost: MaxCost = None,
    as_json: AsJson = False,
) -> None:
    """Summarize a graph's communities (Leiden), each sentence with the statements it cites.

    A model's sentences are checked against the statements that they cite; sentences with
    other names or claims are removed and counted.

    Example: sage kg communities --graph graph/ --limit 3
    """
    from kg.communities.find import find_communities as find
    from kg.communities.summary import summarize_by_rule
    from sage.cli.console import out, print_json

    found = find(load_graph(graph), resolution, seed)
    model = _summaries(max_cost) if reasoner == "chat" else None
    written = [
        (community, model.summarize(community) if model else summarize_by_rule(community))
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
    from sage.core.llm.client import Client
    from sage.run.wiring import make_ontology
    from sage.settings import load

    settings = load()
    if settings.effective_reasoner != "chat":
        raise InputError(
            "--reasoner chat requires a model: set base_url (`sage admin config` "
            "shows where), or omit it"
        )
    client = Client(settings.endpoint, Meter(budget_usd=max_cost))
    return ChatSummaries(client, settings.models.mini, make_ontology())


def _print_community(community: Community, summary: Summary) -> None:
    from sage.cli.console import out

    span = f", {community.first_year} to {community.last_year}" if community.first_year else ""
    out.print(
        f"[bold]{community.number}[/] {', '.join(community.concepts[:6])} "
        f"[dim]({len(community.concepts)} concepts, {community.relations} relations from "
        f"{community.papers} papers{span}; {community.outside} to other communities)[/]"
    )
    for sentence in summary.sentences:
        cited = ", ".join(map(str, sentence.cites))
        out.print(f"   {sentence.text} \\[{cited}]", highlight=False)
    if not summary.sentences:
        out.print("   no statements within this community", style="dim")
    for reason, count in summary.dropped.items():
        out.print(f"   {count} of the model's sentences removed: {reason}", style="yellow")
    if summary.note:
        out.print(f"   written by rule: {summary.note}", style="yellow", markup=False)


def export(
    graph: GraphPath,
    out_path: Annotated[Path, typer.Option("--out", "-o", help="File to write.")],
    format: Annotated[
        Literal["graphml", "json", "cx2", "html"],
        typer.Option(help="Export format."),
    ] = "graphml",
    focus: Annotated[str | None, typer.Option(help="html: node at the center.")] = None,
    max_nodes: Annotated[int, typer.Option(min=1, help="html: maximum number of nodes.")] = 400,
    as_json: AsJson = False,
) -> None:
    """Write the graph for other programs, or as a page that opens offline.

    The formats are GraphML, node-link JSON, CX2 (Cytoscape) and HTML.

    Example: sage kg export --graph graph/ --format html --out graph.html

    Example: sage kg export --graph graph/ --format cx2 --out graph.cx2
    """
    from kg.graph.export import export_graph
    from sage.cli.console import out, print_json

    written = export_graph(load_graph(graph), out_path, format, focus=focus, max_nodes=max_nodes)
    if as_json:
        print_json(written)
        return
    out.print(
        f"{written.path}: {count_noun(written.nodes, 'node')}, {count_noun(written.edges, 'edge')}"
    )
    if written.note:
        out.print(written.note, style="dim")
