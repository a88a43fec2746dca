"""Removal of a patient's data from runs, caches, and outputs, listing what cannot be removed.

A run's analysis tables contain pseudonymized patients, some without any row names. These
tables are emptied in all runs on the cohort and can be recomputed from it. The identifier
itself is redacted from texts.
"""

from __future__ import annotations

import json
import mmap
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from mcp_servers.context import remove_path
from mcp_servers.servers.prune import HANDLE
from sage.core.errors import InputError
from sage.core.files import replacing, write_bytes
from sage.core.models import Strict
from sage.run.campaign.rounds import runs_and_rounds
from sage.run.folder import HeldError, Manifest, RunFolder
from sage_hospital.database import FILE, Execute, open_database

if TYPE_CHECKING:
    from sage.settings import Settings

STRUCK = b"[forgotten]"
SHORTEST = 3
"""Minimum length of an identifier; shorter identifiers occur in unrelated texts."""
TEXTS = {
    "sage_reviews": (("run", "seq"), ("body",)),
    "sage_campaigns": (("notebook", "id"), ("body",)),
    "sage_findings": (("notebook", "name"), ("body",)),
    "sage_runs": (("id",), ("prompt", "answer", "problem")),
}
"""Key and free-text columns in the PostgreSQL tables."""
QUEUE = f".{FILE}"
LARGEST = 256 << 20
"""Size limit, in bytes, for searching a file's content; larger files match only by name."""
CANNOT = (
    "numbers, curves and figures computed from data that included the patient",
    "the ledger's fingerprints: hashes that recognize patients, in a hash chain of rows",
    "earlier archives of `sage hospital backup`",
    "the audit log: a hash chain of rows",
    "PostgreSQL's checkpoints of runs, its logs and its own backups",
    "sessions recorded outside runs_dir",
)


class Removed(Strict):
    """Affected paths by kind, including those found but not removed."""

    emptied: list[str]
    struck_out: list[str]
    caches: list[str]
    outputs: list[str]
    left: list[str]
    cannot: list[str]


def forget(
    patient: str,
    cohort: Path,
    settings: Settings,
    outputs: Path,
    *,
    name: str = "",
    dry: bool = False,
    unnamed: bool = False,
) -> Removed:
    """Remove a patient's data from everything except the cohort's own files.

    Parameters
    ----------
    patient : identifier, as in the cohort's files
    cohort : folder of the cohort; files that still name the patient are listed
    outputs : output folder of tools
    name : built-in name of the cohort, which runs may refer to
    dry : only list what would be removed
    unnamed : continue if no file names the patient

    Raises
    ------
    InputError
        If the identifier is too short, no file names it, or a run on the cohort is in
        progress; in these cases, nothing is removed.
    """
    known = patient.strip()
    if len(known) < SHORTEST:
        raise InputError(
            f'"{known}" is too short to search for; give at least {SHORTEST} characters'
        )
    anywhere, token = _tokens(known)
    emptied, struck, left = [], [], []
    if token is not anywhere:
        left.append(f"{known} is a number: it was searched for in quotes only")
    affected = []
    runs = runs_and_rounds(settings.runs_dir)
    for run in runs:
        tables = list(_tables(run)) if _is_of(run.manifest(), {name, str(cohort)}) else []
        named = [path for path in _files(run.root) if _contains(token, path)]
        if tables or named:
            affected.append((run, tables, named))
    caches = list(_caches(settings, outputs, anywhere, token))
    calls = [
        folder
        for folder in outputs.glob("*/*")
        if HANDLE.fullmatch(folder.name) and folder.is_dir() and _names(folder, anywhere, token)
    ]
    rows = _rows(settings, token, dry=True)
    roots = {run.root for run in runs}
    beside = [
        path
        for path in _files(settings.runs_dir.resolve())
        if roots.isdisjoint(path.parents)
        and path.name != QUEUE  # its rows are redacted
        and (anywhere.search(str(path).encode()) or _contains(token, path))
    ]
    own = [
        path
        for path in (_files(cohort) if cohort.is_dir() else ())
        if anywhere.search(path.name.encode()) or _contains(anywhere, path)
    ]
    if not (
        caches or calls or rows or beside or own or unnamed or any(named for *_, named in affected)
    ):
        raise InputError(
            f'no file contains "{known}", so nothing was removed. Check that it is spelled as in '
            f"the {name or cohort} files. If it is (compressed files are not searched), "
            "add --unnamed"
        )
    for run, _, _ in affected:  # nothing is changed until everything can be
        if not dry:
            try:
                run.hold()
            except HeldError as error:
                for held, *_ in affected:
                    held.release()
                raise InputError(f"{error}; nothing was removed") from None
    for run, tables, named in affected:
        before = run.record.snapshot()
        for path in named:
            if _is_text(path):
                struck.append(str(path))
                if not dry:
                    write_bytes(path, token.sub(STRUCK, path.read_bytes()))
            elif path not in tables:
                left.append(f"{path}: cannot be edited; remove the run")
        for path in tables:
            emptied.append(str(path))
            if not dry:
                _empty(path)
        if not dry:
            run.event("forgot", tables=len(tables), texts=len(named))
            run.record.seal(before)
            run.release()
    struck += rows
    if not dry:
        _rows(settings, token, dry=False)
        for path in [*caches, *calls]:
            remove_path(path)
    left += [
        f"{path}: does not belong to a run; remove it if it is the patient's" for path in beside
    ]
    left += [
        f"{path}: too large to search"
        for run in runs
        for path in _files(run.root)
        if path.stat().st_size > LARGEST
    ]
    left += [f"{path}: one of the cohort's own files; remove the patient yourself" for path in own]
    return Removed(
        emptied=emptied, struck_out=struck, caches=[str(path) for path in caches],
        outputs=[str(path) for path in calls], left=left, cannot=list(CANNOT),
    )  # fmt: skip


def _tokens(known: str) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    """Build patterns that find the identifier in file names and in file contents.

    In contents, a number matches only in quotes, since it could otherwise match measurements.
    """
    forms = {known, json.dumps(known)[1:-1], json.dumps(known, ensure_ascii=False)[1:-1]}
    words = b"|".join(re.escape(form.encode()) for form in sorted(forms))
    anywhere = re.compile(rb"(?<![A-Za-z0-9])(?:" + words + rb")(?![A-Za-z0-9])")
    if re.fullmatch(r"[0-9.,+-]+", known):
        return anywhere, re.compile(rb"(?<=[\"'])(?:" + words + rb")(?=[\"'])")
    return anywhere, anywhere


def _is_of(manifest: Manifest, names: set[str]) -> bool:
    """Return True if a run's first or second cohort is among the folders or names."""
    named = {name for name in (manifest.spec.cohort, manifest.spec.second_cohort) if name}
    places = {str(Path(name).resolve()) for name in names if name}
    return bool(named & names) or any(str(Path(name).resolve()) in places for name in named)


def _tables(run: RunFolder) -> Iterator[Path]:
    """Yield the run's tables that have a row per patient."""
    for pattern in ("hypotheses/*/results/inputs/**/*", "outputs/**/*"):
        for path in sorted(run.root.glob(pattern)):
            if path.suffix in (".parquet", ".csv", ".tsv") and path.is_file():
                yield path


def _empty(path: Path) -> None:
    """Remove all rows from a table."""
    if path.suffix != ".parquet":
        write_bytes(path, b"".join(path.read_bytes().splitlines(keepends=True)[:1]))
        return
    import pandas as pd

    with replacing(path) as part:
        pd.read_parquet(path).iloc[:0].to_parquet(part)


def _files(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder, except the record of their hashes."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink() and path.name != "integrity.jsonl":
            yield path


def _contains(token: re.Pattern[bytes], path: Path) -> bool:
    """Return True if a file of at most `LARGEST` bytes names the patient."""
    if not 0 < path.stat().st_size <= LARGEST:
        return False
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return token.search(content) is not None


def _is_text(path: Path) -> bool:
    try:
        path.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _rows(settings: Settings, token: re.Pattern[bytes], *, dry: bool) -> list[str]:
    """List queue and PostgreSQL rows that name the patient; redact the name unless `dry`."""
    from sage_hospital.notebook import TABLES as CAMPAIGNS
    from sage_hospital.reviews import TABLES as REVIEWS
    from sage_hospital.runs import TABLES as RUNS

    def body(execute: Execute) -> list[str]:
        found = []
        for table, (keys, columns) in held.items():
            at = " AND ".join(f"{key} = ?" for key in keys)
            chosen = f"SELECT {', '.join((*keys, *columns))} FROM {table}"  # noqa: S608 constants
            for row in execute(chosen):
                known = [row[key] for key in keys]
                for column in columns:
                    text = (row[column] or "").encode()
                    if not token.search(text):
                        continue
                    found.append(f"{where} {table} {' '.join(map(str, known))}: {column}")
                    if not dry:
                        left = token.sub(STRUCK, text).decode()
                        struck = f"UPDATE {table} SET {column} = ? WHERE {at}"  # noqa: S608 constants
                        execute(struck, [left, *known])
        return found

    where, held, made = "PostgreSQL", TEXTS, [CAMPAIGNS, REVIEWS, RUNS]
    if settings.checkpoint_url is None:
        where, held, made = QUEUE, {"sage_runs": TEXTS["sage_runs"]}, [RUNS]
    tables = ";".join(table.strip().rstrip(";") for table in made)
    with open_database(settings, tables, new=False) as database:
        return database.transaction(body) if database is not None else []


def _names(folder: Path, anywhere: re.Pattern[bytes], token: re.Pattern[bytes]) -> bool:
    """Return True if a file in the folder names the patient in its content or its name."""
    return any(
        anywhere.search(path.name.encode()) is not None or _contains(token, path)
        for path in _files(folder)
    )


def _caches(
    settings: Settings, outputs: Path, anywhere: re.Pattern[bytes], token: re.Pattern[bytes]
) -> Iterator[Path]:
    """Find cached matrices and results that name the patient, and the results' files."""
    home = settings.cache_dir / "cohorts"
    for folder in sorted(home.glob("expression-*")) if home.is_dir() else ():
        if _names(folder, anywhere, token):
            yield folder
    kept = outputs / ".cache"
    for path in sorted((kept / "results").glob("*.json")):
        content = path.read_bytes()
        if token.search(content):
            yield path
            for output in json.loads(content)["run"]["outputs"]:
                blob = kept / "blobs" / output["sha256"]
                if blob.is_file():
                    yield blob
