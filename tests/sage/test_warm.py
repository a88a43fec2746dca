"""A command in a fork of the warm process is the command: streams, folder, variables, end."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.end_to_end.harness import environment, sage
from tests.warm import run_warm


@pytest.mark.parametrize(
    ("words", "given"),
    [
        (["run", "x", "--cohort", "nowhere"], {}),
        (["admin", "config", "--json"], {"SAGE_API_KEY": "secret-key", "SAGE_BUDGET_USD": "7"}),
    ],
)
def test_a_warm_command_says_and_ends_as_a_cold_one(
    words: list[str], given: dict[str, str], tmp_path: Path
) -> None:
    given = given | {"FEW_DRAWS": ""}
    assert sage(*words, cwd=tmp_path, **given) == sage(*words, cwd=tmp_path, cold=True, **given)


def test_a_command_that_takes_too_long_is_killed(tmp_path: Path) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        run_warm(["--help"], cwd=tmp_path, env=environment(), timeout=0.001)
    assert sage("--version", cwd=tmp_path).code == 0
