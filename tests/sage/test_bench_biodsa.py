"""BioDSA-1K: verdicts of the whole path, scores, feasibility without the papers' evidence."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from benchmarks.adapters.biodsa import Judged, beyond_tables, learned, read_items, score_verdicts
from sage.cli.app import app
from sage.core.errors import InputError

ROWS = (
    ("b", "Hormonal therapy is not associated with recurrence-free survival.", "false"),
    ("c", "CDH1 knockout enhances migration.", "non-verifiable"),
)  # fmt: skip


def write(path: Path, label: str | None = None) -> Path:
    table = pd.DataFrame(
        [
            {"sample_id": name, "PMID": name, "Title": "t", "cBioPortal_ID": "study",
             "hypothesis": text, "hypothesis_label": label or kind, "supporting_evidences": "[]"}
            for name, text, kind in ROWS
        ]
    )  # fmt: skip
    table.to_parquet(path)
    return path


def test_statements_go_the_whole_path_on_their_study(tmp_path: Path) -> None:
    path = write(tmp_path / "biodsa.parquet")
    words = ["bench", "biodsa", str(path), "--study", "study=gbsg2", "--times", "20", "--json"]
    run = CliRunner().invoke(app, words)
    assert run.exit_code == 0, run.output
    found = json.loads(run.stdout)
    assert [item["verdict"] for item in found["judged"]] == ["false", "non-verifiable"]
    assert found["verdicts"]["type_one"]["hits"] == 0
    assert found["feasibility"][0] == {"method": "constant", "auc": 0.5, "lower": 0.5, "upper": 0.5}


def test_abstaining_is_neither_accurate_nor_an_error() -> None:
    verdicts = ("true", "false", "abstained", "true")
    labels = ("true", "true", "false", "false")
    judged = [Judged(id="x", label=label, verdict=verdict)  # type: ignore[arg-type]
              for label, verdict in zip(labels, verdicts, strict=True)]  # fmt: skip
    scored = score_verdicts(judged)
    assert (scored.accuracy.hits, scored.abstained.hits) == (1, 1)
    assert (scored.type_one.rate, scored.type_two.rate) == (0.5, 0.5)
    with pytest.raises(InputError, match="no statement"):
        score_verdicts([])


def test_words_are_learned_from_other_papers_alone() -> None:
    papers = [str(number // 4) for number in range(40)]
    texts = [f"paper{paper} says nothing" for paper in papers]
    label = pd.Series(papers).astype(int).to_numpy() % 2 == 0
    score = learned(texts, label, pd.Series(papers).to_numpy())
    assert abs(score[label].mean() - score[~label].mean()) < 0.5
    assert beyond_tables("A drug can inhibit tumors in mice.") == ("possible", "experiment")


def test_another_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="hypothesis_label holds"):
        read_items(write(tmp_path / "x.parquet", "maybe"))
    pd.DataFrame({"a": [1]}).to_parquet(tmp_path / "y.parquet")
    with pytest.raises(InputError, match=r"not BioDSA-1K's table \(it has no column sample_id\)$"):
        read_items(tmp_path / "y.parquet")
    with pytest.raises(InputError, match="holds no"):
        read_items(tmp_path)
