"""Texts that attack whoever shows them, values that hold them, and a run on a cohort of them."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from collections.abc import Callable
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from tests.end_to_end.harness import PROMPT, build_once, cache_dir, sage

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


def hostile_cohort(folder: Path) -> Path:
    """The demonstration cohort with hostile title, labels and units."""
    made = sage("cohort", "show", "demo", cwd=folder)
    assert made.code == 0, made.err
    demo = next(cache_dir().glob("cohorts/demo-*"))
    shutil.copytree(demo, folder / "cohort", ignore=shutil.ignore_patterns("slides"))
    labels = iter(
        [item for item in NASTY if item.isprintable() or "\n" in item or "\x1b" in item] * 3
    )
    path = folder / "cohort" / "cohort.toml"
    text = path.read_text()

    def quote(text: str) -> str:
        return json.dumps(text).replace("\x7f", "\\u007f")

    text = re.sub(r'label = "[^"]*"', lambda _: f"label = {quote(next(labels))}", text)
    text = re.sub(r'unit = "1/mm2"', lambda _: f"unit = {quote(NASTY[5])}", text)
    path.write_text(re.sub(r'title = "[^"]*"', lambda _: f"title = {quote(NASTY[4])}", text))
    return folder / "cohort"


def _build_hostile_run(folder: Path) -> None:
    ended = sage(
        "run", f"TLS in bladder cancer {NASTY[4]} {NASTY[10]} {NASTY[12]}", "--auto-approve",
        "--cohort", str(hostile_cohort(folder)), "--out", str(folder / "run"), cwd=folder,
    )  # fmt: skip
    assert ended.code == 0, ended.err
    assert "\x1b" not in ended.out + ended.err


@lru_cache(maxsize=1)
def hostile_run() -> Path:
    """A finished run on the hostile cohort, asked for by a hostile prompt. Read it; never write."""
    return build_once("hostile", _build_hostile_run) / "run"


def _build_waiting_run(folder: Path) -> None:
    begun = sage("run", PROMPT, "--json", "--out", str(folder / "run"), cwd=folder)
    assert begun.code == 0, begun.err
    assert begun.json["status"] == "waiting for review"


def waiting_run() -> Path:
    """A run on the demonstration cohort that waits for its review. Copy it; never write."""
    return build_once("waiting", _build_waiting_run) / "run"
