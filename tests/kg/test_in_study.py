"""What an abstract says of its study stays with each triple."""

from __future__ import annotations

from pathlib import Path

import pytest

from kg.corpus.build import build
from kg.corpus.store import Store
from kg.extract.study import parse_size, parse_study
from tests.kg.in_helpers import FAST, note, ontology


@pytest.mark.parametrize(
    ("text", "design", "cohort", "n"),
    [
        ("We retrospectively reviewed 210 patients with MIBC.", "retrospective cohort", None, 210),
        ("In this randomized phase III trial, 1,052 women were assigned.", "randomized trial",
         None, 1052),
        ("A meta-analysis of 30 randomized trials (n=3,413).", "meta-analysis", None, 3413),
        ("Case-control study of 515 cases and 1030 controls.", "case-control study", None, 515),
        ("TCGA-BLCA and GSE13507 were used; 408 tumors.", None, "TCGA-BLCA, GSE13507", 408),
        ("Mice were treated with metformin.", "animal study", None, None),
        ("T24 cell lines were treated in vitro.", "in vitro study", None, None),
        ("FABP5 was measured.", None, None, None),
        ("In 2019 patients came. Since 2015 cases rise.", None, None, None),
        ("Of 12 mice and 47 patients, few.", "animal study", None, 47),
    ],
)  # fmt: skip
def test_design_cohort_and_number_are_read(
    text: str, design: str | None, cohort: str | None, n: int | None
) -> None:
    study = parse_study(text)
    assert (study.design, study.cohort, study.n) == (design, cohort, n)


def test_a_sentence_with_two_numbers_has_none() -> None:
    assert parse_size("In MIBC (n=210).") == 210
    assert parse_size("In MIBC (n=210) and NMIBC (n=86).") is None


def test_evidence_carries_the_study_into_the_graph(tmp_path: Path) -> None:
    note(
        tmp_path / "notes", "one",
        ["A retrospective study of 408 patients of TCGA.",
         "FABP5 promotes invasion of bladder cancer (n=62).",
         "CXCL13 promotes invasion of bladder cancer."],
    )  # fmt: skip
    build([tmp_path / "notes"], tmp_path / "out", FAST, ontology())
    with Store(tmp_path / "out" / "store.sqlite") as store:
        evidence = {t.head: t.evidence for t in store.triples()}
    assert (evidence["FABP5"].n, evidence["CXCL13"].n) == (62, 408)
    assert {e.design for e in evidence.values()} == {"retrospective cohort"}
    assert {e.cohort for e in evidence.values()} == {"TCGA"}
    written = (tmp_path / "out" / "graph.graphml").read_text()
    assert "retrospective cohort" in written
