"""Ask the code-acting agent SlideQuest's questions, each with its own data and nothing else."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.adapters.slidequest import CATEGORIES, Question
from sage.core.errors import InputError
from sage.core.models import Strict, read_model
from sage.core.printable import count_noun
from sage_nova.code_acting.session import name_inputs

if TYPE_CHECKING:
    from sage_nova.code_acting.types import Acted

ANSWER = "answer.json"


class Prepared(Strict):
    """A question in words, with its data by the names under which programs see them."""

    name: str
    text: str
    data: dict[str, Path]


class Cost(Strict):
    """Cost of one repeat; `no_answer` counts questions without an answer.json.

    `usd` is None if the model has no prices.
    """

    models: tuple[str, ...]
    questions: int
    no_answer: int
    steps: int
    tokens: int
    usd: float | None
    seconds: float


def prepare(
    benchmark: Path, data: Path, only: Sequence[str] = ()
) -> tuple[list[Prepared], list[str]]:
    """Return the questions whose data are below `data`, and the names of the others.

    Raises
    ------
    InputError
        If a questions file cannot be read, a name is unknown or no question has its data there.
    """
    ready: list[Prepared] = []
    absent: list[str] = []
    known: set[str] = set()
    for category in CATEGORIES:
        path = benchmark / category / "questions.json"
        try:
            rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
            names = [f"{category}/question_{int(row['id'])}" for row in rows]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path}: not a list of SlideQuest's questions: {error}") from error
        known |= {category, *names}
        for name, row in zip(names, rows, strict=True):
            if only and name not in only and category not in only:
                continue
            try:
                ready.append(_prepared(name, row, data))
            except InputError:
                absent.append(name)
    if unknown := sorted(set(only) - known):
        raise InputError(
            f"--only {unknown[0]}: no such question; write data_qa/question_1, or data_qa"
        )
    if not ready:
        raise InputError(
            f"--data {data}: has the data of none of these questions; {absent[0]} and the others"
            " name their files in questions.json, such as tcga_brca_to_use/"
        )
    return ready, absent


def _prepared(name: str, row: dict[str, Any], data: Path) -> Prepared:
    wanted = {
        "path_to_slide": row.get("slide_relative_path"),
        "path_to_dataset": row.get("dataset_relative_path"),
        "path_to_metadata": row.get("path_to_metadata"),
    }
    paths = {}
    for place, relative in wanted.items():
        if relative:
            path = Path(str(relative))
            if path.is_absolute() or ".." in path.parts:
                raise InputError(f"{name}: {relative} leaves the data")
            paths[place] = data / path
    seen = name_inputs(dict.fromkeys(paths.values()))
    shown = {path: f"/inputs/{given}" for given, path in seen.items()}
    parts = [row["question"], row.get("additional_instructions"), row["output_instructions"]]
    text = "\n".join(str(part) for part in parts if part)
    for place, path in paths.items():
        text = text.replace(f"{{{place}}}", shown[path.resolve()])
    return Prepared(name=name, text=text.replace("{working_dir}", "/output"), data=seen)


def count_incomplete(
    ready: Sequence[Prepared], truths: Sequence[Question]
) -> dict[str, tuple[int, int]]:
    """Count the files of each truth that are available, where some are missing."""
    found = {}
    folders = {item.name: [path for path in item.data.values() if path.is_dir()] for item in ready}
    for question in truths:
        ids = {str(row.get(question.id_column or "")) for row in question.truth}
        places = folders.get(question.name, [])
        here = len(ids & {path.stem for place in places for path in place.rglob("*")})
        if 0 < here < len(ids):
            found[question.name] = (here, len(ids))
    return found


def answer_all(
    questions: Sequence[Prepared],
    out: Path,
    put: Callable[[Prepared, Path], Acted],
    *,
    say: Callable[[str], None] = lambda _: None,
) -> Cost:
    """Ask the questions one by one, each in its own folder; finished ones are kept."""
    done, left = [], 0
    for number, question in enumerate(questions, 1):
        acted = load_record(out / question.name)
        if acted is None:
            shutil.rmtree(out / question.name / "session", ignore_errors=True)
            acted = put(question, out / question.name / "session")
        answer = out / question.name / "session" / "files" / ANSWER
        (out / question.name / ANSWER).unlink(missing_ok=True)
        if answer.is_file() and not answer.is_symlink():
            shutil.copyfile(answer, out / question.name / ANSWER)
            left += 1
        say(
            f"{number} of {len(questions)}: {question.name}: {acted.outcome},"
            f" {count_noun(len(acted.steps), 'step')}, {acted.seconds:.0f} s"
        )
        done.append(acted)
    return Cost(
        models=tuple(sorted({acted.model for acted in done if acted.model})),
        questions=len(done),
        no_answer=len(done) - left,
        steps=sum(len(acted.steps) for acted in done),
        tokens=sum(acted.prompt_tokens + acted.completion_tokens for acted in done),
        usd=sum(acted.usd for acted in done),
        seconds=sum(acted.seconds for acted in done),
    )


def load_record(folder: Path) -> Acted | None:
    """Load the record of a question; None if it was not asked, or was interrupted."""
    from sage_nova.code_acting.types import Acted

    path = folder / "session" / "session.json"
    return read_model(path, Acted) if path.is_file() else None


def ask_agent(questions: list[Prepared], folder: Path, budget_usd: float | None, out: Path) -> Cost:
    """Ask the code-acting agent; replies are kept per repeat, the budget covers all repeats."""
    from mcp_servers.workers.jobs import Recipe
    from mcp_servers.workers.pool import LocalPool
    from sage.cli.console import err as console
    from sage.core.llm.budget import BudgetError
    from sage.core.llm.trace import Trace
    from sage.run.wiring import make_chat
    from sage.settings import load as load_settings
    from sage_nova.code_acting.agent import ask
    from sage_nova.code_acting.session import Session
    from sage_nova.code_acting.write import write_session
    from sandbox.chooser import choose

    settings = load_settings(reasoner="chat")
    engine = choose(settings.sandbox, packages=())
    pool = LocalPool(Recipe("nova"), 1, max_attempts=1)

    def put(question: Prepared, place: Path) -> Acted:
        place.mkdir(parents=True)
        trace = Trace(place / "trace.jsonl")
        spent = sum(_spent(each) for each in out.glob("repeat_*") if each != folder)
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
    except BudgetError as reached:
        spent = sum(map(_spent, out.glob("repeat_*")))
        raise BudgetError(
            f"the next call may exceed the budget of {budget_usd:.2f} USD ({spent:.4f} spent);"
            " repeat with a larger --budget-usd to resume",
            budget_usd or 0.0,
        ) from reached
    return cost if settings.models.high.priced else cost.model_copy(update={"usd": None})


def _spent(folder: Path) -> float:
    """Cost of a repeat so far, in USD."""
    from sage.core.llm.budget import Meter

    return Meter(folder / "spending.jsonl").total_usd
