"""SlideQuest's questions put to the code-acting agent, each with its own data and nothing else."""

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
    """What the answers of one repeat took. `no_answer` counts those that left no answer.json.

    `usd` is None where the model has no prices.
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
    """The questions whose data lie below `data`, and the names of the others.

    Parameters
    ----------
    benchmark : SlideQuest's folder
    data : the folder that holds what its questions name, such as tcga_brca_to_use/
    only : names of questions or categories to take; all when empty

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


def incomplete(ready: Sequence[Prepared], truths: Sequence[Question]) -> dict[str, tuple[int, int]]:
    """By question, how many of the files that its truth has rows of are here, where some are not.

    Those rows can only be wrong. Truths whose rows are no files are left out.
    """
    found = {}
    folders = {one.name: [path for path in one.data.values() if path.is_dir()] for one in ready}
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
    """Put the questions one by one, each in a folder of its own; what is done stays done.

    Parameters
    ----------
    questions : what is asked
    out : gets CATEGORY/question_N/ with the session, and its answer.json where one was written
    put : asks one question in a folder
    say : told of each question in a line
    """
    done, left = [], 0
    for number, question in enumerate(questions, 1):
        acted = record_of(out / question.name)
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


def record_of(folder: Path) -> Acted | None:
    """The record of a question that was put before; None where it was not, or was cut off."""
    from sage_nova.code_acting.types import Acted

    path = folder / "session" / "session.json"
    return read_model(path, Acted) if path.is_file() else None
