"""Entry point of the `sage` command."""

from __future__ import annotations

import errno
import gc
import importlib.util
import io
import os
import sys
from pathlib import Path
from typing import NoReturn

from sage.core.errors import InputError, SageError
from sage.core.log import logger

OF_RUNS = {"run", "resume", "review", "campaign", "worker"}
"""Commands that work on a run, which `sage resume` can therefore continue."""
INTERRUPTED = "interrupted; finished work is kept"
PACKAGES = ("agents", "kg", "mcp_servers", "sandbox", "validation")
"""Import names of SAGE other than `sage`, some of which other distributions also use."""


def main() -> None:
    """Run the command line, reporting each error as one clear line and an exit code.

    Exit codes: 0 for success, 1 for a fault (disk, network, model), 2 for bad input, 130 if
    interrupted.
    """
    try:
        refuse_foreign_packages(Path(__file__).resolve().parents[1])
    except InputError as error:
        _say(str(error))
        sys.exit(error.exit_code)
    from sage.core.egress import confine

    confine()
    gc.set_threshold(100_000, 20, 20)  # objects of libraries stay, and revisiting them takes long
    from sage.cli.app import app

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # lone surrogates in names and titles
    try:
        app()
    except KeyboardInterrupt:
        _say(INTERRUPTED)
        _end(130)
    except SystemExit as ended:
        if ended.code == 130:
            # Typer turns Ctrl-C into an exit; commands that handle it print their own message.
            if isinstance(getattr(ended.__context__, "__cause__", None), KeyboardInterrupt):
                _say(INTERRUPTED)
            _end(130)
        raise
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            sys.exit(0)
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            where = f" ({error.filename})" if error.filename else ""
            _say(
                f"no space left on the disk{where}; free some space, then repeat the command or, "
                "for a run, use `sage resume RUN`"
            )
        else:
            _say(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}")
        sys.exit(1)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError):
            from sage.core.extras import explain_absence

            error = explain_absence(error) or error
        code = exit_code(error)
        logger(__name__).failed("command failed", error, exit_code=code)
        if code is None:
            raise
        _say(_way_on(error))
        sys.exit(code)


def refuse_foreign_packages(root: Path) -> None:
    """Check that SAGE's import names resolve to SAGE's own packages in the folder `root`.

    Raises
    ------
    InputError
        If Python finds another package under any of the names, or another distribution has
        overwritten one of SAGE's packages.
    """
    sizes = _recorded_sizes()
    for name in PACKAGES:
        found = importlib.util.find_spec(name)
        if found is None or not found.origin:
            continue
        place = Path(found.origin).resolve()
        size = sizes.get(f"{name}/__init__.py", place.stat().st_size)
        if place.parents[1] != root or place.stat().st_size != size:
            raise InputError(
                f'Python finds another package named "{name}" at {place.parent}{_owner(name)} '
                "instead of SAGE's; install SAGE in a separate environment: uv tool install "
                "sage-pathology"
            )


def _recorded_sizes() -> dict[str, int]:
    """Return the size in bytes of each installed package's `__init__.py`; empty in a checkout."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        record = distribution("sage-pathology").read_text("RECORD") or ""
    except PackageNotFoundError:
        return {}
    rows = (line.split(",") for line in record.splitlines())
    wanted = {f"{name}/__init__.py" for name in PACKAGES}
    return {row[0]: int(row[-1]) for row in rows if row[0] in wanted and row[-1].isdigit()}


def _owner(name: str) -> str:
    """Return " (of NAME)" if another distribution owns the package, or an empty string."""
    from importlib.metadata import packages_distributions

    owners = [item for item in packages_distributions().get(name, []) if "sage" not in item]
    return f" (of {owners[0]})" if owners else ""


def _way_on(error: Exception) -> str:
    """Return the error message, advising `sage resume` only if there is a run to resume."""
    from sage.core.llm.failures import ModelError

    if OF_RUNS & set(sys.argv[1:]):
        return str(error)
    words = str(error).removesuffix(", or run with --reasoner rules")  # also for a refused key
    failed = isinstance(error, ModelError)
    return words.replace("`sage resume`", "the same command again") if failed else words


def _end(code: int) -> NoReturn:
    """Exit immediately with `code`.

    If an interrupt has passed through code compiled from a string (such as a dataclass
    definition), Python would otherwise exit by the signal again, regardless of the requested
    exit code.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def exit_code(error: BaseException) -> int | None:
    """Return the error's own exit code, 1 if SQLite reports a full disk, or None for a bug."""
    if isinstance(error, SageError):
        return error.exit_code
    if type(error).__module__ == "sqlite3" and "disk is full" in str(error):
        return 1
    return None


def _say(message: str) -> None:
    from rich.console import Console
    from rich.text import Text

    from sage.core.printable import clean_text

    line = Text("error: ", style="bold red")
    line.append(clean_text(message), style="default")
    Console(stderr=True, soft_wrap=True, highlight=False).print(line)


if __name__ == "__main__":
    main()
