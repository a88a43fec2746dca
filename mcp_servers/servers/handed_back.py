"""Jobs that a server could not end: kept on the disk, and taken up by the next one.

A job has a file from its submission to its end. What a server that is stopped, or killed, leaves
there is submitted again under the same handle, so that a client asks on as before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from mcp_servers.workers.jobs import Job
from sage.core.errors import InputError
from sage.core.files import write_text
from sage.core.log import logger
from sage.core.models import Strict, read_model

log = logger(__name__)

FOLDER = ".jobs"
TRIES = 3
"""So often a job is taken up; one that kills its server must not kill every one after it."""
HANDLE = re.compile(r"[0-9a-f]{16}")


class Kept(Strict):
    """A job that has not ended."""

    tool: str
    arguments: dict[str, Any]
    prefix: str = Field(pattern=r"^[A-Za-z0-9_]{1,80}/[0-9a-f]{12}$")
    priority: int = 0
    tries: int = 0


class HandedBack:
    """The jobs of one output folder that have not ended."""

    def __init__(self, output: Path) -> None:
        self.folder = output / FOLDER
        self.closing = False

    def keep(self, job_id: str, job: Kept) -> None:
        """Write a job down."""
        write_text(self.folder / f"{job_id}.json", job.model_dump_json(), durable=False)

    def ended(self, job: Job) -> None:
        """Strike a job out that ended for good: not one that ends because its server does."""
        if job.state.final and (job.cancel_requested or not self.closing):
            (self.folder / f"{job.id}.json").unlink(missing_ok=True)

    def left(self) -> Iterator[tuple[str, Kept]]:
        """What earlier servers left, oldest first; each try is counted before it is made."""
        paths = [path for path in self.folder.glob("*.json") if HANDLE.fullmatch(path.stem)]
        for path in sorted(paths, key=lambda item: item.stat().st_mtime):
            try:
                kept = read_model(path, Kept)
            except (InputError, ValidationError, json.JSONDecodeError) as error:
                log.failed("job of an earlier server not taken up", error, path=path)
                path.unlink()
                continue
            if kept.tries >= TRIES:
                log.info("job given up", job=path.stem, tool=kept.tool, tries=kept.tries)
                path.unlink()
                continue
            again = kept.model_copy(update={"tries": kept.tries + 1})
            self.keep(path.stem, again)
            yield path.stem, again
