"""Extraction: the rules against experts' annotation of entities and relations."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from pydantic import BaseModel

from benchmarks.corpora import AnnotatedDocument, Annotation, load_corpus
from benchmarks.runner import Report, Row
from kg.corpus.textnorm import abbreviations, sentences
from kg.extract.base import Mention, Statement
from kg.extract.mentions import MentionFinder
from kg.extract.related import BROAD, score_pairs
from kg.extract.rules import RulesExtractor
from kg.lexicon.index import Lexicon
from kg.lexicon.names import identifiers_of
from kg.lexicon.ontology import Ontology
from kg.types import EntityType, Polarity
from sage.core.errors import InputError

# Types that annotators of these corpora treat as one.
_SAME = {
    EntityType.PROTEIN: EntityType.GENE,
    EntityType.TREATMENT: EntityType.CHEMICAL,
}


# BioRED's names of what a relation says.
_LABELS = frozenset({"Association", "Positive_Correlation", "Negative_Correlation", "Bind"})


#: Pairs of entity types between which a corpus annotates relations.
Types = frozenset[frozenset[str]]


class Score(BaseModel):
    """Precision, recall and F1 with their counts."""

    found: int = 0
    expected: int = 0
    correct: int = 0

    @property
    def precision(self) -> float:
        """Share of found items that are correct."""
        return self.correct / self.found if self.found else 0.0

    @property
    def recall(self) -> float:
        """Share of expected items that are found."""
        return self.correct / self.expected if self.expected else 0.0

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall."""
        both = self.found + self.expected
        return 2 * self.correct / both if both else 0.0

    def row(self) -> dict[str, float | int]:
        """Rounded figures for tables and JSON."""
        return {
            "precision": round(self.precision, 4),
            "recall": round(self.recall, 4),
            "f1": round(self.f1, 4),
            "found": self.found,
            "expected": self.expected,
            "correct": self.correct,
        }


class ExtractorScore(BaseModel):
    """Scores of one corpus. Keys of the entity tables are entity types.

    `pairs_given_entities_broad` are those of `--broad`, `pairs_in_a_sentence` the baseline: every
    pair of entities that meets in a sentence. `pairs_given_entities_typed` is None
    where the corpus names relations in words of its own. `pairs_end_to_end` finds entities itself
    and takes their identifiers from the annotation that it meets; `concepts` (each identifier once
    in a document) and `pairs_own_identifiers` use those of ontology and lexicons alone.
    `entities_looked_up` is the baseline of the exact mentions, where another corpus was given.
    """

    corpus: str
    documents: int
    entities_exact: dict[str, Score]
    entities_relaxed: dict[str, Score]
    pairs_given_entities: Score
    pairs_given_entities_typed: Score | None
    pairs_given_entities_broad: Score
    pairs_in_a_sentence: Score
    pairs_end_to_end: Score
    concepts: dict[str, Score]
    pairs_own_identifiers: Score
    entities_looked_up: dict[str, Score] = {}


def score_extractor(
    corpus: Path,
    ontology: Ontology,
    lexicons: Sequence[Lexicon] = (),
    look_up: Path | None = None,
) -> ExtractorScore:
    """Score the `rules` extractor on a PubTator file or a brat folder.

    Entities: a mention counts as exact when span and type agree, as relaxed when the spans overlap
    and the types agree; each annotation is matched once. Pairs: unordered pairs of concepts of one
    document, as the corpus annotates them; a statement that is negated claims no pair, and a pair
    of types that the corpus never relates (two drugs, in BC5CDR) is no claim about it.

    Parameters
    ----------
    lexicons : further vocabularies
    look_up : another corpus, whose annotated strings are a baseline of the mentions

    Raises
    ------
    InputError
        If a corpus is missing or holds no annotation, or a document is in both.
    """
    documents = load_corpus(corpus)
    strings = None
    if look_up is not None:
        others = load_corpus(look_up)
        _check_disjoint(corpus, documents, look_up, others)
        strings = collect_strings(others)
    extractor = RulesExtractor(ontology, lexicons)
    finder = extractor.mentions
    labels = {label for d in documents for found in d.relations.values() for label in found}
    kinds = {entity.type for document in documents for entity in document.entities}
    exact: dict[str, Score] = defaultdict(Score)
    relaxed: dict[str, Score] = defaultdict(Score)
    related_types = frozenset(
        frozenset(types.get(name, name) for name in pair)
        for document, types in ((d, _types(d)) for d in documents)
        for pair in document.relations
    )
    concepts: dict[str, Score] = defaultdict(Score)
    given, typed, end_to_end, own = Score(), Score(), Score(), Score()
    broad, together = Score(), Score()
    baseline: dict[str, Score] = defaultdict(Score)
    for document in documents:
        mentions = find_mentions(finder, document.text)
        for kind in kinds:
            # A corpus that knows no cell lines annotates them as cells.
            ours = [
                m for m in mentions
                if _SAME.get(m.type, m.type) == kind
                or ((m.type, kind) == (EntityType.CELL_LINE, EntityType.CELL_TYPE)
                    and EntityType.CELL_LINE not in kinds)
            ]  # fmt: skip
            theirs = [a for a in document.entities if a.type == kind]
            _count_entities(ours, theirs, exact[kind.value], relaxed[kind.value])
            _count_concepts(ours, theirs, ontology, concepts[kind.value])
        if strings is not None:
            _count_strings(document, strings, kinds, baseline)
        read = _count_pairs(extractor, document, given, typed, related_types)
        _count_related(document, read, broad, together, related_types)
        _count_end_to_end(extractor, document, mentions, end_to_end, related_types)
        _count_own(extractor, document, mentions, ontology, own, related_types)
    return ExtractorScore(
        corpus=str(corpus),
        documents=len(documents),
        entities_exact=dict(sorted(exact.items())),
        entities_relaxed=dict(sorted(relaxed.items())),
        pairs_given_entities=given,
        pairs_given_entities_typed=typed if labels & _LABELS else None,
        pairs_given_entities_broad=broad,
        pairs_in_a_sentence=together,
        pairs_end_to_end=end_to_end,
        concepts=dict(sorted(concepts.items())),
        pairs_own_identifiers=own,
        entities_looked_up=dict(sorted(baseline.items())),
    )


def collect_strings(documents: Iterable[AnnotatedDocument]) -> dict[str, EntityType]:
    """Map annotated strings, in lower case, to their most frequent type."""
    seen: dict[str, Counter[EntityType]] = defaultdict(Counter)
    for document in documents:
        for annotation in document.entities:
            seen[annotation.text.casefold()][annotation.type] += 1
    return {text: types.most_common(1)[0][0] for text, types in seen.items()}


def look_up_strings(
    text: str, strings: Mapping[str, EntityType]
) -> list[tuple[int, int, EntityType]]:
    """Find `strings` in `text` as whole words, in any case, the longest at each place."""
    words = [(m.start(), m.end()) for m in re.finditer(r"\w+|[^\w\s]", text)]
    longest = max((len(re.findall(r"\w+|[^\w\s]", string)) for string in strings), default=0)
    found, at = [], 0
    while at < len(words):
        for last in range(min(at + longest, len(words)), at, -1):
            start, end = words[at][0], words[last - 1][1]
            kind = strings.get(text[start:end].casefold())
            if kind is not None:
                found.append((start, end, kind))
                at = last
                break
        else:
            at += 1
    return found


def convert_mentions(document: AnnotatedDocument) -> list[Mention]:
    """Convert annotated entities to mentions, one per concept."""
    return [
        Mention(a.start, a.end, name, a.type)
        for a in document.entities
        for name in (a.ids or (a.text,))
    ]


def find_mentions(finder: MentionFinder, text: str) -> list[Mention]:
    """Find mentions in a document, with its own abbreviations."""
    return finder.find(text, sorted(abbreviations(text).items()))


def _count_entities(
    ours: Sequence[Mention], theirs: Sequence[Annotation], exact: Score, relaxed: Score
) -> None:
    spans = {(a.start, a.end) for a in theirs}
    exact.found += len(ours)
    exact.expected += len(theirs)
    exact.correct += sum(1 for m in ours if (m.start, m.end) in spans)
    relaxed.found += len(ours)
    relaxed.expected += len(theirs)
    free = list(theirs)
    for mention in ours:
        hit = next((a for a in free if a.start < mention.end and mention.start < a.end), None)
        if hit is not None:
            free.remove(hit)
            relaxed.correct += 1


def _count_strings(
    document: AnnotatedDocument,
    strings: Mapping[str, EntityType],
    kinds: Iterable[EntityType],
    scores: dict[str, Score],
) -> None:
    found = look_up_strings(document.text, strings)
    for kind in kinds:
        spans = {(a.start, a.end) for a in document.entities if a.type == kind}
        ours = [(start, end) for start, end, named in found if named == kind]
        score = scores[kind.value]
        score.found += len(ours)
        score.expected += sum(a.type == kind for a in document.entities)
        score.correct += sum(span in spans for span in ours)


def _check_disjoint(
    corpus: Path,
    documents: Sequence[AnnotatedDocument],
    look_up: Path,
    others: Sequence[AnnotatedDocument],
) -> None:
    both = {document.id for document in documents} & {document.id for document in others}
    if both:
        raise InputError(
            f"{look_up}: document {min(both)} is in {corpus} too; name a corpus that is not scored"
        )


# The spaces in which the corpora annotate.
_SPACES = {
    EntityType.GENE: "NCBIGene", EntityType.DISEASE: "MeSH", EntityType.CHEMICAL: "MeSH",
    EntityType.ORGANISM: "NCBITaxon", EntityType.CELL_LINE: "Cellosaurus",
}  # fmt: skip


def find_identifiers(mention: Mention, ontology: Ontology) -> tuple[str, ...]:
    """Find a mention's identifiers in the corpora's namespaces, without the annotation."""
    space = _SPACES.get(_SAME.get(mention.type, mention.type))
    entity = mention.entity_id
    if entity is None and (entry := ontology.find(mention.name)) is not None:
        entity = entry.id
    found = identifiers_of(entity, ontology)
    return (found[space],) if space in found else ()


def _count_concepts(
    ours: Sequence[Mention], theirs: Sequence[Annotation], ontology: Ontology, score: Score
) -> None:
    found = {identifier for mention in ours for identifier in find_identifiers(mention, ontology)}
    expected = {identifier for annotation in theirs for identifier in annotation.ids}
    score.found += len(found)
    score.expected += len(expected)
    score.correct += len(found & expected)


def _count_own(
    extractor: RulesExtractor,
    document: AnnotatedDocument,
    mentions: Sequence[Mention],
    ontology: Ontology,
    score: Score,
    related_types: Types,
) -> None:
    """Count pairs of identifiers from ontology and lexicons alone."""
    kinds = {a.type for a in document.entities}
    named = [
        Mention(
            mention.start,
            mention.end,
            "\x1f".join(find_identifiers(mention, ontology)) or f"?{mention.name}",
            mention.type,
        )
        for mention in mentions
        if _SAME.get(mention.type, mention.type) in kinds
    ]
    _tally(_pairs(extractor, document, named), document, score, related_types)


def _pairs(
    extractor: RulesExtractor, document: AnnotatedDocument, mentions: Sequence[Mention]
) -> set[frozenset[str]]:
    """Collect pairs of names that statements relate."""
    return {
        frozenset({head, tail})
        for statement in _statements(extractor, document.text, mentions)
        for head in statement.head.split("\x1f")
        for tail in statement.tail.split("\x1f")
        if head != tail
    }


def _statements(
    extractor: RulesExtractor, text: str, mentions: Sequence[Mention]
) -> Iterable[Statement]:
    """Yield affirmed statements that the extractor keeps."""
    for statement in extractor.read_text(text, mentions):
        if statement.confidence >= extractor.threshold and not statement.negated:
            yield statement


def _label(statement: Statement) -> str:
    if statement.relation == "binds":
        return "Bind"
    if statement.polarity == Polarity.POSITIVE:
        return "Positive_Correlation"
    if statement.polarity == Polarity.NEGATIVE:
        return "Negative_Correlation"
    return "Association"


def _count_pairs(
    extractor: RulesExtractor,
    document: AnnotatedDocument,
    score: Score,
    typed: Score,
    related_types: Types,
) -> set[frozenset[str]]:
    """Count pairs of given entities; return those found."""
    mentions = [
        Mention(a.start, a.end, "\x1f".join(a.ids) or a.text, a.type) for a in document.entities
    ]
    predicted: dict[frozenset[str], set[str]] = defaultdict(set)
    for statement in _statements(extractor, document.text, mentions):
        for head in statement.head.split("\x1f"):
            for tail in statement.tail.split("\x1f"):
                if head != tail:
                    predicted[frozenset({head, tail})].add(_label(statement))
    _tally(predicted, document, score, related_types)
    typed.found += len(predicted)
    typed.expected += len(document.relations)
    typed.correct += sum(
        1 for pair, labels in predicted.items() if labels & document.relations.get(pair, set())
    )
    return set(predicted)


def _count_related(
    document: AnnotatedDocument,
    read: set[frozenset[str]],
    broad: Score,
    together: Score,
    related_types: Types,
) -> None:
    """Pairs that are read or likely related, and every pair that meets in a sentence."""
    spans = list(sentences(document.text))
    found = list(score_pairs(document.text, spans, convert_mentions(document)))
    _tally([frozenset(pair) for pair, _, _ in found], document, together, related_types)
    likely = {frozenset(pair) for pair, _, probability in found if probability >= BROAD}
    _tally(likely | read, document, broad, related_types)


def _tally(
    predicted: Iterable[frozenset[str]], document: AnnotatedDocument, score: Score, related: Types
) -> None:
    """Count pairs, leaving out those of types that the corpus never relates."""
    pairs = {pair for pair in predicted if not _outside(pair, document, related)}
    score.found += len(pairs)
    score.expected += len(document.relations)
    score.correct += sum(1 for pair in pairs if pair in document.relations)


def _outside(pair: frozenset[str], document: AnnotatedDocument, related: Types) -> bool:
    """Whether both concepts are annotated and the corpus relates no concepts of their types."""
    types = _types(document)
    return all(name in types for name in pair) and (
        frozenset(types[name] for name in pair) not in related
    )


def _types(document: AnnotatedDocument) -> dict[str, str]:
    return {name: a.type.value for a in document.entities for name in a.ids}


def _count_end_to_end(
    extractor: RulesExtractor,
    document: AnnotatedDocument,
    mentions: Sequence[Mention],
    score: Score,
    related_types: Types,
) -> None:
    """Pairs from the extractor's own mentions; one that meets no annotation makes a wrong pair."""
    kinds = {a.type for a in document.entities}
    located = []
    for mention in mentions:
        kind = _SAME.get(mention.type, mention.type)
        if kind not in kinds:
            continue
        hit = next(
            (a for a in document.entities
             if a.start < mention.end and mention.start < a.end and a.type == kind),
            None,
        )  # fmt: skip
        name = "\x1f".join(hit.ids) if hit is not None and hit.ids else f"?{mention.name}"
        located.append(Mention(mention.start, mention.end, name, mention.type))
    _tally(_pairs(extractor, document, located), document, score, related_types)


def run(
    corpus: Annotated[Path, typer.Argument(help="A PubTator file or a brat folder.")],
    lexicon: Annotated[list[Path] | None, typer.Option(help="Compiled vocabularies.")] = None,
    look_up: Annotated[Path | None, typer.Option(help="Corpus for the string baseline.")] = None,
) -> Report:
    """Score the rules on an annotated corpus."""
    from sage.core.data import data_root

    ontology = Ontology.load(data_root() / "ontology")
    lexicons = [Lexicon.open(path) for path in lexicon or ()]
    found = score_extractor(corpus, ontology, lexicons, look_up)

    def show(score: Score | None) -> str:
        if score is None:
            return "–"
        return f"F1 {score.f1:.3f} (P {score.precision:.3f}, R {score.recall:.3f})"

    rows = [
        Row(benchmark=f"Entities, {kind}", measured=f"{found.documents} documents; exact; relaxed",
            baseline=show(found.entities_looked_up.get(kind)),
            sage=f"{show(score)}; {show(found.entities_relaxed[kind])}")
        for kind, score in found.entities_exact.items()
    ]  # fmt: skip
    pairs = {
        "entities given": found.pairs_given_entities,
        "entities given, with the label": found.pairs_given_entities_typed,
        "entities given, broad": found.pairs_given_entities_broad,
        "end to end": found.pairs_end_to_end,
        "own identifiers": found.pairs_own_identifiers,
    }
    rows += [
        Row(benchmark=f"Relations, {name}", measured=f"{found.documents} documents",
            baseline=f"{show(found.pairs_in_a_sentence)} (same sentence)", sage=show(score))
        for name, score in pairs.items()
    ]  # fmt: skip
    return Report(rows=tuple(rows), data=found.model_dump(mode="json"))
