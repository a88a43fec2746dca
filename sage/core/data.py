"""Data files that ship with SAGE, inside the wheel or next to the packages in a checkout."""

from __future__ import annotations

from pathlib import Path

from sage.core.errors import FaultError


def data_root() -> Path:
    """Return the folder that contains `corpus`, `ontology`, `signatures` and other bundled data.

    The wheel's own `sage/_data` takes precedence, because a folder called `data` next to
    installed packages may belong to any distribution. A checkout has no `sage/_data`.

    Raises
    ------
    FaultError
        If the installation lacks this folder.
    """
    here = Path(__file__).resolve().parents[1]
    for candidate in (here / "_data", here.parent / "data"):
        if (candidate / "ontology").is_dir():
            return candidate
    raise FaultError("the data folder is missing; reinstall SAGE (`make setup` in a checkout)")


def data_folder(name: str) -> Path:
    """Return the folder `name` in the bundled data.

    Raises
    ------
    FaultError
        If the installation lacks this folder.
    """
    folder = data_root() / name
    if not folder.is_dir():
        raise FaultError(f"{folder} is missing; reinstall SAGE (`make setup` in a checkout)")
    return folder
