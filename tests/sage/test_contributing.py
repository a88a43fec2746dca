"""The examples of CONTRIBUTING.md, run as they stand."""

from __future__ import annotations

import os
import re
import runpy
from pathlib import Path

import pytest

from tests.warm import run_warm

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"```\w+\n# (\S+)\n(.*?)```", GUIDE, re.DOTALL))
COMMANDS = re.findall(r"^    (sage .+)$", GUIDE, re.MULTILINE)


@pytest.fixture
def written(tmp_path: Path) -> Path:
    for name, body in BLOCKS.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(body, encoding="utf-8")
    rows = "".join(f"p{number},{50 + number},{number},{number % 2}\n" for number in range(1, 31))
    (tmp_path / "my-cohort" / "clinical.csv").write_text(f"patient,age,months,dead\n{rows}")
    return tmp_path


def test_the_agent_answers_by_its_rule_and_has_its_prompt(written: Path) -> None:
    from agents.core.base import Resources
    from agents.core.rules import RulesReasoner

    held = runpy.run_path(str(written / "agents" / "counting" / "agent.py"))
    given = held["CountingInput"](statement="FABP5 and survival")
    reasoner = RulesReasoner(Resources(ontology=None))  # type: ignore[arg-type]
    assert reasoner.ask(held["COUNTING"], given).output.words == 3
    assert held["COUNTING"].prompt.text.startswith("version: 1")


def test_the_statistic_is_the_median_of_the_differences(written: Path) -> None:
    import numpy as np

    held = runpy.run_path(str(written / "validation" / "statistics" / "shift.py"))
    x, y = np.array([1.0, 4.0, 6.0]), np.array([0.0, 2.0])
    assert held["hodges_lehmann"](x, y) == 3.0  # of -1, 1, 2, 4, 4, 6
    assert held["hodges_lehmann"](x + 5, y) == held["hodges_lehmann"](x, y) + 5


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_guide_works_as_printed(command: str, written: Path) -> None:
    done = run_warm(command.split()[1:], cwd=written, env=os.environ, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_target_that_the_guide_names_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"make ([a-z-]+)", GUIDE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    assert len(COMMANDS) == 3 and len(BLOCKS) == 5
