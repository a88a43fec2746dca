"""Runs and databases into one archive and back, with files alone and with PostgreSQL."""

from __future__ import annotations

import hashlib
import io
import json
import os
import random
import shutil
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from sage.core.errors import InputError
from sage.core.hooks import current_owner
from sage.run.folder import Manifest, RunFolder, list_runs
from sage.run.spec import RunSpec
from sage.settings import Settings
from sage_hospital.backup import backup, restore
from sage_hospital.runs import open_runs
from tests.end_to_end.harness import PROMPT, sage
from tests.postgres import NEEDED, server
from validation.ledger.ledger import Ledger
from validation.ledger.store import open_store


@pytest.fixture(params=["files", pytest.param("postgres", marks=NEEDED)])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[dict[str, str]]]:
    """Variables of the place that is backed up, and of the one that it is restored to."""
    if request.param == "files":
        yield [{"SAGE_LEDGER": str(tmp_path / name / "l.sqlite")} for name in ("one", "two")]
        return
    with server() as one, server() as two:
        yield [{"SAGE_CHECKPOINT_URL": place, "SAGE_LEDGER": place} for place in (one, two)]


def test_a_run_that_waits_goes_on_where_it_was_restored(
    places: list[dict[str, str]], tmp_path: Path
) -> None:
    first, second = places
    begun = sage("run", PROMPT, "--queue", "--json", cwd=tmp_path, **first)
    assert begun.code == 0, begun.err
    assert sage("hospital", "worker", "--drain", cwd=tmp_path, **first).code == 0
    saved = sage("hospital", "backup", "all.tar.gz", "--json", cwd=tmp_path, **first)
    assert saved.code == 0, saved.err
    assert saved.json["runs"] == 1
    shutil.rmtree(tmp_path / "runs")
    elsewhere = tmp_path / "restored"
    second |= {"SAGE_RUNS_DIR": str(elsewhere)}
    restored = sage("hospital", "restore", "all.tar.gz", "--json", cwd=tmp_path, **second)
    assert restored.code == 0, restored.err
    again = sage("hospital", "restore", "all.tar.gz", cwd=tmp_path, **second)
    assert again.code == 2
    assert "empty" in again.err
    (item,) = sage("show", "--json", cwd=tmp_path, **second).json
    (queued,) = sage("hospital", "queue", "--json", cwd=tmp_path, **second).json
    assert item["status"] == queued["state"] == "waiting for review"
    ended = sage("review", "last", "--reject", "no", "--json", cwd=tmp_path, **second)
    assert ended.code == 0, ended.err
    assert ended.json["status"] == "finished"
    log = sage("hospital", "audit", "--json", cwd=tmp_path, **second).json
    assert log["problem"] == ""
    # An SQLite log is kept from the first run in the queue on.
    begun = [row["about"] for row in log["rows"] if row["what"] == "began"]
    assert begun == ([item["id"]] if "SAGE_CHECKPOINT_URL" in second else [])
    assert [row["what"] for row in log["rows"] if row["what"] not in ("asked", "began")] == [
        "exported", "restored", "rejected",
    ]  # fmt: skip
    assert len(log["rows"]) == 3 + 2 * ("SAGE_CHECKPOINT_URL" in second)
    assert {row["who"] for row in log["rows"]} == {current_owner()}


def archive(path: Path, files: dict[str, bytes]) -> Path:
    """A tar file of these files."""
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def write_run(home: Path) -> RunFolder:
    """A run with one recorded file."""
    run = RunFolder(home / "at-work")
    (run.root / "outputs").mkdir(parents=True)
    run.save(Manifest(id="at-work", run_id="1", thread="1", place=str(run.root),
                      spec=RunSpec(prompt="q", cohort="c"), created="",
                      reasoner="rules"))  # fmt: skip
    (run.root / "outputs" / "a.json").write_text("0")
    run.record.seal()
    run.update(sealed=run.record.head())
    return run


def test_a_run_that_goes_on_while_it_is_copied_can_be_restored(tmp_path: Path) -> None:
    """Whatever the copy met, an archive that is there restores; else the run is named."""
    run = write_run(tmp_path / "runs")
    ended = threading.Event()

    def go_on() -> None:
        number = 0
        while not ended.is_set():
            number += 1
            before = run.record.begin("scientist")
            (run.root / "outputs" / "b.json").write_text(str(number))
            run.event("end", number=number)
            run.record.end("scientist", before)
            run.update(sealed=run.record.head())

    here = Settings(runs_dir=tmp_path / "runs")
    worker = threading.Thread(target=go_on)
    run.hold()
    worker.start()
    made = 0
    try:
        for number in range(6):
            path = tmp_path / f"{number}.tar.gz"
            try:
                backup(here, path)
            except InputError as error:
                assert "run at-work changed" in str(error)
                assert "sage admin pause at-work" in str(error)
                assert not path.exists()
            else:
                made += 1
                there = Settings(runs_dir=tmp_path / f"restored-{number}")
                assert restore(there, path)["runs"] == 1
                (found,) = list_runs(there.runs_dir)
                found.verify(under_way=True)
    finally:
        ended.set()
        worker.join()
        run.release()
    backup(here, tmp_path / "quiet.tar.gz")
    assert (tmp_path / "quiet.tar.gz").stat().st_mode & 0o077 == 0  # its owner alone reads it
    assert restore(Settings(runs_dir=tmp_path / "quiet"), tmp_path / "quiet.tar.gz")["runs"] == 1


def test_an_archive_is_restored_by_a_python_without_filters_of_tar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debian 12's Python 3.11.2 has none."""
    extract = tarfile.TarFile.extract

    def as_before(
        self: tarfile.TarFile, member: str, path: str = "", set_attrs: bool = True
    ) -> None:
        extract(self, member, path, set_attrs)

    monkeypatch.setattr(tarfile.TarFile, "extract", as_before)
    write_run(tmp_path / "runs")
    backup(Settings(runs_dir=tmp_path / "runs"), tmp_path / "all.tar.gz")
    there = Settings(runs_dir=tmp_path / "restored")
    assert restore(there, tmp_path / "all.tar.gz")["runs"] == 1
    (found,) = list_runs(there.runs_dir)
    found.verify(under_way=True)


@pytest.mark.parametrize("held", [True, False])
def test_no_archive_is_left_of_a_run_that_could_not_be_restored(tmp_path: Path, held: bool) -> None:
    run = write_run(tmp_path / "runs")
    (run.root / "outputs" / "a.json").write_text("1")
    if held:
        run.hold()
    said = "changed while it was copied" if held else "is damaged"
    with pytest.raises(InputError, match=f"run at-work .*{said}"):
        backup(Settings(runs_dir=tmp_path / "runs"), tmp_path / "all.tar.gz")
    run.release()
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


def test_an_archive_with_a_run_that_was_damaged_restores_nothing(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs")
    files = {f"runs/{path.relative_to(tmp_path / 'runs').as_posix()}": path.read_bytes()
             for path in run.root.rglob("*") if path.is_file()}  # fmt: skip
    files["runs/at-work/outputs/a.json"] = b"1"
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    listed = {"format": 1, "sage": "", "at": "", "sha256": hashes}
    path = archive(tmp_path / "all.tar.gz", {**files, "contents.json": json.dumps(listed).encode()})
    with pytest.raises(InputError, match="was changed after the run wrote it"):
        restore(Settings(runs_dir=tmp_path / "home" / "runs"), path)
    assert not list((tmp_path / "home").iterdir())


EMPTY = b'{"format": 1, "sage": "", "at": "", "sha256": {}}'
NOTHING = hashlib.sha256(b"").hexdigest().encode()
CASES = {
    "no list": ({"runs/r/manifest.json": b"{}"}, "not an archive"),
    "a file that is not listed": ({"contents.json": EMPTY, "runs/x": b""}, "does not match"),
    "a changed file": (
        {"contents.json": EMPTY.replace(b"{}", b'{"runs/x": "00"}'), "runs/x": b""},
        "was changed",
    ),
    "a newer format": ({"contents.json": EMPTY.replace(b": 1", b": 9")}, "newer"),
    "a file beside the ledger": (
        {"contents.json": EMPTY.replace(b"{}", b'{"ledger/x": "%s"}' % NOTHING), "ledger/x": b""},
        "does not match",
    ),
    "a list within lists": ({"contents.json": b"[" * 200_000}, "not an archive"),
    "a way out": ({"contents.json": EMPTY, "../out": b""}, "not an archive"),
}


@pytest.mark.parametrize("name", CASES)
def test_an_archive_that_was_tampered_with_restores_nothing(name: str, tmp_path: Path) -> None:
    files, said = CASES[name]
    path = archive(tmp_path / "bad.tar.gz", files)
    home = tmp_path / "home"
    home.mkdir()
    ended = sage("hospital", "restore", str(path), cwd=home)
    assert ended.code == 2
    assert said in ended.err
    assert [item.name for item in tmp_path.rglob("*")] == ["bad.tar.gz", "home"] or not list(
        home.iterdir()
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("kind", "target"),
    [
        (tarfile.SYMTYPE, "../../secret"),  # below what is unpacked, and out of it once renamed
        (tarfile.LNKTYPE, "contents.json"),
        (tarfile.FIFOTYPE, ""),
        (tarfile.CHRTYPE, ""),
    ],
)
def test_links_and_devices_are_refused(kind: bytes, target: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        info = tarfile.TarInfo("contents.json")
        info.size = len(EMPTY)
        tar.addfile(info, io.BytesIO(EMPTY))
        link = tarfile.TarInfo("runs/r/report.html")
        link.type, link.linkname = kind, target
        tar.addfile(link)
    settings = Settings(runs_dir=tmp_path / "home" / "runs")
    with pytest.raises(InputError, match="neither a file nor a folder"):
        restore(settings, path)
    assert not list((tmp_path / "home").iterdir())


def test_files_larger_than_the_disk_are_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = archive(tmp_path / "bomb.tar.gz", {"runs/zeros": b"0" * 5_000_000})
    monkeypatch.setattr(shutil, "disk_usage", lambda place: SimpleNamespace(free=1_000_000))
    with pytest.raises(InputError, match="not enough free disk space"):
        restore(Settings(runs_dir=tmp_path / "home" / "runs"), path)


def test_an_archive_that_is_damaged_anywhere_is_refused_in_a_sentence(tmp_path: Path) -> None:
    path = archive(tmp_path / "good.tar.gz", {"runs/text": bytes(range(256)) * 400})
    content = path.read_bytes()
    for at in range(10, len(content), max(1, len(content) // 60)):
        bad = tmp_path / "bad.tar.gz"
        bad.write_bytes(content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :])
        with pytest.raises(InputError, match=r"not an archive|was changed|does not match"):
            restore(Settings(runs_dir=tmp_path / "home" / "runs"), bad)


def test_the_queue_of_a_restored_place_knows_its_own_folders(
    places: list[dict[str, str]], tmp_path: Path
) -> None:
    """Not those that were backed up, which may be there still and at work."""
    first, second = places
    url = {"checkpoint_url": place} if (place := first.get("SAGE_CHECKPOINT_URL")) else {}
    here = Settings.model_validate({"runs_dir": tmp_path / "runs", **url})
    run = write_run(tmp_path / "runs")
    outside = write_run(tmp_path / "apart").manifest()
    with open_runs(here, new=True) as runs:
        assert runs is not None
        runs.add(run.manifest(), "ann")
        runs.add(outside.model_copy(update={"run_id": "2"}), "ann")
    saved = sage("hospital", "backup", "all.tar.gz", cwd=tmp_path, **first)
    assert saved.code == 0, saved.err
    assert "not included: 1 run in the queue outside runs_dir" in saved.out
    second |= {"SAGE_RUNS_DIR": str(tmp_path / "restored")}
    assert sage("hospital", "restore", "all.tar.gz", cwd=tmp_path, **second).code == 0
    url = {"checkpoint_url": place} if (place := second.get("SAGE_CHECKPOINT_URL")) else {}
    there = Settings.model_validate({"runs_dir": tmp_path / "restored", **url})
    with open_runs(there) as runs:
        assert runs is not None
        known = runs.get("1")
        assert known is not None
        assert known.folder == str(tmp_path / "restored" / "at-work")
    # It is the run itself, and no copy that names a parent, though the first one is there.
    restored = RunFolder(tmp_path / "restored" / "at-work")
    restored.hold()
    assert restored.adopt().run_id == "1"
    restored.release()
    assert run.manifest().place == str(run.root)


KILLS = 25
"""Random ends of a backup, and of a restoration."""


def count_accesses(work: Callable[[], object]) -> int:
    """Count how often `work` reaches for disk or network, in a process of its own."""
    pipe, into = os.pipe()
    if not os.fork():
        seen: list[str] = []
        sys.addaudithook(lambda event, given: seen.append(event))
        work()
        os.write(into, str(len(seen)).encode())
        os._exit(0)
    os.wait()
    return int(os.read(pipe, 20))


def end_at(last: int, work: Callable[[], object]) -> int:
    """Return the exit code of a process that does `work` and ends at its given access."""
    child = os.fork()
    if not child:
        left = iter(range(last))
        sys.addaudithook(lambda event, given: next(left, None) is None and os._exit(9))
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_backup_and_restoration_killed_anywhere_can_be_repeated(
    places: list[dict[str, str]], tmp_path: Path
) -> None:
    first, second = (
        Settings.model_validate(
            {"runs_dir": tmp_path / "at" / name, "ledger": place["SAGE_LEDGER"],
             "checkpoint_url": place.get("SAGE_CHECKPOINT_URL")}
        )
        for name, place in zip(("one", "two"), places, strict=True)
    )  # fmt: skip
    run, archive, draw = write_run(first.runs_dir), tmp_path / "all.tar.gz", random.Random(41)
    Ledger(None, open_store(first.ledger.place)).next_place()
    with open_runs(first, new=True) as runs:
        assert runs is not None
        runs.add(run.manifest(), "ann")

    def check() -> None:
        (restored,) = list_runs(second.runs_dir)
        restored.verify()
        with open_runs(second) as runs:
            assert runs is not None and (known := runs.get("1")) is not None
            assert known.folder == str(restored.root)
        assert not list((tmp_path / "at").glob(".restore*"))

    def kill(work: Callable[[], object], made: Path, undo: Callable[[], object]) -> set[int]:
        work()  # so that nothing is left to import, and the accesses are those of the work
        undo()
        accesses, ends = count_accesses(work), set()
        undo()
        for last in draw.choices(range(1, accesses), k=KILLS):
            ends.add(end_at(last, work))
            if made.exists():
                undo()
        return ends

    def try_archive() -> None:
        """Use what is there: a killed backup leaves a whole archive or none."""
        with tarfile.open(archive) as tar:
            assert "contents.json" in tar.getnames()
        archive.unlink()

    assert kill(lambda: backup(first, archive), archive, try_archive) <= {0, 9}
    backup(first, archive)
    assert [path.name for path in tmp_path.iterdir() if ".gz" in path.name] == [archive.name]

    def try_restored() -> None:
        with pytest.raises(InputError, match="not empty"):
            restore(second, archive)
        check()
        shutil.rmtree(second.runs_dir)

    ends = kill(lambda: restore(second, archive), second.runs_dir, try_restored)
    assert ends <= {0, 9} and 9 in ends
    restore(second, archive)
    check()
