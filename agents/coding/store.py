"""The coding agent's work folder: every round is kept, so that a killed run can resume.

inputs/PART/              analysis-ready tables, mounted read-only
inputs/PART/second/       the second implementation's task and table, without identifiers
inputs/printed/           the end of each program's output
inputs/left/              files left by a program, until they have been read
attempt-N/analysis.py     the program for round N; a person may correct the last program
attempt-N/attempt.json    the round's outcome and number comparison, written at its end
analysis/PART/            SAGE's own computation, from which everything is published
reproduction/PART.json    SAGE's numbers and those from the second implementation
appendix/                 additional results of the second implementation, typed, redrawn
results.json, figures/    the results with their verdict
outcome.json              the outcome: done or escalated

Patient rows are stored only below `inputs/`, which is never part of a crate, report or
prompt.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from agents.coding.appendix import Appendix, Read
from agents.coding.types import Attempt, CodingOutcome
from sage.core.errors import InputError
from sage.core.files import write_bytes, write_text
from sage.core.hashes import hash_text
from sandbox.types import SandboxResult

M = TypeVar("M", bound=BaseModel)
PROGRAM = "analysis.py"
OUTCOME = "outcome.json"


class Store:
    """Reader and writer for the work folder; every file is written completely or not at all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def outcome(self) -> CodingOutcome | None:
        """Return the contract's outcome, if it has ended."""
        return self._load(OUTCOME, CodingOutcome)

    def save(self, outcome: CodingOutcome) -> None:
        """Save the contract's outcome."""
        self._write(OUTCOME, outcome)

    def reopen(self) -> None:
        """Remove an escalation, so that the run can resume."""
        (self.folder / OUTCOME).unlink(missing_ok=True)

    def attempts(self) -> list[Attempt]:
        """Return the completed rounds, in order."""
        found: list[Attempt] = []
        for number in range(1, 1000):
            attempt = self._load(f"attempt-{number}/attempt.json", Attempt)
            if attempt is None:
                return found
            found.append(attempt)
        return found

    def unfinished(self, number: int) -> str | None:
        """Return the program of round `number` if it was written but not completed."""
        path = self.program(number)
        return path.read_text(encoding="utf-8") if path.is_file() else None

    def read_corrected(self) -> str:
        """Return the last program as corrected by a person; empty if its round was completed.

        Raises
        ------
        InputError
            If the folder was never escalated, or the program was not changed.
        """
        outcome, attempts = self.outcome(), self.attempts()
        if outcome is None and attempts:
            return self.unfinished(len(attempts) + 1) or ""
        if outcome is None or outcome.status != "escalated":
            raise InputError(f"{self.folder}: no escalated analysis to resume")
        last = outcome.attempts[-1]
        path = self.program(last.number)
        code = path.read_text(encoding="utf-8")
        if hash_text(code) == last.code_sha256:
            raise InputError(f"{path} has not changed since it failed; correct it and resume")
        return code

    def program(self, number: int) -> Path:
        """Return the path to the program for round `number`."""
        return self.folder / f"attempt-{number}" / PROGRAM

    def begin(self, number: int, code: str) -> Path:
        """Write the program for round `number` and return the path to a new output folder."""
        path = self.program(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, code)
        out = self.folder / "inputs" / "left" / f"attempt-{number}"
        shutil.rmtree(out, ignore_errors=True)
        return out

    def keep_log(self, number: int, result: SandboxResult) -> None:
        """Write a round's log outside the records, since it may contain patient rows."""
        folder = self.folder / "inputs" / "printed"
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in (("stdout", result.stdout_tail), ("stderr", result.stderr_tail)):
            write_text(folder / f"attempt-{number}.{name}.txt", text)

    def keep_appendix(self, part: str, program: str, found: Read) -> None:
        """Write a round's results beyond the contract, replacing those from an earlier round."""
        folder = self.folder / "appendix"
        folder.mkdir(parents=True, exist_ok=True)
        for stale in folder.glob(f"{part}*"):
            stale.unlink()
        names = tuple(f"{part}-{at}.png" for at in range(1, len(found.images) + 1))
        for name, image in zip(names, found.images, strict=True):
            write_bytes(folder / name, image)
        if found.tables or found.images or found.refused:
            kept = Appendix(
                part=part, program_sha256=program, tables=found.tables, images=names,
                refused=found.refused,
            )  # fmt: skip
            self._write(f"appendix/{part}.json", kept)

    def end(self, attempt: Attempt) -> None:
        """Record the outcome of a round."""
        self._write(f"attempt-{attempt.number}/attempt.json", attempt)

    def analysis(self, part: str) -> Path:
        """Return the folder with SAGE's own computation of a part."""
        return self.folder / "analysis" / part

    def _load(self, name: str, model: type[M]) -> M | None:
        path = self.folder / name
        if not path.is_file():
            return None
        try:
            return model.model_validate(json.loads(path.read_text(encoding="utf-8")))
        except (ValidationError, ValueError) as wrong:
            raise InputError(
                f"{path} is damaged ({str(wrong)[:120]}); remove the folder to start over"
            ) from None

    def _write(self, name: str, value: BaseModel) -> None:
        text = json.dumps(value.model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n"
        write_text(self.folder / name, text)
