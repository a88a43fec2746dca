"""A server's unfinished jobs, kept on disk and resubmitted by the next server.

Each job has a file from its submission to its end. Jobs of a stopped or killed server are
resubmitted under the same handle, so that clients can keep polling them.
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
"""Maximum number of resubmissions, so that a job that kills its server ends eventually."""
HANDLE = re.compile(r"[0-9a-f]{16}")


class UnfinishedJob(Strict):
    """An unfinished job, as stored on disk."""

    tool: str
    arguments: dict[str, Any]
    prefix: str = Field(pattern=r"^[A-Za-z0-9_]{1,80}/[0-9a-f]{12}$")
    priority: int = 0
    tries: int = 0
    owner: str = ""


class UnfinishedJobs:
    """The unfinished jobs in an output folder."""

    def __init__(self, output: Path) -> None:
        self.folder = output / FOLDER
        self.closing = False

    def save(self, job_id: str, job: UnfinishedJob) -> None:
        """Save a job to its file."""
        write_text(self.folder / f"{job_id}.json", job.model_dump_json(), durable=False)

    def forget_ended(self, job: Job) -> None:
        """Remove the file of a job that ended, unless it ended because its server is closing."""
        if job.state.final and (job.cancel_requested or not self.closing):
            (self.folder / f"{job.id}.json").unlink(missing_ok=True)

    def load(self) -> Iterator[tuple[str, UnfinishedJob]]:
        """Load the jobs of earlier servers, oldest first.

        Each resubmission is counted in advance.
        """
        paths = [path for path in self.folder.glob("*.json") if HANDLE.fullmatch(path.stem)]
        for path in sorted(paths, key=lambda item: item.stat().st_mtime):
            try:
                kept = read_model(path, UnfinishedJob)
            except (InputError, ValidationError, json.JSONDecodeError) as error:
                log.failed("job of an earlier server not resubmitted", error, path=path)
                path.unlink()
                continue
            if kept.tries >= TRIES:
                log.info("job given up", job=path.stem, tool=kept.tool, tries=kept.tries)
                path.unlink()
                continue
            again = kept.model_copy(update={"tries": kept.tries + 1})
            self.save(path.stem, again)
            yield path.stem, again
