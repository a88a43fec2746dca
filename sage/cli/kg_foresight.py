"""`sage kg import` and `sage kg backtest`: dated relations in, predictions measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from sage.cli.kg_graph import GraphPath, load_graph
from sage.cli.options import AsJson
from sage.core.printable import amount

Format = Literal["trrust", "signor", "ctd", "hetionet", "pubtator", "semmeddb", "indra"]


def register(app: typer.Typer) -> None:
    """Add these commands to the `kg` group."""
    app.command("import")(import_)
    app.command("backtest")(backtest)


def import_(
    format: Annotated[Format, typer.Argument(help="What the files are.")],
    files: Annotated[list[Path], typer.Argument(help="Files as their source publishes them.")],
    out_path: Annotated[Path, typer.Option("--out", "-o", help="Folder for the graph.")],
    also: Annotated[
        list[str] | None,
        typer.Option(help="A file of another format for the same graph, as FORMAT:FILE."),
    ] = None,
    years: Annotated[
        Path | None,
        typer.Option(help="Years by PMID; without, they are estimated from the number."),
    ] = None,
    genes: Annotated[
        Path | None,
        typer.Option(help="NCBI gene_info: numbers for genes known by symbol, to join sources."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Read relations of another collection into a graph, dated where years are known.

    Example: sage kg import pubtator BioRED/Dev.PubTator --out dated/

    Example: sage kg import trrust trrust.tsv --genes Homo_sapiens.gene_info.gz --out dated/
    """
    from kg.corpus.places import GRAPHML
    from kg.graph.graphml import write
    from kg.graph.model import Graph
    from sage.cli.console import err, out, print_json
    from sage.core.errors import InputError
    from sage_exchange.importers.facts import fuse_facts, number_genes, read_gene_numbers
    from sage_exchange.importers.formats import FORMATS
    from sage_exchange.importers.years import read_years

    wanted = [(str(format), path) for path in files]
    for item in also or ():
        name, _, path = item.partition(":")
        if name not in FORMATS or not path:
            known = ", ".join(FORMATS)
            raise InputError(f'--also "{item}": give FORMAT:FILE, FORMAT one of {known}')
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
    years_of = f"years {found.first_year} to {found.last_year}" if found.first_year else "no years"
    out.print(
        f"{out_path}: {amount(len(facts), 'statement')}, {amount(found.nodes, 'node')}, "
        f"{amount(found.edges, 'edge')}, {years_of}",
        soft_wrap=True,
    )
    if undated:
        out.print(
            f"{amount(undated, 'edge')} without a year: no backtest sees them", style="yellow"
        )


def backtest(
    graph: GraphPath,
    cut: Annotated[
        list[int], typer.Option(metavar="YEAR", help="Last year known; repeat for several.")
    ],
    horizon: Annotated[int, typer.Option(min=1, help="Years ahead.")] = 5,
    paper_pairs: Annotated[
        int, typer.Option(min=0, help="Linked pairs whose paths get the paper's scores; 0: none.")
    ] = 60,
    domain: Annotated[str | None, typer.Option(help="What Relevance is measured against.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the pairs drawn.")] = 0,
    out_path: Annotated[
        Path | None, typer.Option("--out", "-o", help="Also write the table to this file.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure which scores of the past predict the edges that appeared later.

    Example: sage kg backtest --graph dated/ --cut 2014 --cut 2016
    """
    from benchmarks.adapters.backtest import BacktestOptions, markdown
    from benchmarks.adapters.backtest import backtest as run
    from sage.cli.console import out, parts, print_json
    from sage.core.files import write_text
    from sage.run.wiring import make_embedder
    from sage.settings import load

    options = BacktestOptions(cuts=tuple(cut), horizon=horizon, paper_pairs=paper_pairs, seed=seed)
    with parts() as begin:
        found = run(
            load_graph(graph), options, make_embedder(load()), domain=domain, progress=begin
        )
    if as_json:
        print_json(found)
    else:
        out.print(markdown(found), markup=False, highlight=False, soft_wrap=True)
    if out_path is not None:
        write_text(out_path, markdown(found) + "\n")
