"""One finished run on the simulated cohort, shared by the tests that only read it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.harness import PROMPT, build_once, sage


def _finish(place: Path) -> None:
    ended = sage(
        "run", PROMPT, "--auto-approve", "--hypotheses", "2", "--out", str(place / "run"),
        cwd=place, cold=True, SAGE_LEDGER=str(place / "ledger.sqlite"), NO_FIGURES="",
    )  # fmt: skip
    assert ended.code == 0, ended.err


@pytest.fixture(scope="session")
def finished() -> Path:
    """The folder of a finished run with two hypotheses. Copy it; never write.

    Its process started cold, so with another seed of the hashes than the runs of a warm process.
    """
    return build_once("finished", _finish) / "run"
