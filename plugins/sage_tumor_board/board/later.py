"""What is not known yet at a question: cut away before anyone can ask for it."""

from __future__ import annotations

import re

from sage.core.errors import InputError
from sage_tumor_board.board.types import Case, CaseFile, Stage

ROW = re.compile(r"\s*AGE\s*:\s*(\d+(?:\.\d+)?)", re.IGNORECASE)
ENDS = re.compile(r'((?:STOP|START)_AGE"?:\s*)(\d+(?:\.\d+)?)')


def until_age(text: str, age: float | None) -> str:
    """A timeline without rows, and without ends of treatments, that lie after `age` in years.

    An age counts to half of its last digit: 61.2, as questions state it, up to 61.25.

    The published timelines hold ends that a reader could not know: a treatment that stops after the
    question tells that the patient lived that long.
    """
    if age is None:
        return text
    last = age + 0.5 * 10.0 ** -len(f"{age}".partition(".")[2])

    def end(found: re.Match[str]) -> str:
        return found[0] if float(found[2]) <= last else f"{found[1]}not yet"

    rows = [
        ENDS.sub(end, line)
        for line in text.split("\n")
        if not ((row := ROW.match(line)) and float(row[1]) > last)
    ]
    return "\n".join(rows)


def until(case: Case, number: int) -> Case:
    """The case as it is known when question `number` is asked: later stages, files, rows, questions
    and ends of treatments are not in it.

    Raises
    ------
    InputError
        If the case has no such question.
    """
    asked = next((item for item in case.questions if item.number == number), None)
    if asked is None:
        raise InputError(f"{case.id} has no question {number}; it has {len(case.questions)}")
    stages: tuple[Stage, ...] = case.stages[: asked.stage + 1]
    listed = {name for stage in stages for name in stage.listed}
    files = tuple(_until(file, asked.age) for file in case.files if file.name in listed)
    questions = tuple(item for item in case.questions if item.number <= number)
    return case.model_copy(update={"stages": stages, "files": files, "questions": questions})


def _until(file: CaseFile, age: float | None) -> CaseFile:
    if file.text is None:
        return file
    return file.model_copy(update={"text": until_age(file.text, age)})
