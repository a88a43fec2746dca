"""Where the files that ship with SAGE lie: in the wheel, or beside the packages in a checkout."""

from __future__ import annotations

from pathlib import Path

from sage.core.errors import FaultError


def data_root() -> Path:
    """The folder that holds `corpus`, `ontology`, `signatures` and the rest.

    Raises
    ------
    FaultError
        If the installation lacks it.
    """
    here = Path(__file__).resolve().parent
    for candidate in (here / "_data", here.parent / "data"):
        if (candidate / "ontology").is_dir():
            return candidate
    raise FaultError("the data folder is missing; reinstall SAGE (`make setup` in a checkout)")
