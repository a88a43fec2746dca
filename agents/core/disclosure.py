"""The gate before every prompt: what is bounded, typed and aggregated passes; rows do not.

Types keep rows out (an agent's input has no field for them); this module checks it once more where
the text leaves, and suppresses small counts where numbers are chosen for a model.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from sage.core.errors import FaultError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MIN_COUNT = 5
"""Fewest patients that a count may stand for in anything that a model sees."""
LONGEST_TEXT = 120_000
LONGEST_SERIES = 50
"""Numbers in a row beyond which a field repeats per patient, whatever it is called."""
SHORTEST_IDENTIFIER = 5
_WORD = re.compile(r"[A-Za-z0-9_.:-]+")

Withheld = Callable[[], Collection[str]]


def identifiers(values: Iterable[object]) -> frozenset[str]:
    """Patients' names that a prompt may not hold: those long enough not to be a common number."""
    texts = {str(value) for value in values}
    return frozenset(
        text
        for text in texts
        if len(text) >= SHORTEST_IDENTIFIER and not (text.isdigit() and len(text) < 7)
    )


def require_disclosable(
    agent: str, given: BaseModel, prompt: str, withheld: Collection[str]
) -> None:
    """Let a prompt pass, or stop the run.

    Parameters
    ----------
    agent : whose prompt it is, for the message
    given : the typed input that it was rendered from
    withheld : identifiers of patients (see `identifiers`)

    Raises
    ------
    FaultError
        If a field is too long, repeats numbers as a table of patients would, or
        the text names a patient. The message repeats nothing of it.
    """
    _require_bounded(agent, given.model_dump(), "input")
    if len(prompt) > 4 * LONGEST_TEXT:
        raise FaultError(f"{agent}: a prompt of {len(prompt)} characters was not sent")
    words = {word.strip(".:-") for word in _WORD.findall(prompt)}
    odd = [item for item in withheld if _WORD.fullmatch(item) is None]
    if not words.isdisjoint(withheld) or any(item in prompt for item in odd):
        raise FaultError(
            f"{agent}: a prompt that names a patient of the cohort was not sent; look for the "
            "identifier in cohort.toml, in the hypothesis, or in the instructions"
        )


def _require_bounded(agent: str, value: Any, name: str) -> None:
    if isinstance(value, str):
        # Pictures are SAGE's own figures as base64; their size is the figure's.
        if len(value) > LONGEST_TEXT and not name.endswith("pictures"):
            raise FaultError(f"{agent}: {name} holds {len(value)} characters; it was not sent")
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            _require_bounded(agent, inner, f"{name}.{key}"[:200])
    elif isinstance(value, list | tuple | set | frozenset):
        numbers = sum(isinstance(item, int | float) for item in value)
        if numbers > LONGEST_SERIES:
            raise FaultError(f"{agent}: {name} repeats {numbers} numbers; it was not sent")
        for inner in value:
            _require_bounded(agent, inner, name)


def require_bounded(tool: str, result: BaseModel) -> None:
    """Let a tool's result pass, or stop the run: no overlong text, no table of patients.

    Raises
    ------
    FaultError
        The message repeats nothing of it.
    """
    _require_bounded(tool, result.model_dump(), "result")


def suppressed_cells(counts: NDArray[np.int64], minimum: int) -> NDArray[np.bool_]:
    """Cells of a table of patients that may not be shown.

    Small cells go, and along every axis the smallest partner of a single hidden cell, so that no
    sum over a row or column gives it away.

    Parameters
    ----------
    counts : patients by one level of each variable; any number of axes
    minimum : fewest patients that a shown cell may stand for; empty cells may be shown
    """
    import numpy as np

    hidden = (counts > 0) & (counts < minimum)
    changed = bool(hidden.any())
    while changed:
        changed = False
        for axis in range(counts.ndim):
            lines = np.moveaxis(hidden, axis, -1).reshape(-1, counts.shape[axis])
            places = np.moveaxis(np.arange(counts.size).reshape(counts.shape), axis, -1)
            places = places.reshape(lines.shape)
            for line, place in zip(lines, places, strict=True):
                if line.sum() == 1 and len(line) > 1:
                    shown = place[~line]
                    hidden.flat[shown[np.argmin(counts.flat[shown])]] = True
                    changed = True
    return hidden


def suppressed_counts(counts: Mapping[str, int], minimum: int) -> set[str]:
    """Keys of counts that may not be shown: small counts, and partners that reveal them.

    `X.exposed.n` and `X.reference.n` add up to a shown total, so if either is small both go.
    """
    small = {key for key, count in counts.items() if 0 < count < minimum}
    pairs = {"exposed": "reference", "reference": "exposed"}
    for key in list(small):
        parts = key.split(".")
        for at, part in enumerate(parts):
            if part in pairs:
                small.add(".".join([*parts[:at], pairs[part], *parts[at + 1 :]]))
    return small & set(counts)
