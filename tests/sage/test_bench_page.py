"""The page of results says what the files say, and what is not there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from benchmarks.adapters.page import write_page
from sage.core.errors import InputError

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "page"


def test_the_page_that_ships_is_the_one_that_is_written() -> None:
    told = write_page(RESULTS)
    assert (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8") == told
    assert "not: none" not in told


def test_another_figure_changes_the_page_and_an_absent_one_is_said(tmp_path: Path) -> None:
    shutil.copytree(RESULTS, tmp_path / "page")
    held = json.loads((tmp_path / "page" / "hypobench.json").read_text())
    held["mean"]["rules"] |= {"recall": 0.1234, "precision": 0.5}
    held["cpu_seconds"] = 123.4
    (tmp_path / "page" / "hypobench.json").write_text(json.dumps(held))
    (tmp_path / "page" / "mtb.json").unlink()
    text = write_page(tmp_path / "page")
    assert "| 0.123, " in text and "| mtb | not run: " in text
    assert "| 123 s of a CPU |" in text
    assert "none of them wrong" not in text, "no words of a figure that may change"
    (tmp_path / "page" / "hypobench.json").write_text("{}")
    with pytest.raises(InputError, match=r"hypobench\.json: not what `[^`]* --json` writes"):
        write_page(tmp_path / "page")
