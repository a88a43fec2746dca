"""The human checkpoint, from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.end_to_end.harness import PROMPT, sage


@pytest.fixture
def waiting(tmp_path: Path) -> Path:
    ended = sage("run", PROMPT, "--json", "--out", str(tmp_path / "run"), cwd=tmp_path)
    assert ended.code == 0, ended.err
    assert ended.json["status"] == "waiting for review"
    return tmp_path / "run"


def test_nothing_is_tested_before_a_person_approves(waiting: Path) -> None:
    assert not (waiting / "hypotheses").exists()
    ended = sage("resume", str(waiting), "--json", cwd=waiting.parent)
    assert ended.json["status"] == "waiting for review"
    assert not (waiting / "hypotheses").exists()


def test_an_edit_is_checked_against_the_cohort_and_then_tested(
    waiting: Path, tmp_path: Path
) -> None:
    changes = tmp_path / "changes.json"
    changes.write_text(json.dumps({"covariates": ["clinical:shoe_size"]}))
    refused = sage("review", str(waiting), "--edit", str(changes), cwd=tmp_path)
    assert refused.code == 2
    assert "clinical:shoe_size" in refused.err
    changes.write_text(json.dumps({"endpoint": "PFI", "secondary_endpoints": []}))
    ended = sage("review", str(waiting), "--edit", str(changes), "--json", cwd=tmp_path)
    assert ended.code == 0, ended.err
    contract = json.loads((waiting / "hypotheses/h1/contract.json").read_text())
    assert contract["contract"]["hypothesis"]["endpoint"] == "PFI"
    assert "edited by a person" in (waiting / "report.html").read_text()


def test_a_rejection_with_its_reason_reaches_the_report(waiting: Path) -> None:
    ended = sage(
        "review", str(waiting), "--reject", "known for years", "--json", cwd=waiting.parent
    )
    assert ended.code == 0, ended.err
    page = (waiting / "report.html").read_text()
    assert "known for years" in page
    assert "nothing was tested" in page
    turns = [json.loads(line) for line in (waiting / "trace.jsonl").read_text().splitlines()]
    (decided,) = [turn for turn in turns if turn["kind"] == "human"]
    assert decided["text"] == "reject: known for years"
    assert decided["decision"]["automatic"] is False


def test_asking_for_another_brings_a_different_hypothesis(waiting: Path) -> None:
    first = json.loads((waiting / "outputs/draft-h1.json").read_text())
    ended = sage("review", str(waiting), "--another", "another gene", "--json", cwd=waiting.parent)
    assert ended.code == 0, ended.err
    assert ended.json["status"] == "waiting for review"
    second = ended.json["waiting"][0]
    assert second["hypothesis"]["id"] == "h2"
    assert second["hypothesis"]["statement"] != first["hypothesis"]["statement"]
