"""Time, tokens and cost per step of a run, from its event log and outputs."""

from __future__ import annotations

import re

from sage.core.files import read_json
from sage.core.models import Strict
from sage.runfolder import RunFolder


class Spending(Strict):
    """One step of a run: how often it ran to its end, how long, what its model calls cost."""

    step: str
    hypothesis: str
    times: int
    seconds: float
    calls: int
    cached: int
    prompt_tokens: int
    completion_tokens: int
    usd: float


def spending(folder: RunFolder) -> list[Spending]:
    """One row per step and hypothesis, in the order in which they first ended."""
    rows: dict[tuple[str, str], dict[str, float]] = {}
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
    return [
        Spending(
            step=step,
            hypothesis=hypothesis,
            times=int(row["times"]),
            seconds=round(row["seconds"], 4),
            calls=int(row["calls"]),
            cached=int(row["cached"]),
            prompt_tokens=int(row["prompt_tokens"]),
            completion_tokens=int(row["completion_tokens"]),
            usd=row["usd"],
        )
        for (step, hypothesis), row in rows.items()
    ]


_FIELDS = ("times", "seconds", "calls", "cached", "prompt_tokens", "completion_tokens", "usd")


def _row(
    rows: dict[tuple[str, str], dict[str, float]], step: str, hypothesis: str
) -> dict[str, float]:
    """The row of a step; steps that run once for all hypotheses have no hypothesis."""
    for key in ((step, hypothesis), (step, "")):
        if key in rows:
            return rows[key]
    return rows.setdefault((step, hypothesis), dict.fromkeys(_FIELDS, 0.0))
