"""For all tests: Ctrl-C works, as in a terminal, and CI draws the same examples every time.

A shell that starts a command in the background makes it ignore SIGINT, and so would every process
that the tests start and interrupt.
"""

from __future__ import annotations

import gc
import itertools
import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A busy machine draws its examples slowly; that is no fault of a test.
settings.register_profile(
    "ci", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
if os.environ.get("CI"):
    settings.load_profile("ci")
signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).parent
PLACES = ("end_to_end/", "adversary/", "mcp_servers/test_sl_", "test_the_table_kills_the_mutants")
"""Whole runs, attacks, slides, mutants: what `make test-fast` leaves out beside marked tests."""
KEPT = (
    "end_to_end/test_run.py::test_a_prompt_ends_in_a_report_with_a_verdict",
    "end_to_end/test_run.py::test_every_number_of_the_page_names_a_key_of_results_json",
    "end_to_end/test_run.py::test_no_patient_and_no_row_enters_an_agent_output",
    "end_to_end/test_run.py::test_replay_rebuilds_the_same_report_with_the_core_alone",
)
"""One whole run that it keeps."""
SLOW = ROOT / "tests" / "slow.txt"
"""Tests of which one parameter took longer than `LONG_S`, with the seconds of all, by
`--record-slow`; left out too."""
LONG_S = 0.3
took: dict[str, float] = {}
"""Seconds of each test, its setup included."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Say how the list of slow tests is made anew."""
    parser.addoption(
        "--record-slow", action="store_true", help=f"write {SLOW.name}: all over {LONG_S:g} s"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow what is slow by its place or by the list; the longest files go first.

    So that beside others none is still busy with a long file when the rest is done.
    """
    lines = (line.split() for line in SLOW.read_text(encoding="utf-8").splitlines())
    listed = {name: float(seconds) for name, seconds in lines}
    slow: dict[Path, float] = {}
    for item in items:
        where = item.nodeid.removeprefix("tests/")
        name = where.partition("[")[0]
        if name not in KEPT and (name in listed or any(part in where for part in PLACES)):
            item.add_marker(pytest.mark.slow)
        slow[item.path] = slow.get(item.path, 0.0) + listed.get(name, 0.0)
    items.sort(key=lambda item: -slow[item.path])


def pytest_collectstart() -> None:
    """Collect no garbage while the tests are collected."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Leave what was loaded out of all collections of garbage; some libraries ask for many."""
    gc.freeze()
    gc.enable()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add a phase of a test to what it took."""
    took[report.nodeid] = took.get(report.nodeid, 0.0) + report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the list, where it is asked for: by test function, without parameters."""
    if session.config.getoption("--record-slow") and not hasattr(session.config, "workerinput"):
        tests: dict[str, list[float]] = {}
        for name, seconds in took.items():
            tests.setdefault(name.partition("[")[0].removeprefix("tests/"), []).append(seconds)
        lines = (f"{t} {sum(s):.1f}\n" for t, s in sorted(tests.items()) if max(s) > LONG_S)
        SLOW.write_text("".join(lines))


# No test writes into the ledger of the person who runs it, or sees another test's.
os.environ["XDG_DATA_HOME"] = tempfile.mkdtemp(prefix="sage-test-data-")
os.environ["SAGE_LEDGER"] = str(
    Path(tempfile.mkdtemp(prefix="sage-test-ledger-")) / "ledger.sqlite"
)


LEDGERS = Path(tempfile.mkdtemp(prefix="sage-test-ledgers-"))
numbers = itertools.count()


@pytest.fixture(autouse=True)
def own_ledger(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test a ledger; that of a test with the finished run knows what was tested there."""
    place = LEDGERS / str(next(numbers)) / "ledger.sqlite"
    place.parent.mkdir()
    if "finished" in request.fixturenames:
        for file in request.getfixturevalue("finished").parent.glob(f"{place.name}*"):
            shutil.copy(file, place.parent)
    monkeypatch.setenv("SAGE_LEDGER", str(place))
