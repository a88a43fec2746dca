"""Lines on a PDF page with their boxes, measured by character where a line may have a gap."""

from __future__ import annotations

import ctypes
import math
import re
from collections.abc import Iterator
from typing import Any

from kg.corpus.textnorm import clean
from kg.sources.pdf_blocks import GAP, Line

_BREAKS = frozenset((0x02, 0x09, 0x0A, 0x0D))
"""Control characters that pdfium itself inserts into text."""
_ODD = re.compile("[\x00\x01\x03-\x08\x0b\x0c\x0e-\x1f\ufffd]")
_SPACE = re.compile(r"\s+")
# pdfium marks a word broken at a line end by U+FFFE, and continues in the next line.
_LINE = re.compile("[^\r\n\ufffe]+")


def page_lines(textpage: Any, text: str) -> Iterator[Line]:
    """Yield the lines of a page's `page_text` in file order, divided at wide gaps."""
    at = _Characters(textpage)
    for match in _LINE.finditer(text):
        start, end = match.span()
        broken = "-" if text[end : end + 1] == "\ufffe" else ""
        yield from _divide_line(text, start, end, broken, at)


def page_text(textpage: Any) -> str:
    """Return every character on a page, with U+FFFD for those that the font does not map.

    If a font without a map yields control characters, its letters have other codes as well.
    Characters are read individually only on such pages, and where some are outside the basic
    plane.
    """
    import pypdfium2.raw as raw

    count = textpage.count_chars()
    text = str(textpage.get_text_range()) if count > 0 else ""
    if len(text) == count and not _ODD.search(text):
        # The mark of a broken word (code 2) also stands for a character without a map (code 0).
        marks = (match.start() for match in re.finditer("\ufffe", text))
        if all(raw.FPDFText_GetUnicode(textpage, at) == 0x02 for at in marks):
            return text
    whole = _read_characters(textpage)
    return whole.replace("\x02", "\ufffe") if len(text) != count or "\ufffd" in whole else text


def _read_characters(textpage: Any) -> str:
    import pypdfium2.raw as raw

    places = range(textpage.count_chars())
    codes = [min(raw.FPDFText_GetUnicode(textpage, n), 0x10FFFF) or 0xFFFD for n in places]
    if any(code < 0x20 and code not in _BREAKS for code in codes):
        unmapped = (raw.FPDFText_HasUnicodeMapError(textpage, n) == 1 for n in places)
        codes = [0xFFFD if lost else code for code, lost in zip(codes, unmapped, strict=True)]
    return "".join(map(chr, codes))


class _Characters:
    """Positions and sizes of characters, in points, and their angles, in whole degrees."""

    def __init__(self, textpage: Any) -> None:
        import pypdfium2.raw as raw

        self._raw, self._page = raw, textpage
        self._rect, self._matrix = raw.FS_RECTF(), raw.FS_MATRIX()
        self._x, self._y = ctypes.c_double(), ctypes.c_double()

    def edges(self, index: int) -> tuple[float, float]:
        """Return the left and right edge of a character."""
        self._raw.FPDFText_GetLooseCharBox(self._page, index, ctypes.byref(self._rect))
        return self._rect.left, self._rect.right

    def baseline(self, index: int) -> float:
        """Return the height of the baseline above the page's lower edge."""
        at = ctypes.byref(self._x), ctypes.byref(self._y)
        self._raw.FPDFText_GetCharOrigin(self._page, index, *at)
        return self._y.value

    def size(self, index: int) -> float:
        """Return the font size as drawn."""
        size: float = self._raw.FPDFText_GetFontSize(self._page, index)
        self._raw.FPDFText_GetMatrix(self._page, index, ctypes.byref(self._matrix))
        scale = math.hypot(self._matrix.b, self._matrix.d)
        return size * (scale if scale > 0 else 1.0)

    def angle(self, index: int) -> int:
        """Return the angle, from 0 to 359."""
        return round(math.degrees(self._raw.FPDFText_GetCharAngle(self._page, index))) % 360


def _divide_line(text: str, start: int, end: int, broken: str, at: _Characters) -> Iterator[Line]:
    """Divide the characters from `start` to `end` at wide gaps, and yield the pieces.

    Parameters
    ----------
    broken : text to append to the line: a hyphen if its last word is broken, else empty
    """
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    if start == end:
        return
    angle = at.angle(start)
    pieces = [start]
    if angle == 0:
        size = at.size((start + end - 1) // 2)
        for space in _SPACE.finditer(text, start, end):
            before, after = at.edges(space.start() - 1)[1], at.edges(space.end())[0]
            if after - before > GAP * size or after < before - size:
                pieces.append(space.end())
    for low, high in zip(pieces, [*pieces[1:], end], strict=True):
        last = high - 1
        while last > low and text[last].isspace():
            last -= 1
        words = " ".join(clean(text[low : last + 1]).split())
        if not words:
            continue
        first, final = at.edges(low), at.edges(last)
        middle = (low + last) // 2
        while middle < last and text[middle].isspace():
            middle += 1
        yield Line(
            words + (broken if high == end else ""),
            left=min(first[0], final[0]),
            right=max(first[1], final[1]),
            baseline=at.baseline(middle),
            size=at.size(middle),
            angle=angle,
        )
