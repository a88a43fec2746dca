"""People at the MCP server, as its reverse proxy names them: roles, quotas, log, owners of runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mcp_servers.servers.callers import CALLER
from sage.control.audit import Audit, open_audit
from sage.control.runs import open_runs
from sage.core.errors import InputError
from sage.runfolder import new_id
from sage.web.people import Role, Trust
from sage.web.quotas import ASKED, SLIDE, OverQuotaError, Promises, budget, count, count_slides

if TYPE_CHECKING:
    from mcp_servers.knowledge.runs import Answer
    from mcp_servers.spec import ToolSpec
    from sage.settings import Settings

DECISIONS = {"approve": "approved", "edit": "edited", "another": "asked for another",
             "reject": "rejected"}  # fmt: skip
"""What the audit log calls each decision of `review_run`."""


@dataclass
class People:
    """See `mcp_servers.servers.callers.Callers`.

    Parameters
    ----------
    trust : who may name people, and what those may do
    settings : where the runs are known
    audit : keeps who called what; a call that it cannot keep is not made
    """

    trust: Trust
    settings: Settings
    audit: Audit
    promises: Promises = field(default_factory=Promises)

    def named(self, scope: Any) -> str | None:
        """The person that the proxy names."""
        return self.trust.named(scope)

    def admit(self, who: str, spec: ToolSpec, arguments: Mapping[str, Any]) -> None:
        """Refuse what a role or a quota does not allow; write down what changes something."""
        if reason := self.trust.refusal(who, needed(spec)):
            raise InputError(reason)
        what, about = said(spec, arguments)
        if not what:
            return
        entry, quotas = self.audit.add(who, what, about, tool=spec.name), self.trust.quotas(who)
        try:
            count(quotas, self.audit, entry)
            slides = 2 * arguments.get("read_slides", 0) * arguments.get("hypotheses", 1)
            count_slides(quotas, self.audit, who, slides, about)
        except OverQuotaError:
            self.audit.refuse(entry)
            raise

    def drive(
        self, command: Callable[..., Answer]
    ) -> Callable[[Sequence[str], Callable[[], bool]], Answer]:
        """`command`, which runs `sage`, as the caller: the runs are theirs, within their money."""

        def as_caller(words: Sequence[str], stop: Callable[[], bool]) -> Answer:
            who, name = CALLER.get(), ""
            if words[0] == "run":
                name = new_id(words[-1])
                with self.promises.lock:
                    free = self.settings.effective_reasoner == "rules"
                    bound = budget(self.settings, who, self.trust.quotas(who), None, free=free,
                                   promises=self.promises)  # fmt: skip
                    if bound is not None:
                        self.promises.make(name, who, bound)
                most = [] if bound is None else [f"--budget-usd={bound}"]
                words = ["run", f"--out={self.settings.runs_dir / name}", *most, *words[1:]]
            answer = command(words, stop, owner=who)
            if answer.code:
                self.promises.forget(name)
            return answer

        return as_caller


def needed(spec: ToolSpec) -> Role:
    """The role that a tool asks for: what only looks is for whoever reads."""
    if spec.name == "review_run":
        return Role.REVIEW
    return Role.READ if spec.read_only else Role.RUN


def said(spec: ToolSpec, arguments: Mapping[str, Any]) -> tuple[str, str]:
    """What the audit log says of a call, and about what; empty for one that only looks."""
    if spec.name == "start_run":
        return ASKED, ""
    if spec.name == "review_run":
        return DECISIONS.get(str(arguments.get("decision")), "decided"), str(arguments.get("run"))
    if spec.read_only:
        return "", ""
    return (SLIDE if "slide" in arguments else "called"), spec.name


@contextmanager
def people(trust: Trust | None, settings: Settings) -> Iterator[People | None]:
    """The people of a server; None where nobody is named."""
    if trust is None:
        yield None
        return
    with open_runs(settings, new=True), open_audit(settings, new=True) as audit:
        assert audit is not None
        yield People(trust, settings, audit)
