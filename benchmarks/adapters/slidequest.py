"""SlideQuest: answers scored by the published rules and by repaired ones.

A question's score is the share of its values that are within tolerance of the truth; a missing or
unreadable answer scores 0, and is a failure, as is a score of 0 (NOVA, appendix F.1). Two of the
published rules score the truth itself below 1: bounds are truth * (1 - t) and truth * (1 + t),
which cross where the truth is negative; and rows are looked up by their ID, so that only the last
of several rows with the same ID counts. The repaired scorer uses |answer - truth| <= t * |truth|
and gives each row its own match; rows that share an ID are matched by their other texts, or else in
order. Columns with other names may replace the requested columns: the published scorer uses the
best of any number of them, so that hundreds of guesses score 1; the repaired scorer accepts only as
many as were requested. For the published scorer, a single text among a column's numbers makes the
whole column wrong, and so does an extra row in an answer without IDs.
"""

from __future__ import annotations

import difflib
import json
import math
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
    """Scores of a question in one repetition."""

    question: str
    original: float
    repaired: float
    problem: str = ""


class Summary(Strict):
    """A category over the repeats; `*_error` is the standard error, None without repeats."""

    category: str
    questions: int
    original: float
    original_error: float | None
    repaired: float
    repaired_error: float | None
    failure_rate: float
    failure_error: float | None


def load_questions(folder: Path) -> tuple[list[Question], int]:
    """Load the questions whose truth is available, and count all questions.

    Raises
    ------
    InputError
        If the folder is not SlideQuest's.
    """
    found, total = [], 0
    for category in CATEGORIES:
        path = folder / category / "questions.json"
        if not path.is_file():
            raise InputError(
                f"{folder}: not SlideQuest's folder (it has no {category}/{path.name})"
            )
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
            raise InputError(f"{path}: not a list of SlideQuest's questions: {error}") from error
    return found, total


def read_answer(path: Path) -> list[Cells]:
    """Read the rows of an answer.json; an object is one row, or columns if its values are lists.

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


def score(question: Question, answer: Sequence[Cells], repaired: bool) -> float:
    """Compute the share of the question's values that an answer gives within tolerance, 0 to 1."""
    truth, rows = list(question.truth), list(answer)
    # Computing all similarities would take hours for an answer with very many rows.
    if len(rows) > 2 * len(truth) + 100:
        return 0.0
    if question.id_column is None and len(rows) > len(truth) and not repaired:
        return 0.0
    if question.id_column is None:
        matched: list[Cells | None] = [*rows[: len(truth)], *[None] * (len(truth) - len(rows))]
    elif any(question.id_column not in row for row in rows):
        return 0.0
    else:
        matched = _match_rows(question, rows, repaired)
    names = list(question.tolerances)
    keys = list(dict.fromkeys(key for row in rows for key in row if key != question.id_column))
    right = {
        (name, key): [
            _is_within(
                row.get(name),
                None if given is None else given.get(key),
                question.tolerances[name],
                repaired,
            )
            for row, given in zip(truth, matched, strict=True)
        ]
        for name in names
        for key in keys
    }
    if not repaired:
        given = [cell for row in matched if row is not None for cell in row.items()]
        worded = {key for key, value in given if value is not None and _parse_number(value) is None}
        numbers = [name for name in names if isinstance(truth[0].get(name), int | float)]
        right |= {(n, k): [False] * len(truth) for n in numbers for k in keys if k in worded}
    total = sum(sum(right[name, name]) for name in names if name in keys)
    free, spare = [n for n in names if n not in keys], [k for k in keys if k not in names]
    # More columns than names are left: the answer is ambiguous.
    if repaired and sum(key not in truth[0] for key in spare) > len(free):
        spare = []
    if free and spare:
        gain = np.array([[sum(right[name, key]) for key in spare] for name in free])
        total += int(gain[linear_sum_assignment(-gain)].sum())
    return total / (len(truth) * len(names))


def _count_shared(each: object, other: object) -> int:
    """Count the characters that two IDs share in order."""
    blocks = difflib.SequenceMatcher(None, str(each), str(other)).get_matching_blocks()
    return sum(block.size for block in blocks)


def _match_rows(question: Question, rows: list[Cells], repaired: bool) -> list[Cells | None]:
    """Match each row of the truth to a row of the answer by the similarity of their IDs."""
    key = question.id_column or ""
    by_id = {str(row[key]): row for row in rows}
    ids = [str(truth[key]) for truth in question.truth]
    if len(by_id) == len(rows) and len(set(ids)) == len(ids):
        # A shortcut with the same result: IDs match exactly, or all do without a file extension.
        for known in (by_id, {name.rpartition(".")[0]: row for name, row in by_id.items()}):
            if len(known) == len(rows) and set(ids) <= set(known):
                return [known[name] for name in ids]
    gain = np.array(
        [[_count_shared(t[key], r[key]) for r in rows] for t in question.truth], dtype=float
    )
    if repaired:
        texts = [name for name in question.truth[0] if name not in (key, *question.tolerances)]
        for i, truth in enumerate(question.truth):
            for j, row in enumerate(rows):
                same = sum(str(truth.get(n)) == str(row.get(n)) for n in texts)
                exact = str(truth[key]) == str(row[key])
                gain[i, j] += 1000 * exact + 0.1 * same - 1e-6 * abs(i - j)
    chosen = dict(zip(*linear_sum_assignment(-gain), strict=True))
    out: list[Cells | None] = []
    for i in range(len(question.truth)):
        found = rows[chosen[i]] if i in chosen else None
        out.append(by_id[str(found[key])] if found is not None and not repaired else found)
    return out


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


def _is_within(truth: object, given: object, tolerance: object, repaired: bool) -> bool:
    """Check whether a value is within tolerance of the truth."""
    if isinstance(truth, bool) or not isinstance(truth, int | float):
        if truth is None or given is None:
            return repaired and truth is None and given is None
        options = truth if isinstance(truth, list) else [truth]
        return _normalize(given) in {_normalize(option) for option in options}
    number = _parse_number(given)
    if number is None:
        return False
    if repaired and math.isnan(truth):
        return math.isnan(number)
    share = float(tolerance) if isinstance(tolerance, int | float) else 0.001
    if repaired:
        return abs(number - truth) <= share * abs(truth) + 1e-12
    return truth * (1 - share) <= number <= truth * (1 + share)


def score_folder(questions: Sequence[Question], answers: Path | None) -> list[Scored]:
    """Score one repetition from FOLDER/CATEGORY/question_N/answer.json, or the truth itself."""
    out = []
    for question in questions:
        try:
            if answers is None:
                rows: Sequence[Cells] = question.truth
            elif not (path := answers / question.name / "answer.json").is_file():
                raise InputError(ABSENT)
            else:
                rows = read_answer(path)
            both = [score(question, rows, repaired) for repaired in (False, True)]
            out.append(Scored(question=question.name, original=both[0], repaired=both[1]))
        except InputError as error:
            out.append(
                Scored(question=question.name, original=0.0, repaired=0.0, problem=str(error))
            )
    return out


def summarize(repeats: Sequence[Sequence[Scored]]) -> list[Summary]:
    """Average over questions per category and overall, with the standard error over repetitions."""
    out = []
    for name in (*CATEGORIES, "all"):
        parts = [
            [row for row in rows if name in ("all", row.question.partition("/")[0])]
            for rows in repeats
        ]
        if not parts or not parts[0]:
            continue
        original = np.array([np.mean([row.original for row in part]) for part in parts])
        repaired = np.array([np.mean([row.repaired for row in part]) for part in parts])
        failed = np.array([np.mean([row.original == 0 for row in part]) for part in parts])
        out.append(
            Summary(
                category=name,
                questions=len(parts[0]),
                original=float(original.mean()),
                original_error=_error(original),
                repaired=float(repaired.mean()),
                repaired_error=_error(repaired),
                failure_rate=float(failed.mean()),
                failure_error=_error(failed),
            )
        )
    return out


def _error(values: Any) -> float | None:
    return float(values.std(ddof=1) / len(values) ** 0.5) if len(values) > 1 else None


def run(
    folder: Annotated[Path, typer.Argument(help="data_qa, cellular_qa, patch_qa, slide_qa.")],
    answers: Annotated[
        list[Path] | None, typer.Option(help="Folder of answers, per repeat. Default: the truth.")
    ] = None,
    only: Annotated[list[str] | None, typer.Option(help="Questions or categories.")] = None,
) -> Report:
    """Score answers."""
    questions, total = load_questions(folder)
    notes = []
    if only:
        questions = [item for item in questions if {item.name, item.category} & set(only)]
    if not questions:
        raise InputError(f"{folder}: no ground_truth/question_N/answer.json to score with")
    for place in answers or []:
        if not place.is_dir():
            raise InputError(f"--answers {place}: folder not found")
    places: tuple[Path | None, ...] = tuple(answers or ()) or (None,)
    scored = [score_folder(questions, place) for place in places]
    below = [row.question for row in score_folder(questions, None) if row.original < 1]
    if below:
        notes.append(f"the truth itself scores below 1 by the published rules: {', '.join(below)}.")
    groups = summarize(scored)

    def show(value: float, error: float | None) -> str:
        return f"{value:.3f}" + ("" if error is None else f" ± {error:.3f}")

    rows = tuple(
        Row(
            benchmark=f"SlideQuest, {group.category}",
            measured=f"{group.questions} of {total} questions, {len(scored)} repeats; published"
            " rules; repaired rules; failed",
            baseline="0.000 (a language model alone)" if group.category == "all" else NONE,
            published="0.477 (NOVA, GPT-4.1)" if group.category == "all" else NONE,
            sage="; ".join((
                show(group.original, group.original_error),
                show(group.repaired, group.repaired_error),
                show(group.failure_rate, group.failure_error),
            )) + ("" if answers else " (the truth against itself)"),
            notes=tuple(notes) if group.category == "all" else (),
        )
        for group in groups
    )  # fmt: skip
    return Report(command="slidequest FOLDER --json", rows=rows,
                  data=[[row.model_dump() for row in part] for part in scored])  # fmt: skip
