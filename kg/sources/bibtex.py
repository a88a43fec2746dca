"""BibTeX with abstracts, as reference managers export it: braces, accents, HTML entities."""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path

from kg.corpus.textnorm import clean
from kg.sources.base import SourceError, decode, sha256_bytes
from kg.sources.identifiers import clean_doi, clean_pmcid, clean_pmid, clean_year
from kg.types import Document, Section

_ENTRY = re.compile(r"@(\w+)\s*[{(]\s*([^,\s]*)\s*,")
_ASIDE = frozenset({"comment", "string", "preamble"})
_MARKS = {
    "`": "\u0300", "'": "\u0301", "^": "\u0302", "~": "\u0303", '"': "\u0308", "=": "\u0304",
    ".": "\u0307", "u": "\u0306", "v": "\u030c", "H": "\u030b", "c": "\u0327", "r": "\u030a",
}  # fmt: skip
_WORDS = {
    r"\alpha": "α", r"\beta": "β", r"\gamma": "γ", r"\delta": "δ", r"\kappa": "κ", r"\mu": "μ",
    r"\geq": "≥", r"\leq": "≤", r"\ge": "≥", r"\le": "≤", r"\pm": "±", r"\times": "×",
    r"\textless": "<", r"\textgreater": ">", r"\textendash": "–", r"\textemdash": "—",
    r"\textgreek": "", r"\ss": "ß", r"\o": "ø", r"\O": "Ø", r"\ae": "æ", r"\aa": "å", r"\l": "ł",
    r"\i": "i", r"\textbackslash": "\\", r"\textasciitilde": "~", r"\sim": "~",
}  # fmt: skip


def plain(value: str) -> str:
    """A field's value without markup: accents composed, braces and HTML removed."""

    def accent(match: re.Match[str]) -> str:
        return unicodedata.normalize("NFC", match.group(2) + _MARKS[match.group(1)])

    value = re.sub(r"\{?\\([`'^~\"=.])\s*\{?\\?([A-Za-z])\}?\}?", accent, value)
    value = re.sub(r"\{?\\([uvHcr])\s*\{([A-Za-z])\}\}?", accent, value)
    value = re.sub(
        r"\\[A-Za-z]+", lambda m: _WORDS.get(m.group(), " " if m.group() in {"\\ "} else ""), value
    )
    value = re.sub(r"\\([&%$#_{}])", r"\1", value)
    value = value.replace("{", "").replace("}", "").replace("$", "").replace("~", " ")
    value = html.unescape(html.unescape(value))
    value = re.sub(r"</?[a-zA-Z][^<>]{0,40}>", "", value)
    return " ".join(clean(value).split())


def entries(text: str) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Kind, key and raw fields of each entry; a damaged entry ends at the next `@`."""
    for match in _ENTRY.finditer(text):
        kind = match.group(1).lower()
        if kind in _ASIDE:
            continue
        yield kind, match.group(2), dict(_fields(text, match.end()))


def _fields(text: str, position: int) -> Iterator[tuple[str, str]]:
    name_at = re.compile(r"[\s,]*([A-Za-z][\w-]*)\s*=\s*")
    while True:
        match = name_at.match(text, position)
        if not match:
            return
        start = match.end()
        if start >= len(text):
            return
        if text[start] == "{":
            depth, at = 0, start
            while at < len(text):
                char = text[at]
                if char == "{" and text[at - 1] != "\\":
                    depth += 1
                elif char == "}" and text[at - 1] != "\\":
                    depth -= 1
                    if depth == 0:
                        break
                at += 1
            value, position = text[start + 1 : at], at + 1
        elif text[start] == '"':
            at, depth = start + 1, 0
            while at < len(text) and not (text[at] == '"' and depth == 0):
                depth += {"{": 1, "}": -1}.get(text[at], 0)
                at += 1
            value, position = text[start + 1 : at], at + 1
        else:
            end = re.compile(r"[,}\n]").search(text, start)
            at = end.start() if end else len(text)
            value, position = text[start:at], at
        yield match.group(1).lower(), value


def read_bibtex(path: Path, data: bytes) -> Iterator[Document]:
    """One document per entry with an abstract; an entry without one gives its title."""
    found = False
    for _kind, key, raw in entries(decode(data, path)):
        title = plain(raw.get("title", ""))
        abstract = plain(raw.get("abstract", ""))
        text = abstract or title
        if not text:
            continue
        found = True
        yield Document(
            id=sha256_bytes(f"bibtex\x1f{key}\x1f{title}\x1f{text}".encode()),
            path=f"{path}#{key}",
            title=title or key,
            text=text,
            sections=(Section(title="Abstract" if abstract else "Title", start=0, end=len(text)),),
            year=clean_year(plain(raw.get("year") or raw.get("date") or "")),
            venue=plain(raw.get("journal") or raw.get("booktitle") or "") or None,
            doi=clean_doi(raw.get("doi") or raw.get("url")),
            pmid=clean_pmid(plain(raw.get("pmid") or "")),
            pmcid=clean_pmcid(raw["pmcid"]) if raw.get("pmcid") else None,
            retracted=title.upper().startswith(("RETRACTED", "RETRACTION")),
        )
    if not found:
        raise SourceError("no BibTeX entry with a title or an abstract")
