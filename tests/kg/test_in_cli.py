"""`sage kg` as a user calls it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kg.lexicon.asked import describe_names
from kg.lexicon.ontology import Ontology
from kg.lexicon.vocabularies import import_lexicons
from sage.cli.kg import app
from tests.kg.in_helpers import ONTOLOGY, note

RUN = CliRunner()
pytestmark = pytest.mark.usefixtures("plain_settings")


def _json(*arguments: str) -> object:
    result = RUN.invoke(app, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_build_prints_json_alone_and_a_second_build_reads_nothing(tmp_path: Path) -> None:
    note(tmp_path / "in", "a", ["CXCL13 promotes TLS formation in MIBC."])
    (tmp_path / "in" / "cut.pdf").write_bytes(b"%PDF-1.4")
    out = str(tmp_path / "g.graphml")
    first = _json("build", str(tmp_path / "in"), "--out", out)
    second = _json("build", str(tmp_path / "in"), "--out", out)
    assert isinstance(first, dict)
    assert isinstance(second, dict)
    assert (first["files_failed"], first["documents"]) == (1, 1)
    assert second["files_cached"] == 2
    assert (tmp_path / "g.graphml").is_file()


def test_broad_reading_is_a_way_of_the_rules_alone(tmp_path: Path) -> None:
    asked = ["build", str(note(tmp_path, "a", ["FABP5 inhibits AKT1."])), "--out", "x", "--broad"]
    wrong = RUN.invoke(app, [*asked, "--extractor", "chat"])
    assert wrong.exit_code != 0
    assert "--broad" in str(wrong.exception or wrong.output)


def test_the_ontology_tells_what_names_mean_and_how_they_are_related() -> None:
    ontology = Ontology.load(ONTOLOGY)
    asked, between = describe_names(["CR", "pathological complete response", "CR rate"], ontology)
    assert [one.meanings[0].concept for one in asked] == [
        "complete response", "pathological complete response", "complete response",
    ]  # fmt: skip
    words = [pair.words for pair in between]
    assert words == ["the first is broader", "one concept", "the second is broader"]
    _, (inverse,) = describe_names(["pCR", "residual cancer burden"], ontology)
    assert (inverse.sign, inverse.words.split(":")[0]) == (-1, "inverse measures")
    (sentence,), _ = describe_names(["CAF regimen of 1,500 MET minutes"], ontology)
    assert [(part.concept, part.whole) for part in sentence.meanings] == [
        ("CAF chemotherapy", False)
    ]
    assert len(describe_names(["TMB and TMB"], ontology)[0][0].meanings) == 1
    unknown = RUN.invoke(app, ["term", "[bold]x", "benzo[a]pyrexene", "MET", "TMB", "TAM"])
    assert unknown.exit_code == 1
    assert {"[bold]x", "benzo[a]pyrexene"} <= set(unknown.stdout.splitlines())
    assert "HGNC:7029, NCBIGene 4233" in unknown.stdout
    assert unknown.stdout.endswith("3 pairs: two concepts, neither broader nor opposite\n")


def test_a_new_folder_takes_a_vocabulary_by_a_relative_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "d.obo").write_text("format-version: 1.2\n\n[Term]\nid: DOID:1\nname: zebra pox\n")
    shutil.copytree(ONTOLOGY, tmp_path / "onto")
    note(tmp_path / "in", "a", ["FABP5 promotes zebra pox.", "FABP5 inhibits CXCL13."])
    monkeypatch.chdir(tmp_path)
    import_lexicons([Path("d.obo")], Path("x.lex"))
    vocabulary = ["--lexicon", "x.lex", "--ontology", "onto"]
    asked = ["build", "in", "--out", "new/graph", "--embedder", "none", *vocabulary]
    result = RUN.invoke(app, asked)
    assert result.exit_code == 0, (result.output, result.exception)
    assert "2 kept" in result.stdout


def test_a_topic_leaves_out_papers_that_do_not_name_it(tmp_path: Path) -> None:
    note(tmp_path / "in", "on", ["FABP5 promotes invasion of bladder cancer cells."])
    note(tmp_path / "in", "off", ["CXCL13 promotes TLS formation."], title="Kelp and marine heat")
    asked = ["build", str(tmp_path / "in"), "--out", str(tmp_path / "o"), "--embedder", "none"]
    report = _json(*asked, "--topic", "FABP5 in bladder cancer")
    assert isinstance(report, dict)
    assert (report["documents"], report["screened_out"]) == (1, 1)
    (excluded,) = report["excluded"]
    assert excluded["title"] == "Kelp and marine heat"
    assert excluded["reason"].startswith("off topic")
    whole = _json(*asked)
    assert isinstance(whole, dict)
    assert (whole["documents"], whole["screened_out"]) == (2, 0)
