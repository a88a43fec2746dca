"""`sage bench truthhypo`: is there a link between two entities, and which relation is it?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from benchmarks.cli.choices import Agent, AgentName, Budget, Limit, Replies, Seed
from sage.cli.options import AsJson

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.adapters.multiple_choice import Answerer
    from benchmarks.adapters.truthhypo import Item


def truthhypo(
    files: list[Path] = typer.Argument(
        ..., help="TruthHypo's questions (edges_test.tsv): x_id, y_id, relation, question."
    ),
    agent: Agent = AgentName.RULES,
    graph: Path | None = typer.Option(
        None,
        help="rules: what is known. Output of `sage kg build`, a .graphml file, or a table of"
        " edges (edges_train.tsv): x_id, y_id, relation.",
    ),
    as_of: int | None = typer.Option(
        None, metavar="YEAR", help="The graph as it was; of a graph of SAGE, which has years."
    ),
    limit: Limit = None,
    seed: Seed = 0,
    budget_usd: Budget = None,
    out: Replies = Path("bench-truthhypo"),
    as_json: AsJson = False,
) -> None:
    """Ask TruthHypo's questions: precision, recall and F1 of links, accuracy of relations.

    The rules answer from a graph's links of the two entities, else from those over one entity
    between them by their signs, and abstain where it tells nothing. An abstention is no link and
    no right relation. The floor is the most frequent relation of each pair of types.

    Example: sage bench truthhypo edges_test.tsv --graph edges_train.tsv
    """
    from benchmarks.adapters.multiple_choice import by_reasoner
    from benchmarks.adapters.truthhypo import read_items, score_links
    from benchmarks.cli.choices import ask, cost, in_words, make_reasoner, spent, tell
    from sage.cli.console import print_json
    from sage.core.errors import InputError

    if agent is AgentName.CHAT and (graph or as_of is not None):
        raise InputError("--graph and --as-of go with --agent rules")
    items, repeated = read_items(files)
    items = items[:limit]
    if agent is AgentName.CHAT:
        answer = by_reasoner(make_reasoner(agent, out, budget_usd))
    else:
        answer = _by_graph(items, graph, as_of)
    answered = ask([item.question for item in items], answer, seed, quiet=as_json)
    scored = score_links(items, answered, seed)
    paid = spent(agent, out)
    if as_json:
        print_json(
            {
                "benchmark": "truthhypo",
                "agent": agent.value,
                "seed": seed,
                "spent": paid,
                "repeated_rows": repeated,
                "scores": [row.model_dump() for row in scored],
                "answers": [row.model_dump(exclude={"sure", "chance"}) for row in answered],
            }
        )
        return
    tell(
        f"{row.group}: {row.questions} questions, {row.linked} of a link; links: F1 {row.f1:.3f},"
        f" precision {in_words(row.precision)}, recall {in_words(row.recall)}; relation right"
        f" {in_words(row.accuracy)}; answered {in_words(row.answered)}; floor: F1"
        f" {row.floor_f1:.3f}, relation {row.floor_accuracy:.1%}; no usable reply {row.unusable}"
        for row in scored
    )
    tell([f"{agent.value}: {cost(paid)}; {repeated} repeated rows left out"])


def _by_graph(items: Sequence[Item], graph: Path | None, as_of: int | None) -> Answerer:
    from benchmarks.adapters.truthhypo import by_links, links_of, read_edges
    from sage.cli.kg_graph import load_graph
    from sage.core.errors import InputError

    if graph is None:
        raise InputError("--agent rules answers from a graph: give --graph, or --agent chat")
    if graph.suffix.lower() == ".tsv":
        if as_of is not None:
            raise InputError(f"--as-of {as_of}: {graph} has no years; give a graph of SAGE")
        return by_links(items, read_edges(graph, (end for item in items for end in item.ids)))
    return by_links(items, *links_of(load_graph(graph, as_of), items))
