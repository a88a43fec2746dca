"""Review samples and the five figures; scores against annotated corpora."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
from statsmodels.stats.proportion import proportion_confint

from benchmarks.adapters.corpora import load_corpus
from benchmarks.adapters.extraction import score_extractor
from benchmarks.adapters.triple_review import (
    QUESTIONS,
    score_sheet,
    stratified,
    wilson,
    write_sheet,
)
from kg.lexicon.index import Lexicon
from kg.types import EntityType, Evidence, Triple
from sage.core.errors import InputError
from sage_exchange.vocabularies import import_lexicons
from tests.kg.in_helpers import ontology, shared


def _triple(number: int, relation: str, text: str = "A does B.") -> Triple:
    return Triple(
        head=f"A{number}", head_type=EntityType.GENE, relation_text="does", relation=relation,
        tail="B", tail_type=EntityType.DISEASE, confidence=0.8,
        evidence=Evidence(doc_id=f"d{number}", chunk_id="c", section="", start=0, end=9, text=text),
    )  # fmt: skip


TRIPLES = [_triple(n, "common" if n % 50 else "rare") for n in range(1000)]


def test_the_sample_is_stratified_and_does_not_depend_on_order() -> None:
    sample = stratified(TRIPLES, 200, seed=3)
    assert len(sample) == len({t.evidence.doc_id for t in sample}) == 200
    assert sum(t.relation == "rare" for t in sample) == 4
    assert stratified(list(reversed(TRIPLES)), 200, seed=3) == sample
    assert stratified(TRIPLES, 200, seed=4) != sample


def test_every_relation_type_is_sampled_at_least_once() -> None:
    many = [*TRIPLES, *(_triple(5000 + n, f"single_{n}") for n in range(30))]
    sample = stratified(many, 200)
    assert len(sample) == 200
    assert len({t.relation for t in sample}) == 32


@pytest.mark.parametrize(("count", "total"), [(0, 10), (10, 10), (198, 200), (1, 3), (129, 200)])
def test_wilson_agrees_with_statsmodels(count: int, total: int) -> None:
    assert wilson(count, total) == pytest.approx(
        proportion_confint(count, total, method="wilson"), abs=1e-12
    )


def _fill(sheet: Path, answers: list[dict[str, str]]) -> None:
    with sheet.open(newline="") as handle:
        rows = list(csv.DictReader(handle))
    for row, answer in zip(rows, answers, strict=False):
        row.update(answer)
    with sheet.open("w", newline="") as handle:
        writer = csv.DictWriter(handle, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


GOOD = {"grounded": "yes", "relation_ok": "yes", "head_type_ok": "yes", "tail_type_ok": "yes",
        "hallucinated": "no"}  # fmt: skip


def test_a_filled_sheet_gives_the_five_figures(tmp_path: Path) -> None:
    sheet, page = write_sheet(stratified(TRIPLES, 10), tmp_path)
    bad = GOOD | {"tail_type_ok": "lenient", "head_type_ok": "no", "hallucinated": "yes"}
    _fill(sheet, [GOOD] * 3 + [bad])
    report = score_sheet(sheet)
    assert (report.reviewed, report.unanswered) == (4, 6)
    assert (report.factual_grounding.value, report.relation_accuracy.value) == (1.0, 1.0)
    assert (report.entity_type_strict.value, report.entity_type_lenient.value) == (0.75, 0.875)
    assert report.hallucination_rate.count == 1
    assert report.entity_type_strict.low < 0.75 < report.entity_type_strict.high
    with pytest.raises(InputError, match="holds answers"):
        write_sheet(stratified(TRIPLES, 10), tmp_path)
    assert page.read_text().count("<script>") == 1


def test_a_wrong_answer_names_its_line(tmp_path: Path) -> None:
    sheet, _ = write_sheet(stratified(TRIPLES, 3), tmp_path)
    _fill(sheet, [GOOD, GOOD | {"grounded": "maybe"}])
    with pytest.raises(InputError, match=r"line 3: grounded is 'maybe'; write one of yes, no"):
        score_sheet(sheet)


def test_an_unfilled_sheet_says_so(tmp_path: Path) -> None:
    sheet, _ = write_sheet(stratified(TRIPLES, 3), tmp_path)
    with pytest.raises(InputError, match="no row is filled"):
        score_sheet(sheet)


def test_text_of_papers_cannot_run_on_the_review_page(tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
    _, page = write_sheet([_triple(1, "r", evil)], tmp_path)
    html = page.read_text()
    assert "</script><script>alert" not in html
    assert len(re.findall("</script>", html)) == 1
    assert "innerHTML" not in html
    assert all(question in html for question in QUESTIONS)


PUBTATOR = """1|t|FABP5 and cancer.
1|a|FABP5 promotes melanoma. CD36 was not associated with melanoma.
1\t0\t5\tFABP5\tGeneOrGeneProduct\t2171
1\t18\t23\tFABP5\tGeneOrGeneProduct\t2171
1\t33\t41\tmelanoma\tDiseaseOrPhenotypicFeature\tD008545
1\t43\t47\tCD36\tGeneOrGeneProduct\t948
1\t72\t80\tmelanoma\tDiseaseOrPhenotypicFeature\tD008545
1\tPositive_Correlation\t2171\tD008545\tNovel
"""


def test_scores_count_pairs_of_concepts_and_denials_claim_none(tmp_path: Path) -> None:
    path = tmp_path / "x.PubTator"
    path.write_text(PUBTATOR)
    score = score_extractor(path, ontology())
    assert score.pairs_given_entities.model_dump() == {"found": 1, "expected": 1, "correct": 1}
    assert score.pairs_given_entities_typed is not None
    assert score.pairs_given_entities_typed.correct == 1
    assert score.entities_exact["Gene"].f1 == 1.0
    assert score.pairs_end_to_end.precision == 1.0
    assert score.concepts["Gene"].model_dump() == {"found": 2, "expected": 2, "correct": 2}
    assert score.concepts["Disease"].model_dump() == {"found": 2, "expected": 1, "correct": 1}
    assert score.pairs_own_identifiers.f1 == 1.0


def test_own_identifiers_are_never_borrowed_from_the_annotation(tmp_path: Path) -> None:
    path = tmp_path / "x.PubTator"
    path.write_text(PUBTATOR.replace("2171", "99999"))
    score = score_extractor(path, ontology())
    assert score.pairs_end_to_end.f1 == 1.0
    assert score.concepts["Gene"].correct == 1
    assert score.pairs_own_identifiers.correct == 0


def test_brat_events_become_pairs(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("FABP5 promotes growth of melanoma")
    (tmp_path / "a.a1").write_text(
        "T1\tGene_or_gene_product 0 5\tFABP5\nT2\tCancer 25 33\tmelanoma\n"
    )
    (tmp_path / "a.a2").write_text(
        "T3\tPositive_regulation 6 14\tpromotes\nT4\tGrowth 15 21\tgrowth\n"
        "E1\tGrowth:T4 Theme:T2\nE2\tPositive_regulation:T3 Theme:E1 Cause:T1\n"
    )
    (document,) = load_corpus(tmp_path)
    assert dict(document.relations) == {frozenset({"T1", "T2"}): {"Positive_regulation"}}


def test_a_corpus_without_annotation_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("1|t|Nothing\n1|a|annotated\n")
    with pytest.raises(InputError, match="no annotation found"):
        load_corpus(tmp_path / "x.txt")


@pytest.mark.shared
def test_rules_keep_their_precision_on_biored_dev(tmp_path: Path) -> None:
    import_lexicons(
        [shared("knowledge", "genes", "Homo_sapiens.gene_info.gz"),
         shared("knowledge", "obo", "DO_cancer_slim.obo"), shared("knowledge", "mesh", "terms.tsv"),
         shared("knowledge", "mesh", "mesh_terms.txt")],
        tmp_path / "big.lex",
    )  # fmt: skip
    lexicons = [Lexicon.load(tmp_path / "big.lex")]
    score = score_extractor(shared("corpora", "BioRED", "Dev.PubTator"), ontology(), lexicons)
    assert score.documents == 100
    assert score.pairs_given_entities.precision >= 0.70
    assert score.pairs_given_entities.recall >= 0.04
    assert score.pairs_given_entities_broad.f1 >= 0.60
    assert score.pairs_given_entities_broad.f1 > score.pairs_in_a_sentence.f1 + 0.2
    assert score.entities_exact["Organism"].f1 >= 0.97
    assert score.entities_exact["CellLine"].f1 >= 0.85
    assert score.entities_exact["Gene"].f1 >= 0.60
    assert score.entities_exact["Disease"].f1 >= 0.60


@pytest.mark.shared
def test_the_other_shared_corpora_can_be_scored() -> None:
    cdr = score_extractor(
        shared("corpora", "BC5CDR", "CDR_DevelopmentSet.PubTator.txt"), ontology()
    )
    assert cdr.documents == 500
    assert cdr.pairs_given_entities_typed is None
    assert cdr.pairs_given_entities_broad.f1 >= 0.45
    brat = load_corpus(shared("corpora", "BioNLP2013_CancerGenetics", "devel"))
    assert len(brat) == 100
    assert sum(len(d.relations) for d in brat) > 300
