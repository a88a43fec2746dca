"""The domain ontology: entities with synonyms, types and definitions; relations with polarity.

An ontology is a folder of tab-separated files. The columns of `entities.tsv` are id,
name, type, synonyms, definition, source and identifiers; those of `relations.tsv` are
canonical, patterns, polarity, precedence and symmetric. Lists inside a field are
separated by `|`; identifiers are written as `KEY=value` and separated by `;`. Synonyms
denote exactly the same entity. Two files are optional: `related.tsv` (see
`kg.lexicon.links`) lists broader entities, opposites and inverse measures, and
`homonyms.tsv` (see `kg.lexicon.homonyms`) resolves ambiguous names by context.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from kg.lexicon.homonyms import COLUMNS as HOMONYM_COLUMNS
from kg.lexicon.homonyms import Homonym, Homonyms
from kg.lexicon.index import Lexicon, LexiconEntry, Match, Term
from kg.lexicon.links import COLUMNS as LINK_COLUMNS
from kg.lexicon.links import Link, Links, Related
from kg.lexicon.wordlist import words
from kg.types import EntityType, Polarity
from sage.core.errors import InputError

ENTITY_COLUMNS = ("id", "name", "type", "synonyms", "definition", "source", "identifiers")
RELATION_COLUMNS = ("canonical", "patterns", "polarity", "precedence", "symmetric")

SOURCES = {
    "own": "SAGE's ontology, in its own words",
    "NCBI Gene": "NCBI Gene",
    "NCBI Gene, own": "name: NCBI Gene; the rest: SAGE's ontology, in its own words",
}
"""Names for the `source` values in the bundled ontology; other values are shown unchanged."""

# Types whose names are symbols: their case carries meaning (CAT the gene, cat the animal).
_SYMBOLIC = frozenset({EntityType.GENE, EntityType.PROTEIN})


@dataclass(frozen=True, slots=True)
class OntologyEntry:
    """A domain entity; `definition` ends with its source in brackets."""

    id: str
    name: str
    type: EntityType
    synonyms: tuple[str, ...] = ()
    definition: str | None = None
    identifiers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RelationEntry:
    """A canonical relation; if several patterns match, the lowest precedence number wins."""

    canonical: str
    polarity: Polarity
    patterns: tuple[str, ...] = ()
    precedence: int = 100
    symmetric: bool = False


def is_symbol(text: str, kind: EntityType) -> bool:
    """Check whether `text` is case-sensitive, as are symbols, acronyms and names with digits."""
    if " " in text.strip():
        return False
    letters = [char for char in text if char.isalpha()]
    upper = sum(char.isupper() for char in letters)
    if kind in _SYMBOLIC:
        return not (len(text) > 7 and text.islower() and not any(c.isdigit() for c in text))
    return upper >= 2 and len(text) <= 10


class Ontology:
    """Entities and relations in the domain, loaded from `data/ontology`."""

    def __init__(
        self,
        entries: Sequence[OntologyEntry],
        relations: Sequence[RelationEntry],
        links: Links | None = None,
        homonyms: Homonyms | None = None,
    ) -> None:
        self._entries = tuple(entries)
        self.links = links or Links()
        self.homonyms = homonyms or Homonyms()
        self._relations = tuple(sorted(relations, key=lambda r: (r.precedence, r.canonical)))
        self._by_id = {entry.id: entry for entry in self._entries}

    @classmethod
    def load(cls, path: Path) -> Ontology:
        """Read the ontology's two required files and its optional files from the folder `path`.

        Raises
        ------
        InputError
            If a file is missing or a row is malformed; the message names file and row.
        """
        entries = [_entry(row, where) for row, where in _rows(path, "entities.tsv", ENTITY_COLUMNS)]
        seen: dict[str, str] = {}
        for entry in entries:
            if entry.id in seen:
                raise InputError(
                    f"{path / 'entities.tsv'}: id {entry.id!r} is used twice "
                    f"({seen[entry.id]!r}, {entry.name!r}); give each entity a unique id"
                )
            seen[entry.id] = entry.name
        relations = [
            _relation(row, where) for row, where in _rows(path, "relations.tsv", RELATION_COLUMNS)
        ]
        homonyms = _homonyms(path, set(seen))
        return cls(entries, relations, _links(path, set(seen)), homonyms)

    def __len__(self) -> int:
        return len(self._entries)

    def entries(self) -> Iterator[OntologyEntry]:
        """Return all entities, in file order."""
        return iter(self._entries)

    def relations(self) -> Iterator[RelationEntry]:
        """Return all canonical relations, by precedence."""
        return iter(self._relations)

    def by_id(self, entity_id: str) -> OntologyEntry | None:
        """Return the entity with this id."""
        return self._by_id.get(entity_id)

    def find(self, name: str) -> OntologyEntry | None:
        """Find the entity denoted by the whole `name`, as a symbol, synonym or variant spelling.

        The case of symbols must match (`FABP5`, `Fabp5`, not `fabp5`), but not that of other
        names. A longer symbol never matches a shorter symbol (`FABP5P1` is not FABP5).
        """
        stripped = name.strip()
        if not stripped:
            return None
        for match in self.find_all(stripped):
            if match.start == 0 and match.end == len(stripped):
                return self._entries[match.entry]
        return self._by_exact.get(stripped.casefold())

    def definition(self, name: str) -> str | None:
        """Return the definition of the entity that `name` denotes, or None."""
        entry = self.find(name)
        return entry.definition if entry else None

    def relation(self, text: str) -> RelationEntry:
        """Find the canonical relation for a phrase, using rules with precedence.

        The pattern with the lowest precedence number wins, then the longest pattern. A phrase that
        does not match any rule becomes `associated_with` without polarity.
        """
        phrase = _phrase(text)
        for relation, patterns in self._patterns:
            for pattern in patterns:
                if pattern.search(phrase):
                    return relation
        return RelationEntry("associated_with", Polarity.NEUTRAL, precedence=1000)

    def symmetric(self, canonical: str) -> bool:
        """Check whether the head and tail of this relation may be swapped."""
        return canonical in self._symmetric

    @cached_property
    def lexicon(self) -> Lexicon:
        """Compiled index of every name and synonym; entry numbers follow `entries()`."""
        return Lexicon.compile(
            [LexiconEntry(entry.id, entry.name, entry.type) for entry in self._entries],
            terms(self._entries),
        )

    def find_all(self, text: str) -> list[Match]:
        """Find every ontology name in running text; resolve homonyms by context."""
        found = []
        for match in self.lexicon.find(text):
            decided, entity = self.homonyms.decide(text, match.start, match.end)
            if not decided:
                found.append(match)
            elif entity is not None:
                found.append(Match(match.start, match.end, self._number[entity]))
        return found

    def list_related(self, entity_id: str) -> tuple[tuple[Link, OntologyEntry], ...]:
        """List the entities directly related to an entity."""
        return tuple((link, self._by_id[other]) for link, other in self.links.list_links(entity_id))

    @cached_property
    def _number(self) -> dict[str, int]:
        return {entry.id: number for number, entry in enumerate(self._entries)}

    @cached_property
    def _by_exact(self) -> dict[str, OntologyEntry]:
        table: dict[str, OntologyEntry] = {}
        for entry in self._entries:
            table.setdefault(entry.id.casefold(), entry)
            if not is_symbol(entry.name, entry.type):
                table.setdefault(entry.name.casefold(), entry)
        return table

    @cached_property
    def _symmetric(self) -> frozenset[str]:
        return frozenset(r.canonical for r in self._relations if r.symmetric)

    @cached_property
    def _patterns(self) -> list[tuple[RelationEntry, list[re.Pattern[str]]]]:
        compiled = []
        for relation in self._relations:
            forms = sorted(
                {*relation.patterns, relation.canonical.replace("_", " ")}, key=len, reverse=True
            )
            compiled.append((relation, [_pattern(form) for form in forms]))
        return compiled


def terms(entries: Iterable[OntologyEntry]) -> Iterator[Term]:
    """Yield all names, then all synonyms, so that a name outranks another entity's synonym."""
    listed = list(entries)
    for index, entry in enumerate(listed):
        yield Term(entry.name, index, is_symbol(entry.name, entry.type))
    for index, entry in enumerate(listed):
        for synonym in entry.synonyms:
            yield Term(synonym, index, is_symbol(synonym, entry.type))


_BE = re.compile(r"\b(?:is|are|was|were|been|being|be|has|have|had)\b")


def _phrase(text: str) -> str:
    words = _BE.sub(" ", text.lower().replace("_", " ").replace("-", " "))
    return " ".join(words.split())


def _pattern(form: str) -> re.Pattern[str]:
    """Build a pattern whose words may be inflected (`drive`, `drives`, `driving`, `driven`)."""
    words = [word for word in _phrase(form).split() if word not in {"a", "an", "the"}]
    return re.compile(r"\b" + r" (?:\w+ )?".join(inflected(word) for word in words) + r"\b")


_IRREGULAR = {
    "drive": "driv(?:e|es|ing|en)|drove",
    "bind": "binds?|binding|bound",
    "lead": "leads?|leading|led",
    "keep": "keeps?|keeping|kept",
    "give": "gives?|given",
    "given": "gives?|given",
    "confer": "confer(?:s|red|ring)?",
    "underlie": "underlies|underlie|underlying|underlay",
    "overexpressed": "overexpress(?:ed|es|ion|ing)?",
    "upregulated": "up ?regulated",
    "carry": "carr(?:y|ies|ied|ying)",
    "stratify": "stratif(?:y|ies|ied|ying)",
    "identify": "identif(?:y|ies|ied|ying)",
    "amplify": "amplif(?:y|ies|ied|ying)",
}
_INVARIANT = words(
    """
    in of with to for by on at out from against each other more often do not does did no
    together through
    """
)


def inflected(word: str) -> str:
    """Build a regular expression for the inflections of an English verb or noun."""
    if word in _IRREGULAR:
        return f"(?:{_IRREGULAR[word]})"
    escaped = re.escape(word)
    if word in _INVARIANT or word.endswith("ed") or not word.isalpha():
        return escaped
    if word.endswith("e"):
        return f"{re.escape(word[:-1])}(?:e|es|ed|ing|ion|or)"
    if word.endswith("y") and word[-2] not in "aeiou":
        return f"{re.escape(word[:-1])}(?:y|ies|ied|ying)"
    if word.endswith(("s", "sh", "ch", "x")):
        return f"{escaped}(?:es|ed|ing)?"
    doubled = re.escape(word[-1])
    return f"{escaped}(?:s|{doubled}?ed|{doubled}?ing|ion)?"


def _rows(folder: Path, name: str, columns: Sequence[str]) -> Iterator[tuple[dict[str, str], str]]:
    path = folder / name
    try:
        handle = path.open(encoding="utf-8", newline="")
    except OSError as error:
        raise InputError(
            f"{path}: cannot read the ontology ({error.strerror}); give a folder with "
            "entities.tsv and relations.tsv"
        ) from None
    with handle:
        reader = csv.reader(handle, delimiter="\t", quoting=csv.QUOTE_NONE)
        header = tuple(next(reader, ()))
        if header != tuple(columns):
            raise InputError(
                f"{path}: the header must be {' '.join(columns)}, got {' '.join(header) or 'empty'}"
            )
        for number, values in enumerate(reader, start=2):
            if not values:
                continue
            if len(values) != len(columns):
                raise InputError(
                    f"{path}, row {number}: {len(values)} fields, expected {len(columns)}"
                )
            yield dict(zip(columns, values, strict=True)), f"{path}, row {number}"


def _entry(row: dict[str, str], where: str) -> OntologyEntry:
    if not row["id"] or not row["name"]:
        raise InputError(f"{where}: an entity requires an id and a name")
    try:
        kind = EntityType(row["type"])
    except ValueError:
        known = ", ".join(EntityType)
        raise InputError(f"{where}: unknown type {row['type']!r}; choose from {known}") from None
    identifiers = {}
    for pair in filter(None, row["identifiers"].split(";")):
        key, mark, value = pair.partition("=")
        if not mark:
            raise InputError(f"{where}: identifier {pair!r} is not in the form KEY=value")
        identifiers[key] = value
    synonyms = tuple(s for s in (part.strip() for part in row["synonyms"].split("|")) if s)
    definition = None
    if row["definition"]:
        source = SOURCES.get(row["source"], row["source"])
        if not source:
            raise InputError(f'{where}: a definition requires a source, such as "own"')
        definition = f"{row['definition']} [{source}]"
    return OntologyEntry(row["id"], row["name"], kind, synonyms, definition, identifiers)


def _links(folder: Path, known: set[str]) -> Links:
    """Read the relations between entities; check that the entities exist and no rows conflict."""
    if not (folder / "related.tsv").exists():
        return Links()
    stated = (Link.BROADER, Link.OPPOSITE, Link.INVERSE_MEASURE)
    related: list[Related] = []
    said: dict[frozenset[str], str] = {}
    for row, where in _rows(folder, "related.tsv", LINK_COLUMNS):
        for column in ("id", "other"):
            if row[column] not in known:
                raise InputError(f"{where}: {row[column]!r} is not an id in entities.tsv")
        if row["relation"] not in stated:
            names = ", ".join(stated)
            raise InputError(f"{where}: unknown relation {row['relation']!r}; choose from {names}")
        if row["id"] == row["other"]:
            raise InputError(f"{where}: {row['id']!r} is related to itself")
        pair = frozenset((row["id"], row["other"]))
        if pair in said:
            raise InputError(
                f"{where}: {said[pair]} already relates these two entities; keep one relation"
            )
        said[pair] = where
        related.append(Related(row["id"], Link(row["relation"]), row["other"]))
    links = Links(related)
    for item in related:
        if item.relation is Link.BROADER and item.id in links.broader(item.other):
            raise InputError(
                f"{folder / 'related.tsv'}: {item.id!r} and {item.other!r} are each broader than "
                "the other"
            )
    return links


def _homonyms(folder: Path, known: set[str]) -> Homonyms:
    if not (folder / "homonyms.tsv").exists():
        return Homonyms()
    readings = []
    for row, where in _rows(folder, "homonyms.tsv", HOMONYM_COLUMNS):
        if not row["surface"]:
            raise InputError(f"{where}: a homonym requires a surface form")
        if row["entity"] and row["entity"] not in known:
            raise InputError(f"{where}: {row['entity']!r} is not an id in entities.tsv")
        near = tuple(word for word in row["near"].split("|") if word)
        readings.append(Homonym(row["surface"], near, row["entity"] or None))
    return Homonyms(readings)


def _relation(row: dict[str, str], where: str) -> RelationEntry:
    try:
        polarity = Polarity(row["polarity"])
        precedence = int(row["precedence"])
    except ValueError as error:
        raise InputError(f"{where}: {error}") from None
    patterns = tuple(p for p in (part.strip() for part in row["patterns"].split("|")) if p)
    return RelationEntry(
        row["canonical"], polarity, patterns, precedence, row["symmetric"] == "yes"
    )
