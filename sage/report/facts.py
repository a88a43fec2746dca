"""Numbers by key, and prose that may use no others.

A rendered page marks what it took from a key or from a source verbatim with private-use
characters. `finish` refuses any digit outside those marks, then turns the marks into markup. So a
number that has no key cannot get through, whoever wrote the sentence.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from agents.types import Citation
from agents.wording import KEYED, free_numbers
from sage.errors import FaultError

NUMBER_START, NUMBER_END, SOURCE_START, SOURCE_END = "\ue000", "\ue001", "\ue002", "\ue003"
MARKED = re.compile(f"{NUMBER_START}[^{NUMBER_END}]*{NUMBER_END}")
VERBATIM = re.compile(f"{SOURCE_START}[^{SOURCE_END}]*{SOURCE_END}")
DROPPED = re.compile(r"<(svg|style|script|pre|code|title)\b.*?</\1>|<!--.*?-->|<[^>]+>", re.DOTALL)


class ReportError(FaultError):
    """The report would state something that has no source."""


@dataclass
class Facts:
    """All numbers of a run by dotted key, each as the text in which it is shown."""

    values: dict[str, dict[str, Any]] = field(default_factory=dict)

    def put(self, key: str, value: float | int | None, text: str | None = None) -> None:
        """Add a number; without `text` it is shown in a plain form."""
        if value is None and text is None:
            return
        shown = text if text is not None else plain(value)
        self.values[key] = {"value": value, "text": shown}

    def text(self, key: str) -> str:
        """The number's text.

        Raises
        ------
        ReportError
            If no number has this key.
        """
        try:
            return str(self.values[key]["text"])
        except KeyError:
            raise ReportError(
                f'the report quotes "{key}", which results.json does not hold'
            ) from None

    def has(self, key: str) -> bool:
        """True when the key exists."""
        return key in self.values


def plain(value: float | int | None) -> str:
    """Integers whole with thousands separated, others to three significant digits."""
    if value is None:
        return "–"
    if isinstance(value, int) or (float(value).is_integer() and abs(value) >= 10):
        return f"{int(value):,}"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def verbatim(text: object) -> str:
    """Mark text that is quoted as it stands: titles, statements, quotations, names, hashes."""
    return f"{SOURCE_START}{text}{SOURCE_END}"


class Pen:
    """What templates write with. One per page; collects the references in order of use."""

    def __init__(self, facts: Facts, sources: Iterable[Citation]) -> None:
        self.facts = facts
        self.sources = {one.key: one for one in sources}
        self.cited: dict[str, int] = {}

    def number(self, key: str) -> str:
        """A number by key."""
        return f"{NUMBER_START}{key}|{self.facts.text(key)}{NUMBER_END}"

    def prose(self, text: str, prefix: str = "") -> str:
        """An agent's sentence: `[[key]]` becomes its number, “quotations” stay verbatim."""

        def put(found: re.Match[str]) -> str:
            key = found[1]
            full = f"{prefix}.{key}" if prefix and not self.facts.has(key) else key
            return self.number(full)

        quoted = re.sub(r"“[^”]*”", lambda found: verbatim(found[0]), text)
        return KEYED.sub(put, quoted)

    def cite(self, citation: Citation) -> str:
        """The reference number of a source.

        Raises
        ------
        ReportError
            If the source is not among the run's records.
        """
        if citation.key not in self.sources:
            raise ReportError(
                f'the report cites "{citation.title[:80]}", which no source record of the run holds'
            )
        number = self.cited.setdefault(citation.key, len(self.cited) + 1)
        return verbatim(f"[{number}]")

    def references(self) -> list[tuple[int, Citation]]:
        """Cited sources with their numbers."""
        return [(number, self.sources[key]) for key, number in self.cited.items()]


def check(rendered: str) -> None:
    """Refuse a page that states a number outside a key or a verbatim source.

    Raises
    ------
    ReportError
        Naming the number and the words around it.
    """
    bare = VERBATIM.sub(" ", MARKED.sub(" ", rendered))
    bare = html.unescape(DROPPED.sub(" ", bare))
    for line in bare.splitlines():
        found = free_numbers(line)
        if found:
            around = " ".join(line.split())[:120]
            raise ReportError(f'the report states "{found[0]}" without a key: … {around} …')


def to_html(rendered: str) -> str:
    """Turn the marks into markup: numbers carry their key."""

    def number(found: re.Match[str]) -> str:
        key, _, text = found[0][1:-1].partition("|")
        return f'<data value="{key}" title="{key}">{text}</data>'

    return _strip(MARKED.sub(number, rendered))


def to_markdown(rendered: str) -> str:
    """Drop the marks."""
    return _strip(MARKED.sub(lambda found: found[0][1:-1].partition("|")[2], rendered))


def _strip(text: str) -> str:
    return text.replace(SOURCE_START, "").replace(SOURCE_END, "")
