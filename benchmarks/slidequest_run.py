"""Run of SlideQuest's questions with the code-acting agent, each with only its own data."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.adapters.slidequest import CATEGORIES
from sage.core.errors import InputError
from sage.core.models import Strict, read_model
from sage_nova.code_acting.session import name_inputs

if TYPE_CHECKING:
    from sage_nova.code_acting.types import Acted

ANSWER = "answer.json"


class Prepared(Strict):
    """A question's text, with its data under the names that programs see."""

    name: str
    text: str
    data: dict[str, Path]


class Cost(Strict):
    """Cost of one repetition; `no_answer` counts questions without an answer.json."""

    no_answer: int
    tokens: int
    usd: float | None


def prepare(
    benchmark: Path, data: Path, only: Sequence[str] = ()
) -> tuple[list[Prepared], list[str]]:
    """Return the questions whose data are below `data`, and the names of those without data.

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
                ready.append(_prepare_question(name, row, data))
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


def _prepare_question(name: str, row: dict[str, Any], data: Path) -> Prepared:
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
                raise InputError(f"{name}: {relative} is outside the data")
            paths[place] = data / path
    seen = name_inputs(dict.fromkeys(paths.values()))
    shown = {path: f"/inputs/{given}" for given, path in seen.items()}
    parts = [row["question"], row.get("additional_instructions"), row["output_instructions"]]
    text = "\n".join(str(part) for part in parts if part)
    for place, path in paths.items():
        text = text.replace(f"{{{place}}}", shown[path.resolve()])
    return Prepared(name=name, text=text.replace("{working_dir}", "/output"), data=seen)


def answer_all(
    questions: Sequence[Prepared], out: Path, ask: Callable[[Prepared, Path], Acted]
) -> Cost:
    """Ask the questions in sequence, each in its own folder; finished sessions are kept."""
    from sage_nova.code_acting.types import Acted

    done, missing = [], 0
    for question in questions:
        session = out / question.name / "session"
        record = session / "session.json"
        if record.is_file():
            acted = read_model(record, Acted)
        else:
            shutil.rmtree(session, ignore_errors=True)
            acted = ask(question, session)
        answer = session / "files" / ANSWER
        (out / question.name / ANSWER).unlink(missing_ok=True)
        if answer.is_file() and not answer.is_symlink():
            shutil.copyfile(answer, out / question.name / ANSWER)
        else:
            missing += 1
        done.append(acted)
    return Cost(
        no_answer=missing,
        tokens=sum(acted.prompt_tokens + acted.completion_tokens for acted in done),
        usd=sum(acted.usd for acted in done),
    )


def ask_agent(questions: list[Prepared], folder: Path, budget_usd: float | None) -> Cost:
    """Ask the code-acting agent; its replies are kept in the folder of the repetition."""
    from mcp_servers.workers.jobs import Recipe
    from mcp_servers.workers.pool import LocalPool
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

    def ask_question(question: Prepared, place: Path) -> Acted:
        place.mkdir(parents=True)
        trace = Trace(place / "trace.jsonl")
        reasoner = make_chat(settings, folder, budget_usd=budget_usd, trace=trace)
        session = Session(question.data, pool.registry, engine, place, workers=pool)
        acted = ask(session, question.text, reasoner, trace=trace)
        write_session(acted, place)
        return acted

    folder.mkdir(parents=True, exist_ok=True)
    with pool:
        cost = answer_all(questions, folder, ask_question)
    return cost if settings.models.high.priced else cost.model_copy(update={"usd": None})
