"""Resumable runs of a tool over many slides, with a result table for use in a cohort."""

from __future__ import annotations

import contextlib
import csv
import fcntl
import io
import itertools
import json
import queue
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from mcp_servers.context import remove_path
from mcp_servers.roots import Roots
from mcp_servers.slides.candidates import SLIDE_SUFFIXES, list_candidates
from mcp_servers.spec import ToolRun, ToolSpec
from mcp_servers.workers.base import Workers
from mcp_servers.workers.jobs import Job
from sage.core.errors import Cancelled, InputError, SageError
from sage.core.files import write_text
from sage.core.hashes import hash_text

TCGA = re.compile(r"^(TCGA-[A-Z0-9]{2}-[A-Z0-9]{4})", re.IGNORECASE)
RECORD = "run.json"
AHEAD = 4
"""Jobs queued per worker beyond the running job: enough to avoid idling, few to discard."""


@dataclass(frozen=True)
class Item:
    """A slide in a cohort job; `name` is its folder below the output root."""

    path: Path
    name: str
    patient: str


@dataclass
class Outcome:
    """Result or error for a slide; `run` is None if runs are not kept."""

    item: Item
    run: ToolRun | None = None
    error: str | None = None
    resumed: bool = False


@dataclass
class CohortReport:
    """Report of a finished cohort job."""

    tool: str
    table: Path
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def failures(self) -> list[Outcome]:
        """Outcomes of slides without a result, in order."""
        return [outcome for outcome in self.outcomes if outcome.error is not None]

    @property
    def resumed(self) -> int:
        """Slides whose results existed before this job."""
        return sum(outcome.resumed for outcome in self.outcomes)


def find_slides(folder: Path, pattern: str | None = None) -> tuple[list[Path], dict[str, int]]:
    """Find slides below a folder by name, and count by reason the images that cannot be slides.

    With a pattern, every file whose name matches is included.

    Raises `InputError` if the folder does not exist or contains no slides.
    """
    if not folder.is_dir():
        raise InputError(
            f'"{folder}" is not a folder; --slides takes a folder, --input a single slide'
        )
    left: dict[str, int] = {}
    if pattern is not None:
        found = [path for path in folder.rglob(pattern) if path.is_file()]
    else:
        found, left = list_candidates([folder, *sorted(folder.rglob("*"))])
    found = [path for path in found if not path.name.startswith(".")]
    if not found:
        looked = pattern or ", ".join(sorted(SLIDE_SUFFIXES))
        raise InputError(f'no slides in "{folder}" (expected {looked})')
    return sorted(found), left


def make_items(slides: Sequence[Path]) -> list[Item]:
    """Make one item per slide, with a unique folder name and the patient parsed from its name."""
    stems = [slide.name.split(".")[0] for slide in slides]
    items = []
    for path, stem in zip(slides, stems, strict=True):
        twice = stems.count(stem) > 1
        name = f"{stem}-{hash_text(str(path), digits=8)}" if twice else stem
        items.append(Item(path, name, parse_patient(path)))
    return items


def parse_patient(slide: Path) -> str:
    """Parse the patient ID from a slide name: a TCGA barcode, or text before the first dot."""
    barcode = TCGA.match(slide.name)
    return barcode.group(1).upper() if barcode else slide.name.split(".")[0]


def slide_argument(spec: ToolSpec) -> str:
    """Return the name of the slide argument; raises `InputError` if the tool has none."""
    properties = spec.input_schema["properties"]
    fields = [name for name in spec.path_fields() if properties[name].get("type") != "array"]
    for name in ("slide", "image", *fields):
        if name in fields:
            return name
    raise InputError(f"{spec.name} does not read slides, so it cannot be run on a folder of slides")


def run_cohort(
    workers: Workers,
    tool: str,
    slides: Sequence[Path],
    roots: Roots,
    arguments: Mapping[str, Any],
    on_outcome: Callable[[Outcome, int, int], None] | None = None,
) -> CohortReport:
    """Run a tool over slides, writing `OUT/TOOL/SLIDE/` per slide and `OUT/TOOL.csv`.

    A slide is skipped if its record has the same tool version and arguments and its file is
    unchanged. An interruption loses only the slides that were being processed.

    Raises `InputError` for an unknown tool or invalid arguments, before anything runs.
    """
    spec = workers.registry.get(tool)
    report = CohortReport(tool, roots.write_path(f"{tool}.csv"))
    try:
        run_items(
            workers,
            tool,
            make_items(slides),
            roots,
            arguments,
            on_outcome=on_outcome,
            outcomes=report.outcomes,
        )
    finally:
        if report.outcomes:
            write_table(report.table, spec, report, roots)
    return report


def run_items(
    workers: Workers,
    tool: str,
    items: Sequence[Item],
    roots: Roots,
    arguments: Mapping[str, Any],
    *,
    outcomes: list[Outcome],
    on_outcome: Callable[[Outcome, int, int], None] | None = None,
    keep_runs: bool = True,
) -> None:
    """Run a tool over items with distinct names, each with its own folder and record.

    Raises `InputError` if the tool is unknown or the arguments are invalid, before anything
    runs; or if OUT is locked.
    """
    spec = workers.registry.get(tool)
    runner = _Runner(workers, spec, slide_argument(spec), roots, arguments)
    runner.parse(items[0])
    ended: dict[str, Outcome] = {}

    def end(outcome: Outcome) -> None:
        ended[outcome.item.name] = outcome
        if on_outcome is not None:
            on_outcome(outcome, len(ended), len(items))
        if not keep_runs:
            outcome.run = None

    try:
        with lock_folder(roots.write_path(f"{tool}/.lock"), tool):
            waiting = []
            for item in items:
                found = runner.load(item)
                if found is None:
                    waiting.append(item)
                else:
                    end(Outcome(item, run=found, resumed=True))
            runner.run(waiting, end)
    finally:
        outcomes.extend(ended[item.name] for item in items if item.name in ended)


@contextlib.contextmanager
def lock_folder(lock: Path, tool: str) -> Iterator[None]:
    """Lock an output folder, and remove leftovers from a killed job.

    The lock is released when the process ends, even if it is killed.
    """
    with lock.open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise InputError(
                f'another job is writing {tool} to "{lock.parent}"; wait for it, or use another '
                "--out"
            ) from error
        for left in list(lock.parent.rglob(".*.part*")):
            remove_path(left)
        yield


@dataclass(frozen=True)
class _Runner:
    """A tool to run over slides with fixed arguments; `slot` is the name of the slide argument."""

    workers: Workers
    spec: ToolSpec
    slot: str
    roots: Roots
    arguments: Mapping[str, Any]

    def parse(self, item: Item) -> BaseModel:
        """Parse the arguments for a slide's call."""
        return self.spec.parse({**self.arguments, self.slot: str(item.path)})

    def run(self, waiting: list[Item], end: Callable[[Outcome], None]) -> None:
        """Run the tool over items, some at a time; `end` is called with each outcome."""
        ended: queue.SimpleQueue[tuple[Item, Job]] = queue.SimpleQueue()
        running: dict[str, Job] = {}
        rest = iter(waiting)

        def submit(item: Item) -> None:
            def on_change(job: Job) -> None:
                if job.state.final:
                    ended.put((item, job))

            folder = self.roots.below(f"{self.spec.name}/{item.name}")
            given = {**self.arguments, self.slot: str(item.path)}
            running[item.name] = self.workers.submit(
                self.spec.name, given, folder, on_change=on_change
            )

        def fill() -> None:
            ahead = AHEAD * max(1, getattr(self.workers, "size", 8))  # a cluster may grow meanwhile
            for item in itertools.islice(rest, max(0, ahead - len(running))):
                submit(item)

        try:
            fill()
            while running:
                item, job = ended.get()
                del running[item.name]
                try:
                    outcome = Outcome(item, run=job.result(0))
                except (SageError, Cancelled) as error:
                    outcome = Outcome(item, error=str(error))
                if outcome.run is not None:
                    self.save(item, outcome.run)
                end(outcome)
                fill()
        finally:
            for job in running.values():
                self.workers.cancel(job)

    def identify(self, item: Item) -> dict[str, Any]:
        """Describe everything that determines a slide's result."""
        given, seen = self.parse(item), item.path.stat()
        arguments = given.model_dump(mode="json")
        return {
            "version": self.spec.version,
            "fingerprint": self.spec.fingerprint(given) if self.spec.fingerprint else "",
            "arguments": {key: value for key, value in arguments.items() if key != self.slot},
            "slide": str(item.path.resolve()),
            "stamp": [seen.st_size, seen.st_mtime_ns],
        }

    def load(self, item: Item) -> ToolRun | None:
        """Load an earlier job's result for a slide, if it is complete and still applies."""
        path = self.roots.output / self.spec.name / item.name / RECORD
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            run = ToolRun.model_validate(record["run"])
        except (OSError, ValueError, KeyError):  # none, or from something else: run it
            return None
        if record.get("identity") != self.identify(item):
            return None
        whole = all((path.parent / output.name).exists() for output in run.outputs)
        return run if whole else None

    def save(self, item: Item, run: ToolRun) -> None:
        """Save a slide's result."""
        record = {"identity": self.identify(item), "run": run.model_dump(mode="json")}
        path = self.roots.write_path(f"{self.spec.name}/{item.name}/{RECORD}")
        write_text(path, json.dumps(record, indent=1))


def flatten(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten a nested result into single values under dotted names.

    Lists and long texts are omitted.
    """
    found: dict[str, Any] = {}
    for key, item in value.items():
        if isinstance(item, Mapping):
            found |= flatten(item, f"{prefix}{key}.")
        elif (
            isinstance(item, bool | int | float)
            or item is None
            or (isinstance(item, str) and len(item) <= 300 and "\n" not in item)
        ):
            found[f"{prefix}{key}"] = item
    return found


def write_table(path: Path, spec: ToolSpec, report: CohortReport, roots: Roots) -> None:
    """Write one row per finished slide, with its patient, as a `cohort.toml` table requires.

    The columns are patient, slide, status, then the result's values; file paths are relative to the
    table.
    """
    rows, columns = [], ["patient", "slide", "status"]
    for outcome in report.outcomes:
        row: dict[str, Any] = {
            "patient": outcome.item.patient,
            "slide": outcome.item.path.name,
            "status": "ok" if outcome.error is None else "failed",
        }
        if outcome.run is not None:
            written = {output.name for output in outcome.run.outputs}
            for key, value in flatten(outcome.run.result).items():
                if key in ("patient", "slide", "status", "error"):
                    continue  # the table's own
                here = f"{spec.name}/{outcome.item.name}/{value}" if value in written else value
                row[key] = here
                if key not in columns:
                    columns.append(key)
        else:
            row["error"] = outcome.error
        rows.append(row)
    columns += ["error"]
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())
