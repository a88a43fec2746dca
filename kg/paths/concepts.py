"""Mapping of a prompt to nodes, classes of nodes, and the domain.

A prompt names entities ("TLS"), classes of entities ("genes", "survival endpoints") and a setting
("in bladder cancer"). Entities are matched lexically first, then by spelling, then by embedding.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kg.embedding.embed import Embedder, FloatArray
from kg.fusion.names import lexical_key
from kg.graph.arrays import TYPES
from kg.graph.model import Graph
from kg.lexicon.phrases import Word, is_code, phrases_at, split_words, unmatched_runs
from kg.types import ConceptMatch, EntityType
from sage.core.errors import InputError

#: Words that denote a class of nodes.
CLASS_WORDS: dict[str, tuple[EntityType, ...]] = {
    "gene": (EntityType.GENE,),
    "biomarker": (EntityType.GENE, EntityType.PROTEIN, EntityType.SIGNATURE),
    "marker": (EntityType.GENE, EntityType.PROTEIN, EntityType.SIGNATURE),
    "protein": (EntityType.PROTEIN, EntityType.GENE),
    "pathway": (EntityType.PATHWAY, EntityType.BIOLOGICAL_PROCESS),
    "process": (EntityType.BIOLOGICAL_PROCESS, EntityType.PATHWAY),
    "mechanism": (EntityType.BIOLOGICAL_PROCESS, EntityType.PATHWAY),
    "disease": (EntityType.DISEASE,),
    "cell type": (EntityType.CELL_TYPE,),
    "cell line": (EntityType.CELL_LINE,),
    "tissue": (EntityType.TISSUE_REGION,),
    "imaging feature": (EntityType.IMAGING_FEATURE,),
    "histologic feature": (EntityType.IMAGING_FEATURE, EntityType.TISSUE_REGION),
    "morphologic feature": (EntityType.IMAGING_FEATURE, EntityType.TISSUE_REGION),
    "morphology": (EntityType.IMAGING_FEATURE, EntityType.TISSUE_REGION),
    "stain": (EntityType.STAINING_METHOD,),
    "staining method": (EntityType.STAINING_METHOD,),
    "treatment": (EntityType.TREATMENT, EntityType.CHEMICAL),
    "therapy": (EntityType.TREATMENT,),
    "drug": (EntityType.TREATMENT, EntityType.CHEMICAL),
    "chemical": (EntityType.CHEMICAL,),
    "endpoint": (EntityType.CLINICAL_ENDPOINT,),
    "outcome": (EntityType.CLINICAL_ENDPOINT,),
    "clinical endpoint": (EntityType.CLINICAL_ENDPOINT,),
    "clinical outcome": (EntityType.CLINICAL_ENDPOINT,),
    "survival": (EntityType.CLINICAL_ENDPOINT,),
    "prognosis": (EntityType.CLINICAL_ENDPOINT,),
    "clinical factor": (EntityType.CLINICAL_FACTOR,),
    "signature": (EntityType.SIGNATURE,),
    "gene signature": (EntityType.SIGNATURE,),
    "mutation": (EntityType.MUTATION,),
    "algorithm": (EntityType.ALGORITHM,),
    "cohort": (EntityType.COHORT,),
}
_MOLECULES = (EntityType.GENE, EntityType.PROTEIN, EntityType.OTHER, EntityType.CHEMICAL)
_MICRORNA = r"^(hsa-)?(mir|mirna|microrna|let)s?[- ]?\d"
_LNCRNA = (
    r"lncrna|long non-?coding|^(LINC\d+|MALAT1|NEAT1|HOTAIR|H19|UCA1|MEG3|GAS5|XIST|TUG1|PVT1)$"
)
#: Words that denote nodes of certain types whose names match a pattern.
NAMED_CLASSES: dict[str, str] = {
    "microrna": _MICRORNA,
    "mirna": _MICRORNA,
    "lncrna": _LNCRNA,
    "long non-coding rna": _LNCRNA,
    "chemokine": r"chemokine|^C?X?3?CL\d+|^CC ?L\d+",
    "interleukin": r"interleukin|^IL-?\d+",
    "cytokine": r"cytokine|interleukin|interferon|^IL-?\d+|^IFN|^TNF$|^TGF-?B",
    "collagen": r"collagen|^COL\d+A\d+$",
    "integrin": r"integrin|^ITG[AB]\d*",
    "fatty acid-binding protein": r"fatty acid.binding protein|^FABP\d+$",
}


@dataclass(frozen=True)
class NodeClass:
    """A class of nodes in a prompt, defined by types and optionally a pattern for names."""

    types: tuple[EntityType, ...]
    named: str = ""

    def members(self, graph: Graph) -> NDArray[np.int32]:
        """Find the positions of the nodes in this class."""
        kinds = [TYPES.index(kind) for kind in self.types]
        found = np.flatnonzero(np.isin(graph.types, kinds)).astype(np.int32)
        if not self.named:
            return found
        pattern = re.compile(self.named, re.IGNORECASE)
        fit = [bool(pattern.search(graph.names[node])) for node in found.tolist()]
        return found[np.array(fit, dtype=np.bool_)]


_CLASS_KEYS = {lexical_key(words): NodeClass(types) for words, types in CLASS_WORDS.items()}
_CLASS_KEYS |= {lexical_key(words): NodeClass(_MOLECULES, n) for words, n in NAMED_CLASSES.items()}
_SETTING = frozenset({"in", "within", "among"})
_FILLER = frozenset({"a", "an", "the", "human", "patients", "patient", "with", "of", "having"})
_NUMBER = re.compile(r"\d+")
#: Minimum cosine at which a phrase counts as naming a node.
NEAR = 0.6


@dataclass
class Understanding:
    """The concepts of a prompt, with nodes given as positions in the graph."""

    prompt: str
    concepts: list[ConceptMatch] = field(default_factory=list)
    nodes: list[int] = field(default_factory=list)
    classes: list[tuple[str, NodeClass]] = field(default_factory=list)
    domain: str | None = None
    domain_node: int | None = None
    unmatched: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def parse_prompt(graph: Graph, prompt: str, embedder: Embedder | None) -> Understanding:
    """Parse the concepts, classes and setting of a prompt.

    Parameters
    ----------
    embedder : used to match phrases that do not spell any name; None to match only by
        spelling
    """
    out = Understanding(prompt)
    words = split_words(prompt)
    matched: set[int] = set()
    at = 0
    while at < len(words):
        step = _match_at(graph, prompt, words, at, out)
        matched.update(range(at, at + step))
        at += max(1, step)
    for first, last in unmatched_runs(prompt, words, matched):
        phrase = prompt[words[first].start : words[last - 1].end]
        match = _near(graph, phrase, embedder)
        if match is None:
            out.unmatched.append(phrase)
        elif match.node_id not in {c.node_id for c in out.concepts}:
            out.concepts.append(match)
            out.nodes.append(graph.position[match.node_id])
    if out.domain is None:
        _choose_domain(graph, out)
    return out


def _match_at(graph: Graph, prompt: str, words: Sequence[Word], at: int, out: Understanding) -> int:
    """Match a node or class at word `at`; return the number of words matched, 0 if none."""
    for size, phrase in phrases_at(prompt, words, at):
        classes = _CLASS_KEYS.get(lexical_key(phrase))
        node = _match_spelling(graph, phrase)
        setting = _after_setting(words, at)
        if classes is not None and (node is None or graph.types[node] in _numbers(classes.types)):
            if (phrase, classes) not in out.classes:
                out.classes.append((phrase, classes))
            return size
        if node is None:
            continue
        match = ConceptMatch(
            phrase=phrase,
            node_id=graph.ids[node],
            name=graph.names[node],
            type=TYPES[graph.types[node]],
            how="name",
            score=1.0,
        )
        if setting and TYPES[graph.types[node]] in (EntityType.DISEASE, EntityType.COHORT):
            out.domain, out.domain_node = phrase, node
            out.concepts.append(match.model_copy(update={"how": "name, the setting"}))
        elif node not in out.nodes:
            out.concepts.append(match)
            out.nodes.append(node)
        return size
    return 0


def _numbers(classes: Sequence[EntityType]) -> set[int]:
    return {TYPES.index(c) for c in classes}


def _match_spelling(graph: Graph, phrase: str) -> int | None:
    """Find the node whose name the phrase spells; "was", "cat" and "max" are not gene symbols."""
    node = graph.exact(phrase)
    if node is None or not _may_be_a_word(phrase) or TYPES[graph.types[node]] not in _SYMBOLS:
        return node
    view = graph.node(node)
    return node if phrase in (view.name, *view.aliases, *view.synonyms) else None


_SYMBOLS = (EntityType.GENE, EntityType.PROTEIN)


def _may_be_a_word(phrase: str) -> bool:
    return not is_code(phrase) and " " not in phrase and len(phrase) <= 5


def _another_gene(phrase: str, name: str) -> bool:
    """Check whether a phrase must not match a gene by similarity alone, e.g. another symbol."""
    symbol = " " not in phrase and sum(c.isupper() for c in phrase) >= 2
    numbered = _NUMBER.findall(phrase) != _NUMBER.findall(name)
    return symbol or numbered or _may_be_a_word(phrase)


def _after_setting(words: Sequence[Word], at: int) -> bool:
    back = at - 1
    while back >= 0 and words[back].text.casefold() in _FILLER:
        back -= 1
    return back >= 0 and words[back].text.casefold() in _SETTING


def _near(graph: Graph, phrase: str, embedder: Embedder | None) -> ConceptMatch | None:
    for match in graph.find(phrase, 1):
        if match.how == "similar spelling" and match.score >= 0.93 and len(phrase) >= 6:
            from rapidfuzz.fuzz import ratio

            same = _NUMBER.findall(phrase) == _NUMBER.findall(match.name)
            if same and ratio(phrase.casefold(), match.name.casefold()) >= 88:
                return match
    if embedder is None or not graph.n_nodes:
        return None
    vectors = node_vectors(graph, embedder)
    if vectors is None:
        return None
    cosine = vectors @ embedder.embed([phrase])[0]
    best = int(np.argmax(cosine))
    gene = TYPES[graph.types[best]] in _SYMBOLS
    if cosine[best] < NEAR or (gene and _another_gene(phrase, graph.names[best])):
        return None
    return ConceptMatch(
        phrase=phrase,
        node_id=graph.ids[best],
        name=graph.names[best],
        type=TYPES[graph.types[best]],
        how="embedding",
        score=round(float(cosine[best]), 4),
    )


#: A graph without its own vectors is embedded on demand if it has at most this many nodes.
_ON_THE_SPOT = 3000


def node_vectors(graph: Graph, embedder: Embedder) -> FloatArray | None:
    """Return the (n, d) vectors of all node names, or None for a large graph without vectors.

    Raises
    ------
    InputError
        If the graph contains vectors from another model.
    """
    check_embedder(graph, embedder)
    if graph.vectors is None and graph.n_nodes <= _ON_THE_SPOT:
        graph.vectors = embedder.embed(graph.names)
        graph.meta["embedder"] = embedder.name
    return graph.vectors


def check_embedder(graph: Graph, embedder: Embedder) -> None:
    """Raise InputError if the graph has vectors from a model other than the embedder's."""
    if graph.vectors is None:
        return
    if graph.embedder != embedder.name or graph.vectors.shape[1] != embedder.dimension:
        raise InputError(
            f"the graph was embedded with {graph.embedder} ({graph.vectors.shape[1]} "
            f"dimensions), but the current embedding model is {embedder.name} "
            f"({embedder.dimension}); set embedding_model to {graph.embedder}, or "
            "rebuild the graph with the current model."
        )


def _choose_domain(graph: Graph, out: Understanding) -> None:
    """Use the prompt's only disease as the domain if it names enough other concepts.

    The prompt must name three or more entities, or two entities and a class.
    """
    diseases = [n for n in out.nodes if TYPES[graph.types[n]] == EntityType.DISEASE]
    if len(diseases) == 1 and (len(out.nodes) >= 3 or (len(out.nodes) == 2 and out.classes)):
        node = diseases[0]
        out.domain = out.domain or graph.names[node]
        out.domain_node = node
        out.nodes.remove(node)
