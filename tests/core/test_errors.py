"""One family of errors: an exit code each, kept across packages and processes."""

from __future__ import annotations

import importlib
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import sage
from mcp_servers.workers.jobs import name_error, restore_error
from sage.__main__ import exit_code
from sage.core.errors import Cancelled

HOUSE = Path(sage.__file__).parents[1]

FAMILY = [
    ("sage.core.errors", "InputError", 2),
    ("sage.core.errors", "FaultError", 1),
    ("validation.statistics.errors", "SeparationError", 2),
    ("sage.report.facts", "ReportError", 1),
]


@pytest.mark.parametrize(("module", "name", "code"), FAMILY, ids=[row[1] for row in FAMILY])
def test_an_error_keeps_its_exit_code_across_a_process_border(
    module: str, name: str, code: int
) -> None:
    error = getattr(importlib.import_module(module), name)("row 3: no age")
    assert exit_code(error) == code
    assert exit_code(pickle.loads(pickle.dumps(error))) == code
    again = restore_error(name_error(error), str(error))
    assert (exit_code(again), str(again)) == (code, "row 3: no age")


def test_a_defect_has_no_exit_code_and_cancelling_is_no_error() -> None:
    assert exit_code(KeyError("x")) is None
    assert exit_code(Cancelled("stop")) is None
    assert isinstance(restore_error(name_error(Cancelled("stop")), "stop"), Cancelled)


def test_what_the_command_line_needs_to_start_loads_nothing_heavy() -> None:
    code = (
        "import sys, sage\nassert not [n for n in sys.modules if n.startswith('sage.')]\n"
        "import sage.__main__, sage.cli.app, sage.core.data, sage.core.seeds\n"
        "heavy = 'pydantic numpy pandas httpx tenacity rich.console'.split()\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-c", code], cwd=HOUSE, capture_output=True, text=True)
    assert told.stdout == "[]\n", told.stderr
