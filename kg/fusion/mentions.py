"""The names in the triples, with their types and how often they occur."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

from kg.fusion.names import clean_name, lexical_key
from kg.types import EntityType, Triple

Mention = tuple[str, EntityType]

_ORDER = {type_: n for n, type_ in enumerate(EntityType)}


class Mentions:
    """Counts per (name, type), in how many documents, from the triples' heads and tails."""

    def __init__(self) -> None:
        self.count: Counter[Mention] = Counter()
        self.documents: defaultdict[Mention, set[str]] = defaultdict(set)

    def add(self, triple: Triple) -> bool:
        """Count both ends; False (nothing counted) if a name is empty once cleaned."""
        ends = [
            (clean_name(triple.head), triple.head_type),
            (clean_name(triple.tail), triple.tail_type),
        ]
        if not all(lexical_key(*end) for end in ends):
            return False
        for end in ends:
            self.count[end] += 1
            self.documents[end].add(triple.evidence.doc_id)
        return True

    def add_name(self, name: str, type_: EntityType) -> bool:
        """Count a bare name once; False if it is empty once cleaned."""
        mention = clean_name(name), type_
        if not lexical_key(*mention):
            return False
        self.count[mention] += 1
        return True

    def ordered(self) -> list[Mention]:
        """Mentions, the best attested first; ties by name, then type: never by input order."""
        return sorted(self.count, key=self.rank)

    def rank(self, mention: Mention) -> tuple[int, int, str, int]:
        """Sort key: documents and mentions descending, then name and type."""
        name, type_ = mention
        return (-len(self.documents[mention]), -self.count[mention], name, _ORDER[type_])


def abbreviations(triples: Iterable[Triple]) -> Mapping[str, str]:
    """Short forms defined in names or evidence as "long form (SF)", to their long forms.

    Schwartz and Hearst's rule (Pacific Symposium on Biocomputing, 2003): the letters of the short
    form occur in the long form in order, the first at the start of a word. A short form that is
    given two long forms is ambiguous and left out.
    """
    found: defaultdict[str, dict[str, str]] = defaultdict(dict)
    seen: set[str] = set()
    for triple in triples:
        for text in (triple.head, triple.tail, triple.evidence.text):
            if "(" not in text or text in seen:
                continue
            seen.add(text)
            for short, long in definitions(text):
                found[short].setdefault(lexical_key(long), long)
    return {
        short: next(iter(longs.values()))
        for short, longs in sorted(found.items())
        if len(longs) == 1
    }


_PARENTHESIS = re.compile(r"\(([A-Za-z][\w/-]{1,9})\)")


def definitions(text: str) -> Iterator[tuple[str, str]]:
    """(short form, long form) pairs that the text defines."""
    for match in _PARENTHESIS.finditer(text):
        short = match[1]
        if not any(c.isupper() for c in short):
            continue
        before = re.split(r"[.;:,()\[\]]", text[: match.start()])[-1].split()
        words = before[-min(len(short) + 5, len(short) * 2) :]
        long = _long_form(short, " ".join(words))
        if long and len(long) > len(short) and short not in long.split():
            yield short, long


def _long_form(short: str, before: str) -> str | None:
    s, p = len(short) - 1, len(before) - 1
    while s >= 0:
        letter = short[s].casefold()
        if not letter.isalnum():
            s -= 1
            continue
        while p >= 0 and (
            before[p].casefold() != letter or (s == 0 and p > 0 and before[p - 1].isalnum())
        ):
            p -= 1
        if p < 0:
            return None
        p -= 1
        s -= 1
    start = before.rfind(" ", 0, p + 2) + 1
    return before[start:].strip() or None
