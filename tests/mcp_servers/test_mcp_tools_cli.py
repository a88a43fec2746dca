"""`sage tools` from the command line: lists, one run, a cohort job that resumes."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from typer.testing import CliRunner

from mcp_servers.workers.cohort import lock_folder
from sage.__main__ import exit_code
from sage.cli.tools import app
from sage.core.errors import InputError
from tests.mcp_servers.slide_tools import TOOLS, environment
from tests.warm import HERE, Warm, run_warm


def sage(*words: str, cwd: Path, workers: bool = False) -> subprocess.CompletedProcess[str]:
    """`sage tools WORDS`, its tools in workers of their own where that is what is tested."""
    env = environment() if workers else {**environment(), HERE: "1"}
    return run_warm(["tools", *words], cwd=cwd, env=env, timeout=120)


def answer(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def slow_job(place: Path, slides: int, workers: int) -> list[str]:
    """Slides in `place`, and the words of a job over them that can be interrupted."""
    (place / "slides").mkdir()
    for at in range(slides):
        Image.new("RGB", (100, 80), (at * 8 % 256, 0, 0)).save(place / "slides" / f"s{at:02d}.png")
    job = ["run", "slow_preview", "--tools", TOOLS]
    return [*job, "--slides", "slides", "--workers", str(workers)]


@pytest.fixture
def slides(tmp_path: Path) -> Path:
    folder = tmp_path / "slides"
    folder.mkdir()
    for at in range(6):
        image = Image.new("RGB", (100 + at, 80), (at * 30, 0, 0))
        image.save(folder / f"TCGA-AB-000{at}-01Z-00-DX1.png")
    (folder / "TCGA-AB-0009-01Z-00-DX1.png").write_text("not an image")
    return folder


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "cox", "--set", "cohort"], "KEY=VALUE"),
        (["run", "cox", "--set", "chohort=gbsg2"], "chohort"),
        (["run", "cox", "--slides", "."], "cox"),
        (["run", "preview", "--tools", TOOLS, "--slides", "absent"], "absent"),
        (["show", "cox", "--tools", "absent"], "absent"),
    ],
)
def test_bad_words_are_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, words)
    assert done.exception is not None
    assert exit_code(done.exception) == 2
    assert message in str(done.exception)


def test_a_cohort_job_writes_a_table_and_lists_failures(tmp_path: Path, slides: Path) -> None:
    words = ["run", "preview", "--tools", TOOLS, "--slides", "slides", "--workers", "2"]
    done = sage(*words, "--out", "out", cwd=tmp_path, workers=True)
    assert done.returncode == 1
    assert "failed: TCGA-AB-0009-01Z-00-DX1.png" in done.stdout
    with (tmp_path / "out" / "preview.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 7
    assert rows[0]["patient"] == "TCGA-AB-0000"
    assert rows[0]["slide"] == "TCGA-AB-0000-01Z-00-DX1.png"
    assert [row["status"] for row in rows] == ["ok"] * 6 + ["failed"]
    assert (tmp_path / "out" / rows[0]["image"]).is_file()
    # What was done is taken over; a changed slide is run again.
    Image.new("RGB", (300, 80), "blue").save(slides / "TCGA-AB-0001-01Z-00-DX1.png")
    again = sage(*words, "--out", "out", "--json", cwd=tmp_path)
    assert json.loads(again.stdout)["resumed"] == 5


def test_two_jobs_on_one_output_do_not_mix(tmp_path: Path) -> None:
    (tmp_path / ".s07.dead-1234.part.png").write_text("half")
    with lock_folder(tmp_path / ".lock", "preview"):
        assert [path.name for path in tmp_path.iterdir()] == [".lock"]
        with pytest.raises(InputError, match="preview"), lock_folder(tmp_path / ".lock", "preview"):
            pass


def test_a_job_killed_outright_leaves_no_worker_and_nothing_half_written(tmp_path: Path) -> None:
    words = slow_job(tmp_path, slides=6, workers=2)
    process = Warm(["tools", *words, "--no-cache"], cwd=tmp_path, env=environment())
    records = tmp_path / "sage-output" / "slow_preview"
    until_records(records, 1)
    lists = Path(f"/proc/{process.pid}/task").glob("*/children")
    children = [pid for path in lists for pid in path.read_text().split()]
    assert len(children) >= 2
    process.send_signal(signal.SIGKILL)  # it alone, not its workers
    process.wait()
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline and any(alive(pid) for pid in children):
        time.sleep(0.1)
    assert not any(alive(pid) for pid in children)
    report = answer(sage(*words, "--no-cache", "--json", cwd=tmp_path))
    assert report["resumed"] >= 1
    assert report["failures"] == []
    assert not [path for path in records.rglob("*") if ".part" in path.name]


def alive(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


def until_records(records: Path, count: int) -> None:
    deadline = time.monotonic() + 60
    while len(list(records.glob("*/run.json"))) < count:
        assert time.monotonic() < deadline
        time.sleep(0.05)
