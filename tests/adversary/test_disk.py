"""Attacks on what lies on the disk: edited, lost, copied, held, killed, full."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sage.api import Run
from sage.cli.show import show_run
from sage.cli.watch import open_report
from sage.core.errors import InputError
from sage.report.collect import collect_page
from sage.run.folder import RunFolder
from sage.run.integrity import CLOSED, NAME, TRANSIENT
from sage.settings import Settings
from sage.web.routes import home
from sage.web.routes import run as web
from sage.web.routes.graph import paths
from sage.web.site import Site
from tests.adversary.hostile import hostile_run, waiting_run
from tests.end_to_end.harness import environment, events, sage
from tests.warm import run_warm


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A copy of a finished run, to be damaged."""
    return Path(shutil.copytree(hostile_run(), tmp_path / "run"))


@pytest.fixture
def waiting(tmp_path: Path) -> Path:
    """A moved run that waits for its review: its first place is gone."""
    moved = Path(shutil.copytree(waiting_run(), tmp_path / "moved"))
    manifest = json.loads((moved / "manifest.json").read_text())
    (moved / "manifest.json").write_text(json.dumps({**manifest, "place": str(tmp_path / "gone")}))
    return moved


def _digit(path: Path) -> None:
    """Change one digit: the smallest lie."""
    content = bytearray(path.read_bytes())
    at = max(index for index, byte in enumerate(content) if chr(byte).isdigit())
    content[at] = ord("1") if content[at] != ord("1") else ord("2")
    path.write_bytes(bytes(content))


def _change_prompt(run: Path) -> None:
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["spec"]["prompt"] = "Another question"
    (run / "manifest.json").write_text(json.dumps(manifest))


DAMAGE: dict[str, Callable[[Path], object]] = {
    "deleted": lambda path: path.unlink(),
    "emptied": lambda path: path.write_bytes(b""),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "garbage": lambda path: path.write_bytes(os.urandom(512)),
    "other": lambda path: path.write_text('{"output": {}, "text": 1}'),
    "digit": _digit,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_file_that_was_touched_is_named(damage: str, run: Path) -> None:
    for file in ("manifest.json", NAME, "hypotheses/h1/contract.json", "report.html"):
        whole = (run / file).read_bytes()
        DAMAGE[damage](run / file)
        with pytest.raises(InputError, match=file) as refused:
            collect_page(RunFolder(run))
        assert "\n" not in str(refused.value), file
        (run / file).write_bytes(whole)


def test_every_file_of_a_finished_run_is_recorded(run: Path) -> None:
    """Whatever a file is for: who changes a digit of it is found."""
    folder = RunFolder(run)
    files = {path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file()}
    assert {"log.jsonl", "events.jsonl", "trace.jsonl", "checkpoints.sqlite"} <= files
    for name in sorted(files - set(TRANSIENT)):
        path = run / name
        whole = path.read_bytes()
        if name == "checkpoints.sqlite":
            with closing(sqlite3.connect(path)) as database, database:
                database.execute("UPDATE writes SET channel = 'other' WHERE rowid = 1")
        elif not any(chr(byte).isdigit() for byte in whole):
            path.write_bytes(whole + b"1")
        else:
            _digit(path)
        with pytest.raises(InputError, match=f"{re.escape(name)}|place|line"):
            folder.verify()
        path.write_bytes(whole)
    folder.verify()
    for name in CLOSED:  # a forged turn, test or cost at the end of a journal, or a journal
        before = (run / name).read_bytes() if (run / name).exists() else None
        (run / name).write_bytes((before or b"") + b"{}\n")
        with pytest.raises(InputError, match=re.escape(name)):
            folder.verify()
        (run / name).unlink() if before is None else (run / name).write_bytes(before)


def test_a_run_that_an_earlier_version_finished_is_still_read(run: Path) -> None:
    """Its record covers neither the log nor the manifest's state."""
    folder = RunFolder(run)
    manifest = folder.manifest()
    folder.record.path.unlink()
    folder.record.seal()
    folder.record.seal_manifest(lambda whole: manifest.digest(whole=False))
    stored = json.loads((run / "manifest.json").read_text()) | {"sealed": folder.record.head()}
    (run / "manifest.json").write_text(json.dumps(stored))
    assert collect_page(RunFolder(run)).hypotheses
    _change_prompt(run)
    with pytest.raises(InputError, match=r"manifest\.json"):
        collect_page(RunFolder(run))


def test_checkpoints_that_were_opened_or_copied_are_the_same(run: Path, tmp_path: Path) -> None:
    place = run / "checkpoints.sqlite"
    with closing(sqlite3.connect(place)) as found, closing(sqlite3.connect(tmp_path / "c")) as to:
        found.execute("PRAGMA wal_checkpoint")
        found.backup(to)
    shutil.copy(tmp_path / "c", place)
    RunFolder(run).verify()
    assert sage("resume", str(run), cwd=tmp_path).code == 0  # a copy, whose thread is renamed
    RunFolder(run).verify()


@pytest.mark.parametrize(
    "file", ["report.html", "hypotheses/h1/results/results.json", "manifest.json"]
)
def test_no_door_shows_a_run_whose_files_were_changed(file: str, run: Path) -> None:
    site = Site(Settings(runs_dir=run.parent))
    commands = SimpleNamespace(
        alive=lambda name: False, failure=lambda name: "", log=lambda name: run / "absent"
    )
    request: Any = SimpleNamespace(
        app=SimpleNamespace(state=SimpleNamespace(site=site, commands=commands)), headers={}
    )
    figure = next(path.name for path in run.glob("hypotheses/h1/results/figures/*.svg"))
    doors: list[Callable[[], object]] = [
        lambda: web.report("run", request),
        lambda: web.figure("run", "h1", f"results/figures/{figure}", request),
        lambda: web.agents("run", request, "scientist"),
        lambda: web.events("run", request),
        lambda: web.log("run", request),
        lambda: paths("run", request),
        lambda: show_run(str(run), as_json=True),
        lambda: site.claims(RunFolder(run)),
        lambda: Run(RunFolder(run)).result(),
        lambda: open_report(str(run), as_json=True),
    ]
    for door in doors:
        door()
    before = (run / file).stat()
    _change_prompt(run) if file == "manifest.json" else _digit(run / file)
    os.utime(run / file, ns=(before.st_atime_ns, before.st_mtime_ns))
    for door in doors:
        with pytest.raises(InputError, match=file):
            door()
    (listed,) = home.runs(request)["runs"]
    assert not listed["claims"] and file in listed["why"] and "Another" not in str(listed)


def test_a_prompt_changed_in_the_manifest_is_found_and_a_status_is_none(run: Path) -> None:
    folder = RunFolder(run)
    spec = folder.manifest().spec
    costly = spec.model_copy(update={"budget_usd": 3.0})
    folder.update(status="failed", problem="a disk", spec=costly)
    assert collect_page(folder).hypotheses
    _change_prompt(run)
    for read in (collect_page, lambda folder: (folder.hold(), folder.adopt())):
        with pytest.raises(InputError, match=r"manifest\.json"):
            read(folder)


def test_the_event_log_of_an_ended_run_is_closed_and_no_file_is_slipped_in(run: Path) -> None:
    folder, log = RunFolder(run), run / "events.jsonl"
    whole = log.read_text()
    shutil.copy(run / "outputs/summary-h1.json", run / "outputs/summary-h2.json")
    with pytest.raises(InputError, match=r"summary-h2\.json"):
        collect_page(RunFolder(run))
    (run / "outputs/summary-h2.json").unlink()
    for changed in (whole + '{"kind": "note"}\n', whole.replace('"seconds": 0', '"seconds": 9', 1)):
        log.write_text(changed)
        with pytest.raises(InputError, match=r"events\.jsonl"):
            collect_page(folder)


def test_a_record_without_a_line_or_with_two_swapped_is_broken(run: Path) -> None:
    lines = (run / NAME).read_text().splitlines(keepends=True)
    for changed in ([*lines[:3], *lines[4:]], [*lines[:3], lines[4], lines[3], *lines[5:]]):
        (run / NAME).write_text("".join(changed))
        with pytest.raises(InputError, match="line 4"):
            collect_page(RunFolder(run))


def test_a_line_torn_by_a_kill_is_left_out_and_mended(run: Path) -> None:
    with (run / NAME).open("a") as file:
        file.write('{"path": "outputs/brief.js')
    folder = RunFolder(run)
    assert collect_page(folder).hypotheses
    (run / "outputs/later.json").write_text("{}")
    folder.record.seal()
    assert collect_page(folder).hypotheses
    assert [json.loads(line) for line in (run / NAME).read_text().splitlines()]


def test_what_changed_before_a_node_is_not_taken_for_its_work(run: Path) -> None:
    record = RunFolder(run).record
    _digit(run / "outputs/brief.json")
    before = record.begin("summary h9")
    (run / "outputs/summary-h9.json").write_text("{}")
    record.end("summary h9", before)
    with pytest.raises(InputError, match=r"brief\.json"):
        collect_page(RunFolder(run))


def test_a_program_that_a_person_mended_is_recorded_and_nothing_else(run: Path) -> None:
    folder = RunFolder(run)
    results = run / "hypotheses/h1/results"
    last = max(results.glob("attempt-*"), key=lambda path: int(path.name.partition("-")[2]))
    program = last / "analysis.py"
    program.write_text(f"{program.read_text()}# mended\n")
    folder.record.accept_mended()
    assert collect_page(folder).hypotheses
    _digit(run / "outputs/brief.json")
    folder.record.accept_mended()
    with pytest.raises(InputError, match=r"brief\.json"):
        collect_page(folder)


def test_an_escalation_opens_the_last_attempts_program_alone(run: Path) -> None:
    folder = RunFolder(run)
    results = run / "hypotheses/h1/results"
    first = results / "attempt-1/analysis.py"
    shutil.copytree(first.parent, results / "attempt-10")
    folder.record.seal()
    folder.update(status="escalated")
    (results / "attempt-10/analysis.py").write_text("# mended\n")
    folder.verify(under_way=True)
    with pytest.raises(InputError, match="attempt-10"):
        folder.verify()
    first.write_text("# an earlier attempt, told otherwise\n")
    with pytest.raises(InputError, match="attempt-1/analysis"):
        folder.verify(under_way=True)


def test_a_node_that_was_killed_takes_up_what_it_left(run: Path) -> None:
    record = RunFolder(run).record
    record.begin("judge")
    (run / "hypotheses/h1/results/outcome.json").write_text("{}")
    record.end("judge", record.begin("judge"))
    assert collect_page(RunFolder(run)).hypotheses


def test_replay_refuses_in_one_line_and_writes_nothing(run: Path, tmp_path: Path) -> None:
    file = run / "hypotheses/h1/results/results.json"
    _digit(file)
    ended = sage("admin", "replay", str(run), "--out", str(tmp_path / "again"), cwd=tmp_path)
    assert ended.code == 2
    assert str(file) in ended.err
    assert len(ended.err.strip().splitlines()) == 1
    assert not (tmp_path / "again").exists()


def test_a_folder_of_another_format_is_refused(run: Path) -> None:
    manifest = json.loads((run / "manifest.json").read_text())
    for version in (3, 9):
        (run / "manifest.json").write_text(json.dumps({**manifest, "format": version}))
        with pytest.raises(InputError, match=f"format {version}"):
            collect_page(RunFolder(run))


def test_a_run_that_was_moved_goes_on_where_it_stood(waiting: Path, tmp_path: Path) -> None:
    ended = sage("resume", str(waiting), "--json", cwd=tmp_path)
    assert ended.code == 0, ended.err
    assert ended.json["status"] == "waiting for review"
    assert sum(event.get("node") == "scientist" for event in events(waiting)) == 2  # start and end
    manifest = RunFolder(waiting).manifest()
    assert manifest.place == str(waiting)
    assert manifest.run_id == RunFolder(waiting_run()).manifest().run_id


def test_copies_are_runs_of_their_own_that_name_their_parents(tmp_path: Path) -> None:
    first = Path(shutil.copytree(waiting_run(), tmp_path / "first"))
    assert sage("resume", str(first), "--json", cwd=tmp_path).code == 0
    second = Path(shutil.copytree(first, tmp_path / "second"))
    ended = sage("review", str(second), "--reject", "no", "--json", cwd=tmp_path)
    assert ended.code == 0, ended.err
    manifests = [RunFolder(item).manifest() for item in (waiting_run(), first, second)]
    assert len({manifest.thread for manifest in manifests}) == 3
    assert len({manifest.run_id for manifest in manifests}) == 3
    assert [manifest.parent for manifest in manifests[1:]] == [
        manifest.run_id for manifest in manifests[:2]
    ]
    assert [manifest.status for manifest in manifests] == [
        "waiting for review", "waiting for review", "finished"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("file", "command"),
    [("outputs/draft-h1.json", ("resume",)), ("outputs/brief.json", ("review", "--approve"))],
)  # fmt: skip
def test_no_run_goes_on_from_a_file_that_was_changed(
    file: str, command: tuple[str, ...], waiting: Path, tmp_path: Path
) -> None:
    before = events(waiting)
    _digit(waiting / file)
    ended = sage(command[0], str(waiting), *command[1:], cwd=tmp_path)
    assert ended.code == 2, ended.out
    assert file in ended.err
    assert len(ended.err.strip().splitlines()) == 1
    assert events(waiting) == before


def test_of_two_copies_of_a_moved_run_neither_is_taken_for_the_original(tmp_path: Path) -> None:
    first = Path(shutil.copytree(waiting_run(), tmp_path / "runs" / "first"))
    manifest = json.loads((first / "manifest.json").read_text())
    (first / "manifest.json").write_text(json.dumps({**manifest, "place": str(tmp_path / "gone")}))
    second = Path(shutil.copytree(first, first.with_name("second")))
    for run in (first, second):
        refused = sage("resume", str(run), cwd=tmp_path)
        assert refused.code == 2 and "contain the same run" in refused.err, refused.err
    away = second.rename(tmp_path / "away")
    assert sage("resume", str(first), "--json", cwd=tmp_path).json["status"] == "waiting for review"
    away.rename(second)
    copied = sage("resume", str(second), "--json", cwd=tmp_path)
    assert copied.json["status"] == "waiting for review", copied.err
    kept, own = RunFolder(first).manifest(), RunFolder(second).manifest()
    assert own.parent == kept.run_id != own.run_id and own.thread != kept.thread


@pytest.mark.parametrize(
    ("node", "file", "own"),
    [
        ("coding h1", "hypotheses/h1/results/results.json", True),
        ("judge", "results.json", True),
        ("coding h1", "hypotheses/h11/results/results.json", False),
        ("coding h1", "outputs/scientist.json", False),
        ("judge", "outputs/summary-h1.json", False),
    ],
)
def test_an_interrupted_step_answers_for_its_own_files_alone(
    node: str, file: str, own: bool, run: Path
) -> None:
    record = RunFolder(run).record
    path = run / file
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.write_text('{"seconds": 1}')
        record.seal()
    record.begin(node)
    _digit(path)
    if own:
        record.verify("", under_way=True)
    else:
        with pytest.raises(InputError, match=file):
            record.verify("", under_way=True)


def test_a_second_hand_on_a_run_is_told_whose_the_first_is(run: Path, tmp_path: Path) -> None:
    holder = RunFolder(run)
    holder.hold()
    for command in (("resume", str(run)), ("review", str(run), "--approve")):
        ended = sage(*command, cwd=tmp_path)
        assert ended.code == 2
        assert f"process {os.getpid()} on {socket.gethostname()} since 2" in ended.err
        assert len(ended.err.strip().splitlines()) == 1
    assert sage("admin", "replay", str(run), "--out", str(tmp_path / "r"), cwd=tmp_path).code == 0
    holder.release()
    again = RunFolder(run)
    again.hold()
    again.release()


def test_a_damaged_checkpoint_file_is_named_and_can_be_removed(
    waiting: Path, tmp_path: Path
) -> None:
    for left in waiting.glob("checkpoints.sqlite-*"):
        left.unlink()
    path = waiting / "checkpoints.sqlite"
    whole = path.read_bytes()
    for damage in ("garbage", "truncated"):
        path.write_bytes(whole)
        DAMAGE[damage](path)
        ended = sage("resume", str(waiting), cwd=tmp_path)
        assert ended.code == 2, damage
        assert "checkpoints.sqlite" in ended.err
        assert len(ended.err.strip().splitlines()) == 1
    path.unlink()
    ended = sage("resume", str(waiting), "--json", cwd=tmp_path)
    assert ended.code == 0, ended.err
    assert ended.json["status"] == "waiting for review"


KILLED = """
import os, signal, sys
from pathlib import Path
from sage.core.files import write_json

if sys.argv[3] == "named from the start":
    del os.O_TMPFILE
setattr(os, sys.argv[2], lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
write_json(Path(sys.argv[1]) / "outputs" / "late.json", {"half": 1})
"""


@pytest.mark.parametrize(
    ("disk", "step", "count"),
    [("unnamed until whole", "fsync", 0), ("unnamed until whole", "replace", 1),
     ("named from the start", "fsync", 1)],
)  # fmt: skip
def test_what_a_kill_left_half_written_is_gone_when_the_run_is_next_held(
    disk: str, step: str, count: int, run: Path
) -> None:
    command = ["-c", KILLED, str(run), step, disk]
    killed = run_warm(command, cwd=run.parent, env=environment(), timeout=60)
    assert killed.returncode == -signal.SIGKILL
    left = [path for path in run.rglob(".*") if path.suffix == ".part"]
    assert len(left) == count
    assert collect_page(RunFolder(run)).hypotheses
    RunFolder(run).hold()
    assert not any(path.exists() for path in left)
    assert not list(run.rglob("late.*"))


def test_checkpoints_that_another_process_holds_are_not_called_damaged(
    waiting: Path, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(waiting / "checkpoints.sqlite")) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("CREATE TABLE held (x)")
        other.execute("DROP TABLE held")
        ended = sage("resume", str(waiting), cwd=tmp_path)
    assert ended.code == 1
    assert "cannot be used now" in ended.err
    assert "remove" not in ended.err
    assert sage("resume", str(waiting), cwd=tmp_path).code == 0


FULL = """
import resource, sys

resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
sys.argv = ["sage", *sys.argv[1:]]
from sage.__main__ import main

main()
"""


def test_a_full_disk_is_called_that_with_its_path_and_leaves_nothing_half_written(
    run: Path, tmp_path: Path
) -> None:
    command = ["-c", FULL, "admin", "replay", str(run), "--out", str(tmp_path / "out")]
    ended = run_warm(command, cwd=tmp_path, env=environment(), timeout=240)
    assert ended.returncode == 1
    assert "no space left on the disk" in ended.stderr
    assert str(tmp_path / "out") in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1
    for path in (tmp_path / "out").rglob("*"):
        assert not path.name.startswith(".")
        if path.suffix == ".json":
            json.loads(path.read_text())


def test_a_full_checkpoint_database_is_called_that(waiting: Path, tmp_path: Path) -> None:
    small = """
import sqlite3, sys

class Small(sqlite3.Connection):
    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.execute("PRAGMA max_page_count = 1")

connect = sqlite3.connect
sqlite3.connect = lambda *args, **options: connect(*args, **{**options, "factory": Small})
sys.argv = ["sage", *sys.argv[1:]]
from sage.__main__ import main

main()
"""
    command = ["-c", small, "review", str(waiting), "--reject", "no"]
    ended = run_warm(command, cwd=tmp_path, env=environment(), timeout=240)
    assert ended.returncode == 1, ended.stderr
    assert "no space left on the disk" in ended.stderr
    assert "checkpoints.sqlite" in ended.stderr
    assert sqlite3.connect(waiting / "checkpoints.sqlite").execute("PRAGMA quick_check")
