"""`sage kg` as a user calls it."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kg.lexicon.asked import ask
from kg.lexicon.ontology import Ontology
from sage.cli.kg import app
from sage.core.errors import InputError
from tests.kg.in_helpers import ONTOLOGY, ROOT, note

RUN = CliRunner()
pytestmark = pytest.mark.usefixtures("plain_settings")


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demonstration corpus as a graph."""
    out = tmp_path_factory.mktemp("graph") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SAGE_EMBEDDING_MODEL", "hashing")
        result = RUN.invoke(app, ["build", str(ROOT / "data" / "corpus"), "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert "triples" in result.stdout
    return out


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


def test_stats_show_and_merges_answer_from_the_graph(graph: Path) -> None:
    stats = _json("stats", "--graph", str(graph))
    assert isinstance(stats, dict)
    assert stats["nodes"] > 100
    shown = _json("show", "E-FABP", "--graph", str(graph))
    assert isinstance(shown, dict)
    assert shown["node"]["name"] == "FABP5"
    assert shown["node"]["identifiers"]["HGNC"] == "HGNC:3560"
    assert any("bladder cancer" in s["evidence"]["text"] for n in shown["neighbors"]
               for e in n["edges"] for s in e["supports"])  # fmt: skip
    assert isinstance(_json("merges", "--graph", str(graph)), list)


def test_paths_join_two_concepts_with_evidence(graph: Path) -> None:
    found = _json("paths", "IL2", "TLS formation", "--graph", str(graph))
    assert isinstance(found, dict)
    assert found["paths"]
    assert all(edge["evidence"] for path in found["paths"] for edge in path["edges"])


@pytest.mark.parametrize("format", ["graphml", "json", "html"])
def test_export_writes_each_format(graph: Path, tmp_path: Path, format: str) -> None:
    target = tmp_path / f"x.{format}"
    _json("export", "--graph", str(graph), "--format", format, "--out", str(target))
    assert target.stat().st_size > 1000


def test_broad_reading_is_a_way_of_the_rules_alone(tmp_path: Path) -> None:
    text = "FABP5 gene and bladder cancer. FABP5 variants were identified in bladder cancer."
    note(tmp_path / "in", "a", [text, "FABP5 inhibits AKT1."])
    plain = _json("build", str(tmp_path / "in"), "--out", str(tmp_path / "a"))
    broad = _json("build", str(tmp_path / "in"), "--out", str(tmp_path / "b"), "--broad")
    assert isinstance(plain, dict)
    assert isinstance(broad, dict)
    assert broad["triples"] > plain["triples"] > 0
    wrong = RUN.invoke(
        app, ["build", str(tmp_path / "in"), "--out", "x", "--broad", "--extractor", "chat"]
    )
    assert wrong.exit_code != 0
    assert "--broad" in str(wrong.exception or wrong.output)


def test_screen_prints_what_is_dropped_and_why(tmp_path: Path) -> None:
    finding = (
        "High FABP5 expression is associated with survival in bladder cancer histology and "
        "immunotherapy response of the tumor microenvironment."
    )
    note(tmp_path, "on", [finding])
    note(tmp_path, "off", ["Kelp forests suffer."], title="Marine heatwaves and kelp forests")
    result = RUN.invoke(app, ["screen", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "dropped" in result.stdout
    assert "Marine heatwaves" in result.stdout
    assert "no keyword of" in result.stdout
    assert "2 papers, 1 dropped (50%)" in result.stdout


def test_evaluate_writes_a_sheet_and_scores_it_when_filled(graph: Path, tmp_path: Path) -> None:
    written = _json("evaluate", str(graph), "--out", str(tmp_path), "--size", "20")
    assert isinstance(written, dict)
    sheet = Path(written["sheet"])
    with sheet.open(newline="", encoding="utf-8") as handle:
        rows = list(csv.DictReader(handle))
    assert len(rows) == 20
    for row in rows:
        row |= {"grounded": "yes", "relation_ok": "yes", "head_type_ok": "yes",
                "tail_type_ok": "lenient", "hallucinated": "no"}  # fmt: skip
    with sheet.open("w", newline="", encoding="utf-8") as handle:
        writer = csv.DictWriter(handle, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    result = RUN.invoke(app, ["evaluate", str(graph), "--sheet", str(sheet)])
    assert "factual grounding      100.0%" in result.stdout
    assert "50.0%" in result.stdout


def test_lexicon_import_and_score_extractor_work_together(tmp_path: Path) -> None:
    obo = tmp_path / "d.obo"
    obo.write_text("format-version: 1.2\n\n[Term]\nid: DOID:1\nname: zebra pox\n")
    lexicon = str(tmp_path / "x.lex")
    assert _json("lexicon", "import", str(obo), "--out", lexicon)["entries"] == 1  # type: ignore[index]
    corpus = tmp_path / "c.PubTator"
    corpus.write_text(
        "1|t|A.\n1|a|FABP5 promotes zebra pox.\n"
        "1\t3\t8\tFABP5\tGeneOrGeneProduct\t2171\n"
        "1\t18\t27\tzebra pox\tDiseaseOrPhenotypicFeature\tD1\n1\tAssociation\t2171\tD1\tNovel\n"
    )
    without = _json("score-extractor", str(corpus))
    given = _json("score-extractor", str(corpus), "--lexicon", lexicon)
    assert without["entities_exact"]["Disease"]["recall"] == 0.0  # type: ignore[index,call-overload]
    assert given["pairs_end_to_end"]["f1"] == 1.0  # type: ignore[index,call-overload]


def test_the_baseline_of_names_looks_up_strings_of_other_documents(tmp_path: Path) -> None:
    def corpus(number: int, sentence: str, *names: str) -> str:
        path = tmp_path / f"{number}.PubTator"
        rows = [f"{number}|t|A.", f"{number}|a|{sentence}"]
        for name in names:
            start = 3 + sentence.index(name)
            rows.append(f"{number}\t{start}\t{start + len(name)}\t{name}\tDisease\tD1")
        path.write_text("\n".join(rows) + "\n")
        return str(path)

    learned = corpus(1, "pox and zebra pox harm", "pox", "zebra pox")
    asked = corpus(2, "Zebra pox, not poxes or cow pox", "Zebra pox", "cow pox")
    score = _json("score-extractor", asked, "--look-up", learned)
    looked_up = score["entities_looked_up"]["Disease"]  # type: ignore[index,call-overload]
    assert (looked_up["found"], looked_up["expected"], looked_up["correct"]) == (2, 2, 1)
    assert "Disease, strings looked up" in RUN.invoke(
        app, ["score-extractor", asked, "--look-up", learned]
    ).stdout.replace("\n", "")
    same = RUN.invoke(app, ["score-extractor", asked, "--look-up", asked])
    assert isinstance(same.exception, InputError)
    assert "stands in" in str(same.exception)


def test_the_ontology_tells_what_names_mean_and_how_they_are_related() -> None:
    ontology = Ontology.load(ONTOLOGY)
    asked, between = ask(["CR", "pathological complete response", "CR rate"], ontology)
    assert [one.meanings[0].concept for one in asked] == [
        "complete response", "pathological complete response", "complete response",
    ]  # fmt: skip
    words = [pair.words for pair in between]
    assert words == ["the first is broader", "one concept", "the second is broader"]
    _, (inverse,) = ask(["pCR", "residual cancer burden"], ontology)
    assert (inverse.sign, inverse.words.split(":")[0]) == (-1, "inverse measures")
    (sentence,), _ = ask(["CAF regimen of 1,500 MET minutes"], ontology)
    assert [(part.concept, part.whole) for part in sentence.meanings] == [
        ("CAF chemotherapy", False)
    ]
    assert len(ask(["TMB and TMB"], ontology)[0][0].meanings) == 1
    unknown = RUN.invoke(app, ["term", "[bold]x", "benzo[a]pyrexene", "MET", "TMB", "TAM"])
    assert unknown.exit_code == 1
    assert {"[bold]x", "benzo[a]pyrexene"} <= set(unknown.stdout.splitlines())
    assert "HGNC:7029, NCBIGene 4233" in unknown.stdout
    assert unknown.stdout.endswith("3 pairs: two concepts, neither broader nor opposite\n")


@pytest.mark.parametrize("absolute", [True, False])
def test_a_new_folder_takes_a_vocabulary_by_any_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, absolute: bool
) -> None:
    (tmp_path / "d.obo").write_text("format-version: 1.2\n\n[Term]\nid: DOID:1\nname: zebra pox\n")
    shutil.copytree(ONTOLOGY, tmp_path / "onto")
    note(tmp_path / "in", "a", ["FABP5 promotes zebra pox.", "FABP5 inhibits CXCL13."])
    monkeypatch.chdir(tmp_path)
    base = tmp_path if absolute else Path()
    _json("lexicon", "import", "d.obo", "--out", "x.lex")
    vocabulary = ["--lexicon", str(base / "x.lex"), "--ontology", str(base / "onto")]
    asked = ["build", "in", "--out", "new/graph", "--embedder", "none", *vocabulary]
    result = RUN.invoke(app, asked)
    assert result.exit_code == 0, (result.output, result.exception)
    assert "2 kept" in result.stdout


def test_chat_without_an_endpoint_is_bad_input(tmp_path: Path) -> None:
    note(tmp_path / "in", "a", ["CXCL13 promotes TLS formation."])
    result = RUN.invoke(
        app, ["build", str(tmp_path / "in"), "--out", str(tmp_path / "o"), "--extractor", "chat"]
    )
    assert isinstance(result.exception, InputError)
    assert "base_url or api_key" in str(result.exception)


@pytest.mark.parametrize(
    "command",
    ["build", "screen", "evaluate", "score-extractor", "lexicon import", "paths", "stats", "show",
     "export", "merges", "import", "backtest", "score-fusion", "calibrate"],
)  # fmt: skip
def test_every_command_shows_an_example(command: str) -> None:
    result = RUN.invoke(app, [*command.split(), "--help"])
    assert result.exit_code == 0
    assert f"Example: sage kg {command}" in result.stdout
