"""The human checkpoint, from the command line."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.adversary.hostile import waiting_run
from tests.end_to_end.harness import environment, on_a_terminal, sage
from tests.warm import run_warm


@pytest.fixture
def waiting(tmp_path: Path) -> Path:
    """A run that waits for its review."""
    return Path(shutil.copytree(waiting_run(), tmp_path / "run"))


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
    drafted = json.loads((waiting / "outputs/draft-h1.json").read_text())["hypothesis"]
    exposures = [{"variable": "expression:CXCL13", "label": "COL1A1 expression", "level": "low"}]
    told = {"exposures": exposures, "comparison": "exposed_vs_rest", "endpoint": "PFI",
            "secondary_endpoints": []}  # fmt: skip
    contradicting = told | {"statement": drafted["statement"].replace("shorter", "longer")}
    changes.write_text(json.dumps(contradicting))
    refused = sage("review", str(waiting), "--edit", str(changes), cwd=tmp_path)
    assert refused.code == 2 and "statement" in refused.err
    changes.write_text(json.dumps(told))
    ended = sage("review", str(waiting), "--edit", str(changes), "--json", cwd=tmp_path)
    assert ended.code == 0, ended.err
    contract = json.loads((waiting / "hypotheses/h1/contract.json").read_text())
    tested = contract["contract"]["hypothesis"]
    assert tested["endpoint"] == "PFI" and "CXCL13" in tested["statement"]
    assert "Edited by a person" in (waiting / "report.html").read_text()
    page = (waiting / "report.md").read_text()
    assert tested["statement"] in page and drafted["statement"] not in page
    expanded = json.loads((waiting / "outputs/expansion-h1.json").read_text())["output"]
    assert not [part for part in expanded["parts"] if "COL1A1" in part]


def test_a_rejection_with_its_reason_reaches_the_report(waiting: Path) -> None:
    ended = sage(
        "review", str(waiting), "--reject", "known for years", "--json", cwd=waiting.parent
    )
    assert ended.code == 0, ended.err
    page = (waiting / "report.html").read_text()
    assert "known for years" in page
    assert "nothing was tested" in page
    leads = set(re.findall(r'href="#([^"]+)"', page))
    assert "h1" in leads <= set(re.findall(r'\bid="([^"]+)"', page))
    assert decided(waiting)["text"] == "reject: known for years"
    assert decided(waiting)["decision"]["automatic"] is False


def decided(run: Path) -> dict[str, Any]:
    """The one turn of a person in the trace."""
    turns = [json.loads(line) for line in (run / "trace.jsonl").read_text().splitlines()]
    (turn,) = [turn for turn in turns if turn["kind"] == "human"]
    return dict(turn)


def test_asking_for_another_brings_a_different_hypothesis(waiting: Path) -> None:
    first = json.loads((waiting / "outputs/draft-h1.json").read_text())
    ended = sage("review", str(waiting), "--another", "another gene", "--json", cwd=waiting.parent)
    assert ended.code == 0, ended.err
    assert ended.json["status"] == "waiting for review"
    second = ended.json["waiting"][0]
    assert second["hypothesis"]["id"] == "h2"
    assert second["hypothesis"]["statement"] != first["hypothesis"]["statement"]


@pytest.mark.slow
def test_an_edit_on_the_terminal_is_shown_and_asked_about_before_it_is_taken(
    waiting: Path, tmp_path: Path
) -> None:
    editor = tmp_path / "editor.py"
    editor.write_text(
        "import json, sys\n"
        "path = sys.argv[1]\n"
        "told = json.load(open(path))\n"
        "told |= {'endpoint': 'PFI', 'secondary_endpoints': []}\n"
        "open(path, 'w').write(json.dumps(told))\n"
    )
    ask, take = "approve, edit, reject or ask for another?", "Use this hypothesis?"
    before = (waiting / "events.jsonl").read_bytes()
    frozen = waiting / "hypotheses/h1/contract.json"
    code, shown = on_a_terminal(
        "review", str(waiting), cwd=tmp_path, EDITOR=f"{sys.executable} {editor}", VISUAL="",
        answers=[(ask, "edit"), (take, "n"), (ask, "nonsense"), (ask, "edit"), (take, "y")],
        enough=frozen,
    )  # fmt: skip
    assert code == -signal.SIGKILL, shown[-3000:]
    assert (waiting / "events.jsonl").read_bytes().startswith(before)
    first = shown[: shown.index(take)]
    assert "- OS" in first and "+ PFI" in first  # the difference stands before the question
    assert "progression-free" in first.lower()  # and so does the statement, written anew
    assert "detectable with 80% power: " in first
    assert json.loads(frozen.read_text())["contract"]["hypothesis"]["endpoint"] == "PFI"
    assert decided(waiting)["text"].startswith("edit")


def test_a_pipe_is_read_line_by_line_and_its_end_decides_nothing(
    waiting: Path, tmp_path: Path
) -> None:
    before = (waiting / "events.jsonl").read_bytes()
    for lines in ("", "reject\n\n"):
        ended = piped(waiting, lines, tmp_path)
        assert ended.returncode == 2 and "--approve" in ended.stderr, lines
        assert "\x1b" not in ended.stdout
        assert (waiting / "events.jsonl").read_bytes() == before
    ended = piped(waiting, "approved\nreject\n\nreject\nknown\n", tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "known" in (waiting / "report.html").read_text()


def piped(run: Path, lines: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    words, env = ("review", str(run)), environment(TERM="dumb")
    return run_warm(words, cwd=cwd, env=env, timeout=240, given=lines)
