"""One finished run on the simulated cohort, shared by the tests that only read it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.harness import PROMPT, sage


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run with two hypotheses."""
    place = tmp_path_factory.mktemp("finished")
    run = place / "run"
    ended = sage("run", PROMPT, "--auto-approve", "--hypotheses", "2", "--out", str(run), cwd=place)
    assert ended.code == 0, ended.err
    return run
