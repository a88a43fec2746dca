"""Callers of the MCP server identified by a reverse proxy, with roles, quotas, log, and runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mcp_servers.context import CALLER
from sage.core.errors import InputError
from sage.core.hooks import ASKED, BEGAN, DECIDED, EXPORTED
from sage.run.folder import RunFolder, new_id
from sage.web.people import COUNTED, SLIDE, OverQuotaError, Role
from sage_hospital.audit import REFUSED, Audit, Entry, open_audit
from sage_hospital.promises import Promises, open_promises
from sage_hospital.quotas import check_count, grant_budget
from sage_hospital.roles import Trust
from sage_hospital.runs import open_runs

if TYPE_CHECKING:
    from mcp_servers.knowledge.runs import Answer
    from mcp_servers.spec import ToolSpec
    from sage.settings import Settings


@dataclass
class LoggedCallers:
    """Callers with roles and quotas whose calls are logged.

    See `mcp_servers.servers.callers.Callers`.

    Parameters
    ----------
    audit : log; a call that cannot be logged is refused
    promises : budgets reserved for runs
    """

    trust: Trust
    settings: Settings
    audit: Audit
    promises: Promises

    def named(self, scope: Any) -> str | None:
        """Return the person identified by the proxy."""
        return self.trust.named(scope)

    def admit(
        self, who: str, spec: ToolSpec, arguments: Mapping[str, Any], slides: int
    ) -> list[Entry]:
        """Refuse calls that a role or quota does not allow, and log calls with effects.

        Each slide that the tool declares as processed gets its own entry, if it counts toward a
        quota.
        """
        if reason := self.trust.refusal(who, required_role(spec)):
            raise InputError(reason)
        what, about = describe_call(spec, arguments, slides)
        quotas, entries = self.trust.quotas(who), []
        most = quotas.slides_per_day
        times = min(slides, most + 1) if what == SLIDE and most is not None else bool(what)
        try:
            for _ in range(times):
                entries.append(self.audit.add(who, what, about, tool=spec.name, slides=slides))
                check_count(quotas, self.audit, entries[-1])
        except OverQuotaError:
            self.refund(entries)
            raise
        return entries

    def refund(self, admitted: list[Entry]) -> None:
        """Log that a call was refused, so that none of it counts toward quotas."""
        for entry in admitted:
            if entry.what in COUNTED:
                self.audit.refuse(entry)

    def admit_reading(self, who: str, exported: str) -> None:
        """Refuse people without a role, and log exported output."""
        if reason := self.trust.refusal(who, Role.READ):
            raise InputError(reason)
        if exported:
            self.audit.add(who, EXPORTED, exported)

    def drive(
        self, command: Callable[..., Answer]
    ) -> Callable[[Sequence[str], Callable[[], bool]], Answer]:
        """Wrap `command`, which runs `sage`, to run as the caller and within their budget."""

        def as_caller(words: Sequence[str], stop: Callable[[], bool]) -> Answer:
            who, run = CALLER.get(), None
            if words[0] == "run":
                run = RunFolder(self.settings.runs_dir / new_id(words[-1]))
                bound = grant_budget(self.promises, run, who, self.trust.quotas(who), None,
                               free=self.settings.effective_reasoner == "rules")  # fmt: skip
                most = [] if bound is None else [f"--budget-usd={bound}"]
                words = ["run", f"--out={run.root}", *most, *words[1:]]
            try:
                answer = command(words, stop, owner=who)
            finally:  # even if it was stopped early
                if run is not None and run.root.exists():
                    self.audit.add(who, BEGAN, run.root.name)
            if answer.code and run is not None:
                self.promises.end(str(run.root.resolve()))
                if not run.root.exists() and answer.code != 2:  # else the server refunds it
                    self._never_began(who)
            return answer

        return as_caller

    def _never_began(self, who: str) -> None:
        """Log that the last run a person requested was refused, so that it does not count."""
        rows = self.audit.rows()
        refused = {row.about for row in rows if row.what == REFUSED}
        for row in reversed(rows):
            if (row.who, row.what) == (who, ASKED) and str(row.seq) not in refused:
                self.audit.refuse(row)
                return


def required_role(spec: ToolSpec) -> Role:
    """Return the role that a tool requires; tools that only read require `read`."""
    if spec.name == "review_run":
        return Role.REVIEW
    return Role.READ if spec.read_only else Role.RUN


def describe_call(spec: ToolSpec, arguments: Mapping[str, Any], slides: int) -> tuple[str, str]:
    """Return a call's action and object for the log, or empty strings if it only reads."""
    if spec.name == "start_run":
        return ASKED, ""
    if spec.name == "review_run":
        return DECIDED.get(str(arguments.get("decision")), "decided"), str(arguments.get("run"))
    if spec.read_only:
        return "", ""
    return (SLIDE if slides else "called"), spec.name


@contextmanager
def open_callers(trust: Trust | None, settings: Settings) -> Iterator[LoggedCallers | None]:
    """Open a server's callers, or return None if no proxy identifies people."""
    if trust is None:
        yield None
        return
    with ExitStack() as kept:
        kept.enter_context(open_runs(settings, new=True))
        audit = kept.enter_context(open_audit(settings, new=True))
        assert audit is not None
        yield LoggedCallers(trust, settings, audit, kept.enter_context(open_promises(settings)))
