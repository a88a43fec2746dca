"""`sage admin sandbox`: manage the sandbox in which analysis code runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from sage.cli.options import AsJson

app = typer.Typer(
    add_completion=False,
    name="sandbox",
    help="Build, check and clean the sandbox for analysis code, or run a program in it.",
    no_args_is_help=True,
)

Image = Annotated[str | None, typer.Option(help="Docker image; default: sage-sandbox:latest.")]
Runtime = Annotated[str | None, typer.Option(help='Docker runtime, such as "runsc".')]
Which = Annotated[
    Literal["auto", "docker", "bubblewrap"], typer.Option("--sandbox", help="Sandbox to use.")
]


@app.command()
def build(
    base: Annotated[
        str, typer.Option(help="Base image with Python 3.11; by default a pinned python:3.11-slim.")
    ] = "",
    own_base: Annotated[
        bool,
        typer.Option("--own-base", help="Build the base image here with debootstrap (as root)."),
    ] = False,
    wheelhouse: Annotated[
        Path | None, typer.Option(help="Folder with wheels; default: collected by pip.")
    ] = None,
    image: Image = None,
    as_json: AsJson = False,
) -> None:
    """Build the Docker image in which analyses run. The build itself needs no network.

    Example: sage admin sandbox build --own-base
    """
    import tempfile

    from sage.cli.console import err, out, print_json
    from sandbox.docker_engine import IMAGE
    from sandbox.image.base import NAME, make_base
    from sandbox.image.build import BASE_IMAGE, prepare_wheelhouse
    from sandbox.image.build import build as build_image

    name = image or IMAGE
    with (
        err.status("starting") as status,
        tempfile.TemporaryDirectory(prefix="sage-wheels-") as temporary,
    ):

        def say(line: str) -> None:
            status.update(line[:100])

        base = base or BASE_IMAGE
        if own_base:
            make_base(say=say)
            base = NAME
        wheels = wheelhouse or Path(temporary)
        if wheelhouse is None:
            prepare_wheelhouse(wheels, say=say)
        made = build_image(wheels, image=name, base=base, packages=packages(), say=say)
    if as_json:
        print_json({"image": name, "id": made, "base": base})
        return
    out.print(f"built {name} ({made[:19]}) on {base}")


def packages() -> tuple[str, ...]:
    """Return the names of SAGE's packages in the image: the analysis packages and the tools."""
    from sandbox.runtime import OFFERED

    return (*OFFERED, "mcp_servers")


@app.command()
def check(image: Image = None, runtime: Runtime = None, as_json: AsJson = False) -> None:
    """Check which sandboxes work on this machine, and how to enable the others.

    Example: sage admin sandbox check
    """
    from rich.table import Table

    import sandbox
    from sage.cli.console import out, print_json

    found = sandbox.availability(image=image, runtime=runtime)
    if as_json:
        print_json({"sandboxes": [availability.model_dump(mode="json") for availability in found]})
    else:
        table = Table("", "sandbox", "found", "to do")
        for item in found:
            mark = "[green]ok[/]" if item.ok else "[yellow]–[/]"
            table.add_row(mark, item.name, item.detail, item.remedy)
        out.print(table)
    if not any(availability.ok for availability in found if availability.name != "subprocess"):
        raise typer.Exit(1)


@app.command()
def run(
    program: Annotated[Path, typer.Argument(metavar="PROGRAM", help="Python file")],
    out_dir: Annotated[Path, typer.Option("--out", help="Folder to create for its output.")],
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", help="NAME=PATH, mounted read-only at /inputs/NAME."),
    ] = None,
    which: Which = "auto",
    image: Image = None,
    runtime: Runtime = None,
    seconds: Annotated[float, typer.Option(min=1, help="Wall time, in seconds.")] = 600,
    memory: Annotated[int, typer.Option(min=64, help="Memory, in MiB.")] = 4096,
    pids: Annotated[
        int, typer.Option(min=4, help="Maximum number of processes and threads.")
    ] = 128,
    output_mb: Annotated[
        int, typer.Option(min=1, help="Maximum size of the output, in MiB.")
    ] = 256,
    as_json: AsJson = False,
) -> None:
    """Run a program as if a model had written it; it can write to /output.

    Example: sage admin sandbox run analysis.py --input cohort=cohorts/tcga-blca --out results
    """
    import sandbox
    from sage.cli.console import err, print_json, print_line
    from sage.core.errors import InputError
    from sandbox.types import Job, Limits, Reason, SandboxResult

    if not program.is_file():
        raise InputError(f"{program}: file not found")
    code = program.read_text(encoding="utf-8")
    box = sandbox.choose(which, image=image, runtime=runtime)
    refused = sandbox.policy.check(code)
    if refused:
        lines = "\n".join(f"line {violation.line}: {violation.message}" for violation in refused)
        result = SandboxResult(
            sandbox=box.name, exit_code=None, reason=Reason.POLICY, message=lines
        )
    else:
        limits = Limits(seconds=seconds, memory_mb=memory, pids=pids, output_mb=output_mb)
        job = Job(
            files={"analysis.py": code},
            inputs=parse_inputs(inputs or []),
            output=out_dir,
            limits=limits,
        )
        with err.status(f"running in {box.name}"):
            result = box.run(job)
    if as_json:
        print_json(result)
    else:
        print_line(f"{result.sandbox}: {result.reason.value} {result.message}")
        print_line(result.stdout_tail + result.stderr_tail)
        for artifact in result.artifacts:
            print_line(f"{out_dir / artifact.path} ({artifact.bytes} bytes)")
        for line in result.dropped:
            print_line(f"left behind: {line}", err=True)
    if not result.ok:
        raise typer.Exit(1)


def parse_inputs(pairs: list[str]) -> dict[str, Path]:
    """Parse `NAME=PATH` options."""
    from sage.core.errors import InputError

    found = {}
    for word in pairs:
        name, sign, path = word.partition("=")
        if not sign or not name or not path:
            raise InputError(f"--input {word}: expected NAME=PATH, e.g. --input cohort=data/cohort")
        found[name] = Path(path)
    return found


@app.command()
def clean(as_json: AsJson = False) -> None:
    """Remove containers, folders and control groups left behind by killed processes.

    Example: sage admin sandbox clean
    """
    import sandbox
    from sage.cli.console import out, print_json, print_line

    removed = sandbox.sweep()
    if as_json:
        print_json({"removed": removed})
        return
    for name in removed:
        print_line(f"removed {name}")
    out.print(f"{len(removed)} removed")
