"""Time, tokens and cost of each step in a run, from its event log, outputs and paid calls."""

from __future__ import annotations

import re

from sage.core.files import read_json
from sage.core.llm.budget import charges
from sage.core.models import Strict
from sage.run.folder import RunFolder


class Spending(Strict):
    """A step in a run: completed executions, duration, and cost of model calls.

    `unanswered` counts paid calls that returned no complete reply, `estimated` those for
    which the server reported no token counts.
    """

    step: str
    hypothesis: str
    times: int
    seconds: float
    calls: int
    cached: int
    prompt_tokens: int
    completion_tokens: int
    usd: float
    failed: int = 0
    unanswered: int = 0
    estimated: int = 0


def spending(folder: RunFolder) -> list[Spending]:
    """Build a row per completed step and hypothesis, in order of first completion.

    As in the report, the counts come from the outputs, so a replay shows the same numbers.
    """
    rows: _Rows = {}
    for event in folder.events():
        if event.get("event") != "end":
            continue
        key = (str(event["node"]), str(event.get("hypothesis", "")))
        row = rows.setdefault(key, dict.fromkeys(_FIELDS, 0.0))
        row["times"] += 1
        row["seconds"] += float(event["seconds"])
    for path in sorted((folder.root / "outputs").glob("*.json")):
        content = read_json(path)
        if not (isinstance(content, dict) and "spent" in content):
            continue
        found = re.search(r"(?:^|-)(h\d+)(?:-r\d+)?$", path.stem)
        step, hypothesis = content["agent"], found[1] if found else ""
        row = _row(rows, step, hypothesis)
        for name in ("calls", "cached", "prompt_tokens", "completion_tokens", "usd"):
            row[name] += float(content["spent"][name])
    return _parse_row(rows)


def list_paid(folder: RunFolder) -> list[Spending]:
    """List actual payments, including failed and unfinished steps but not cached replies."""
    rows: _Rows = {
        (row.step, row.hypothesis): {name: float(getattr(row, name)) for name in _FIELDS}
        for row in spending(folder)
    }
    for event in folder.events():
        if event.get("event") == "error":
            _row(rows, str(event["node"]), str(event.get("hypothesis", "")))["failed"] += 1
    lines = charges(folder.spending_path)
    if lines:
        for row in rows.values():
            row |= dict.fromkeys(("calls", "prompt_tokens", "completion_tokens", "usd"), 0.0)
    for line in lines:
        row = _row(rows, line.get("node") or line["agent"], line.get("hypothesis", ""))
        row["calls"] += 1
        row["unanswered"] += line.get("outcome", "answered") != "answered"
        row["estimated"] += bool(line.get("estimated"))
        for name in ("prompt_tokens", "completion_tokens", "usd"):
            row[name] += float(line[name])
    return _parse_row({key: row for key, row in rows.items() if any(row.values())})


_FIELDS = tuple(name for name in Spending.model_fields if name not in ("step", "hypothesis"))
_Rows = dict[tuple[str, str], dict[str, float]]


def _parse_row(rows: _Rows) -> list[Spending]:
    def value(name: str, number: float) -> float:
        if name == "seconds":
            return round(number, 4)
        return number if name == "usd" else int(number)

    return [
        Spending.model_validate(
            {"step": step, "hypothesis": hypothesis}
            | {name: value(name, number) for name, number in row.items()}
        )
        for (step, hypothesis), row in rows.items()
    ]


def _row(rows: _Rows, step: str, hypothesis: str) -> dict[str, float]:
    """Return the row of a step; steps that run once for all hypotheses have no hypothesis."""
    for key in ((step, hypothesis), (step, "")):
        if key in rows:
            return rows[key]
    return rows.setdefault((step, hypothesis), dict.fromkeys(_FIELDS, 0.0))
