"""Fit the two linear models of the `rules` extractor and write their weights.

    python -m benchmarks.extraction_fit --data DATA --lexicon big.lex

`kg/extract/related.tsv`: are two entities of a passage related at all? Fitted on BioRED train
(released by NCBI/NLM with the notice of the public domain), entities given; the point at which F1
is best there becomes the default of `--broad`. Measured on BioRED dev and BC5CDR dev, which take no
part in the fit.

`kg/extract/right.tsv`: is a reading right, direction, sign and denial included? Fitted on the half
of `benchmarks/results/extraction/held_out.tsv` that is marked `calibration`, and on those judged
readings of `development.tsv` that lack an argument (on the others the rules were tuned, which would
flatter). Measured on the half marked `reliability`, by `python -m benchmarks.extraction_judged`.
"""

from __future__ import annotations

import argparse
import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from sklearn.feature_extraction import DictVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict

from benchmarks.adapters.extraction import convert_mentions
from benchmarks.corpora import AnnotatedDocument, load_corpus
from kg.corpus.textnorm import sentences
from kg.extract import probability
from kg.extract.base import Mention
from kg.extract.probability import Reading
from kg.extract.related import features, meetings
from kg.extract.rules import RulesExtractor
from kg.lexicon.index import Lexicon
from kg.lexicon.names import Names
from kg.lexicon.ontology import Ontology

ROOT = Path(__file__).resolve().parents[1]
JUDGED = ROOT / "benchmarks" / "results" / "extraction" / "development.tsv"
HELD_OUT = JUDGED.with_name("held_out.tsv")
WEIGHTS = ROOT / "kg" / "extract"
KEY = ("relation", "polarity", "negated")


def pairs(documents: Sequence[AnnotatedDocument]) -> Iterator[tuple[dict[str, float], bool]]:
    """Features of each pair that meets in a sentence, and whether experts relate it."""
    for document in documents:
        mentions = convert_mentions(document)
        spans = list(sentences(document.text))
        counts = Counter(mention.name for mention in mentions)
        for pair, met in meetings(document.text, spans, mentions).items():
            yield features(met, counts, len(spans) - 1), frozenset(pair) in document.relations


def best_point(truth: np.ndarray, probability: np.ndarray, expected: int) -> tuple[float, float]:
    """The threshold at which F1 is best, and that F1; `expected` counts pairs that never meet."""
    points = np.arange(0.10, 0.80, 0.02)
    scores = [
        2 * (truth & (probability >= p)).sum() / ((probability >= p).sum() + expected)
        for p in points
    ]
    best = int(np.argmax(scores))
    return float(points[best]), float(scores[best])


def fit_related(corpora: Path) -> None:
    """Fit on BioRED train, write the weights, and print what dev sets say."""
    documents = load_corpus(corpora / "BioRED" / "Train.PubTator")
    given = list(pairs(documents))
    counts = Counter(name for found, _ in given for name in found)
    seen = [{name: v for name, v in found.items() if counts[name] >= 25} for found, _ in given]
    truth = np.array([related for _, related in given])
    table = DictVectorizer()
    matrix = table.fit_transform(seen)
    model = LogisticRegression(C=0.05, max_iter=3000)
    held = cross_val_predict(model, matrix, truth, cv=5, method="predict_proba")[:, 1]
    expected = sum(len(document.relations) for document in documents)
    point, score = best_point(truth, held, expected)
    model.fit(matrix, truth)
    notes = [
        f"# logistic regression (L2, C 0.05) on BioRED train: {len(truth)} pairs,"
        f" {truth.sum()} related",
        f"# five-fold F1 on train {score:.3f} at probability {point:.2f}",
    ]
    write(WEIGHTS / "related.tsv", notes, model, table)
    for name in ("BioRED/Dev.PubTator", "BC5CDR/CDR_DevelopmentSet.PubTator.txt"):
        documents = load_corpus(corpora / name)
        other = list(pairs(documents))
        held = model.predict_proba(table.transform([found for found, _ in other]))[:, 1]
        actual = np.array([related for _, related in other])
        print(name, "Brier", round(float(np.mean((held - actual) ** 2)), 4))
        for low in np.arange(0.0, 1.0, 0.1):
            chosen = (held >= low) & (held < low + 0.1)
            if chosen.any():
                print(f"  {low:.1f}: n {chosen.sum():5d} said {held[chosen].mean():.3f} "
                      f"is {actual[chosen].mean():.3f}")  # fmt: skip


def table_of(path: Path) -> list[dict[str, str]]:
    """Rows of a table of judgments."""
    with path.open(encoding="utf-8", newline="") as handle:
        return list(csv.DictReader(handle, delimiter="\t"))


def judged_readings(
    rows: Sequence[dict[str, str]], extractor: RulesExtractor, names: Names
) -> Iterator[tuple[Reading, bool]]:
    """Today's reading of each judged sentence that says what was judged.

    An entity may have another name in today's vocabulary: names are compared as concepts.
    """

    def concept(name: str) -> str:
        entry = names.find(name)
        return (entry.name if entry else name).casefold()

    for row in rows:
        sentence = row["sentence"]
        found: list[Mention] = extractor.mentions.find(sentence)
        judged = (*(row[name] for name in KEY), concept(row["head"]), concept(row["tail"]))
        for reading in extractor.readings(sentence, found):
            said = reading.statement
            today = (
                *(said.relation, said.polarity.value, str(int(said.negated))),
                *(concept(said.head), concept(said.tail)),
            )
            if today == judged:
                yield reading, row["right"] == "1"


def fit_right(extractor: RulesExtractor, names: Names) -> None:
    """Fit on the judged readings and write the weights."""
    readings = [
        (reading, right)
        for reading, right in judged_readings(table_of(JUDGED), extractor, names)
        if not (reading.evidence.subject and reading.evidence.object)
    ]
    held = [row for row in table_of(HELD_OUT) if row["half"] == "calibration"]
    for row in held:
        row["right"] = str(min(int(row["first"]), int(row["second"])))
    rows = [*table_of(JUDGED), *held]
    readings += judged_readings(held, extractor, names)
    table = DictVectorizer()
    matrix = table.fit_transform([reading.evidence.features() for reading, _ in readings])
    truth = np.array([right for _, right in readings])
    model = LogisticRegression(C=0.5, max_iter=3000)
    cross = cross_val_predict(model, matrix, truth, cv=10, method="predict_proba")[:, 1]
    model.fit(matrix, truth)
    notes = [
        f"# logistic regression (L2, C 0.5) on {len(truth)} judged readings, {truth.sum()} right",
        f"# ten-fold Brier score {np.mean((cross - truth) ** 2):.3f}",
    ]
    write(WEIGHTS / "right.tsv", notes, model, table)
    print(len(rows), "judged", len(truth), "still read", truth.mean())
    for point in (0.5, 0.6, 0.7, 0.75, 0.8, 0.85):
        kept = cross >= point
        print(point, "kept", kept.sum(), "right", round(float(truth[kept].mean()), 3),
              "of all right", round(float((truth & kept).sum() / truth.sum()), 3))  # fmt: skip


def note_probabilities(extractor: RulesExtractor, names: Names) -> None:
    """Write today's probability into the held-out table; empty where the reading is no more.

    A sentence alone lacks the abbreviations of its abstract, and the ontology may have renamed an
    entity since, so that some are not found again.
    """
    rows = table_of(HELD_OUT)
    for row in rows:
        found = next(judged_readings([row | {"right": "1"}], extractor, names), None)
        row["probability"] = str(found[0].statement.confidence) if found else ""
    with HELD_OUT.open("w", encoding="utf-8", newline="") as handle:
        writer = csv.DictWriter(handle, list(rows[0]), delimiter="\t", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def write(
    path: Path, notes: Sequence[str], model: LogisticRegression, table: DictVectorizer
) -> None:
    """Weights by feature, the largest first, under how they were made."""
    weights = zip(table.get_feature_names_out(), model.coef_[0], strict=True)
    rows = sorted(weights, key=lambda row: (-abs(row[1]), row[0]))
    lines = [*notes, "# made by: python -m benchmarks.extraction_fit"]
    lines.append(f"intercept\t{model.intercept_[0]:.4f}")
    lines += [f"{name}\t{weight:.4f}" for name, weight in rows if abs(weight) >= 0.02]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    """Fit both models."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--lexicon", type=Path, required=True)
    given = parser.parse_args()
    fit_related(given.data / "corpora")
    ontology = Ontology.load(ROOT / "data" / "ontology")
    lexicons = [Lexicon.load(given.lexicon)]
    names = Names(ontology, lexicons)
    fit_right(RulesExtractor(ontology, lexicons), names)
    probability.forget()
    note_probabilities(RulesExtractor(ontology, lexicons), names)


if __name__ == "__main__":
    main()
