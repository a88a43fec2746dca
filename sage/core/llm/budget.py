"""Model costs, reserved before each call, settled afterward, and shared by concurrent callers."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from sage.core.errors import FaultError
from sage.core.files import append_line, read_lines

Outcome = Literal["answered", "timed out", "broke off", "cut off", "interrupted"]
_step: ContextVar[tuple[str, str]] = ContextVar("step", default=("", ""))


class BudgetError(FaultError):
    """The budget is exhausted; a run can be resumed with a larger one."""

    def __init__(self, message: str, budget_usd: float = 0.0) -> None:
        super().__init__(message)
        self.budget_usd = budget_usd


@contextmanager
def step(node: str, hypothesis: str = "") -> Iterator[None]:
    """Attribute model calls made within the block to this step of a run."""
    token = _step.set((node, hypothesis))
    try:
        yield
    finally:
        _step.reset(token)


def current_step() -> tuple[str, str]:
    """Return the current step as its node and hypothesis; both are empty outside any step."""
    return _step.get()


@dataclass(frozen=True)
class Charge:
    """The charge for a paid call; `estimated` is true if the server did not report its tokens."""

    agent: str
    model: str
    prompt_tokens: int
    completion_tokens: int
    usd: float
    outcome: Outcome = "answered"
    estimated: bool = False


@dataclass
class Meter:
    """Counts tokens and cost over a whole run, including resumed parts, and enforces its budget.

    Parameters
    ----------
    path : append-only file with a JSON line per paid call, answered or not; None for no file
    budget_usd : hard limit on the sum of spent and reserved amounts
    """

    path: Path | None = None
    budget_usd: float | None = None
    total_usd: float = 0.0
    calls: int = 0
    _reserved: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        for line in charges(self.path):
            self.total_usd += float(line.get("usd", 0.0))
            self.calls += 1

    def reserve(self, usd: float) -> Reservation:
        """Reserve the maximum cost of a call before it is made.

        Raises
        ------
        BudgetError
            If the amounts spent, reserved by other calls and requested in `usd` together exceed the
            budget.
        """
        with self._lock:
            committed = self.total_usd + self._reserved
            if self.budget_usd is not None and committed + usd > self.budget_usd:
                under_way = f", {self._reserved:.4f} reserved" if self._reserved > 1e-9 else ""
                raise BudgetError(
                    f"budget of {self.budget_usd:.2f} USD reached ({self.total_usd:.4f}"
                    f" spent{under_way}; the next call may cost {usd:.4f});"
                    " resume with a larger --budget-usd",
                    self.budget_usd,
                )
            self._reserved += usd
        return Reservation(self, usd)

    def _close(self, reserved: float, charge: Charge | None) -> None:
        node, hypothesis = current_step()
        with self._lock:
            self._reserved -= reserved
            if charge is None:
                return
            self.total_usd += charge.usd
            self.calls += 1
            if self.path is None:
                return
            line = {"node": node, "hypothesis": hypothesis, **charge.__dict__}
            append_line(self.path, json.dumps(line))


class Reservation:
    """An amount reserved for a call, to be settled once with the actual cost or released."""

    def __init__(self, meter: Meter, usd: float) -> None:
        self.usd = usd
        self._meter = meter
        self._open = True

    def settle(self, charge: Charge) -> None:
        """Replace the reservation with the amount actually paid."""
        if self._open:
            self._open = False
            self._meter._close(self.usd, charge)

    def release(self) -> None:
        """Release the reservation, because nothing was paid."""
        if self._open:
            self._open = False
            self._meter._close(self.usd, None)

    def __enter__(self) -> Reservation:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()


def charges(path: Path | None) -> list[dict[str, Any]]:
    """Read the lines written by a meter, omitting a line truncated by a kill."""
    lines = read_lines(path) if path is not None else []
    return [line for line in lines if isinstance(line, dict) and "usd" in line]
