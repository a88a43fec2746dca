"""The runner: intervals, resumption, the page of results, and the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.__main__ import app
from benchmarks.runner import (
    Report,
    Row,
    bootstrap,
    exact,
    load_lines,
    run_missing,
    share,
    wilson,
    write_page,
)
from sage.core.errors import InputError
from sage.core.models import Strict


class Line(Strict):
    """A result with its key."""

    key: int
    value: int


def square(key: int) -> Line:
    return Line(key=key, value=key * key)


def test_shares_have_textbook_intervals() -> None:
    assert wilson(10, 20) == pytest.approx((0.2993, 0.7007), abs=1e-4)
    assert exact(0, 60) == pytest.approx((0.0, 1 - 0.025 ** (1 / 60)))
    assert share(1, 2) == "50.0% (9.5% to 90.5%)"
    assert share(0, 0) == "–"


def test_bootstrap_draws_groups() -> None:
    low, high = bootstrap([0, 1], lambda at: float(at.mean()), draws=400)
    assert (low, high) == (0.0, 1.0)


def test_results_that_are_kept_are_not_computed_again(tmp_path: Path) -> None:
    keep = tmp_path / "lines.jsonl"
    keep.write_text('{"key":2,"value":-1}\n{"key":3,"va', encoding="utf-8")
    found = run_missing(square, [2, 3], Line, lambda line: line.key, keep=keep)
    assert [line.value for line in found] == [-1, 9]
    assert [line.key for line in load_lines(keep, Line)] == [2, 3]
    keep.write_text("{}\n", encoding="utf-8")
    with pytest.raises(InputError, match="line 1"):
        load_lines(keep, Line)


def test_a_page_holds_rows_notes_and_commands(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no reports"):
        write_page(tmp_path)
    row = Row(benchmark="b|c", measured="m", sage="1", notes=("n",))
    report = Report(name="x", command="x FOLDER", rows=(row,), data={})
    (tmp_path / "x.json").write_text(report.model_dump_json(), encoding="utf-8")
    assert "| b/c | m |" in write_page(tmp_path)
    (tmp_path / "x.json").write_text(json.dumps({"rows": 1}), encoding="utf-8")
    with pytest.raises(InputError, match=r"x\.json"):
        write_page(tmp_path)


def test_the_command_lists_every_benchmark_with_its_summary() -> None:
    found = CliRunner().invoke(app, ["list"])
    assert found.exit_code == 0
    lines = [line.split(maxsplit=1) for line in found.output.splitlines()]
    assert "mtb" in {line[0] for line in lines}
    assert all(len(line) == 2 for line in lines)
    assert CliRunner().invoke(app, ["run", "none"]).exit_code == 2
