"""`sage literature`: gather papers on a topic, and keep a graph up to date with them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sage.cli.kg_options import GraphPath, MaxCost, OntologyDir
from sage.cli.options import AsJson
from sage.core.errors import InputError
from sage.core.extras import require_extra
from sage.core.printable import count_noun

if TYPE_CHECKING:
    from sage_literature.gather.affected import EdgeChange, Touched
    from sage_literature.gather.gather import Services
    from sage_literature.gather.types import Change, Flow


app = typer.Typer(no_args_is_help=True)


@app.callback()
def describe_group() -> None:
    """Gather papers on a topic, and keep a graph of those papers up to date."""


@app.command("gather")
def gather_papers(
    topic: Annotated[str, typer.Argument(help="Topic of the papers.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder to create; `sage kg build` reads it.")
    ],
    most: Annotated[
        int,
        typer.Option(
            "--limit",
            min=1,
            max=100_000,
            help="Maximum number of records per catalog, and of papers.",
        ),
    ] = 1000,
    since: Annotated[
        int | None,
        typer.Option(
            min=1500, max=2200, help="Only papers published in this year or later.", metavar="YEAR"
        ),
    ] = None,
    relevance: Annotated[
        float,
        typer.Option(
            min=0, max=1, help="Minimum share of the topic's concepts that a paper must mention."
        ),
    ] = 0.6,
    pdf: Annotated[bool, typer.Option(help="Also fetch open PDFs if there is no open XML.")] = True,
    ontology: OntologyDir = None,
    as_json: AsJson = False,
) -> None:
    """Search five literature catalogs, screen the records, and fetch open full texts.

    The catalogs are PubMed, Europe PMC, bioRxiv, OpenAlex and Semantic Scholar. Repeat the
    command to resume after an interruption and retry services that did not answer; nothing is
    fetched twice. The exit code is 1 if no service answered. The folder also gets a PRISMA
    flow diagram, the license of each document, and a list of excluded papers.

    Example: sage literature gather "tertiary lymphoid structures in bladder cancer" --since 2015
    --out corpus/
    """
    from kg.literature.topic import parse_topic
    from sage.cli.console import counting, err, print_json
    from sage.cli.console import out as console
    from sage.run.wiring import make_ontology
    from sage_literature.gather.gather import gather
    from sage_literature.gather.types import Plan

    require_extra("literature", "gathering papers")
    topic = " ".join(topic.split())
    if not 0 < len(topic) <= 500:
        raise InputError("the topic is empty or longer than 500 characters")
    query = parse_topic(topic, make_ontology(ontology))
    if not as_json:
        err.print(f"concepts: {'; '.join(query.phrases)}")
    plan = Plan(topic=topic, since=since, most=most, threshold=relevance, pdfs=pdf)
    with explain_resume(), counting("gathering", quiet=as_json) as progress:
        flow = gather(out, plan, query, load_services(), progress)
    silent = is_unanswered(flow)
    if as_json:
        print_json(flow)
        raise typer.Exit(int(silent))
    print_flow(flow, out)
    if silent:
        raise typer.Exit(1)
    if flow.included:
        console.print(f"  next      sage kg build {out} --out graph/")
    elif not flow.missing:
        lower = "a lower --relevance" if flow.screened else "an earlier --since"
        err.print(f"no papers were kept; choose a new --out with another topic or {lower}")


def is_unanswered(flow: Flow) -> bool:
    """Return True if no catalog returned complete results."""
    return len(flow.missing) == len(flow.catalogs)


@contextmanager
def explain_resume() -> Iterator[None]:
    """Print how to resume when gathering is interrupted."""
    from sage.cli.console import err

    try:
        yield
    except KeyboardInterrupt:
        err.print("stopped; run the command again to resume (nothing is fetched twice)")
        raise


def load_services() -> Services:
    """Build the literature services from the settings.

    Raises
    ------
    InputError
        If no contact address is set.
    """
    from sage.settings import load
    from sage_literature.gather.gather import Services

    settings = load()
    if not settings.contact_email:
        raise InputError(
            "the services require a contact address: set contact_email in sage.toml, or "
            "SAGE_CONTACT_EMAIL"
        )
    return Services(settings.services, settings.contact_email)


def print_flow(flow: Flow, folder: Path) -> None:
    """Print a PRISMA flow: records by catalog, omissions, and missing services."""
    from rich.table import Table

    from sage.cli.console import err, out
    from sage_literature.gather.flow import LABELS

    table = Table("catalog", "has", "read", "", title_justify="left")
    for catalog in flow.catalogs:
        note = f"missing: {catalog.problem}" if catalog.problem else "; ".join(catalog.notes)
        table.add_row(LABELS[catalog.name], f"{catalog.total:,}", f"{catalog.taken:,}", note)
    out.print(table)
    earlier = f" ({flow.earlier:,} from earlier rounds)" if flow.earlier else ""
    out.print(
        f"{count_noun(flow.identified, 'record')}{earlier}, {flow.duplicates:,} merged as "
        f"duplicates or versions, {count_noun(flow.screened, 'paper')} screened"
    )
    for stage, reasons in flow.left_out.items():
        for reason, count in reasons.items():
            out.print(f"{count:8,}  excluded ({stage}): {reason}", style="dim")
    texts = ", ".join(f"{name} {count:,}" for name, count in flow.texts.items()) or "none"
    out.print(
        f"{count_noun(flow.included, 'paper')} in the corpus:"
        f" {count_noun(flow.retrieved, 'full text')} ({texts}),"
        f" {flow.abstracts:,} with title and abstract"
    )
    for name, count in flow.licenses.items():
        out.print(f"{count:8,}  {name}", style="dim")
    for note in flow.notes:
        err.print(f"[yellow]note[/] {note}")
    for catalog in flow.missing:
        err.print(f"[yellow]missing[/] {LABELS[catalog.name]}: {catalog.problem}")
    if flow.missing or flow.pending:
        due = [count_noun(flow.pending, "full text")] if flow.pending else []
        waits = " and ".join([*due, *(["what is missing"] if flow.missing else [])])
        err.print(f"run the command again to request {waits}; everything else is kept")
    out.print(f"  flow      {folder / 'README.md'}, {folder / 'prisma.svg'}")
    out.print(f"  excluded  {folder / 'left-out.tsv'}")


@app.command("update")
def update_graph(
    graph: GraphPath,
    runs: Annotated[
        Path | None, typer.Option(help="Folder of runs; default: `runs_dir` from the settings.")
    ] = None,
    max_cost: MaxCost = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Skip the confirmation before paid calls.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Update a graph: gather its corpora again and list the affected hypotheses.

    New papers are added; retracted papers are removed, along with statements that only they
    support. The result equals a full build from the new corpus with the same options. The
    exit code is 1 if no service answered.

    Example: sage literature update --graph living/ --runs runs/
    """
    from kg.corpus.build_report import Recipe
    from kg.corpus.places import RECIPE, graph_folder
    from kg.graph.model import Graph
    from kg.literature.topic import parse_topic
    from sage.cli.console import counting, out, print_json
    from sage.cli.kg_build import build_from_recipe, fetch_source, resolve_source
    from sage.core.files import append_line, write_json
    from sage.core.models import read_model
    from sage.run.wiring import make_ontology
    from sage.settings import load
    from sage_literature.gather.affected import changed_edges, find_affected
    from sage_literature.gather.folder import STATE, CorpusFolder
    from sage_literature.gather.gather import update as update_corpus

    if runs is not None and not runs.is_dir():
        raise InputError(f"{runs} is not a folder; set --runs to the folder that contains the runs")
    folder = graph_folder(graph)
    if not (folder / RECIPE).is_file() and (graph.parent / RECIPE).is_file():
        folder = graph.parent  # the file that `sage kg build --out FOLDER` reports as written
    try:
        recipe = read_model(folder / RECIPE, Recipe)
    except FileNotFoundError:
        raise InputError(
            f"{folder}: {RECIPE} not found; give the output folder of `sage kg build` (rebuild "
            "graphs created by earlier versions)"
        ) from None
    settings = load()
    given = {source: resolve_source(folder, source) for source in recipe.sources}
    corpora = {name: path for name, path in given.items() if (path / STATE).is_dir()}
    if gone := [str(path) for path in given.values() if not path.exists()]:
        raise InputError(
            f"{folder}: its sources have moved ({', '.join(gone)}); move them back, "
            f"or run `sage kg build` with their new location and --out {folder}"
        )
    if not corpora:
        raise InputError(
            f"{folder}: none of its sources was gathered by `sage literature gather` "
            f"({', '.join(map(str, given.values()))}), so there is no search to repeat"
        )
    earlier = _read_rounds(folder, corpora)
    ontology = make_ontology(resolve_source(folder, recipe.ontology) if recipe.ontology else None)
    before = Graph.load(folder)
    flows = []
    for corpus in corpora.values():
        with explain_resume(), counting(f"gathering {corpus.name}", quiet=as_json) as progress:
            flows.append(
                update_corpus(
                    corpus, lambda topic: parse_topic(topic, ontology), load_services(), progress
                )
            )
    changes = [
        change
        for name, corpus in corpora.items()
        for number in range(earlier[name] + 1, CorpusFolder(corpus).round + 1)
        for change in CorpusFolder(corpus).changes(number)
    ]
    place = resolve_source(folder, recipe.out)
    sources = [fetch_source(source, place, settings) for source in given.values()]
    report = build_from_recipe(recipe, sources, place, max_cost=max_cost, yes=yes, quiet=as_json)
    rounds = {name: CorpusFolder(corpus).round for name, corpus in corpora.items()}
    write_json(folder / ROUNDS, rounds)
    after = Graph.load(folder)
    edges = changed_edges(before, after)
    found, unread = find_affected(runs or settings.runs_dir, before, after, changes)
    update = {
        "date": flows[-1].date,
        "papers": [change.model_dump(mode="json") for change in changes],
        "edges": [edge.model_dump(mode="json") for edge in edges],
        "hypotheses": [touch.model_dump(mode="json") for touch in found],
        "runs_not_read": unread,
        "missing": [catalog.name for flow in flows for catalog in flow.missing],
    }
    append_line(folder / "updates.jsonl", json.dumps(update, ensure_ascii=False))
    if as_json:
        print_json({**update, "nodes": report.nodes, "statements": report.edges})
        raise typer.Exit(int(all(map(is_unanswered, flows))))
    for corpus, flow in zip(corpora.values(), flows, strict=True):
        print_flow(flow, corpus)
    print_changes(changes, edges, found, unread)
    out.print(
        f"{count_noun(report.nodes, 'node')}, {count_noun(report.edges, 'edge')} in"
        f" {report.graphml}"
    )
    out.print(f"  record    {folder / 'updates.jsonl'}")
    raise typer.Exit(int(all(map(is_unanswered, flows))))


ROUNDS = "rounds.json"
"""File in the graph's folder with the last round of each corpus used to build the graph."""


def _read_rounds(folder: Path, corpora: Mapping[str, Path]) -> dict[str, int]:
    """Read the last round of each of the graph's corpora.

    Before the first update, these are the rounds that are finished now.
    """
    from sage.core.files import read_json, write_json
    from sage_literature.gather.folder import CorpusFolder

    if not (folder / ROUNDS).is_file():
        corpus_folders = {name: CorpusFolder(path) for name, path in corpora.items()}
        finished = {name: c.round - (not c.is_finished) for name, c in corpus_folders.items()}
        write_json(folder / ROUNDS, finished)
    found: dict[str, int] = read_json(folder / ROUNDS)
    return {name: found.get(name, 1) for name in corpora}


def print_changes(
    changes: Sequence[Change],
    edges: Sequence[EdgeChange],
    found: Sequence[Touched],
    unread: Sequence[str],
) -> None:
    """Print changed papers and statements, affected hypotheses, and unreadable runs."""
    from sage.cli.console import err, out

    for change in changes:
        why = f": {change.why}" if change.why else ""
        out.print(f"[bold]{change.what}[/]  {change.title} ({change.keys[0]}){why}")
    for edge in edges:
        if not edge.after:
            out.print(f"  removed from the graph: {edge} (only from {'; '.join(edge.lost)})")
        elif edge.before and edge.lost:
            kind = "other" if edge.gained else "less"
            out.print(f"  {kind} evidence: {edge}, belief {edge.before:.2f} to {edge.after:.2f}")
    new = sum(not edge.before for edge in edges)
    more = sum(bool(edge.before and edge.gained and not edge.lost) for edge in edges)
    out.print(f"{count_noun(new, 'new statement')}, {more:,} with more evidence")
    hypothesis = None
    for touch in found:
        if (touch.run, touch.hypothesis) != hypothesis:
            hypothesis = (touch.run, touch.hypothesis)
            out.print(f"[bold]run {touch.run}, hypothesis {touch.hypothesis}[/]: {touch.statement}")
        out.print(f"  {touch.kind}: {touch.what}")
    if not found:
        out.print("no hypothesis of an earlier run is affected")
    for line in unread:
        err.print(f"[yellow]unreadable run[/] {line}")
