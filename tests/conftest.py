"""For all tests: Ctrl-C works, as in a terminal, and CI draws the same examples every time.

A shell that starts a command in the background makes it ignore SIGINT, and so would every process
that the tests start and interrupt.
"""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("ci", derandomize=True, deadline=None)
if os.environ.get("CI"):
    settings.load_profile("ci")
signal.signal(signal.SIGINT, signal.default_int_handler)

SLOW = ("end_to_end/", "adversary/", "mcp_servers/test_sl_", "test_the_table_kills_the_mutants")
"""Whole runs, attacks, slides, mutants: what `make test-fast` leaves out beside marked tests."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow what is slow by its place."""
    here = Path(__file__).parent
    for item in items:
        where = f"{item.path.relative_to(here).as_posix()}::{item.name}"
        if any(part in where for part in SLOW):
            item.add_marker(pytest.mark.slow)


# No test writes into the ledger of the person who runs it, or sees another test's.
os.environ["SAGE_LEDGER"] = str(
    Path(tempfile.mkdtemp(prefix="sage-test-ledger-")) / "ledger.sqlite"
)


@pytest.fixture(autouse=True)
def own_ledger(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A ledger for each test; those that share a finished run share its ledger too."""
    if "finished" not in request.fixturenames:
        place = tmp_path_factory.mktemp("ledger") / "ledger.sqlite"
        monkeypatch.setenv("SAGE_LEDGER", str(place))
