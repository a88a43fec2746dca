"""Selection of prose, excluding table rows, cited titles and search strategies."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_PLAIN_WORD = re.compile(r"(?<![\w-])[a-z]{2,}(?![\w-])")
# A reference as lists print it: journal with volume and pages, many initials, or an identifier.
_REFERENCE = re.compile(
    r"\b(?:19|20)\d\d ?(?:[A-Z][a-z]{2}[a-z]*)?;? ?\d+ ?(?:\([\w -]+\))?: ?[eE]?\d+|\bdoi: ?10\.|"
    r"\bdoi\.org/10\.|(?:[A-Z][\w'-]+ [A-Z]{1,3}, ){2,}|(?:[A-Z][\w'-]+, (?:[A-Z]\. ?){1,3},? ){2,}"
    r"|\b\d+ ?\((?:19|20)\d\d\),? \d+[-–]\d+|\b\d+[,:] ?\d+[-–]\d+ \((?:19|20)\d\d\)"
)
_SURNAME = r"(?:(?:de|van|von|der|den|la|le|di|da|el|al)[ -])*[A-Z][\w'’-]+(?:[ -][A-Z][\w'’-]+)?"
_INITIALS = r"(?:[A-Z]\. ?-?){1,4}"
_AUTHOR = rf"(?:{_SURNAME},? (?:[A-Z]{{1,3}}\b|{_INITIALS})|{_INITIALS}{_SURNAME})"
#: How an entry of a reference list begins, with or without its number.
_AUTHORS = re.compile(
    r"(?:(?:References|REFERENCES|Bibliography)\W+)?(?:\[?\d{1,3}[\]).]*\s+)?"
    rf"(?:{_AUTHOR}(?:[,;]? (?:and |& )?{_AUTHOR})*(?:,? et al\b)?|{_SURNAME},? et al\b)"
    r"[.,:]*(?: ?\((?:19|20)\d\d[a-z]?\)[.:]?)?"
)
#: Where an entry ends: a journal with its year, or with volume and pages.
_JOURNAL = re.compile(
    r"(?:^|[.,] )[A-Z][\w.&: -]{1,70}?[,;.]? ?"
    r"(?:\(?(?:19|20)\d\d\b|\d+ ?(?:\(\d+\))?[,:] ?\d+[-–]\d+)"
    r"[\d\s:;,.()–-]*(?:(?:doi\b|https?:)\S*(?: ?10\.\S+)?)?$"
)
_SEARCH = re.compile(
    r"\b(?:search(?:ed|es|ing)?|quer(?:y|ies|ied)|keywords?|key words|MeSH|(?<!-)terms)\b",
    re.IGNORECASE,
)
# `AND`, or quoted terms that are joined; `OR` alone is an odds ratio.
_OPERATOR = re.compile(
    r"\bAND\b(?! [A-Z]{4,}:)|[\"'”’)\]] ?OR ?[\"'“‘(\[]|[\"'”’] (?:and|or) [\"'“‘]|\bOR [a-z\"'“‘]"
)
_TERMS = re.compile(
    r"\b(?:(?:key ?words?|search (?:terms?|strings?)|MeSH (?:terms?|headings?))\b"
    r"|search(?:ed)? (?:\w+ ){0,8}?(?:for|with|by) (?:the )?(?:\w+ )?terms\b)",
    re.IGNORECASE,
)
# The result of a search counts as a statement again.
_FOUND = re.compile(
    r"\b(?:show|reveal|identif|found|find|yield|demonstrat|suggest|indicat|confirm)\w*\b"
    r"(?: \w+){0,2}? that\b",
    re.IGNORECASE,
)


def is_prose(sentence: str) -> bool:
    """Check whether this is a sentence rather than a table row, a reference or a list of labels."""
    if len(sentence) > 900 or _REFERENCE.search(sentence):
        return False
    plain = len(_PLAIN_WORD.findall(sentence))
    return plain >= 3 or plain >= 0.25 * len(sentence.split())


def quoted_matter(text: str, spans: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the spans in a passage that only quote others: cited titles and search terms."""
    authors = False
    for number, (start, end) in enumerate(spans):
        sentence = text[start:end]
        following = text[slice(*spans[number + 1])] if number + 1 < len(spans) else ""
        listed = authors or bool(_AUTHORS.match(sentence))
        if listed and (_JOURNAL.search(sentence) or _JOURNAL.match(following)):
            yield start, end
        else:
            yield from _find_search(sentence, start)
        authors = bool(_AUTHORS.fullmatch(sentence))


def _find_search(sentence: str, offset: int) -> Iterator[tuple[int, int]]:
    """Yield the part of a sentence that describes a literature search, up to its result."""
    operators = list(_OPERATOR.finditer(sentence)) if _SEARCH.search(sentence) else []
    cue = operators[-1] if operators else _TERMS.search(sentence)
    if cue:
        found = _FOUND.search(sentence, cue.end())
        yield offset, offset + (found.start() if found else len(sentence))
