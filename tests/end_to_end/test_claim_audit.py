"""Statements of a finished run's report: as printed, in their place, of the right kind."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from benchmarks.adapters.claim_audit import statements
from tests.end_to_end.harness import sage


def test_statements_are_printed_where_they_say_and_have_what_a_reader_opens(
    finished: Path,
) -> None:
    pool = statements(finished)
    lines = (finished / "report.md").read_text().splitlines()
    assert len({one.statement for one in pool}) == len(pool) > 50
    for one in pool:
        printed = re.sub(r"\\(.)", r"\1", lines[one.line - 1])
        assert one.statement in printed.replace("&#58;", ":"), one
        assert one.statement != one.claim
        assert one.files, one
    kinds = {one.statement: one.kind for one in pool}
    verdict = next(text for text in kinds if text.startswith("Verdict: "))
    assert kinds[verdict] == "interpretive"
    assert next(kind for text, kind in kinds.items() if text.startswith("Primary")) == "data"
    effect = next(one for one in pool if one.statement.startswith("Primary comparison"))
    assert any(file.endswith("table.parquet") for file in effect.files)
    cited = [one for one in pool if one.section == "Mechanism path and evidence"]
    assert cited
    for one in cited:
        assert one.kind == "literature"
        assert all(source.doi or source.pmid for source in one.sources if source.cited)
        quoted = [source for source in one.sources if source.quoted == one.statement]
        assert all(one.statement in source.passages for source in quoted)


def test_the_command_draws_and_keeps_a_sample_that_is_there(finished: Path, tmp_path: Path) -> None:
    out = tmp_path / "sample.jsonl"
    arguments = ("bench", "claims", str(finished), "--statements", "30", "--out", str(out))
    done = sage(*arguments, cwd=tmp_path)
    assert done.code == 0 and "30 statements of 1 report" in done.out, done.err
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(rows) == 30 and not any("verdict" in row for row in rows)
    before = out.read_text()
    again = sage(*arguments, cwd=tmp_path)
    assert again.code == 2 and "exists, and may have been read" in again.err
    assert out.read_text() == before
    none = sage("bench", "claims", str(tmp_path), "--out", "other.jsonl", cwd=tmp_path)
    assert none.code == 2 and "holds no report.md" in none.err
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    lines = (run / "report.md").read_text().splitlines(keepends=True)
    gone = next(one for one in lines if one.startswith("**Verdict"))
    (run / "report.md").write_text("".join(lines).replace(gone, ""))
    changed = ("bench", "claims", "run", "--statements", "30", "--out", "changed.jsonl")
    refused = sage(*changed, cwd=tmp_path)
    assert refused.code == 2 and "is not what the run's outputs give" in refused.err
    rebuilt = sage("admin", "replay", "run", "--out", "run", cwd=tmp_path)
    assert rebuilt.code == 0, rebuilt.err
    assert sage(*changed, cwd=tmp_path).code == 0
