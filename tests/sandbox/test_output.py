"""Taking results out: hostile folders and tar streams leave nothing but plain files."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sage.core.errors import InputError
from sandbox.logs import TAIL_BYTES, Log
from sandbox.output import MAX_FILES, Collected, from_folder, from_tar, require_empty
from sandbox.types import Limits, Reason
from sandbox.verdict import Ending, judge


def tar(*members: tuple[str, bytes, bytes | None, str]) -> bytes:
    """(name, type, content, link name) as a tar stream."""
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as archive:
        for name, kind, content, link in members:
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.mode = kind, link, 0o6777
            info.size = len(content or b"")
            archive.addfile(info, io.BytesIO(content or b""))
    return sink.getvalue()


FILE, LINK, HARD, DIR, PIPE = (
    tarfile.REGTYPE,
    tarfile.SYMTYPE,
    tarfile.LNKTYPE,
    tarfile.DIRTYPE,
    tarfile.FIFOTYPE,
)


def taken(data: bytes, out: Path, limit_mb: int = 4, chunk: int = 700) -> Collected:
    pieces = (data[at : at + chunk] for at in range(0, len(data), chunk))
    return from_tar(pieces, out, limit_mb, "output")


def test_plain_files_arrive_with_their_hash(tmp_path: Path) -> None:
    data = tar(("output/", DIR, None, ""), ("output/a/b.txt", FILE, b"hello", ""))
    found = taken(data, tmp_path / "out")
    assert [(artifact.path, artifact.bytes) for artifact in found.artifacts] == [("a/b.txt", 5)]
    assert (tmp_path / "out/a/b.txt").read_bytes() == b"hello"
    assert (tmp_path / "out/a/b.txt").stat().st_mode & 0o7777 == 0o644


@pytest.mark.parametrize(
    "member",
    [
        ("output/../../evil", FILE, b"x", ""),
        ("/etc/evil", FILE, b"x", ""),
        ("other/evil", FILE, b"x", ""),
        ("output/link", LINK, None, "/etc/passwd"),
        ("output/hard", HARD, None, "output/a"),
        ("output/pipe", PIPE, None, ""),
        ("output/" + "n" * 200, FILE, b"x", ""),
        ("output/a\nb", FILE, b"x", ""),
        ("output/-rf", FILE, b"x", ""),
        ("output/.ssh", FILE, b"x", ""),
        ("output", FILE, b"x", ""),
        ("output/" + "d/" * 30 + "f", FILE, b"x", ""),
        ("output/big", FILE, b"x" * (5 << 20), ""),
    ],
    ids=lambda item: repr(item[0])[:40] if isinstance(item, tuple) else "",
)
def test_what_is_not_a_plain_file_stays_behind_and_is_listed(
    member: tuple[str, bytes, bytes | None, str], tmp_path: Path
) -> None:
    before = sorted(tmp_path.parent.iterdir())
    found = taken(tar(member, ("output/good", FILE, b"ok", "")), tmp_path / "out", chunk=1 << 16)
    assert found.dropped and all("\n" not in line and len(line) < 200 for line in found.dropped)
    assert [artifact.path for artifact in found.artifacts] in (["good"], [])
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert sorted(tmp_path.parent.iterdir()) == before


def test_a_link_is_never_written_through(tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    data = tar(("output/d", LINK, None, str(tmp_path / "victim")), ("output/d/f", FILE, b"x", ""))
    taken(data, tmp_path / "out")
    assert list((tmp_path / "victim").iterdir()) == []


def test_a_name_that_is_file_and_folder_at_once_does_no_harm(tmp_path: Path) -> None:
    data = tar(("output/a", FILE, b"1", ""), ("output/a/b", FILE, b"2", ""))
    found = taken(data, tmp_path / "out")
    assert [artifact.path for artifact in found.artifacts] == ["a"] and found.dropped


def test_an_endless_stream_ends_at_the_limit(tmp_path: Path) -> None:
    info = tarfile.TarInfo("output/zeros")
    info.size = 1 << 40

    def endless() -> object:
        yield info.tobuf()
        while True:
            yield b"\0" * (1 << 20)

    found = from_tar(endless(), tmp_path / "out", 4, "output")  # type: ignore[arg-type]
    assert found.over and found.artifacts == []


def test_a_flood_of_files_is_not_read_to_its_end(tmp_path: Path) -> None:
    read = 0

    def many() -> Iterator[bytes]:
        nonlocal read
        for number in range(100_000):
            info = tarfile.TarInfo(f"output/f{number}")
            read += 1
            yield info.tobuf()

    found = from_tar(many(), tmp_path / "out", 4, "output")
    assert len(found.artifacts) == MAX_FILES and read < 3 * MAX_FILES


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=3000))
def test_any_bytes_are_taken_without_an_exception(data: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        taken(data, Path(folder) / "out")
        assert [path.name for path in Path(folder).iterdir()] == ["out"]


def test_a_folder_gives_up_only_plain_files(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "good.json").write_text("{}")
    (source / "link").symlink_to("/etc/passwd")
    (source / "dirlink").symlink_to("/etc")
    os.mkfifo(source / "pipe")
    (source / "twice").write_text("x")
    (source / "again").hardlink_to(source / "twice")
    descriptor = os.open(source, os.O_RDONLY)
    found = from_folder(descriptor, tmp_path / "out", 4)
    os.close(descriptor)
    assert [artifact.path for artifact in found.artifacts] == ["deep/good.json"]
    assert len(found.dropped) == 5


def test_an_output_folder_that_holds_something_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    with pytest.raises(InputError, match="not empty"):
        require_empty(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(InputError, match="not a folder"):
        require_empty(tmp_path / "link")


def test_a_log_keeps_the_end_and_stops_at_the_limit() -> None:
    calls: list[int] = []
    log = Log(64, lambda: calls.append(1))
    for number in range(200):
        log.add("stdout", f"line {number:04}\n".encode() * 64)
    assert log.over and calls == [1]
    assert len(log.tail("stdout")) <= TAIL_BYTES
    assert log.tail("stdout").endswith("line 0199\n")


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (Ending(exit_code=0), Reason.OK),
        (Ending(exit_code=1), Reason.ERROR),
        (Ending(exit_code=None), Reason.KILLED),
        (Ending(exit_code=-11), Reason.KILLED),
        (Ending(exit_code=137, memory_kills=1), Reason.MEMORY),
        (Ending(exit_code=0, memory_kills=1), Reason.MEMORY),
        (Ending(exit_code=0, refused_processes=1), Reason.PROCESSES),
        (Ending(exit_code=0, timed_out=True, memory_kills=1), Reason.TIMEOUT),
        (Ending(exit_code=None, timed_out=True), Reason.TIMEOUT),
        (Ending(exit_code=None, timed_out=True, log_over=True), Reason.OUTPUT_LIMIT),
        (Ending(exit_code=0, output_over=True), Reason.OUTPUT_LIMIT),
    ],
)
def test_an_ending_is_named_by_what_was_measured(end: Ending, reason: Reason) -> None:
    assert judge(end, Limits())[0] is reason


def test_a_log_shows_no_control_characters_and_no_marks_that_turn_or_hide_text() -> None:
    log = Log(64, lambda: None)
    log.add("stderr", b"\x1b[31mred\x07\xff\x9b\n\tok")
    assert log.tail("stderr") == "[31mred\ufffd\ufffd\n\tok"
    hidden = "\u202e\u2066\u200f\u200b\u2028\u2029\ufeff\u061c\u00ad\U000e0041\ue000\r\x7f"
    log.add("stdout", "".join(f"a{mark}" for mark in hidden).encode() + "é漢🙂".encode())
    assert log.tail("stdout") == "a" * len(hidden) + "é漢🙂"
