"""The coding agent's work folder: every round kept, so that a killed or mended run goes on.

plan.json                 the task agent's plan
data.json                 the data agent's account of every variable
inputs/PART/              analysis-ready tables, mounted read-only
attempt-N/analysis.py     the program of round N; a person may mend the last one
attempt-N/attempt.json    how it ended; absent while it has not
attempt-N/std*.txt        the end of what it printed; may hold rows, never leaves the folder
attempt-N/out/            what it left
analysis/PART/            the accepted round's output
results.json, figures/    the judged results
outcome.json              the end: done or escalated
"""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from agents.coding.data import DataPlan
from agents.coding.types import Attempt, CodingOutcome, ExecutionPlan
from agents.errors import InputError
from sandbox.types import SandboxResult

M = TypeVar("M", bound=BaseModel)
PROGRAM = "analysis.py"


class Store:
    """Reads and writes the work folder; every file appears whole or not at all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def plan(self) -> ExecutionPlan | None:
        """The plan, if it was made."""
        return self._read("plan.json", ExecutionPlan)

    def keep_plan(self, plan: ExecutionPlan) -> None:
        """Write the plan."""
        self._write("plan.json", plan)

    def data(self) -> DataPlan | None:
        """The data agent's answer, if it was asked."""
        return self._read("data.json", DataPlan)

    def keep_data(self, plan: DataPlan) -> None:
        """Write the data agent's answer."""
        self._write("data.json", plan)

    def outcome(self) -> CodingOutcome | None:
        """The end, if it was reached."""
        return self._read("outcome.json", CodingOutcome)

    def keep_outcome(self, outcome: CodingOutcome) -> None:
        """Write the end."""
        self._write("outcome.json", outcome)

    def reopen(self) -> None:
        """Forget an escalation, so that the run goes on."""
        (self.folder / "outcome.json").unlink(missing_ok=True)

    def attempts(self) -> list[Attempt]:
        """The rounds that ended, in order."""
        found: list[Attempt] = []
        for number in range(1, 1000):
            one = self._read(f"attempt-{number}/attempt.json", Attempt)
            if one is None:
                return found
            found.append(one)
        return found

    def unfinished(self, number: int) -> str | None:
        """The program of round `number`, if it was written and did not come to its end."""
        path = self.folder / f"attempt-{number}" / PROGRAM
        return path.read_text(encoding="utf-8") if path.is_file() else None

    def mended(self) -> str:
        """The last program as a person left it; empty when that round already came to its end.

        Raises
        ------
        InputError
            If the folder was never escalated, or the program was not changed.
        """
        outcome, attempts = self.outcome(), self.attempts()
        if outcome is None and attempts:
            return self.unfinished(len(attempts) + 1) or ""
        if outcome is None or outcome.status != "escalated":
            raise InputError(f"{self.folder}: no escalated analysis to go on with")
        last = outcome.attempts[-1]
        path = self.program(last.number)
        code = path.read_text(encoding="utf-8")
        if sha256(code) == last.code_sha256:
            raise InputError(f"{path} was not changed since it failed; mend it, then resume")
        return code

    def program(self, number: int) -> Path:
        """Where the program of round `number` lies."""
        return self.folder / f"attempt-{number}" / PROGRAM

    def begin(self, number: int, code: str) -> Path:
        """Write the program of round `number` and return the folder for its output, not there."""
        path = self.program(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_text(path, code)
        out = path.parent / "out"
        shutil.rmtree(out, ignore_errors=True)
        return out

    def keep_log(self, number: int, result: SandboxResult) -> None:
        """Write what a round printed. It may hold patients' rows, so it stands in no record."""
        for name, text in (("stdout", result.stdout_tail), ("stderr", result.stderr_tail)):
            _write_text(self.folder / f"attempt-{number}" / f"{name}.txt", text)

    def end(self, attempt: Attempt) -> None:
        """Write how a round ended."""
        self._write(f"attempt-{attempt.number}/attempt.json", attempt)

    def accept(self, number: int, part: str) -> Path:
        """Copy round `number`'s output to `analysis/PART` and return that."""
        target = self.folder / "analysis" / part
        partial = target.with_name(f".{part}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        shutil.copytree(self.folder / f"attempt-{number}" / "out", partial)
        shutil.rmtree(target, ignore_errors=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        partial.rename(target)
        return target

    def _read(self, name: str, model: type[M]) -> M | None:
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
        _write_text(self.folder / name, text)


def _write_text(path: Path, text: str) -> None:
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def sha256(text: str) -> str:
    """SHA-256 of a program's text."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()
