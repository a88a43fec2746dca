"""Importers: each collection's documented format, from file to dated graph."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kg.graph.model import Graph
from kg.types import Polarity
from sage.core.errors import InputError
from sage_exchange.cli import app
from sage_exchange.formats import FORMATS
from sage_exchange.years import read_years

RUN = CliRunner()
SHARED = Path(os.environ.get("SAGE_SHARED", Path(__file__).parents[3].parent / "shared")) / "data"

TRRUST = (
    "AATF\tBAX\tRepression\t22909821\nTP53\tCDKN1A\tActivation\t17157259;23000000\n"
    "A\tB\tUnknown\t1\n"
)
SIGNOR = (
    "ENTITYA\tTYPEA\tIDA\tDATABASEA\tENTITYB\tTYPEB\tIDB\tDATABASEB\tEFFECT\tMECHANISM\tPMID\t"
    "SENTENCE\tSCORE\n"
    "EGFR\tprotein\tP00533\tUNIPROT\tMAPK1\tprotein\tP28482\tUNIPROT\tup-regulates activity\t"
    "phosphorylation\t21190961\tEGFR drives ERK.\t0.734\n"
    "gefitinib\tchemical\tCID:123631\tPUBCHEM\tEGFR\tprotein\tP00533\tUNIPROT\tdown-regulates\t"
    "chemical inhibition\tOther\t\t\n"
)
CTD = (
    "# Comparative Toxicogenomics Database\n#\n# Fields:\n"
    "# ChemicalName,ChemicalID,CasRN,DiseaseName,DiseaseID,DirectEvidence,InferenceGeneSymbol,"
    "InferenceScore,OmimIDs,PubMedIDs\n#\n"
    'aspirin,D001241,,"Stroke, Ischemic",MESH:D020521,therapeutic,,,,10906998|21131030\n'
    "benzene,D001554,,Leukemia,MESH:D007938,marker/mechanism,,,,1511576\n"
    "benzene,D001554,,Anemia,MESH:D000740,,TP53,5.1,,8080640\n"
)
CTD_GENES = (
    "# Fields:\n# ChemicalName,ChemicalID,CasRN,GeneSymbol,GeneID,GeneForms,Organism,OrganismID,"
    "Interaction,InteractionActions,PubMedIDs\n"
    "arsenic,D001151,,HMOX1,3162,mRNA,Homo sapiens,9606,arsenic increases HMOX1 mRNA,"
    "increases^expression,15450951\n"
    "X,D1,,Y,7,mRNA,Homo sapiens,9606,[X co-treated with Z] results in more Y,"
    "affects^cotreatment|increases^expression,15450952\n"
    "Cisplatin,D002945,,ABCC2,1244,protein,Homo sapiens,9606,ABCC2 protein results in decreased "
    "susceptibility to Cisplatin,decreases^response to substance,15450953\n"
    "Cisplatin,D002945,,SLC31A1,1317,protein,Homo sapiens,9606,SLC31A1 protein results in "
    "increased uptake of Cisplatin,increases^uptake,15450954\n"
)
PUBTATOR = (
    "19110000|t|Naloxone reverses hypotension.\n19110000|a|Clonidine lowers pressure.\n"
    "19110000\t0\t8\tNaloxone\tChemical\tMESH:D009270\n"
    "19110000\t18\t29\thypotension\tDisease\tD007022\n"
    "19110000\tCID\tMESH:D009270\tD007022\n"
)
BIOC = {
    "PubTator3": [
        {
            "id": "22663011",
            "passages": [
                {
                    "infons": {"type": "title", "year": "2012"},
                    "text": "MEK inhibition in BRAF-mutated melanoma.",
                    "annotations": [
                        {"infons": {"type": "Gene", "identifier": "673"}, "text": "BRAF"},
                        {"infons": {"type": "Disease", "identifier": "MESH:D008545"},
                         "text": "melanoma"},
                    ],
                }
            ],
            "relations": [
                {"infons": {"type": "Association", "score": "0.9971",
                            "role1": {"identifier": "673", "type": "Gene"},
                            "role2": {"identifier": "MESH:D008545", "type": "Disease"}}}
            ],
        }
    ]
}  # fmt: skip
SEMMED = (
    "10592604,16,16530475,PROCESS_OF,C0003725,Arboviruses,virs,1,C0999630,Lemur,mamm,1\n"
    "10592697,17,16530476,TREATS,C0016157,Fish Oils,phsu,1,C0034734,Raynaud Disease,dsyn,1\n"
    "10592698,18,16530477,NEG_CAUSES,C0024467,Magnesium,inch,1,C0149931,Migraine,dsyn,1\n"
    "10592699,19,16530478,CAUSES,C1,General,inch,0,C2,Thing,dsyn,1\n"
)
INDRA = [
    {
        "type": "Activation",
        "subj": {"name": "BRAF", "db_refs": {"HGNC": "1097", "EGID": "673"}},
        "obj": {"name": "MAPK1", "db_refs": {"HGNC": "6871", "EGID": "5594"}},
        "belief": 0.86,
        "evidence": [
            {"pmid": "21190961", "text": "BRAF activates ERK2.", "epistemics": {"direct": True}},
            {"pmid": "23270001", "text": "BRAF does not.", "epistemics": {"negated": True}},
        ],
    },
    {"type": "Complex", "members": [{"name": "A", "db_refs": {"CHEBI": "CHEBI:1"}},
                                    {"name": "B", "db_refs": {}}], "evidence": []},
    {"type": "Autophosphorylation", "enz": {"name": "EGFR", "db_refs": {"HGNC": "3236"}}},
]  # fmt: skip
HETIONET = (
    "source\tmetaedge\ttarget\nGene::9021\tGpBP\tBiological Process::GO:0071357\n"
    "Compound::DB00514\tCtD\tDisease::DOID:1\n"
    "Compound::DB00514\tCpD\tDisease::DOID:2\n"
    "Gene::9021\tGcG\tGene::2\n"
    "Disease::DOID:1\tDpS\tSymptom::D3\n"
    "Pharmacologic Class::N1\tPCiC\tCompound::DB00514\n"
)

POS, NEG, NEUTRAL = Polarity.POSITIVE, Polarity.NEGATIVE, Polarity.NEUTRAL
CASES = [
    ("trrust", TRRUST, [
        ("symbol:AATF", "inhibits", "symbol:BAX", NEG, "22909821"),
        ("symbol:TP53", "activates", "symbol:CDKN1A", POS, "17157259"),
        ("symbol:TP53", "activates", "symbol:CDKN1A", POS, "23000000"),
        ("symbol:A", "regulates", "symbol:B", NEUTRAL, "1"),
    ]),
    ("signor", SIGNOR, [
        ("symbol:EGFR", "activates", "symbol:MAPK1", POS, "21190961"),
        ("signor:CID:123631", "inhibits", "symbol:EGFR", NEG, None),
    ]),
    ("ctd", CTD, [
        ("mesh:D001241", "treats", "mesh:D020521", NEG, "10906998"),
        ("mesh:D001241", "treats", "mesh:D020521", NEG, "21131030"),
        ("mesh:D001554", "promotes", "mesh:D007938", POS, "1511576"),
    ]),
    ("ctd", CTD_GENES, [
        ("mesh:D001151", "upregulates", "ncbigene:3162", POS, "15450951"),
        ("ncbigene:1244", "confers_resistance_to", "mesh:D002945", NEG, "15450953"),
        ("ncbigene:1317", "upregulates", "mesh:D002945", POS, "15450954"),
    ]),
    ("hetionet", HETIONET, [
        ("ncbigene:9021", "participates_in", "GO:0071357", POS, None),
        ("DB00514", "treats", "DOID:1", NEG, None),
        ("DB00514", "treats", "DOID:2", NEG, None),
        ("ncbigene:9021", "correlates_with", "ncbigene:2", NEUTRAL, None),
        ("DOID:1", "associated_with", "D3", POS, None),
        ("N1", "contains", "DB00514", NEUTRAL, None),
    ]),
    ("pubtator", PUBTATOR, [("mesh:D009270", "promotes", "mesh:D007022", POS, "19110000")]),
    ("pubtator", json.dumps(BIOC), [
        ("ncbigene:673", "associated_with", "mesh:D008545", NEUTRAL, "22663011"),
    ]),
    ("semmeddb", SEMMED, [
        ("umls:C0016157", "treats", "umls:C0034734", NEG, "16530476"),
        ("umls:C0024467", "promotes", "umls:C0149931", POS, "16530477"),
    ]),
    ("indra", json.dumps(INDRA), [
        ("ncbigene:673", "activates", "ncbigene:5594", POS, "21190961"),
        ("ncbigene:673", "activates", "ncbigene:5594", POS, "23270001"),
        ("chebi:1", "binds", "name:B", NEUTRAL, None),
    ]),
]  # fmt: skip


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("format", "text", "expected"), CASES)
def test_facts_of_each_format(
    tmp_path: Path, format: str, text: str, expected: list[tuple[object, ...]], packed: bool
) -> None:
    path = tmp_path / ("table.gz" if packed else "table")
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    facts = list(FORMATS[format](path))
    got = [(f.head.id, f.relation, f.tail.id, f.polarity, f.pmid) for f in facts]
    assert got == expected


def test_denials_and_doubts_are_kept_as_such(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text(SEMMED)
    (tmp_path / "i.json").write_text(json.dumps(INDRA))
    assert [f.negated for f in FORMATS["semmeddb"](tmp_path / "s.csv")] == [False, True]
    assert [f.negated for f in FORMATS["indra"](tmp_path / "i.json")] == [False, True, False]


@pytest.mark.parametrize(
    ("format", "text", "message"),
    [
        ("trrust", "A\tB\tSometimes\t1\n", "row 1: expected factor, target"),
        ("signor", "A\tB\n1\t2\n", "column ENTITYA"),
        ("ctd", "# nothing\n", "no header row with the columns PubMedIDs"),
        ("hetionet", "source\tmetaedge\ttarget\nx\tGpBP\ty\n", '"x" is not a Hetionet node'),
        ("pubtator", "just words\n", "no relations found"),
        ("pubtator", "{broken", "invalid JSON"),
        ("semmeddb", "1,2,3\n", "row 1: expected SemMedDB"),
        ("indra", "[1]", "expected a list of INDRA statements"),
        ("indra", "nothing", "invalid JSON"),
    ],
)
def test_a_file_of_another_kind_is_refused_by_name(
    tmp_path: Path, format: str, text: str, message: str
) -> None:
    path = tmp_path / "wrong.txt"
    path.write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        list(FORMATS[format](path))
    assert "wrong.txt" in str(caught.value)


def test_one_command_joins_collections_by_gene_number(tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("BRAF\tMAPK1\tActivation\t19110001\n")
    (tmp_path / "i.json").write_text(json.dumps(INDRA))
    (tmp_path / "gene_info").write_text(
        "#tax\tGeneID\tSymbol\n9606\t673\tBRAF\n9606\t5594\tMAPK1\n"
    )
    out = tmp_path / "dated"
    result = RUN.invoke(
        app,
        ["import", "trrust", str(tmp_path / "t.tsv"), "--also", f"indra:{tmp_path / 'i.json'}",
         "--genes", str(tmp_path / "gene_info"), "--out", str(out)],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "years 2009 to 2013" in result.stdout
    graph = Graph.load(out)
    edge, denied = sorted(graph.evidence("BRAF", "MAPK1"), key=lambda view: view.negated)
    assert edge.documents == 2
    assert edge.first_year == 2009
    assert denied.negated
    assert graph.as_of(2009).stats().readings == 1


def test_years_come_from_a_table_where_one_is_given(tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("BRAF\tMAPK1\tActivation\t19110001\n")
    (tmp_path / "years.csv").write_text("PMID,YEAR\n19110001,2007\n")
    out = tmp_path / "dated"
    command = ["import", "trrust", str(tmp_path / "t.tsv"), "--out", str(out)]
    result = RUN.invoke(app, [*command, "--years", str(tmp_path / "years.csv")])
    assert result.exit_code == 0, result.output
    assert Graph.load(out).first_year.tolist() == [2007]


def test_the_citations_table_of_semmeddb_gives_years(tmp_path: Path) -> None:
    path = tmp_path / "citations.csv"
    path.write_text('"16530475","0001-253X","2006 Mar","2006-03-14","2006"\n')
    assert read_years(path) == {"16530475": 2006}


@pytest.mark.shared
@pytest.mark.parametrize(
    ("format", "path", "least"),
    [
        ("pubtator", "corpora/BioRED/Train.PubTator", 4000),
        ("pubtator", "corpora/BC5CDR/CDR_TrainingSet.PubTator.txt", 1000),
        ("hetionet", "knowledge/hetionet/edges-5k.sif.gz", 60_000),
    ],
)
def test_real_files_are_read(format: str, path: str, least: int) -> None:
    if not (SHARED / path).exists():
        pytest.skip(f"shared data are not here: {path}")
    assert sum(1 for _ in FORMATS[format](SHARED / path)) > least
