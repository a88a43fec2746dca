"""`sage trace`: what the agents of a run asked, decided, called and answered."""

from __future__ import annotations

from pathlib import Path

import typer

from sage.cli.run import RunName

app = typer.Typer(
    add_completion=False, help="Every agent's turns in a run: export.", no_args_is_help=True
)


@app.callback()
def trace() -> None:
    """Every agent's turns in a run: export."""


@app.command()
def export(
    name: str = RunName,
    out: Path | None = typer.Option(None, help="The file to write; default: print."),
    content: bool = typer.Option(
        False, "--content", help="Also prompts, replies, arguments and results."
    ),
) -> None:
    """Export a run's trace as OpenTelemetry spans (OTLP in JSON, GenAI conventions).

    Any OpenTelemetry collector takes the file. The trace itself is RUN/trace.jsonl.

    Example: sage trace export last --out spans.json
    """
    import json

    from sage.cli.console import err
    from sage.control.audit import EXPORTED, log_command
    from sage.core.files import write_text
    from sage.core.llm.otel import spans_of
    from sage.core.llm.trace import read_trace
    from sage.run.begin import open_run
    from sage.settings import load

    folder = open_run(name)
    log_command(load(), EXPORTED, folder.id, command="trace export")
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
