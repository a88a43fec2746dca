"""Sets of words written as paragraphs, which are more readable than columns of literals."""

from __future__ import annotations


def words(text: str) -> frozenset[str]:
    """Return the distinct words of `text`, which are separated by white space."""
    return frozenset(text.split())
