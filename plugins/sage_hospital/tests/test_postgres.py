"""Checkpoints in a real PostgreSQL server."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from sage.run.folder import RunFolder
from sage_hospital.fork import TABLES
from tests.end_to_end.harness import PROMPT, events, sage
from tests.postgres import NEEDED, server

pytestmark = NEEDED


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """One server for all tests, which share no run."""
    with server() as found:
        yield found


def rows(url: str, thread: str) -> list[tuple[str, ...]]:
    """Every row that the database holds of a thread."""
    from psycopg import connect

    with connect(url) as live:
        return [
            tuple(str(value) for value in row)
            for table in TABLES
            for row in live.execute(
                f"SELECT * FROM {table} WHERE thread_id = %s ORDER BY 1, 2, 3, 4, 5", [thread]
            )
        ]


def test_a_copy_made_at_the_review_goes_on_from_there_and_leaves_the_first_alone(
    url: str, tmp_path: Path
) -> None:
    run, copy = tmp_path / "run", tmp_path / "copy"
    own = {"cwd": tmp_path, "SAGE_CHECKPOINT_URL": url}
    begun = sage("run", PROMPT, "--json", "--out", str(run), **own)
    assert begun.code == 0, begun.err
    assert not (run / "checkpoints.sqlite").exists()
    shutil.copytree(run, copy)
    # The first run goes on to its end before the copy is touched.
    ended = sage("review", str(run), "--reject", "no", "--json", **own)
    assert ended.json["status"] == "finished", ended.err
    thread = RunFolder(run).manifest().thread
    before = rows(url, thread)
    waits = sage("resume", str(copy), "--json", **own)
    assert waits.json["status"] == "waiting for review", waits.err
    assert sage("resume", str(copy), "--json", **own).json["status"] == "waiting for review"
    tested = sage("review", str(copy), "--approve", "--json", **own)
    assert tested.code == 0, tested.err
    assert tested.json["status"] == "finished"
    assert len(json.loads((copy / "outputs/state.json").read_text())["evaluations"]) == 1
    assert rows(url, thread) == before
    assert RunFolder(copy).manifest().parent == RunFolder(run).manifest().run_id
    nodes = [event.get("node") for event in events(copy) if event["event"] == "start"]
    assert nodes.count("scientist") == 1


def test_an_unreachable_database_is_one_clear_fault_without_its_password(tmp_path: Path) -> None:
    ended = sage(
        "run", PROMPT, "--out", str(tmp_path / "run"), cwd=tmp_path,
        SAGE_CHECKPOINT_URL="postgresql://sage:hunter2@127.0.0.1:9/postgres",
    )  # fmt: skip
    assert ended.code == 1
    assert "checkpoint database" in ended.err
    assert not (tmp_path / "run").exists()  # what cannot be recorded does not begin
    assert "hunter2" not in ended.err


def test_a_run_with_its_checkpoints_in_its_folder_does_not_begin_anew_in_a_database(
    url: str, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    assert sage("run", PROMPT, "--json", "--out", str(run), cwd=tmp_path).code == 0
    for command in (["resume", str(run)], ["review", str(run), "--approve"]):
        refused = sage(*command, cwd=tmp_path, SAGE_CHECKPOINT_URL=url)
        assert refused.code == 2
        assert "checkpoints.sqlite" in refused.err and "SAGE_CHECKPOINT_URL=" in refused.err
        manifest = json.loads((run / "manifest.json").read_text())
        assert manifest["status"] == "waiting for review"
