"""Explorations of a finished run as its report shows them: apart from everything else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sage.report.reproduction import Exploratory, exploratory
from sage.run.folder import RunFolder

if TYPE_CHECKING:
    from sage_nova.code_acting.exploring import Exploration

SESSIONS = "explorations"
"""Sessions lie there, with programs and traces; what the report shows lies among the outputs."""


@dataclass
class ExplorationPage:
    """An exploration as the report shows it."""

    title: str
    question: str
    answer: str
    looked: str
    statement: str
    appendix: Exploratory


def read_explorations(
    run: RunFolder, read: Callable[[Path, Callable[[Any], Exploration]], Exploration]
) -> list[ExplorationPage]:
    """A run's explorations, the first one first; `read` reads a file of the run by a model."""
    from sage_nova.code_acting.exploring import Exploration

    paths = (run.root / "outputs" / SESSIONS).glob("*/exploration.json")
    pages = []
    for path in sorted(paths, key=lambda path: path.parent.name.zfill(9)):
        found = read(path, Exploration.model_validate)
        pages.append(
            ExplorationPage(
                found.title, found.question, found.answer, found.looked, found.statement,
                exploratory(found.appendix, path.parent),
            )
        )  # fmt: skip
    return pages
