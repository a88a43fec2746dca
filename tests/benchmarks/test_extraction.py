"""Scores against annotated corpora."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.adapters.extraction import score_extractor
from benchmarks.corpora import load_corpus
from kg.lexicon.index import Lexicon
from sage.core.errors import InputError
from sage_exchange.vocabularies import import_lexicons
from tests.kg.in_helpers import ontology, shared

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
