"""Cuts text into sentences, clauses and words, after taking off every disguise of letters."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

KEY = re.compile(r"\[\[([a-z0-9_.\-]+)\]\]", re.IGNORECASE)
SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
CLAUSE = re.compile(
    r"[,;:()–—]|\b(?:and|but|while|whereas|although|though|because|since|as|so|which|who|yet|"
    r"however|therefore|thus|hence|except)\b|\b(?=(?:until|unless|if)\b)"
)
WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*", re.UNICODE)
MARKUP = re.compile(r"[*_~`#<>|\\{}=^@$\"]|&\w+;")
GREEK_NAME = re.compile(r"^(?:[A-Z0-9]+[α-ω]|[α-ω][A-Z0-9]+)s?$")
"""A molecule with a Greek letter (TGFβ, γH2AX): the rest is in capitals, and spells no claim."""
LETTERS_ALONE = re.compile(r"(?:\b\w[ .\-·]){3,}\w\b")
PHRASES = (
    # Phrases that would read as a negation.
    (re.compile(r"\b(includes?|spans?|contains?|covers?|excludes?|"
                r"excluded) no effect\b"), r"\1 null"),
    (re.compile(r"\bneither shown nor excluded\b"), "left undecided"),
    (re.compile(r"\bno (?:sign|evidence|departure|deviation|violation)s? (?:against|from|of) "
                r"(?:the )?proportional(?:ity| hazards)\b"), "hazards were proportional"),
    (re.compile(r"\bq number after error control over the ledger\b"), "q number"),
    (re.compile(r"\b(?:expected sign|sign) (?:was )?(?:seen |as expected )?in number\b"),
     "sign in number"),
    (re.compile(r"\bnon-proportional|\bnonproportional"), "not proportional"),
    (re.compile(r"\bn['’]t\b"), " not"),
    (re.compile(r"\bcannot\b"), "can not"),
    (re.compile(r"\bneither (?:confirms?|proves?|supports?) nor (?:refutes?|rejects?|contradicts?)"
                r" the \w+"), "leaves it undecided"),
    (re.compile(r"\bneither be (?:confirmed|proved|supported) nor (?:refuted|rejected)"),
     "be left undecided"),
    (re.compile(r"\btoo few\b"), "toofew"),
    (re.compile(r"\b(?:casts?|casting|raises?|throws?) (?:\w+ )?doubts? (?:on|about|over)\b"),
     "weakens"),
    (re.compile(r"\b(is|are|was|were) no longer\b"), r"\1 not"),
    (re.compile(r"\b(?:did|does|do) as well(?: as)?\b"), "did equally"),
)  # fmt: skip


def word_set(text: str) -> frozenset[str]:
    """The words of a text, each once."""
    return frozenset(text.split())


NEGATORS = word_set(
    "not no never without neither nor none nothing nobody nowhere hardly barely scarcely fail "
    "fails failed failing lack lacks lacked lacking absence absent deny denied denies doubt "
    "anything far rather instead little few"
)
NEGATED_WORD = re.compile(
    r"^(?:un|non|in|ir|dis)-?(?=support|confirm|verif|prov|replicat|reproduc|validat|significan|"
    r"establish|substantiat|refut|reject|contradict|associat|relat|disput|"
    r"question|deni|doubt|falsif|relevan)"
)


@dataclass(frozen=True)
class Clause:
    """A clause in lower case, its words, and the keys of the numbers in its sentence."""

    text: str
    words: tuple[str, ...]
    keys: tuple[str, ...]

    @property
    def negators(self) -> list[int]:
        """Indices of denying words; a denying prefix counts as a word."""
        return [
            at
            for at, word in enumerate(self.words)
            if word in NEGATORS or NEGATED_WORD.match(word) is not None
        ]


def disguise(text: str, names: frozenset[str]) -> str:
    """Describe disguised letters in `text`; empty if there are none.

    `names` are words of the given data (lower case) that may hold letters of other scripts.
    """
    for char in text:
        if unicodedata.category(char) in ("Cf", "Cc", "Co", "Cs", "Cn") and char != "\n":
            return "hidden characters"
    if unicodedata.normalize("NFKC", text) != text:
        return "characters that imitate others"
    if LETTERS_ALONE.search(text):
        return "words in single letters"
    for word in WORD.findall(text):
        scripts = {unicodedata.name(char, "?").split()[0] for char in word if char.isalpha()}
        if len(scripts) > 1 and word.lower() not in names and not GREEK_NAME.match(word):
            return "letters of several scripts in one word"
    return ""


def sentences(text: str) -> list[str]:
    """The sentences of a text."""
    return [part.strip() for part in SENTENCE.split(text) if part.strip()]


def clauses(sentence: str) -> list[Clause]:
    """The clauses of a sentence, numbers by key taken out and phrases put plainly."""
    keys = tuple(KEY.findall(sentence))
    bare = KEY.sub(" number ", unicodedata.normalize("NFKC", sentence)).lower()
    bare = " ".join(bare.split())
    for pattern, plain in PHRASES:
        bare = pattern.sub(plain, bare)
    found = []
    for part in CLAUSE.split(bare):
        words = tuple(WORD.findall(part.replace("-", " ")))
        if words:
            found.append(Clause(" ".join(words), words, keys))
    return found
