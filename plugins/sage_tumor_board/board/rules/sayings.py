"""Facts that a file states in a sentence, such as a guideline's, held against options' words."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sage_tumor_board.board.rules.weigh import Weighed
from sage_tumor_board.board.types import Cited

FEWEST = 0.6
"""Share of an option's own words that one sentence has to hold; below it no file says it."""
LONGEST = 600
SAYS = "A file says so."
_WORD = re.compile(r"[a-z0-9][a-z0-9-]*[a-z0-9]")
_SENTENCE = re.compile(r"[^\n]+?(?:(?<!\d)[.!?](?=\s|$)|$)", re.MULTILINE)
_NOT = re.compile(r"\b(?:not?|none|without|never|neither|absent|lacks?)\b")
_COMMON = frozenset(_WORD.findall(
    "the and for with that this which from are was were has have had been than into its their yes"
    " patient patients can could may might will would"
))  # fmt: skip


def _words(text: str) -> set[str]:
    return {word for word in _WORD.findall(text.casefold()) if len(word) > 2} - _COMMON


def weigh(
    question: str, options: Mapping[str, str], texts: Mapping[str, str]
) -> dict[str, Weighed] | None:
    """Options by the sentence that says most of what sets each apart; None where none says enough.

    A sentence that denies where an option affirms, or the other way about, does not say it.
    """
    own = {letter: _words(words) for letter, words in options.items()}
    shared = set.intersection(*own.values()) if len(own) > 1 else set()
    asked = _words(question.split("\n", 1)[0])
    sentences = [
        (file, said, _words(said), bool(_NOT.search(said.casefold())))
        for file, text in texts.items()
        for match in _SENTENCE.finditer(text)
        if 10 < len(said := match[0].strip()) <= LONGEST
    ]
    found: dict[str, Weighed] = {}
    for letter, words in own.items():
        distinct = words - shared
        denies = bool(_NOT.search(options[letter].casefold()))
        best = Weighed(0.0)
        for file, said, held, negated in sentences if distinct else ():
            share = len(distinct & held) / len(distinct)
            if share < FEWEST or denies != negated:
                continue
            near = len(asked & held) / max(1, len(asked))
            chance = share * (0.5 + 0.5 * near)
            if chance > best.chance:
                cited = Cited(sentence=SAYS, file=file, quote=said)
                best = Weighed(chance, (cited,))
        found[letter] = best
    return found if any(item.chance for item in found.values()) else None
