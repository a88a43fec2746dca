"""Keys that compare spellings of a name, and the shipped tables of names."""

from __future__ import annotations

import csv
import re
import unicodedata
from functools import lru_cache
from pathlib import Path

from kg.lexicon.phrases import STOP_WORDS

TABLES = Path(__file__).parent / "tables"
GREEK = {"α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "κ": "kappa"}
SPELLINGS = (
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
    """Normalize a name by undoing case, hyphens, plurals and British spelling."""
    text = unicodedata.normalize("NFKC", phrase).casefold()
    for letter, name in GREEK.items():
        text = text.replace(letter, name)
    for british, american in SPELLINGS:
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
    """Read the rows of a shipped table without its header."""
    with (TABLES / name).open(encoding="utf-8", newline="") as handle:
        rows = list(csv.reader(handle, delimiter="\t", quoting=csv.QUOTE_NONE))
    return tuple(tuple(row) for row in rows[1:])


@lru_cache(maxsize=4)
def word_list(name: str) -> frozenset[str]:
    """Load a shipped list of words: `function` words without content, or `foreign` words."""
    return frozenset(
        word for row in read_table("word_lists.tsv") if row[0] == name for word in row[1].split()
    )


def is_english(prompt: str) -> bool:
    """Check that neither the letters nor the function words of a prompt are of another language."""
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
