"""Server users and their permissions; a plugin can identify, restrict and log them.

By default, anyone with the token has all permissions, and people state their own names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from sage.core.errors import InputError
from sage.core.hooks import ASKED, EXPORTED, require_hooks
from sage.core.plugins import load_first
from sage.core.printable import one_line

if TYPE_CHECKING:
    from fastapi import Request

    from sage.run.folder import RunFolder
    from sage.settings import Settings

SLIDE = "measured a slide"
"""Log action for measuring a slide."""
COUNTED = (ASKED, SLIDE)
"""Actions that can have a daily quota."""
SAFE = ("GET", "HEAD")
CHANGED = "changed"


class Role(StrEnum):
    """A permission beyond reading, which every role includes."""

    READ = "read"
    RUN = "run"
    REVIEW = "review"
    ADMINISTER = "administer"


class OverQuotaError(InputError):
    """Error raised when a request exceeds a quota; it is logged as refused and does not count."""


class Entry(Protocol):
    """An entry in the log."""

    @property
    def seq(self) -> int:
        """Sequence number of the entry."""

    @property
    def who(self) -> str:
        """Person who performed the action."""

    @property
    def what(self) -> str:
        """Action, in the past tense."""


class People:
    """Identification, authorization and logging of people; plugins override the methods.

    By default, nobody is identified, everything is allowed, and nothing is logged.
    """

    @property
    def identified(self) -> bool:
        """True if a reverse proxy identifies people; otherwise they state their own names."""
        return False

    def named(self, scope: Any) -> str | None:
        """Return the sender of a request; None unless a trusted proxy names exactly one person."""
        return None

    def roles_of(self, who: str) -> frozenset[Role]:
        """Return a person's roles."""
        return ALL

    def refusal(self, who: str, role: Role) -> str:
        """Return why a person may not do things that require `role`; empty if they may."""
        return ""

    def log(self, who: str, what: str, about: str = "", **detail: Any) -> Entry | None:
        """Log an action before it happens; raise an error if logging is impossible."""
        return None

    def cancel(self, entry: Entry) -> None:
        """Log that a request was refused or did not start, so that it does not count."""

    def check_count(self, entry: Entry) -> None:
        """Raise `OverQuotaError` if a logged request exceeds a daily quota."""

    def grant(self, run: RunFolder, who: str, asked: float | None, *, free: bool) -> float | None:
        """Return the cost limit (USD) for a run within the person's quota; None for no limit."""
        return asked

    def grant_resumed(self, run: RunFolder, who: str) -> tuple[str, float | None]:
        """Return the owner of a run resumed by `who` and its new cost limit (None: unchanged)."""
        return who, None

    def release_failed(self, failed: Callable[[str], bool]) -> None:
        """Release the money granted to runs (by folder) that failed to start."""


def open_people(settings: Settings, header: str, proxies: list[str], roles: Path | None) -> People:
    """Set up people from the options of `sage serve`, for the lifetime of the process.

    Raises
    ------
    InputError
        If an option requires another one, or no installed plugin can identify people.
    """
    if (hooks := load_first("sage.hooks")) is not None:
        people: People = hooks.open_people(settings, header, proxies, roles)
        return people
    if header or proxies or roles:
        require_hooks("--trust-header")
    return People()


ALL = frozenset(Role)
BODY = 1 << 20
"""Maximum size of a request body in bytes, unless its rule allows more."""


class Rule(NamedTuple):
    """A rule for requests that make changes: a path pattern and the required role.

    `action` names the requests in the audit log, which records the pattern's group as the
    run; requests without a name are not logged. `most_bytes` limits the size of the request's
    body.
    """

    path: str
    role: Role
    action: str = CHANGED
    most_bytes: int = BODY


RULES = (
    Rule(r"/api/ask", Role.READ, ""),
    Rule(r"/api/runs/[^/]+/preview", Role.READ, ""),
    Rule(r"/api/slides/measure", Role.READ, SLIDE),
    Rule(r"/api/slides/nuclei", Role.RUN, SLIDE),
    Rule(r"/api/runs", Role.RUN, ASKED),
    Rule(r"/api/runs/([^/]+)/(?:stop|pause|resume)", Role.RUN, "stopped, paused or resumed"),
    Rule(r"/api/runs/([^/]+)/review", Role.REVIEW, "decided"),
    Rule(r"/api/runs/([^/]+)/comments", Role.REVIEW, "commented"),
    Rule(r"/api/slides/regions", Role.REVIEW),
)
"""Rules for requests that make changes; requests without a rule require `administer`."""
EXPORTS = r"/api/runs/([^/]+)/(?:report|hypotheses/.+)"


def find_rule(path: str, rules: Sequence[Rule] = RULES) -> tuple[Rule, str]:
    """Find the rule for a request that makes changes, and the run named in its path."""
    for rule in rules:
        if found := re.fullmatch(rule.path, path):
            return rule, found[1] if found.groups() else ""
    return Rule(path, Role.ADMINISTER), ""


def required_role(method: str, path: str, rules: Sequence[Rule] = RULES) -> Role:
    """Return the role that a request requires."""
    return Role.READ if method in SAFE else find_rule(path, rules)[0].role


def describe_request(
    method: str, path: str, rules: Sequence[Rule] = RULES
) -> tuple[str, str] | None:
    """Return a request's action and run for the log; None if the request is not logged."""
    if method in SAFE:
        export = re.fullmatch(EXPORTS, path) if method == "GET" else None
        return (EXPORTED, export[1]) if export else None
    rule, run = find_rule(path, rules)
    if not rule.action:
        return None
    return rule.action, path if rule.action == CHANGED else run


def person(request: Request, given: str) -> str:
    """Return the person's name from the proxy, or the given name without a proxy.

    Raises
    ------
    InputError
        If the name is empty.
    """
    name = one_line(request.scope["state"].get("person") or given)[:80]
    if not name:
        raise InputError("enter your name; it is recorded with the decision")
    return name


def roles(request: Request) -> frozenset[Role]:
    """Return the roles of the request's sender."""
    found: frozenset[Role] = request.scope["state"].get("roles", ALL)
    return found


def check_count(request: Request) -> None:
    """Raise `OverQuotaError` if a request exceeds a daily quota."""
    if (entry := request.scope["state"].get("logged")) is not None:
        request.app.state.site.people.check_count(entry)
