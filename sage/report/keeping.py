"""An exploration joins a finished run: its files, and its part of the report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from sage.core.files import write_bytes, write_json
from sage.report.build import write_report
from sage.report.crate import write_crate
from sage.report.exploration import SESSIONS
from sage.run.folder import RunFolder

if TYPE_CHECKING:
    from sage_nova.code_acting.exploring import Exploration


def new_session(run: RunFolder, unfinished: Callable[[Path], bool]) -> Path:
    """The folder of the next exploration of a run, or of an unfinished one of the same question."""
    number = 1
    while (folder := run.root / SESSIONS / str(number)).exists() and not unfinished(folder):
        number += 1
    return folder


def keep_exploration(run: RunFolder, name: str, found: Exploration, images: Path) -> Path:
    """Keep an exploration among a held run's outputs, and build the report again; its path.

    Parameters
    ----------
    run : the run, held
    name : of the session
    found : question, answer and appendix
    images : the folder of the appendix' images
    """
    before = run.record.begin("explore")
    home = run.root / "outputs" / SESSIONS / name
    home.mkdir(parents=True, exist_ok=True)
    for image in found.appendix.images:
        write_bytes(home / image, (images / image).read_bytes())
    write_json(home / "exploration.json", found)
    run.record.seal()
    written = write_report(run)
    write_crate(run.root, run.manifest())
    run.record.end("explore", before)
    return written.html
