"""Explorations of a cohort, or of a finished run, which then shows them in its report."""

from __future__ import annotations

import shutil
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from agents.core.disclosure import identifiers
from mcp_servers.registry import Registry
from sage.cli.cohort import load_named
from sage.cli.console import print_json, print_line
from sage.core.errors import InputError
from sage.core.files import write_bytes, write_json
from sage.report.build import write_report
from sage.report.crate import write_crate
from sage.report.exploration import SESSIONS, Exploration
from sage.run.begin import reopen
from sage.run.folder import RunFolder
from sage.run.wiring import open_ledger
from sage.settings import Settings, load
from sage_nova.code_acting.exploring import Tables, build_exploration, make_task, write_inputs
from sage_nova.code_acting.session import Session
from sage_nova.run import FILES, Options, is_unfinished, open_session, report_answer, run_session
from validation.cohort.cohort import Cohort
from validation.screening.look import look_at, note_look

WITH_ROWS = ("inputs", "running", "made")
"""Folders in a running session that contain patients' rows."""


@dataclass(frozen=True)
class Request:
    """An exploration's options, and the variables and endpoints to show."""

    options: Options
    variables: tuple[str, ...]
    endpoints: tuple[str, ...]

    def identify(self, cohort: Cohort) -> dict[str, object]:
        """Return the fields that identify an unfinished session."""
        return {
            "question": self.options.question, "cohort": cohort.id, "data": cohort.hashes(),
            "variables": list(self.variables), "endpoints": list(self.endpoints),
            "program": self.options.program is not None,
        }  # fmt: skip


def is_run(name: str) -> bool:
    """Return True if the argument names a run rather than a cohort."""
    path = Path(name)
    if path.exists():
        return (path / "manifest.json").is_file()
    return name == "last" or (load().runs_dir / name / "manifest.json").is_file()


def explore_cohort(
    name: str, root: Path | None, features: list[Path] | None, out: Path, request: Request,
    replace: bool,
) -> None:  # fmt: skip
    """Explore a cohort and write the session to `out`."""
    _explore(load_named(name, root, features), out, request, load(), replace=replace)


def explore_run(name: str, request: Request) -> None:
    """Explore the cohort of a finished run, which then shows the exploration in its report.

    Raises
    ------
    InputError
        If the run is not finished.
    """
    services = reopen(name)
    try:
        folder, manifest = services.folder, services.folder.manifest()
        if manifest.status != "finished":
            raise InputError(f"run {manifest.id} is {manifest.status}; finish it before exploring")
        identity, number = request.identify(services.cohort), 1
        while (session := folder.root / SESSIONS / str(number)).exists() and not is_unfinished(
            session, identity
        ):
            number += 1
        for killed in session.parent.glob("*"):  # the run is locked, so no session is active
            _remove_rows(killed)

        def keep(found: Exploration) -> str:
            return f"\n{keep_exploration(folder, session, found)}: {found.title}"

        _explore(services.cohort, session, request, services.settings, keep)
    finally:
        services.folder.release()


def keep_exploration(run: RunFolder, session: Path, found: Exploration) -> Path:
    """Add an exploration to a locked run's outputs, rebuild the report, and return its path."""
    before = run.record.begin("explore")
    home = run.root / "outputs" / SESSIONS / session.name
    home.mkdir(parents=True, exist_ok=True)
    for image in found.appendix.images:
        write_bytes(home / image, (session / "files" / image).read_bytes())
    write_json(home / "exploration.json", found)
    run.record.seal()
    written = write_report(run)
    write_crate(run.root, run.manifest())
    run.record.end("explore", before)
    return written.html


def _remove_rows(session: Path) -> None:
    for name in WITH_ROWS:
        shutil.rmtree(session / name, ignore_errors=True)


def _explore(
    cohort: Cohort, out: Path, request: Request, settings: Settings,
    keep: Callable[[Exploration], str] = lambda _: "", *, replace: bool = False,
) -> None:  # fmt: skip
    """Register the exploration, write the inputs, ask the question, and write the session.

    `keep` receives the exploration, even without an answer, and returns a line about its
    location.
    """
    options, out = request.options, out.resolve()
    engine, look = options.engine(), look_at(cohort, request.variables, request.endpoints)
    names = identifiers(name for pair in cohort.pseudonyms.items() for name in pair)
    author = options.author(out, withheld=lambda: names)
    with open_session(out, request.identify(cohort), replace=replace):
        options.say(f"Shown: {look}")
        if look.held_back:
            options.say(f"Not shown (contain outcomes): {', '.join(look.held_back)}")
        if look.spent:
            note_look(open_ledger(out / "ledger.jsonl", settings), cohort, look)
            options.say("Recorded in the ledger: claims about these are exploratory from now on.")
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that `finally` is reached
        try:
            inputs = write_inputs(cohort, look, out / "inputs")
            view = Tables.from_inputs(inputs, look, settings.min_count)
            session = Session(inputs, Registry(), engine, out, options.limits, view=view)
            task = make_task(cohort, look, settings.min_count)
            record = run_session(session, author, task, options)
        finally:
            _remove_rows(out)
        found = build_exploration(record, str(look))
        if options.program and not (found.appendix.tables or found.appendix.refused):
            options.say(
                "The program produced no table: it did not write exploratory.json (docs/nova.md "
                "has an example)."
            )
        write_json(out / "appendix.json", found)
    kept = keep(found)
    if options.as_json:
        print_json(found.model_dump(mode="json"))
    else:
        print_line(found.title)
    report_answer(record, f"{out}: appendix.json, {FILES}{kept}", as_json=options.as_json)
