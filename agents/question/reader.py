"""The words of a question, and the names and conditions found among them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from agents.prose.check import plain_words
from agents.question.subgroups import Condition, conditions
from agents.question.vocabulary import Concept, Vocabulary
from agents.question.words import (
    NAMES,
    READ,
    Token,
    bare,
    fold,
    language_of,
    tokenize,
    translate,
    word_list,
)

LONGEST = 7
STOP, MEASURING, ENGLISH = (word_list(name) for name in ("stop", "measuring", "english"))
VERBS = ("cause", "causes")
"""Words of questions that a cohort may have as the key of an endpoint."""
COUNTED = frozenset(
    ("lots", "plenty", "many", "few", "fewer", "numerous", "versus", "protective", "harmful",
     "live", "lives", "lived", "living", "survive", "survives", "survived", "surviving", "outlive",
     "excluding", "die", "dies", "died", "dying", "earlier", "sooner", "recur", "recurs",
     "recurred")
)  # fmt: skip
"""Words that are read by patterns, not by names."""
POSSESSIVE = re.compile(r"['’]s$")
QUALIFIERS = re.compile(
    r"\b(?:ratio of|changes? in|protein|signature|\d+[- ]years?|"
    r"(?:spatial |mean |median )*distances? (?:between|to|from)|near|close to|proximity|next to|"
    r"(?:on|in|by) (?:the )?(?:tumou?r|cancer|malignant|immune|stromal|epithelial) cells|"
    r"(?:above|below|over|under|within|at least|at most) \d[\d.]*(?: \w+)?)\b",
    re.IGNORECASE,
)
"""What makes another quantity of a measured one, or another outcome, which no claim carries."""
SIDED = re.compile(r"^(?:high|low)[- ]", re.IGNORECASE)


@dataclass(frozen=True)
class Hit:
    """A concept in the text: from token `first` up to `last`, excluded."""

    first: int
    last: int
    phrase: str
    concept: Concept | None
    condition: Condition | None = None


class Reader:
    """One prompt under reading."""

    def __init__(self, prompt: str, vocabulary: Vocabulary) -> None:
        self.prompt = prompt
        self.vocabulary = vocabulary
        self.notes: list[str] = []
        self.language = language_of(prompt)
        self.tokens = tokenize(prompt)
        if self.language not in ("en", "") and self.language in READ:
            self.tokens, terms = translate(self.tokens, self.language)
            if terms:
                self.notes.append(
                    f"Read in {NAMES[self.language]}: {', '.join(dict.fromkeys(terms))}."
                )
        self.free = plain_words() | word_list("en") | word_list("asking") | COUNTED
        self._correct()
        self._split()
        self._index()

    def _index(self) -> None:
        starts = []
        at = 0
        for token in self.tokens:
            starts.append(at)
            at += len(token.text) + 1
        self.starts = starts
        self.text = " ".join(token.text for token in self.tokens).casefold()

    def words_of(self, first: int, last: int) -> str:
        """The asker's own words of a run of tokens."""
        run = self.tokens[first:last]
        return self.prompt[min(token.start for token in run) : max(token.end for token in run)]

    def words_at(self, start: int, end: int) -> str:
        """The asker's own words of a stretch of the text as it is read."""
        run = [index for index, at in enumerate(self.starts) if start <= at < end]
        return self.words_of(run[0], run[-1] + 1)

    def before(self, first: int) -> str:
        """The text before a token."""
        return self.text[: self.starts[first]]

    # -- spelling -----------------------------------------------------------------------------

    def _correct(self) -> None:
        from rapidfuzz import fuzz, process

        if self.language not in ("en", *READ):
            return
        words = self.vocabulary.words
        tokens = list(self.tokens)
        for index, token in enumerate(tokens):
            pieces = token.text.split("-")
            mended = []
            for piece in pieces:
                plain = piece.casefold()
                odd = (
                    self.language == "en"
                    and piece.isalpha()
                    and piece.isascii()
                    and not (piece.isupper() and len(piece) > 1)
                    and not self._known_word(plain)
                )
                better = ""
                if odd and len(plain) >= 5:
                    found = process.extractOne(plain, words, scorer=fuzz.ratio, score_cutoff=82)
                    if found is not None and found[0][0] == plain[0]:
                        better = found[0]
                elif len(plain) in (3, 4) and plain not in STOP:
                    better = self._short(tokens, index, plain)
                mended.append(better or piece)
            text = "-".join(mended)
            if text != token.text:
                tokens[index] = Token(text, token.start, token.end, token.breaks, token.text)
                self.notes.append(f'"{token.text}" is read as "{text}".')
        self.tokens = tokens

    def _split(self) -> None:
        """Two genes written as one word ("FABP5/CXCL13")."""
        tokens = []
        for token in self.tokens:
            pieces = token.text.split("/")
            find = self.vocabulary.find
            if len(pieces) == 1 or find(token.text) or not all(find(piece) for piece in pieces):
                tokens.append(token)
                continue
            at = token.start
            for piece in pieces:
                tokens.append(Token(piece, at, at + len(piece), token.breaks and at == token.start))
                at += len(piece) + 1
        self.tokens = tokens

    def _known_word(self, plain: str) -> bool:
        bare = [plain.removesuffix(ending) for ending in ("", "s", "es", "d", "ed", "ing")]
        forms = {*bare, plain.removesuffix("ies") + "y"}
        return bool(forms & (self.vocabulary.words | self.free | ENGLISH))

    def _short(self, tokens: list[Token], index: int, plain: str) -> str:
        """A short word's correction, where the word beside it makes it part of a name."""
        before = tokens[index - 1].text.casefold() if index else ""
        after = tokens[index + 1].text.casefold() if index + 1 < len(tokens) else ""
        if (before, plain) in self.vocabulary.pairs or (plain, after) in self.vocabulary.pairs:
            return ""
        near = [
            word
            for pair in self.vocabulary.pairs
            for word, other, neighbor in ((pair[1], pair[0], before), (pair[0], pair[1], after))
            if other == neighbor and word[:2] == plain[:2] and 0 < len(word) - len(plain) <= 1
        ]
        return sorted(near)[0] if near else ""

    # -- matching -----------------------------------------------------------------------------

    def hits(self) -> list[Hit]:
        """Subgroups first, then the longest names from the left."""
        taken: dict[int, Hit] = {}
        for condition in conditions(self.text, self.vocabulary.cohort.variables):
            inside = [
                index
                for index, start in enumerate(self.starts)
                if condition.start <= start < condition.end
            ]
            if inside:
                hit = Hit(inside[0], inside[-1] + 1, condition.words, None, condition)
                taken[inside[0]] = hit
        blocked = {index for hit in taken.values() for index in range(hit.first, hit.last)}
        out: list[Hit] = list(taken.values())
        at = 0
        while at < len(self.tokens):
            size = 0
            for size in range(min(LONGEST, len(self.tokens) - at), 0, -1):
                run = range(at, at + size)
                if blocked & set(run) or any(self.tokens[index].breaks for index in run[1:]):
                    continue
                if self._stop(at) or self._stop(at + size - 1):
                    continue
                phrase = " ".join(token.text for token in self.tokens[at : at + size])
                if phrase.casefold() in VERBS:
                    continue
                concept = self.vocabulary.find(phrase)
                if concept is None and POSSESSIVE.search(phrase):
                    phrase = POSSESSIVE.sub("", phrase)
                    concept = self.vocabulary.find(phrase)
                if concept is None and size == 1:
                    concept = self._symbol(at)
                if concept is not None and not self._only_sided(phrase, concept):
                    out.append(Hit(at, at + size, phrase, concept))
                    break
            else:
                size = 1
            at += max(1, size)
        return _named(sorted(out, key=lambda hit: hit.first))

    def _only_sided(self, phrase: str, concept: Concept) -> bool:
        """Whether a name ("high tumor mutational burden") is one side of what is measured."""
        rest, sided = SIDED.subn("", phrase, count=1)
        measured = self.vocabulary.find(rest) if sided else None
        return measured is not None and bool(measured.variables) and not concept.variables

    def _stop(self, index: int) -> bool:
        token = self.tokens[index].text
        return token.casefold() in STOP and not (token.isupper() and len(token) > 2)

    def _symbol(self, index: int) -> Concept | None:
        """A gene by a symbol in small letters ("fabp5"), which only a digit tells from a word."""
        token = self.tokens[index].text
        if not re.search(r"\d", token) or not re.search(r"[a-z]", token, re.IGNORECASE):
            return None
        return self.vocabulary.find_gene(token)

    def leftover(self, hits: list[Hit]) -> list[tuple[int, int]]:
        """Runs of content words that nothing matched."""
        used = {index for hit in hits for index in range(hit.first, hit.last)}
        runs: list[list[int]] = []
        for index, token in enumerate(self.tokens):
            if index in used or not self._content(token):
                continue
            if runs and runs[-1][-1] == index - 1 and not token.breaks:
                runs[-1].append(index)
            else:
                runs.append([index])
        return [(run[0], run[-1] + 1) for run in runs]

    def qualifiers(self, hits: list[Hit]) -> list[str]:
        """The asker's words for a quantity that the matched names alone do not say."""
        if self.language != "en":
            return []
        used = [(self.tokens[hit.first].start, self.tokens[hit.last - 1].end) for hit in hits]
        return [
            found[0]
            for found in QUALIFIERS.finditer(self.prompt)
            if not any(start < found.end() and found.start() < end for start, end in used)
        ]

    def _content(self, token: Token) -> bool:
        text = token.text
        if text.casefold() == self.vocabulary.cohort.cohort.casefold():
            return False
        if code(text) and text.casefold() not in STOP:
            return True
        if not text[0].isalpha() or len(text) < (3 if self.language == "en" else 4):
            return False
        if self.language != "en" and fold(bare(text)) in word_list(self.language):
            return False
        plain = text.casefold()
        return plain not in STOP and plain not in self.free and plain not in MEASURING


def _named(hits: list[Hit]) -> list[Hit]:
    """Without a class word that only says what the name beside it is ("the gene HPRT1")."""
    ends = {hit.last: hit for hit in hits}
    starts = {hit.first: hit for hit in hits}

    def of_name(hit: Hit) -> bool:
        beside = (starts.get(hit.last), ends.get(hit.first))
        return not hit.phrase.endswith("s") and any(
            other is not None and other.concept is not None and other.concept.variables
            for other in beside
        )

    return [hit for hit in hits if not (hit.concept and hit.concept.open_to and of_name(hit))]


def code(text: str) -> bool:
    """True for what looks like a symbol: FGFR33, HIV, CD8."""
    return len(text) >= 3 and (
        sum(char.isupper() for char in text) >= 2
        or (any(char.isdigit() for char in text) and text[0].isalpha())
    )
