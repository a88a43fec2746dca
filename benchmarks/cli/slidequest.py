"""`sage bench slidequest`: answers to SlideQuest's questions, scored by two scorers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from sage.cli.options import AsJson
from sage.core.errors import InputError

if TYPE_CHECKING:
    from benchmarks.adapters.slidequest import Summary
    from benchmarks.adapters.slidequest_run import Cost, Prepared


def slidequest(
    benchmark: Path = typer.Argument(
        ..., help="SlideQuest's folder: data_qa, cellular_qa, patch_qa, slide_qa."
    ),
    answers: list[Path] | None = typer.Option(
        None,
        help="Folder of CATEGORY/question_N/answer.json; once per repeat. Default: the truth is "
        "held against itself.",
    ),
    data: Path | None = typer.Option(
        None,
        help="Put the questions to the agent of `sage nova ask`: the folder that holds what they "
        "name (tcga_brca_to_use/ …).",
    ),
    out: Path = typer.Option(Path("slidequest-runs"), help="With --data: gets repeat_1/ and on."),
    repeats: int = typer.Option(3, min=1, max=20, help="With --data: as often as the paper."),
    only: list[str] | None = typer.Option(
        None,
        help="A question (data_qa/question_1) or category. Repeatable.",
    ),
    budget_usd: float | None = typer.Option(None, min=0, help="With --data: what all may cost."),
    as_json: AsJson = False,
) -> None:
    """Score answers to SlideQuest: the published scorer's rules beside repaired ones.

    The published rules score the truth itself below 1 on some questions, which are listed. Scores
    are told by category and by capability. With --data the agent answers first, with a model, each
    question with its own data and without memory of the others; the same line goes on after an
    interruption.

    Example: sage bench slidequest slidequest --data slides --only data_qa --budget-usd 20

    Example: sage bench slidequest slidequest --answers run1 --answers run2 --answers run3
    """
    from benchmarks.adapters import slidequest as bench
    from benchmarks.adapters.slidequest_run import incomplete, prepare
    from sage.cli.console import err, print_json
    from sage.cli.console import out as console
    from sage.core.printable import count_noun

    if data is not None and answers:
        raise InputError("give --answers or --data, not both")
    questions, total = bench.read_questions(benchmark)
    costs: list[Cost] = []
    if data is not None:
        ready, absent = prepare(benchmark, data, only or ())
        if absent:
            text = f"not asked, their data are not in {data}: {', '.join(absent)}"
            err.print(text, markup=False, highlight=False, soft_wrap=True)
        for name, (here, whole) in incomplete(ready, questions).items():
            text = f"{name}: {here} of the {whole} files of its truth are here, others count wrong"
            err.print(text, markup=False, highlight=False, soft_wrap=True)
        answers = [out / f"repeat_{number}" for number in range(1, repeats + 1)]
        costs = [_asked(ready, folder, budget_usd, out) for folder in answers]
        only = [question.name for question in ready]
    if only:
        questions = [one for one in questions if {one.name, one.category} & set(only)]
    if not questions and costs:
        err.print(f"none of the questions that were asked has its truth here; see {out}")
    elif not questions:
        raise InputError(
            f"{benchmark}: holds no ground_truth/question_N/answer.json to score with"
            f"{f' for --only {only[0]}' if only else ''}"
        )
    for folder in answers or []:
        if not folder.is_dir():
            raise InputError(f"--answers {folder}: is not a folder")
    folders: list[Path | None] = [*(answers or [])] or [None]
    scored = [bench.score_folder(questions, folder) for folder in folders]
    rows = bench.summarize(scored)
    try:
        capabilities = bench.by_capability(scored, bench.needs_of(benchmark))
    except InputError as error:
        capabilities = []
        err.print(f"no scores by capability: {error}", markup=False, highlight=False)
    truth = [row for row in bench.score_folder(questions, None) if row.original < 1]
    if as_json:
        print_json(
            {
                "questions": total,
                "with_truth": len(questions),
                "repeats": len(scored),
                "costs": [cost.model_dump() for cost in costs],
                "answers": [str(folder) for folder in answers or []],
                "summary": [row.model_dump() for row in rows],
                "capabilities": [row.model_dump() for row in capabilities],
                "truth_below_1": {row.question: row.original for row in truth},
                "scored": [[row.model_dump() for row in part] for part in scored],
            }
        )
        return
    asked = costs[0].questions if costs else total
    lines = [f"{len(questions)} of {asked} questions {'asked ' * bool(costs)}have their truth here"]
    lines += [
        f"repeat {number}: {', '.join(cost.models) or 'no model'}, {cost.questions} asked,"
        f" {cost.no_answer} without an answer.json, {cost.steps} steps, {cost.tokens:,} tokens,"
        f" {_money(cost)}, {cost.seconds:.0f} s"
        for number, cost in enumerate(costs, 1)
    ]
    lines += [*_table("category", rows), *_table("needs", capabilities), ""]
    for number, part in enumerate(scored, 1):
        if absent := [one.question for one in part if one.problem == bench.ABSENT]:
            lines.append(f"repeat {number} has {bench.ABSENT} of {', '.join(absent)}")
        lines += [
            f"repeat {number}, {one.question}: {one.problem}"
            if one.problem
            else f"{one.question}: published {one.original:.3f}, repaired {one.repaired:.3f}"
            for one in part
            if one.problem not in ("", bench.ABSENT) or one.original != one.repaired
        ]
    lines += [
        f"the truth itself scores {one.original:.3f} by the published rules: {one.question}"
        for one in truth
    ]
    if questions and not truth:
        lines.append("the truth itself scores 1 by the published rules on all of these questions")
    if not only and (unseen := total - len(questions)):
        lines.append(f"no truth is here of {count_noun(unseen, 'more question')}")
    console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)


def _table(head: str, rows: list[Summary]) -> list[str]:
    """Rows of scores in lines, with the standard error over repeats."""

    def cell(value: float, error: float | None) -> str:
        return f"{value:.3f}" + ("" if error is None else f" ± {error:.3f}")

    cells = [(head, "questions", "published", "repaired", "failed")]
    cells += [
        (
            row.category,
            str(row.questions),
            cell(row.original, row.original_error),
            cell(row.repaired, row.repaired_error),
            cell(row.failure_rate, row.failure_error),
        )
        for row in rows
    ]
    widths = [max(len(row[i]) for row in cells) for i in range(5)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in cells]
    return ["", *lines] if rows else []


def _money(cost: Cost) -> str:
    return "no price set" if cost.usd is None else f"${cost.usd:.2f}"


def _asked(questions: list[Prepared], folder: Path, budget_usd: float | None, out: Path) -> Cost:
    """Put the questions to the agent; its replies and spending are kept per repeat, the budget
    holds over all."""
    from benchmarks.adapters.slidequest_run import answer_all
    from mcp_servers.workers.jobs import Recipe
    from mcp_servers.workers.pool import LocalPool
    from sage.cli.console import err as console
    from sage.core.llm.budget import BudgetError
    from sage.core.llm.trace import Trace
    from sage.run.wiring import make_chat
    from sage.settings import load as load_settings
    from sage_nova.code_acting.agent import ask
    from sage_nova.code_acting.session import Session
    from sage_nova.code_acting.types import Acted
    from sage_nova.code_acting.write import write_session
    from sandbox.chooser import choose

    settings = load_settings(reasoner="chat")
    engine = choose(settings.sandbox, packages=())
    pool = LocalPool(Recipe("nova"), 1, max_attempts=1)

    def put(question: Prepared, place: Path) -> Acted:
        place.mkdir(parents=True)
        trace = Trace(place / "trace.jsonl")
        # The repeats' replies lie apart: an answer that was kept is no second try.
        spent = sum(_spent(one) for one in out.glob("repeat_*") if one != folder)
        left = None if budget_usd is None else max(0.0, budget_usd - spent)
        reasoner = make_chat(settings, folder, budget_usd=left, trace=trace)
        session = Session(question.data, pool.registry, engine, place, workers=pool)
        acted = ask(session, question.text, reasoner, trace=trace)
        write_session(acted, place)
        return acted

    folder.mkdir(parents=True, exist_ok=True)
    try:
        with pool:
            cost = answer_all(questions, folder, put, say=console.print)
    except BudgetError as reached:  # it speaks of what other repeats left
        spent = sum(map(_spent, out.glob("repeat_*")))
        raise BudgetError(
            f"the next call may exceed the budget of {budget_usd:.2f} USD ({spent:.4f} spent);"
            " the same line with a larger --budget-usd goes on",
            budget_usd or 0.0,
        ) from reached
    return cost if settings.models.high.has_prices else cost.model_copy(update={"usd": None})


def _spent(folder: Path) -> float:
    """USD that a repeat has cost so far."""
    from sage.core.llm.budget import Meter

    return Meter(folder / "spending.jsonl").total_usd
