"""A line of the ledger is on the disk before what it announces happens."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from validation.ledger.journal import Journal
from validation.ledger.lines import Incident, Line


def test_a_line_is_flushed_to_the_disk_whole_before_anything_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger.jsonl"
    sizes = []
    real = os.fsync

    def fsync(handle: int) -> None:
        sizes.append(os.fstat(handle).st_size)
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    journal = Journal(path)
    for text in ("first", "second"):
        journal.add([Line(Incident(incident="torn", why=text), "", False)])
        assert sizes[-1] == path.stat().st_size > 0
    assert len(sizes) == 2
    assert len(Journal(path).lines) == 2
