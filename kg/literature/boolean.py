"""Queries in the Boolean query languages of the sources."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from kg.literature.text import words
from kg.literature.types import Query

_UNSAFE = re.compile(r'["\\()\[\]{}:*?~^+|&!<>/]')
_SYNONYMS = 4
MANY = 40
"""Number of synonyms per concept for high-recall searches."""
_WORDS = 6


def strip_operators(text: str) -> str:
    """Remove the operators of all query languages and collapse spaces."""
    return " ".join(_UNSAFE.sub(" ", text).split())


_LONGEST = 1800
"""Maximum number of characters in a joined query."""


def quote_phrase(text: str) -> str:
    """Quote a phrase; return a single word unchanged."""
    clean = strip_operators(text)
    return f'"{clean}"' if " " in clean or "-" in clean else clean


def groups_of(query: Query, synonyms: int = _SYNONYMS) -> list[list[str]]:
    """List the alternatives for each concept; for free text, use its most informative words."""
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
    """Build a query that joins concepts with AND, and each concept's alternatives with OR."""
    groups = []
    for group in groups_of(query, synonyms):
        terms = [term(name) for name in group]
        groups.append(f"({' OR '.join(terms)})" if len(terms) > 1 else terms[0])
    return " AND ".join(groups)


def disjunction(queries: Iterable[Query], term: Callable[[str], str] = quote_phrase) -> str:
    """Join queries with OR, leaving out those that would exceed the maximum length."""
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
