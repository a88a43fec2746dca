"""Users of the page server, identified by a proxy, limited by quotas, and logged."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sage.web.people import ALL, People, Role
from sage_hospital.audit import Audit, open_audit
from sage_hospital.promises import Promises, open_promises
from sage_hospital.quotas import check_count, grant_budget
from sage_hospital.runs import Runs, open_runs

if TYPE_CHECKING:
    from sage.run.folder import RunFolder
    from sage.settings import Settings
    from sage.web.people import Entry
    from sage_hospital.roles import Trust


@dataclass
class LoggedPeople(People):
    """Users whose requests are logged and limited by quotas; see `sage.web.people.People`.

    Parameters
    ----------
    audit : log
    runs : table of runs
    trust : proxies and roles; None if people name themselves
    promises : budgets reserved for runs; None if people name themselves
    """

    audit: Audit
    runs: Runs
    trust: Trust | None = None
    promises: Promises | None = None

    @property
    def identified(self) -> bool:
        """True if a reverse proxy identifies people."""
        return self.trust is not None

    def named(self, scope: Any) -> str | None:
        """See `People.named`."""
        return None if self.trust is None else self.trust.named(scope)

    def roles_of(self, who: str) -> frozenset[Role]:
        """See `People.roles_of`."""
        return ALL if self.trust is None else self.trust.roles_of(who)

    def refusal(self, who: str, role: Role) -> str:
        """See `People.refusal`."""
        return "" if self.trust is None else self.trust.refusal(who, role)

    def log(self, who: str, what: str, about: str = "", **detail: Any) -> Entry | None:
        """See `People.log`."""
        return self.audit.add(who, what, about, **detail)

    def cancel(self, entry: Entry) -> None:
        """See `People.cancel`."""
        self.audit.refuse(entry)

    def check_count(self, entry: Entry) -> None:
        """See `People.check_count`."""
        if self.trust is not None:
            check_count(self.trust.quotas(entry.who), self.audit, entry)

    def grant(self, run: RunFolder, who: str, asked: float | None, *, free: bool) -> float | None:
        """See `People.grant`."""
        if self.trust is None or self.promises is None:
            return asked
        return grant_budget(self.promises, run, who, self.trust.quotas(who), asked, free=free)

    def grant_resumed(self, run: RunFolder, who: str) -> tuple[str, float | None]:
        """See `People.grant_resumed`."""
        if self.trust is None or self.promises is None:
            return who, None
        manifest = run.manifest()
        known = self.runs.get(manifest.run_id)
        owner = known.owner if known is not None else who
        most = manifest.spec.budget_usd
        bound = grant_budget(
            self.promises, run, owner, self.trust.quotas(owner), None,
            free=manifest.reasoner == "rules", at_most=most,
        )  # fmt: skip
        return owner, None if bound == most else bound

    def release_failed(self, failed: Callable[[str], bool]) -> None:
        """See `People.release_failed`."""
        if self.promises is not None:
            for place in self.promises.waiting():
                if failed(place):
                    self.promises.end(place)


def open_people(settings: Settings, trust: Trust | None) -> People:
    """Open the log and reservations until exit, if people are identified or a database is set.

    The table of runs is also created, so that it includes every run.
    """
    if trust is None and settings.checkpoint_url is None:
        return People()
    kept = ExitStack()
    atexit.register(kept.close)
    runs = kept.enter_context(open_runs(settings, new=True))
    audit = kept.enter_context(open_audit(settings, new=True))
    assert audit is not None
    assert runs is not None
    promises = None if trust is None else kept.enter_context(open_promises(settings))
    return LoggedPeople(audit, runs, trust, promises)
