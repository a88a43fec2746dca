"""Files are whole or not there: errors, kills, full disks, two writers."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import sage.core.files as files
from sage.core.files import append_line, replacing, write_bytes, write_text, writing

HOUSE = Path(files.__file__).parents[2]


def named_from_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a file system that knows no file without a name."""
    monkeypatch.delattr(os, "O_TMPFILE")


@pytest.fixture(params=["unnamed", "named"])
def _both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "named":
        named_from_the_start(monkeypatch)


@pytest.mark.usefixtures("_both_ways")
def test_an_error_leaves_the_former_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "new" / "results.json"
    write_text(path, "before")
    with pytest.raises(KeyError), writing(path) as stream:
        stream.write(b"x" * (3 << 20))
        raise KeyError
    assert path.read_text() == "before" and names(path.parent) == ["results.json"]
    write_bytes(path, b"after")
    assert path.read_bytes() == b"after" and names(path.parent) == ["results.json"]
    assert path.stat().st_mode & 0o777 == 0o666 & ~_umask()


def names(folder: Path) -> list[str]:
    """What lies in a folder, hidden files too."""
    return sorted(path.name for path in folder.iterdir())


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


KILLED = """
import os, sys, time
from pathlib import Path
from sage.core.files import writing
with writing(Path(sys.argv[1])) as stream:
    stream.write(b"half" * 1_000_000)
    stream.flush()
    print("writing", flush=True)
    time.sleep(60)
"""


def test_a_kill_during_a_write_leaves_the_former_file_and_no_part(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    write_text(path, "before")
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(HOUSE)},
    )  # fmt: skip
    assert process.stdout is not None and process.stdout.readline() == b"writing\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert path.read_text() == "before"
    assert names(tmp_path) == ["results.json"]


@pytest.mark.usefixtures("_both_ways")
@pytest.mark.parametrize("step", ["write", "fsync", "replace"])
def test_a_full_disk_names_the_file_and_leaves_the_former_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "table.csv"
    write_text(path, "before")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(OSError, match="No space") as raised, monkeypatch.context() as patched:
        if step != "write":
            patched.setattr(os, step, full)
        with writing(path) as stream:
            if step == "write":
                full()
            stream.write(b"x")
    assert raised.value.filename == str(path)
    assert path.read_text() == "before" and names(tmp_path) == ["table.csv"]


@pytest.mark.usefixtures("_both_ways")
def test_two_writers_never_mix(tmp_path: Path) -> None:
    path = tmp_path / "shared.bin"
    contents = [bytes([letter]) * 300_000 for letter in b"abcdef"]
    write_bytes(path, contents[0])
    seen, stop = set(), threading.Event()

    def read() -> None:
        while not stop.is_set():
            seen.add(path.read_bytes())

    reader = threading.Thread(target=read)
    reader.start()
    writers = [
        threading.Thread(target=lambda text=text: [write_bytes(path, text) for _ in range(10)])
        for text in contents
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    stop.set()
    reader.join()
    assert seen <= set(contents) and path.read_bytes() in contents
    assert names(tmp_path) == ["shared.bin"]


def test_the_content_is_on_the_disk_before_the_name_and_the_name_before_the_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    fsync, replace = os.fsync, os.replace

    def synced(descriptor: int) -> None:
        steps.append("folder" if Path(f"/proc/self/fd/{descriptor}").is_dir() else "content")
        fsync(descriptor)

    def replaced(*given: object, **options: object) -> None:
        steps.append("name")
        replace(*given, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    write_text(tmp_path / "a", "x")
    assert steps == ["content", "name", "folder"]
    steps.clear()
    write_text(tmp_path / "a", "x", durable=False)
    assert steps == ["name"]
    steps.clear()
    append_line(tmp_path / "log", "x", durable=True)
    assert steps == ["content"]


def test_a_library_that_insists_on_a_path_gets_one_with_the_suffix(tmp_path: Path) -> None:
    path = tmp_path / "slide.tiff"
    path.write_text("before")
    with pytest.raises(KeyError), replacing(path, "job7") as temporary:
        assert temporary.suffix == ".tiff" and ".job7-" in temporary.name
        temporary.write_text("half")
        raise KeyError
    assert path.read_text() == "before" and names(tmp_path) == ["slide.tiff"]
    with replacing(path) as temporary:
        temporary.write_text("whole")
    assert path.read_text() == "whole" and names(tmp_path) == ["slide.tiff"]


@pytest.mark.parametrize("name", ["x" * 250, "日" * 80 + ".json", ".hidden"])
def test_any_name_that_the_disk_takes(tmp_path: Path, name: str) -> None:
    write_text(tmp_path / name, "x")
    with replacing(tmp_path / name) as temporary:
        temporary.write_text("y")
    assert names(tmp_path) == [name]


def test_lines_of_many_writers_stay_whole(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    threads = [
        threading.Thread(target=lambda who=who: [append_line(path, who * 2000) for _ in range(50)])
        for who in "abcd"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = path.read_text().splitlines()
    assert len(lines) == 200 and all(set(line) == {line[0]} for line in lines)
