"""Statements of a finished run's report: as printed, in their place, of the right kind."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from benchmarks.adapters.claim_audit import collect_statements, run
from sage.core.errors import InputError


def test_statements_are_printed_where_they_say_and_have_what_a_reader_opens(
    finished: Path,
) -> None:
    pool = collect_statements(finished)
    lines = (finished / "report.md").read_text().splitlines()
    assert len({item.statement for item in pool}) == len(pool) > 50
    for item in pool:
        printed = re.sub(r"\\(.)", r"\1", lines[item.line - 1])
        assert item.statement in printed.replace("&#58;", ":"), item
        assert item.files, item
    answer = next(item for item in pool if item.section == "Answer")
    assert answer.kind == "data"
    assert any(file.endswith("table.parquet") for file in answer.files)
    cited = [item for item in pool if item.section == "Mechanism path and evidence"]
    assert cited
    assert all(item.kind == "literature" and item.sources for item in cited)


def test_a_sample_is_drawn_once_and_a_changed_report_is_refused(
    finished: Path, tmp_path: Path
) -> None:
    sample = tmp_path / "sample.jsonl"
    run(sample, [finished], count=20)
    before = sample.read_text()
    assert len(before.splitlines()) == 20 and 'verdict":' not in before
    with pytest.raises(InputError, match="may have been read"):
        run(sample, [finished], count=20)
    assert sample.read_text() == before
    with pytest.raises(InputError, match=r"no report\.md"):
        collect_statements(tmp_path)
    changed = tmp_path / "run"
    shutil.copytree(finished, changed)
    lines = (changed / "report.md").read_text().splitlines(keepends=True)
    (changed / "report.md").write_text("".join(lines[:-1]))
    with pytest.raises(InputError, match="was changed"):
        collect_statements(changed)
