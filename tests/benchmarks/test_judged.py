"""Judged sheets: the pages quote what the committed judgments come to."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.adapters.judged import (
    MECHANISM,
    RESULTS,
    group_quarters,
    load_judgments,
    run,
    score_paths,
)
from benchmarks.runner import wilson

SHEETS = sorted((RESULTS / "paths").glob("*.tsv"))


@pytest.mark.parametrize("sheet", SHEETS, ids=lambda sheet: sheet.stem)
def test_the_page_quotes_the_judged_paths(sheet: Path) -> None:
    first, second = load_judgments(sheet)
    hits = sum(a in MECHANISM and b in MECHANISM for a, b in zip(first, second, strict=True))
    low, high = wilson(hits, len(first))
    page = (RESULTS.parents[1] / "kg" / "README.md").read_text(encoding="utf-8")
    assert f"{len(first)} paths" in page
    assert f"{hits / len(first):.2f} ({low:.2f} to {high:.2f})" in page
    assert score_paths(sheet).measured.startswith(f"{len(first)} paths")


def test_a_sheet_with_an_unjudged_row_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "sheet.tsv"
    path.write_text("prompt\tjudgment\tsecond\nA and B\tknown\t\n", encoding="utf-8")
    with pytest.raises(ValueError, match="judgments"):
        load_judgments(path)


def test_every_sheet_is_scored_and_quarters_hold_all() -> None:
    assert len(run().rows) == 2 + len(SHEETS)
    parts = group_quarters([(n / 10, n > 4) for n in range(10)])
    assert sum(len(hits) for _, hits in parts) == 10
    assert parts[0][0] < parts[-1][0]
