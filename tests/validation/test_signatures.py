"""The gene signatures that ship: what their papers list, and nothing that reads sex as biology."""

from __future__ import annotations

import csv
import gzip
import re

import pytest

from kg.lexicon.ontology import Ontology
from sage.core.data import data_root
from tests.validation.core_help import shared
from validation.cohort.derive import signatures

SHIPPED = signatures()
SEX_LINKED = {"EIF1AY", "RPS4Y1", "DDX3Y", "KDM5D", "UTY", "USP9Y", "ZFY", "NLGN4Y", "XIST", "TSIX"}
SIZES = {
    "gep_18": 18, "f_tbrs": 19, "proliferation": 11, "caf": 8, "tls_chemokines_12": 12,
    "ifng_6": 6, "cytolytic_activity": 2, "tls_imprint_9": 8,
}  # fmt: skip


def test_signatures_cite_their_papers_and_hold_whole_sets_without_genes_of_sex() -> None:
    cited = r"[A-Z][a-z]+ (?:et al\.|and [A-Z][a-z]+) (?:19|20)\d\d, [A-Z]"
    for name, signature in SHIPPED.items():
        assert re.search(cited, signature.source), name
        assert len(set(signature.genes)) == len(signature.genes), name
        assert not SEX_LINKED & set(signature.genes), name
    assert {name: len(SHIPPED[name].genes) for name in SIZES} == SIZES


@pytest.mark.shared
def test_every_gene_is_official_and_none_lies_on_the_y_chromosome() -> None:
    where: dict[str, str] = {}
    path = shared("knowledge") / "genes" / "Homo_sapiens.gene_info.gz"
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for row in csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE):
            for name in (row["Symbol"], *row["Synonyms"].split("|")):
                if name == row["Symbol"] or name not in where:
                    where[name] = row["chromosome"]
    assert where["EIF1AY"] == "Y"
    for name, signature in SHIPPED.items():
        for gene in signature.genes:
            assert gene in where, (name, gene)
            assert where[gene] != "Y", (name, gene)


def test_the_ontology_names_the_sets_that_are_measured() -> None:
    ontology = Ontology.load(data_root() / "ontology")
    for name in ("F-TBRS", "18-gene GEP", "EMT signature", "proliferation signature", "CAF score"):
        entry = ontology.find(name)
        assert entry is not None, name
        assert entry.id.startswith("signature:")


def test_a_name_is_that_of_one_signature() -> None:
    names = [name.casefold() for held in SHIPPED.values() for name in {held.label, *held.synonyms}]
    assert [name for name in names if names.count(name) > 1] == []
