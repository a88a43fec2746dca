"""Normalization of words and phrases, shared by every index and matcher in this package."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import lru_cache

_WORD = re.compile(r"[a-z0-9]+")
_STOP_WORDS = """
a an and are as at be by for from has have in is it its of on or than that the their these this to
was we were which with within between among into not no can may also both our using use used study
results show shows
"""
_STOP = frozenset(_STOP_WORDS.split())
_DASHES = str.maketrans({"‐": "-", "‑": "-", "–": "-", "—": "-", "\u2212": "-"})


def normalize(text: str) -> str:
    """Convert text to lower case, remove accents, and unify dashes."""
    if text.isascii():
        return text.lower()
    plain = unicodedata.normalize("NFKD", text.translate(_DASHES))
    return "".join(char for char in plain if not unicodedata.combining(char)).lower()


@lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """Strip plural and inflection endings (S-stemmer of Harman, 1991, plus -ed and -ing).

    Words with digits are names (PD-L1, CXCL13) and are left unchanged.
    """
    if len(word) <= 3 or any(char.isdigit() for char in word):
        return word
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith("sses"):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in ("ing", "ed"):
        if word.endswith(ending) and len(word) - len(ending) >= 4:
            return word[: -len(ending)]
    return word


def words(text: str, *, keep_stop: bool = False) -> list[str]:
    """Return the stemmed words of `text` in order; stop words are dropped unless `keep_stop`."""
    found = _WORD.findall(normalize(text))
    return [stem(word) for word in found if keep_stop or word not in _STOP]


@lru_cache(maxsize=8192)
def phrase_key(phrase: str) -> str:
    """Convert a phrase to stemmed words with a space on each side, for matching with `in`."""
    return f" {' '.join(words(phrase, keep_stop=True))} "


_NEGATION = "non"
_OF_ANOTHER_KIND = {
    "survival": frozenset({"free", "specific", "related"}),
    "response": frozenset({"immune", "inflammatory", "antibody", "stress"}),
}
"""Words that change the meaning of a following name, as in recurrence-free survival."""

_JOINING = frozenset({"and", "or"})
_SHARED_WORD = "survival"
_COORDINATED = re.compile(
    r"(?:(?:free|specific|relat|overall|progression|recurrence|relapse|diseas\w?|cancer|metastasis|"
    r"event|and|or|p|n|hr|ci|[a-z]?fs|[cd]ss|os|\d\S*) )*survival "
)
"""Text allowed after "overall" in phrases like "overall (p=0.01) and disease-free survival"."""


def mentions(text_key: str, phrases: Iterable[str]) -> bool:
    """Check whether any of `phrases` occurs as whole words in a text prepared by `phrase_key`.

    A phrase inside its own negation does not count: "non-muscle-invasive bladder cancer" is
    not muscle-invasive bladder cancer, and "recurrence-free survival" is not survival. A
    phrase that shares its last word with another does count: "mutation or neoantigen burden".
    """
    return any((key := phrase_key(phrase)) != "  " and _occurs(text_key, key) for phrase in phrases)


def _occurs(text_key: str, key: str) -> bool:
    others = _OF_ANOTHER_KIND.get(key.split()[0], frozenset())
    for at in _places(text_key, key):
        before = text_key[text_key.rfind(" ", 0, at) + 1 : at]
        if before != _NEGATION and before not in others:
            return True
    return False


def _places(text_key: str, key: str) -> Iterator[int]:
    """Yield the positions of a phrase, either in full or sharing its last word with another."""
    first, _, last = key.strip().rpartition(" ")
    at = text_key.find(key)
    while at >= 0:
        yield at
        at = text_key.find(key, at + 1)
    at = text_key.find(f" {first} ") if first else -1
    while at >= 0:
        rest = at + len(first) + 2
        if last == _SHARED_WORD:
            shares = _COORDINATED.match(text_key, rest) is not None
        else:
            joined, *following = text_key[rest:].split(" ", 4)[:4]
            shares = joined in _JOINING and last in following[1:]
        if shares:
            yield at
        at = text_key.find(f" {first} ", at + 1)
