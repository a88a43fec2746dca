"""`sage admin sandbox` from the command line."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.sandbox.boxes import BOXES, working
from tests.warm import run_warm

ROOT = Path(__file__).parents[2]


def sage(*words: str) -> subprocess.CompletedProcess[str]:
    return run_warm(["admin", "sandbox", *words], cwd=ROOT, env=os.environ, timeout=120)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(
        "from pathlib import Path\n"
        "rows = Path('/inputs/cohort/rows.csv').read_text().split()\n"
        "Path('/output/n.txt').write_text(str(len(rows)))\nprint('counted')\n"
    )
    (tmp_path / "cohort").mkdir()
    (tmp_path / "cohort" / "rows.csv").write_text("a\nb\nc\n")
    return path


@pytest.mark.parametrize("name", BOXES[1:2])
def test_run_brings_the_result_back(name: str, program: Path, tmp_path: Path) -> None:
    working(name)
    done = sage(
        "run", str(program), "--sandbox", name, "--input", f"cohort={tmp_path / 'cohort'}",
        "--out", str(tmp_path / "out"), "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["sandbox"], said["reason"], said["stdout_tail"]) == (name, "ok", "counted\n")
    assert (tmp_path / "out" / "n.txt").read_text() == "3"


@pytest.mark.bubblewrap
def test_run_names_the_line_that_the_policy_refuses(tmp_path: Path) -> None:
    working("bubblewrap")
    (tmp_path / "bad.py").write_text("x = 1\nimport socket\n")
    done = sage("run", str(tmp_path / "bad.py"), "--out", str(tmp_path / "o"), "--json")
    assert done.returncode == 1
    said = json.loads(done.stdout)
    assert said["reason"] == "policy" and said["message"].startswith("line 2")
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("run", "no-such.py", "--out", "o"), "no-such.py"),
        (("build", "--wheelhouse", "docs"), "docs"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_two(words: tuple[str, ...], says: str) -> None:
    done = sage(*words)
    assert done.returncode == 2
    assert says in done.stderr and "Traceback" not in done.stderr


def test_check_lists_every_sandbox_with_a_remedy_where_one_is_missing() -> None:
    said = json.loads(sage("check", "--json").stdout)["sandboxes"]
    assert [item["name"] for item in said] == ["docker", "bubblewrap", "subprocess"]
    assert all(item["ok"] or item["remedy"] for item in said)
