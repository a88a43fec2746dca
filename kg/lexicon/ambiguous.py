"""Short names with several meanings, which are mentions only if the document supports one.

A name such as CHOP, PSA or SCC has a meaning if the document contains a long name of it, or most of
that name's identifying words, or if the name is next to a word of its class (`the AR gene`,
`SCC patients`). An abbreviation of the ontology that is not a gene's (TLS, EMT) also counts among
other names of the ontology. If no meaning or more than one is supported, it is not a mention.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache

from kg.lexicon.index import Lexicon, LexiconEntry
from kg.lexicon.ontology import Ontology, OntologyEntry
from kg.types import EntityType

Meaning = OntologyEntry | LexiconEntry
_WORD = re.compile(r"[a-z]{4,}")
LONG = re.compile(r"\w[ -]\w|[a-z]{6}")
_GENES = frozenset({EntityType.GENE, EntityType.PROTEIN})
_GENE_AFTER = (
    r"m?RNAs?|genes?|proteins?|(?:over|co-?)?express\w*|knock\w+|si?h?RNAs?|promoters?|mutations?"
    r"|mutants?|mutated|signal\w+|pathways?|kinases?|receptors?|inhibit\w+|agonists?|antagonists?"
    r"|transcripts?|axis|activ\w+|phosphorylation|loc(?:us|i)|alleles?|polymorphisms?|deficien\w+"
    r"|ligands?|silencing|amplification|deletion|fusions?|blockade|antibod\w+|family"
)
_CLASSES: tuple[tuple[frozenset[EntityType], str, str], ...] = (
    (
        _GENES,
        _GENE_AFTER,
        r"anti|genes?|proteins?|kinases?|receptors?|factors?|oncogenes?|ligand|mutations? (?:in|of)"
        r"|(?:\w*phosphorylat|(?:in)?activat|inhibit|express|regulat|target)\w+(?: of)?",
    ),
    (
        frozenset({EntityType.CELL_TYPE}),
        r"cells?|infiltrat\w+|polari[sz]\w+|recruitment|densit\w+|subsets?|populations?",
        r"infiltrating|infiltration of|recruitment of|polari[sz]ation of",
    ),
    (
        frozenset({EntityType.DISEASE}),
        r"patients?|tumou?rs?|cases?|cell lines?|risk|incidence|tissues?|specimens?|progression",
        r"patients with|diagnosis of|metastatic|risk of|incidence of|primary|advanced|recurrent",
    ),
    (
        frozenset({EntityType.CHEMICAL, EntityType.TREATMENT}),
        r"treat\w+|therap\w+|chemotherapy|dos\w+|administration|regimens?|instillations?",
        r"treated with|treatment with|mg|administration of|doses? of|intravesical",
    ),
)


def content_words(text: str) -> list[str]:
    """List the words of four letters or more, in lower case."""
    return _WORD.findall(text.lower())


def share_named(names: Iterable[str], text: str, common: Collection[str]) -> bool:
    """Check whether the text contains most of the identifying words of one of the names."""
    words = set(content_words(text))
    words |= {word[:-1] for word in words if word.endswith("s")}
    for name in names:
        telling = {word for word in content_words(name) if word not in common}
        if telling and 2 * len({w for w in telling if w in words or w.rstrip("s") in words}) > len(
            telling
        ):
            return True
    return False


class Ambiguous:
    """The ambiguous names of lexicons and the rule that gives them a meaning."""

    def __init__(self, ontology: Ontology, lexicons: Sequence[Lexicon]) -> None:
        self._ontology = ontology
        self._lexicons = tuple(lexicons)
        self._find_own = lru_cache(maxsize=2)(ontology.lexicon.find)
        self._own = {
            f"NCBIGene:{entry.identifiers['NCBIGene']}": entry
            for entry in ontology.entries()
            if "NCBIGene" in entry.identifiers
        }

    def decide(self, spelling: str, text: str, read_as: Meaning | None) -> Meaning | None:
        """Return the meaning of a spelling in a text, or None if the text supports no single one.

        `read_as` is the meaning by name alone; it is returned if the spelling is not ambiguous.
        """
        if spelling[-1:] == "s" and spelling[:-1].isupper():
            spelling = spelling[:-1]
        lexicon = next((each for each in self._lexicons if spelling in each.senses), None)
        if lexicon is None:
            return read_as
        meanings: dict[str, tuple[Meaning, tuple[str, ...]]] = {}
        known = self._ontology.by_id(read_as.id) if read_as is not None else None
        if known is not None:
            meanings[known.id] = known, (known.name, *known.synonyms)
        for sense in lexicon.senses[spelling]:
            entry: Meaning = lexicon.entry(sense.entry)
            entry = self._own.get(entry.id, entry)
            names = meanings.get(entry.id, (entry, ()))[1]
            meanings[entry.id] = entry, (*names, *sense.names)
        plain = f" {_plain(text)} "
        rules: tuple[Callable[[Meaning, list[str]], bool], ...] = (
            lambda entry, names: any(f" {_plain(name)} " in plain for name in names),
            lambda entry, names: share_named(names, text, lexicon.common),
            lambda entry, names: entry == known and self._is_at_home(spelling, entry, text),
            lambda entry, names: _has_class_word(spelling, entry, text),
        )
        for supports in rules:
            found = [
                entry
                for entry, names in meanings.values()
                if supports(entry, [name for name in names if LONG.search(name)])
            ]
            if known is not None and known in found:
                return known
            if found:
                return found[0] if len(found) == 1 else None
        return None

    def _is_at_home(self, spelling: str, entry: Meaning, text: str) -> bool:
        """Check whether the text mentions other entities in the ontology.

        Gene names without a digit do not qualify: HRS and APC have other meanings in such papers.
        """
        if entry.type in _GENES and not any(map(str.isdigit, spelling)):
            return False
        return any(
            text[match.start : match.end].rstrip("s") != spelling for match in self._find_own(text)
        )


def _plain(text: str) -> str:
    return re.sub(r"[\W_]+", " ", text.lower()).strip()


def _has_class_word(spelling: str, entry: Meaning, text: str) -> bool:
    for kinds, after, before in _CLASSES:
        if entry.type in kinds:
            name = re.escape(spelling)
            return bool(
                re.search(rf"(?<![\w-]){name}s?(?:[ -]|/[\w-]+ )(?:{after})\b", text)
                or re.search(rf"\b(?:{before})[ -]?(?:the )?{name}\b", text)
            )
    return False
