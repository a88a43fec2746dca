"""Functions that make external text, such as records or model output, safe to show and quote."""

from __future__ import annotations

import re

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


def one_line(text: str) -> str:
    """Return the printable text on a single line, with runs of whitespace collapsed."""
    return " ".join(clean_text(text).split())


def within_sentence(label: str) -> str:
    """Format a label for a sentence: an ordinary first word in lower case, a symbol unchanged."""
    first = label.split(" ", 1)[0].split("-", 1)[0]  # "B-cell transcripts" keeps its B
    return label[0].lower() + label[1:] if first[1:].islower() else label


def count_noun(number: float, noun: str) -> str:
    """Format a number with its noun: "1 run", "2 runs", "1,000 runs"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


_FORMULA = re.compile(r"[=+@\t\r]|-(?![\d.])")


def as_cell(text: str) -> str:
    """Format text as a CSV cell, quoted if a spreadsheet would evaluate it as a formula."""
    return f"'{text}" if _FORMULA.match(text) else text


def quote_text(text: object) -> str:
    """Quote external text as data for a prompt: one line in quotation marks, with none inside.

    The text can neither start a new line of the prompt nor close its own quotation.
    """
    return f'"{one_line(str(text)).replace(chr(34), "”")}"'
