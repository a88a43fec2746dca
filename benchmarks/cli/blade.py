"""`sage bench blade`: variables and transformations of an analysis, chosen and compared."""

from __future__ import annotations

from pathlib import Path

import typer

from benchmarks.cli.choices import Agent, AgentName, Budget, Replies, Seed
from sage.cli.options import AsJson


def blade(
    folder: Path = typer.Argument(
        ...,
        help="BLADE's folder of data sets, or one of them: info.json with mcq_dataset.json or"
        " annotations.csv.",
    ),
    agent: Agent = AgentName.RULES,
    seed: Seed = 0,
    budget_usd: Budget = None,
    out: Replies = Path("bench-blade"),
    as_json: AsJson = False,
) -> None:
    """Ask BLADE's multiple-choice questions, and choose the columns of its research questions.

    Columns, and columns in their roles, are compared with those on which the experts' conceptual
    variables rest; programs and statistical models are not compared. The rules go by words of the
    question and of the columns' descriptions. No table of data is read.

    Example: sage bench blade blade_bench/datasets --agent chat --budget-usd 5
    """
    from benchmarks.adapters.blade import by_words, choose, read_datasets, score_variables
    from benchmarks.adapters.multiple_choice import by_reasoner, score
    from benchmarks.cli.choices import ask, cost, in_words, lines_of, make_reasoner, spent, tell
    from sage.cli.console import print_json

    datasets = read_datasets(folder)
    reasoner = make_reasoner(agent, out, budget_usd)
    answer = by_words(datasets) if agent is AgentName.RULES else by_reasoner(reasoner)
    questions = [one.question for item in datasets for one in item.asked]
    answered = ask(questions, answer, seed, quiet=as_json)
    annotated = [item for item in datasets if item.gold]
    chosen = [choose(item, reasoner) for item in annotated]
    scored = score(answered) if answered else []
    variables = score_variables(annotated, chosen) if annotated else None
    paid = spent(agent, out)
    if as_json:
        print_json(
            {
                "benchmark": "blade",
                "agent": agent.value,
                "seed": seed,
                "spent": paid,
                "datasets": [item.name for item in datasets],
                "scores": [row.model_dump() for row in scored],
                "variables": variables and variables.model_dump(),
                "answers": [row.model_dump() for row in answered],
                "chosen": [row.model_dump(mode="json") for row in chosen],
            }
        )
        return
    tell(lines_of(scored) or ["no multiple-choice questions"])
    if variables is None:
        tell(["columns: none of the data sets has annotations"])
    else:
        for name, row in (("columns", variables.columns), ("columns in roles", variables.roles)):
            tell([
                f"{name}, {variables.datasets} data sets: F1 {row.f1:.3f}, precision"
                f" {in_words(row.precision)}, recall {in_words(row.recall)}; as many at random:"
                f" F1 {row.floor_f1:.3f}"
            ])  # fmt: skip
        tell([f"no usable choice of columns: {variables.unusable}"])
    tell([f"{agent.value}: {cost(paid)}"])
