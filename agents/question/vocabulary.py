"""Names in the cohort, ontology and graph, and the variables that measure them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from agents.question.labels import Labels, LevelMatch, names_of
from agents.question.names import OPTIONAL, key_of, read_table, terms_of, word_list
from agents.question.subgroups import find_numbers
from agents.question.types import CohortWords, QuestionInput
from kg.lexicon.ontology import Ontology, OntologyEntry
from kg.lexicon.phrases import STOP_WORDS, is_code
from kg.lexicon.terms import HAZARDS
from kg.types import EntityType
from validation.core.dictionary import Endpoint
from validation.core.hypothesis import Filter

Open = Literal["", "expression", "imaging", "any"]
SYMBOLS = (EntityType.GENE, EntityType.PROTEIN)
GENERIC = frozenset(name for row in read_table("too_broad.tsv") for name in row)
"""Names too general to be part of a question."""
OF_DRUG = re.compile(r"(?:response|sensitivity|resistance|benefit) (?:to|from) (.+)")
PEOPLE = re.compile(r"(?:wo)?m[ae]n|(?:fe)?males?|(?:\w+[- ])?smokers")
CLASSES: dict[str, Open] = {
    "gene": "expression", "transcript": "expression", "mrna": "expression",
    "gene expression": "expression", "imaging": "imaging", "histologic": "imaging",
    "morphologic": "imaging", "image": "imaging", "slide": "imaging", "spatial": "imaging",
}  # fmt: skip
NOUNS = ("biomarker", "marker", "feature", "factor", "variable", "predictor")
"""Nouns for anything that a cohort measures, used by themselves or after a class."""


@dataclass(frozen=True)
class Concept:
    """A known concept, and the variables or conditions by which the cohort represents it."""

    name: str
    kind: EntityType | None = None
    graph_node: str = ""
    ontology_id: str = ""
    variables: tuple[str, ...] = ()
    stands_in: str = ""
    endpoint: str = ""
    outcome: bool = False
    """True for an endpoint, whether or not the cohort has it."""
    every: bool = False
    open_to: Open = ""
    note: str = ""
    nearest: tuple[str, ...] = ()
    supply: str = ""
    condition: bool = False
    """True for a patient group, even if the cohort cannot distinguish it."""
    level: LevelMatch | None = field(default=None, compare=False)
    filters: tuple[Filter, ...] = ()

    @classmethod
    def of_level(cls, level: LevelMatch) -> Concept:
        """Return the concept for patients at the given levels."""
        label = level.variable.label
        return cls(label, condition=True, level=level, filters=level.filters)

    @property
    def measured(self) -> bool:
        """True if the cohort represents the concept."""
        return bool(self.variables or self.filters or self.endpoint or self.open_to)

    @property
    def disease(self) -> bool:
        """True for a cancer in an organ."""
        return self.kind is EntityType.DISEASE and bool(organ_of(self.name))

    @property
    def about(self) -> str:
        """The variable used in the condition; empty without a condition."""
        return self.filters[0].variable if self.filters else ""


class Vocabulary:
    """Index of names: `find` is exact up to spelling, `similar` suggests names."""

    def __init__(self, given: QuestionInput, ontology: Ontology) -> None:
        self.cohort: CohortWords = given.cohort
        self.ontology = ontology
        self.genes = {gene: f"expression:{gene}" for gene in given.cohort.genes}
        self._upper = {gene.upper(): gene for gene in given.cohort.genes}
        self._graph = {
            key_of(name): node for node in given.graph for name in (*node.aliases, node.name)
        }
        self._graph_exact = {name for node in given.graph for name in (node.name, *node.aliases)}
        self.labels = Labels(
            (it for it in given.cohort.variables if it.levels or it.kind != "categorical"),
            frozenset(term for key in self._entries for term in terms_of(key)),
        )
        self._endpoints = self._endpoint_names()
        self._measured = {key_of(row[0]): row for row in read_table("measured_as.tsv")}

    def find(self, phrase: str, *, patients: bool = False) -> Concept | None:
        """Find the concept that a phrase names: first in the cohort's terms, then the ontology.

        The cohort's endpoints, labels and levels come first, then parts of its labels, then what
        measures a synonym of the ontology, then what nothing measures. A level without the name
        of its variable counts if the phrase names `patients`, or if it is nothing else.
        """
        key = key_of(phrase)
        if not key or ((of := OF_DRUG.match(key)) and self.find(of[1])):
            return None
        outcome = self._endpoint(key)
        measured = outcome if outcome and outcome.endpoint else None
        if known := measured or self._variable(phrase, key) or self._class(key):
            return known
        level = self.find_level(phrase)
        bare = level is not None and level.level is not None and level.level.bare
        if level and (not bare or patients or is_code(phrase) or PEOPLE.fullmatch(phrase.lower())):
            return level
        if key in GENERIC:
            return outcome
        known = self._entity(phrase, key)
        if known is None and len(phrase) > 2 and phrase.lower() not in HAZARDS:
            known = self._of_gene(phrase, phrase) if phrase in self.genes else None
        if known is not None and (known.kind in SYMBOLS or organ_of(known.name)):
            return known
        return self._variable(phrase, key, part=True) or outcome or known or level

    def find_gene(self, symbol: str) -> Concept | None:
        """Find a measured gene by its case-insensitive symbol, if the word has no other meaning."""
        gene = self._upper.get(symbol.upper().replace("-", ""))
        return self._of_gene(gene, symbol) if gene else None

    def respelled(self, phrase: str) -> str:
        """Find the known name closest to a misspelled phrase; empty for symbols or short words."""
        from rapidfuzz import fuzz, process

        plain = phrase.casefold()
        if len(plain) < 8 or any(char.isdigit() for char in plain) or phrase.isupper():
            return ""
        names = [*self._all_names, *word_list("function"), *STOP_WORDS]
        found = process.extractOne(plain, names, scorer=fuzz.ratio, score_cutoff=86)
        return found[0] if found is not None and found[0][0] == plain[0] else ""

    def similar(self, phrase: str) -> tuple[str, ...]:
        """Suggest labels that share words with a phrase, else names spelled like it."""
        from rapidfuzz import fuzz, process

        symbol = bool(re.fullmatch(r"[A-Z0-9-]{3,}", phrase))
        names = list(self.genes) if symbol and self.genes else self._all_names
        words = phrase if symbol else phrase.casefold()
        found = process.extract(words, names, scorer=fuzz.ratio, limit=3, score_cutoff=65)
        near = [(name, self.find(name)) for name in dict.fromkeys(name for name, _, _ in found)]
        measured = tuple(name for name, concept in near if concept and concept.measured)
        return tuple(self.labels.similar(phrase)[:3]) or measured

    @cached_property
    def _all_names(self) -> list[str]:
        names = [name for variable in self.cohort.variables for name in names_of(variable)]
        names += [endpoint.label for endpoint in self.cohort.endpoints]
        names += [name for row in read_table("endpoints.tsv") for name in row[1].split("|")]
        names += [row[0] for row in read_table("measured_as.tsv")]
        for entry in self.ontology.entries():
            if entry.type not in (*SYMBOLS, EntityType.ORGANISM):
                names += [entry.name, *(word for word in entry.synonyms if not word.isupper())]
        names += [node.name for node in self._graph.values() if node.kind is not EntityType.GENE]
        return list(dict.fromkeys(name.casefold() for name in names))

    def _endpoint_names(self) -> dict[str, tuple[str, Endpoint | None]]:
        """Map each outcome's name to its concept and the cohort's endpoint (or None)."""
        out: dict[str, tuple[str, Endpoint | None]] = {}
        own = self.cohort.endpoints
        for concept, asked, names in read_table("endpoints.tsv"):
            wanted = {terms_of(name) for name in names.split("|")}
            matches = (
                endpoint
                for endpoint in own
                if wanted & {terms_of(name, label=True) for name in endpoint_names(endpoint)}
                or (concept == "response" and key_of(endpoint.label).startswith("response"))
            )
            match = next(matches, None)
            for name in (concept, *asked.split("|")):
                out.setdefault(key_of(name), (concept, match))
        out |= {key_of(name): (it.label, it) for it in own for name in endpoint_names(it)}
        _, overall = out[key_of("overall survival")]
        followed = next((item for item in own if item.kind == "survival"), None)
        out["survival"] = ("overall survival", overall)
        if overall is None and followed is not None:
            out["survival"] = (followed.label, followed)
        return out

    def _endpoint(self, key: str) -> Concept | None:
        if key not in self._endpoints:
            return None
        name, endpoint = self._endpoints[key]
        found = Concept(name, EntityType.CLINICAL_ENDPOINT, outcome=True)
        if endpoint is None:
            has = ", ".join(f"{it.key} ({it.label})" for it in self.cohort.endpoints) or "none"
            keys = tuple(item.key for item in self.cohort.endpoints)
            how = f"{self.cohort.cohort} records no {name}; it has {has}"
            return replace(found, nearest=keys, supply=how)
        plain = key == "survival" and name != "overall survival"
        said = f'"survival" is read as {name.lower()}: {self.cohort.cohort} has no overall survival'
        return replace(found, endpoint=endpoint.key, note=said if plain else "")

    def is_good(self, name: str) -> bool | None:
        """Check whether an outcome's event is good for patients; None if SAGE does not know."""
        concept, endpoint = self._endpoints.get(key_of(name), (name, None))
        if endpoint is not None and endpoint == self._endpoints[key_of("response")][1]:
            return True
        known = any(concept == row[0] for row in read_table("endpoints.tsv"))
        timed = endpoint is not None and endpoint.kind not in ("binary", "continuous")
        return concept == "response" if known or endpoint is None else False if timed else None

    def _class(self, key: str) -> Concept | None:
        family, _, noun = key.rpartition(" ")
        if key in CLASSES and CLASSES[key] == "expression":
            return Concept(key, EntityType.GENE if key == "gene" else None, open_to="expression")
        if noun not in (*NOUNS, "gene", "transcript"):
            return None
        if not family or family in CLASSES:
            return Concept(key, open_to=CLASSES.get(family, "any"))
        own = tuple(it.key for it in self.cohort.variables if it.modality == family)
        if family == "clinical":
            return Concept(key, variables=own, every=True)
        wanted = terms_of(family)
        signatures = self.cohort.signature_genes.items() if wanted else ()
        keys = [
            self.genes[gene]
            for name, genes in signatures
            if wanted <= terms_of(name, label=True)
            for gene in genes
            if gene in self.genes
        ]
        if noun != "gene":
            scores = (it for it in self.cohort.variables if it.key.startswith("signature:"))
            keys = [*own, *(it.key for it in scores if wanted <= terms_of(it.label)), *keys]
        if not keys:
            return None
        listed = tuple(dict.fromkeys(keys))
        return Concept(f"{family} {noun}s", EntityType.GENE, variables=listed, every=True)

    def find_level(self, phrase: str, *, present: bool | None = None) -> Concept | None:
        """Find the patients described by a composite name ("triple-negative") or a level.

        `present` indicates whether they are the patients with, or without, the named
        characteristic.
        """
        wanted = terms_of(phrase) - OPTIONAL if present is None else None
        for name, listed in read_table("composites.tsv"):
            if wanted != terms_of(name) - OPTIONAL:
                continue
            found = [
                numbers[0].filters if (numbers := find_numbers(text, self.labels)) else
                level.filters if (level := self.labels.level(text)) else ()
                for text in listed.split("|")
            ]  # fmt: skip
            if any(found):
                whole = tuple(item for filters in found for item in filters) if all(found) else ()
                return Concept(phrase, condition=True, filters=whole)
        level = self.labels.level(phrase, present=present)
        if level is None and re.fullmatch(r"[^( ]+( [^( ]+)+", phrase):  # "levamisole plus 5-FU"
            entries = [(word, self._entry(word)) for word in phrase.split()]
            named = " ".join(entry.name if entry else word for word, entry in entries)
            level = self.labels.level(named, present=present) if named != phrase else None
        return Concept.of_level(level) if level else None

    def _variable(self, phrase: str, key: str, *, part: bool = False) -> Concept | None:
        variable = self.labels.find(phrase, part=part)
        if variable is None:
            return None
        # Names with two measurements in the cohort (stroma on slides, stroma as transcripts).
        also = [
            item.key
            for item in self.cohort.variables
            if item.key != variable.key and key in {key_of(name) for name in names_of(item)}
        ]
        entry = self._entry(key)
        others = [it.label for _, it in self.labels.nearest(self.labels.terms(phrase))]
        return Concept(
            name=variable.label,
            kind=entry.type if entry else None,
            ontology_id=entry.id if entry else "",
            graph_node=self._node(key, entry),
            variables=(variable.key, *also),
            nearest=tuple(name for name in others if name != variable.label)[:3] if part else (),
        )

    def _of_gene(self, gene: str, asked: str) -> Concept:
        entry = self.ontology.find(gene)
        return Concept(
            name=gene,
            kind=EntityType.GENE,
            ontology_id=entry.id if entry else "",
            graph_node=self._node(key_of(gene), entry),
            variables=(self.genes[gene],),
            note="" if asked == gene else f'"{asked}" is read as the gene {gene}',
        )

    def _entity(self, phrase: str, key: str) -> Concept | None:
        """Return an ontology or graph entity with the variables that measure it."""
        entry = self._entry(phrase)
        node = self._graph.get(key)
        if node is not None and node.kind in SYMBOLS and phrase not in self._graph_exact:
            node = None
        row = self._row(key) or (self._row(key_of(entry.name)) if entry else None)
        name = entry.name if entry else node.name if node else row[0] if row else ""
        if not name or key_of(name) in GENERIC:
            return None
        kind = entry.type if entry else node.kind if node else None
        outcome = kind is EntityType.CLINICAL_ENDPOINT
        found = Concept(
            name, kind, self._node(key, entry), entry.id if entry else "", outcome=outcome
        )
        if outcome:
            return self._endpoint(key_of(name)) or replace(found, supply=self._missing(found))
        if kind in SYMBOLS and (gene := self._measured_gene(entry, name)):
            return self._of_gene(gene, gene)
        for synonym in self._synonyms(entry, row):
            if variable := self.labels.find(synonym, part=False):
                return replace(found, variables=(variable.key,))
            level = self.labels.level(synonym)
            if level is not None and not level.bare:
                return replace(Concept.of_level(level), kind=kind, ontology_id=found.ontology_id)
        genes = [gene for gene in (row[2].split("|") if row else ()) if gene in self.genes]
        if row and genes:
            keys = tuple(self.genes[gene] for gene in genes)
            return replace(found, variables=keys, stands_in=f"{', '.join(genes)}: {row[3]}")
        return replace(found, supply=self._missing(found))

    def _row(self, key: str) -> tuple[str, ...] | None:
        """Find the measurement for a concept; cell infiltration is measured by cell counts."""
        return self._measured.get(key) or self._measured.get(key.removesuffix(" infiltration"))

    def _synonyms(self, entry: OntologyEntry | None, row: tuple[str, ...] | None) -> Iterator[str]:
        """List the names under which a cohort may measure an entity, closest first."""
        yield from filter(None, row[1].split("|") if row else ())
        if entry is not None and entry.type not in SYMBOLS:
            yield from (entry.name, *entry.synonyms)

    def _measured_gene(self, entry: OntologyEntry | None, name: str) -> str | None:
        if entry is None or entry.type is EntityType.GENE:
            name = entry.name if entry else name
            return name if name in self.genes else None
        names = [entry.name, *entry.synonyms]
        keys = {key_of(word) for word in names}
        genes = (
            it.name
            for it in self.ontology.entries()
            if it.type is EntityType.GENE
            and it.name in self.genes
            and keys & {key_of(word) for word in (it.name, *it.synonyms)}
        )
        return next((gene for gene in names if gene in self.genes), None) or next(genes, None)

    def _missing(self, concept: Concept) -> str:
        """Describe a missing measurement and its remedy."""
        cohort, name = self.cohort.cohort, concept.name
        if concept.kind in (*SYMBOLS, EntityType.SIGNATURE):
            has = f"{len(self.genes)} genes" if self.genes else "no gene expression"
            return f"{cohort} measures {has}, and not {name}: a cohort that does is needed"
        if concept.kind in (EntityType.IMAGING_FEATURE, EntityType.TISSUE_REGION):
            return (
                f"{cohort} has no measurement of {name}: one on its slides would supply it"
                " (`sage tools`, then --features)"
            )
        if concept.kind in (EntityType.TREATMENT, EntityType.CHEMICAL):
            return (
                f"{cohort} does not record {name}: a variable of who received it (and when)"
                " would supply it"
            )
        return f"{cohort} has no variable for {name}: add one to its cohort.toml"

    def _entry(self, phrase: str) -> OntologyEntry | None:
        known = self.ontology.find(phrase) or self._entries.get(key_of(phrase))
        return known or (self._cancers.get(kind_of(phrase)) if organ_of(phrase) else None)

    @cached_property
    def _cancers(self) -> dict[tuple[str, frozenset[str]], OntologyEntry]:
        listed = (it for it in self.ontology.entries() if it.type is EntityType.DISEASE)
        return {kind_of(entry.name): entry for entry in listed if organ_of(entry.name)}

    @cached_property
    def _entries(self) -> dict[str, OntologyEntry]:
        listed = [entry for entry in self.ontology.entries() if entry.type not in SYMBOLS]
        names = [(entry.name, entry) for entry in listed]
        names += [(name, entry) for entry in listed for name in entry.synonyms if len(name) > 3]
        return {key_of(name): entry for name, entry in reversed(names)}

    def _node(self, key: str, entry: OntologyEntry | None) -> str:
        names: Iterable[str] = (entry.name, *entry.synonyms) if entry else ()
        for name in (key, *(key_of(word) for word in names)):
            if name in self._graph:
                return self._graph[name].name
        return ""


def endpoint_names(endpoint: Endpoint) -> tuple[str, ...]:
    """Return the names of an endpoint."""
    label = re.sub(r"\s*\(.*?\)", "", endpoint.label)
    return (endpoint.key, endpoint.key.replace("_", " "), endpoint.label, label)


def organ_of(text: str) -> str:
    """Return the organ whose cancer is named in a text, or an empty text."""
    lowered = text.casefold().replace("tumour", "tumor").replace("oesoph", "esoph")
    return next((row[0] for row in read_table("organs.tsv") if re.search(row[1], lowered)), "")


def kind_of(text: str) -> tuple[str, frozenset[str]]:
    """Return the organ in a cancer's name, and the terms for its type."""
    return organ_of(text), terms_of(without_organ(text))


def without_organ(text: str) -> str:
    """Remove the organ from a cancer's name, leaving the words for its type."""
    lowered = text.casefold()
    for _, words, _ in read_table("organs.tsv"):
        lowered = re.sub(rf"\w*(?:{words})\w*", " ", lowered)
    return lowered
