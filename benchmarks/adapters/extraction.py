"""Evaluation of rule-based extraction against expert annotation (PubTator)."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from pydantic import BaseModel

from benchmarks.corpora import AnnotatedDocument, load_corpus
from benchmarks.runner import NONE, Report, Row
from kg.corpus.textnorm import abbreviations, sentences
from kg.extract.base import Mention
from kg.extract.related import BROAD, score_pairs
from kg.extract.rules import RulesExtractor
from kg.lexicon.index import Lexicon
from kg.lexicon.ontology import Ontology
from kg.types import EntityType
from sage.core.errors import InputError

_SAME = {
    EntityType.PROTEIN: EntityType.GENE,
    EntityType.TREATMENT: EntityType.CHEMICAL,
}
"""Types that the annotators of these corpora do not distinguish."""
Types = frozenset[frozenset[str]]
"""Pairs of entity types between which a corpus annotates relations."""


class Score(BaseModel):
    """Precision, recall and F1, with their counts."""

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


class ExtractorScore(BaseModel):
    """Scores on one corpus; the keys of the entity tables are entity types.

    `broad` gives the pair scores with `--broad`, and `in_a_sentence` those of the baseline:
    all pairs of entities that share a sentence. `looked_up` is the baseline for entities, if
    another corpus was given.
    """

    documents: int
    entities: dict[str, Score]
    looked_up: dict[str, Score]
    pairs: Score
    broad: Score
    in_a_sentence: Score


def score_extractor(
    corpus: Path,
    ontology: Ontology,
    lexicons: Sequence[Lexicon] = (),
    look_up: Path | None = None,
) -> ExtractorScore:
    """Score the `rules` extractor on a PubTator file.

    A mention is correct if span and type agree. Pairs are unordered pairs of given concepts
    in the same document; a negated statement does not claim a pair, and pairs of types that
    the corpus never relates (two drugs, in BC5CDR) are not counted. The strings annotated in
    `look_up` serve as a baseline for the mentions.

    Raises
    ------
    InputError
        If a corpus is missing or has no annotations, or a document is in both corpora.
    """
    documents = load_corpus(corpus)
    strings: dict[str, EntityType] = {}
    if look_up is not None:
        others = load_corpus(look_up)
        _check_disjoint(corpus, documents, look_up, others)
        strings = collect_strings(others)
    extractor = RulesExtractor(ontology, lexicons)
    kinds = {entity.type for document in documents for entity in document.entities}
    related_types = frozenset(
        frozenset(types.get(name, name) for name in pair)
        for document, types in ((d, _types(d)) for d in documents)
        for pair in document.relations
    )
    entities: dict[str, Score] = defaultdict(Score)
    baseline: dict[str, Score] = defaultdict(Score)
    pairs, broad, together = Score(), Score(), Score()
    for document in documents:
        text = document.text
        mentions = extractor.mentions.find(text, sorted(abbreviations(text).items()))
        found = [(m.start, m.end, _map_type(m.type, kinds)) for m in mentions]
        _count_spans(document, found, kinds, entities)
        if strings:
            _count_spans(document, look_up_strings(text, strings), kinds, baseline)
        read = collect_pairs(extractor, document)
        _tally(read, document, pairs, related_types)
        _count_related(document, read, broad, together, related_types)
    return ExtractorScore(
        documents=len(documents),
        entities=dict(sorted(entities.items())),
        looked_up=dict(sorted(baseline.items())),
        pairs=pairs,
        broad=broad,
        in_a_sentence=together,
    )


def _map_type(kind: EntityType, kinds: set[EntityType]) -> EntityType:
    """Map a type to the corpus's own; a corpus without cell lines annotates them as cells."""
    if kind is EntityType.CELL_LINE and kind not in kinds:
        return EntityType.CELL_TYPE
    return _SAME.get(kind, kind)


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
    """Find whole-word, case-insensitive `strings` in `text`, preferring the longest."""
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


def _count_spans(
    document: AnnotatedDocument,
    found: Sequence[tuple[int, int, EntityType]],
    kinds: Iterable[EntityType],
    scores: dict[str, Score],
) -> None:
    """Count the exact spans of each type."""
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
            f"{look_up}: document {min(both)} is also in {corpus}; give a corpus that is not scored"
        )


def collect_pairs(extractor: RulesExtractor, document: AnnotatedDocument) -> set[frozenset[str]]:
    """Collect pairs of given entities that are related in affirmed statements."""
    mentions = [
        Mention(a.start, a.end, "\x1f".join(a.ids) or a.text, a.type) for a in document.entities
    ]
    return {
        frozenset({head, tail})
        for statement in extractor.read_text(document.text, mentions)
        if statement.confidence >= extractor.threshold and not statement.negated
        for head in statement.head.split("\x1f")
        for tail in statement.tail.split("\x1f")
        if head != tail
    }


def _count_related(
    document: AnnotatedDocument,
    read: set[frozenset[str]],
    broad: Score,
    together: Score,
    related_types: Types,
) -> None:
    """Count pairs stated or likely to be related, and all pairs that share a sentence."""
    spans = list(sentences(document.text))
    found = list(score_pairs(document.text, spans, convert_mentions(document)))
    _tally([frozenset(pair) for pair, _, _ in found], document, together, related_types)
    likely = {frozenset(pair) for pair, _, probability in found if probability >= BROAD}
    _tally(likely | read, document, broad, related_types)


def _tally(
    predicted: Iterable[frozenset[str]], document: AnnotatedDocument, score: Score, related: Types
) -> None:
    """Count pairs, except those with types that the corpus never relates."""
    pairs = {pair for pair in predicted if not _outside(pair, document, related)}
    score.found += len(pairs)
    score.expected += len(document.relations)
    score.correct += sum(1 for pair in pairs if pair in document.relations)


def _outside(pair: frozenset[str], document: AnnotatedDocument, related: Types) -> bool:
    """Check whether both concepts are annotated but the corpus never relates their types."""
    types = _types(document)
    return all(name in types for name in pair) and (
        frozenset(types[name] for name in pair) not in related
    )


def _types(document: AnnotatedDocument) -> dict[str, str]:
    return {name: a.type.value for a in document.entities for name in a.ids}


def run(
    corpus: Annotated[Path, typer.Argument(help="A PubTator file.")],
    lexicon: Annotated[
        list[Path] | None,
        typer.Option(help="Vocabularies before the one that ships."),
    ] = None,
    look_up: Annotated[Path | None, typer.Option(help="Corpus for the string baseline.")] = None,
) -> Report:
    """Score the rules on an annotated corpus."""
    from sage.run.wiring import load_lexicons, make_ontology

    ontology = make_ontology()
    lexicons = load_lexicons(lexicon or ())
    found = score_extractor(corpus, ontology, lexicons, look_up)

    def show(score: Score | None) -> str:
        if score is None:
            return NONE
        return f"F1 {score.f1:.3f} (P {score.precision:.3f}, R {score.recall:.3f})"

    measured = f"{found.documents} documents"
    rows = [
        Row(benchmark=f"Entities, {kind}", measured=f"{measured}; exact spans",
            baseline=show(found.looked_up.get(kind)), sage=show(score))
        for kind, score in found.entities.items()
    ]  # fmt: skip
    rows += [
        Row(benchmark=f"Relations, entities given, {name}", measured=measured,
            baseline=f"{show(found.in_a_sentence)} (same sentence)", sage=show(score))
        for name, score in (("default", found.pairs), ("broad", found.broad))
    ]  # fmt: skip
    return Report(rows=tuple(rows), data=found.model_dump(mode="json"))
