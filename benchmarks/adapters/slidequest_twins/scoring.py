"""Making a twin's data, running its program, holding what it left to the truth."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from benchmarks.adapters.slidequest import Question, score
from benchmarks.adapters.slidequest import needs_of as all_needs
from benchmarks.adapters.slidequest_twins.programs import TWINS, WRITE
from benchmarks.adapters.slidequest_twins.twin import Row, Twin
from sage.core.errors import InputError
from sage.core.models import Strict
from sage.core.seeds import generator

PURPOSE = 63
VARIANTS = 2


class Solved(Strict):
    """How a program did on one variant of a twin."""

    capability: str
    variant: int
    score: float
    problem: str = ""
    seconds: float = 0.0


class Coverage(Strict):
    """Questions of a category whose capabilities all have solved twins; `without_weights` are those
    of them that need no weights of the user's."""

    category: str
    questions: int
    covered: int
    without_weights: int
    missing: dict[str, int]


def solve(
    twin: Twin,
    variant: int,
    folder: Path,
    run: Callable[[Path, Path, str], tuple[float, str]],
    seed: int = 0,
) -> Solved:
    """Make a variant's data, run the program on them, and score what it left.

    Parameters
    ----------
    twin, variant : which
    folder : a new folder for data and session
    run : runs a program on a data folder in a session folder, whose files/ it fills; gives seconds
        and the program's error
    seed : of the data
    """
    data = folder / "data"
    truth = data_of(twin, variant, data, seed)
    found = Solved(capability=twin.capability, variant=variant, score=0.0)
    seconds, error = run(data, folder / "session", WRITE + twin.program)
    left = folder / "session" / "files" / "answer.json"
    if not left.is_file():
        return found.model_copy(update={"seconds": seconds, "problem": error or "no answer.json"})
    got, problem = held_to(twin, truth, json.loads(left.read_text(encoding="utf-8")))
    return found.model_copy(update={"score": got, "seconds": seconds, "problem": problem[:500]})


def data_of(twin: Twin, variant: int, folder: Path, seed: int = 0) -> Row:
    """Write a variant's data, and return its truth.

    Parameters
    ----------
    twin, variant : which
    folder : a new one for the data
    seed : of the data

    Returns
    -------
    The planted values by name.
    """
    folder.mkdir(parents=True)
    number = [one.capability for one in TWINS].index(twin.capability)
    return twin.make(folder, generator(seed, PURPOSE, number, variant))


def held_to(twin: Twin, truth: Row, rows: list[Row]) -> tuple[float, str]:
    """The score of an answer's rows, and what is wrong with them."""
    question = Question(
        category="twin", number=0, id_column=None,
        tolerances=dict.fromkeys(truth, twin.tolerance), truth=(truth,),
    )  # fmt: skip
    got = score(question, rows, repaired=True)
    return got, "" if got == 1 else f"{rows[0]} where {truth} was planted"


def needs_of(benchmark: Path, known: set[str]) -> dict[str, list[set[str]]]:
    """The capabilities that each question of each category needs.

    Raises
    ------
    InputError
        If a notes.csv is absent or names a capability that is not `known`.
    """
    found = all_needs(benchmark)
    for category, needs in found.items():
        if unknown := sorted(set().union(*needs) - known):
            raise InputError(f"{benchmark / category}/notes.csv: no twin for {unknown[0]!r}")
    return found


def cover(needs: dict[str, list[set[str]]], solved: list[Solved]) -> list[Coverage]:
    """For each category, how many questions need only capabilities whose twins are all solved."""
    lost = {one.capability for one in solved if one.score < 1}
    brought = {twin.capability for twin in TWINS if twin.weights}
    return [
        Coverage(
            category=category,
            questions=len(rows),
            covered=sum(not need & lost for need in rows),
            without_weights=sum(not need & (lost | brought) for need in rows),
            missing=dict(sorted(Counter(one for need in rows for one in need & lost).items())),
        )
        for category, rows in needs.items()
    ]
