"""Reader for plain text and Markdown with front matter."""

from __future__ import annotations

import re
from pathlib import Path

from kg.corpus.textnorm import clean
from kg.sources.base import SourceError, decode, sha256_bytes
from kg.sources.identifiers import clean_doi, clean_pmcid, clean_pmid, clean_year
from kg.types import Document, Section

_FRONT = re.compile(r"\A---[ \t]*\n(.*?)\n---[ \t]*(?:\n|\Z)", re.DOTALL)
_HEADING = re.compile(r"^#{1,6}[ \t]+(.+?)[ \t]*#*[ \t]*$", re.MULTILINE)
_TRUE = frozenset({"true", "yes", "1", "on"})


def front_matter(text: str) -> tuple[dict[str, str | list[str]], str]:
    """Split text into the fields between `---` lines at the top and the remaining text.

    Supports a small subset of YAML: `key: value`, quoted values, `[a, b]` and `- item` lists.
    """
    match = _FRONT.match(text)
    if not match:
        return {}, text
    fields: dict[str, str | list[str]] = {}
    current: str | None = None
    for line in match.group(1).splitlines():
        item = re.match(r"\s+-\s+(.*)$|-\s+(.*)$", line)
        if item and current is not None:
            value = fields.get(current)
            listed = value if isinstance(value, list) else []
            listed.append(_unquote(item.group(1) or item.group(2) or ""))
            fields[current] = listed
            continue
        key, mark, value_text = line.partition(":")
        if not mark or not key.strip() or key.startswith("#"):
            continue
        current = key.strip().lower()
        value_text = value_text.strip()
        if value_text.startswith("[") and value_text.endswith("]"):
            inner = value_text[1:-1]
            fields[current] = [_unquote(part) for part in inner.split(",") if part.strip()]
        else:
            fields[current] = _unquote(value_text)
    return fields, text[match.end() :]


def _unquote(value: str) -> str:
    value = value.strip()
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
        value = value[1:-1].replace('\\"', '"').replace("''", "'")
    return "" if value in {"null", "~", "None"} else value


def read_text(path: Path, data: bytes) -> list[Document]:
    """Read a document from a text or Markdown file."""
    raw = clean(decode(data, path))
    fields, body = front_matter(raw)

    def get_field(key: str) -> str | None:
        value = fields.get(key)
        return value if isinstance(value, str) and value else None

    body = body.strip("\n")
    headings = list(_HEADING.finditer(body))
    title = get_field("title")
    if title is None and headings:
        title = headings[0].group(1)
    if title is None:
        first = next((line.strip() for line in body.splitlines() if line.strip()), "")
        title = first[:200]
    if not body.strip():
        raise SourceError("no text")
    sections: list[Section] = []
    if headings and headings[0].start() > 0 and body[: headings[0].start()].strip():
        sections.append(Section(title="", start=0, end=headings[0].start()))
    for index, heading in enumerate(headings):
        end = headings[index + 1].start() if index + 1 < len(headings) else len(body)
        if body[heading.end() : end].strip():
            sections.append(Section(title=heading.group(1), start=heading.end(), end=end))
    topics = fields.get("topics", [])
    return [
        Document(
            id=sha256_bytes(data),
            path=str(path),
            title=title,
            text=body,
            sections=tuple(sections) or (Section(title="", start=0, end=len(body)),),
            year=clean_year(get_field("year")),
            venue=get_field("venue"),
            doi=clean_doi(get_field("doi")),
            pmid=clean_pmid(get_field("pmid")),
            pmcid=clean_pmcid(get_field("pmcid")),
            retracted=(get_field("retracted") or "").lower() in _TRUE,
            basis=get_field("findings_basis"),
            topics=tuple(topics) if isinstance(topics, list) else (topics,),
        )
    ]
