"""Command-line output: progress on stderr and results on stdout."""

from __future__ import annotations

import json
import math
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.errors import MarkupError
from rich.markup import escape
from rich.status import Status
from rich.text import Text

from sage.core.printable import clean_text
from sage.core.progress import describe_progress, listen
from sage.run.steps import describe_step

STYLES = "/|bold|dim|red|green|yellow|cyan|magenta"
_QUOTED = re.compile(r'("[^"]*")')
# Text that rich parses as a tag (rich.markup.escape), except SAGE's own styles.
_FOREIGN = re.compile(rf"(\\*)(\[(?!(?:{STYLES})\])[a-z#/@][^\[]*?\])")


def _make_inert(text: str) -> str:
    """Escape text that rich would parse in quotations, and all but SAGE's own styles outside."""
    return "".join(
        escape(part) if at % 2 else _FOREIGN.sub(r"\1\1\\\2", part)
        for at, part in enumerate(_QUOTED.split(text))
    )


class Terminal(Console):
    """A console that applies only SAGE's own styles and ignores control sequences and links.

    Labels, titles and records from outside are printed within SAGE's own text. Brackets that
    do not contain any of the styles above are printed literally, and text with unbalanced
    brackets is printed without interpreting any markup.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Render markup to text as rich does, after making the text printable."""
        shown = clean_text(text)
        if options.get("markup") is False:
            return super().render_str(shown, **options)
        try:
            return super().render_str(_make_inert(shown), **options)
        except MarkupError:
            return super().render_str(escape(shown), **options)


out = Terminal(highlight=False)
err = _ERR = Terminal(stderr=True, highlight=False)


def print_line(text: object, *, style: str | None = None, err: bool = False) -> None:
    """Print text literally, without markup or added line breaks; on stderr if `err` is set."""
    (_ERR if err else out).print(str(text), style=style, markup=False, soft_wrap=True)


def print_aligned(rows: Sequence[Sequence[str]], right: frozenset[int] = frozenset()) -> None:
    """Print rows in columns wide enough that no cell is cut off.

    Parameters
    ----------
    rows : the cells of each row; an empty row prints an empty line
    right : indices of the columns to align to the right
    """
    widths: dict[int, int] = {}
    for row in rows:
        for place, cell in enumerate(row):
            widths[place] = max(widths.get(place, 0), len(cell))
    gap = "  " if sum(widths.values()) + 2 * len(widths) <= out.width else " "
    for row in rows:
        cells = [
            cell.rjust(widths[place]) if place in right else cell.ljust(widths[place])
            for place, cell in enumerate(row)
        ]
        out.print(gap.join(cells).rstrip(), markup=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """Print plain data or a pydantic model on stdout as a JSON document.

    NaN and infinite numbers become null.
    """
    plain = value.model_dump(mode="json") if hasattr(value, "model_dump") else value
    text = json.dumps(_finite(plain), indent=1, ensure_ascii=False, default=str)
    sys.stdout.write(text + "\n")


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value


@contextmanager
def counting(title: str, *, quiet: bool = False) -> Iterator[Callable[[str, int, int], None]]:
    """Show a progress bar, and yield a function that updates it with (stage, done, total)."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    if quiet:
        yield lambda stage, done, total: None
        return
    with Progress(
        TextColumn("[progress.description]{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=err,
        transient=True,
    ) as progress:
        task = progress.add_task(title, total=None)

        def advance(stage: str, done: int, total: int) -> None:
            progress.update(task, description=f"{title}: {stage}", completed=done, total=total)

        yield advance


@contextmanager
def working(title: str) -> Iterator[Any]:
    """Show progress reported through `sage.core.progress` on a single line."""
    status = err.status(title)
    heard = listen(lambda what, done, total: status.update(describe_progress(what, done, total)))
    with status, heard:
        yield status


@contextmanager
def parts() -> Iterator[Callable[[str], None]]:
    """Show the current part of a long command, and each part's duration once it ends."""
    last, since = "", time.monotonic()
    with err.status("starting") as status:

        def begin(part: str) -> None:
            nonlocal last, since
            if last:
                err.print(f"  [green]✓[/] {last} [dim]{time.monotonic() - since:.0f} s[/]")
            last, since = part, time.monotonic()
            status.update(part)

        yield begin
        begin("")


@contextmanager
def nodes(*, quiet: bool = False) -> Iterator[Callable[[str, str, dict[str, Any]], None]]:
    """Show each node of a run as it starts and ends."""
    if quiet:
        yield lambda kind, node, fields: None
        return
    with err.status("starting") as status:

        def show_step(kind: str, node: str, fields: dict[str, Any]) -> None:
            show_event(err, status, {**fields, "event": kind, "node": node})

        yield show_step


def show_event(console: Console, status: Status, event: Mapping[str, Any]) -> None:
    """Show an event from a run's log, in the status if it is ongoing, or else on its own line."""
    label = describe_step(event)
    message = event.get("message", "")
    match event.get("event"):
        case "start":
            status.update(label)
        case "progress":
            said = describe_progress(str(event["what"]), int(event["done"]), int(event["total"]))
            status.update(f"{label}: {said}")
        case "end":
            console.print(f"  [green]✓[/] {label} [dim]{event['seconds']:.2f} s[/]")
        case "error":
            said = f": {message}" if message else ""
            console.print(f"  [red]✗[/] {label}{said}", soft_wrap=True)
        case "note":
            console.print(f"  {label}: {message}", style="dim", soft_wrap=True)
