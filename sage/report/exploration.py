"""Explorations of a finished run, which the report keeps separate from everything else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from agents.coding.appendix import Appendix
from agents.core.base import View
from sage.report.reproduction import Exploratory, exploratory
from sage.run.folder import RunFolder

SESSIONS = "explorations"
"""Name of the folder with sessions, and of the files among the outputs shown in the report."""


class Exploration(View):
    """Question and answer of an exploration, with its supporting appendix.

    `looked` names the data examined and the outcomes it has used up for testing.
    """

    title: str
    question: str
    answer: str
    looked: str
    statement: str
    appendix: Appendix


def read_explorations(
    run: RunFolder, read: Callable[[Path, Callable[[Any], Exploration]], Exploration]
) -> list[tuple[Exploration, Exploratory]]:
    """Read a run's explorations in order, with their appendices; `read` parses one file."""
    paths = (run.root / "outputs" / SESSIONS).glob("*/exploration.json")
    found = []
    for path in sorted(paths, key=lambda path: path.parent.name.zfill(9)):
        explored = read(path, Exploration.model_validate)
        found.append((explored, exploratory(explored.appendix, path.parent)))
    return found
