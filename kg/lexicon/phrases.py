"""Words and phrases in a prompt, as used by all name matchers."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

_STOP_WORDS = """
a an the and or of in on for to by with without from into between among across via through is
are was were be been being do does did how what which who whom whose when where why can could
may might should would will shall must that this these those it its their there than as at if
not no nor but so such any all both each other some more most very also about role roles effect
effects impact influence influences relates regulate regulates drive drives modulate modulates
determine determines shape shapes underlie underlies behind toward towards link links linked
relate related relation relationship relationships association associations associated associate
associates connection connections connect connected affect affects involved involving
interaction interactions contribute contributes predict predicts predicting predictive explain
explains find identify study studies investigate explore hypothesis hypotheses novel new
potential possible using use used based patient patients we i you me my our give show tell
propose generate suggest please expression level levels change changes
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
LONGEST = 8
_WORD = re.compile(r"[\w][\w'+/.-]*[\w+]|\w")
_BREAK = re.compile(r"[,;:?!()]")


@dataclass(frozen=True)
class Word:
    """A word with its position in the prompt."""

    text: str
    start: int
    end: int


def split_words(prompt: str) -> list[Word]:
    """Split a prompt into words; hyphens, slashes and signs stay inside a word."""
    return [Word(found[0], found.start(), found.end()) for found in _WORD.finditer(prompt)]


def is_code(text: str) -> bool:
    """Check whether the text looks like a symbol: FGFR3, HIV, CD8."""
    return any(char.isdigit() for char in text) or sum(char.isupper() for char in text) >= 2


def phrases_at(
    prompt: str, words: Sequence[Word], at: int, stop: Container[str] = STOP_WORDS
) -> Iterator[tuple[int, str]]:
    """Yield the phrases that start at a word, longest first, each with its number of words.

    A phrase neither starts nor ends with a stop word (unless that is a symbol) and does not
    extend across punctuation.
    """
    for size in range(min(LONGEST, len(words) - at), 0, -1):
        first, last = words[at], words[at + size - 1]
        phrase = prompt[first.start : last.end]
        edges = first.text.casefold() in stop or last.text.casefold() in stop
        if edges and not (size == 1 and is_code(phrase)):
            continue
        if not re.search(r"[,;:?!()]\s", phrase):
            yield size, phrase


def unmatched_runs(
    prompt: str,
    words: Sequence[Word],
    matched: Container[int],
    stop: Container[str] = STOP_WORDS,
) -> list[tuple[int, int]]:
    """Find runs of unmatched content words, as half-open ranges of word positions."""
    runs: list[tuple[int, int]] = []
    for at, word in enumerate(words):
        if at in matched or (word.text.casefold() in stop and not is_code(word.text)):
            continue
        before = prompt[words[at - 1].end : word.start] if at else ""
        if runs and runs[-1][1] == at and not _BREAK.search(before):
            runs[-1] = (runs[-1][0], at + 1)
        else:
            runs.append((at, at + 1))
    return runs
