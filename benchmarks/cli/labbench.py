"""`sage bench labbench`: multiple-choice questions with an option that declines."""

from __future__ import annotations

from pathlib import Path

import typer

from benchmarks.cli.choices import Agent, AgentName, Budget, Limit, Replies, Seed
from sage.cli.options import AsJson


def labbench(
    files: list[Path] = typer.Argument(
        ..., help="LAB-Bench's questions: .jsonl, .parquet, or the like as .json or .csv."
    ),
    agent: Agent = AgentName.RULES,
    limit: Limit = None,
    seed: Seed = 0,
    budget_usd: Budget = None,
    out: Replies = Path("bench-labbench"),
    as_json: AsJson = False,
) -> None:
    """Ask LAB-Bench's questions, or others in its form: accuracy, precision and coverage.

    Options are shuffled by the seed, one of them declines. Questions about pictures are left out.
    The rules compute the GC content of a sequence that a question spells out, and decline all else.
    What is printed repeats no question; keep the folder of replies out of repositories, too.

    Example: sage bench labbench LitQA2/train-00000-of-00001.parquet --agent chat --budget-usd 5
    """
    from benchmarks.adapters.labbench import read_questions
    from benchmarks.adapters.multiple_choice import by_reasoner, score
    from benchmarks.cli.choices import ask, cost, lines_of, make_reasoner, spent, tell
    from sage.cli.console import print_json

    loaded = read_questions(files)
    reasoner = make_reasoner(agent, out, budget_usd)
    answered = ask(loaded.questions[:limit], by_reasoner(reasoner), seed, quiet=as_json)
    scored = score(answered)
    paid = spent(agent, out)
    if as_json:
        print_json(
            {
                "benchmark": "labbench",
                "agent": agent.value,
                "seed": seed,
                "spent": paid,
                "left_out": loaded.left_out,
                "scores": [row.model_dump() for row in scored],
                "answers": [row.model_dump() for row in answered],
            }
        )
        return
    tell(lines_of(scored))
    tell(f"left out: {count} {reason}" for reason, count in loaded.left_out.items())
    tell([f"{agent.value}: {cost(paid)}"])
