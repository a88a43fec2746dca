"""Texts that attack whoever shows them, values that hold them, and a run on a cohort of them."""

from __future__ import annotations

import csv
import dataclasses
import json
import re
from collections.abc import Callable
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from tests.end_to_end.harness import PROMPT, build_once, sage

EVIL = "http://evil.example"
NASTY = (
    "Smoking (ongoing = 1)",
    "Onset = adult",
    "onload=alert(1) onerror = alert(2)",
    f"javascript:parent.document.title='OWNED' {EVIL}/x www.evil.example",
    "<script>parent.document.title='OWNED'</script>",
    f'"><img src=x onerror="parent.document.title=1"><meta http-equiv=refresh content=0;{EVIL}>',
    "</style><style>.verdict{display:none}</style></title></details></table>",
    "</svg><svg onload=alert(1)><foreignObject><iframe src=//evil.example>",
    "\u202ednuof ton\u202c gnp.exe \u2066\u200fabc\u2069 \u05d0\u05d1",
    "a\x1b[2J\x1b]8;;http://evil.example\x07click\x1b]8;;\x07\x1b[31m \x08\x07\x00 \x9b31m",
    f"[link={EVIL}]x[/link] [/] [bold] [/red] [red on red] \\[/] \\[link={EVIL}]y",
    r"x $\frac{1}{$ $5 to $10 $\undefined{$ \$ $$",
    "{{ 7*7 }} {% raw %} {# x #} [[primary.p]] [[no.such.key]] ${x} %s {0}",
    f"| a | b |\n|---|---|\n# Heading\n\n- item ]({EVIL}) ![i]({EVIL}/x.png)\n<b>raw</b>\n> q",
    f"[x]: {EVIL} 'title'\n===\n***\n```\n~~~\n<{EVIL}>\n<!-- <?php <![CDATA[ &lt;b&gt;",
    "“quoted” p = 0.001 and HR 0.4 \u2028 line \x85 next \x0b \x0c end",
    "\ue000h1.primary.p\ue0040.0001\ue001 \ue002 12 \ue003",
    "lone \ud800 and \udfff surrogates, \ufffe\uffff, tags \U000e0041\U000e0042",
    "Z" + "\u0300\u0301\u0302\u0303" * 400 + "algo",
    "N" * 2_000,
    "_leading underscore_ `code` \\ *bold* ~~gone~~ @someone",
    "   ",
)
FIXED = frozenset(
    ("id", "key", "name", "process", "verdict", "verdict_words", "critic", "action", "when",
     "review", "file", "sha256", "cut", "source", "data", "places", "created", "reasoner")
)  # fmt: skip
"""Fields that name something inside SAGE, and Enum-like ones: no text from outside."""


def poisoned(value: Any, attack: Callable[[str], str], field: str = "") -> Any:
    """A copy of a value in which every free text went through `attack`, unvalidated."""
    if isinstance(value, str) and not isinstance(value, Enum):
        return value if field in FIXED or not value else attack(value)
    if isinstance(value, BaseModel):
        changed = {
            name: poisoned(getattr(value, name), attack, name) for name in type(value).model_fields
        }
        return value.model_copy(update=changed)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changed = {
            field.name: poisoned(getattr(value, field.name), attack, field.name)
            for field in dataclasses.fields(value)
        }
        return dataclasses.replace(value, **changed)
    if isinstance(value, dict):
        return {key: poisoned(item, attack, str(key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(poisoned(item, attack, field) for item in value)
    return value


PATIENTS = 160


def identifier(number: int) -> str:
    """A canary identifier."""
    return f"CANARY-{number:04d}-XQ"


def age(number: int) -> float:
    """A canary value, with more decimals than any coordinate of a figure has."""
    return round(41.037113427 + 0.270913643 * number, 9)


CANARIES = tuple(identifier(at) for at in range(PATIENTS)) + tuple(
    f"{age(at):.9f}".rstrip("0") for at in range(PATIENTS)
)


def write_canaries(folder: Path) -> None:
    """A simulated cohort whose identifiers and ages are canaries."""
    from validation.simulate.world import write_world

    write_world(folder, seed=5, patients=PATIENTS)
    names: dict[str, str] = {}
    for table in ("clinical", "imaging", "expression"):
        path = folder / f"{table}.csv"
        rows = list(csv.reader(path.open(encoding="utf-8")))
        at = rows[0].index("patient")
        for row in rows[1:]:
            number = len(names)
            row[at] = names.setdefault(row[at], identifier(number))
            if table == "clinical":
                row[rows[0].index("age")] = f"{age(number):.9f}"
        with path.open("w", newline="", encoding="utf-8") as handle:
            csv.writer(handle).writerows(rows)


def name_hostilely(folder: Path) -> None:
    """Give a cohort a hostile title, and hostile labels and units."""
    labels = iter(
        [item for item in NASTY if item.isprintable() or "\n" in item or "\x1b" in item] * 3
    )
    path = folder / "cohort.toml"
    text = path.read_text()

    def quote(text: str) -> str:
        return json.dumps(text).replace("\x7f", "\\u007f")

    text = re.sub(r'label = "[^"]*"', lambda _: f"label = {quote(next(labels) + ' x')}", text)
    text = re.sub(r'unit = "1/mm2"', lambda _: f"unit = {quote(NASTY[5])}", text)
    path.write_text(re.sub(r'title = "[^"]*"', lambda _: f"title = {quote(NASTY[4])}", text))


def _build_hostile_run(place: Path) -> None:
    write_canaries(place / "cohort")
    name_hostilely(place / "cohort")
    ended = sage(
        "run", f"TLS and survival in bladder cancer {NASTY[4]} {NASTY[10]} {NASTY[12]}",
        "--auto-approve", "--yes", "--cohort", str(place / "cohort"), "--out", str(place / "run"),
        cwd=place, NO_FIGURES="",
    )  # fmt: skip
    assert ended.code == 0, ended.err[-3000:]
    assert "\x1b" not in ended.out + ended.err


@lru_cache(maxsize=1)
def hostile_run() -> Path:
    """A finished run on a hostile cohort of canaries, asked for by a hostile prompt.

    Read it; never write.
    """
    return build_once("hostile", _build_hostile_run) / "run"


def _build_waiting_run(folder: Path) -> None:
    begun = sage("run", PROMPT, "--json", "--out", str(folder / "run"), cwd=folder)
    assert begun.code == 0, begun.err
    assert begun.json["status"] == "waiting for review"


def waiting_run() -> Path:
    """A run on the demonstration cohort that waits for its review. Copy it; never write."""
    return build_once("waiting", _build_waiting_run) / "run"
