"""The ontology that ships, its names, and its relations."""

from __future__ import annotations

from pathlib import Path

import pytest

from kg.lexicon.ontology import Ontology
from kg.types import EntityType, Polarity
from sage.core.errors import InputError
from tests.kg.in_helpers import ontology


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("FABP5", "gene:FABP5"),
        ("E-FABP", "gene:FABP5"),
        ("epidermal fatty acid binding protein", "gene:FABP5"),
        ("Fabp5", "gene:FABP5"),
        ("PD-L1", "gene:CD274"),
        ("TGFβ1", "gene:TGFB1"),
        ("tumour-infiltrating lymphocytes", "cell:tumor_infiltrating_lymphocyte"),
        ("urothelial bladder carcinomas", "disease:bladder_cancer"),
    ],
)
def test_spellings_of_one_thing_are_found(name: str, expected: str) -> None:
    entry = ontology().find(name)
    assert entry is not None
    assert entry.id == expected


@pytest.mark.parametrize(
    "name", ["FABP5P1", "FABP", "cat", "rest", "was", "xFABP5", "", "  ", "PCR"]
)
def test_other_things_are_not_mistaken_for_a_gene(name: str) -> None:
    entry = ontology().find(name)
    assert entry is None or entry.type != EntityType.GENE


@pytest.mark.parametrize(
    ("text", "canonical", "polarity"),
    [
        ("is independently associated with", "associated_with", Polarity.POSITIVE),
        ("inversely associated with", "correlates_negatively_with", Polarity.NEGATIVE),
        ("was upregulated in", "overexpressed_in", Polarity.POSITIVE),
        ("upregulated", "upregulates", Polarity.POSITIVE),
        ("suppressing", "inhibits", Polarity.NEGATIVE),
        ("frobnicates", "associated_with", Polarity.NEUTRAL),
    ],
)
def test_relation_phrases_map_by_precedence(text: str, canonical: str, polarity: Polarity) -> None:
    relation = ontology().relation(text)
    assert (relation.canonical, relation.polarity) == (canonical, polarity)


def test_every_entity_is_defined_and_every_name_finds_an_entity() -> None:
    assert len(ontology()) > 1000
    for entry in ontology().entries():
        assert entry.definition
        found = ontology().find(entry.name)
        assert found is not None, entry.name
        assert found.id == entry.id, entry.name


def test_a_malformed_row_is_named(tmp_path: Path) -> None:
    (tmp_path / "entities.tsv").write_text(
        "id\tname\ttype\tsynonyms\tdefinition\tsource\tidentifiers\nx:1\tX\tNonsense\t\t\t\t\n"
    )
    with pytest.raises(InputError, match=r"entities\.tsv, row 2: unknown type 'Nonsense'"):
        Ontology.load(tmp_path)


def test_an_id_used_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "entities.tsv").write_text(
        "id\tname\ttype\tsynonyms\tdefinition\tsource\tidentifiers\n"
        "x:1\tA\tGene\t\t\t\t\nx:1\tB\tGene\t\t\t\t\n"
    )
    with pytest.raises(InputError, match="'x:1' is used twice"):
        Ontology.load(tmp_path)
