"""Alignment of quoted evidence with its source text."""

from __future__ import annotations

import unicodedata

_SAME = str.maketrans(
    {"‘": "'", "’": "'", "“": '"', "”": '"', "–": "-", "—": "-", "‐": "-", "‑": "-", "−": "-"}
)


def align(evidence: str, text: str) -> tuple[int, int] | None:
    """Find the character span of `evidence` in `text`, or return None if it does not occur.

    An exact match is tried first, then a match that ignores white space, case, and variants
    of quotation marks, dashes and character width. Nothing fuzzier is accepted, because a
    paraphrase is not a quotation.
    """
    evidence = evidence.strip()
    if not evidence:
        return None
    at = text.find(evidence)
    if at >= 0:
        return at, at + len(evidence)
    needle, _ = _fold_text(evidence)
    haystack, positions = _fold_text(text)
    if len(needle) < 12:
        return None
    at = haystack.find(needle)
    if at < 0:
        return None
    return positions[at], positions[at + len(needle) - 1] + 1


def _fold_text(text: str) -> tuple[str, list[int]]:
    """Remove white space and case; also return the original position of each kept character."""
    letters: list[str] = []
    positions: list[int] = []
    for position, char in enumerate(text):
        for folded in unicodedata.normalize("NFKC", char.translate(_SAME)).casefold():
            if not folded.isspace():
                letters.append(folded)
                positions.append(position)
    return "".join(letters), positions
