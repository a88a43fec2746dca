"""Normalized keys for comparing spellings of a name, and the bundled name tables."""

from __future__ import annotations

import csv
import re
import unicodedata
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from kg.lexicon.phrases import STOP_WORDS
from validation.core.levels import SPELLINGS

TABLES = Path(__file__).parent / "tables"
GREEK = {"α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "κ": "kappa"}
BRITISH = (
    ("tumour", "tumor"),
    ("centre", "center"),
    ("leuco", "leuko"),
    ("haem", "hem"),
    ("oestr", "estr"),
    ("œstr", "estr"),
    ("grey", "gray"),
)


@lru_cache(maxsize=20_000)
def key_of(phrase: str) -> str:
    """Normalize a name by removing differences in case, hyphens, plurals and British spelling."""
    text = unicodedata.normalize("NFKC", phrase).casefold()
    for letter, name in GREEK.items():
        text = text.replace(letter, name)
    for british, american in BRITISH:
        text = text.replace(british, american)
    words = re.findall(r"[^\W_]+\+?", text.replace("_", " "))
    return " ".join(
        _singular(word if word in ("pn+", "n+") else word.rstrip("+")) for word in words
    )


def _singular(word: str) -> str:
    if len(word) > 4 and word.endswith("ies"):
        return f"{word[:-3]}y"
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


@lru_cache(maxsize=8)
def read_table(name: str) -> tuple[tuple[str, ...], ...]:
    """Read the rows of a bundled table without its header."""
    with (TABLES / name).open(encoding="utf-8", newline="") as handle:
        rows = list(csv.reader(handle, delimiter="\t", quoting=csv.QUOTE_NONE))
    return tuple(tuple(row) for row in rows[1:])


@lru_cache(maxsize=4)
def word_list(name: str) -> frozenset[str]:
    """Load a bundled word list: `function` words without content, or `foreign` words."""
    return frozenset(
        word for row in read_table("word_lists.tsv") if row[0] == name for word in row[1].split()
    )


def is_english(prompt: str) -> bool:
    """Check that a prompt's letters and function words are not from another language."""
    letters = [char for char in prompt if char.isalpha()]
    other = sum(not unicodedata.name(char, "").startswith(("LATIN", "GREEK")) for char in letters)
    if other > len(letters) / 5:
        return False
    found = [_without_accents(word) for word in re.findall(r"[^\W\d_]+", prompt.casefold())]
    foreign = sum(token in word_list("foreign") for token in found)
    english = sum(token in word_list("function") | STOP_WORDS for token in found)
    accents = sum(not char.isascii() for char in letters)
    return foreign <= english and not (english == 0 and accents >= 3)


def _without_accents(word: str) -> str:
    plain = unicodedata.normalize("NFKD", word.replace("ß", "ss"))
    return "".join(char for char in plain if not unicodedata.combining(char))


SIGNED = (
    (re.compile(r"(?<=[A-Za-z0-9])\+(?![\w+])"), " positive"),
    (re.compile(r"(?<=[A-Z0-9])-(?=\s|$)"), " negative"),
)
GLUED = re.compile(r"(?<=[a-z]{2})(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z]{2})|_+")
"""Boundaries between joined words in a header ("TCellsCD8", "fac_meno")."""
ENDINGS = (
    "ations", "ation", "ational", "ated", "ating", "ative", "asis", "ases", "atic", "ions",
    "ion", "ious", "ing", "ers", "er", "ed", "al", "ar", "ally", "ly", "ive", "ity", "ic",
    "ical", "us", "ei", "um", "ae", "ous", "ant", "ent", "es", "s", "a", "e", "i", "y",
)  # fmt: skip
"""Endings that do not change the subject of a word."""
OPTIONAL = frozenset(("tumor",))
"""Terms that may be present in or absent from a name: "tumor size", "size"."""


@lru_cache(maxsize=20_000)
def terms_of(phrase: str, *, label: bool = False) -> frozenset[str]:
    """Reduce a name to the stems of its words, without units and quantity words.

    Words with the same meaning share a stem: levels as spelled in `validation.core.levels`,
    others as in `tables/words.tsv`. The words in a `label` may be German or French, and
    compounds.
    """
    for sign, word in SIGNED:
        phrase = sign.sub(word, phrase)
    if label:
        phrase = GLUED.sub(" ", phrase)
    words = [_without_accents(word) for word in key_of(phrase).split()]
    known = list_known(label)
    out: list[str] = []
    at = 0
    while at < len(words):
        size = next((n for n in (4, 3, 2, 1) if " ".join(words[at : at + n]) in known), 0)
        if size:
            out += known[" ".join(words[at : at + size])]
        else:
            out += (_split_compound(words[at], known) if label else ()) or (words[at],)
        at += size or 1
    return frozenset(map(_stem, out))


@lru_cache(maxsize=2)
def list_known(label: bool) -> dict[str, tuple[str, ...]]:
    """List the words that have a common form, each with the words in that form."""
    found: dict[str, tuple[str, ...]] = {
        _without_accents(word): (level,)
        for word, level in SPELLINGS.items()
        if len(word) > 2 and word.isalpha()
    }
    for word, english, foreign in read_table("words.tsv"):
        for variant in (*english.split(), *(foreign.split() if label else ())):
            plain = _without_accents(key_of(variant)) if variant != "%" else variant
            found.setdefault(plain, tuple(word.split()))
    return found


def _split_compound(word: str, known: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Split a compound of two known words ("Resektionsrand", "Celltype")."""
    if len(word) > 4 and known.get(word[1:]):
        return (word[0], *known[word[1:]])  # "tsize"
    for at in range(3, len(word) - 2):
        for stem in (word[:at], *(word[:at].removesuffix(end) for end in ("s", "en", "n"))):
            if stem in known and word[at:] in known and (parts := known[stem] + known[word[at:]]):
                return parts
    return ()


def _stem(word: str) -> str:
    for ending in ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 4:
            return word.removesuffix(ending)
    return word
