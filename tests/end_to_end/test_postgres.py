"""Checkpoints in a real PostgreSQL server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.harness import PROMPT, sage
from tests.postgres import NEEDED, server

pytestmark = NEEDED


@pytest.fixture
def url() -> Iterator[str]:
    """A server of its own."""
    with server() as found:
        yield found


def test_a_run_waits_and_goes_on_with_its_checkpoints_in_postgres(url: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    begun = sage("run", PROMPT, "--json", "--out", str(run), cwd=tmp_path, SAGE_CHECKPOINT_URL=url)
    assert begun.code == 0, begun.err
    assert not (run / "checkpoints.sqlite").exists()
    ended = sage("review", str(run), "--approve", "--json", cwd=tmp_path, SAGE_CHECKPOINT_URL=url)
    assert ended.code == 0, ended.err
    assert ended.json["status"] == "finished"


def test_an_unreachable_database_is_one_clear_fault_without_its_password(tmp_path: Path) -> None:
    ended = sage(
        "run", PROMPT, "--out", str(tmp_path / "run"), cwd=tmp_path,
        SAGE_CHECKPOINT_URL="postgresql://sage:hunter2@127.0.0.1:9/postgres",
    )  # fmt: skip
    assert ended.code == 1
    assert "checkpoint database" in ended.err
    assert "hunter2" not in ended.err
