"""The vocabulary that ships, names with several meanings, and the fetch of full sets."""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kg.extract.mentions import MentionFinder
from kg.lexicon.index import Lexicon
from kg.types import EntityType
from sage.cli.kg import app
from sage.core import clock
from sage.core.data import data_root
from sage.run.wiring import load_lexicons
from tests.core.http_server import Answer, serving
from tests.kg.in_helpers import ontology

SHIPPED = data_root() / "vocabulary" / "names.lex"
RUN = CliRunner()


@pytest.fixture(scope="module")
def finder() -> MentionFinder:
    return MentionFinder(ontology(), load_lexicons())


def test_the_shipped_vocabulary_is_large_small_and_fast() -> None:
    seconds = []
    for _ in range(3):  # the best of three: other processes slow a single one
        start = time.process_time()
        lexicon = Lexicon.load(SHIPPED)
        assert lexicon.senses
        seconds.append(time.process_time() - start)
    assert min(seconds) < 0.3
    assert lexicon.terms > 200_000
    assert SHIPPED.stat().st_size < 5e6
    kinds = {lexicon.entry(n).type for n in range(len(lexicon))}
    assert kinds >= {
        EntityType.GENE, EntityType.DISEASE, EntityType.CHEMICAL, EntityType.CELL_TYPE,
        EntityType.CELL_LINE, EntityType.BIOLOGICAL_PROCESS,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text", "meaning"),
    [
        ("HRS", "Hepatocyte growth factor-regulated tyrosine kinase substrate; HRS is low.", "HGS"),
        ("SCC", "Squamous cell carcinoma is rare. SCC grew.", "squamous cell carcinoma"),
        ("SCC", "The SCC score was 4.", None),
        ("TAM", "TAM reduced relapse, as tamoxifen does.", "tamoxifen"),
        ("TAM", "The TAM was signed by both parties.", None),
        ("APC", "APC mutations start colorectal cancer.", "APC"),
        ("APC", "Antigen-presenting cells prime T cells. APC migrate.", "Antigen-Presenting Cells"),
        ("CHOP", "CHOP chemotherapy improved survival in lymphoma.", None),
        ("CHOP", "ER stress raised CHOP expression.", "DDIT3"),
        ("AMPK", "Metformin activated AMPK.", "AMPK"),
        ("AR", "AR expression in bladder cancer.", "AR"),
        ("AR", "Androgen deprivation lowers AR.", "AR"),
        ("AR", "AR was found in 12 of 80 valves.", None),
    ],
)
def test_an_ambiguous_name_counts_only_where_the_document_supports_a_meaning(
    finder: MentionFinder, name: str, text: str, meaning: str | None
) -> None:
    found = [m.name for m in finder.find(text) if text[m.start : m.end] == name]
    assert found == ([meaning] if meaning else [])


GENES = (
    "#tax_id\tGeneID\tSymbol\tSynonyms\tdbXrefs\tdescription\ttype_of_gene\tOther_designations\n"
    "9606\t2171\tFABP5\tE-FABP\t-\tfatty acid binding protein 5\tprotein-coding\t-\n"
)
OBO = 'format-version: 1.2\n\n[Term]\nid: {0}\nname: {1}\nsynonym: "{2}" EXACT []\n'
MESH = "*NEWRECORD\nRECTYPE = {0}\n{1} = {2}\nENTRY = {3}|T1|NON\n{4}UI = {5}\n"
ROUTES: dict[str, bytes | str] = {
    "/ncbi/gene/DATA/GENE_INFO/Mammalia/Homo_sapiens.gene_info.gz": gzip.compress(GENES.encode()),
    "/do/doid.obo": OBO.format("DOID:11054", "urinary bladder cancer", "bladder tumor X"),
    "/cl/cl-basic.obo": OBO.format("CL:0000084", "T cell", "T lymphocyte"),
    "/go/go-basic.obo": OBO.format("GO:0006915", "apoptotic process", "apoptosis"),
    "/chebi/chebi_lite.obo": OBO.format("CHEBI:27899", "cisplatin", "CDDP-X"),
    "/cvcl/cellosaurus.obo": OBO.format("CVCL_1783", "UM-UC-3", "UMUC3"),
    "/mesh/d{year}.bin": MESH.format(
        "D", "MH", "Carcinoma, Ductal X", "Duct Cell Carcinoma", "MN = C04.557\n", "D0001"
    ),
    "/mesh/c{year}.bin": MESH.format("C", "NM", "sagemycin", "compound 12-X", "", "C0001"),
}  # fmt: skip


@pytest.mark.usefixtures("plain_settings")
def test_the_full_sets_are_fetched_once_and_found_by_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = clock.now().year - 1  # this year's MeSH is not out yet
    out = tmp_path / "full.lex"
    with serving() as fake:
        for path, body in ROUTES.items():
            data = body if isinstance(body, bytes) else body.encode()
            fake.routes[path.format(year=last)] = Answer(data)
        for service, prefix in {
            "ncbi_files": "ncbi", "disease_ontology": "do", "mesh": "mesh", "cell_ontology": "cl",
            "gene_ontology": "go", "chebi": "chebi", "cellosaurus": "cvcl",
        }.items():  # fmt: skip
            monkeypatch.setenv(f"SAGE_SERVICES__{service.upper()}_URL", f"{fake.url}/{prefix}")
        result = RUN.invoke(app, ["vocabulary", "fetch", "--out", str(out), "--json"])
        assert result.exit_code == 0, (result.output, result.exception)
        asked = len(fake.seen)
        again = RUN.invoke(app, ["vocabulary", "fetch", "--out", str(out)])
        assert again.exit_code == 0
        assert len(fake.seen) == asked
    assert json.loads(result.stdout)["entries"] == 8
    lexicon = Lexicon.load(out)
    text = "FABP5; bladder tumor X; T lymphocyte; apoptosis; CDDP-X; Ductal X Carcinoma; "
    text += "duct cell carcinomas; compound 12-X; UM-UC-3"
    assert [lexicon.entry(m.entry).id for m in lexicon.find(text)] == [
        "NCBIGene:2171", "DOID:11054", "CL:0000084", "GO:0006915", "CHEBI:27899", "MESH:D0001",
        "MESH:D0001", "MESH:C0001", "CVCL_1783",
    ]  # fmt: skip


@pytest.mark.usefixtures("plain_settings")
def test_a_web_page_instead_of_a_vocabulary_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving() as fake:
        fake.routes["/"] = Answer(b"<html>busy</html>")
        monkeypatch.setenv("SAGE_SERVICES__NCBI_FILES_URL", fake.url)
        result = RUN.invoke(app, ["vocabulary", "fetch", "--out", str(tmp_path / "x.lex")])
    assert result.exit_code != 0
    assert not list((tmp_path / "x.files").iterdir())
