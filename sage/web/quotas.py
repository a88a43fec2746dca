"""What one person may use: runs and slides in a day, money in a month."""

from __future__ import annotations

import threading
from collections.abc import Collection
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from sage.control.runs import open_runs
from sage.core import clock
from sage.core.errors import InputError
from sage.core.models import Strict
from sage.core.printable import amount
from sage.report.spending import paid
from sage.runfolder import RunFolder

if TYPE_CHECKING:
    from fastapi import Request

    from sage.control.audit import Audit, Entry
    from sage.control.runs import KnownRun
    from sage.settings import Settings

MONTH = timedelta(days=30)
ASKED, SLIDE = "asked", "measured a slide"
"""What the audit log calls a run that was asked for, and a slide that was measured."""
STARTS_S = 600.0
"""Within which a run that was started is in the table, unless it failed."""
OVER = ("finished", "failed", "stopped")


class Quotas(Strict):
    """Bounds of one person; None is no bound."""

    runs_per_day: int | None = Field(default=None, ge=0)
    usd_per_month: float | None = Field(default=None, ge=0)
    slides_per_day: int | None = Field(default=None, ge=0)


class Promises:
    """Budgets of runs that were started and that the table does not know yet."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._made: dict[str, tuple[str, float, float]] = {}

    def make(self, run: str, who: str, usd: float) -> None:
        """Promise a run its budget."""
        self._made[run] = who, usd, clock.monotonic() + STARTS_S

    def forget(self, run: str) -> None:
        """A run that failed to start needs nothing."""
        self._made.pop(run, None)

    def runs(self) -> list[str]:
        """The runs with a promise that holds."""
        now = clock.monotonic()
        self._made = {run: made for run, made in self._made.items() if made[2] > now}
        return list(self._made)

    def sum(self, who: str, known: Collection[str]) -> float:
        """What a person was promised beside the runs that are known."""
        return sum(
            self._made[run][1]
            for run in self.runs()
            if run not in known and self._made[run][0] == who
        )


class OverQuotaError(InputError):
    """A request beyond a quota; the log says that it was refused, and it does not count."""


def check_count(request: Request) -> None:
    """Refuse one more run or slide beyond a day's number; the request is in the log already.

    Raises
    ------
    OverQuotaError
        With the number that is allowed.
    """
    trust, audit = request.app.state.site.trust, request.app.state.audit
    if trust is not None and audit is not None:
        entry: Entry = request.scope["state"]["logged"]
        count(trust.quotas(entry.who), audit, entry)


def count(quotas: Quotas, audit: Audit, entry: Entry) -> None:
    """Refuse a run or slide, in the log already, beyond a day's number of its sender.

    Raises
    ------
    OverQuotaError
        With the number that is allowed.
    """
    bounds = {ASKED: (quotas.runs_per_day, "run"), SLIDE: (quotas.slides_per_day, "slide")}
    most, thing = bounds.get(entry.what, (None, ""))
    if most is not None and audit.count(entry, _day_ago()) > most:
        raise _over(entry.who, most, thing)


def check_slides(request: Request, slides: int, run: str) -> None:
    """Count the slides that a run may read as if they were measured one by one.

    Raises
    ------
    OverQuotaError
        If they are more than what is left of the day; none of them counts then.
    """
    trust, audit = request.app.state.site.trust, request.app.state.audit
    if trust is not None and audit is not None:
        who = request.scope["state"]["logged"].who
        count_slides(trust.quotas(who), audit, who, slides, run)


def count_slides(quotas: Quotas, audit: Audit, who: str, slides: int, run: str) -> None:
    """Write down the slides that a run may read, and refuse them beyond a day's number.

    Parameters
    ----------
    quotas : of the person
    audit : the log
    who : the person
    slides : how many
    run : the run that reads them

    Raises
    ------
    OverQuotaError
        If they are more than what is left of the day; none of them counts then.
    """
    most = quotas.slides_per_day
    entries = [audit.add(who, SLIDE, run, read_by="run") for _ in range(slides)]
    if entries and most is not None and audit.count(entries[-1], _day_ago()) > most:
        for entry in entries:
            audit.refuse(entry)
        raise _over(who, most, "slide")


def _day_ago() -> str:
    return (clock.now() - timedelta(days=1)).isoformat(timespec="milliseconds")


def _over(who: str, most: int, thing: str) -> OverQuotaError:
    return OverQuotaError(
        f"{who} may have {amount(most, thing)} in 24 hours; wait, or ask for more"
    )


def budget(
    settings: Settings,
    who: str,
    quotas: Quotas,
    asked: float | None,
    *,
    free: bool,
    promises: Promises,
    without: str = "",
) -> float | None:
    """The bound on a run's cost: what was asked, within what is left of the person's month.

    A run that goes on counts with its whole budget.

    Parameters
    ----------
    settings : where the runs are known
    who : the person
    quotas : theirs
    asked : the bound that they gave the run, in USD
    free : whether the run calls no model
    promises : of runs that the table does not know yet
    without : identity of a run that does not count, since it is the one that goes on

    Raises
    ------
    OverQuotaError
        If nothing is left, or less than was asked for.
    """
    if quotas.usd_per_month is None or free:
        return asked
    with open_runs(settings) as table:
        known = table.of(who, MONTH.total_seconds()) if table is not None else []
    spent = sum(_cost(run) for run in known if run.id != without)
    left = quotas.usd_per_month - spent - promises.sum(who, {run.name for run in known})
    if left <= 0 or (asked is not None and asked > left):
        raise OverQuotaError(
            f"{who} may spend {quotas.usd_per_month:.2f} USD in 30 days, of which"
            f" {max(0.0, left):.2f} are left; ask for less, or wait"
        )
    return left if asked is None else asked


def _cost(run: KnownRun) -> float:
    folder = RunFolder(Path(run.folder))
    if not (folder.root / "manifest.json").is_file():
        return 0.0
    spent = sum(row.usd for row in paid(folder))
    reserved = folder.manifest().budget_usd or 0.0
    return spent if run.state in OVER else max(spent, reserved)
