"""Loading a patient's folder as a case, limited to what is known by a day.

Only files in the folder are read.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from datetime import date
from pathlib import Path

from sage.core.clock import now
from sage.core.errors import InputError
from sage.core.models import Strict
from sage.core.printable import clean_text, one_line
from sage_tumor_board.case import IMAGES, BoardQuestion, Case, CaseFile, Stage, parse_age
from sage_tumor_board.dated import cut_at_day, find_days

TEXTS = frozenset((".txt", ".md", ".csv", ".tsv", ".json"))
MOST_FILES = 500
DEEPEST = 8
LARGEST_TEXT = 2 << 20
LARGEST_ALL = 32 << 20
DEFAULT_QUESTION = "What do the files state about the disease, its treatment and its course?"


class Patient(Strict):
    """A case with one question, and the excluded content: later files and rows, unread files."""

    case: Case
    later: tuple[str, ...]
    rows_later: int
    unread: dict[str, str]


def read_patient(folder: Path, question: str, as_of: date, age: float | None = None) -> Patient:
    """Read a patient's files, limited to information known by a day.

    Files are dated by a day in their path, contents as described in `cut_at_day`, and
    timeline rows (`AGE: 61.2, …`) by `age`. Undated content counts as known.

    Parameters
    ----------
    as_of : nothing dated later is read
    age : the patient's age in years on that day

    Raises
    ------
    InputError
        If the folder is missing, contains nothing to read or too much, or links to outside
        files.
    """
    if not folder.is_dir():
        raise InputError(
            f"{folder}: folder not found; give the folder that contains one patient's files"
        )
    if not question.strip():
        raise InputError("--question is empty")
    root = folder.resolve()
    files: list[CaseFile] = []
    later: list[str] = []
    unread: dict[str, str] = {}
    cut = total = 0
    for path, name in _walk(folder, root):
        day = max(find_days(name), default=None)
        if day is not None and day > as_of:
            later.append(name)
            continue
        suffix = path.suffix.lower()
        if suffix in IMAGES:
            files.append(CaseFile(name=name, path=root / name))
            continue
        unknown = f"unsupported type {suffix or '(no suffix)'}; save it as text"
        text, why = _read_text(path) if suffix in TEXTS else (None, unknown)
        if text is None:
            unread[name] = why
            continue
        total += len(text)
        if total > LARGEST_ALL:
            raise InputError(f"{folder}: more than {LARGEST_ALL >> 20} MiB of text; remove files")
        known, hidden = cut_at_day(text, name, as_of, within=as_of < now().date())
        cut += hidden
        files.append(CaseFile(name=name, text=known))
    if not files:
        reasons = "; ".join(f"{name}: {why}" for name, why in list(unread.items())[:5])
        raise InputError(
            f"{folder}: no readable files dated on or before {as_of}; expected text"
            f" ({', '.join(sorted(TEXTS))}) or images."
            f" {reasons or f'Files dated later: {len(later)}'}"
        )
    asked = BoardQuestion(
        number=1, stage=0, text=question, age=age if age is not None else parse_age(question)
    )
    listed = tuple(file.name for file in files)
    case = Case(
        id="patient", files=tuple(files), questions=(asked,),
        stages=(Stage(context=f"Known as of {as_of}.", listed=listed),),
    )  # fmt: skip
    return Patient(case=case, later=tuple(later), unread=unread, rows_later=cut)


def _walk(folder: Path, root: Path) -> Iterator[tuple[Path, str]]:
    """Yield regular files by name; refuse links that lead outside, and skip links inside."""
    count = 0
    for at, folders, names in os.walk(root, followlinks=False, onerror=_refuse_unreadable):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if len(Path(at).relative_to(root).parts) > DEEPEST:
            raise InputError(f"{folder}: folders are nested more than {DEEPEST} deep")
        links = [name for name in folders if (Path(at) / name).is_symlink()]
        for name in sorted(links + [name for name in names if not name.startswith(".")]):
            path = Path(at) / name
            shown = path.relative_to(root).as_posix()
            if shown != clean_text(shown) or "\n" in shown or len(shown) > 200:
                raise InputError(f"{folder}: file {one_line(shown)[:200]!r} has an unsupported"
                                 " name; rename it")  # fmt: skip
            if path.is_symlink():
                if not path.resolve().is_relative_to(root):
                    raise InputError(f"{folder / shown}: a link that leaves the folder; copy the "
                                     "file into it")  # fmt: skip
                continue
            if not stat.S_ISREG(path.lstat().st_mode):
                raise InputError(f"{folder / shown}: not a regular file; remove it")
            count += 1
            if count > MOST_FILES:
                raise InputError(
                    f"{folder}: more than {MOST_FILES} files; give the folder for one patient"
                )
            yield path, shown


def _refuse_unreadable(error: OSError) -> None:
    raise InputError(f"{error.filename}: {error.strerror}")


def _read_text(path: Path) -> tuple[str | None, str]:
    """Read the text, or return None and the reason; never follow a link that appeared meanwhile."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            content = file.read(LARGEST_TEXT + 1)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    if len(content) > LARGEST_TEXT:
        return None, f"larger than {LARGEST_TEXT >> 20} MiB"
    if b"\0" in content:
        return None, "binary, despite its suffix"
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None, "not UTF-8; save it as UTF-8"
    return clean_text(text), ""
