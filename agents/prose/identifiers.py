"""Citations in prose: only what was given may be cited, and only by the key it was given under."""

from __future__ import annotations

import re
from collections.abc import Collection

PATTERNS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"\b10\.\d{3,9}/[^\s\"'<>\])]+",
        r"\bdoi\b\S*",
        r"\bPM(?:ID|CID)?\W{0,3}\d{4,9}\b",
        r"\bPMID\b",
        r"\b(?:pubmed|medline|pmc)\W{0,3}\d{3,9}\b",
        r"\bNCT\W?\d{4,8}\b",
        r"\b(?:ISRCTN|EudraCT|ChiCTR|ACTRN|DRKS|UMIN)\W?\S*\d\S*",
        r"\b(?:arXiv|bioRxiv|medRxiv)\b\S*",
        r"\b(?:GSE|GSM|GPL|GDS|SRP|SRR|ERP|DRP|PRJ[A-Z]{2}|EGA[A-Z]|E-MTAB-|phs)\W?\d{3,}\S*",
        r"\b(?:https?|ftp)\s*:\S*",
        r"\bwww\s?\.\S*",
        r"\b[a-z0-9-]+\.(?:org|com|net|edu|gov|io|info|de|fr|uk|ch|eu)\b\S*",
        r"\bet\s+al\b\.?(?:\W{0,3}\d{4})?",
        r"(?<!\[)\[\s*\d+(?:\s*[,;–-]\s*\d+)*\s*\](?!\])",
        r"\(\s*[^\W\d_]+(?:(?:\s+(?:and|&)\s+|\s)[^\W\d_]+)*,?\s*(?:19|20)\d\d[a-z]?\s*\)",
        r"\b[^\W\d_]+(?:\s+(?:and|&)\s+[^\W\d_]+)?\s*\((?:19|20)\d\d[a-z]?\)",
        r"\b(?:ref(?:erence)?s?|refs?)\.?\s*\d+\b",
        r"\bISBN\b\S*",
    )
)
REF = re.compile(r"\bR\d{1,4}\b")


def unknown_identifiers(
    text: str, given: Collection[str] = (), refs: Collection[str] | None = None
) -> list[str]:
    """Identifier-like tokens of `text` that were not given.

    Parameters
    ----------
    refs : short keys ("R3") of retrieved records; None where there are none
    """
    allowed = " ".join(given).lower()
    found = []
    for pattern in PATTERNS:
        for match in pattern.finditer(text):
            token = match.group().strip().rstrip(".,;")
            if not token or token.lower() not in allowed:
                found.append(token)
    if refs is not None:
        found += [found for found in REF.findall(text) if found not in refs]
    return found
