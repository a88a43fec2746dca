"""Quality of a page's text, to detect bad extraction that does not raise an exception.

There are four signs: too few common words (wrong encoding or order of letters), words run
together, words broken by a hyphen in the middle of a line (two columns read across), and
placeholder characters.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kg.lexicon.wordlist import words

GOOD = 0.75  # below this, the next tier is tried
BAD = 0.5  # below this, even the slow tier is tried

_UNREAD = re.compile("[\ufffd\ue000-\uf8ff\U000f0000-\U0010fffd]")
_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_CUT = re.compile(r"[a-z]{2,}- (?!and\b|or\b|to\b|und\b)[a-z]{2,}")
_GLUED = re.compile(r"[a-z]{3,}[.,;][A-Za-z]{3,}|[a-z]{3,}[A-Z][a-z]{3,}")
_COMMON = words(
    """
    the of and to in a is that for it was as with on by be are this from at or were which an not
    have has had their we these between been than our also more can no may all but other after
    using used its into both two however most when who such one there during each patients study
    cells cell cancer expression results data analysis levels higher significantly associated
    compared group showed tumor gene genes model models method figure table total shown based
    different only time high low de la le les des et en un une est pour dans que der die und das
    von mit den ist zu
    """
)


@dataclass(frozen=True, slots=True)
class Quality:
    """Number of words on a page, and a score in [0, 1]; a page without words scores 0.

    `unread` counts placeholders and private-use characters, which no reader can map to a
    letter.
    """

    words: int
    score: float
    unread: int = 0


def measure(text: str) -> Quality:
    """Measure the quality of a page's raw text."""
    found = _WORD.findall(text)
    count = len(found)
    unread = len(_UNREAD.findall(text))
    if count < 3:
        return Quality(count, 0.0, unread)
    characters = sum(map(len, found)) or 1
    latin = sum(1 for word in found if word.isascii())
    common = sum(1 for word in found if word.lower() in _COMMON) / count
    long_words = sum(1 for word in found if len(word) > 24 and "-" not in word)
    glued = (long_words + len(_GLUED.findall(text))) / count
    cut = len(_CUT.findall(text)) / count
    # Prose has 30-45% everyday words, tables and lists of names far fewer: they are not penalized
    # below a fifth of that, and scripts other than Latin not at all.
    expected = min(1.0, common / 0.12) if latin > count * 0.6 and count > 60 else 1.0
    score = max(0.0, 0.4 + 0.6 * expected)
    score *= max(0.0, 1.0 - 5.0 * glued)
    score *= max(0.0, 1.0 - 12.0 * cut)
    score *= max(0.0, 1.0 - 4.0 * unread / characters)
    return Quality(count, round(score, 4), unread)
