"""Cost of models: reserved before a call, settled after it, shared by concurrent callers."""

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
from sage.core.files import append_line

Outcome = Literal["answered", "timed out", "broke off", "cut off", "interrupted"]
_step: ContextVar[tuple[str, str]] = ContextVar("step", default=("", ""))


class BudgetError(FaultError):
    """The budget is spent; a run can be resumed with a larger budget."""

    def __init__(self, message: str, budget_usd: float = 0.0) -> None:
        super().__init__(message)
        self.budget_usd = budget_usd


@contextmanager
def step(node: str, hypothesis: str = "") -> Iterator[None]:
    """Count and trace what is asked inside as part of this step of a run."""
    token = _step.set((node, hypothesis))
    try:
        yield
    finally:
        _step.reset(token)


def current_step() -> tuple[str, str]:
    """Return the step under way, as its node and hypothesis; both empty outside of any."""
    return _step.get()


@dataclass(frozen=True)
class Charge:
    """A paid call. `estimated` is true if the server did not report its tokens."""

    agent: str
    model: str
    prompt_tokens: int
    completion_tokens: int
    usd: float
    outcome: Outcome = "answered"
    estimated: bool = False


@dataclass
class Meter:
    """Counts tokens and cost over a whole run, resumed parts included, and holds its budget.

    Parameters
    ----------
    path : append-only file of JSON lines, a line per paid call, answered or not; None keeps no file
    budget_usd : hard bound on what is spent and reserved together
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
        """Set aside what a call may cost at most, before it is made.

        Raises
        ------
        BudgetError
            If what is spent, what other calls have reserved and `usd` together exceed the budget.
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
    """Money set aside for a call: settled once with what the call cost, or released."""

    def __init__(self, meter: Meter, usd: float) -> None:
        self.usd = usd
        self._meter = meter
        self._open = True

    def settle(self, charge: Charge) -> None:
        """Replace the reservation by what was paid."""
        if self._open:
            self._open = False
            self._meter._close(self.usd, charge)

    def release(self) -> None:
        """Give the reservation back; nothing was paid."""
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
    """Return the lines that a meter wrote; a line cut short by a kill is left out."""
    if path is None or not path.exists():
        return []
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            charge = json.loads(line)
        except ValueError:
            continue
        if isinstance(charge, dict) and "usd" in charge:
            found.append(charge)
    return found
