"""Answers of runs for the pages, built from verified files and kept while these do not change."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sage.run.folder import RunFolder
    from sage.run.integrity import Snapshot


class Answers:
    """The answers of each run, rebuilt when a file of the run was written or changed."""

    def __init__(self) -> None:
        self._kept: dict[Path, tuple[Snapshot, list[dict[str, Any]]]] = {}

    def of(self, run: RunFolder) -> list[dict[str, Any]]:
        """Return an answer per claim, supported claims first; none before the report is written.

        Raises
        ------
        InputError
            If a file of the run was changed, lost or added.
        """
        from sage.report.build import summarize_run

        if not run.output("state").is_file():
            return []
        files = run.record.snapshot()
        kept = self._kept.get(run.root)
        if kept is None or kept[0] != files:
            claims = [
                {"id": item["id"], **item["answer"]} for item in summarize_run(run)["hypotheses"]
            ]
            self._kept[run.root] = kept = files, claims
        return kept[1]
