"""Runs and databases into one archive and back, with files alone and with PostgreSQL."""

from __future__ import annotations

import hashlib
import io
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from sage.control.backup import restore
from sage.core.errors import InputError
from sage.settings import Settings
from tests.end_to_end.harness import PROMPT, sage
from tests.postgres import NEEDED, server


@pytest.fixture(params=["files", pytest.param("postgres", marks=NEEDED)])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[dict[str, str]]]:
    """Variables of the place that is backed up, and of the one that it is restored to."""
    if request.param == "files":
        yield [{"SAGE_LEDGER": str(tmp_path / name / "l.sqlite")} for name in ("one", "two")]
        return
    from psycopg import connect

    with server() as url:
        with connect(url, autocommit=True) as live:
            live.execute("CREATE DATABASE second")
        urls = [url, url.replace("/postgres", "/second")]
        yield [{"SAGE_CHECKPOINT_URL": place, "SAGE_LEDGER": place} for place in urls]


def test_a_run_that_waits_goes_on_where_it_was_restored(
    places: list[dict[str, str]], tmp_path: Path
) -> None:
    first, second = places
    begun = sage("run", PROMPT, "--queue", "--json", cwd=tmp_path, **first)
    assert begun.code == 0, begun.err
    assert sage("worker", "--drain", cwd=tmp_path, **first).code == 0
    saved = sage("backup", "all.tar.gz", "--json", cwd=tmp_path, **first)
    assert saved.code == 0, saved.err
    assert saved.json["runs"] == 1
    shutil.rmtree(tmp_path / "runs")
    elsewhere = tmp_path / "restored"
    second |= {"SAGE_RUNS_DIR": str(elsewhere)}
    restored = sage("restore", "all.tar.gz", "--json", cwd=tmp_path, **second)
    assert restored.code == 0, restored.err
    again = sage("restore", "all.tar.gz", cwd=tmp_path, **second)
    assert again.code == 2
    assert "empty" in again.err
    (item,) = sage("runs", "--json", cwd=tmp_path, **second).json
    assert item["status"] == item["queue"]["state"] == "waiting for review"
    ended = sage("review", "last", "--reject", "no", "--json", cwd=tmp_path, **second)
    assert ended.code == 0, ended.err
    assert ended.json["status"] == "finished"


def archive(path: Path, files: dict[str, bytes]) -> Path:
    """A tar file of these files."""
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


EMPTY = b'{"format": 1, "sage": "", "at": "", "sha256": {}}'
NOTHING = hashlib.sha256(b"").hexdigest().encode()
CASES = {
    "no list": ({"runs/r/manifest.json": b"{}"}, "no archive"),
    "a file that is not listed": ({"contents.json": EMPTY, "runs/x": b""}, "does not fit"),
    "a changed file": (
        {"contents.json": EMPTY.replace(b"{}", b'{"runs/x": "00"}'), "runs/x": b""},
        "was changed",
    ),
    "a newer format": ({"contents.json": EMPTY.replace(b": 1", b": 9")}, "newer"),
    "a file beside the ledger": (
        {"contents.json": EMPTY.replace(b"{}", b'{"ledger/x": "%s"}' % NOTHING), "ledger/x": b""},
        "does not fit",
    ),
    "a list within lists": ({"contents.json": b"[" * 200_000}, "no archive"),
    "a way out": ({"contents.json": EMPTY, "../out": b""}, "no archive"),
}


@pytest.mark.parametrize("name", CASES)
def test_an_archive_that_was_tampered_with_restores_nothing(name: str, tmp_path: Path) -> None:
    files, said = CASES[name]
    path = archive(tmp_path / "bad.tar.gz", files)
    home = tmp_path / "home"
    home.mkdir()
    ended = sage("restore", str(path), cwd=home)
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
    with pytest.raises(InputError, match="neither file nor folder"):
        restore(settings, path)
    assert not list((tmp_path / "home").iterdir())


def test_files_larger_than_the_disk_are_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = archive(tmp_path / "bomb.tar.gz", {"runs/zeros": b"0" * 5_000_000})
    monkeypatch.setattr(shutil, "disk_usage", lambda place: SimpleNamespace(free=1_000_000))
    with pytest.raises(InputError, match="larger than what is free"):
        restore(Settings(runs_dir=tmp_path / "home" / "runs"), path)


def test_an_archive_that_is_damaged_anywhere_is_refused_in_a_sentence(tmp_path: Path) -> None:
    path = archive(tmp_path / "good.tar.gz", {"runs/text": bytes(range(256)) * 400})
    content = path.read_bytes()
    for at in range(10, len(content), max(1, len(content) // 60)):
        bad = tmp_path / "bad.tar.gz"
        bad.write_bytes(content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :])
        with pytest.raises(InputError, match=r"no archive|was changed|does not fit"):
            restore(Settings(runs_dir=tmp_path / "home" / "runs"), bad)
