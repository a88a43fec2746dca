"""Sets of words written as paragraphs, which read better than columns of literals."""

from __future__ import annotations


def words(text: str) -> frozenset[str]:
    """Return the distinct words of `text`, separated by white space."""
    return frozenset(text.split())
