"""Survival that a file states: a sentence with a median or a rate, or a Kaplan-Meier table."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from sage_tumor_board.board.types import Cited

Endpoint = Literal["survival", "progression"]
_ENDPOINTS: dict[Endpoint, str] = {
    "survival": r"overall[- ]survival|\bOS\b|survival",
    "progression": r"(?:progression|disease|recurrence|relapse|event)[- ]free[- ]survival"
                   r"|\b(?:PFS|DFS|RFS|EFS)\b",
}  # fmt: skip
_MEDIAN = re.compile(r"\bmedian\b.{0,80}?(\d+(?:\.\d+)?)\s*(months?|years?)", re.IGNORECASE)
_RATE = re.compile(
    r"\b(\d+(?:\.\d+)?)[- ](year|month)s?\b.{0,60}?(\d+(?:\.\d+)?)\s*(?:%|percent)", re.IGNORECASE
)
LONGEST_TABLE = 5000


@dataclass(frozen=True)
class Stated:
    """The chance to be free of the event at the horizon, and the passage that states it."""

    chance: float
    cited: Cited


def stated(texts: Mapping[str, str], endpoint: Endpoint, months: float) -> Stated | None:
    """The first survival figure of the endpoint that a file states, taken to a horizon.

    A median or a rate at another time is carried over by constant hazard; a table with the columns
    `time` (months) and `survival` (0 to 1) is read at the last time that is not later.

    Parameters
    ----------
    texts : texts of files by name
    endpoint : survival, or survival without progression or recurrence
    months : the horizon
    """
    for file, text in texts.items():
        found = _table(file, text, endpoint, months) or _sentence(file, text, endpoint, months)
        if found is not None:
            return found
    return None


def _sentence(file: str, text: str, endpoint: Endpoint, months: float) -> Stated | None:
    free = re.compile(_ENDPOINTS["progression"], re.IGNORECASE)
    wanted = re.compile(_ENDPOINTS[endpoint], re.IGNORECASE)
    for match in re.finditer(r"[^\n]+?(?:(?<!\d)\.(?!\d)|\.(?=\s)|$)", text, re.MULTILINE):
        sentence = match[0].strip()
        if len(sentence) > 600 or not wanted.search(sentence):
            continue
        if endpoint == "survival" and free.search(sentence):
            continue
        cited = Cited(sentence=f"A file states {endpoint} figures.", file=file, quote=sentence)
        if median := _MEDIAN.search(sentence):
            half = float(median[1]) * (12 if median[2].startswith("year") else 1)
            if half > 0:
                return Stated(0.5 ** (months / half), cited)
        if rate := _RATE.search(sentence):
            at = float(rate[1]) * (12 if rate[2].startswith("year") else 1)
            share = float(rate[3]) / 100
            if at > 0 and 0 < share <= 1:
                return Stated(share ** (months / at), cited)
    return None


def _table(file: str, text: str, endpoint: Endpoint, months: float) -> Stated | None:
    if not file.endswith((".csv", ".tsv")):
        return None
    name = file.casefold()
    if (endpoint == "progression") != bool(re.search(r"pfs|dfs|rfs|progression|recurrence", name)):
        return None
    lines = text.splitlines()[:LONGEST_TABLE]
    delimiter = "\t" if file.endswith(".tsv") else ","
    rows = csv.DictReader(io.StringIO("\n".join(lines)), delimiter=delimiter)
    names = {(field or "").strip().casefold(): field for field in rows.fieldnames or ()}
    time = next((names[n] for n in ("time", "months", "time_months") if n in names), None)
    share = next((names[n] for n in ("survival", "km", "survival_probability") if n in names), None)
    if time is None or share is None:
        return None
    best: tuple[float, float, str] | None = None
    for number, row in enumerate(rows, 1):
        try:
            at, alive = float(row[time]), float(row[share])
        except (TypeError, ValueError):
            continue
        known = at <= months and 0 <= alive <= 1 and number < len(lines)
        if known and (best is None or at >= best[0]):
            best = (at, alive, lines[number])
    if best is None:
        return None
    return Stated(best[1], Cited(sentence="A table of survival by time.", file=file, quote=best[2]))
