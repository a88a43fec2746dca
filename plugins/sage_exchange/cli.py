"""`sage exchange`: convert graphs, maps, and analyses to and from other programs' formats."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from sage.cli.kg_options import GraphPath, load_graph
from sage.cli.options import AsJson
from sage.cli.run import RunName
from sage.core.errors import InputError
from sage.core.printable import count_noun
from sage_exchange.maps.cli import app as maps
from sage_exchange.r.cli import export_script

app = typer.Typer(no_args_is_help=True)
app.add_typer(maps, name="maps")
app.command("r")(export_script)

Format = Literal["trrust", "signor", "ctd", "hetionet", "pubtator", "semmeddb", "indra"]


@app.command("import")
def import_graph(
    format: Annotated[Format, typer.Argument(help="Collection from which the files come.")],
    files: Annotated[list[Path], typer.Argument(help="Files as published by their source.")],
    out_path: Annotated[Path, typer.Option("--out", "-o", help="Folder for the graph.")],
    also: Annotated[
        list[str] | None,
        typer.Option(help="Additional file in another format for the same graph, as FORMAT:FILE."),
    ] = None,
    years: Annotated[
        Path | None,
        typer.Option(help="Table of years by PMID; by default, years are estimated from the PMID."),
    ] = None,
    genes: Annotated[
        Path | None,
        typer.Option(
            help="NCBI gene_info: identifies genes known only by symbol, so that "
            "sources can be joined."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Import relations from another collection into a graph, with years if known.

    Example: sage exchange import pubtator BioRED/Dev.PubTator --out dated/

    Example: sage exchange import trrust trrust.tsv --genes Homo_sapiens.gene_info.gz --out dated/
    """
    from kg.corpus.places import GRAPHML
    from kg.graph.graphml import write
    from kg.graph.model import Graph
    from sage.cli.console import err, out, print_json
    from sage_exchange.facts import fuse_facts, number_genes, read_gene_numbers
    from sage_exchange.formats import FORMATS
    from sage_exchange.years import read_years

    wanted = [(str(format), path) for path in files]
    for item in also or ():
        name, _, path = item.partition(":")
        if name not in FORMATS or not path:
            known = ", ".join(FORMATS)
            raise InputError(
                f'--also "{item}": expected FORMAT:FILE, where FORMAT is one of {known}'
            )
        wanted.append((name, Path(path)))
    numbers = read_gene_numbers(genes) if genes else {}
    dated = read_years(years) if years else {}
    with err.status("reading"):
        facts = [fact for name, path in wanted for fact in FORMATS[name](path)]
        graph = Graph.from_fused(fuse_facts(number_genes(facts, numbers), dated))
        graph.save_sidecar(out_path)
        write(graph, out_path / GRAPHML)
    found = graph.stats()
    undated = int((graph.first_year == 0).sum())
    if as_json:
        print_json({**found.model_dump(mode="json"), "statements": len(facts), "undated": undated})
        return
    span = f"years {found.first_year} to {found.last_year}" if found.first_year else "no years"
    out.print(
        f"{out_path}: {count_noun(len(facts), 'statement')}, {count_noun(found.nodes, 'node')}, "
        f"{count_noun(found.edges, 'edge')}, {span}",
        soft_wrap=True,
    )
    if undated:
        out.print(f"{count_noun(undated, 'edge')} without a year", style="yellow")


@app.command("export")
def export(
    graph: GraphPath,
    format: Annotated[
        Literal["turtle", "bel", "kgx", "neo4j"], typer.Option(help="Export format.")
    ],
    out_path: Annotated[
        Path, typer.Option("--out", "-o", help="File to write; for kgx and neo4j, a folder.")
    ],
    as_json: AsJson = False,
) -> None:
    """Write a graph as Turtle (RDF with evidence), BEL, or tables for KGX or Neo4j.

    Relations that BEL cannot express are listed in a table next to the script.

    Example: sage exchange export --graph graph/ --format kgx --out kgx/

    Example: sage exchange export --graph graph/ --format turtle --out graph.ttl
    """
    from sage.cli.console import out, print_json
    from sage_exchange.export import export_graph

    written = export_graph(load_graph(graph), out_path, format)
    if as_json:
        print_json(written)
        return
    out.print(
        f"{written.path}: {count_noun(written.nodes, 'node')}, {count_noun(written.edges, 'edge')}"
    )
    if written.note:
        out.print(written.note, style="dim")


@app.command()
def trace(
    name: str = RunName,
    out: Annotated[
        Path | None, typer.Option(help="File to write; default: standard output.")
    ] = None,
    content: Annotated[
        bool,
        typer.Option("--content", help="Include prompts, replies, tool arguments and results."),
    ] = False,
) -> None:
    """Export a run's trace as OpenTelemetry spans (OTLP in JSON, GenAI conventions).

    Any OpenTelemetry collector reads the file. The trace itself is RUN/trace.jsonl.

    Example: sage exchange trace last --out spans.json
    """
    import json

    from sage.cli.console import err
    from sage.core.files import write_text
    from sage.core.hooks import EXPORTED, log_command
    from sage.core.llm.trace import read_trace
    from sage.run.begin import open_run
    from sage.settings import load
    from sage_exchange.otel import spans_of

    folder = open_run(name)
    log_command(load(), EXPORTED, folder.id, command="exchange trace")
    manifest = folder.manifest()
    document = spans_of(
        read_trace(folder.trace_path),
        manifest.run_id or manifest.id,
        version=manifest.versions.get("sage", ""),
        content=content,
    )
    text = json.dumps(document, ensure_ascii=False)
    if out is None:
        typer.echo(text)
        return
    write_text(out, text + "\n")
    spans = document["resourceSpans"][0]["scopeSpans"][0]["spans"]
    err.print(f"{len(spans)} spans in {out}")
