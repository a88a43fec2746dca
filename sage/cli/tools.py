"""`sage tools`: list, show, run and serve registered tools."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sage.cli.mcp import serve
from sage.cli.options import (
    AsJson,
    Cache,
    Memory,
    NoCache,
    Pattern,
    Settings,
    ToolFolders,
    Workers,
)
from sage.cli.tools_support import (
    ask_pixel_size,
    parse_settings,
    print_cohort_run,
    print_run,
    run_one,
    stage_bars,
    tool_folders,
)

if TYPE_CHECKING:
    from mcp_servers.registry import Registry
    from mcp_servers.spec import ToolSpec

app = typer.Typer(
    add_completion=False,
    name="tools",
    help="List, show and run registered tools; serve over MCP.",
    no_args_is_help=True,
)
app.command()(serve)


@app.command("list")
def list_tools(
    suite: Annotated[
        str, typer.Option(help="Suite of tools: pathology, oncology, …, or all.")
    ] = "all",
    tools: ToolFolders = None,
    as_json: AsJson = False,
) -> None:
    """List tools with their requirements.

    Example: sage tools list --suite pathology
    """
    from sage.cli.console import print_json, print_line

    registry = _registry(suite, tools)
    if as_json:
        print_json([_summary(tool) for tool in registry.all()])
        return
    from sage.cli.console import out as console

    last = ""
    for item in registry.all():
        if item.suite != last:
            console.print(f"[bold]{item.suite}[/]")
            last = item.suite
        need = item.resources
        gpu = "" if need.gpu == "none" else f", GPU {need.gpu}"
        console.print(f"  [cyan]{item.name}[/] {item.version}  ({need.memory_mb} MiB{gpu})")
        print_line(f"    {item.summary}")


@app.command()
def show(
    name: Annotated[str, typer.Argument(metavar="TOOL")],
    tools: ToolFolders = None,
    as_json: AsJson = False,
) -> None:
    """Show a tool: arguments, result, limits, and validity.

    Example: sage tools show tissue_mask
    """
    from mcp_servers.describe import describe_limits, describe_validity, type_word
    from sage.cli.console import print_json, print_line

    spec = _registry(_suite_of(name), tools).get(name)
    if as_json:
        schemas = {"input_schema": spec.input_schema, "output_schema": spec.output_schema}
        print_json({**_summary(spec), **schemas})
        return
    from rich.table import Table

    from sage.cli.console import out as console

    console.print(f"[bold]{spec.name}[/] {spec.version}  ({spec.suite})\n{spec.summary}")
    console.print(describe_limits(spec))
    for line in describe_validity(spec):
        print_line(line)
    for title, schema in (("argument", spec.input_schema), ("result", spec.output_schema)):
        table = Table(title, "type", "default", "meaning")
        required = set(schema.get("required", ()))
        for field, item in schema.get("properties", {}).items():
            default = "" if field in required else json.dumps(item.get("default"))
            if title == "argument" and field in required:
                default = "(needed)"
            table.add_row(field, type_word(item), default, str(item.get("description", "")))
        console.print(table)


@app.command()
def run(
    name: Annotated[str, typer.Argument(metavar="TOOL")],
    slide: Annotated[
        Path | None, typer.Option("--input", help="Slide or image to process.")
    ] = None,
    slides: Annotated[
        Path | None, typer.Option(help="Folder of slides to process, resumable.")
    ] = None,
    pattern: Pattern = None,
    settings: Settings = None,
    out: Annotated[Path, typer.Option(help="Folder for the tool's output.")] = Path("sage-output"),
    root: Annotated[
        list[Path] | None, typer.Option(help="Additional folder that may be read; repeatable.")
    ] = None,
    workers: Workers = None,
    memory: Memory = None,
    cache: Cache = None,
    no_cache: NoCache = False,
    tools: ToolFolders = None,
    as_json: AsJson = False,
) -> None:
    """Run a tool on one slide, or on a folder of slides with a table of the results.

    After an interruption, repeat the same command: finished slides are not recomputed.

    Example:

        sage tools run tissue_mask --input slide.svs --out results

        sage tools run tls --slides slides --out results --workers 2 --set mpp=0.25
    """
    from mcp_servers.roots import Roots
    from mcp_servers.workers.cohort import find_slides, run_cohort, slide_argument
    from mcp_servers.workers.jobs import Recipe
    from mcp_servers.workers.pool import open_workers
    from sage.core.errors import InputError

    if slide is not None and slides is not None:
        raise InputError("--input and --slides cannot be combined")
    suite = _suite_of(name)
    spec = _registry(suite, tools).get(name)
    arguments = parse_settings(spec, settings or [])
    readable = [Path.cwd(), *(root or [])]
    if slide is not None:
        if not slide.exists():
            raise InputError(f'"{slide}" not found')
        readable.append(slide.resolve().parent)
        arguments[slide_argument(spec)] = str(slide.resolve())
    if slides is not None:
        slide_argument(spec)
        readable.append(slides.resolve() if slides.is_dir() else Path.cwd())
    roots = Roots.resolve(readable, out)
    folders = tool_folders(tools)
    keep = None if no_cache else str(cache or roots.output / ".cache")
    recipe = Recipe(suite, folders, keep)
    if slides is None:
        spec.parse(arguments)
    found, left = find_slides(slides.resolve(), pattern) if slides is not None else (None, {})
    with open_workers(workers, recipe, memory_mb=memory) as pool:
        if found is None:
            try:
                made = run_one(pool, name, arguments, roots, quiet=as_json)
            except InputError:
                answer = {} if "mpp" in arguments else ask_pixel_size(slide)
                if not answer:
                    raise
                made = run_one(pool, name, arguments | answer, roots, quiet=as_json)
            print_run(made, roots, as_json=as_json)
            return
        with stage_bars(quiet=as_json) as bar:
            report = run_cohort(pool, name, found, roots, arguments, on_outcome=partial(bar, name))
    print_cohort_run(report, left, as_json=as_json)
    if report.failures:
        raise typer.Exit(1)


def _suite_of(name: str) -> str:
    """Find the optional suite that provides the tool `name`; return "all" otherwise."""
    from mcp_servers.catalog import suites
    from mcp_servers.registry import load

    if name in load().tools:
        return "all"
    return next((s for s in suites() if name in load(s).tools), "all")


def _registry(suite: str, folders: list[Path] | None) -> Registry:
    from mcp_servers.registry import load

    return load(suite, tool_folders=tool_folders(folders))


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
