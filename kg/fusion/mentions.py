"""Names in triples, with their types and numbers of occurrences."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from kg.corpus.textnorm import long_form
from kg.fusion.names import clean_name, lexical_key
from kg.types import EntityType, Triple

Mention = tuple[str, EntityType]

_ORDER = {type_: n for n, type_ in enumerate(EntityType)}


class Mentions:
    """Collection of typed names from heads and tails, with the documents in which they occur."""

    def __init__(self) -> None:
        self._read: defaultdict[Mention, list[str]] = defaultdict(list)
        self._cleaned: dict[Mention, Mention | None] = {}

    def clean(self, name: str, type_: EntityType) -> Mention | None:
        """Return the mention for a raw name, or None if the cleaned name is empty."""
        read = name, type_
        if read not in self._cleaned:
            mention = clean_name(name), type_
            self._cleaned[read] = mention if lexical_key(*mention) else None
        return self._cleaned[read]

    def add(self, triple: Triple) -> tuple[Mention, Mention] | None:
        """Count both ends and return them, or return None if a cleaned name is empty."""
        head = self.clean(triple.head, triple.head_type)
        tail = self.clean(triple.tail, triple.tail_type)
        if head is None or tail is None:
            return None
        document = triple.evidence.doc_id
        self._read[head].append(document)
        self._read[tail].append(document)
        return head, tail

    def rank(self) -> list[Mention]:
        """Sort mentions by number of documents, then by count, in descending order.

        Ties are broken by name, then type, and never by input order.
        """
        ranks = [
            (-len(set(read)), -len(read), name, _ORDER[type_], type_)
            for (name, type_), read in self._read.items()
        ]
        return [(name, type_) for _, _, name, _, type_ in sorted(ranks)]


def find_abbreviations(triples: Iterable[Triple]) -> Mapping[str, str]:
    """Map short forms to long forms defined as "long form (SF)" in names or evidence.

    Follows Schwartz and Hearst (Pacific Symposium on Biocomputing, 2003): the letters of the
    short form occur in the long form in order, the first at the start of a word. A short form
    with two different long forms is ambiguous and left out.
    """
    found: defaultdict[str, dict[str, str]] = defaultdict(dict)
    seen: set[str] = set()
    for triple in triples:
        for text in (triple.head, triple.tail, triple.evidence.text):
            if "(" not in text or text in seen:
                continue
            seen.add(text)
            for short, long in find_definitions(text):
                found[short].setdefault(lexical_key(long), long)
    return {
        short: next(iter(longs.values()))
        for short, longs in sorted(found.items())
        if len(longs) == 1
    }


_PARENTHESIS = re.compile(r"\(([A-Za-z][\w/-]{1,9})\)")


def find_definitions(text: str) -> Iterator[tuple[str, str]]:
    """Find the (short form, long form) pairs defined in the text."""
    for match in _PARENTHESIS.finditer(text):
        short = match[1]
        if not any(c.isupper() for c in short):
            continue
        before = re.split(r"[.;:,()\[\]]", text[: match.start()])[-1].split()
        words = before[-min(len(short) + 5, len(short) * 2) :]
        long = long_form(short, " ".join(words))
        if long and len(long) > len(short) and short not in long.split():
            yield short, long
