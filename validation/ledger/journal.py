"""The append-only file `ledger.jsonl`, in which each line is hashed with the line before it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sage.core.errors import InputError
from sage.core.hashes import hash_text
from validation.core.types import canonical_json
from validation.ledger.lines import (
    FILE,
    Incident,
    Line,
    Registration,
    S,
    line_body,
    line_model,
    line_text,
)
from validation.ledger.store import Mark

FIRST = hash_text("sage ledger.jsonl")


class Journal:
    """An append-only file of lines, flushed to disk at each write and chained by their hashes.

    Parameters
    ----------
    path : the file; None to keep lines only in memory

    Raises
    ------
    InputError
        If a line was edited, removed or replaced; the message gives its number. An incomplete
        last line, left by an interruption, is dropped; `pending` notes it for the next write.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.lines: list[Line] = []
        self.registrations: dict[str, Registration] = {}
        self.pending: list[Incident] = []
        self._texts: dict[str, bool] = {}
        self._chain, self._size = FIRST, 0
        if path is not None and path.is_file():
            self._take(path.read_bytes())

    def all_of(self, kind: type[S], *, own: bool = False) -> list[S]:
        """Return entries of a kind; `own` restricts them to this folder."""
        return [
            line.said
            for line in self.lines
            if isinstance(line.said, kind) and not (own and line.elsewhere)
        ]

    def add(self, lines: Iterable[Line]) -> None:
        """Write those lines that are new."""
        new = [line for line in lines if self._is_new(line)]
        if self.path is None:
            for line in new:
                self._keep(line)
        elif new or self.pending:
            with self._appending() as handle:
                pending = [Line(incident, "", False) for incident in self.pending]
                self.pending = []
                for line in (*pending, *new):
                    if self._is_new(line):
                        self._append(handle, line)

    def _is_new(self, line: Line) -> bool:
        """Check whether this folder's journal lacks the entry."""
        known = self._texts.get(line_text(line.said))
        return known is None or (known and not line.elsewhere)

    @contextmanager
    def _appending(self) -> Iterator[Any]:
        """Lock the file, read it to its end, and open it for appending."""
        import fcntl

        assert self.path is not None
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+b") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            handle.seek(self._size)
            self._take(handle.read())
            handle.truncate(self._size)
            handle.seek(self._size)
            yield handle
            handle.flush()
            os.fsync(handle.fileno())

    def _append(self, handle: Any, line: Line) -> None:
        value = line_body(line.said)
        if line.at:
            value["at"] = line.at
        if line.mark is not None:
            value["mark"] = line.mark.model_dump(mode="json")
        if line.elsewhere:
            value["elsewhere"] = True
        self._chain = hash_text(self._chain + canonical_json(value))
        value["chain"] = self._chain
        text = (json.dumps(value, sort_keys=True, ensure_ascii=False) + "\n").encode()
        handle.write(text)
        self._size += len(text)
        self._keep(line)

    def _keep(self, line: Line) -> None:
        said, text = line.said, line_text(line.said)
        self._texts[text] = line.elsewhere and self._texts.get(text, True)
        if isinstance(said, Registration):
            kept, known = said, self.registrations.get(said.registered)
            if known is not None:
                screened = tuple(sorted({*known.screened, *said.screened}))
                frozen = known.frozen or said.frozen
                also = tuple(sorted({*known.also, *said.also, said.asks} - {known.asks, ""}))
                kept = known.model_copy(
                    update={"screened": screened, "frozen": frozen, "also": also}
                )
            self.registrations[said.registered] = kept
        self.lines.append(replace(line, number=len(self.lines)))

    def _take(self, block: bytes) -> None:
        """Read new lines from the file; an incomplete last line is dropped and noted."""
        whole, newline, torn = block.rpartition(b"\n")
        for text in whole.split(b"\n") if newline else []:
            self._take_line(text)
            self._size += len(text) + 1
        if torn:
            self.pending.append(
                Incident(
                    incident="torn",
                    why=f"an interruption truncated line {len(self.lines) + 1} of {FILE}; it was "
                    "dropped, and its content is written again",
                )
            )

    def _take_line(self, text: bytes) -> None:
        where = f"{self.path}: line {len(self.lines) + 1}"
        try:
            line = json.loads(text.decode("utf-8"))
            chain, at = line.pop("chain", None), line.get("at", "")
            expected = hash_text(self._chain + canonical_json(line))
            elsewhere, mark = bool(line.get("elsewhere")), line.get("mark")
            body = {key: line[key] for key in line if key not in ("at", "mark", "elsewhere")}
            said = line_model(body)
            known = None if mark is None else Mark.model_validate(mark)
        except (ValueError, ValidationError, AttributeError, TypeError):
            raise InputError(
                f"{where} is not a ledger entry; a ledger must not be edited. Restore it, or start "
                "a new ledger"
            ) from None
        if chain is None:
            raise InputError(
                f"{where} has no hash; it was edited, or written by an earlier SAGE version. "
                "Use a separate folder for the run"
            )
        if chain != expected:
            raise InputError(
                f"{where} was edited, or a line before it was removed; a ledger must not be "
                "edited. Restore it, or use a separate folder for the run"
            )
        self._chain = chain
        self._keep(Line(said, at, elsewhere, known))
