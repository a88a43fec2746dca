"""Local index: BM25 over the run's own corpus, which works without a network.

Its answers are marked (`served_by`), because a corpus does not cover the entire
literature: a finding missing from it is not necessarily new.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import date
from pathlib import Path

import numpy as np

from kg.literature.text import mentions, phrase_key, words
from kg.literature.types import Query, Record, clean_doi
from kg.types import Document
from sage.core.errors import InputError

NAME = "local index"
K1, B = 1.2, 0.75
"""BM25 constants: Robertson and Zaragoza, 2009, Foundations and Trends in Information Retrieval."""

_TITLE_WEIGHT = 2


class LocalIndex:
    """Deterministic BM25 index on titles, abstracts and findings; ties keep the input order."""

    name = NAME

    def __init__(self, records: Iterable[Record]) -> None:
        self.records = tuple(records)
        self._keys = [phrase_key(record.body) for record in self.records]
        counts = [
            Counter(
                words(record.title) * _TITLE_WEIGHT
                + words(" ".join((record.abstract, *record.snippets)))
            )
            for record in self.records
        ]
        lengths = np.array([max(1, sum(count.values())) for count in counts], dtype=np.float64)
        mean = float(lengths.mean()) if len(lengths) else 1.0
        postings: dict[str, list[tuple[int, int]]] = {}
        for position, count in enumerate(counts):
            for word, times in count.items():
                postings.setdefault(word, []).append((position, times))
        self._postings: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        for word, entries in postings.items():
            at = np.array([entry[0] for entry in entries], dtype=np.int64)
            frequency = np.array([entry[1] for entry in entries], dtype=np.float64)
            rarity = np.log1p((len(self.records) - len(at) + 0.5) / (len(at) + 0.5))
            norm = frequency + K1 * (1 - B + B * lengths[at] / mean)
            self._postings[word] = (at, rarity * frequency * (K1 + 1) / norm)

    def __len__(self) -> int:
        return len(self.records)

    @classmethod
    def build(cls, documents: Iterable[Document]) -> LocalIndex:
        """Build an index on ingested documents, using each document's text as its abstract."""
        return cls(
            Record(
                title=document.title or Path(document.path).stem,
                abstract=document.text,
                year=document.year,
                venue=document.venue,
                doi=clean_doi(document.doi),
                pmid=document.pmid,
                retracted=document.retracted,
                retraction_sources=(NAME,) if document.retracted else (),
                sources=(NAME,),
            )
            for document in documents
        )

    @classmethod
    def from_folder(cls, folder: Path) -> LocalIndex:
        """Build an index on a corpus folder.

        Reads notes (front matter, then findings as bullets) and PDF, XML, MEDLINE, BibTeX and
        text files.

        Raises
        ------
        InputError
            If the folder does not exist or contains nothing readable.
        """
        if not folder.is_dir():
            raise InputError(f"{folder}: corpus folder not found; give a folder with papers")
        from kg.sources import discover, read_file

        records: list[Record] = []
        others: list[Document] = []
        files, _ = discover([folder])
        for path in files:
            note = None
            if path.suffix.lower() == ".md":
                note = read_note(path.read_text(encoding="utf-8", errors="replace"))
            if note is not None:
                records.append(note)
            else:
                others.extend(read_file(path).documents)
        records.extend(cls.build(others).records)
        if not records:
            raise InputError(
                f"{folder}: no readable files; a note must start with front matter (`title: ...`)"
            )
        return cls(records)

    def search(self, query: str | Query, k: int, as_of: date | None = None) -> list[Record]:
        """Find the `k` best records for `query` known by `as_of`, best first, scored in [0, 1]."""
        asked = query if isinstance(query, Query) else Query(text=query)
        found: list[Record] = []
        top = 1.0
        for position, score in self.score(asked):
            if len(found) == k:
                break
            record = self.records[position]
            if record.known_by(as_of):
                top = top if found else score
                found.append(record.model_copy(update={"score": score / top}))
        return found

    def score(self, query: Query) -> list[tuple[int, float]]:
        """Score all matching records; return (position, score) pairs, best first (score 1).

        The score is BM25 over the words, times 1 plus the number of the query's phrases that occur
        in full.
        """
        groups = query.groups()
        terms = words(" ".join((query.text, *(name for group in groups for name in group))))
        scores = np.zeros(len(self.records))
        for term in dict.fromkeys(terms):
            if term in self._postings:
                at, gain = self._postings[term]
                scores[at] += gain
        matched = np.flatnonzero(scores)
        if query.phrases:
            for position in matched:
                scores[position] *= 1 + sum(
                    mentions(self._keys[position], group) for group in groups
                )
        order = matched[np.argsort(-scores[matched], kind="stable")]
        top = scores[order[0]] if len(order) else 1.0
        return [(int(position), float(scores[position] / top)) for position in order]

    def count(self, groups: Sequence[Sequence[str]], as_of: date | None = None) -> int:
        """Count the records known by `as_of` that mention a phrase from every group."""
        return sum(
            all(mentions(key, group) for group in groups)
            for record, key in zip(self.records, self._keys, strict=True)
            if record.known_by(as_of)
        )


def read_note(text: str) -> Record | None:
    """Parse a corpus note into a record, or return None if its front matter has no title."""
    from kg.sources.plain import front_matter

    fields, body = front_matter(text)

    def get_field(name: str) -> str | None:
        value = fields.get(name)
        return value if isinstance(value, str) and value else None

    title, year = get_field("title"), get_field("year")
    if title is None:
        return None
    lines = map(str.strip, body.splitlines())
    findings = tuple(line[2:].strip() for line in lines if line.startswith("- "))
    retracted = (get_field("retracted") or "").lower() == "true"
    return Record(
        title=title,
        year=int(year) if year and year.isdigit() else None,
        venue=get_field("venue"),
        doi=clean_doi(get_field("doi")),
        pmid=get_field("pmid"),
        retracted=retracted,
        retraction_sources=(NAME,) if retracted else (),
        sources=(NAME,),
        snippets=findings,
    )
