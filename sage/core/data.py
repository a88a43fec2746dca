"""Files that ship with SAGE: in the wheel, or beside the packages in a checkout."""

from __future__ import annotations

from pathlib import Path

from sage.core.errors import FaultError


def data_root() -> Path:
    """Return the folder that holds `corpus`, `ontology`, `signatures` and the rest.

    The wheel's own `sage/_data` comes first: beside installed packages, a folder called `data` may
    be anyone's. A checkout has no `sage/_data`.

    Raises
    ------
    FaultError
        If the installation lacks it.
    """
    here = Path(__file__).resolve().parents[1]
    for candidate in (here / "_data", here.parent / "data"):
        if (candidate / "ontology").is_dir():
            return candidate
    raise FaultError("the data folder is missing; reinstall SAGE (`make setup` in a checkout)")


def data_folder(name: str) -> Path:
    """Return the folder `name` of the shipped data.

    Raises
    ------
    FaultError
        If the installation lacks it.
    """
    folder = data_root() / name
    if not folder.is_dir():
        raise FaultError(f"{folder} is missing; reinstall SAGE (`make setup` in a checkout)")
    return folder
