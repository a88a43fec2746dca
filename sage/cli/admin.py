"""`sage admin`: pause and replay runs, manage the sandbox, and show the settings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from sage.cli import sandbox
from sage.cli.options import AsJson
from sage.cli.run import RunName
from sage.core.errors import InputError

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Pause and replay runs; manage the sandbox; show settings.",
)
app.add_typer(sandbox.app, name="sandbox")


@app.command()
def pause(name: str = RunName) -> None:
    """Pause a run before its next step; `sage resume` continues it.

    The current step finishes first. The request is a file in the run's folder, so it also
    reaches a run that was started elsewhere on this machine.

    Example: sage admin pause last
    """
    from sage.cli.console import out
    from sage.run.begin import open_run
    from sage.web.processes import holder

    folder = open_run(name)
    if holder(folder) is None:
        raise InputError(f"run {folder.id} is not running; see `sage show {folder.id}`")
    folder.pause_path.touch()
    out.print(f"run {folder.id} pauses after this step; continue with: sage resume {folder.id}")


@app.command()
def replay(
    name: str = RunName,
    out: Annotated[Path | None, typer.Option(help="Folder for the rebuilt report.")] = None,
    as_json: AsJson = False,
) -> None:
    """Rebuild a run's report from its folder, without a model, network or cohort.

    The agents' recorded turns are also replayed and must lead to the recorded outputs.

    Example: sage admin replay last --out again/
    """
    from sage.cli.console import out as console
    from sage.cli.console import print_json, print_line
    from sage.report.build import write_report
    from sage.run.begin import open_run
    from sage.run.campaign.rounds import FILE as CAMPAIGN
    from sage.run.tracing import replay_trace

    if (Path(name) / CAMPAIGN).is_file():
        raise InputError(
            f"{name} is a campaign; replay one of its rounds: sage admin replay {name}/round-1"
        )
    folder = open_run(name)
    written = write_report(folder, out or folder.root / "replayed")
    pages = [(folder.root / path.name, path) for path in (written.html, written.markdown)]
    same = None
    if all(first.is_file() for first, _ in pages):
        same = all(first.read_bytes() == again.read_bytes() for first, again in pages)
    turns = replay_trace(folder)
    if as_json:
        print_json({"html": str(written.html), "markdown": str(written.markdown), "same": same,
                    "trace": turns and turns.model_dump()})  # fmt: skip
        return
    console.print(f"{written.html}\n{written.markdown}")
    if same is not None:
        console.print("identical to the run's report" if same else "differs from the run's report")
    if turns is not None:
        missing = ", ".join(turns.untraced)
        left = f"; outputs without recorded turns: {missing}" if missing else ""
        print_line(
            f"{turns.turns} turns reproduce {turns.answered} recorded answers;"
            f" {turns.human} human decisions at checkpoints{left}"
        )


@app.command()
def config(as_json: AsJson = False) -> None:
    """Print the current settings and their source file. Secrets are hidden.

    Settings come from sage.toml, then SAGE_… variables, then the command line.

    Example: SAGE_NOVELTY_THRESHOLD=6 sage admin config
    """
    from sage.cli.console import out, print_json, print_line
    from sage.settings import config_file, load

    settings = load()
    values = settings.model_dump(mode="json")
    file = config_file()
    if as_json:
        print_json(
            {
                "file": str(file),
                "file_exists": file.is_file(),
                "settings": values,
                "ledger": settings.ledger.shown,
            }
        )
        return
    out.print(f"{file}{'' if file.is_file() else ' (absent)'}", style="bold", soft_wrap=True)
    for name, value in _flatten(values):
        print_line(f"{name} = {value}")
    out.print(f"effective reasoner: {settings.effective_reasoner}", style="dim", soft_wrap=True)
    out.print(f"effective ledger: {settings.ledger.shown}", style="dim", soft_wrap=True)


def _flatten(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each setting under its dotted name, omitting nested fields without a value."""
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from _flatten(value, f"{prefix}{name}.")
        elif value is not None or not prefix:
            yield f"{prefix}{name}", "not set" if value is None else value
