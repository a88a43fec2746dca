"""LAB-Bench, and what is published in its form: one right answer, distractors, and a refusal.

Read are its JSON lines, the Parquet files of its data set, and the same columns as CSV or JSON. A
question about a protocol comes with the protocol, one about a paper's supplement with the paper's
title and address. The passage that holds an answer (`key-passage`) and the canary are not used.
Questions about pictures are left out and counted: only text is asked. A right answer of "null" is
an option like any other, as in the published evaluator.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.adapters.multiple_choice import REFUSAL, Question, question, require_distinct
from benchmarks.adapters.tables import read_parquet, read_rows
from sage.core.errors import InputError
from sage.core.models import Strict

PICTURES = ("figure", "figures", "figure-path", "table-path", "tables", "image", "image-path")
COLUMNS = ("id", "question", "ideal", "distractors")


class Loaded(Strict):
    """Questions that can be asked, and how many were left out, by reason."""

    questions: tuple[Question, ...]
    left_out: dict[str, int]


def read_questions(paths: Sequence[Path]) -> Loaded:
    """The questions of LAB-Bench's files, in order.

    Raises
    ------
    InputError
        If a file cannot be read, a row lacks `id`, `question`, `ideal` or `distractors`, or an id
        stands in two rows.
    """
    found: list[Question] = []
    left: Counter[str] = Counter()
    for path in paths:
        for where, row in _rows(path):
            if any(_given(row.get(name)) for name in PICTURES):
                left["about a picture"] += 1
            elif row.get("ideal") == REFUSAL:
                left["without a right answer"] += 1
            else:
                found.append(_question(path, where, row))
    what = ", ".join(map(str, paths))
    if not found and left:
        told = "; ".join(f"{count} {reason}" for reason, count in left.items())
        raise InputError(f"{what}: no question that can be asked ({told})")
    require_distinct(found, what)
    return Loaded(questions=tuple(found), left_out=dict(left))


def _question(path: Path, where: str, row: Mapping[str, Any]) -> Question:
    if gone := [name for name in COLUMNS if name not in row]:
        raise InputError(f"{where}: has no {', '.join(gone)}; a row has {', '.join(COLUMNS)}")
    wrong = row["distractors"]
    if isinstance(wrong, str):
        try:
            wrong = json.loads(wrong)
        except (ValueError, RecursionError):
            wrong = None
    if not isinstance(wrong, list) or not all(isinstance(item, str) for item in wrong):
        raise InputError(f"{where}: distractors is not a list of texts (in a .csv: one in JSON)")
    texts = {name: row[name] for name in COLUMNS[:3]}
    if odd := [name for name, value in texts.items() if not isinstance(value, str)]:
        raise InputError(f"{where}: {odd[0]} is no text")
    material = [f"{row['protocol']}"] if _given(row.get("protocol")) else []
    if _given(row.get("paper-title")):
        material.append(f"Paper: {row['paper-title']}. {row.get('source') or ''}".strip())
    return question(
        where, id=str(texts["id"]), group=_group(path, row), text=str(texts["question"]),
        right=str(texts["ideal"]), wrong=wrong, material="\n\n".join(material), declines=True,
    )  # fmt: skip


def _given(value: object) -> bool:
    """Whether a cell holds something: null, NaN, an empty text or list do not."""
    if hasattr(value, "__len__"):
        return len(value) > 0
    return value is not None and value == value


def _group(path: Path, row: Mapping[str, Any]) -> str:
    """The subtask; without that column the file's name, or its folder's (`LitQA2/train-00000…`)."""
    subtask = row.get("subtask")
    if isinstance(subtask, str) and subtask.strip():
        return subtask
    return path.parent.name if path.stem.startswith(("train-", "test-")) else path.stem


def _rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each row of a file, with how a message names it."""
    kind = path.suffix.lower()
    if kind not in (".jsonl", ".json", ".csv", ".parquet"):
        raise InputError(f"{path}: give LAB-Bench's questions as .jsonl, .json, .csv or .parquet")
    if kind != ".json":
        yield from {".jsonl": _lines, ".csv": read_rows, ".parquet": read_parquet}[kind](path)
        return
    try:
        held = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: cannot be read ({_first_line(error)})") from None
    rows = held if isinstance(held, list) else [held]
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            raise InputError(f"{path}, row {number}: is no object with fields")
        yield f"{path}, row {number}", row


def _lines(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        with path.open(encoding="utf-8-sig") as stream:
            lines = [(number, line) for number, line in enumerate(stream, 1) if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({_first_line(error)})") from None
    for number, line in lines:
        where = f"{path}, line {number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{where}: is no JSON ({_first_line(error)})") from None
        if not isinstance(row, dict):
            raise InputError(f"{where}: is no object with fields")
        if row:
            yield where, row


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:200]
