"""Small types exchanged with other packages: findings, numbers, summaries."""

from __future__ import annotations

import json
from typing import Any, Literal

from sage.core.models import Strict

Severity = Literal["error", "warning", "info"]


class Finding(Strict):
    """A problem found in a cohort: its location, description and remedy."""

    severity: Severity
    code: str
    where: str
    message: str
    remedy: str = ""


class CohortSummary(Strict):
    """A line of `sage cohort list`; `slides` is set if the cohort declares its slides."""

    id: str
    title: str
    kind: Literal["builtin", "folder"]
    simulated: bool
    patients: int | None = None
    path: str | None = None
    slides: bool = False


class Number(Strict):
    """A number that a report may quote: its value, unit and printed form."""

    value: float | int | None
    unit: str
    text: str


def canonical_json(value: Any) -> str:
    """Serialize to JSON with sorted keys and fixed spacing, so that equal values hash equally."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
