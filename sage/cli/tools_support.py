"""Helpers shared by the `sage tools` commands: settings, progress and output."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import TaskID

    from mcp_servers.knowledge.runs import Answer
    from mcp_servers.spec import ToolRun, ToolSpec
    from mcp_servers.workers.base import Workers
    from mcp_servers.workers.cohort import CohortReport, Outcome
    from mcp_servers.workers.jobs import Job


def parse_settings(spec: ToolSpec, settings: Sequence[str]) -> dict[str, Any]:
    """Parse `KEY=VALUE` words, reading each value as JSON if possible and as text otherwise.

    Raises
    ------
    InputError
        If a word contains no "=", or the tool does not accept the key.
    """
    from sage.core.errors import InputError

    properties = spec.input_schema.get("properties", {})
    found: dict[str, Any] = {}
    for word in settings:
        key, value = split_setting(word)
        if key not in properties:
            known = ", ".join(properties) or "nothing"
            raise InputError(f'{spec.name}: unknown argument "{key}"; available arguments: {known}')
        kinds = {
            alternative.get("type")
            for alternative in properties[key].get("anyOf", [properties[key]])
        }
        found[key] = value if kinds == {"string"} else json_or_text(value)
    return found


def ask_pixel_size(slide: Path | None) -> dict[str, Any]:
    """Ask for a pixel size that the file lacks or contradicts, if running on a terminal."""
    from mcp_servers.slides.metadata import PixelSizeError
    from mcp_servers.slides.slide import Slide
    from sage.core.errors import InputError

    if slide is None or not sys.stdin.isatty():
        return {}
    import typer

    try:
        with Slide.open(slide) as opened:
            opened.need_mpp()
    except PixelSizeError as error:
        typer.echo(str(error).partition(" Give it")[0], err=True)
        return {"mpp": typer.prompt("µm per pixel", type=float, err=True)}
    except InputError:  # the tool itself says why
        pass
    return {}


def split_setting(word: str) -> tuple[str, str]:
    """Split a `KEY=VALUE` word; raises `InputError` for anything else."""
    from sage.core.errors import InputError

    key, sign, value = word.partition("=")
    if not sign or not key:
        raise InputError(f'--set "{word}": expected KEY=VALUE, e.g. --set "mpp=0.25"')
    return key, value


def json_or_text(value: str) -> Any:
    """Parse a value as JSON if possible; otherwise return it as text."""
    try:
        return json.loads(value)
    except ValueError:  # not JSON
        return value


def sage_command(words: Sequence[str], stop: Callable[[], bool], owner: str = "") -> Answer:
    """Run `sage` with these arguments in a subprocess until it ends or `stop` returns True.

    `owner` is the person who requested the command, if known.
    """
    import subprocess
    import tempfile
    import time

    from mcp_servers.knowledge.runs import Answer
    from sage.core.errors import Cancelled

    command = [sys.executable, "-m", "sage", *words]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=_environment(owner)
        )
        try:
            while process.poll() is None:
                if stop():
                    raise Cancelled("canceled by the caller; `sage resume` continues the run")
                time.sleep(0.1)
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
        out.seek(0)
        err.seek(0)
        code = process.returncode
        return Answer(
            code, out.read().decode("utf-8", "replace"), err.read().decode("utf-8", "replace")
        )


def _environment(owner: str) -> dict[str, str]:
    """Return this process's environment, extended so that SAGE can be imported from any folder."""
    import os

    from sage.core.hooks import OWNER

    base = str(Path(__file__).resolve().parents[2])
    path = os.environ.get("PYTHONPATH")
    named = {OWNER: owner} if owner else {}
    return {**os.environ, "PYTHONPATH": f"{base}{os.pathsep}{path}" if path else base, **named}


def tool_folders(named: list[Path] | None) -> tuple[str, ...]:
    """List folders with the user's own tools, from the command line, then from the settings."""
    from sage.settings import load

    folders = [str(path.resolve()) for path in named or ()]
    own = load().user_tools
    if own is not None and own.expanduser().is_dir():
        folders.append(str(own.expanduser().resolve()))
    return tuple(dict.fromkeys(folders))


def run_one(
    pool: Workers, name: str, arguments: dict[str, Any], roots: Any, *, quiet: bool
) -> ToolRun:
    """Run a tool once, showing a progress bar."""
    from rich.progress import Progress

    from sage.cli.console import err

    with Progress(console=err, disable=quiet, transient=True) as bar:
        task = bar.add_task(name, total=1.0)

        def show_progress(job: Job) -> None:
            text = f"{name} {job.message}".strip()[:60]
            bar.update(task, completed=job.fraction, description=text)

        job = pool.submit(name, arguments, roots, on_change=show_progress)
        while not job.wait(0.2):  # lets Ctrl-C through
            pass
    return job.result(0)


@contextmanager
def stage_bars(*, quiet: bool) -> Iterator[Callable[[str, Outcome, int, int], None]]:
    """Show a progress bar with a failure count for each stage of a job over slides.

    Yields a function to call when a slide is done, with (stage, outcome, number done, total).
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining

    from sage.cli.console import err

    tasks: dict[str, TaskID] = {}
    failed: Counter[str] = Counter()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[failed]} failed"),
        Remaining(),
    )
    with Progress(*columns, console=err, disable=quiet) as bar:

        def report(stage: str, outcome: Outcome, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=total, failed=0)
            failed[stage] += outcome.error is not None
            bar.update(tasks[stage], completed=done, failed=failed[stage])

        yield report


def print_run(made: ToolRun, roots: Any, *, as_json: bool) -> None:
    """Print the result of a single tool run."""
    from sage.cli.console import print_json

    if as_json:
        files = {output.name: str(roots.output / output.name) for output in made.outputs}
        print_json({**made.model_dump(mode="json"), "files": files})
        return
    from sage.cli.console import out as console

    console.print_json(json.dumps(made.result, ensure_ascii=False))
    for item in made.outputs:
        console.print(f"{roots.output / item.name}  ({item.bytes:,} bytes)", highlight=False)
    note = "found in the cache" if made.cached else f"{made.provenance.seconds:.2f} s"
    console.print(f"{made.provenance.tool} {made.provenance.version}: {note}", highlight=False)


def print_left_out(left: dict[str, int]) -> None:
    """Report images in a folder that cannot be slides."""
    from sage.cli.console import err

    if left:
        reasons = ", ".join(f"{count} {reason}" for reason, count in left.items())
        err.print(f"[yellow]note[/] images that are not slides: {reasons}")


def print_cohort_run(report: CohortReport, left: dict[str, int], *, as_json: bool) -> None:
    """Print the results of running a tool over a cohort's slides, and the omitted images."""
    from sage.cli.console import print_json, print_line

    failures = report.failures
    if as_json:
        print_json(
            {
                "tool": report.tool,
                "table": str(report.table),
                "slides": len(report.outcomes),
                "resumed": report.resumed,
                "left_out": left,
                "failures": [
                    {"slide": str(failure.item.path), "error": failure.error}
                    for failure in failures
                ],
            }
        )
        return
    from sage.cli.console import out as console
    from sage.core.printable import count_noun

    print_left_out(left)
    done = len(report.outcomes) - len(failures)
    console.print(f"{done} of {count_noun(len(report.outcomes), 'slide')}, {report.resumed} reused")
    console.print(f"{report.table}")
    print_line(
        f'for cohort.toml: tables.{report.tool} = {{ file = "{report.table.name}", '
        'key = "patient", where = { status = "ok" } }'
    )
    for outcome in failures:
        print_line(f"failed: {outcome.item.path.name}: {outcome.error}")
