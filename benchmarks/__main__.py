"""Command line for the benchmarks: `python -m benchmarks list | run NAME | page FOLDER`."""

from __future__ import annotations

import ast
import functools
import inspect
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules
from typing import Annotated, Any

import click
import typer
from typer.core import TyperGroup
from typer.main import get_command

from benchmarks.runner import Report, render, write_page
from sage.core.errors import SageError
from sage.core.files import write_text

ADAPTERS = Path(__file__).parent / "adapters"


class Adapters(TyperGroup):
    """Benchmarks as commands; a benchmark's module is imported only when it is run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the adapters."""
        return sorted(module.name for module in iter_modules([str(ADAPTERS)]))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import an adapter and convert it to a command."""
        if find_spec(f"benchmarks.adapters.{cmd_name}") is None:
            return None
        module = import_module(f"benchmarks.adapters.{cmd_name}")
        single = typer.Typer(add_completion=False)
        single.command(cmd_name, help=module.__doc__)(_with_output(cmd_name, module.run))
        return get_command(single)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Add the name of the command that lists the adapters."""
        formatter.write_text("NAME is listed by `python -m benchmarks list`.")


def _with_output(name: str, run: Any) -> Any:
    """Add the --json and --out options to a benchmark."""

    @functools.wraps(run)
    def command(*, as_json: bool, out: Path | None, **options: Any) -> None:
        report: Report = run(**options)
        report = report.model_copy(update={"name": name, "command": report.command or name})
        if out is not None:
            write_text(out, f"# {name}\n\n{render([report])}")
        typer.echo(report.model_dump_json(indent=1) if as_json else render([report]))

    output = (
        ("as_json", Annotated[bool, typer.Option("--json", help="Print JSON.")], False),
        ("out", Annotated[Path | None, typer.Option(help="Write the rows as Markdown.")], None),
    )
    own = inspect.signature(run, eval_str=True).parameters.values()
    shared = [
        inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=default)
        for key, kind, default in output
    ]
    command.__signature__ = inspect.Signature([*own, *shared])  # type: ignore[attr-defined]
    command.__annotations__ = {item.name: item.annotation for item in [*own, *shared]}
    del command.__wrapped__  # type: ignore[attr-defined]
    return command


app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__)
app.add_typer(typer.Typer(cls=Adapters), name="run", help="Run a benchmark.")


@app.command("list")
def list_adapters() -> None:
    """List the benchmarks, one per line."""
    for module in sorted(iter_modules([str(ADAPTERS)]), key=lambda item: item.name):
        text = (ADAPTERS / f"{module.name}.py").read_text(encoding="utf-8")
        summary = (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
        typer.echo(f"{module.name:<16}{summary}")


@app.command()
def page(folder: Path, out: Path | None = None) -> None:
    """Write the results page from the reports in a folder."""
    text = write_page(folder)
    if out is None:
        typer.echo(text, nl=False)
    else:
        write_text(out, text)


def main() -> None:
    """Run the command line; user input errors print a single line and exit with code 2."""
    try:
        app()
    except SageError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
