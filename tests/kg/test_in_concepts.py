"""The ontology as a relational resource: no two things under one node, and what relates them."""

from __future__ import annotations

import csv
import gzip
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kg.lexicon.links import Link, Links, Related
from kg.lexicon.ontology import Ontology, OntologyEntry
from kg.types import EntityType, Polarity
from sage.core.errors import InputError
from tests.kg.in_helpers import ONTOLOGY, ontology, shared

SENTENCES = Path(__file__).with_name("ontology_sentences.tsv")
SIGNS = {"+": Polarity.POSITIVE, "-": Polarity.NEGATIVE, "0": Polarity.NEUTRAL}


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as handle:
        return list(csv.DictReader(handle, delimiter="\t", quoting=csv.QUOTE_NONE))


# -- identity and sign in sentences --------------------------------------------------------------


@pytest.mark.parametrize("row", table(SENTENCES), ids=lambda row: row["sentence"][:50])
def test_a_sentence_names_these_things_with_this_sign(row: dict[str, str]) -> None:
    sentence = row["sentence"]
    entries = list(ontology().entries())
    found = ontology().find_all(sentence)
    assert [entries[match.entry].id for match in found] == [
        name for name in row["mentions"].split("|") if name
    ]
    if row["sign"]:
        between = sentence[found[0].end : found[1].start]
        assert ontology().relation(between).polarity is SIGNS[row["sign"]], between


# -- no two things under one node ----------------------------------------------------------------

OPPOSED = (
    ("high", "low"), ("higher", "lower"), ("early", "late"), ("early", "advanced"),
    ("positive", "negative"), ("stable", "unstable"), ("complete", "partial"),
    ("gain", "loss"), ("amplification", "deletion"), ("amplification", "mutation"),
    ("neoadjuvant", "adjuvant"), ("eligible", "ineligible"), ("early", "high"),
    ("sensitivity", "resistance"), ("sensitive", "resistant"), ("male", "female"),
    ("men", "women"), ("activation", "inhibition"), ("activator", "inhibitor"),
    ("hyper", "hypo"), ("inflamed", "excluded"), ("inflamed", "desert"), ("hot", "cold"),
    ("mature", "immature"), ("basal", "luminal"), ("intratumoral", "peritumoral"),
    ("increase", "decrease"), ("survival", "mortality"), ("survival", "death"),
    ("percentage", "distance"), ("density", "distance"), ("free survival", "free interval"),
    ("order", "disorder"), ("alignment", "disorder"), ("innate", "adaptive"),
    ("acute", "chronic"), ("benign", "malignant"), ("oxidation", "synthesis"),
    ("proficient", "deficient"), ("current", "never"), ("m1", "m2"), ("th1", "th2"),
    ("pathological complete", "clinical complete"), ("smoke", "nicotine"),
    ("mutational", "neoantigen"), ("methylation", "demethylation"),
    ("phosphorylation", "dephosphorylation"), ("acetylation", "deacetylation"),
    ("ubiquitination", "deubiquitination"), ("differentiation", "dedifferentiation"),
    ("tumor to stroma", "stroma to tumor"), ("macrophage", "tumor associated macrophage"),
)  # fmt: skip
"""Words that name opposites or different things; never both among the names of one entity."""


def words_of(name: str) -> str:
    spelled = re.sub(r"[^a-z0-9+]+", " ", name.lower().replace("tumour", "tumor")).strip()
    return f" {spelled} "


def holds(name: str, word: str) -> bool:
    prefix = word in ("hyper", "hypo")
    return (
        f" {word}" in words_of(name)
        if prefix
        else bool(re.search(rf" {re.escape(word)}(?:e?s)? ", words_of(name)))
    )


def test_no_entity_bears_names_that_oppose_each_other() -> None:
    clashes = []
    for entry in ontology().entries():
        if entry.type is EntityType.GENE:
            continue
        names = [entry.name, *entry.synonyms]
        for one, other in OPPOSED:
            first = [name for name in names if holds(name, one) and not holds(name, other)]
            second = [name for name in names if holds(name, other) and not holds(name, one)]
            if first and second and not (one in other and set(second) & set(first)):
                clashes.append((entry.id, first[0], second[0]))
    assert not clashes


def test_one_spelling_names_one_entity() -> None:
    owners: dict[str, set[str]] = {}
    for entry in ontology().entries():
        for name in (entry.name, *entry.synonyms):
            owners.setdefault(name, set()).add(entry.id)
    assert not {name: ids for name, ids in owners.items() if len(ids) > 1}


APART = (
    ("deubiquitination", "ubiquitination", -1),
    ("tumor-to-stroma ratio", "stroma percentage", -1),
    ("cell-cell distance", "cellularity", -1),
    ("pathological complete response", "complete response", 1),
    ("ERBB2 mutation", "ERBB2 alteration", 1),
    ("ERBB2 mutation", "ERBB2 amplification", 0),
    ("TMB", "neoantigen burden", 0),
    ("nicotine", "tobacco smoke", 0),
    ("TAM", "macrophage", 1),
    ("luminal papillary", "basal/squamous", -1),
    ("adjuvant chemotherapy", "neoadjuvant therapy", -1),
    ("overall survival", "all-cause mortality", -1),
    ("cisplatin resistance", "cisplatin sensitivity", -1),
    ("atezolizumab", "immune checkpoint inhibitor", 1),
    ("ISUP grade group", "Gleason score", 0),
    ("CDKN2A homozygous deletion", "CDKN2A loss", 1),
    ("exhausted CD8 T cell", "exhausted T cell", 1),
    ("ancestry", "ethnicity", 0),
)


@pytest.mark.parametrize(("first", "second", "sign"), APART)
def test_what_differs_is_apart_and_says_its_sign(first: str, second: str, sign: int) -> None:
    one, other = ontology().find(first), ontology().find(second)
    assert one is not None
    assert other is not None
    assert one.id != other.id
    assert ontology().links.sign(one.id, other.id) == sign
    if sign < 0:
        assert ontology().links.sign(other.id, one.id) == sign


def test_no_entity_is_both_broader_and_opposite() -> None:
    links = ontology().links
    for item in links.related:
        if item.relation is not Link.BROADER:
            assert item.other not in (*links.broader(item.id), *links.narrower(item.id)), item


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=16))
def test_broader_and_narrower_mirror_each_other(pairs: list[tuple[int, int]]) -> None:
    related = [Related(str(a), Link.BROADER, str(b)) for a, b in pairs if a < b]
    links = Links(related)
    names = [str(at) for at in range(9)]
    for one in names:
        assert one not in links.broader(one)
        for other in names:
            assert (other in links.broader(one)) == (one in links.narrower(other))
            assert links.sign(one, other) == links.sign(other, one)


# -- definitions and identifiers -----------------------------------------------------------------


def test_genes_of_unlike_function_share_no_definition() -> None:
    told: dict[str, list[str]] = {}
    for entry in ontology().entries():
        if entry.type is EntityType.GENE:
            told.setdefault(entry.definition or "", []).append(entry.name)
    assert not {text: genes for text, genes in told.items() if len(genes) > 1}
    words = ontology().definition("KLK3") or ""
    assert "prostate" in words.lower()
    assert "driver" not in words
    assert "dividing" in (ontology().definition("MKI67") or "")


@pytest.mark.shared
def test_a_gene_bears_the_official_symbol_name_and_identifiers() -> None:
    path = shared("knowledge", "genes", "Homo_sapiens.gene_info.gz")
    official = {}
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            cells = line.rstrip("\n").split("\t")
            name = cells[8] if cells[11] == "-" else cells[11]
            official[cells[1]] = (cells[2], cells[5].split("|"), name.lower())
    for entry in ontology().entries():
        if entry.type is EntityType.GENE:
            symbol, references, name = official[entry.identifiers["NCBIGene"]]
            assert symbol in {entry.name, *entry.synonyms}, entry.name
            assert (entry.definition or "").lower().startswith(name), entry.name
            if "HGNC" in entry.identifiers:
                assert f"HGNC:{entry.identifiers['HGNC']}" in references


def name_key(name: str) -> str:
    """A name without inversion (`Lymphocytes, Tumor-Infiltrating`), punctuation and plural."""
    name = name.lower().replace("tumour", "tumor")
    if ", " in name:
        name = " ".join(reversed(name.split(", ")))
    words = []
    for word in re.sub(r"[^a-z0-9+]+", " ", name).split():
        if len(word) > 4 and word.endswith("ies"):
            word = word[:-3] + "y"
        elif len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
            word = word[:-1]
        words.append(word)
    return " ".join(words)


def bearing(kind: str) -> list[tuple[OntologyEntry, str]]:
    return [
        (entry, entry.identifiers[kind])
        for entry in ontology().entries()
        if kind in entry.identifiers and entry.type is not EntityType.GENE
    ]


def public_names() -> Iterator[tuple[str, str]]:
    """Identifiers and names of MeSH, Hetionet, two OBO files and experts' annotations."""
    for folder in ("mesh", "obo"):
        for line in shared("knowledge", folder, "terms.tsv").read_text().splitlines()[1:]:
            identifier, name = line.split("\t")[:2]
            yield identifier, name
    for line in shared("knowledge", "hetionet", "hetionet-v1.0-nodes.tsv").read_text().splitlines():
        node, name, _ = line.split("\t")
        yield node.partition("::")[2], name
    for file in ("goslim_generic.obo", "DO_cancer_slim.obo"):
        text = shared("knowledge", "obo", file).read_text(encoding="utf-8")
        yield from re.findall(r"^id: (\S+)\nname: (.+)$", text, re.MULTILINE)
    for file in ("Train.PubTator", "Dev.PubTator"):
        for line in shared("corpora", "BioRED", file).read_text(encoding="utf-8").splitlines():
            cells = line.split("\t")
            if len(cells) == 6 and cells[4] in ("CellLine", "OrganismTaxon"):
                yield cells[5].strip(), cells[3]


@pytest.mark.shared
def test_identifiers_agree_by_name_with_public_tables() -> None:
    known: dict[str, set[str]] = {}
    for identifier, name in public_names():
        known.setdefault(identifier, set()).add(name_key(name).replace(" ", ""))
    least = {"MeSH": 300, "GO": 70, "UBERON": 30, "DOID": 40, "DrugBank": 60, "Cellosaurus": 1,
             "NCBITaxon": 1}  # fmt: skip
    for kind, count in least.items():
        found = bearing(kind)
        assert len(found) >= count, kind
        for entry, identifier in found:
            names = {name_key(name).replace(" ", "") for name in (entry.name, *entry.synonyms)}
            assert known[identifier] & names, (entry.id, identifier, known[identifier])


def ncit_key(name: str) -> list[str]:
    """The words of a name in any order, a cancer as carcinoma: NCIt calls most of them so."""
    return sorted(name_key(name).replace("cancer", "carcinoma").split())


def test_ncit_identifiers_were_seen_beside_a_name_of_their_concept() -> None:
    seen = {row["identifier"]: row for row in table(ONTOLOGY / "ncit.tsv")}
    found = bearing("NCIT")
    assert len(found) == len(seen) == len(table(ONTOLOGY / "ncit.tsv")) >= 240
    for entry, identifier in found:
        names = [ncit_key(name) for name in (entry.name, *entry.synonyms)]
        assert ncit_key(seen[identifier]["name"]) in names, (entry.id, seen[identifier])
        assert seen[identifier]["seen"], identifier


@pytest.mark.shared
def test_ncit_identifiers_of_the_disease_ontology_stand_there() -> None:
    told: set[tuple[str, str]] = set()
    for file in ("DO_cancer_slim.obo", "TOPNodes_DOcancerslim.obo"):
        for term in shared("knowledge", "obo", file).read_text(encoding="utf-8").split("[Term]"):
            names = re.findall(r'^(?:name: (.+)|synonym: "(.+?)" EXACT.*)$', term, re.MULTILINE)
            for code in re.findall(r"^xref: NCI:(C\d+)", term, re.MULTILINE):
                told |= {(f"NCIT:{code}", name or synonym) for name, synonym in names}
    for line in shared("knowledge", "obo", "xrefs-slim.tsv").read_text().splitlines():
        cells = line.split("\t")
        told.add((f"NCIT:{cells[3]}", cells[1]))
    rows = [row for row in table(ONTOLOGY / "ncit.tsv") if row["seen"].startswith("dhimmel/")]
    assert len(rows) >= 6
    for row in rows:
        assert (row["identifier"], row["name"]) in told, row


def test_an_identifier_stands_once_and_in_its_form() -> None:
    forms = {
        "MeSH": r"D\d{6,9}", "GO": r"GO:\d{7}", "UBERON": r"UBERON:\d{7}", "CL": r"CL:\d{7}",
        "DOID": r"DOID:\d+", "DrugBank": r"DB\d{5}", "Cellosaurus": r"CVCL_\w{4}",
        "NCBITaxon": r"\d+", "NCBIGene": r"\d+", "HGNC": r"HGNC:\d+", "NCIT": r"NCIT:C\d+",
    }  # fmt: skip
    seen: dict[tuple[str, str], str] = {}
    for entry in ontology().entries():
        for kind, identifier in entry.identifiers.items():
            assert re.fullmatch(forms[kind], identifier), (entry.id, kind, identifier)
            assert (kind, identifier) not in seen, (entry.id, seen.get((kind, identifier)))
            seen[kind, identifier] = entry.id


# -- malformed tables ----------------------------------------------------------------------------

ENTITIES = (
    "id\tname\ttype\tsynonyms\tdefinition\tsource\tidentifiers\n"
    "x:1\tA\tGene\t\tFirst.\town\t\nx:2\tB\tGene\t\tSecond.\town\t\n"
)


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("related.tsv", "id\trelation\tother\nx:1\tbroader\tx:9\n", r"row 2: 'x:9' is not an id"),
        ("related.tsv", "id\trelation\tother\nx:1\tlike\tx:2\n", r"unknown relation 'like'"),
        ("related.tsv", "id\trelation\tother\nx:1\tbroader\tx:1\n", r"'x:1' is related to itself"),
        ("related.tsv", "id\trelation\tother\nx:1\tbroader\tx:2\nx:2\topposite\tx:1\n",
         r"row 3: .*row 2 already relates these two"),
        ("related.tsv", "id\tother\n", r"the header must be id relation other"),
        ("homonyms.tsv", "surface\tnear\tentity\nAB\t\tx:9\n", r"row 2: 'x:9' is not an id"),
        ("homonyms.tsv", "surface\tnear\t"
                         "entity\n\t\tx:1\n", r"row 2: a homonym "
                                                             r"requires a surface"),
        ("entities.tsv", ENTITIES.replace("\town\t\nx:2", "\t\t\nx:2"),
         r"row 2: a definition requires a source"),
    ],
)  # fmt: skip
def test_a_malformed_table_is_named_with_its_row(
    tmp_path: Path, file: str, text: str, message: str
) -> None:
    (tmp_path / "entities.tsv").write_text(ENTITIES)
    (tmp_path / "relations.tsv").write_text((ONTOLOGY / "relations.tsv").read_text())
    assert len(Ontology.load(tmp_path)) == 2
    (tmp_path / file).write_text(text)
    with pytest.raises(InputError, match=message):
        Ontology.load(tmp_path)
