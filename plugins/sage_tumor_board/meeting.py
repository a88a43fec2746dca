"""A patient's folder as a tumor board's case: what is known by a day, and nothing outside it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from datetime import date
from pathlib import Path

from sage.core.clock import now
from sage.core.errors import InputError
from sage.core.models import Strict
from sage.core.printable import one_line, printable
from sage.run.dated import days_in, until_day
from sage_tumor_board.board.advice import (
    asks_for_care,
    asks_to_choose,
    gives_advice,
    other_language,
)
from sage_tumor_board.board.mdt import MdtAnswer
from sage_tumor_board.board.types import (
    IMAGES,
    LETTERS,
    BoardQuestion,
    Case,
    CaseFile,
    Stage,
    Track,
    age_of,
    letter_of,
)

TEXTS = frozenset((".txt", ".md", ".csv", ".tsv", ".json"))
MOST_FILES = 500
DEEPEST = 8
LARGEST_TEXT = 2 << 20
LARGEST_ALL = 32 << 20
WHAT = "What do the files state about the disease, its treatment and its course?"
CAUTION = (
    "This repeats what files state, and is no advice. It was not validated on patients; clinicians"
    " read the files and decide."
)


class Patient(Strict):
    """A case with one question, and what of the folder is not in it: name, and why."""

    case: Case
    as_of: date
    later: tuple[str, ...]
    unread: dict[str, str]
    rows_later: int


class Stated(Strict):
    """The answer about a patient, as it is printed and written."""

    patient: str
    question: str
    options: dict[str, str]
    as_of: date
    agent: str
    answer: MdtAnswer
    files: tuple[str, ...]
    later: tuple[str, ...]
    rows_later: int
    unread: dict[str, str]
    lacking: dict[str, str]
    caution: str = CAUTION


def read_patient(
    folder: Path, question: str, options: tuple[str, ...], as_of: date, age: float | None = None
) -> Patient:
    """The patient's files, as far as they are known by a day.

    A file is dated by a day in its path, what a file holds as `dated` says; rows of a timeline
    (`AGE: 61.2, …`) by `age`. What has no date counts as known.

    Parameters
    ----------
    folder : of one patient
    question : what is asked
    options : none, or two to six
    as_of : what is dated later is not read
    age : the patient's age in years at that day

    Raises
    ------
    InputError
        If the folder is none, holds nothing to read or too much, or a link that leads out of it;
        if the question asks for advice.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: no folder; give the folder of one patient's files")
    if not question.strip():
        raise InputError("--question is empty")
    if other_language(" ".join((question, *options))):
        raise InputError(
            "--question or --option is not English, so SAGE cannot tell whether it asks for advice;"
            " ask in English"
        )
    if (any(map(gives_advice, (question, *options))) or asks_for_care(question)
            or asks_to_choose(question, options)):  # fmt: skip
        raise InputError(
            "--question asks what to do; SAGE states what files say and gives no advice. Ask what"
            " is known instead"
        )
    if len(options) == 1 or len(options) > len(LETTERS):
        raise InputError(f"--option: give two to {len(LETTERS)}, or none")
    root = folder.resolve()
    files: list[CaseFile] = []
    later, unread, cut, total = [], {}, 0, 0
    for path, name in _walk(folder, root):
        day = max(days_in(name), default=None)
        if day is not None and day > as_of:
            later.append(name)
            continue
        suffix = path.suffix.lower()
        if suffix in IMAGES:
            files.append(CaseFile(name=name, path=root / name))
            continue
        unknown = f"{suffix or 'no ending'}: a kind that is not read; save it as text"
        text, why = _text(path) if suffix in TEXTS else (None, unknown)
        if text is None:
            unread[name] = why
            continue
        total += len(text)
        if total > LARGEST_ALL:
            raise InputError(f"{folder}: more than {LARGEST_ALL >> 20} MiB of text; leave some out")
        known, hidden = until_day(text, name, as_of, said=as_of < now().date())
        cut += hidden
        files.append(CaseFile(name=name, text=known))
    if not files:
        left = "; ".join(f"{name}: {why}" for name, why in list(unread.items())[:5])
        raise InputError(
            f"{folder}: no file that can be read by {as_of}; text ({', '.join(sorted(TEXTS))}) or"
            f" images. {left or f'{len(later)} files are dated later'}"
        )
    asked = BoardQuestion(
        number=1, stage=0, kind="mdt", text=question,
        options=dict(zip(LETTERS, options, strict=False)),
        age=age if age is not None else age_of(question),
    )  # fmt: skip
    case = Case(
        id="patient", track=Track.MSK, files=tuple(files), questions=(asked,),
        stages=(Stage(context=f"Known as of {as_of}.", listed=tuple(f.name for f in files)),),
    )  # fmt: skip
    return Patient(case=case, as_of=as_of, later=tuple(later), unread=unread, rows_later=cut)


def _walk(folder: Path, root: Path) -> Iterator[tuple[Path, str]]:
    """Regular files, by name; links are refused where they lead out, and passed over within."""
    count = 0
    for at, folders, names in os.walk(root, followlinks=False, onerror=_unreadable):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if len(Path(at).relative_to(root).parts) > DEEPEST:
            raise InputError(f"{folder}: folders in folders, more than {DEEPEST} deep")
        links = [name for name in folders if (Path(at) / name).is_symlink()]
        for name in sorted(links + [name for name in names if not name.startswith(".")]):
            path = Path(at) / name
            shown = path.relative_to(root).as_posix()
            if shown != printable(shown) or "\n" in shown or len(shown) > 200:
                raise InputError(f"{folder}: the file {one_line(shown)[:200]!r} has an odd or long"
                                 " name; rename it")  # fmt: skip
            if path.is_symlink():
                if not path.resolve().is_relative_to(root):
                    raise InputError(f"{folder / shown}: a link out of the folder; put the file"
                                     " itself there")  # fmt: skip
                continue
            if not stat.S_ISREG(path.lstat().st_mode):
                raise InputError(f"{folder / shown}: not a regular file; remove it")
            count += 1
            if count > MOST_FILES:
                raise InputError(f"{folder}: more than {MOST_FILES} files; is it one patient's?")
            yield path, shown


def _unreadable(error: OSError) -> None:
    raise InputError(f"{error.filename}: {error.strerror}")


def _text(path: Path) -> tuple[str | None, str]:
    """The text, or None and why; opened without following a link that came in the meantime."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            content = file.read(LARGEST_TEXT + 1)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    if len(content) > LARGEST_TEXT:
        return None, f"larger than {LARGEST_TEXT >> 20} MiB"
    if b"\0" in content:
        return None, "binary, though its ending says text"
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None, "not UTF-8; save it as UTF-8"
    return printable(text), ""


def told(stated: Stated) -> list[str]:
    """The answer in lines, as a terminal or a text shows it."""
    answer = stated.answer
    lines = [f"{one_line(stated.patient)}, known as of {stated.as_of}, by {stated.agent}",
             f"Question: {one_line(stated.question)}"]  # fmt: skip
    letter = letter_of(answer.answer, stated.options) if stated.options else None
    if letter:
        lines.append(f"Fits best: {letter}) {one_line(stated.options.get(letter, ''))}")
    for number, item in enumerate(answer.sentences, 1):
        lines.append(f"{number}. {one_line(item.sentence)}")
        lines.append(f'   {one_line(item.file)}: "{one_line(item.quote)}"')
    if answer.not_told:
        lines.append(f"Not told: {one_line(answer.not_told)}")
    if stated.later or stated.rows_later:
        lines.append(f"Dated later and not read: {len(stated.later)} files,"
                     f" {stated.rows_later} rows or passages")  # fmt: skip
    if stated.lacking:
        needs = ", ".join(f"{name} ({need})" for name, need in stated.lacking.items())
        lines.append(f"Tools that were not there: {needs}")
    lines += [f"Not read: {name}: {why}" for name, why in stated.unread.items()]
    return [*lines, stated.caution]
