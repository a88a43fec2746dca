"""Replies kept by content, so that no call is paid twice, and a meter of what is paid."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sage.core.errors import FaultError


class BudgetError(FaultError):
    """The run's budget is spent; the run can be resumed with a larger one."""


@dataclass(frozen=True)
class RawReply:
    """A model's reply as it came: text, why it ended, and the tokens that it cost."""

    content: str
    finish: str
    prompt_tokens: int
    completion_tokens: int
    model: str


def request_key(
    model: str, messages: Sequence[Mapping[str, object]], schema: object, temperature: float | None
) -> str:
    """SHA-256 over everything that determines a reply."""
    canonical = json.dumps(
        {
            "model": model,
            "messages": list(messages),
            "schema": schema,
            "temperature": temperature,
        },
        sort_keys=True,
        ensure_ascii=False,
    )
    return hashlib.sha256(canonical.encode()).hexdigest()


class ReplyCache:
    """One JSON file per reply in a folder, written whole or not at all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, key: str) -> RawReply | None:
        """The kept reply, or None. An unreadable file counts as absent."""
        path = self.folder / f"{key}.json"
        try:
            return RawReply(**json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError):
            path.unlink(missing_ok=True)
            return None

    def put(self, key: str, reply: RawReply) -> None:
        """Keep a reply."""
        self.folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=self.folder, prefix=".", suffix=".part")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(reply.__dict__, file, ensure_ascii=False)
            Path(name).replace(self.folder / f"{key}.json")
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise

    def forget(self, key: str) -> None:
        """Drop a reply that turned out useless."""
        (self.folder / f"{key}.json").unlink(missing_ok=True)


@dataclass
class Meter:
    """Counts tokens and cost per agent over a whole run, resumed parts included.

    `path` is an append-only JSON-lines file; `budget_usd` is a hard bound, checked before a call.
    """

    path: Path | None = None
    budget_usd: float | None = None
    total_usd: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        if self.path and self.path.exists():
            for line in self.path.read_text(encoding="utf-8").splitlines():
                try:
                    self.total_usd += float(json.loads(line)["usd"])
                except (ValueError, KeyError):
                    continue  # a line cut short by a kill; its reply was not kept either

    def allow(self, expected_usd: float) -> None:
        """Refuse a call that would exceed the budget.

        Raises
        ------
        BudgetError
            If what was spent plus `expected_usd` is above the budget.
        """
        if self.budget_usd is None:
            return
        with self._lock:
            if self.total_usd + expected_usd > self.budget_usd:
                raise BudgetError(
                    f"budget of {self.budget_usd:.2f} USD reached ({self.total_usd:.4f} spent);"
                    " resume with a larger --budget-usd"
                )

    def record(self, agent: str, reply: RawReply, usd: float) -> None:
        """Add one paid reply."""
        with self._lock:
            self.total_usd += usd
            if self.path is None:
                return
            self.path.parent.mkdir(parents=True, exist_ok=True)
            line = {
                "agent": agent,
                "model": reply.model,
                "prompt_tokens": reply.prompt_tokens,
                "completion_tokens": reply.completion_tokens,
                "usd": usd,
            }
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
