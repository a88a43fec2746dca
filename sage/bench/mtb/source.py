"""Patients and keys, from a folder of published conversations."""

from __future__ import annotations

from pathlib import Path

from agents.tumor_board.types import Track
from sage.bench.mtb import logs
from sage.bench.mtb.types import Loaded
from sage.core.errors import InputError


def load(folder: Path, tracks: tuple[Track, ...] = tuple(Track)) -> list[Loaded]:
    """The tracks that a folder holds.

    Raises
    ------
    InputError
        If it holds none; the message says what is looked for.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: no folder")
    found = []
    for track in tracks:
        if (folder / logs.FOLDERS[track]).is_dir():
            found.append(logs.read(folder / logs.FOLDERS[track], track))
    if not found:
        wanted = [logs.FOLDERS[track] for track in tracks]
        raise InputError(f"{folder}: neither of {', '.join(wanted)} is in it")
    return found
