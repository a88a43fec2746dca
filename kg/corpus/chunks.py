"""Documents split into overlapping, sentence-aligned chunks that point back into their text."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass

from kg.corpus.textnorm import abbreviations, sentences, viral
from kg.types import Document, Section

CHUNK_TOKENS = 1500  # SAGE, A.2
OVERLAP_TOKENS = 150
_TOKEN = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class Chunk:
    """A sequence of whole sentences in a section; `start:end` are offsets in the document text."""

    id: str
    doc_id: str
    section: str
    start: int
    end: int
    text: str
    tokens: int
    abbreviations: tuple[tuple[str, str], ...] = ()
    weak: bool = False

    @property
    def hash(self) -> str:
        """Hash of everything in the chunk that an extractor may use."""
        parts = [self.text, self.section, str(self.weak)]
        parts += [f"{short}={long}" for short, long in self.abbreviations]
        return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()


def count_tokens(text: str) -> int:
    """Count words and punctuation marks, as a model-free approximation of a tokenizer's count."""
    return sum(1 for _ in _TOKEN.finditer(text))


def chunk(
    document: Document, tokens: int = CHUNK_TOKENS, overlap: int = OVERLAP_TOKENS
) -> Iterator[Chunk]:
    """Split `document` into chunks of about `tokens` tokens, repeating about `overlap` of them.

    A chunk never spans two sections and never splits a sentence; a sentence longer than
    `tokens` is a separate chunk. Abbreviations defined anywhere in the document are attached
    to the chunks that use them.
    """
    defined = viral(document.text) | abbreviations(document.text)
    whole = (Section(title="", start=0, end=len(document.text)),)
    for section in document.sections or whole:
        body = document.text[section.start : section.end]
        spans = [(s + section.start, e + section.start) for s, e in sentences(body)]
        counts = [count_tokens(document.text[s:e]) for s, e in spans]
        first = 0
        while first < len(spans):
            last, total = first, counts[first]
            while last + 1 < len(spans) and total + counts[last + 1] <= tokens:
                last += 1
                total += counts[last]
            start, end = spans[first][0], spans[last][1]
            text = document.text[start:end]
            used = tuple(
                (short, long)
                for short, long in sorted(defined.items())
                if re.search(rf"(?<!\w){re.escape(short)}(?!\w)", text)
            )
            yield Chunk(
                id=f"{document.id[:16]}:{start}-{end}",
                doc_id=document.id,
                section=section.title,
                start=start,
                end=end,
                text=text,
                tokens=total,
                abbreviations=used,
                weak=document.basis == "title_or_intro_only",
            )
            if last + 1 >= len(spans):
                break
            following, repeated = last + 1, 0
            while following - 1 > first and repeated + counts[following - 1] <= overlap:
                following -= 1
                repeated += counts[following]
            first = following
