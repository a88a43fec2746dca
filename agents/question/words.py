"""The words of a question: tokens with their place, keys for comparison, languages and tables."""

from __future__ import annotations

import csv
import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

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
WORD = re.compile(r"[^\W_]+(?:[-'’./+&][^\W_]+)*\+*|[<>≥≤]")


@dataclass(frozen=True)
class Token:
    """A word as it is read, and where its words stand in the prompt (two may share a place)."""

    text: str
    start: int
    end: int
    breaks: bool = False
    """True where punctuation ends a phrase before this word."""
    corrected_from: str = ""


def tokenize(prompt: str) -> list[Token]:
    """The words of a prompt; hyphens stay within a word, punctuation ends a phrase."""
    tokens = []
    last = 0
    for match in WORD.finditer(prompt):
        breaks = bool(re.search(r"[,;:?!()¿¡.]", prompt[last : match.start()]))
        tokens.append(Token(match[0], match.start(), match.end(), breaks))
        last = match.end()
    return tokens


@lru_cache(maxsize=20_000)
def key_of(phrase: str) -> str:
    """What two spellings of one name share: case, hyphens, plurals and British spelling undone."""
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


def fold(text: str) -> str:
    """Lower case without accents."""
    plain = unicodedata.normalize("NFKD", text.casefold().replace("ß", "ss"))
    return "".join(char for char in plain if not unicodedata.combining(char))


@lru_cache(maxsize=8)
def table(name: str) -> tuple[tuple[str, ...], ...]:
    """The rows of a shipped table, without its header."""
    with (TABLES / name).open(encoding="utf-8", newline="") as handle:
        rows = list(csv.reader(handle, delimiter="\t", quoting=csv.QUOTE_NONE))
    return tuple(tuple(row) for row in rows[1:])


# Languages.


@lru_cache(maxsize=32)
def word_list(name: str) -> frozenset[str]:
    """A shipped list of words: of a language by its two letters, or of a purpose."""
    return frozenset(
        word for row in table("word_lists.tsv") if row[0] == name for word in row[1].split()
    )


READ = ("en", "de", "fr", "es")
NAMES = {
    "en": "English", "de": "German", "fr": "French", "es": "Spanish", "it": "Italian",
    "pt": "Portuguese", "nl": "Dutch", "pl": "Polish", "sv": "Swedish",
}  # fmt: skip


def language_of(prompt: str) -> str:
    """The prompt's language by its function words; "" where its letters or words are of none."""
    letters = [char for char in prompt if char.isalpha()]
    foreign = [
        char for char in letters if not unicodedata.name(char, "").startswith(("LATIN", "GREEK"))
    ]
    if letters and len(foreign) > len(letters) / 5:
        return ""
    words = [fold(token) for token in re.findall(r"[^\W\d_]+(?:-[^\W\d_]+)*", prompt)]
    scores = {name: sum(word in word_list(name) for word in words) for name in NAMES}
    for language, phrase, _ in table("terms.tsv"):
        if fold(phrase) in {word for word in words if word not in ("stroma", "marker", "gene")}:
            scores[language] += 1
    best = max(scores, key=lambda language: (scores[language], language == "en"))
    if scores[best] == 0:
        marked = sum(not char.isascii() for char in letters)
        return "" if marked >= 3 else "en"
    return best if scores[best] > scores["en"] else "en"


ENDINGS = {"de": r"(?:es|en|er|em|e|s|n)$", "fr": r"(?:es|s|e)$", "es": r"(?:es|s)$"}


def stem(word: str, language: str) -> str:
    """A word of another language without its inflection."""
    plain = fold(word)
    return re.sub(ENDINGS[language], "", plain) if len(plain) > 4 else plain


def translate(tokens: list[Token], language: str) -> tuple[list[Token], list[str]]:
    """Tokens with the language's known terms in English, and which those were."""
    phrases: dict[tuple[str, ...], str] = {}
    for entry, words, english in table("terms.tsv"):
        if entry == language:
            phrases[tuple(stem(token.text, language) for token in tokenize(words))] = english
    longest = max((len(phrase) for phrase in phrases), default=0)
    out: list[Token] = []
    said = []
    at = 0
    while at < len(tokens):
        for size in range(min(longest, len(tokens) - at), 0, -1):
            run = tokens[at : at + size]
            english = phrases.get(tuple(stem(bare(token.text), language) for token in run), "")
            if english and not any(token.breaks for token in run[1:]):
                start, end = run[0].start, run[-1].end
                start += len(run[0].text) - len(bare(run[0].text))
                parts = tokenize(english)
                out += [
                    Token(part.text, start, end, run[0].breaks and not index)
                    for index, part in enumerate(parts)
                ]
                said.append((start, end, english))
                at += size
                break
        else:
            out.append(tokens[at])
            at += 1
    return out, [english for _, _, english in said]


def bare(word: str) -> str:
    """A word without its elided article (l'expression)."""
    return re.sub(r"^[ldsn]['’]", "", word, flags=re.IGNORECASE)
