"""`sage kg`, the commands on a finished graph: paths, stats, show, export, merges, scores."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sage.cli.options import AsJson
from sage.core.printable import amount

if TYPE_CHECKING:
    from kg.graph.model import Graph
    from kg.types import Evidence, ScoredPath

GraphPath = Annotated[
    Path, typer.Option("--graph", "-g", help="Output of `sage kg build`, or a .graphml file.")
]
NameTable = Annotated[
    Path, typer.Argument(help="Names of known identity: six columns, tab-separated.")
]


def register(app: typer.Typer) -> None:
    """Add these commands to the `kg` group."""
    app.command("paths")(paths)
    app.command("stats")(stats)
    app.command("show")(show)
    app.command("export")(export)
    app.command("merges")(merges)
    app.command("score-fusion")(score_fusion)
    app.command("calibrate")(calibrate)


def load_graph(path: Path, as_of: int | None = None) -> Graph:
    """A graph by folder or file, as it was in a year if asked."""
    from kg.corpus.places import graph_folder
    from sage.run.wiring import open_graph
    from sage.settings import load

    folder = graph_folder(path)
    graph = open_graph(folder if folder.is_dir() else path, load())
    return graph.as_of(as_of) if as_of is not None else graph


def paths(
    concepts: Annotated[
        list[str], typer.Argument(help="Two node names, or one question in quotes.")
    ],
    graph: GraphPath,
    k: Annotated[int, typer.Option(min=1, help="How many paths.")] = 6,
    max_hops: Annotated[int, typer.Option(min=1, max=8, help="Longest path.")] = 4,
    as_of: Annotated[int | None, typer.Option(metavar="YEAR", help="The graph as it was.")] = None,
    domain: Annotated[
        str | None, typer.Option(help="What Relevance is measured against: a disease, say.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Order among equals.")] = 0,
    rank: Annotated[
        Literal["mechanism", "paper"],
        typer.Option(help="What acts on what, or the composite of the SAGE paper."),
    ] = "mechanism",
    co_study: Annotated[
        bool,
        typer.Option("--co-study", help="Where nothing else: what was only studied together."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Find paths between two concepts, or for a question, the strongest mechanism first.

    Two axes stand beside each path and are never summed: how plausible a link of its ends is,
    learned from how the graph grew, and how little studied they are together.

    Example: sage kg paths FABP5 "overall survival" --graph graph/

    Example: sage kg paths "How do TLS affect survival in bladder cancer?" --graph graph/
    """
    from kg.paths.find import PathOptions, between, generate
    from sage.cli.console import err, out, print_json
    from sage.core.errors import InputError
    from sage.run.wiring import make_embedder
    from sage.settings import load

    if len(concepts) > 2:
        raise InputError(f"{len(concepts)} concepts; give two, or one question in quotes")
    settings = load()
    weights = settings.weights
    options = PathOptions(
        k=k,
        max_hops=max_hops,
        min_hops=min(2, max_hops),
        logic=weights.logic,
        relevance=weights.relevance,
        novelty=weights.novelty,
        surprise=weights.surprise,
        seed=seed,
        rank=rank,
        co_study=co_study,
    )
    loaded = load_graph(graph, as_of)
    embedder = make_embedder(settings)
    with err.status("searching"):
        if len(concepts) == 2:
            found = between(loaded, concepts[0], concepts[1], options, embedder, domain=domain)
        else:
            found = generate(loaded, concepts[0], options, embedder, domain=domain)
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
            for evidence in _different(edge.evidence)[:2]:
                source = (
                    f"PMID {evidence.pmid}" if evidence.pmid else evidence.doi or evidence.title
                )
                out.print(
                    f"       “{evidence.text.strip()}” ({source}, {evidence.year or 'no year'})"
                )
    for note in found.notes:
        err.print(f"[yellow]note[/] {note}")
    out.print(f"{len(found.paths)} of {found.candidates} candidate paths")


def _different(evidence: Sequence[Evidence]) -> list[Evidence]:
    """Without what a paper says again: its abstract and its body often hold one sentence."""
    return list({(e.pmid or e.doi or e.title, e.text.strip()): e for e in evidence}.values())


def _print_axes(path: ScoredPath) -> None:
    """The strength of a path as a mechanism, and the two axes of its ends."""
    from sage.cli.console import out

    ahead, how = path.prospect, path.mechanism
    if ahead is None or how is None:
        return
    plausible = "already linked" if ahead.linked else "unknown: too few dated links"
    if ahead.plausible_ratio is not None and ahead.plausible_percentile is not None:
        plausible = (
            f"{ahead.times} as likely as the average unlinked pair to be "
            f"linked within {ahead.years} years, more than {ahead.above} of them"
        )
    causal = f"{how.causal_steps} of {len(path.edges)} steps causal"
    out.print(f"   mechanism {how.strength:.2f} ({causal})", style="dim")
    out.print(f"   plausible: {plausible}", style="dim")
    papers = f"{ahead.papers} paper{'s' * (ahead.papers != 1)} on both ends"
    out.print(f"   under-studied: {ahead.understudied:.2f} ({papers})", style="dim")


def stats(graph: GraphPath, as_json: AsJson = False) -> None:
    """Counts of the graph: nodes and edges by type, components, hubs, years.

    Example: sage kg stats --graph graph/
    """
    from sage.cli.console import out, print_json

    found = load_graph(graph).stats()
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


def show(
    node: Annotated[str, typer.Argument(help="Name, alias or id.")],
    graph: GraphPath,
    limit: Annotated[int, typer.Option(min=1, help="Neighbors to print.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Show a node: identifiers, definition, neighbors with their evidence.

    Example: sage kg show FABP5 --graph graph/
    """
    from sage.cli.console import out, print_json

    loaded = load_graph(graph)
    view = loaded.node(node)
    neighbors = loaded.neighbors(view.id, limit)
    if as_json:
        print_json(
            {
                "node": view.model_dump(mode="json"),
                "neighbors": [
                    neighbor.model_dump(mode="json")
                    | {
                        "edges": [
                            edge.model_dump(mode="json")
                            for edge in (
                                loaded.evidence(view.id, neighbor.node.id)
                                if neighbor.forward
                                else loaded.evidence(neighbor.node.id, view.id)
                            )
                        ]
                    }
                    for neighbor in neighbors
                ],
            }
        )
        return
    out.print(f"[bold]{view.name}[/] ({view.type.value}), degree {view.degree}, id {view.id}")
    if view.aliases:
        out.print(f"  also: {', '.join(view.aliases)}")
    if view.definition:
        out.print(f"  {view.definition}")
    if view.identifiers:
        known = view.identifiers.items()
        out.print("  " + ", ".join(f"{kind}:{name.rpartition(':')[2]}" for kind, name in known))
    for neighbor in neighbors:
        arrow = "→" if neighbor.forward else "←"
        relations = ", ".join(dict.fromkeys(neighbor.relations))
        out.print(
            f"  {arrow} {relations} [bold]{neighbor.node.name}[/] belief {neighbor.belief:.2f}"
        )
        ends = (view.id, neighbor.node.id) if neighbor.forward else (neighbor.node.id, view.id)
        for edge in loaded.evidence(*ends):
            for evidence in _different([support.evidence for support in edge.supports])[:2]:
                mark = "✗" if edge.negated else "·"
                out.print(f"      {mark} “{evidence.text.strip()}”", style="dim")


def export(
    graph: GraphPath,
    out_path: Annotated[
        Path, typer.Option("--out", "-o", help="File to write; kgx and neo4j: a folder.")
    ],
    format: Annotated[
        Literal["graphml", "json", "cx2", "turtle", "bel", "html", "kgx", "neo4j"],
        typer.Option(help="Format."),
    ] = "graphml",
    focus: Annotated[str | None, typer.Option(help="html: the node in the middle.")] = None,
    max_nodes: Annotated[int, typer.Option(min=1, help="html: nodes on the page.")] = 400,
    as_json: AsJson = False,
) -> None:
    """Write the graph for other programs, or as a page to open offline.

    GraphML, node-link JSON, CX2 (Cytoscape), Turtle (RDF with evidence), BEL (and a table of what
    it cannot say), KGX or Neo4j tables.

    Example: sage kg export --graph graph/ --format html --out graph.html

    Example: sage kg export --graph graph/ --format kgx --out kgx/

    Example: sage kg export --graph graph/ --format turtle --out graph.ttl
    """
    from kg.graph.export import export as write
    from sage.cli.console import out, print_json

    written = write(load_graph(graph), out_path, format, focus=focus, max_nodes=max_nodes)
    if as_json:
        print_json(written)
        return
    out.print(f"{written.path}: {amount(written.nodes, 'node')}, {amount(written.edges, 'edge')}")
    if written.note:
        out.print(written.note, style="dim")


def merges(
    graph: GraphPath,
    about: Annotated[str | None, typer.Argument(help="Only merges of this node.")] = None,
    tier: Annotated[str | None, typer.Option(help="Only merges of this kind.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Most merges to print.")] = None,
    as_json: AsJson = False,
) -> None:
    """List which names were joined into one node, and why.

    Example: sage kg merges --graph graph/

    Example: sage kg merges "bladder cancer" --graph graph/
    """
    from kg.graph.merges import list_merges
    from sage.cli.console import out, print_json

    found = list_merges(load_graph(graph), about, tier, limit)
    if as_json:
        print_json([merge.model_dump(mode="json") for merge in found.merges])
        return
    for merge in found.merges:
        score = f" {merge.score:.3f}" if merge.score is not None else ""
        why = f"{merge.tier.value}{score}: {merge.reason}"
        out.print(f"{merge.joined} → [bold]{merge.kept}[/]  [dim]{why}[/]")
    out.print(f"{len(found.merges)} of {found.total} merges")


def score_fusion(
    names: NameTable,
    mode: Annotated[Literal["guarded", "paper"], typer.Option(help="Fusion mode.")] = "guarded",
    tau: Annotated[float | None, typer.Option(help="Cosine threshold.")] = None,
    as_json: AsJson = False,
) -> None:
    """Precision and recall of merges on names whose identity is known.

    Example: sage kg score-fusion mesh_to_other.tsv
    """
    from benchmarks.adapters.fusion import read_identity
    from benchmarks.adapters.fusion import score_fusion as score
    from kg.fusion.fuse import FusionOptions
    from sage.cli.console import err, out, print_json
    from sage.run.wiring import make_embedder
    from sage.settings import load

    base = FusionOptions.paper() if mode == "paper" else FusionOptions()
    options = base if tau is None else base.model_copy(update={"tau": tau})
    with err.status("merging"):
        found = score(read_identity(names), options, make_embedder(load()))
    if as_json:
        print_json(found)
        return
    out.print(
        f"precision {found.precision:.3f}  recall {found.recall:.3f}  ({found.correct_pairs} of "
        f"{found.merged_pairs} merged pairs right; {found.true_pairs} pairs are one thing)"
    )
    out.print(f"{found.clusters} clusters, the largest of {found.largest_cluster} names")
    for name, two in found.wrong:
        out.print(f"  wrong: {name} = {two}", style="dim")


def calibrate(
    names: NameTable,
    precision: Annotated[float, typer.Option(help="Precision that merges must reach.")] = 0.8,
    as_json: AsJson = False,
) -> None:
    """Find the cosine threshold of the embedding model in the settings.

    Example: sage kg calibrate mesh_to_other.tsv --precision 0.85
    """
    from benchmarks.adapters.fusion import read_identity
    from benchmarks.adapters.threshold import calibrate as run
    from sage.cli.console import err, out, print_json
    from sage.run.wiring import make_embedder
    from sage.settings import load

    with err.status("trying thresholds"):
        found = run(read_identity(names), make_embedder(load()), precision=precision)
    if as_json:
        print_json(found)
        return
    for score in found.scores:
        out.print(
            f"tau {score.tau:.3f}  precision {score.precision:.3f}  recall {score.recall:.3f}"
        )
    out.print(
        f"{found.embedder}: use tau = {found.tau}"
        if found.tau is not None
        else "no threshold reaches it"
    )
