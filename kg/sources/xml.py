"""Reader for JATS/NXML full texts and PubMed XML, without entities, network or document types."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kg.corpus.textnorm import clean
from kg.sources.base import SourceError, sha256_bytes
from kg.sources.identifiers import clean_doi, clean_pmcid, clean_pmid, clean_year
from kg.types import Document, Section

_ENTITY = re.compile(rb"<!ENTITY\s", re.IGNORECASE)
# Elements that are not prose of the paper itself.
_SKIP = frozenset(
    {
        "ref-list", "table", "disp-formula", "inline-formula", "tex-math", "alternatives",
        "graphic", "media", "fn-group", "ack", "app-group", "sub-article", "response", "object-id",
        "label", "contrib-group", "aff", "author-notes", "permissions", "kwd-group", "history",
        "supplementary-material", "math", "xref-group", "bio", "glossary",
    }
)  # fmt: skip
_BLOCK = frozenset({"p", "title", "caption", "list-item", "def-item", "td", "th", "disp-quote"})


def read_xml(path: Path, data: bytes) -> Iterator[Document]:
    """Read the documents in a JATS article or a PubMed record set.

    Raises
    ------
    SourceError
        If the file declares entities, is malformed, or is neither JATS nor PubMed XML.
    """
    root = parse(data)
    name = _name(root)
    if name in {"PubmedArticleSet", "PubmedArticle", "MedlineCitationSet", "MedlineCitation"}:
        yield from _read_pubmed(root, path)
        return
    articles = [root] if name == "article" else list(_descendants(root, "article"))
    if not articles:
        raise SourceError(f"neither JATS nor PubMed XML (root element {name!r})")
    for position, article in enumerate(articles):
        identity = data if len(articles) == 1 else data + b"\x00%d" % position
        yield _jats(article, path, sha256_bytes(identity))


def read_license(data: bytes) -> str | None:
    """Read a JATS article's license as its URL, else its text; None if there is no license.

    Raises
    ------
    SourceError
        Under the same conditions as in `read_xml`.
    """
    for permissions in _descendants(parse(data), "permissions"):
        for element in permissions.iter():
            if _name(element) == "license_ref" and _flat(element):
                return _flat(element)
        for element in _descendants(permissions, "license"):
            address = next((v for k, v in element.items() if k.rsplit("}", 1)[-1] == "href"), "")
            links = (
                v
                for link in _descendants(element, "ext-link")
                for k, v in link.items()
                if k.rsplit("}", 1)[-1] == "href" and "creativecommons" in v
            )
            said = address or next(links, "") or element.get("license-type") or _flat(element)
            if said:
                return str(said)
    return None


def parse(data: bytes) -> Any:
    """Parse untrusted XML without opening external resources or expanding entities.

    Raises
    ------
    SourceError
        If the XML declares entities or is malformed.
    """
    from lxml import etree

    if _ENTITY.search(data[: 1 << 20]):
        raise SourceError(
            "declares XML entities, which are not expanded for security reasons; remove them"
        )
    parser = etree.XMLParser(
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        dtd_validation=False,
        huge_tree=False,
        remove_comments=True,
        remove_pis=True,
    )
    try:
        root = etree.fromstring(data.replace(b"\x00", b""), parser)
    except etree.XMLSyntaxError as error:
        raise SourceError(f"malformed XML: {error.msg} (line {error.lineno})") from None
    if root is None:
        raise SourceError("malformed XML: no root element")
    return root


def _name(element: Any) -> str:
    tag = element.tag
    return tag.rsplit("}", 1)[-1] if isinstance(tag, str) else ""


def _descendants(element: Any, name: str) -> Iterator[Any]:
    for child in element.iter():
        if _name(child) == name:
            yield child


def _first(element: Any, *names: str) -> Any | None:
    current = element
    for name in names:
        current = next((c for c in current if _name(c) == name), None)
        if current is None:
            return None
    return current


def _flat(element: Any | None) -> str:
    return " ".join(clean("".join(element.itertext())).split()) if element is not None else ""


class _Builder:
    """Collector of text sections and their offsets."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.length = 0
        self.sections: list[Section] = []

    def add(self, title: str, paragraphs: list[str]) -> None:
        text = "\n\n".join(p for p in paragraphs if p)
        if not text:
            return
        if self.parts:
            self.parts.append("\n\n")
            self.length += 2
        start = self.length
        self.parts.append(text)
        self.length += len(text)
        self.sections.append(Section(title=title, start=start, end=self.length))

    @property
    def text(self) -> str:
        return "".join(self.parts)


def _jats(article: Any, path: Path, identity: str) -> Document:
    front = _first(article, "front")
    meta = _first(front, "article-meta") if front is not None else None
    builder = _Builder()
    title = venue = ""
    ids: dict[str, str] = {}
    year = None
    retracted = article.get("article-type") in {"retraction"}
    if front is not None:
        journal = next(_descendants(front, "journal-title"), None)
        venue = _flat(journal)
    if meta is not None:
        title = _flat(_first(meta, "title-group", "article-title"))
        for child in meta:
            if _name(child) == "article-id":
                ids.setdefault(str(child.get("pub-id-type") or ""), _flat(child))
        years = [
            found
            for date in _descendants(meta, "pub-date")
            if (found := clean_year(_flat(_first(date, "year"))))
        ]
        year = min(years, default=None)
        retracted = retracted or any(
            related.get("related-article-type") in {"retraction-forward", "retracted-article"}
            for related in _descendants(meta, "related-article")
        )
        for abstract in meta:
            if _name(abstract) == "abstract" and abstract.get("abstract-type") not in {
                "graphical", "teaser", "toc", "executive-summary",
            }:  # fmt: skip
                builder.add("Abstract", _paragraphs(abstract))
    body = _first(article, "body")
    if body is not None:
        loose: list[str] = []
        for child in body:
            if _name(child) == "sec":
                builder.add("", loose)
                loose = []
                heading = _flat(_first(child, "title"))
                builder.add(heading, _paragraphs(child, skip_title=True))
            elif _name(child) not in _SKIP:
                loose += _paragraphs(child)
        builder.add("", loose)
    if not builder.text:
        raise SourceError("JATS article without an abstract or body text")
    return Document(
        id=identity,
        path=str(path),
        title=title or path.stem,
        text=builder.text,
        sections=tuple(builder.sections),
        year=year,
        venue=venue or None,
        doi=clean_doi(ids.get("doi")),
        pmid=clean_pmid(ids.get("pmid")),
        pmcid=clean_pmcid(ids.get("pmc") or ids.get("pmcid")),
        retracted=retracted or title.upper().startswith("RETRACTED"),
    )


def _paragraphs(element: Any, skip_title: bool = False) -> list[str]:
    """List block texts in order, without citation marks, formulas, tables and references."""
    found: list[str] = []
    # An explicit stack, so that deeply nested input cannot crash the reader.
    stack = [(child, False) for child in reversed(element)]
    if not len(element) and (element.text or "").strip():
        return [" ".join(clean(element.text).split())]
    first = True
    while stack:
        child, _inside = stack.pop()
        name = _name(child)
        if not name or name in _SKIP:
            continue
        if name == "title" and first and skip_title:
            first = False
            continue
        first = False
        if name in _BLOCK and not any(_name(c) in _BLOCK for c in child):
            text = _inline(child)
            if text and (name != "title" or len(text) > 60):
                found.append(text)
            continue
        stack.extend((c, False) for c in reversed(child))
    if _name(element) in _BLOCK and not found:
        text = _inline(element)
        if text:
            found.append(text)
    return found


def _inline(element: Any) -> str:
    pieces: list[str] = []
    stack: list[Any] = [element]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            pieces.append(item)
            continue
        name = _name(item)
        citation = name == "xref" and item.get("ref-type") == "bibr"
        if item is not element and item.tail:
            stack.append(item.tail)
        if not name or name in _SKIP or citation:
            continue
        if name in {"sup", "sub"}:
            text = _flat(item)
            # Numeric superscripts are citations; 10^6 and CD8+ stay readable.
            if not (name == "sup" and re.fullmatch(r"[\d,–\-\s\[\]]+", text)):
                pieces.append(text)
            continue
        for child in reversed(item):
            stack.append(child)
        if item.text:
            stack.append(item.text)
    text = " ".join(clean("".join(pieces)).split())
    text = re.sub(r"\s*[\[(][\s,;–-]*[\])]", "", text)
    return re.sub(r"\s+([.,;:])", r"\1", text)


def _read_pubmed(root: Any, path: Path) -> Iterator[Document]:
    citations = [root] if _name(root) == "MedlineCitation" else []
    citations += [c for c in _descendants(root, "MedlineCitation") if c is not root]
    for citation in citations:
        article = _first(citation, "Article")
        if article is None:
            continue
        title = _flat(_first(article, "ArticleTitle")).strip("[]")
        builder = _Builder()
        abstract = _first(article, "Abstract")
        for part in abstract if abstract is not None else []:
            if _name(part) == "AbstractText":
                builder.add(str(part.get("Label") or "Abstract").title(), [_flat(part)])
        if not builder.text:
            if not title:
                continue
            builder.add("Title", [title])
        pmid = clean_pmid(_flat(_first(citation, "PMID")))
        doi = pmcid = None
        record = citation.getparent()
        scopes = [article] + ([record] if record is not None else [])
        for scope in scopes:
            for item in scope.iter():
                kind = item.get("IdType") or item.get("EIdType")
                if _name(item) in {"ArticleId", "ELocationID"} and not _in_references(item):
                    if kind == "doi" and doi is None:
                        doi = clean_doi(_flat(item))
                    elif kind == "pmc" and pmcid is None:
                        pmcid = clean_pmcid(_flat(item))
        date = _first(article, "Journal", "JournalIssue", "PubDate")
        types = {_flat(t).lower() for t in _descendants(article, "PublicationType")}
        retracted = "retracted publication" in types or any(
            c.get("RefType") == "RetractionIn"
            for c in _descendants(citation, "CommentsCorrections")
        )
        yield Document(
            id=sha256_bytes(f"pubmed\x1f{pmid}\x1f{title}\x1f{builder.text}".encode()),
            path=str(path),
            title=title or f"PMID {pmid}",
            text=builder.text,
            sections=tuple(builder.sections),
            year=clean_year(_flat(date)),
            venue=_flat(_first(article, "Journal", "Title")) or None,
            doi=doi,
            pmid=pmid,
            pmcid=pmcid,
            retracted=retracted,
        )


def _in_references(element: Any) -> bool:
    parent = element.getparent()
    while parent is not None:
        if _name(parent) in {"ReferenceList", "CommentsCorrectionsList"}:
            return True
        parent = parent.getparent()
    return False
