"""What is loaded of the benchmark: patients, keys, published answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sage.core.errors import InputError
from sage.core.models import Strict
from sage_tumor_board.board.types import Case, Key, Track


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """A file of a download that cannot be read, or is in another encoding, ends in one message."""
    try:
        yield
    except UnicodeDecodeError:
        raise InputError(f"{path}: not UTF-8; unpack it again, or save it as UTF-8") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None


class Said(Strict):
    """What a published agent answered to a question."""

    letter: str | None
    files: tuple[str, ...]
    hallucinated: tuple[str, ...]
    seconds: float


class Loaded(Strict):
    """Patients of one track, their keys, and what published agents answered to each question.

    `drugs` are descriptions that the published environment gave; `absent` says which files of which
    patient are not at hand.
    """

    track: Track
    cases: tuple[Case, ...]
    keys: dict[str, Key]
    said: dict[str, dict[str, dict[int, Said]]]
    drugs: dict[str, str]
    absent: dict[str, tuple[str, ...]]


def absent_files(case: Case) -> tuple[str, ...]:
    """Listed files of a case that nobody can open or measure."""
    return tuple(
        file.name for file in case.files
        if file.text is None and file.path is None and file.percent_positive is None
    )  # fmt: skip


class Row(Strict):
    """One question with its answer; `error` says why there is none, which counts as wrong.

    `tokens` counts prompt and completion; 0 for rules and for published answers, which do not say.
    """

    key: str
    case: str
    track: Track
    number: int
    kind: str
    half: str
    truth: str
    answer: str | None = None
    right: bool = False
    reason: str = ""
    files: tuple[str, ...] = ()
    hallucinated: tuple[str, ...] = ()
    tools: int = 0
    tokens: int = 0
    usd: float = 0.0
    seconds: float = 0.0
    error: str = ""
