"""Functions that make external text, such as records or model output, safe to display."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Self

LONGEST_NAME = 300
"""Maximum number of characters in a label, title, level, unit or file name."""
LONGEST_PASSAGE = 10_000
"""Maximum number of characters in any other external text, enough for an abstract."""

_BREAK = re.compile("\r\n|[\r\v\f\x1c-\x1e\x85\u2028\u2029]")
# Invisible, or made to reorder the text beside it: soft hyphens, bidi controls, tag characters.
_INVISIBLE = re.compile(
    "[\xad\u034f\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e0fff]"
)
# Control characters, lone surrogates, private use (SAGE's own marks), noncharacters.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x9f\ud800-\udfff\ue000-\uf8ff\ufdd0-\ufdef\ufffe\uffff"
    "\U000f0000-\U0010ffff]"
)
_COMBINING = "[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]"
_PILED = re.compile(f"({_COMBINING}{{3}}){_COMBINING}+")


def clean_text(text: str) -> str:
    """Remove everything that a page or terminal would interpret instead of displaying.

    Line breaks of every kind become newlines. Invisible characters are removed, long sequences of
    combining marks are truncated, and unprintable characters become the replacement character.
    """
    text = _BREAK.sub("\n", text)
    if text.isascii():
        return _UNPRINTABLE.sub("\ufffd", text)
    return _PILED.sub(r"\1", _UNPRINTABLE.sub("\ufffd", _INVISIBLE.sub("", text)))


def reveal_invisible(text: str) -> str:
    """Write invisible and reordering characters as escapes, so that names stay distinct."""
    return text if text.isascii() else _INVISIBLE.sub(lambda sign: f"\\u{ord(sign[0]):04x}", text)


def one_line(text: str) -> str:
    """Return the text as a single printable line, with runs of whitespace collapsed."""
    return " ".join(clean_text(text).split())


class ForeignText(str):
    """Text from a file, service or person: printable, on a single line, of bounded length.

    Fields of the types `Passage` and `Name` (`sage.core.models`) clean their input, so that
    no uncleaned text enters SAGE. When formatted into a sentence, the text is enclosed in
    quotation marks unless it is a short name without punctuation, which can neither end the
    sentence nor begin another.
    """

    __slots__ = ()

    def __new__(cls, text: object = "", longest: int = LONGEST_PASSAGE) -> Self:
        """Clean the text, truncating text that is too long with an ellipsis."""
        line = text if isinstance(text, cls) else one_line(str(text))
        return super().__new__(cls, line if len(line) <= longest else f"{line[: longest - 1]}…")

    def __format__(self, form: str) -> str:
        """Format the text for a sentence."""
        return format(str(self) if is_name(self) else quote_text(self), form)


def is_name(text: str) -> bool:
    """Check whether a text is a short name without punctuation, which needs no quotation marks."""
    return _NAME.fullmatch(text) is not None


_NAME = re.compile(r"[^\W_][\w +/%&-]{0,59}|")


def within_sentence(label: str) -> ForeignText:
    """Format a label for use within a sentence: lowercase an ordinary first word, keep symbols."""
    first = label.split(" ", 1)[0].split("-", 1)[0]  # "B-cell transcripts" keeps its B
    return ForeignText(label[0].lower() + label[1:] if first[1:].islower() else label)


def join_names(names: Iterable[object]) -> str:
    """Join names as in a sentence: "a", "a and b", "a, b and c"; quote external texts."""
    *first, last = [f"{name}" for name in names] or [""]
    return f"{', '.join(first)} and {last}" if first else last


def count_noun(number: float, noun: str) -> str:
    """Format a number with its noun: "1 run", "2 runs", "1,000 runs"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


_FORMULA = re.compile(r"[=+@\t\r]|-(?![\d.])")


def as_cell(text: str) -> str:
    """Format text as a CSV cell, quoted if a spreadsheet would evaluate it as a formula."""
    return f"'{text}" if _FORMULA.match(text) else text


def quote_text(text: object) -> str:
    """Quote external text as data for a prompt: a single quoted line with no inner quotes.

    The text can neither start a new line in the prompt nor close its own quotation.
    """
    return f'"{one_line(str(text)).replace(chr(34), "”")}"'
