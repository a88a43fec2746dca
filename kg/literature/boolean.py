"""Queries in the boolean languages of the sources."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from kg.literature.text import words
from kg.literature.types import Query

_UNSAFE = re.compile(r'["\\()\[\]{}:*?~^+|&!<>/]')
_SYNONYMS = 4
MANY = 40
"""Synonyms of a concept where a search may not miss a paper."""
_WORDS = 6


def strip_operators(text: str) -> str:
    """Text without the operators of any query language, spaces collapsed."""
    return " ".join(_UNSAFE.sub(" ", text).split())


_LONGEST = 1800
"""Characters of a joined query."""


def quote_phrase(text: str) -> str:
    """Return a phrase in quotation marks, or the bare word."""
    clean = strip_operators(text)
    return f'"{clean}"' if " " in clean or "-" in clean else clean


def groups_of(query: Query, synonyms: int = _SYNONYMS) -> list[list[str]]:
    """Alternatives per concept; free text without phrases gives its most telling words."""
    if query.phrases:
        named = [
            [strip_operators(name) for name in group][: 1 + synonyms] for group in query.groups()
        ]
        return [[name for name in group if name] for group in named if any(group)]
    clean = strip_operators(query.text).split()
    telling = [word for word in clean if words(word)]
    longest = sorted(telling, key=lambda word: -len(word))[:_WORDS]
    return [[word] for word in telling if word in longest][:_WORDS]


def conjunction(
    query: Query, term: Callable[[str], str] = quote_phrase, synonyms: int = _SYNONYMS
) -> str:
    """Join a query: AND over concepts, OR over each concept's alternatives."""
    groups = []
    for group in groups_of(query, synonyms):
        terms = [term(name) for name in group]
        groups.append(f"({' OR '.join(terms)})" if len(terms) > 1 else terms[0])
    return " AND ".join(groups)


def disjunction(queries: Iterable[Query], term: Callable[[str], str] = quote_phrase) -> str:
    """Join queries by OR; those that exceed the length are left out."""
    parts: list[str] = []
    size = 0
    for query in queries:
        part = conjunction(query, term)
        if not part or part in parts:
            continue
        if parts and size + len(part) > _LONGEST:
            break
        parts.append(part)
        size += len(part) + 6
    return parts[0] if len(parts) == 1 else " OR ".join(f"({part})" for part in parts)
