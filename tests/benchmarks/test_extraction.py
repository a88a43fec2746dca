"""Scores against annotated corpora."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.adapters.extraction import score_extractor
from sage.run.wiring import load_lexicons
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
    assert score.pairs.model_dump() == {"found": 1, "expected": 1, "correct": 1}
    assert score.in_a_sentence.model_dump() == {"found": 2, "expected": 1, "correct": 1}
    assert score.entities["Gene"].f1 == 1.0


def test_cell_lines_are_scored_apart_from_types_of_cells(tmp_path: Path) -> None:
    corpus = tmp_path / "c.PubTator"
    corpus.write_text(
        "1|t|Macrophages and ZX-77 cells\n1|a|\n1\t16\t21\tZX-77\tCellLine\tCVCL_0001\n"
    )
    found = score_extractor(corpus, ontology())
    assert found.entities["CellLine"].f1 == 1.0 and "CellType" not in found.entities


@pytest.mark.shared
def test_rules_keep_their_precision_on_biored_dev() -> None:
    lexicons = load_lexicons()
    score = score_extractor(shared("corpora", "BioRED", "Dev.PubTator"), ontology(), lexicons)
    assert score.documents == 100
    assert score.pairs.precision >= 0.70
    assert score.pairs.recall >= 0.04
    assert score.broad.f1 >= 0.60
    assert score.broad.f1 > score.in_a_sentence.f1 + 0.2
    assert score.entities["Organism"].f1 >= 0.97
    assert score.entities["CellLine"].f1 >= 0.85
    assert score.entities["Gene"].f1 >= 0.60
    assert score.entities["Disease"].f1 >= 0.60
