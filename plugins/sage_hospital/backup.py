"""Backup of runs and their databases to a consistent archive, and restoration.

The databases are copied first, in one snapshot, then the folders. If a run continues
meanwhile, its copied checkpoints do not include its newest files, as after a kill, and it
resumes from them. Each folder is archived once its copy agrees with the run's record.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import sqlite3
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any

from sage.core import clock
from sage.core.errors import FaultError, InputError
from sage.core.files import replacing
from sage.core.hashes import hash_file
from sage.core.versions import own_version
from sage.run.campaign.rounds import runs_and_rounds
from sage.run.folder import RunFolder, find_holder
from sage_hospital.database import FILE as QUEUE
from sage_hospital.postgres import reason_of
from sage_hospital.runs import open_runs

if TYPE_CHECKING:
    from psycopg import Connection

    from sage.settings import Settings

FORMAT = 1
CONTENTS = "contents.json"
TABLES = (
    "sage_runs", "sage_promises", "sage_audit", "sage_campaigns", "sage_findings", "sage_reviews",
    "checkpoint_migrations", "checkpoints", "checkpoint_blobs",
    "checkpoint_writes", "sage_ledger", "sage_ledger_tokens", "sage_ledger_meta",
)  # fmt: skip
"""All SAGE tables in a PostgreSQL database."""
LEDGER = ("ledger.sqlite", "ledger.sqlite.head")
LEFT_OUT = ("run.lock", "pause")
SQLITE = (".sqlite",)
BESIDE = ("-wal", "-shm", "-journal")
TRIES = 3
"""Number of attempts to copy a run in progress, since a new step can spoil a copy."""


def backup(settings: Settings, archive: Path) -> dict[str, int]:
    """Write the runs, their checkpoints, the queue, and the ledger to a single archive.

    Returns
    -------
    Numbers of archived files, runs, and table rows, and of queued runs on other machines,
    which are not archived.

    Raises
    ------
    InputError
        If the archive exists or would be among the runs, or if a run's copy does not agree
        with its record because it changes too fast or is damaged. In these cases, no archive
        is left.
    FaultError
        If a database cannot be read.
    """
    runs = settings.runs_dir.resolve()
    if archive.exists():
        raise InputError(f"{archive} already exists; choose another file")
    if archive.resolve().is_relative_to(runs):
        raise InputError(f"{archive} is inside runs_dir; choose another folder")
    for left in archive.parent.glob(f".{archive.stem[:40]}.*.part{archive.suffix}"):
        left.unlink()  # of a backup that was killed
    hashes: dict[str, str] = {}
    rows = 0
    with tempfile.TemporaryDirectory() as folder, replacing(archive) as part:
        place = Path(folder)
        part.touch(mode=0o600)  # it holds the runs of several people
        with tarfile.open(part, "w:gz", compresslevel=3) as tar:
            for kind, url in _servers(settings).items():
                for table, path, count in _dump(url, place / kind):
                    rows += count
                    _add(tar, path, f"postgres/{kind}/{table}.copy", hashes)
            ledger = Path(settings.ledger.place)
            if "://" not in settings.ledger.place and ledger.is_file():
                _add(
                    tar,
                    _copy_sqlite(ledger, place / "ledger.sqlite"),
                    "ledger/ledger.sqlite",
                    hashes,
                )
                head = ledger.with_name(f"{ledger.name}.head")
                if head.is_file():
                    _add(tar, head, "ledger/ledger.sqlite.head", hashes)
            known = {run.root: run for run in runs_and_rounds(runs)}
            known = {root: run for root, run in known.items() if root.is_relative_to(runs)}
            for run in known.values():
                name = f"runs/{run.root.relative_to(runs).as_posix()}"
                copy = _copy_run(run, place / "run")
                for path in _files(copy):
                    _add(tar, path, f"{name}/{path.relative_to(copy).as_posix()}", hashes)
                shutil.rmtree(copy)
            for path in _files(runs):
                if known.keys().isdisjoint(path.parents):
                    copied = _copy(path, place / "file")
                    _add(tar, copied, f"runs/{path.relative_to(runs).as_posix()}", hashes)
            contents = json.dumps(
                {"format": FORMAT, "sage": own_version(), "at": clock.stamp(), "sha256": hashes},
                indent=1, sort_keys=True,
            ).encode()  # fmt: skip
            info = tarfile.TarInfo(CONTENTS)
            info.size = len(contents)
            tar.addfile(info, io.BytesIO(contents))
    with open_runs(settings) as queue:
        queued = queue.folders() if queue is not None else []
    elsewhere = sum(Path(folder).resolve() not in known for folder in queued)
    return {"files": len(hashes), "runs": len(known), "rows": rows, "elsewhere": elsewhere}


def restore(settings: Settings, archive: Path) -> dict[str, int]:
    """Restore an archive's runs, checkpoints, queue, and ledger to the paths in the settings.

    Every file is compared with the archive's list before anything is moved into place. A
    restore that was killed can be repeated: rows are loaded in a single transaction that also
    records the archive, files are moved by renaming, the runs last, and a file that is
    already in place is compared.

    Raises
    ------
    InputError
        If the file is not a SAGE archive or is damaged, or if a destination already exists;
        in these cases, nothing is restored.
    FaultError
        If the database refuses the operation.
    """
    runs, servers = settings.runs_dir.resolve(), _servers(settings)
    ledger = Path(settings.ledger.place)
    unpacked = f".restore-{runs.name}-"
    for left in runs.parent.glob(f"{unpacked}*"):  # of a restoration that was killed
        shutil.rmtree(left)
    if runs.is_dir() and any(runs.iterdir()):
        raise InputError(f"{runs} is not empty; restore into an empty runs_dir")
    runs.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=runs.parent, prefix=unpacked) as folder:
        place = Path(folder)
        hashes = _unpack(archive, place)
        kinds = {PurePosixPath(name).parts[1] for name in hashes if name.startswith("postgres/")}
        for kind in sorted(kinds):
            if kind not in servers:
                setting = "ledger.url" if kind == "ledger" else "checkpoint_url"
                raise InputError(
                    f"{archive} contains PostgreSQL tables; set {setting} to restore them"
                )
        if (place / "ledger").is_dir():
            if "://" in settings.ledger.place:
                raise InputError(
                    f"{archive} contains a ledger file; set SAGE_LEDGER to a path, then merge "
                    "the ledger with `sage validate ledger merge`"
                )
            for name in LEDGER:
                there = ledger.with_name(ledger.name + name.removeprefix(LEDGER[0]))
                if there.exists() and hash_file(there) != hashes.get(f"ledger/{name}"):
                    raise InputError(f"{there} already exists; set SAGE_LEDGER to another file")
        folders = {}
        for run in runs_and_rounds(place / "runs"):
            run.verify(under_way=True)
            home = str(runs / run.root.relative_to(place / "runs"))
            if identity := run.manifest().run_id:
                run.update(place=home)
                folders[identity] = home
        if (queue := place / "runs" / f".{QUEUE}").is_file():
            with closing(sqlite3.connect(queue)) as live, live:
                for run_id, home in folders.items():
                    live.execute("UPDATE sage_runs SET folder = ? WHERE id = ?", [home, run_id])
        digest = hash_file(place / CONTENTS)
        rows = sum(
            _load(servers[kind], place / "postgres" / kind, folders, f"{kind} {digest}")
            for kind in sorted(kinds)
        )
        if (place / "ledger").is_dir():
            ledger.parent.mkdir(parents=True, exist_ok=True)
            for name in LEDGER:
                if (place / "ledger" / name).is_file():
                    there = ledger.with_name(ledger.name + name.removeprefix(LEDGER[0]))
                    with replacing(there) as part:
                        shutil.copyfile(place / "ledger" / name, part)
        if (place / "runs").is_dir():
            if runs.is_dir():
                runs.rmdir()
            (place / "runs").rename(runs)
    return {"files": len(hashes), "runs": len(runs_and_rounds(runs)), "rows": rows}


def _servers(settings: Settings) -> dict[str, str]:
    """List the URLs of the PostgreSQL databases used by the runs and, if different, the ledger."""
    found = {}
    if settings.checkpoint_url is not None:
        found["runs"] = settings.checkpoint_url.get_secret_value()
    place = settings.ledger.place
    if place.startswith(("postgresql://", "postgres://")) and place not in found.values():
        found["ledger"] = place
    return found


def _copy_run(run: RunFolder, to: Path) -> Path:
    """Copy a run, even if it is in progress, so that the copy agrees with its record.

    Checkpoints, manifest and record are copied first. A step that ends while the other files
    are copied is then still in progress in the copy, as after a kill.

    Raises
    ------
    InputError
        If no copy agrees.
    """
    first = ["checkpoints.sqlite", "manifest.json", "integrity.jsonl"]
    at_work, problem = False, ""
    for _ in range(TRIES):
        shutil.rmtree(to, ignore_errors=True)
        try:
            for path in [run.root / name for name in first if (run.root / name).is_file()]:
                _copy(path, to / path.name)
            for path in _files(run.root):
                if path.parent != run.root or path.name not in first:
                    with suppress(FileNotFoundError):
                        _copy(path, to / path.relative_to(run.root))
            RunFolder(to).verify(under_way=True)
        except InputError as error:
            at_work, problem = (
                at_work or bool(find_holder(run)),
                str(error).replace(str(to), str(run.root)),
            )
        else:
            return to
    if at_work:
        raise InputError(
            f"run {run.id} changed while it was copied, so no archive was written. Pause it "
            f"(`sage admin pause {run.id}`), then run the backup again"
        )
    raise InputError(
        f"run {run.id} is damaged, so no archive was written: {problem}. Repair it, or move it "
        f"out of {run.root.parent}"
    )


def _copy(path: Path, to: Path) -> Path:
    to.parent.mkdir(parents=True, exist_ok=True)
    return _copy_sqlite(path, to) if path.suffix in SQLITE else Path(shutil.copyfile(path, to))


def _files(folder: Path) -> Iterator[Path]:
    """Yield the files in a folder that belong in a backup."""
    for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
        if path.is_file() and not path.is_symlink() and not _left_out(path):
            yield path


def _left_out(path: Path) -> bool:
    hidden = path.name.startswith(".") and (".part" in path.name or path.name.endswith(".lock"))
    return path.name in LEFT_OUT or hidden or path.name.endswith(BESIDE)


def _add(tar: tarfile.TarFile, path: Path, name: str, hashes: dict[str, str]) -> None:
    """Add a file at its current size; a journal may grow while it is read."""
    with path.open("rb") as stream:
        info = tar.gettarinfo(arcname=name, fileobj=stream)
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        digest = hashlib.sha256()
        tar.addfile(info, _Hashing(stream, digest))  # type: ignore[arg-type]
    hashes[name] = digest.hexdigest()


class _Hashing:
    """Stream that hashes the data read from it."""

    def __init__(self, stream: IO[bytes], digest: Any) -> None:
        self.stream, self.digest = stream, digest

    def read(self, size: int) -> bytes:
        """Read and hash the next bytes."""
        found = self.stream.read(size)
        self.digest.update(found)
        return found


def _copy_sqlite(path: Path, to: Path) -> Path:
    """Copy an SQLite file in a consistent state, even while others write to it."""
    to.unlink(missing_ok=True)
    try:
        with (
            closing(sqlite3.connect(path, timeout=60)) as source,
            closing(sqlite3.connect(to)) as target,
        ):
            source.backup(target)
    except sqlite3.Error as error:
        raise FaultError(f"{path} cannot be read: {error}") from None
    return to


@contextmanager
def _connect(url: str) -> Iterator[Connection[Any]]:
    import psycopg

    try:
        with psycopg.connect(url, connect_timeout=10) as live:
            yield live
    except psycopg.Error as error:
        raise FaultError(f"the database refused the request: {reason_of(error)}") from None


def _list_tables(live: Connection[Any]) -> list[str]:
    return [
        table
        for table in TABLES
        if (live.execute("SELECT to_regclass(%s)", [table]).fetchone() or (None,))[0] is not None
    ]


def _dump(url: str, place: Path) -> Iterator[tuple[str, Path, int]]:
    """Dump each existing table to a file from one snapshot; yield its name, file, and row count."""
    from psycopg import IsolationLevel, sql

    place.mkdir()
    with _connect(url) as live:
        live.isolation_level = IsolationLevel.REPEATABLE_READ
        for table in _list_tables(live):
            path = place / table
            columns = sql.SQL(", ").join(map(sql.Identifier, _columns(live, table)))
            statement = sql.SQL("COPY {} ({}) TO STDOUT").format(sql.Identifier(table), columns)
            with path.open("wb") as stream, live.cursor() as cursor:
                stream.write(",".join(_columns(live, table)).encode() + b"\n")
                with cursor.copy(statement) as copy:
                    for block in copy:
                        stream.write(block)
                count = max(0, cursor.rowcount)
            yield table, path, count


def _columns(live: Connection[Any], table: str) -> list[str]:
    text = (
        "SELECT column_name FROM information_schema.columns WHERE table_name = %s"
        " AND table_schema = current_schema() ORDER BY ordinal_position"
    )
    return [row[0] for row in live.execute(text, [table]).fetchall()]


def _load(url: str, place: Path, folders: dict[str, str], archive: str) -> int:
    """Load all tables from files in one transaction, creating those that do not exist.

    `folders` maps each run's identity to its new folder. `archive` is recorded, so that rows
    already loaded from an archive are not loaded again.
    """
    from psycopg import sql

    from sage_hospital.audit import TABLES as AUDIT
    from sage_hospital.notebook import TABLES as CAMPAIGNS
    from sage_hospital.promises import TABLES as PROMISES
    from sage_hospital.reviews import TABLES as REVIEWS
    from sage_hospital.runs import TABLES as RUNS
    from validation.ledger.store import TABLES as LEDGER

    rows = 0
    with _connect(url) as live:
        live.autocommit = True
        if (place / "checkpoints.copy").is_file():
            from langgraph.checkpoint.postgres import PostgresSaver

            PostgresSaver(live).setup()
        live.autocommit = False
        made = (AUDIT, RUNS, PROMISES, CAMPAIGNS, REVIEWS, LEDGER.format(bytes="BYTEA"))
        for statement in ";".join(made).split(";"):
            live.execute(statement.encode())
        live.execute("CREATE TABLE IF NOT EXISTS sage_restored (archive TEXT PRIMARY KEY)")
        noted = "INSERT INTO sage_restored VALUES (%s) ON CONFLICT DO NOTHING"
        again = live.execute(noted, [archive]).rowcount == 0
        for table in TABLES:
            path = place / f"{table}.copy"
            if not path.is_file():
                continue
            if again:
                rows += sum(1 for _ in path.open("rb")) - 1
                continue
            name = sql.Identifier(table)
            if table == "checkpoint_migrations":
                live.execute(sql.SQL("DELETE FROM {}").format(name))
            if live.execute(sql.SQL("SELECT 1 FROM {} LIMIT 1").format(name)).fetchone():
                raise InputError(
                    f"table {table} in the database is not empty; restore into an empty database"
                )
            with path.open("rb") as stream, live.cursor() as cursor:
                named = stream.readline().decode().strip().split(",")
                columns = sql.SQL(", ").join(map(sql.Identifier, named))
                load = sql.SQL("COPY {} ({}) FROM STDIN").format(name, columns)
                with cursor.copy(load) as copy:
                    while block := stream.read(1 << 16):
                        copy.write(block)
                rows += max(0, cursor.rowcount)
        for run, folder in folders.items():
            live.execute("UPDATE sage_runs SET folder = %s WHERE id = %s", [folder, run])
    return rows


def _extract(tar: tarfile.TarFile, member: tarfile.TarInfo, place: Path) -> None:
    """Extract a file or folder below `place`, like Python's "data" filter after 3.11.2."""
    name = PurePosixPath(member.name)
    if name.is_absolute() or ".." in name.parts:
        raise tarfile.TarError(f"{member.name[:200]!r} is outside the archive's folder")
    target = place / name
    if member.isdir():
        target.mkdir(parents=True, exist_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    source = tar.extractfile(member)
    assert source is not None  # it is a file
    with target.open("wb") as out:
        shutil.copyfileobj(source, out)
    target.chmod(member.mode & 0o755 | 0o600)


def _unpack(archive: Path, place: Path) -> dict[str, str]:
    """Unpack an archive below `place`, verify it against its list, and return hashes by name."""
    if not archive.is_file():
        raise InputError(f"{archive} does not exist")
    room = shutil.disk_usage(place).free
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                if not (member.isreg() or member.isdir()) or member.issparse():
                    raise tarfile.TarError(f"{member.name[:200]!r} is neither a file nor a folder")
                room -= member.size
                if room < 0:
                    raise InputError(f"{archive}: not enough free disk space to unpack it")
                if (place / member.name).exists() and not member.isdir():
                    raise tarfile.TarError(f"{member.name[:200]!r} is duplicated")
                _extract(tar, member, place)
    except InputError:
        raise
    except (tarfile.TarError, OSError, EOFError, ValueError, zlib.error) as error:
        raise InputError(
            f"{archive} is not an archive created by `sage hospital backup`: {error}"
        ) from None
    try:
        contents = json.loads((place / CONTENTS).read_text(encoding="utf-8"))
        hashes: dict[str, str] = dict(contents["sha256"])
        form = int(contents["format"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise InputError(
            f"{archive} is not an archive created by `sage hospital backup`, or is truncated"
        ) from None
    if form > FORMAT:
        raise InputError(f"{archive} was written by a newer SAGE version; upgrade first")
    found = {
        path.relative_to(place).as_posix(): path
        for path in place.rglob("*")
        if path.is_file() and path.name != CONTENTS
    }
    ledgers = {f"ledger/{name}" for name in LEDGER}
    strange = {name for name in found if name.startswith("ledger/")} - ledgers
    if strange or set(found) != set(hashes):
        odd = min(strange or set(found) ^ set(hashes))
        raise InputError(f"{archive} does not match its file list: {odd}")
    for name, path in found.items():
        with path.open("rb") as stream:
            if hashlib.file_digest(stream, "sha256").hexdigest() != hashes[name]:
                raise InputError(f"{archive}: {name} was changed after the backup")
    return hashes
