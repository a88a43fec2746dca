"""`sage show --watch` and `sage show --open`: follow a run and open its report."""

from __future__ import annotations

import json
import os
import sys
import time
import webbrowser

import typer

from sage.core.errors import InputError
from sage.core.files import read_new_lines

POLL = 0.2
"""Seconds between reads of a run's event log."""
NEXT = {
    "finished": "sage show {run} --open",
    "waiting for review": "sage review {run}",
    "escalated": "sage resume {run} --retry",
    "failed": "sage resume {run}",
    "stopped": "sage resume {run}",
    "interrupted": "sage resume {run}",
}
"""Command to run next, by the state of the run."""


def watch(name: str, *, as_json: bool = False) -> None:
    """Follow a run that another process is executing, until it ends or waits for a person.

    Parameters
    ----------
    name : a run's id, a prefix of its id, its path, or "last"
    as_json : print the lines of the event log as they arrive, instead of readable text
    """
    from sage.cli.console import err, out, print_line, show_event
    from sage.run.begin import open_run
    from sage.run.folder import describe_status

    folder = open_run(name)
    manifest = folder.manifest()
    offset = 0
    if not as_json:
        out.print(f"[bold]{folder.id}[/]  {manifest.spec.prompt}", soft_wrap=True)
    try:
        with err.status("") as status:
            while True:
                state = describe_status(folder)
                lines = read_new_lines(folder.events_path, offset)
                for line in lines:
                    offset += len(line)
                    if as_json:
                        sys.stdout.write(line.decode("utf-8", "replace"))
                        sys.stdout.flush()
                    else:
                        show_event(out, status, json.loads(line))
                if state not in ("queued", "running") and not lines:
                    break
                time.sleep(POLL)
    except KeyboardInterrupt:
        err.print("\nno longer watching; the run continues")
        raise typer.Exit(130) from None
    if as_json:
        return
    print_line(f"{state}", style="bold")
    if problem := folder.manifest().problem:
        print_line(problem)
    if state in NEXT:
        print_line(f"next: {NEXT[state].format(run=folder.id)}")


def open_report(name: str, *, as_json: bool) -> None:
    """Open a run's report in the browser, or print its path if there is no display.

    Raises
    ------
    InputError
        If the run has no report yet.
    """
    from sage.cli.console import print_json, print_line
    from sage.run.begin import open_run
    from sage.run.campaign.rounds import find_campaign
    from sage.run.folder import describe_status
    from sage.settings import load

    campaign = find_campaign(name, load().runs_dir)
    if campaign is not None:
        page = campaign.root / "NOTEBOOK.html"
        missing = f"campaign {campaign.root.name} has no notebook yet"
    else:
        folder = open_run(name)
        page = folder.root / "report.html"
        state = describe_status(folder)
        follow = NEXT.get(state, "sage show {run} --watch").format(run=folder.id)
        missing = f"run {folder.id} has no report yet: it is {state}; {follow}"
    if not page.is_file():
        raise InputError(missing)
    if campaign is None:
        folder.verified(page)
    if as_json:
        print_json({"report": str(page)})
        return
    print_line(str(page))
    screen = any(os.environ.get(key) for key in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))
    if sys.stdout.isatty() and (screen or sys.platform == "darwin"):
        webbrowser.open(page.resolve().as_uri())
