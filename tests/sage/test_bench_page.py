"""The page of results says what the files say, and what is not there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from benchmarks.adapters.page import write_page
from sage.core.errors import InputError
from tests.end_to_end.harness import sage
from tests.sage.choices import THREE, lab_row, pair, write_blade, write_lines, write_table

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "page"


def test_the_page_that_ships_is_the_one_that_is_written() -> None:
    told = write_page(RESULTS)
    assert (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8") == told
    assert "not: none" not in told


def test_another_figure_changes_the_page_and_an_absent_one_is_said(tmp_path: Path) -> None:
    shutil.copytree(RESULTS, tmp_path / "page")
    held = json.loads((tmp_path / "page" / "hypobench.json").read_text())
    held["mean"]["rules"] |= {"recall": 0.1234, "precision": 0.5}
    held["cpu_seconds"] = 123.4
    (tmp_path / "page" / "hypobench.json").write_text(json.dumps(held))
    (tmp_path / "page" / "mtb.json").unlink()
    text = write_page(tmp_path / "page")
    assert "| 0.123, " in text and "| mtb | not run: " in text
    assert "| 123 s of a CPU |" in text
    assert "none of them wrong" not in text, "no words of a figure that may change"
    (tmp_path / "page" / "hypobench.json").write_text("{}")
    with pytest.raises(InputError, match=r"hypobench\.json: not what `[^`]* --json` writes"):
        write_page(tmp_path / "page")


def test_benchmarks_whose_files_a_user_brings_have_rows_before_and_after(tmp_path: Path) -> None:
    place = tmp_path / "page"
    place.mkdir()
    told = write_page(place)
    for title in ("TruthHypo", "BLADE", "LAB-Bench"):
        assert f"| {title} | not measured: its files are not at hand | –" in told
    write_lines(tmp_path / "q.jsonl", [lab_row(), lab_row("b", subtask="a | <b>")])
    write_table(tmp_path / "t.tsv", [pair("Gene|1", "Gene|2", "no_relation", THREE)])
    write_table(tmp_path / "g.tsv", ["Gene|1\tGene|2\tinhibit"], "x_id\ty_id\trelation")
    write_blade(tmp_path / "sets")
    for name, given in (("labbench", ("q.jsonl",)), ("truthhypo", ("t.tsv", "--graph", "g.tsv")),
                        ("blade", ("sets",))):  # fmt: skip
        run = sage("bench", name, *given, "--json", cwd=tmp_path).json
        (place / f"{name}.json").write_text(json.dumps({"rules": run}))
    chat = json.loads((place / "labbench.json").read_text())["rules"]
    chat |= {"agent": "chat", "spent": {"usd": 1.5, "models": ["m"], "calls": 2, "tokens": 9}}
    both = {"rules": {**chat, "agent": "rules"}, "chat": chat}
    (place / "labbench.json").write_text(json.dumps(both))
    told = write_page(place)
    assert "| LAB-Bench, a b | 1 questions;" in told
    assert "| 25.0% (at random) | – | 0.0% (0.0% to 65.8%); –; 0.0% (0.0% to 65.8%) |" in told
    assert "0.0% (0.0% to 65.8%) (m) | 1.50 USD |" in told
    assert "| TruthHypo | 1 questions, 0 of a link;" in told
    assert (
        "| BLADE, columns in their roles | 1 data sets; F1, precision, recall | 0.200 (rules: as"
        in told
    )
    assert "| 0.800; 100.0% (34.2% to 100.0%); 66.7% (20.8% to 93.9%) | not measured |" in told
    (place / "labbench.json").write_text(json.dumps(chat))
    assert "(m) | 1.50 USD |" in write_page(place), "one run alone stands for itself"
    one = {**chat, "scores": chat["scores"][:1], "answers": chat["answers"][1:]}
    (place / "labbench.json").write_text(json.dumps(one))
    assert "| LAB-Bench, a b | 2 questions;" in write_page(place), "one part alone is named"
    both["chat"] = {**chat, "scores": chat["scores"][:1]}
    (place / "labbench.json").write_text(json.dumps(both))
    with pytest.raises(InputError, match="were asked other questions"):
        write_page(place)
