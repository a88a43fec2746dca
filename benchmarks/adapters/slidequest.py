"""SlideQuest's scores: the published scorer's rules beside repaired ones, over repeated answers.

A question's score is the share of its values that lie within tolerance of the truth; a missing or
unreadable answer scores 0, and is a failure, as is a score of 0 (NOVA, appendix F.1). Two of the
published rules score the truth itself below 1: bounds are truth * (1 - t) and truth * (1 + t),
which cross where the truth is negative; and rows are looked up by their id, so that of rows that
share one only the last counts. The repaired scorer takes |answer - truth| <= t * |truth| and gives
each row one of its own, rows that share an id by their other texts, else in order. Columns of other
names stand for those that were asked; the published scorer takes the best of any number of them, so
that hundreds of guesses score 1, the repaired one only as many as were asked. To the published one
a single text among a column's numbers makes the whole column wrong, and a row too many an answer
without ids.
"""

from __future__ import annotations

import csv
import difflib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from sage.core.errors import InputError
from sage.core.models import Strict

CATEGORIES = ("data_qa", "cellular_qa", "patch_qa", "slide_qa")
LARGEST_ANSWER = 16 << 20
ABSENT = "no answer.json"
Row = dict[str, Any]


class Question(Strict):
    """A question with its truth: ids, values to compare, tolerances."""

    category: str
    number: int
    id_column: str | None
    tolerances: dict[str, Any]
    truth: tuple[Row, ...]

    @property
    def name(self) -> str:
        """As its folder is called."""
        return f"{self.category}/question_{self.number}"


class Scored(Strict):
    """One question in one repeat."""

    question: str
    original: float
    repaired: float
    problem: str = ""


class Summary(Strict):
    """A category, or the questions that need a capability, over the repeats.

    `*_error` is the standard error, None with one repeat.
    """

    category: str
    questions: int
    original: float
    original_error: float | None
    repaired: float
    repaired_error: float | None
    failure_rate: float
    failure_error: float | None


def read_questions(folder: Path) -> tuple[list[Question], int]:
    """The questions whose truth is at hand, and how many there are in all.

    Raises `InputError` when the folder is no SlideQuest.
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


def capability_of(label: str) -> str:
    """A label of notes.csv without what stands in parentheses."""
    return re.sub(r"\s*\(.*\)", "", label).strip()


def needs_of(benchmark: Path) -> dict[str, list[set[str]]]:
    """The capabilities that each question of each category needs.

    Raises `InputError` when a notes.csv is absent or another table.
    """
    found = {}
    for category in CATEGORIES:
        path = benchmark / category / "notes.csv"
        try:
            with path.open(encoding="utf-8-sig", newline="") as file:
                found[category] = [
                    {capability_of(part) for part in row["capabilities"].split(",")}
                    for row in csv.DictReader(file)
                ]
        except (OSError, KeyError) as error:
            raise InputError(f"{path}: not SlideQuest's notes: {error}") from error
    return found


def read_answer(path: Path) -> list[Row]:
    """Rows of an answer.json; a single object is one row, or its columns where they are lists.

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


def score(question: Question, answer: Sequence[Row], repaired: bool) -> float:
    """Share of the question's values that an answer has within tolerance, 0 to 1."""
    truth, rows = list(question.truth), list(answer)
    # Likenesses of all pairs take hours for an answer that lists anything.
    if len(rows) > 2 * len(truth) + 100:
        return 0.0
    if question.id_column is None and len(rows) > len(truth) and not repaired:
        return 0.0
    if question.id_column is None:
        matched: list[Row | None] = [*rows[: len(truth)], *[None] * (len(truth) - len(rows))]
    elif any(question.id_column not in row for row in rows):
        return 0.0
    else:
        matched = _matched(question, rows, repaired)
    names = list(question.tolerances)
    keys = list(dict.fromkeys(key for row in rows for key in row if key != question.id_column))
    right = {
        (name, key): [
            _within(
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
        worded = {key for key, value in given if value is not None and _number(value) is None}
        numbers = [name for name in names if isinstance(truth[0].get(name), int | float)]
        right |= {(n, k): [False] * len(truth) for n in numbers for k in keys if k in worded}
    total = sum(sum(right[name, name]) for name in names if name in keys)
    free, spare = [n for n in names if n not in keys], [k for k in keys if k not in names]
    # More columns than names are left: which one is the answer was not said.
    if repaired and sum(key not in truth[0] for key in spare) > len(free):
        spare = []
    if free and spare:
        gain = np.array([[sum(right[name, key]) for key in spare] for name in free])
        total += int(gain[linear_sum_assignment(-gain)].sum())
    return total / (len(truth) * len(names))


def _alike(one: object, other: object) -> int:
    """Characters that two ids share in order."""
    blocks = difflib.SequenceMatcher(None, str(one), str(other)).get_matching_blocks()
    return sum(block.size for block in blocks)


def _matched(question: Question, rows: list[Row], repaired: bool) -> list[Row | None]:
    """For each row of the truth the answer's row, by the likeness of their ids."""
    key = question.id_column or ""
    by_id = {str(row[key]): row for row in rows}
    ids = [str(truth[key]) for truth in question.truth]
    if len(by_id) == len(rows) and len(set(ids)) == len(ids):
        # What the likeness of ids comes to, sooner: ids as they are, or all with a file's ending.
        for known in (by_id, {name.rpartition(".")[0]: row for name, row in by_id.items()}):
            if len(known) == len(rows) and set(ids) <= set(known):
                return [known[name] for name in ids]
    gain = np.array([[_alike(t[key], r[key]) for r in rows] for t in question.truth], dtype=float)
    if repaired:
        texts = [name for name in question.truth[0] if name not in (key, *question.tolerances)]
        for i, truth in enumerate(question.truth):
            for j, row in enumerate(rows):
                same = sum(str(truth.get(n)) == str(row.get(n)) for n in texts)
                exact = str(truth[key]) == str(row[key])
                gain[i, j] += 1000 * exact + 0.1 * same - 1e-6 * abs(i - j)
    chosen = dict(zip(*linear_sum_assignment(-gain), strict=True))
    out: list[Row | None] = []
    for i in range(len(question.truth)):
        found = rows[chosen[i]] if i in chosen else None
        out.append(by_id[str(found[key])] if found is not None and not repaired else found)
    return out


def _plain(value: object) -> str:
    """A text without case, dashes, doubled spaces and a final stop."""
    text = re.sub(r"\s+", " ", str(value).lower().strip())
    return re.sub(r"[.:!?]$", "", re.sub(r"[-–—]", "", text))


def _number(value: object) -> float | None:
    """A given value as a number; None for a text that is none."""
    try:
        return float(str(value).strip("[](){}\"' "))
    except ValueError:
        return None


def _within(truth: object, given: object, tolerance: object, repaired: bool) -> bool:
    """True when a value is within tolerance of the truth."""
    if isinstance(truth, bool) or not isinstance(truth, int | float):
        if truth is None or given is None:
            return repaired and truth is None and given is None
        options = truth if isinstance(truth, list) else [truth]
        return _plain(given) in {_plain(option) for option in options}
    number = _number(given)
    if number is None:
        return False
    if repaired and math.isnan(truth):
        return math.isnan(number)
    share = float(tolerance) if isinstance(tolerance, int | float) else 0.001
    if repaired:
        return abs(number - truth) <= share * abs(truth) + 1e-12
    return truth * (1 - share) <= number <= truth * (1 + share)


def score_folder(questions: Sequence[Question], answers: Path | None) -> list[Scored]:
    """Scores of one repeat, from FOLDER/CATEGORY/question_N/answer.json; None: the truth itself."""
    out = []
    for question in questions:
        try:
            if answers is None:
                rows: Sequence[Row] = question.truth
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
    """Means over questions, with the standard error over repeats, per category and in all."""
    return _summaries(repeats, (*CATEGORIES, "all"), lambda one: {"all", one.partition("/")[0]})


def by_capability(
    repeats: Sequence[Sequence[Scored]], needs: Mapping[str, Sequence[set[str]]]
) -> list[Summary]:
    """The same per capability, over the questions that need it."""
    known = {
        f"{category}/question_{number}": need
        for category, rows in needs.items()
        for number, need in enumerate(rows, 1)
    }
    names = sorted(set().union(*known.values()), key=str.lower)
    return _summaries(repeats, names, lambda one: known.get(one, set()))


def _summaries(
    repeats: Sequence[Sequence[Scored]], names: Sequence[str], groups: Callable[[str], set[str]]
) -> list[Summary]:
    """A row for each group that has a question."""
    out = []
    for name in names:
        parts = [[row for row in rows if name in groups(row.question)] for rows in repeats]
        if not parts or not parts[0]:
            continue
        original = np.array([np.mean([row.original for row in part]) for part in parts])
        mended = np.array([np.mean([row.repaired for row in part]) for part in parts])
        failed = np.array([np.mean([row.original == 0 for row in part]) for part in parts])
        out.append(
            Summary(
                category=name,
                questions=len(parts[0]),
                original=float(original.mean()),
                original_error=_error(original),
                repaired=float(mended.mean()),
                repaired_error=_error(mended),
                failure_rate=float(failed.mean()),
                failure_error=_error(failed),
            )
        )
    return out


def _error(values: Any) -> float | None:
    return float(values.std(ddof=1) / len(values) ** 0.5) if len(values) > 1 else None
