"""People who use the server and what they may do; a plugin can name, bound and log them.

By default whoever holds the token may do everything and gives their own name.
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
"""Action in the log for a measured slide."""
COUNTED = (ASKED, SLIDE)
"""Actions that a quota may count per day."""
SAFE = ("GET", "HEAD")
CHANGED = "changed"


class Role(StrEnum):
    """Permission beyond reading, which every role includes."""

    READ = "read"
    RUN = "run"
    REVIEW = "review"
    ADMINISTER = "administer"


class OverQuotaError(InputError):
    """A request beyond a quota; it is logged as refused and does not count."""


class Entry(Protocol):
    """A row of the log."""

    @property
    def seq(self) -> int:
        """Number of the row."""

    @property
    def who(self) -> str:
        """Person."""

    @property
    def what(self) -> str:
        """Action, in the past tense."""


class People:
    """Names people, decides what each may do, and logs it; a plugin overrides the methods.

    By default nobody is named, everything is allowed, and nothing is logged.
    """

    @property
    def identified(self) -> bool:
        """True if a reverse proxy names people; else they name themselves."""
        return False

    def named(self, scope: Any) -> str | None:
        """Person of a request; None where no trusted proxy names exactly one person."""
        return None

    def roles_of(self, who: str) -> frozenset[Role]:
        """Roles of a person."""
        return ALL

    def refusal(self, who: str, role: Role) -> str:
        """Reason why a person may not do what needs `role`; empty where they may."""
        return ""

    def log(self, who: str, what: str, about: str = "", **detail: Any) -> Entry | None:
        """Log an action before it happens; raises where that is impossible."""
        return None

    def cancel(self, entry: Entry) -> None:
        """Log that a request was refused or did not begin, so that it does not count."""

    def check_count(self, entry: Entry) -> None:
        """Raise `OverQuotaError` if a logged request exceeds a daily quota."""

    def grant(self, run: RunFolder, who: str, asked: float | None, *, free: bool) -> float | None:
        """Bound on a run's cost in USD within the person's quota; None for no bound."""
        return asked

    def grant_resumed(self, run: RunFolder, who: str) -> tuple[str, float | None]:
        """Owner of a run that `who` resumes, and a new bound on its cost; None keeps the bound."""
        return who, None

    def release_failed(self, failed: Callable[[str], bool]) -> None:
        """Free the money granted to runs (by folder) that failed to begin."""


def open_people(settings: Settings, header: str, proxies: list[str], roles: Path | None) -> People:
    """Open the people of the options of `sage serve`, until the process ends.

    Raises
    ------
    InputError
        If an option needs another, or no installed plugin knows people.
    """
    if (hooks := load_first("sage.hooks")) is not None:
        people: People = hooks.open_people(settings, header, proxies, roles)
        return people
    if header or proxies or roles:
        require_hooks("--trust-header")
    return People()


ALL = frozenset(Role)
BODY = 1 << 20
"""Bytes of a request's body, unless its rule allows more."""


class Rule(NamedTuple):
    """Requests that change something: a pattern of their path, and the role that they need.

    `action` is their name in the audit log, which keeps the pattern's group as the run; requests
    without a name are not logged. `most_bytes` bounds the request's body.
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
"""Requests without a rule need `administer`."""
EXPORTS = r"/api/runs/([^/]+)/(?:report|hypotheses/.+)"


def find_rule(path: str, rules: Sequence[Rule] = RULES) -> tuple[Rule, str]:
    """Rule of a changing request, and the run that its path names."""
    for rule in rules:
        if found := re.fullmatch(rule.path, path):
            return rule, found[1] if found.groups() else ""
    return Rule(path, Role.ADMINISTER), ""


def required_role(method: str, path: str, rules: Sequence[Rule] = RULES) -> Role:
    """Role that a request needs."""
    return Role.READ if method in SAFE else find_rule(path, rules)[0].role


def describe_request(
    method: str, path: str, rules: Sequence[Rule] = RULES
) -> tuple[str, str] | None:
    """Return action and run of a request for the log; None for a request that is not logged."""
    if method in SAFE:
        export = re.fullmatch(EXPORTS, path) if method == "GET" else None
        return (EXPORTED, export[1]) if export else None
    rule, run = find_rule(path, rules)
    if not rule.action:
        return None
    return rule.action, path if rule.action == CHANGED else run


def person(request: Request, given: str) -> str:
    """Name of the person: from the proxy, else as given.

    Raises
    ------
    InputError
        If there is no name.
    """
    name = one_line(request.scope["state"].get("person") or given)[:80]
    if not name:
        raise InputError("enter your name: a decision is recorded with it")
    return name


def roles(request: Request) -> frozenset[Role]:
    """Roles of the person who sent a request."""
    found: frozenset[Role] = request.scope["state"].get("roles", ALL)
    return found


def check_count(request: Request) -> None:
    """Raise `OverQuotaError` if a request exceeds a daily quota."""
    if (entry := request.scope["state"].get("logged")) is not None:
        request.app.state.site.people.check_count(entry)
