"""Reader for BibTeX with abstracts as exported by reference managers, including LaTeX and HTML."""

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
    """Convert a field's value to plain text by composing accents and removing braces and HTML."""

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


def entries(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield each entry's key and raw fields; keys may repeat, damaged entries are left out."""
    from bibtexparser.entrypoint import parse_string
    from bibtexparser.model import DuplicateBlockKeyBlock, Entry

    for block in parse_string(text).blocks:
        again = isinstance(block, DuplicateBlockKeyBlock)  # which keeps the marks around a value
        entry = block.ignore_error_block if isinstance(block, DuplicateBlockKeyBlock) else block
        if isinstance(entry, Entry):
            fields = {field.key.lower(): str(field.value) for field in entry.fields}
            yield entry.key, {k: v.strip('"') for k, v in fields.items()} if again else fields


def read_bibtex(path: Path, data: bytes) -> Iterator[Document]:
    """Read a document from each entry: its abstract, or else its title."""
    found = False
    for key, raw in entries(decode(data, path)):
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
