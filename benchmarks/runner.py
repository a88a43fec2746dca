"""Shared parts of all benchmarks: rows, intervals, resumable repetitions, timing, results page."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

from pydantic import Field, ValidationError

from sage.core.errors import InputError, explain_validation
from sage.core.files import append_line
from sage.core.models import Strict

NONE = "–"
COLUMNS = ("benchmark", "measured on", "baseline", "best published", "SAGE", "cost")
HEAD = """# Benchmarks

SAGE's results on benchmarks with published results, and on its own calibration.
`python -m benchmarks list` lists all benchmarks, `python -m benchmarks run NAME --json` runs one,
and `python -m benchmarks page benchmarks/results/page` writes this page from such results.
"Baseline" is the simplest method that gives an answer. Shares have 95% intervals. No language
model was measured.

"""

T = TypeVar("T", bound=Strict)
K = TypeVar("K", bound=Hashable)


class Row(Strict):
    """A table row: a SAGE result next to its baseline and the best published result."""

    benchmark: str
    measured: str
    baseline: str = NONE
    published: str = NONE
    sage: str = NONE
    cost: str = NONE
    notes: tuple[str, ...] = ()


class Report(Strict):
    """A benchmark result: rows for readers, `data` for programs."""

    name: str = ""
    command: str = ""
    rows: tuple[Row, ...]
    data: Any = Field(default=None)


def render(reports: Sequence[Report]) -> str:
    """Render reports as a Markdown table with notes."""
    rows = [row for report in reports for row in report.rows]
    lines = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    for row in rows:
        cells = (row.benchmark, row.measured, row.baseline, row.published, row.sage, row.cost)
        lines.append("| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |")
    notes = [f"- {row.benchmark}: {note}" for row in rows for note in row.notes]
    return "\n".join([*lines, *(["", *notes] if notes else [])]) + "\n"


def write_page(folder: Path) -> str:
    """Write the results page from the reports (`NAME.json`) in a folder.

    Raises
    ------
    InputError
        If the folder contains no reports, or a file is not a report.
    """
    reports = []
    for path in sorted(folder.glob("*.json")):
        try:
            reports.append(Report.model_validate_json(path.read_text(encoding="utf-8")))
        except (OSError, ValidationError) as error:
            raise InputError(f"{path}: not a report of `run NAME --json`: {error}") from None
    if not reports:
        raise InputError(f"{folder}: no reports (NAME.json) found")
    commands = [f"- `python -m benchmarks run {report.command}`" for report in reports]
    return HEAD + render(reports) + "\n## Commands\n\n" + "\n".join(commands) + "\n"


def wilson(hits: int, runs: int) -> tuple[float, float]:
    """Compute Wilson's 95% interval for a proportion."""
    from statsmodels.stats.proportion import proportion_confint

    low, high = proportion_confint(hits, runs, method="wilson")
    return float(low), float(high)


def exact(hits: int, runs: int) -> tuple[float, float]:
    """Compute the Clopper-Pearson 95% interval for a proportion."""
    from statsmodels.stats.proportion import proportion_confint

    low, high = proportion_confint(hits, runs, method="beta")
    return float(low), float(high)


def bootstrap(
    groups: Sequence[T | Any], statistic: Callable[[Any], Any], *, draws: int = 2000, seed: int = 1
) -> tuple[float, float]:
    """Compute the 95% percentile interval for a statistic by a bootstrap over groups.

    Parameters
    ----------
    statistic : function from the indices of the drawn groups, (n_groups,), to a number
    """
    import numpy as np

    from sage.core.seeds import generator

    drawn = generator(seed).integers(len(groups), size=(draws, len(groups)))
    values = [statistic(indices) for indices in drawn]
    low, high = np.percentile(values, [2.5, 97.5])
    return float(low), float(high)


def percent(value: float, interval: tuple[float, float] | None = None) -> str:
    """Format a proportion with its interval."""
    if interval is None:
        return f"{value:.1%}"
    return f"{value:.1%} ({interval[0]:.1%} to {interval[1]:.1%})"


class Rate(Strict):
    """A proportion of runs with its exact 95% interval; `refused` counts runs without a number."""

    name: str
    hits: int
    runs: int
    refused: int = 0
    rate: float
    lower: float
    upper: float

    def at_most(self, nominal: float) -> bool:
        """Check whether the rate is compatible with being at most `nominal`."""
        return self.lower <= nominal

    def __str__(self) -> str:
        return percent(self.rate, (self.lower, self.upper)) if self.runs else NONE


def rate(name: str, outcomes: Iterable[bool | None]) -> Rate:
    """Compute the rate of true outcomes; None is a refusal and counts as a run without a claim."""
    found = list(outcomes)
    hits, runs = sum(outcome is True for outcome in found), len(found)
    lower, upper = exact(hits, runs) if runs else (0.0, 1.0)
    refused = sum(outcome is None for outcome in found)
    share_ = hits / runs if runs else float("nan")
    return Rate(name=name, hits=hits, runs=runs, refused=refused, rate=share_, lower=lower,
                upper=upper)  # fmt: skip


def share(
    hits: int, runs: int, interval: Callable[[int, int], tuple[float, float]] = wilson
) -> str:
    """Format hits among runs as a proportion with its 95% interval; a dash without runs."""
    return percent(hits / runs, interval(hits, runs)) if runs else NONE


def cpu_seconds() -> str:
    """Return the CPU time of this process and its children so far."""
    return f"{sum(os.times()[:4]):.0f} s of a CPU"


def load_lines(path: Path | None, model: type[T], *, given: bool = False) -> list[T]:
    """Load JSON lines; unless a person has `given` them, drop a last line that was cut short.

    Raises
    ------
    InputError
        If a complete line is damaged, or a given file is missing.
    """
    if path is None or not path.is_file():
        if given:
            raise InputError(f"{path}: file not found")
        return []
    text = path.read_text(encoding="utf-8", errors="replace")
    whole = text.rstrip("\n") + "\n" if given else text[: text.rfind("\n") + 1]
    if whole != text and not given:
        path.write_text(whole, encoding="utf-8")
    found = []
    for number, line in enumerate(whole.split("\n")[:-1], 1):
        try:
            found.append(model.model_validate_json(line))
        except ValidationError as error:
            problem = explain_validation(error) if given else "damaged; remove the file"
            raise InputError(f"{path}, line {number}: {problem}") from None
    return found


def run_missing(
    work: Callable[[K], T],
    keys: Iterable[K],
    model: type[T],
    key_of: Callable[[T], K],
    *,
    keep: Path | None = None,
    jobs: int = 1,
    title: str = "runs",
) -> list[T]:
    """Run work in parallel processes for each key missing from `keep`, and return all results.

    Each result is immediately appended to `keep` as a JSON line, so that an interrupted
    benchmark can resume.
    """
    from sage.cli.console import counting

    wanted = list(keys)
    known = {key_of(line): line for line in load_lines(keep, model)}
    missing = [key for key in wanted if key not in known]
    if not missing:
        return [known[key] for key in wanted]
    spawn = get_context("spawn")
    with counting(title) as advance, ProcessPoolExecutor(jobs, mp_context=spawn) as pool:
        futures = [pool.submit(work, key) for key in missing]
        try:
            for future in as_completed(futures):
                result = future.result()
                known[key_of(result)] = result
                if keep is not None:
                    append_line(keep, result.model_dump_json())
                advance(title, len(known), len(wanted))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return [known[key] for key in wanted]


def median_time(work: Callable[[], Any], repeats: int = 3) -> float:
    """Measure the median wall time of a call in seconds, after a warm-up."""
    work()
    return statistics.median(measure_time(work) for _ in range(repeats))


def measure_time(work: Callable[[], Any]) -> float:
    """Measure the wall time of a call in seconds."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
