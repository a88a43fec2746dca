"""Patients and keys: from published conversations, or from downloads of the two cohorts."""

from __future__ import annotations

from pathlib import Path

from benchmarks.adapters.mtb import hancock, logs, msk_chord
from benchmarks.adapters.mtb.types import Loaded
from sage.core.errors import InputError
from sage_tumor_board.board.types import Track

DOWNLOADS = {Track.HANCOCK: hancock.STRUCTURED, Track.MSK: msk_chord.PATIENTS}
"""What a download holds at its top."""


def load(
    folder: Path, tracks: tuple[Track, ...] = tuple(Track), limit: int | None = None
) -> list[Loaded]:
    """The tracks that a folder holds: conversations, a download, or folders with downloads in it.

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
            continue
        mark = DOWNLOADS[track]
        below = sorted(path.parent for path in folder.glob(f"*/{mark}"))
        for place in [folder] if (folder / mark).exists() else below[:1]:
            read = hancock.read if track is Track.HANCOCK else msk_chord.read
            found.append(read(place, limit=limit))
    if not found:
        wanted = [name for track in tracks for name in (logs.FOLDERS[track], DOWNLOADS[track])]
        raise InputError(f"{folder}: neither of {', '.join(wanted)} is in it; unpack downloads")
    return found
