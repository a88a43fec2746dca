"""Parts of a claim, each with its role and the names under which a text mentions it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from agents.core.types import ExpandedHypothesis
from kg.extract.mentions import MARKED
from kg.lexicon.ontology import Ontology
from kg.literature.expansion import list_related, list_synonyms
from kg.literature.text import mentions, phrase_key, words
from kg.literature.types import Record
from kg.types import EntityType
from sage.core.printable import ForeignText

_OUTCOME = re.compile(
    r"\b(survival|mortality|death|recurrence|relapse|progression|interval|prognosis|outcomes?)\b",
    re.IGNORECASE,
)
_DISEASE = re.compile(r"\b(cancers?|carcinomas?|tumou?rs?|neoplasms?|metastas\w+)\b", re.IGNORECASE)
_REPORTS_OF_OTHERS = re.compile(r"\([^()]*\b(?:contradict\w*|unlike)\b[^()]*\)", re.IGNORECASE)
_UNSAID = frozenset(
    map(phrase_key, ("survival", "patient survival", "survival time", "survival outcome",
                     "survival analysis", "long-term survival"))
)  # fmt: skip
"""Names that do not specify the type of survival."""
_RESPONSE = re.compile(r"response to ([\w-]+)", re.IGNORECASE)
_RESPONDING = ("response", "respond", "responder", "responding")
_RECEPTORS = {"ER": "estrogen receptor", "PR": "progesterone receptor"}
# Not `ER-Golgi`, `ER/SR`, `ER expression of calnexin` (endoplasmic reticulum), `PR-104` (a drug).
_RECEPTOR = re.compile(
    r"\b(ER|PR)(?=[+⁺](?!CR)|[−–-](?!\w)|[−–/-](?:ER|PR|PgR|HER2)\b| ?\([+−–-]\)"
    r"|-?(?:α|β|alpha|beta)\b|[ –-](?:positiv|negativ|status|express\w*\b(?! of)|levels))"
)
_MEASURES = frozenset(
    words(
        "share fraction proportion percentage percent ratio density count number area amount level "
        "score index value degree extent status expression transcripts infiltration infiltrates h "
        "e abundance signature high low higher lower positive negative yes tissue tumor tumour "
        "cell cancer patient slide per mean median total all any"
    )
)
"""Words in a part's name that describe the type of measurement, not the measured quantity."""
_APART = 2
"""Maximum number of words between two words of a name."""
_ROLES: dict[EntityType, Literal["disease", "outcome"]] = {
    EntityType.DISEASE: "disease",
    EntityType.CLINICAL_ENDPOINT: "outcome",
}


@dataclass(frozen=True)
class Part:
    """A part of the claim; `kin` are related entities that count as the part and are reported.

    If the part is a response to a drug, `drug` lists the drug's names; a response mentioned
    next to the drug also counts. The stems of the words in the name, `stems`, also count if
    they occur near each other ("stroma" for stromal fraction): a part counts as absent only
    if not even these occur.
    """

    name: str
    role: Literal["subject", "disease", "outcome"]
    names: tuple[str, ...]
    kin: Mapping[str, tuple[str, ...]]
    drug: tuple[str, ...] = ()
    stems: tuple[str, ...] = ()

    def find_mention(self, key: str, *, loose: bool = False) -> str | None:
        """Find the part or related terms in a text prepared by `phrase_key`; None if not mentioned.

        With `loose`, words from the name that occur near each other also count.
        """
        if mentions(key, self.names):
            return self.name
        for thing, names in self.kin.items():
            if mentions(key, names):
                return thing
        beside = mentions(key, self.drug) and mentions(key, _RESPONDING)
        if beside:
            return f"a response next to {self.drug[0]}"
        found = _near(key, self.stems) if loose else []
        return f"the word{'s' * (len(found) > 1)} {', '.join(found)}" if found else None


def _near(key: str, stems: tuple[str, ...]) -> list[str]:
    """Find words in a text that start with the stems, near each other; empty if there are none."""
    held = key.split()
    for at, word in enumerate(held if stems else ()):
        if not word.startswith(stems):
            continue
        near = held[at : at + (_APART + 1) * (len(stems) - 1) + 1]
        hits = [next((word for word in near if word.startswith(begin)), "") for begin in stems]
        if all(hits):
            return hits
    return []


def _word_stems(name: str) -> tuple[str, ...]:
    """Return the stems of the words that make a name specific.

    The result is empty if the words are too short to be distinctive, or are a symbol
    (CXCL13).
    """
    own = [stem for stem in words(name) if stem not in _MEASURES]
    symbols = any(len(word) < 4 or not word.isalpha() for word in own)
    if symbols or all(len(word) < 5 for word in own):
        return ()
    return tuple(word[: max(5, len(word) - 4)] for word in own)


def body_key(record: Record, *, whole: bool = False) -> str:
    """Prepare a record's text for `Part.find_mention`, with receptors written out (ER+ tumors).

    Bracketed remarks on other reports ("in NMIBC (contradicts reports in MIBC)") are removed
    unless `whole` is set.
    """
    own = record.body if whole else _REPORTS_OF_OTHERS.sub(" ", record.body)
    return phrase_key(_RECEPTOR.sub(lambda hit: f" {_RECEPTORS[hit[1]]} ", own))


def parts_of(expanded: ExpandedHypothesis, ontology: Ontology | None = None) -> tuple[Part, ...]:
    """Return the parts of the claim, or the statement itself if no part is named.

    If a gene is measured in place of the requested part (FOXP3 for regulatory T cells), a
    record on the gene counts for that part, and the report says so.
    """
    parts = [_part(name, ontology) for name in expanded.parts or (expanded.hypothesis.statement,)]
    for exposure in expanded.hypothesis.exposures:
        gene = ontology.find(exposure.variable.rpartition(":")[2]) if ontology is not None else None
        if gene is None or gene.type is not EntityType.GENE:
            continue
        if any(part.find_mention(phrase_key(gene.name)) for part in parts):
            continue
        subjects = [at for at, part in enumerate(parts) if part.role == "subject"]
        cell = phrase_key(MARKED.get(gene.name, ""))
        marked = [at for at in subjects if cell and parts[at].find_mention(cell) == parts[at].name]
        for at in marked or subjects[: len(subjects) == 1]:
            also = {gene.name: list_synonyms(gene.name, ontology)}
            parts[at] = replace(parts[at], kin={**parts[at].kin, **also})
    return tuple(parts)


def _part(name: str, ontology: Ontology | None) -> Part:
    role = _role(name, ontology)
    names: tuple[str, ...] = (*list_synonyms(name, ontology), *_initials(name, role, ontology))
    others = list_related(name, ontology)
    strange = _of_others(names, ontology)
    names = tuple(other for other in names if other not in strange)
    for other, thing in strange.items():
        others[thing] = (*others.get(thing, ()), other)
    if phrase_key(name) not in _UNSAID:
        unsaid = tuple(other for other in names if phrase_key(other) in _UNSAID)
        names = tuple(other for other in names if other not in unsaid)
        others |= {"survival": unsaid} if unsaid else {}
    to = _RESPONSE.match(name)
    drug = list_synonyms(to[1], ontology) if to else ()
    stems = _word_stems(name) if role == "subject" and not to else ()
    return Part(ForeignText(name), role, names, others, drug, stems)


def _of_others(names: tuple[str, ...], ontology: Ontology | None) -> dict[str, str]:
    """Map each name for a different entity than the first known name to that entity.

    The ontology decides. For example, a group of search terms may join bladder cancer and
    urothelial carcinoma.
    """
    found = {name: ontology.find(name) for name in names} if ontology is not None else {}
    known = {name: entry for name, entry in found.items() if entry is not None}
    own = next(iter(known.values()), None)
    return {n: entry.name for n, entry in known.items() if own is not None and entry.id != own.id}


def _initials(name: str, role: str, ontology: Ontology | None) -> tuple[str, ...]:
    """Return an endpoint's two-letter acronyms (OS), which `list_synonyms` omits."""
    entry = ontology.find(name) if ontology is not None and role == "outcome" else None
    return tuple(short for short in entry.synonyms if len(short) == 2) if entry else ()


def not_looked_for(expanded: ExpandedHypothesis) -> str:
    """Describe the claim's population, which no part represents; empty if it is unrestricted."""
    population = expanded.hypothesis.population
    return population.description if population.filters else ""


def _role(part: str, ontology: Ontology | None) -> Literal["subject", "disease", "outcome"]:
    entry = ontology.find(part) if ontology is not None else None
    if entry is not None:
        return _ROLES.get(entry.type, "subject")
    if _OUTCOME.search(part):
        return "outcome"
    return "disease" if _DISEASE.search(part) else "subject"
