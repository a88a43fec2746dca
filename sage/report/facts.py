"""Numbers by key, and pages that may contain no other numbers.

In a rendered page, private-use characters, which are removed from all external text, mark
every value that came from a key or was quoted verbatim from a source. `check` refuses any
number outside these marks, which are then turned into markup. A number without a key
therefore cannot appear, regardless of who wrote the sentence.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from agents.core.types import Citation
from agents.core.words import KEYED
from sage.core.errors import FaultError

NUMBER_START, NUMBER_END, SOURCE_START, SOURCE_END = "\ue000", "\ue001", "\ue002", "\ue003"
KEY_END = "\ue004"
MARKED = re.compile(f"{NUMBER_START}[^{NUMBER_END}]*{NUMBER_END}")
VERBATIM = re.compile(f"{SOURCE_START}[^{SOURCE_END}]*{SOURCE_END}")
DROPPED = re.compile(r"<(svg|style|script|pre|code|title)\b.*?</\1>|<!--.*?-->|<[^>]+>", re.DOTALL)

# A free-standing number: not part of a name (FABP5, CD8, 12-chemokine, PD-1, T2, γH2AX).
NUMBER = re.compile(r"(?<![\w.\-/])[<>≤≥~≈]?\d+(?:[.,]\d+)*\s?(?:%|x\b|×)?(?![\w\-])")
EFFECT = re.compile(
    r"\b(?:HR|OR|RR|hazard ratio|odds ratio|p(?:-value)?)\s*(?:of|=|:|<|>|≈|~)?\s*\d", re.IGNORECASE
)


class ReportError(FaultError):
    """Error raised when the report would contain a statement without a source."""


def free_numbers(text: str) -> list[str]:
    """Find the numbers in `text` that state a quantity, excluding those in names or references."""
    bare = KEYED.sub(" ", text)
    return [
        found.group().strip() for pattern in (NUMBER, EFFECT) for found in pattern.finditer(bare)
    ]


@dataclass
class Facts:
    """All numbers of a run by dotted key, each stored as the text that is displayed."""

    values: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add(self, key: str, value: float | int | None, text: str | None = None) -> None:
        """Add a number, displayed as `text` or in a default format."""
        if value is None and text is None:
            return
        shown = text if text is not None else plain(value)
        self.values[key] = {"value": value, "text": shown}

    def text(self, key: str) -> str:
        """Return the displayed text of a number.

        Raises
        ------
        ReportError
            If no number has this key.
        """
        try:
            return str(self.values[key]["text"])
        except KeyError:
            raise ReportError(
                f'the report refers to "{key}", which is not in results.json'
            ) from None

    def fill(self, text: str, prefix: str) -> str:
        """Replace every `[[key]]` in a claim's sentence with the displayed number."""

        def number(found: re.Match[str]) -> str:
            full = f"{prefix}.{found[1]}"
            key = full if self.contains(full) else found[1]
            return self.text(key) if self.contains(key) else found[0]

        return KEYED.sub(number, text)

    def contains(self, key: str) -> bool:
        """Check whether a key exists."""
        return key in self.values


def plain(value: float | int | None) -> str:
    """Format integers with thousands separators and other numbers to three significant digits."""
    if value is None:
        return "–"
    if isinstance(value, float) and abs(value) >= 1e6:
        return f"{value:.1e}"
    if isinstance(value, int) or (float(value).is_integer() and abs(value) >= 10):
        return f"{int(value):,}"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def verbatim(text: object) -> str:
    """Mark text that is quoted literally, such as titles, statements, names and hashes."""
    return f"{SOURCE_START}{text}{SOURCE_END}"


class Pen:
    """Template helpers for one page, which number the references in order of use."""

    def __init__(
        self, facts: Facts, sources: Iterable[Citation], escape: Callable[[str], str] = str
    ) -> None:
        self.facts = facts
        self.escape = escape
        self.sources = {source.key: source for source in sources}
        self.cited: dict[str, int] = {}

    def number(self, key: str) -> str:
        """Render the number stored under a key."""
        shown = self.escape(self.facts.text(key))
        return f"{NUMBER_START}{self.escape(key)}{KEY_END}{shown}{NUMBER_END}"

    def sentence(self, text: str, prefix: str = "") -> str:
        """Render one of SAGE's sentences or a quoted remark, replacing each known `[[key]]`."""
        written = []
        for place, piece in enumerate(KEYED.split(text)):
            if place % 2 == 0:
                written.append(verbatim(self.escape(piece)) if piece else "")
                continue
            full = f"{prefix}.{piece}" if prefix and not self.facts.contains(piece) else piece
            known = self.facts.contains(full)
            written.append(self.number(full) if known else verbatim(self.escape(f"[[{piece}]]")))
        return "".join(written)

    def cite(self, citation: Citation) -> str:
        """Return the reference number of a source, assigning one on first use.

        Raises
        ------
        ReportError
            If the source is not among the run's records.
        """
        if citation.key not in self.sources:
            raise ReportError(
                f'the report cites "{citation.title[:80]}", which is in none of the run\'s source '
                "records"
            )
        number = self.cited.setdefault(citation.key, len(self.cited) + 1)
        return verbatim(f"[{number}]")

    def references(self) -> list[tuple[int, Citation]]:
        """List the cited sources with their reference numbers."""
        return [(number, self.sources[key]) for key, number in self.cited.items()]


def check(rendered: str) -> None:
    """Refuse a page that states a number outside a key or a verbatim source.

    Raises
    ------
    ReportError
        If there is such a number; the message includes the number and its context.
    """
    bare = VERBATIM.sub(" ", MARKED.sub(" ", rendered))
    bare = html.unescape(DROPPED.sub(" ", bare))
    for line in bare.splitlines():
        found = free_numbers(line)
        if found:
            around = " ".join(line.split())[:120]
            raise ReportError(f'the report states "{found[0]}" without a key: … {around} …')


def to_html(rendered: str) -> str:
    """Turn the marks into HTML in which each number carries its key."""

    def number(found: re.Match[str]) -> str:
        key, _, text = found[0][1:-1].partition(KEY_END)
        return f'<data value="{key}" title="{key}">{text}</data>'

    return _strip(MARKED.sub(number, rendered))


def to_markdown(rendered: str) -> str:
    """Remove the marks from a rendered Markdown page."""
    return _strip(MARKED.sub(lambda found: found[0][1:-1].partition(KEY_END)[2], rendered))


def _strip(text: str) -> str:
    return text.replace(SOURCE_START, "").replace(SOURCE_END, "")
