"""Asking every question of every patient, one patient after the other, with resume."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from agents.base import Reasoner
from benchmarks.adapters.mtb.types import Loaded, Row, Said
from sage.core.errors import InputError
from sage.core.files import append_line, write_text
from sage.core.llm.turns import BoundError, UnusableError
from sage.core.printable import one_line
from sage_tumor_board.board.agent import ask_board
from sage_tumor_board.board.board import Board, Desk
from sage_tumor_board.board.types import BoardQuestion, Case, Key, Past, letter_of

VERSION = 1
"""Of the environment: answers of another one are not taken up again."""


def half_of(case: str) -> str:
    """Which half a patient is in, by a hash of its name: rules may be tuned on one alone."""
    odd = hashlib.sha256(case.encode()).digest()[0] % 2
    return "held-out" if odd else "development"


def earlier_rows(path: Path) -> dict[str, Row]:
    """Answers of an earlier, perhaps interrupted, run; a last line cut short is removed."""
    if not path.is_file():
        return {}
    text = path.read_text(encoding="utf-8", errors="replace")
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        write_text(path, whole)
    found = {}
    for number, line in enumerate(whole.split("\n")[:-1], 1):
        try:
            row = Row.model_validate_json(line)
        except ValidationError:
            raise InputError(f"{path}, line {number} is damaged; remove the file") from None
        found[row.key] = row
    return found


def play(
    loaded: Loaded,
    reasoner: Reasoner,
    agent: str,
    out: Path,
    *,
    desk: Callable[[Case], Desk] = lambda _: Desk(),
) -> Iterator[Row]:
    """Ask all questions that were not asked yet, and keep each answer as it comes.

    Parameters
    ----------
    loaded : the track's patients and keys; the reasoner never sees a key
    reasoner : a model
    agent : what names the reasoner in the file of answers, models included
    out : file of answers, appended to
    desk : the tools at hand for a patient
    """
    before = earlier_rows(out)
    for case in loaded.cases:
        past: list[Past] = []
        for question in case.questions:
            key = _key(case, question, agent)
            row = before.get(key)
            if row is None:
                row = _ask(case, question, key, reasoner, tuple(past), loaded.keys[case.id], desk)
                append_line(out, row.model_dump_json())
            past.append(
                Past(question=question.text[:1000], answer=row.answer or "no answer",
                     reason=row.reason[:1000], files=row.files)
            )  # fmt: skip
            yield row


def replayed(loaded: Loaded, model: str) -> Iterator[Row]:
    """The answers that stand in the published conversations of one model, scored as ours are.

    Raises
    ------
    InputError
        If there are no conversations of this model.
    """
    said = loaded.said.get(model)
    if said is None:
        known = ", ".join(loaded.said) or "none: the folder holds no conversations"
        raise InputError(f"--of {model}: no {loaded.track.value} conversations of it; {known}")
    for case in loaded.cases:
        for question in case.questions:
            found = said.get(case.id, {}).get(question.number)
            if found is None:
                continue
            yield _replayed(case, question, found, loaded.keys[case.id], model)


def _replayed(case: Case, question: BoardQuestion, found: Said, key: Key, model: str) -> Row:
    truth = key.letters[question.number]
    return Row(
        key=_key(case, question, f"replay {model}"), case=case.id, track=case.track,
        number=question.number, kind=question.kind, half=half_of(case.id), truth=truth,
        answer=found.letter, right=found.letter == truth, files=found.files,
        hallucinated=found.hallucinated, seconds=round(found.seconds, 2),
        error="" if found.letter else "no letter in the published answer",
    )  # fmt: skip


def _key(case: Case, question: BoardQuestion, agent: str) -> str:
    text = json.dumps([VERSION, agent, case.id, question.model_dump(mode="json")], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _ask(
    case: Case, question: BoardQuestion, name: str, reasoner: Reasoner, past: tuple[Past, ...],
    key: Key, desk: Callable[[Case], Desk],
) -> Row:  # fmt: skip
    board = Board(case, question.number, desk(case))
    truth = key.letters[question.number]
    row = Row(
        key=name, case=case.id, track=case.track, number=question.number, kind=question.kind,
        half=half_of(case.id), truth=truth,
    )  # fmt: skip
    found: dict[str, Any]
    try:
        reply = ask_board(board, reasoner, past)
    except (UnusableError, BoundError) as error:
        spent = error.spent
        found = {"error": one_line(str(error))[:300]}
    else:
        spent = reply.spent
        letter = letter_of(reply.output.answer, question.options)
        reason = one_line(reply.output.reason)
        found = {"answer": letter, "right": letter == truth, "reason": reason}
    return row.model_copy(update={
        **found, "files": tuple(board.read), "hallucinated": tuple(board.hallucinated),
        "tools": board.calls, "tokens": spent.prompt_tokens + spent.completion_tokens,
        "usd": spent.usd, "seconds": round(spent.seconds, 2),
    })  # fmt: skip
