"""SlideQuest: answers scored by the published rules.

A question's score is the share of its values within tolerance of the truth; a missing or
unreadable answer scores 0 and counts as a failure, as does a score of 0 (NOVA, appendix
F.1). As published, bounds are truth * (1 - t) and truth * (1 + t), which cross if the
truth is negative; among rows with the same ID only the last counts; columns with other
names may replace those requested, and the best among any number of them counts; a single
text value among a column's numbers makes the whole column wrong, as does an extra row in
an answer without IDs.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from scipy.optimize import linear_sum_assignment

from benchmarks.runner import NONE, Report, Row
from sage.core.errors import InputError
from sage.core.models import Strict

CATEGORIES = ("data_qa", "cellular_qa", "patch_qa", "slide_qa")
LARGEST_ANSWER = 16 << 20
ABSENT = "no answer.json"
Cells = dict[str, Any]


class Question(Strict):
    """A question with its truth: ids, values to compare, tolerances."""

    category: str
    number: int
    id_column: str | None
    tolerances: dict[str, Any]
    truth: tuple[Cells, ...]

    @property
    def name(self) -> str:
        """Name of the question's folder."""
        return f"{self.category}/question_{self.number}"


class Scored(Strict):
    """A question's score in one repetition."""

    question: str
    score: float
    problem: str = ""


def load_questions(folder: Path) -> tuple[list[Question], int]:
    """Load the questions with available truth, and count all questions.

    Raises
    ------
    InputError
        If the folder is not a SlideQuest folder.
    """
    found, total = [], 0
    for category in CATEGORIES:
        path = folder / category / "questions.json"
        if not path.is_file():
            raise InputError(f"{folder}: not SlideQuest data ({category}/{path.name} not found)")
        try:
            for row in json.loads(path.read_text(encoding="utf-8")):
                total += 1
                number = int(row["id"])
                truth = folder / category / "ground_truth" / f"question_{number}" / "answer.json"
                if truth.is_file():
                    found.append(
                        Question(
                            category=category,
                            number=number,
                            id_column=row["id_column"],
                            tolerances=row["columns_to_compare_and_tolerance"],
                            truth=tuple(read_answer(truth)),
                        )
                    )
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path}: not a list of SlideQuest questions: {error}") from error
    return found, total


def read_answer(path: Path) -> list[Cells]:
    """Read the rows in an answer.json; an object is one row, or columns if its values are lists.

    Raises `InputError` for other files.
    """
    try:
        if path.stat().st_size > LARGEST_ANSWER:
            raise InputError(f"{path}: larger than {LARGEST_ANSWER >> 20} MiB")
        held = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError) as error:
        raise InputError(f"{path}: not readable JSON: {error}") from error
    rows = [held] if isinstance(held, dict) else held
    if isinstance(held, dict) and {type(column) for column in held.values()} == {list}:
        columns = held.values()
        if len({len(column) for column in columns}) == 1:
            rows = [dict(zip(held, cells, strict=True)) for cells in zip(*columns, strict=True)]
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise InputError(f"{path}: not a list of objects")
    return rows


def score(question: Question, answer: Sequence[Cells]) -> float:
    """Compute the share of the question's values that an answer gives within tolerance, 0 to 1."""
    truth, rows, key = list(question.truth), list(answer), question.id_column
    # Computing all similarities would take hours for an answer with very many rows.
    if len(rows) > (len(truth) if key is None else 2 * len(truth) + 100):
        return 0.0
    if key is not None and any(key not in row for row in rows):
        return 0.0
    empty: list[Cells | None] = [None] * max(0, len(truth) - len(rows))
    matched = [*rows, *empty] if key is None else _match_rows(question, key, rows)
    names = list(question.tolerances)
    columns = list(dict.fromkeys(column for row in rows for column in row if column != key))
    right = {
        (name, column): [
            given is not None and _is_within(row.get(name), given.get(column), tolerance)
            for row, given in zip(truth, matched, strict=True)
        ]
        for name, tolerance in question.tolerances.items()
        for column in columns
    }
    cells = [cell for row in matched if row is not None for cell in row.items()]
    worded = {name for name, value in cells if value is not None and _parse_number(value) is None}
    for name, column in right:
        if column in worded and isinstance(truth[0].get(name), int | float):
            right[name, column] = [False] * len(truth)
    total = sum(sum(right[name, name]) for name in names if name in columns)
    free = [name for name in names if name not in columns]
    spare = [column for column in columns if column not in names]
    if free and spare:
        gain = np.array([[sum(right[name, column]) for column in spare] for name in free])
        total += int(gain[linear_sum_assignment(-gain)].sum())
    return total / (len(truth) * len(names))


def _match_rows(question: Question, key: str, rows: list[Cells]) -> list[Cells | None]:
    """Match each row in the truth to an answer row by the characters that their IDs share."""
    by_id = {str(row[key]): row for row in rows}
    ids = [str(truth[key]) for truth in question.truth]
    if len(by_id) == len(rows) and len(set(ids)) == len(ids):
        # A shortcut with the same result: IDs match exactly, or all do without a file extension.
        for known in (by_id, {name.rpartition(".")[0]: row for name, row in by_id.items()}):
            if len(known) == len(rows) and set(ids) <= set(known):
                return [known[name] for name in ids]
    gain = np.array([
        [sum(block.size for block in
             difflib.SequenceMatcher(None, name, str(row[key])).get_matching_blocks())
         for row in rows] for name in ids
    ], dtype=float)  # fmt: skip
    chosen = dict(zip(*linear_sum_assignment(-gain), strict=True))
    return [by_id[str(rows[chosen[at]][key])] if at in chosen else None for at in range(len(ids))]


def _normalize(value: object) -> str:
    """Normalize case, dashes, spaces and final punctuation."""
    text = re.sub(r"\s+", " ", str(value).lower().strip())
    return re.sub(r"[.:!?]$", "", re.sub(r"[-–—]", "", text))


def _parse_number(value: object) -> float | None:
    """Parse a value as a number; None if it is not numeric."""
    try:
        return float(str(value).strip("[](){}\"' "))
    except ValueError:
        return None


def _is_within(truth: object, given: object, tolerance: object) -> bool:
    """Check whether a value is within tolerance of the truth."""
    if isinstance(truth, bool) or not isinstance(truth, int | float):
        if truth is None or given is None:
            return False
        options = truth if isinstance(truth, list) else [truth]
        return _normalize(given) in {_normalize(option) for option in options}
    number = _parse_number(given)
    share = float(tolerance) if isinstance(tolerance, int | float) else 0.001
    return number is not None and truth * (1 - share) <= number <= truth * (1 + share)


def score_folder(questions: Sequence[Question], answers: Path | None) -> list[Scored]:
    """Score one repetition from FOLDER/CATEGORY/question_N/answer.json, or the truth itself."""
    out = []
    for question in questions:
        value, problem = 0.0, ""
        try:
            if answers is None:
                value = score(question, question.truth)
            elif not (path := answers / question.name / "answer.json").is_file():
                problem = ABSENT
            else:
                value = score(question, read_answer(path))
        except InputError as error:
            problem = str(error)
        out.append(Scored(question=question.name, score=value, problem=problem))
    return out


def average(repeats: Sequence[Sequence[float]]) -> str:
    """Average over questions; with repetitions, add the standard error of their averages."""
    means = np.array([np.mean(values) for values in repeats])
    error = f" ± {means.std(ddof=1) / len(means) ** 0.5:.3f}" if len(means) > 1 else ""
    return f"{means.mean():.3f}{error}"


def run(
    folder: Annotated[Path, typer.Argument(help="data_qa, cellular_qa, patch_qa, slide_qa.")],
    answers: Annotated[
        list[Path] | None, typer.Option(help="Folder of answers, per repeat. Default: the truth.")
    ] = None,
) -> Report:
    """Score answers."""
    questions, total = load_questions(folder)
    if not questions:
        raise InputError(f"{folder}: no ground_truth/question_N/answer.json to score with")
    for place in answers or []:
        if not place.is_dir():
            raise InputError(f"--answers {place}: folder not found")
    places: list[Path | None] = [*answers] if answers else [None]
    scored = [score_folder(questions, place) for place in places]
    rows = []
    for name in (*CATEGORIES, "all"):
        parts = [[item.score for item in repeat if name in ("all", item.question.split("/")[0])]
                 for repeat in scored]  # fmt: skip
        if not parts[0]:
            continue
        whole = name == "all"
        failed = average([[float(value == 0) for value in part] for part in parts])
        rows.append(Row(
            benchmark=f"SlideQuest, {name}",
            measured=f"{len(parts[0])} of {total} questions, {len(scored)} repeats; score; failed",
            baseline="0.000 (a language model alone)" if whole else NONE,
            published="0.477 (NOVA, GPT-4.1)" if whole else NONE,
            sage=f"{average(parts)}; {failed}"
            + ("" if answers else " (the truth against itself)"),
        ))  # fmt: skip
    return Report(command="slidequest FOLDER --json", rows=tuple(rows),
                  data=[[item.model_dump() for item in part] for part in scored])  # fmt: skip
