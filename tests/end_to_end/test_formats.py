"""Folders of runs as earlier formats left them, waiting for review: shown, gone on with, finished.

Each was left by the SAGE of its time (`formats/format-N.tar.xz`): a question to the demonstration
cohort, answered by rules.
"""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path

import pytest

from sage.run.folder import FORMAT, RunFolder
from tests.end_to_end.harness import sage
from tests.postgres import NEEDED, server

KEPT = sorted((Path(__file__).parent / "formats").glob("format-*.tar.xz"))


def unpacked(archive: Path, into: Path) -> Path:
    """The run's folder, at another place than where it was left."""
    with tarfile.open(archive) as held:
        held.extractall(into, filter="data")
    return into / "run"


def test_every_format_so_far_is_kept() -> None:
    assert [path.name for path in KEPT] == [f"format-{n}.tar.xz" for n in range(1, FORMAT + 1)]


@pytest.mark.parametrize("archive", KEPT, ids=lambda path: path.name.split(".")[0])
def test_a_run_of_an_earlier_format_is_reviewed_and_finished(archive: Path, tmp_path: Path) -> None:
    run = unpacked(archive, tmp_path)
    before = json.loads((run / "manifest.json").read_text())
    shown = sage("show", str(run), cwd=tmp_path)
    assert shown.code == 0 and "waiting for review" in shown.out
    done = sage("review", str(run), "--approve", cwd=tmp_path)
    assert done.code == 0, done.err
    after = json.loads((run / "manifest.json").read_text())
    assert after["format"] == FORMAT and after["status"] == "finished" and after["run_id"]
    assert after["prompt"] == before["prompt"] and after["created"] == before["created"]
    assert after["thread"] == before.get("thread") or before.get("format", 1) == 1
    assert (run / "report.html").stat().st_size > 10_000
    again = sage("show", str(run), cwd=tmp_path)
    assert again.code == 0 and "verdict" in again.out


def test_a_changed_draft_of_an_earlier_format_is_refused(tmp_path: Path) -> None:
    run = unpacked(KEPT[1], tmp_path)
    draft = run / "outputs" / "draft-h1.json"
    draft.write_text(draft.read_text().replace("shorter", "longer", 1))
    refused = sage("review", str(run), "--approve", cwd=tmp_path)
    assert refused.code == 2 and "draft-h1.json" in refused.err


@pytest.mark.parametrize("kind", [pytest.param("postgres", marks=NEEDED)])
def test_a_run_whose_checkpoints_lie_in_its_folder_does_not_begin_anew_in_a_database(
    kind: str, tmp_path: Path
) -> None:
    run = unpacked(KEPT[-1], tmp_path)
    with server() as url:
        for command in (["resume", str(run)], ["review", str(run), "--approve"]):
            refused = sage(*command, cwd=tmp_path, SAGE_CHECKPOINT_URL=url)
            assert refused.code == 2
            assert "checkpoints.sqlite" in refused.err and "SAGE_CHECKPOINT_URL=" in refused.err
            manifest = json.loads((run / "manifest.json").read_text())
            assert manifest["status"] == "waiting for review"
    assert "Waiting for" in sage("resume", str(run), cwd=tmp_path, SAGE_CHECKPOINT_URL="").out


def test_of_two_copies_of_a_run_that_was_moved_neither_is_taken_for_it(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    first = unpacked(KEPT[-1], tmp_path / "runs")
    second = Path(shutil.copytree(first, first.with_name("second")))
    for run in (first, second):
        refused = sage("resume", str(run), cwd=tmp_path)
        assert refused.code == 2 and "hold the same run" in refused.err, refused.err
    away = second.rename(tmp_path / "away")
    assert sage("resume", str(first), "--json", cwd=tmp_path).json["status"] == "waiting for review"
    away.rename(second)
    copied = sage("resume", str(second), "--json", cwd=tmp_path)
    assert copied.json["status"] == "waiting for review", copied.err
    kept, own = RunFolder(first).manifest(), RunFolder(second).manifest()
    assert own.parent == kept.run_id != own.run_id and own.thread != kept.thread
