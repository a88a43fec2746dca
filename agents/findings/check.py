"""Field-by-field checks of statements against those that the results support."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from agents.findings.types import Finding, Held, Statement

F = TypeVar("F", bound=Statement)


def keep_held(stated: Sequence[F], held: Iterable[Held]) -> tuple[F, ...]:
    """Return the distinct statements that the results support."""
    true = {item.finding for item in held}
    return tuple(dict.fromkeys(item for item in stated if item in true))


def refuse_findings(field: str, stated: Sequence[Finding], held: Iterable[Held]) -> list[str]:
    """Report every statement in `stated` that contradicts the results, with its position.

    Parameters
    ----------
    field : the name of the reply field that contains the statements
    """
    true = [item.finding for item in held]
    problems = []
    for place, finding in enumerate(stated):
        where = f"{field}.{place}"
        if finding in stated[:place]:
            problems.append(f"{where} repeats an earlier statement")
        if finding in true:
            continue
        alike = [item for item in true if item.kind == finding.kind]
        same = [item for item in alike if item.subject == finding.subject]
        if not same:
            subjects = ", ".join(dict.fromkeys(item.subject for item in alike)) or "none"
            problems.append(
                f'{where}.subject: the results hold no {finding.kind} of "{finding.subject}";'
                f" subjects of this kind: {subjects}"
            )
            continue
        problems += [
            f'{where}.{name}: "{value}", but by the results "{getattr(same[0], name)}"'
            for name, value in finding
            if value != getattr(same[0], name)
        ]
    return problems
