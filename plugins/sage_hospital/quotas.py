"""Per-person quotas: runs and slides per day, and money per month."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from sage.core import clock
from sage.core.hooks import ASKED
from sage.core.models import Strict
from sage.core.printable import count_noun
from sage.report.spending import list_paid
from sage.run.folder import RunFolder, find_holder
from sage.web.people import SLIDE, OverQuotaError

if TYPE_CHECKING:
    from sage.web.people import Entry
    from sage_hospital.audit import Audit
    from sage_hospital.promises import Promise, Promises
    from sage_hospital.runs import KnownRun

MONTH = timedelta(days=30)
OVER = ("finished", "failed", "stopped")


class Quotas(Strict):
    """A person's limits; None means no limit."""

    runs_per_day: int | None = Field(default=None, ge=0)
    usd_per_month: float | None = Field(default=None, ge=0)
    slides_per_day: int | None = Field(default=None, ge=0)


def check_count(quotas: Quotas, audit: Audit, entry: Entry) -> None:
    """Refuse a logged run or slide that exceeds the person's daily quota.

    Raises
    ------
    OverQuotaError
        If the quota is exceeded.
    """
    bounds = {ASKED: (quotas.runs_per_day, "run"), SLIDE: (quotas.slides_per_day, "slide")}
    most, thing = bounds.get(entry.what, (None, ""))
    if most is not None and audit.count(entry, _day_ago()) > most:
        raise _explain_excess(entry.who, most, thing)


def _day_ago() -> str:
    return (clock.now() - timedelta(days=1)).isoformat(timespec="milliseconds")


def _explain_excess(who: str, most: int, thing: str) -> OverQuotaError:
    return OverQuotaError(
        f"{who} has reached the quota of {count_noun(most, thing)} in 24 hours; wait, or request "
        "a higher quota"
    )


def grant_budget(
    promises: Promises,
    run: RunFolder,
    who: str,
    quotas: Quotas,
    asked: float | None,
    *,
    free: bool,
    at_most: float | None = None,
) -> float | None:
    """Reserve a cost limit for a run: the request, within what remains of the person's month.

    The spending of other runs counts, as does the whole budget of runs in progress or about
    to start.

    Parameters
    ----------
    promises : shared by all servers, so that no money is reserved twice
    run : folder of the run, which need not exist; its own spending does not count
    asked : limit requested by the person, in USD
    free : whether the run calls no model
    at_most : upper limit, in USD

    Returns
    -------
    Limit in USD; None for no limit.

    Raises
    ------
    OverQuotaError
        If nothing is left, or less than was requested.
    """
    month = quotas.usd_per_month
    if month is None or free:
        return asked

    def decide(known: Sequence[KnownRun], promised: Mapping[str, Promise]) -> float:
        table = {str(Path(row.folder).resolve()): row for row in known}
        others = (table.keys() | promised.keys()) - {place}
        left = month - sum(_cost(other, table.get(other), promised.get(other)) for other in others)
        if left <= 0 or (asked is not None and asked > left):
            raise OverQuotaError(
                f"{who} may spend {month:.2f} USD in 30 days, of which {max(0.0, left):.2f} "
                "remain; lower the budget, or wait"
            )
        return min(bound for bound in (left, asked, at_most) if bound is not None)

    place = str(run.root.resolve())
    return promises.make(place, who, MONTH.total_seconds(), decide)


def _cost(place: str, known: KnownRun | None, promise: Promise | None) -> float:
    """Compute the USD a run has spent, or may spend if it is in progress or about to start."""
    folder, promised = RunFolder(Path(place)), 0.0 if promise is None else promise.usd
    begins = promise is not None and promise.holds
    if begins and promise is not None and known is not None:
        begins = known.updated <= promise.made  # else its state is newer
    if not (folder.root / "manifest.json").is_file():
        return promised if begins or known is not None else 0.0
    spent = sum(row.usd for row in list_paid(folder))
    if begins or (known is None and find_holder(folder)):
        return max(spent, promised)
    if known is None or known.state in OVER:
        return spent
    return max(spent, folder.manifest().spec.budget_usd or 0.0)
