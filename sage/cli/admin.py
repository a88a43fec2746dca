"""`sage admin`: runs from the outside, workers, the sandbox, the settings in force."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from sage.cli import sandbox
from sage.cli.options import AsJson
from sage.cli.run import RunName
from sage.core.errors import InputError

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Pause, replay and trace runs; workers, sandbox, settings in force.",
)
app.add_typer(sandbox.app, name="sandbox")


@app.command()
def pause(name: str = RunName) -> None:
    """Let a run wait before its next step; `sage resume` continues it.

    The current step finishes first. The request is a file in the run's folder, so it also reaches
    a run that was started elsewhere on this machine.

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
    """Rebuild a run's report from its folder: no model, no network, no cohort.

    The agents' recorded turns are replayed as well and must lead to the recorded outputs.

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
            f"{turns.turns} turns lead to {turns.answered} answers as recorded;"
            f" {turns.human} decisions at checkpoints{left}"
        )


@app.command()
def trace(
    name: str = RunName,
    out: Annotated[Path | None, typer.Option(help="File to write; default: print.")] = None,
    content: Annotated[
        bool, typer.Option("--content", help="Include prompts, replies, arguments and results.")
    ] = False,
) -> None:
    """Export a run's trace as OpenTelemetry spans (OTLP in JSON, GenAI conventions).

    Any OpenTelemetry collector reads the file. The trace itself is RUN/trace.jsonl.

    Example: sage admin trace last --out spans.json
    """
    import json

    from sage.cli.console import err
    from sage.core.files import write_text
    from sage.core.hooks import EXPORTED, log_command
    from sage.core.llm.otel import spans_of
    from sage.core.llm.trace import read_trace
    from sage.run.begin import open_run
    from sage.settings import load

    folder = open_run(name)
    log_command(load(), EXPORTED, folder.id, command="admin trace")
    manifest = folder.manifest()
    document = spans_of(
        read_trace(folder.trace_path),
        manifest.run_id or manifest.id,
        version=manifest.versions.get("sage", ""),
        content=content,
    )
    text = json.dumps(document, ensure_ascii=False)
    if out is None:
        typer.echo(text)
        return
    write_text(out, text + "\n")
    spans = document["resourceSpans"][0]["scopeSpans"][0]["spans"]
    err.print(f"{len(spans)} spans in {out}")


@app.command()
def worker(
    pool: Annotated[Literal["runs"], typer.Option(help="The queue to work on.")] = "runs",
    most: Annotated[
        int | None, typer.Option(min=1, help="Stop after this many runs; default: continue.")
    ] = None,
    drain: Annotated[
        bool, typer.Option("--drain", help="Stop when no run is queued or running.")
    ] = False,
    lease: Annotated[
        float,
        typer.Option(min=2.0, help="Seconds after which others take over a dead worker's run."),
    ] = 60.0,
    grace: Annotated[
        float,
        typer.Option(min=0.0, help="Seconds for the current step to finish after SIGTERM."),
    ] = 30.0,
    as_json: AsJson = False,
) -> None:
    """Work on the runs that `sage run --queue` put in, in turn, until Ctrl-C or SIGTERM.

    The queue is in PostgreSQL (`checkpoint_url`) or, for workers of one machine, in a file beside
    the runs. On SIGTERM a worker finishes its step and puts the run back; the run of a killed
    worker goes to another, and no finished step runs again.

    Example: sage admin worker --drain
    """
    from sage.cli.console import print_json, print_line
    from sage.core.extras import require_extra
    from sage.run.queue.runs import open_runs
    from sage.run.queue.worker import Worker
    from sage.settings import load

    require_extra("literature", "working on runs")
    with open_runs(load(), new=True) as runs:
        assert runs is not None

        def report(line: str) -> None:
            if not as_json:
                print_line(line)

        mine = Worker(runs, report, lease_s=lease, grace_s=grace)
        report(f"worker {mine.name}, queue {runs.database.where}")
        with mine.stopping_on_signals():
            done = mine.work(most=most, drain=drain)
        if as_json:
            print_json({"worker": mine.name, "runs": done})


@app.command()
def config(as_json: AsJson = False) -> None:
    """Print the settings in force and the file they come from. Secrets are hidden.

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
    out.print(f"reasoner in force: {settings.effective_reasoner}", style="dim", soft_wrap=True)
    out.print(f"ledger in force: {settings.ledger.shown}", style="dim", soft_wrap=True)


def _flatten(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Settings with their dotted names; nested fields without a value are left out."""
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from _flatten(value, f"{prefix}{name}.")
        elif value is not None or not prefix:
            yield f"{prefix}{name}", "not set" if value is None else value
