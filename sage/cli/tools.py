"""`sage tools`: the registry on the command line, one slide or a whole cohort."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from mcp_servers.knowledge.runs import Answer
    from mcp_servers.registry import Registry, ToolRun, ToolSpec
    from mcp_servers.workers.base import Workers
    from mcp_servers.workers.cohort import CohortReport
    from mcp_servers.workers.jobs import Job

app = typer.Typer(
    name="tools", help="The tool registry: list, show, run, promote.", no_args_is_help=True
)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, for machines.")]
Folders = Annotated[
    list[Path] | None, typer.Option("--tools", help="Folder of your own tools; its code is run.")
]


@app.command("list")
def list_tools(
    suite: Annotated[str, typer.Option(help="pathology, oncology, knowledge or all")] = "all",
    tools: Folders = None,
    as_json: AsJson = False,
) -> None:
    """List the tools with what they need.

    Example: sage tools list --suite pathology
    """
    registry = _registry(suite, tools)
    if as_json:
        _print_json([_summary(one) for one in registry.all()])
        return
    from rich.console import Console

    console = Console(highlight=False)
    last = ""
    for one in registry.all():
        if one.suite != last:
            console.print(f"[bold]{one.suite}[/]")
            last = one.suite
        need = one.resources
        gpu = "" if need.gpu == "none" else f", GPU {need.gpu}"
        console.print(f"  [cyan]{one.name}[/] {one.version}  ({need.memory_mb} MiB{gpu})")
        console.print(f"    {one.summary}", markup=False)


@app.command()
def show(
    name: Annotated[str, typer.Argument(metavar="TOOL")],
    tools: Folders = None,
    as_json: AsJson = False,
) -> None:
    """Show a tool: arguments, result, limits, and where its numbers may be believed.

    Example: sage tools show tissue_mask
    """
    from mcp_servers.describe import limits, type_word, validity_lines

    spec = _registry("all", tools).get(name)
    if as_json:
        schemas = {"input_schema": spec.input_schema, "output_schema": spec.output_schema}
        _print_json({**_summary(spec), **schemas})
        return
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    console.print(f"[bold]{spec.name}[/] {spec.version}  ({spec.suite})\n{spec.summary}")
    console.print(limits(spec))
    for line in validity_lines(spec):
        console.print(line, markup=False)
    for title, schema in (("argument", spec.input_schema), ("result", spec.output_schema)):
        table = Table(title, "type", "default", "meaning")
        required = set(schema.get("required", ()))
        for field, one in schema.get("properties", {}).items():
            default = "" if field in required else json.dumps(one.get("default"))
            if title == "argument" and field in required:
                default = "(needed)"
            table.add_row(field, type_word(one), default, str(one.get("description", "")))
        console.print(table)


@app.command()
def run(
    name: Annotated[str, typer.Argument(metavar="TOOL")],
    slide: Annotated[
        Path | None, typer.Option("--input", help="One slide or image to run on.")
    ] = None,
    slides: Annotated[
        Path | None, typer.Option(help="Folder of slides: a cohort job, resumable.")
    ] = None,
    pattern: Annotated[
        str | None, typer.Option(help='Which files in the folder, e.g. "*.svs".')
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="An argument.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for what the tool writes.")] = Path(
        "sage-output"
    ),
    root: Annotated[
        list[Path] | None, typer.Option(help="Further folder that may be read; repeatable.")
    ] = None,
    workers: Annotated[
        str | None, typer.Option(help='Number of processes, "ray", or "ray://host:port".')
    ] = None,
    memory: Annotated[int | None, typer.Option(help="Memory for all workers, MiB.")] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Folder for results by content; default: in OUT.")
    ] = None,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Compute again.")] = False,
    tools: Folders = None,
    as_json: AsJson = False,
) -> None:
    """Run a tool on one slide, or on a folder of slides with a table at the end.

    Run the same line again after an interruption: finished slides are not computed again.

    Example:

        sage tools run tissue_mask --input slide.svs --out results

        sage tools run tls --slides slides --out results --workers 2 --set mpp=0.25
    """
    from mcp_servers.errors import InputError
    from mcp_servers.roots import Roots
    from mcp_servers.workers.choose import open_workers
    from mcp_servers.workers.cohort import find_slides, slide_argument
    from mcp_servers.workers.jobs import Recipe

    if slide is not None and slides is not None:
        raise InputError("give --input or --slides, not both")
    spec = _registry("all", tools).get(name)
    arguments = parse_settings(spec, settings or [])
    readable = [Path.cwd(), *(root or [])]
    if slide is not None:
        if not slide.exists():
            raise InputError(f'"{slide}" does not exist')
        readable.append(slide.resolve().parent)
        arguments[slide_argument(spec)] = str(slide.resolve())
    if slides is not None:
        slide_argument(spec)
        readable.append(slides.resolve() if slides.is_dir() else Path.cwd())
    roots = Roots.of(readable, out)
    folders = tuple(str(one.resolve()) for one in tools or ())
    keep = None if no_cache else str(cache or roots.output / ".cache")
    recipe = Recipe("all", folders, keep)
    if slides is None:
        spec.parse(arguments)
    found = find_slides(slides.resolve(), pattern) if slides is not None else None
    with open_workers(workers, recipe, memory_mb=memory) as pool:
        if found is None:
            _tell(_one(pool, name, arguments, roots, quiet=as_json), roots, as_json=as_json)
            return
        report = _cohort(pool, name, found, roots, arguments, quiet=as_json)
    _tell_cohort(report, as_json=as_json)
    if report.failures:
        raise typer.Exit(1)


@app.command()
def promote(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="Folder of an analysis")],
    function: Annotated[str, typer.Argument(metavar="FUNCTION", help="Function in its code")],
    into: Annotated[Path, typer.Option(help="Your folder of tools, for --tools later")],
    as_json: AsJson = False,
) -> None:
    """Make a function of a reviewed analysis a tool of yours. Read it first: tools run as you.

    Example: sage tools promote runs/last/hypotheses/h1 joint_groups --into my-tools
    """
    import importlib

    written = importlib.import_module("agents.coding").promote(run_dir, function, into)
    if as_json:
        _print_json({"file": str(written)})
        return
    typer.echo(f"{written}\nuse it with: sage tools list --tools {into}")


def parse_settings(spec: ToolSpec, settings: Sequence[str]) -> dict[str, Any]:
    """`KEY=VALUE` words as arguments: JSON where the value is JSON, else text.

    Raises `InputError` for a word without "=", or a key that the tool does not take.
    """
    from mcp_servers.errors import InputError

    properties = spec.input_schema.get("properties", {})
    found: dict[str, Any] = {}
    for word in settings:
        key, sign, value = word.partition("=")
        if not sign or not key:
            raise InputError(f'--set {word}: write KEY=VALUE, e.g. --set "mpp=0.25"')
        if key not in properties:
            known = ", ".join(properties) or "nothing"
            raise InputError(f'{spec.name} has no argument "{key}"; it takes: {known}')
        kinds = {one.get("type") for one in _alternatives(properties[key])}
        found[key] = value
        if kinds != {"string"}:
            try:
                found[key] = json.loads(value)
            except ValueError:  # plain text where text is one of the types
                found[key] = value
    return found


def _alternatives(schema: dict[str, Any]) -> list[dict[str, Any]]:
    return list(schema.get("anyOf", [schema]))


def sage_command(words: Sequence[str], stop: Callable[[], bool]) -> Answer:
    """Run `sage` with these words as a process of its own; ended when `stop` says so."""
    import subprocess
    import tempfile
    import time

    from mcp_servers.errors import Cancelled
    from mcp_servers.knowledge.runs import Answer

    command = [sys.executable, "-m", "sage", *words]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=_environment()
        )
        try:
            while process.poll() is None:
                if stop():
                    raise Cancelled("cancelled by the caller; `sage resume` goes on with the run")
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


def _environment() -> dict[str, str]:
    """This process's environment, with the packages importable wherever it started."""
    import os

    base = str(Path(__file__).resolve().parents[2])
    path = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{base}{os.pathsep}{path}" if path else base}


def _registry(suite: str, folders: list[Path] | None) -> Registry:
    from mcp_servers.registry import load

    return load(suite, tool_folders=folders or ())


def _summary(spec: ToolSpec) -> dict[str, Any]:
    return {
        "name": spec.name,
        "suite": spec.suite,
        "version": spec.version,
        "summary": spec.summary,
        "resources": spec.resources.model_dump(),
        "validity": spec.validity.model_dump() if spec.validity else None,
        "license": spec.license,
    }


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def _one(
    pool: Workers, name: str, arguments: dict[str, Any], roots: Any, *, quiet: bool
) -> ToolRun:
    """One call, with a progress bar."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), disable=quiet, transient=True) as bar:
        task = bar.add_task(name, total=1.0)

        def changed(job: Job) -> None:
            text = f"{name} {job.message}".strip()[:60]
            bar.update(task, completed=job.fraction, description=text)

        job = pool.submit(name, arguments, roots, on_change=changed)
        while not job.wait(0.2):  # so that Ctrl-C is heard
            pass
    return job.result(0)


def _cohort(
    pool: Workers,
    name: str,
    slides: list[Path],
    roots: Any,
    arguments: dict[str, Any],
    *,
    quiet: bool,
) -> CohortReport:
    """A cohort job, with a progress bar."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining

    from mcp_servers.workers.cohort import Outcome, run_cohort

    failed = 0
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[failed]} failed"),
        Remaining(),
    )
    with Progress(*columns, console=Console(stderr=True), disable=quiet) as bar:
        task = bar.add_task(name, total=len(slides), failed=0)

        def ended(outcome: Outcome, done: int, total: int) -> None:
            nonlocal failed
            failed += outcome.run is None
            bar.update(task, completed=done, failed=failed)

        return run_cohort(pool, name, slides, roots, arguments, on_outcome=ended)


def _tell(made: ToolRun, roots: Any, *, as_json: bool) -> None:
    if as_json:
        files = {one.name: str(roots.output / one.name) for one in made.outputs}
        _print_json({**made.model_dump(mode="json"), "files": files})
        return
    from rich.console import Console

    console = Console(soft_wrap=True)
    console.print_json(json.dumps(made.result, ensure_ascii=False))
    for one in made.outputs:
        console.print(f"{roots.output / one.name}  ({one.bytes:,} bytes)", highlight=False)
    note = "found in the cache" if made.cached else f"{made.provenance.seconds:.2f} s"
    console.print(f"{made.provenance.tool} {made.provenance.version}: {note}", highlight=False)


def _tell_cohort(report: CohortReport, *, as_json: bool) -> None:
    failures = report.failures
    if as_json:
        _print_json(
            {
                "tool": report.tool,
                "table": str(report.table),
                "slides": len(report.outcomes),
                "resumed": report.resumed,
                "failures": [{"slide": str(one.item.path), "error": one.error} for one in failures],
            }
        )
        return
    from rich.console import Console

    console = Console(soft_wrap=True, highlight=False)
    done = len(report.outcomes) - len(failures)
    console.print(f"{done} of {len(report.outcomes)} slides, {report.resumed} from before")
    console.print(f"{report.table}")
    console.print(
        f'for cohort.toml: tables.{report.tool} = {{ file = "{report.table.name}", '
        'key = "patient", where = { status = "ok" } }',
        markup=False,
    )
    for one in failures:
        console.print(f"failed: {one.item.path.name}: {one.error}", markup=False)
