"""`sage bench discoverybench`: published hypotheses as contracts, dealt anew, and found."""

from __future__ import annotations

import os
from pathlib import Path

import typer

from sage.cli.options import AsJson


def discoverybench(
    folder: Path = typer.Argument(..., help="DiscoveryBench's real/train, or a folder like it."),
    deals: int = typer.Option(
        1, min=0, help="How often each claim's exposure is dealt anew among the rows."
    ),
    seed: int = typer.Option(0, min=0, help="Of deals and tests."),
    jobs: int = typer.Option(1, min=1, help="How many claims at once."),
    as_json: AsJson = False,
) -> None:
    """Put DiscoveryBench's gold hypotheses to contracts: power, and Type I error of dealt columns.

    Beside it, hypotheses found for its questions, scored by context, variables and relation. One to
    twenty seconds per claim.

    Example: sage bench discoverybench discoverybench/real/train --deals 5
    """
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from multiprocessing import get_context

    from benchmarks.adapters import discoverybench as bench
    from sage.cli.console import counting, print_json
    from sage.cli.console import out as console
    from sage.core.errors import InputError

    tasks = bench.read_tasks(folder)
    golds = {task.name: bench.read_gold(task) for task in tasks}
    if all(gold.unread for gold in golds.values()):
        first = golds[tasks[0].name]
        raise InputError(f"{folder}: no task can be read; {first.task}: {first.unread}")
    work = [
        (task, golds[task.name], exposure, deal, seed)
        for deal in range(deals + 1)
        for task in tasks
        for exposure in golds[task.name].exposures
    ]
    with counting("claims", quiet=as_json) as advance:
        if jobs == 1:
            tried = []
            for given in work:
                tried.append(bench.try_claim(*given))
                advance("claims", len(tried), len(work))
        else:
            with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
                pending = [pool.submit(bench.try_claim, *given) for given in work]
                for done, _ in enumerate(as_completed(pending), 1):
                    advance("claims", done, len(pending))
                tried = [item.result() for item in pending]
    read = [task for task in tasks if not golds[task.name].unread]
    found = [bench.score_generated(t, golds[t.name], q) for t in read for q in t.questions]
    floor = [bench.chance(t, golds[t.name], seed=seed) for t in read for _ in t.questions]
    scores = bench.score_claims(tried)
    generated = {
        name: sum(getattr(item, name) for item in found) / len(found) if found else 0.0
        for name in ("context", "variables", "relation", "score")
    }
    chance = sum(floor) / len(floor) if floor else 0.0
    if as_json:
        print_json(
            {
                "cpu_seconds": round(sum(os.times()[:4]), 1),
                "tasks": len(tasks),
                "gold": [gold.model_dump() for gold in golds.values()],
                "scores": scores.model_dump(),
                "generated": {"questions": len(found), "chance": chance, **generated},
                "asked": sum(len(task.questions) for task in tasks),
                "tried": [item.model_dump() for item in tried],
                "found": [item.model_dump() for item in found],
            }
        )
        return
    for gold in golds.values():
        said = gold.unread or f"{', '.join(gold.exposures)}: {gold.relation} with {gold.outcome}"
        console.print(f"{gold.task}: {said}", markup=False, highlight=False, soft_wrap=True)
    parts = (scores.power, scores.associated, scores.null_kept, scores.type_one,
             scores.dealt_associated, scores.naive)  # fmt: skip
    for part in parts:
        if part.runs:
            console.print(
                f"{part.name}: {part.hits} of {part.runs}, {part.rate:.1%}"
                f" ({part.lower:.1%} to {part.upper:.1%})",
                highlight=False,
            )
    console.print(
        f"{len(found)} questions: context {generated['context']:.2f}, variables"
        f" {generated['variables']:.2f}, relation {generated['relation']:.2f}, together"
        f" {generated['score']:.3f}; two random columns {chance:.3f}",
        highlight=False,
        soft_wrap=True,
    )
