"""Names of cohort, ontology and graph by key, and the variables that measure them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from agents.question.labels import Labels, names_of
from agents.question.names import key_of, read_table, terms_of
from agents.question.types import CohortWords, QuestionInput, Supply
from kg.lexicon.ontology import Ontology, OntologyEntry
from kg.lexicon.terms import HAZARDS
from kg.types import EntityType
from validation.core.dictionary import Endpoint, Variable

SYMBOLS = (EntityType.GENE, EntityType.PROTEIN)
GENERIC = frozenset(name for row in read_table("too_broad.tsv") for name in row)
"""Names too general to be a part of a question."""
OF_DRUG = re.compile(r"(?:response|sensitivity|resistance|benefit) (?:to|from) (.+)")
CLASSES: dict[str, Literal["expression", "imaging", "any"]] = {
    "gene": "expression", "transcript": "expression", "mrna": "expression",
    "biomarker": "any", "marker": "any", "feature": "any", "factor": "any", "variable": "any",
    "predictor": "any", "imaging feature": "imaging", "histologic feature": "imaging",
    "morphologic feature": "imaging", "image feature": "imaging", "slide feature": "imaging",
    "spatial feature": "imaging", "imaging biomarker": "imaging", "imaging marker": "imaging",
    "gene expression": "expression",
}  # fmt: skip
FAMILIES = {
    "stromal": ("stroma_matrix",), "stroma": ("stroma_matrix",),
    "fibroblast": ("caf", "stroma_matrix"),
    "matrix": ("stroma_matrix",), "collagen": ("stroma_matrix",), "basal": ("basal",),
    "emt": ("emt",), "mesenchymal": ("emt",), "proliferation": ("proliferation",),
    "luminal": ("luminal",), "urothelial": ("luminal", "basal"), "b cell": ("b_cell",),
    "t cell": ("cd8_t_cell",), "exhaustion": ("t_cell_exhaustion",),
    "checkpoint": ("t_cell_exhaustion",), "immune checkpoint": ("t_cell_exhaustion",),
    "cytotoxic": ("cytolytic_activity", "cd8_t_cell"), "chemokine": ("tls_chemokines_12",),
    "interferon": ("ifng_6",), "tls": ("tls_chemokines_12",), "lymphoid": ("tls_chemokines_12",),
    "immune": ("cd8_t_cell", "b_cell", "ifng_6", "cytolytic_activity", "tls_chemokines_12"),
}  # fmt: skip
"""Gene families, with the registered signatures that list their members."""
ORGANS = (
    ("bladder", r"bladder|urotheli|\bblca\b|\bmuc\b|(?<=\bn)mibc\b|\bmibc\b"),
    ("breast", r"breast|mammar|\btnbc\b|\bbrca\b|\bmetabric\b"),
    ("lung", r"\blung\b|\bnsclc\b|\bluad\b|\blusc\b|pulmon"),
    ("prostate", r"prostat"),
    ("kidney", r"kidney|renal cell|\bccrcc\b|\bkirc\b"),
    ("colon and rectum", r"\bcolo|rectal|rectum|\bcrc\b|\bcoad\b"),
    ("stomach", r"gastric|stomach"),
    ("liver", r"hepatocell|liver cancer|\bhcc\b|\blihc\b"),
    ("pancreas", r"pancrea"),
    ("ovary", r"ovar"),
    ("cervix", r"cervi"),
    ("endometrium", r"endometri|uterine"),
    ("esophagus", r"esophag"),
    ("head and neck", r"head and neck|\bhnscc?\b"),
    ("skin", r"melanoma|skin cancer"),
    ("brain", r"gliobl|glioma|brain"),
    ("blood and lymph nodes", r"leukemia|lymphoma|myeloma|\bcll\b|\baml\b"),
    ("soft tissue", r"sarcoma\b(?! of the bladder)"),
)


def organ_of(text: str) -> str:
    """Return the organ whose cancer is named in a text, or an empty text."""
    lowered = text.casefold().replace("tumour", "tumor").replace("oesoph", "esoph")
    return next((organ for organ, pattern in ORGANS if re.search(pattern, lowered)), "")


def without_organ(text: str) -> str:
    """Remove the words that name the organ from a cancer's name, to leave what kind it is."""
    lowered = text.casefold()
    for _, pattern in ORGANS:
        lowered = re.sub(rf"\w*(?:{pattern})\w*", " ", lowered)
    return lowered


@dataclass(frozen=True)
class Concept:
    """A known concept, and the variables by which the cohort measures it."""

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
    open_to: Literal["", "expression", "imaging", "any"] = ""
    note: str = ""
    nearest: tuple[str, ...] = ()
    supply: tuple[Supply, ...] = field(default=())


class Vocabulary:
    """Index of names: `find` is exact up to spelling, `nearest` suggests similar names."""

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
            variable
            for variable in given.cohort.variables
            if variable.levels or variable.kind != "categorical"
        )
        self._endpoints = self._endpoint_names()
        self._measured = {key_of(row[0]): row for row in read_table("measured_as.tsv")}

    # -- lookups ----------------------------------------------------------------------------

    def find(self, phrase: str) -> Concept | None:
        """Find the concept of a phrase in the cohort's own labels first, then in the ontology."""
        key = key_of(phrase)
        if (known := self._class(key)) is not None:
            return known
        if key and (found := self._endpoint(phrase, key) or self._variable(phrase, key)):
            return found
        if not key or key in GENERIC:
            return None
        if (of := OF_DRUG.match(key)) and self.find(of[1]):
            return None
        known = self._entity(phrase, key) or self._gene(phrase)
        if known is not None and (known.kind in SYMBOLS or known.outcome or organ_of(known.name)):
            return known
        return self._variable(phrase, key, part=True) or known

    def is_outcome(self, phrase: str) -> bool:
        """Check whether a phrase names an endpoint."""
        return self._endpoint(phrase, key_of(phrase)) is not None

    def find_gene(self, symbol: str) -> Concept | None:
        """Find a measured gene by its symbol in any case, for words without another meaning."""
        gene = self._upper.get(symbol.upper().replace("-", ""))
        return self._of_gene(gene, symbol) if gene else None

    def nearest(self, phrase: str, limit: int = 3) -> tuple[str, ...]:
        """Suggest names that resemble the phrase: genes for a symbol, else any known name."""
        from rapidfuzz import fuzz, process

        symbol = bool(re.fullmatch(r"[A-Z0-9-]{3,}", phrase))
        names = list(self.genes) if symbol and self.genes else self._all_names
        found = process.extract(
            phrase if symbol else phrase.casefold(),
            names,
            scorer=fuzz.ratio,
            limit=limit,
            score_cutoff=65,
        )
        return tuple(dict.fromkeys(name for name, _, _ in found))

    def respelled(self, phrase: str) -> str:
        """Find the known name closest to a misspelled phrase; empty for symbols or short words."""
        from rapidfuzz import fuzz, process

        plain = phrase.casefold()
        if len(plain) < 8 or any(char.isdigit() for char in plain) or phrase.isupper():
            return ""
        found = process.extractOne(plain, self._all_names, scorer=fuzz.ratio, score_cutoff=86)
        return found[0] if found is not None and found[0][0] == plain[0] else ""

    def similar(self, phrase: str) -> tuple[str, ...]:
        """Suggest the cohort's labels that share words with a phrase, else names like it."""
        return tuple(self.labels.similar(phrase)[:3]) or self.nearest(phrase)

    @cached_property
    def _all_names(self) -> list[str]:
        names = [name for variable in self.cohort.variables for name in names_of(variable)]
        names += [endpoint.label for endpoint in self.cohort.endpoints]
        names += [name for row in read_table("endpoints.tsv") for name in row[1].split("|")]
        names += [row[0] for row in read_table("measured_as.tsv")]
        for entry in self.ontology.entries():
            if entry.type not in (EntityType.GENE, EntityType.PROTEIN, EntityType.ORGANISM):
                names += [entry.name, *(word for word in entry.synonyms if not word.isupper())]
        names += [node.name for node in self._graph.values() if node.kind is not EntityType.GENE]
        return list(dict.fromkeys(name.casefold() for name in names))

    # -- measurements in the cohort -----------------------------------------------------------

    def _endpoint_names(self) -> dict[str, tuple[str, Endpoint | None]]:
        """Map each outcome's name to its concept and the cohort's endpoint (or None)."""
        out: dict[str, tuple[str, Endpoint | None]] = {}
        for concept, asked, own in read_table("endpoints.tsv"):
            wanted = {terms_of(name) for name in own.split("|")}
            match = next(
                (
                    endpoint
                    for endpoint in self.cohort.endpoints
                    if wanted & {terms_of(name, label=True) for name in endpoint_names(endpoint)}
                    or (concept == "response" and key_of(endpoint.label).startswith("response"))
                ),
                None,
            )
            for name in (concept, *asked.split("|")):
                out.setdefault(key_of(name), (concept, match))
        for endpoint in self.cohort.endpoints:
            for name in endpoint_names(endpoint):
                out[key_of(name)] = (endpoint.label, endpoint)
        return out

    def _endpoint(self, phrase: str, key: str) -> Concept | None:
        if key == "survival":
            return self._any_survival()
        if key not in self._endpoints:
            return None
        name, endpoint = self._endpoints[key]
        if endpoint is None and self.labels.find(phrase, part=False):
            return None
        kind = EntityType.CLINICAL_ENDPOINT
        if endpoint is not None:
            return Concept(name=name, kind=kind, endpoint=endpoint.key, outcome=True)
        has = ", ".join(f"{item.key} ({item.label})" for item in self.cohort.endpoints) or "none"
        return Concept(
            name=name,
            kind=kind,
            outcome=True,
            nearest=tuple(item.key for item in self.cohort.endpoints),
            supply=(
                Supply(
                    kind="cohort variable",
                    how=f"{self.cohort.cohort} records no {name}; it has {has}",
                ),
            ),
        )

    def _any_survival(self) -> Concept:
        """Resolve a plain "survival": overall survival, else the cohort's survival endpoint."""
        _, overall = self._endpoints[key_of("overall survival")]
        if overall is not None:
            return Concept(
                name="overall survival",
                kind=EntityType.CLINICAL_ENDPOINT,
                endpoint=overall.key,
                outcome=True,
            )
        followed = [item for item in self.cohort.endpoints if item.kind == "survival"]
        if not followed:
            name = "overall survival"
            return self._endpoint(name, name) or Concept(name="", outcome=True)
        label = followed[0].label
        return Concept(
            name=label,
            kind=EntityType.CLINICAL_ENDPOINT,
            endpoint=followed[0].key,
            outcome=True,
            note=f'"survival" is read as {label.lower()}: {self.cohort.cohort} has no overall'
            " survival",
        )

    def _class(self, key: str) -> Concept | None:
        if key in CLASSES:
            return Concept(name=key, kind=EntityType.GENE if key == "gene" else None,
                           open_to=CLASSES[key])  # fmt: skip
        family, _, noun = key.rpartition(" ")
        if noun not in ("gene", "marker", "biomarker", "transcript", "feature", "variable"):
            return None
        if family in ("clinical", "imaging", "histologic"):
            modality = "imaging" if family != "clinical" else family
            keys = tuple(item.key for item in self.cohort.variables if item.modality == modality)
            return Concept(name=key, variables=keys, every=True)
        if family not in FAMILIES:
            return None
        genes = [
            gene
            for signature in FAMILIES[family]
            for gene in self.cohort.signature_genes.get(signature, ())
            if gene in self.genes
        ]
        keys = tuple(dict.fromkeys(self.genes[gene] for gene in genes))
        if noun != "gene":
            of_kind = [
                item.key
                for item in self.cohort.variables
                if item.modality == family
                or item.key.removeprefix("signature:") in FAMILIES[family]
            ]
            keys = (*of_kind, *keys)
        return Concept(name=f"{family} {noun}s", kind=EntityType.GENE, variables=keys, every=True)

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
        return Concept(
            name=variable.label,
            kind=entry.type if entry else None,
            ontology_id=entry.id if entry else "",
            graph_node=self._node(key, entry),
            variables=(variable.key, *also),
            nearest=self._others(phrase, variable) if part else (),
        )

    def _others(self, phrase: str, variable: Variable) -> tuple[str, ...]:
        """List the other labels that share words with a phrase, to choose from."""
        return tuple(name for name in self.labels.similar(phrase) if name != variable.label)[:3]

    def _gene(self, phrase: str) -> Concept | None:
        symbol = phrase.strip()
        if len(symbol) < 3 or symbol.lower() in HAZARDS:
            return None
        if symbol in self.genes:
            return self._of_gene(symbol, symbol)
        return None

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
        """Return an entity of ontology or graph with the variables that measure it."""
        entry = self._entry(phrase)
        node = self._graph.get(key)
        if node is not None and node.kind in SYMBOLS and phrase not in self._graph_exact:
            node = None
        row = self._row(key) or (self._row(key_of(entry.name)) if entry else None)
        if entry is None and node is None and row is None:
            return None
        name = entry.name if entry else node.name if node else row[0] if row else phrase
        if key_of(name) in GENERIC:
            return None
        kind = entry.type if entry else node.kind if node else None
        found = Concept(
            name=name,
            kind=kind,
            ontology_id=entry.id if entry else "",
            graph_node=self._node(key, entry),
            outcome=kind is EntityType.CLINICAL_ENDPOINT,
        )
        if found.outcome:
            own = self._endpoint(name, key_of(name)) if name != phrase else None
            return own or replace(found, supply=self._missing(found))
        if kind in SYMBOLS:
            gene = self._measured_gene(entry, name)
            if gene is not None:
                return replace(self._of_gene(gene, gene), name=gene)
        found = self._by_row(found, row)
        if not found.variables and entry is not None:
            for synonym in (entry.name, *entry.synonyms):
                variable = self.labels.find(synonym, part=False)
                if variable is not None:
                    found = replace(found, variables=(variable.key,))
                    break
        if found.variables:
            return found
        return replace(found, supply=self._missing(found), nearest=())

    def _row(self, key: str) -> tuple[str, ...] | None:
        """Find how a concept is measured; infiltration by cells is measured by cell counts."""
        return self._measured.get(key) or self._measured.get(key.removesuffix(" infiltration"))

    def _by_row(self, found: Concept, row: tuple[str, ...] | None) -> Concept:
        if row is None:
            return found
        _, names, markers, why = row
        keys = [
            variable.key
            for name in filter(None, names.split("|"))
            if (variable := self.labels.find(name, part=False)) is not None
        ]
        if keys:
            return replace(found, variables=tuple(dict.fromkeys(keys)))
        genes = [gene for gene in filter(None, markers.split("|")) if gene in self.genes]
        if not genes:
            return found
        return replace(
            found,
            variables=tuple(self.genes[gene] for gene in genes),
            stands_in=f"{', '.join(genes)}: {why}",
        )

    def _measured_gene(self, entry: OntologyEntry | None, name: str) -> str | None:
        if entry is None:
            return name if name in self.genes else None
        if entry.type is EntityType.GENE:
            return entry.name if entry.name in self.genes else None
        names = [entry.name, *entry.synonyms]
        direct = next((gene for gene in names if gene in self.genes), None)
        if direct is not None:
            return direct
        keys = {key_of(word) for word in names}
        for other in self.ontology.entries():
            measured = other.type is EntityType.GENE and other.name in self.genes
            if measured and keys & {key_of(word) for word in (other.name, *other.synonyms)}:
                return other.name
        return None

    def _missing(self, concept: Concept) -> tuple[Supply, ...]:
        """Describe a missing measurement and its remedy."""
        cohort = self.cohort.cohort
        on_slides = (EntityType.IMAGING_FEATURE, EntityType.TISSUE_REGION)
        if concept.kind in (EntityType.GENE, EntityType.PROTEIN, EntityType.SIGNATURE):
            has = f"{len(self.genes)} genes" if self.genes else "no gene expression"
            how = f"{cohort} measures {has}, and not {concept.name}: a cohort that does is needed"
            return (Supply(kind="cohort variable", how=how),)
        if concept.kind in on_slides:
            how = (
                f"{cohort} has no measurement of {concept.name}: one on its slides would supply it"
                " (`sage tools`, then --features)"
            )
            return (Supply(kind="slide measurement", how=how),)
        if concept.kind in (EntityType.TREATMENT, EntityType.CHEMICAL):
            how = (
                f"{cohort} does not record {concept.name}: a variable of who received it (and when)"
                " would supply it"
            )
            return (Supply(kind="cohort variable", how=how),)
        how = f"{cohort} has no variable for {concept.name}: add one to its cohort.toml"
        return (Supply(kind="cohort variable", how=how),)

    def _entry(self, phrase: str) -> OntologyEntry | None:
        return self.ontology.find(phrase) or self._entries.get(key_of(phrase))

    @cached_property
    def _entries(self) -> dict[str, OntologyEntry]:
        out: dict[str, OntologyEntry] = {}
        listed = [entry for entry in self.ontology.entries() if entry.type not in SYMBOLS]
        for entry in listed:
            out.setdefault(key_of(entry.name), entry)
        for entry in listed:
            for synonym in entry.synonyms:
                if len(synonym) > 3:
                    out.setdefault(key_of(synonym), entry)
        return out

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
