"""The store behind the ledgers: registrations, attempts, screens and unlocks, by patients.

A store is an append-only table of rows, each hashed together with the previous row, in a
user's SQLite file or in a PostgreSQL database that an institution shares. Equal content
is stored once. A file `NAME.head` next to an SQLite file records the last row, which
reveals whether a store was deleted or emptied.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import secrets
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from pydantic import ValidationError

from sage.core import clock
from sage.core.errors import FaultError, InputError
from sage.core.extras import require_extra
from sage.core.files import write_text
from sage.core.hashes import hash_text
from sage.core.models import Strict
from sage.core.postgres import ABANDONED, KEPT_ALIVE, refuse_other_text
from validation.core.types import canonical_json
from validation.ledger.patients import Patients, Population, index_of

if TYPE_CHECKING:
    from validation.ledger.patients import Match

Kind = Literal["population", "registration", "entry", "unlock", "screen", "merged"]
FORMAT = 2
"""Version of the fingerprints; populations in other versions would not be recognized."""
PATIENCE_S = 120.0
"""Maximum time in seconds that a writer waits for other writers."""
RENEWED = "restore it from a backup or with `sage validate ledger merge`"

TABLES = """
CREATE TABLE IF NOT EXISTS sage_ledger (
  seq BIGINT PRIMARY KEY, at TEXT NOT NULL, kind TEXT NOT NULL, contract TEXT NOT NULL,
  population TEXT NOT NULL, body TEXT NOT NULL, data {bytes}, data_sha256 TEXT NOT NULL,
  origin TEXT NOT NULL, content TEXT NOT NULL UNIQUE, chain TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS sage_ledger_contract ON sage_ledger (contract);
CREATE INDEX IF NOT EXISTS sage_ledger_population ON sage_ledger (population);
CREATE TABLE IF NOT EXISTS sage_ledger_tokens (token BIGINT NOT NULL, population TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS sage_ledger_token ON sage_ledger_tokens (token);
CREATE TABLE IF NOT EXISTS sage_ledger_meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)
"""


class Mark(Strict):
    """A row in a store, in the form that other ledgers remember."""

    store: str
    seq: int
    chain: str


@dataclass(frozen=True)
class Row:
    """A row in a store; the store assigns `seq`, `at` and `chain` on writing."""

    kind: Kind
    contract: str
    population: str
    body: str
    data: bytes | None = None
    origin: str = ""
    seq: int = 0
    at: str = ""
    chain: str = ""
    data_sha256: str = ""

    @property
    def content(self) -> str:
        """Key of a row's content, which identifies duplicates."""
        return hash_text(canonical_json([self.kind, self.contract, self.body, self.digest]))

    @property
    def digest(self) -> str:
        """SHA-256 of the attached bytes; empty if there are none."""
        if self.data is None:
            return self.data_sha256
        return hashlib.sha256(self.data).hexdigest()

    def chain_hash(self, before: str) -> str:
        """Return the hash of this row together with all previous rows."""
        values = [self.seq, self.at, self.kind, self.contract, self.population, self.body]
        return hash_text(before + canonical_json([*values, self.digest, self.origin]))


class Exported(Strict):
    """A row as a line in an exported store."""

    store: str
    seq: int
    at: str
    kind: Kind
    contract: str
    population: str
    body: str
    data: str | None = None
    origin: str = ""
    chain: str


def first_chain(store: str) -> str:
    """Compute the hash that a store's first row is chained to."""
    return hash_text(f"sage ledger {FORMAT} {store}")


def open_store(url: str) -> Store:
    """Open the store at a path or a `postgresql://` URL, creating it if it does not exist.

    Raises `InputError` if it is not a store or cannot be opened.
    """
    if url.startswith(("postgresql://", "postgres://")):
        return PostgresStore(url)
    if "://" in url and not url.startswith("sqlite:///"):
        scheme = url.split("://", 1)[0]
        raise InputError(
            f'ledger: "{scheme}://" is not supported; give a path, or '
            "postgresql://USER@HOST/DATABASE"
        )
    return SqliteStore(Path(url.removeprefix("sqlite:///")).expanduser())


class Store(ABC):
    """Rows in a database. Subclasses differ in connecting, locking and parameter markers."""

    mark = "?"
    bytes_type = "BLOB"
    where: str

    def __init__(self) -> None:
        self._problem: str | None = None
        with self._open(write=True) as db:
            for statement in TABLES.format(bytes=self.bytes_type).split(";"):
                db.execute(statement)
            found = dict(self._all(db, "SELECT name, value FROM sage_ledger_meta"))
            if not found:
                found = {"id": secrets.token_hex(8), "format": str(FORMAT)}
                for pair in found.items():
                    db.execute(self._sql("INSERT INTO sage_ledger_meta VALUES (?, ?)"), pair)
        if found.get("format") != str(FORMAT):
            raise InputError(
                f"the ledger {self.where} was written by another version of SAGE, which identified "
                "patients differently; keep it with its results, and set SAGE_LEDGER to "
                "a new file"
            )
        self.id: str = found["id"]

    # -- what subclasses define -----

    @abstractmethod
    @contextmanager
    def _open(self, *, write: bool = False) -> Iterator[Any]:
        """Open a connection; its changes are committed if the block ends without an error."""
        yield None

    def _sql(self, text: str) -> str:
        return text.replace("?", self.mark)

    def _all(self, db: Any, text: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return list(db.execute(self._sql(text), tuple(values)).fetchall())

    def remembered(self) -> Mark | None:
        """Return the last row as recorded outside the store, if available."""
        return None

    def _remember(self, row: Row) -> None:
        return None

    # -- writing -----

    def append(self, rows: Iterable[Row]) -> list[Row]:
        """Add rows in a single transaction; return them as stored, with equal content stored once.

        The rows are on disk when this method returns.
        """
        kept: list[Row] = []
        last: Row | None = None
        with self._open(write=True) as db:
            end = self._all(db, "SELECT seq, chain FROM sage_ledger ORDER BY seq DESC LIMIT 1")
            seq, chain = end[0] if end else (0, first_chain(self.id))
            latest = self._all(db, "SELECT MAX(at) FROM sage_ledger")[0][0] or ""
            for row in rows:
                there = self._all(db, f"{SELECT} WHERE content = ?", (row.content,))
                if there:
                    kept.append(_row(there[0]))
                    continue
                # A row must not sort before existing ones, even if the clock was set back.
                at = row.at or max(now(), latest)
                latest = max(at, latest)
                seq += 1
                row = replace(row, seq=seq, at=at)
                chain = row.chain_hash(chain)
                last = replace(row, chain=chain, data_sha256=row.digest)
                self._insert(db, last)
                kept.append(last)
        if last is not None:
            self._remember(last)
        return kept

    def _insert(self, db: Any, row: Row) -> None:
        values = (row.seq, row.at, row.kind, row.contract, row.population, row.body, row.data,
                  row.digest, row.origin, row.content, row.chain)  # fmt: skip
        slots = ", ".join("?" * len(values))
        db.execute(self._sql(f"INSERT INTO sage_ledger VALUES ({slots})"), values)  # noqa: S608
        if row.kind == "population" and row.data is not None:
            tokens = index_of(Population.unpack(row.data))
            db.cursor().executemany(
                self._sql("INSERT INTO sage_ledger_tokens VALUES (?, ?)"),
                [(token, row.population) for token in tokens],
            )

    # -- reading -----

    def rows(self, populations: Iterable[str], kinds: Sequence[Kind] = ()) -> list[Row]:
        """Return the rows about any of these populations, oldest first, without attached bytes."""
        return self._select("population", sorted(set(populations)), kinds)

    def of_contract(self, contracts: Iterable[str]) -> list[Row]:
        """Return the rows about any of these contracts, oldest first."""
        return self._select("contract", sorted(set(contracts)), ())

    def _select(self, column: str, wanted: list[str], kinds: Sequence[Kind]) -> list[Row]:
        if not wanted:
            return []
        slots = ", ".join("?" * len(wanted))
        text = f"{SELECT} WHERE {column} IN ({slots})"
        if kinds:
            text += f" AND kind IN ({', '.join('?' * len(kinds))})"
        with self._open() as db:
            found = self._all(db, text, (*wanted, *kinds))
        return sorted(map(_row, found), key=lambda row: (row.at, row.seq))

    def all_rows(self) -> list[Row]:
        """Return all rows in the order in which they were written."""
        with self._open() as db:
            return list(map(_row, self._all(db, f"{SELECT} ORDER BY seq")))

    def data(self, row: Row) -> bytes:
        """Return the bytes attached to a row.

        Raises `InputError` if they differ from the bytes that were written.
        """
        with self._open() as db:
            found = self._all(db, "SELECT data FROM sage_ledger WHERE seq = ?", (row.seq,))
        value = bytes(found[0][0]) if found and found[0][0] is not None else b""
        if hashlib.sha256(value).hexdigest() != row.data_sha256:
            raise InputError(f"{self.where}: the data of row {row.seq} were edited; {RENEWED}")
        return value

    def same_patients(self, patients: Patients) -> dict[str, tuple[Population, Match]]:
        """Find stored populations that share patients with a cohort, and the shared patients."""
        wanted = patients.sketch
        with self._open() as db:
            names = self._find(db, wanted)
        found = {}
        for row in self._select("population", names, ("population",)):
            if row.population not in patients.compared:
                population = Population.unpack(self.data(row))
                match = patients.match(population)
                shared = None if match is None else (population, match)
                patients.compared[row.population] = shared
            if both := patients.compared[row.population]:
                found[row.population] = both
        return found

    @abstractmethod
    def _find(self, db: Any, tokens: list[int]) -> list[str]:
        """Find the populations that contain any of the tokens."""

    def head(self) -> Mark | None:
        """Return the last row."""
        with self._open() as db:
            end = self._all(db, "SELECT seq, chain FROM sage_ledger ORDER BY seq DESC LIMIT 1")
        return Mark(store=self.id, seq=end[0][0], chain=end[0][1]) if end else None

    def lacks(self, marks: Iterable[Mark]) -> Mark | None:
        """Return the first of these rows that is missing here, or None.

        A row is present if the store wrote it or merged it from another store.
        """
        with self._open() as db:
            here = {
                (self.id, seq, chain)
                for seq, chain in self._all(db, "SELECT seq, chain FROM sage_ledger")
            }
            merged = self._all(db, f"{SELECT} WHERE kind = 'merged'")
        for row in map(_row, merged):
            store, chains = Mark.model_validate_json(row.body).store, self.data(row).hex()
            ends = range(0, len(chains), 64)
            here |= {(store, at // 64 + 1, chains[at : at + 64]) for at in ends}
        return next(
            (mark for mark in marks if (mark.store, mark.seq, mark.chain) not in here), None
        )

    def problem(self) -> str:
        """Describe the first break in the chain; empty if intact. Checked only once."""
        if self._problem is None:
            self._problem = next(iter(self.problems(attached=False)), "")
        return self._problem

    def problems(self, *, attached: bool = True) -> list[str]:
        """List problems in the chain and, with `attached`, in attached bytes and the index."""
        found: list[str] = []
        chain, tokens = first_chain(self.id), 0
        for at, row in enumerate(self.all_rows(), start=1):
            if row.seq != at:
                return [*found, f"{self.where}: row {at} was removed; {RENEWED}"]
            chain = row.chain_hash(chain)
            if row.chain != chain:
                return [*found, f"{self.where}: row {row.seq} ({row.kind}) was edited; {RENEWED}"]
            if row.kind == "population":
                tokens += len(index_of(Population.unpack(self.data(row)))) if attached else 0
            elif attached and row.data_sha256:
                try:
                    self.data(row)
                except InputError as error:
                    found.append(str(error))
        if attached:
            with self._open() as db:
                counted = self._all(db, "SELECT COUNT(*) FROM sage_ledger_tokens")[0][0]
            if counted != tokens:
                found.append(f"{self.where}: the index of patients is incomplete; {RENEWED}")
        return found

    # -- export and import -----

    def export_lines(self) -> Iterator[str]:
        """Yield the store as JSON lines, one per row."""
        for row in self.all_rows():
            data = base64.b64encode(self.data(row)).decode() if row.data_sha256 else None
            line = Exported(
                store=self.id, seq=row.seq, at=row.at, kind=row.kind, contract=row.contract,
                population=row.population, body=row.body, data=data, origin=row.origin,
                chain=row.chain,
            )  # fmt: skip
            yield canonical_json(line.model_dump(mode="json"))

    def take(self, found: ReadLines) -> int:
        """Merge rows that were parsed by `read_lines`; return the number of new rows."""
        head = found.head
        if head is None or self.lacks([head]) is None:
            return 0
        before_it = self.head()
        source = Row("merged", "", "", canonical_json(head.model_dump()), found.chains)
        self.append([*found.rows, source])
        after = self.head()
        return (after.seq if after else 0) - (before_it.seq if before_it else 0) - 1


@dataclass(frozen=True)
class ReadLines:
    """A parsed store export: rows, last row, and the bytes of its chain."""

    rows: list[Row]
    head: Mark | None
    chains: bytes


def read_lines(lines: Iterable[str], name: str) -> ReadLines:
    """Parse the exported rows of another store, oldest first.

    Raises `InputError` if a line is not a row, or was edited.
    """
    rows: list[Row] = []
    chains: list[str] = []
    head: Mark | None = None
    for number, line in enumerate(lines, start=1):
        try:
            said = Exported.model_validate_json(line)
            data = None if said.data is None else base64.b64decode(said.data, validate=True)
        except (ValidationError, ValueError):
            raise InputError(f"{name}: line {number} is not a ledger row") from None
        before = chains[-1] if chains else first_chain(said.store)
        row = Row(
            said.kind, said.contract, said.population, said.body, data, said.origin,
            said.seq, said.at,
        )  # fmt: skip
        if row.chain_hash(before) != said.chain or said.seq != number:
            raise InputError(
                f"{name}: line {number} was edited, a line before it was removed, or it was "
                "written by another SAGE version; export the ledger again"
            )
        chains.append(said.chain)
        head = Mark(store=said.store, seq=said.seq, chain=said.chain)
        rows.append(replace(row, origin=said.origin or said.store, seq=0))
    return ReadLines(rows, head, bytes.fromhex("".join(chains)))


SELECT = (
    "SELECT seq, at, kind, contract, population, body, data_sha256, origin, chain FROM sage_ledger"
)


def _row(values: tuple[Any, ...]) -> Row:
    seq, at, kind, contract, population, body, data_sha256, origin, chain = values
    return Row(kind, contract, population, body, None, origin, seq, at, chain, data_sha256)


def now() -> str:
    """Return the time in UTC to the microsecond, in a sortable format."""
    return clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class SqliteStore(Store):
    """A store in a file. Writers wait for each other; a killed writer leaves no partial row."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.where = str(path)
        if path.is_dir():
            raise InputError(
                f"ledger {path} is a folder; give a file, such as {path / 'ledger.sqlite'}"
            )
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"ledger {path}: its folder could not be created ({error.strerror}); set "
                "SAGE_LEDGER to a writable file"
            ) from None
        super().__init__()

    @property
    def witness(self) -> Path:
        """The file that records the last row."""
        return self.path.with_name(f"{self.path.name}.head")

    @contextmanager
    def _open(self, *, write: bool = False) -> Iterator[sqlite3.Connection]:
        try:
            db = sqlite3.connect(self.path, timeout=PATIENCE_S, isolation_level=None)
        except sqlite3.Error as error:
            raise self._refusal(error) from None
        try:
            db.execute("PRAGMA synchronous = FULL")
            db.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            yield db
            db.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._refusal(error) from None
        finally:
            db.close()  # Uncommitted changes are rolled back.

    def _refusal(self, error: sqlite3.Error) -> InputError:
        if "locked" in str(error):
            return InputError(f"ledger {self.path} is in use by another process; try again")
        return InputError(
            f"ledger {self.path} cannot be used ({error}); restore it from a backup, or set "
            "SAGE_LEDGER to a writable file"
        )

    def remembered(self) -> Mark | None:
        """Read the last row from the file next to the store."""
        try:
            return Mark.model_validate_json(self.witness.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (ValidationError, ValueError, OSError):
            return Mark(store="unreadable", seq=0, chain="")

    def _remember(self, row: Row) -> None:
        known = self.remembered()
        if known is None or self.lacks([known]) is None:
            said = Mark(store=self.id, seq=row.seq, chain=row.chain)
            with contextlib.suppress(OSError):
                write_text(self.witness, said.model_dump_json() + "\n")

    def _find(self, db: sqlite3.Connection, tokens: list[int]) -> list[str]:
        wanted = (json.dumps(tokens),)
        text = (
            "SELECT DISTINCT population FROM sage_ledger_tokens WHERE token IN "
            "(SELECT value FROM json_each(?))"
        )
        return [pair[0] for pair in self._all(db, text, wanted)]


class PostgresStore(Store):
    """A store in a database that several people share; needs the `postgres` extra."""

    mark = "%s"
    bytes_type = "BYTEA"
    LOCK = 0x5A6E1ED6

    def __init__(self, url: str) -> None:
        require_extra("postgres", "a ledger in PostgreSQL")
        import psycopg

        self._psycopg = psycopg
        self._url = url
        parts = urlsplit(url)
        self.where = f"postgresql://{parts.hostname or ''}{parts.path}"
        super().__init__()

    @contextmanager
    def _open(self, *, write: bool = False) -> Iterator[Any]:
        try:
            with self._psycopg.connect(self._url, **KEPT_ALIVE) as db:
                refuse_other_text(db, f"the ledger {self.where}")
                db.execute(ABANDONED)
                if write:
                    db.execute("SELECT pg_advisory_xact_lock(%s)", (self.LOCK,))
                yield db
        except self._psycopg.OperationalError as error:
            reason = str(error).splitlines()[0]
            raise FaultError(f"the ledger {self.where} cannot be reached: {reason}") from None
        except self._psycopg.Error as error:
            reason = str(error).splitlines()[0]
            raise FaultError(f"the ledger {self.where} refused the request: {reason}") from None

    def _find(self, db: Any, tokens: list[int]) -> list[str]:
        text = "SELECT DISTINCT population FROM sage_ledger_tokens WHERE token = ANY(?)"
        return [pair[0] for pair in self._all(db, text, (tokens,))]
