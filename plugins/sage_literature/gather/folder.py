"""Folder for a gathering, with its documents and the state for resuming after a kill."""

from __future__ import annotations

import contextlib
import fcntl
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from sage.core.errors import InputError
from sage.core.files import append_line, write_json, write_text
from sage.core.models import read_model
from sage_literature.gather.types import Change, Kept, Plan
from sage_literature.records import Found, Page

DOCUMENTS = "documents"
STATE = ".gather"


class CorpusFolder:
    """Paths and state of a corpus.

    `documents/` has a file per paper. `.gather/` has the plan, the pages from every search by
    round and catalog, and the journal of kept papers, so that nothing is requested twice.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.state = root / STATE
        self._journal = self.state / "documents.jsonl"
        self.kept: dict[str, Kept] = {}
        self._deleted: set[str] = set()

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder against other processes.

        Raises
        ------
        InputError
            If another process is gathering here, or the folder contains something else.
        """
        if self.root.exists() and not self.root.is_dir():
            raise InputError(f"{self.root} is a file; give a folder")
        if not self.state.is_dir() and self.root.is_dir() and any(self.root.iterdir()):
            raise InputError(
                f"{self.root} contains files that are not from `sage literature gather`; choose "
                "a new folder with --out, and pass both folders to `sage kg build`"
            )
        self.state.mkdir(parents=True, exist_ok=True)
        with (self.state / "lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InputError(
                    f"another process is gathering into {self.root}; wait for it to finish"
                ) from None
            self._load_journal()
            yield

    # -- what was asked ------------------------------------------------------------------------

    def plan(self) -> Plan | None:
        """Return the plan used to gather the folder, or None if there is none."""
        try:
            return read_model(self.state / "plan.json", Plan)
        except FileNotFoundError:
            return None

    def set_plan(self, plan: Plan) -> None:
        """Store the plan in the folder."""
        write_json(self.state / "plan.json", plan)

    @property
    def round(self) -> int:
        """Number of the last round that was begun, 0 before the first."""
        return max((int(p.name) for p in self.state.glob("rounds/[0-9]*")), default=0)

    @property
    def is_finished(self) -> bool:
        """True if the results of the last round were written."""
        return (self.state / "rounds" / str(self.round) / "finished").is_file()

    def is_complete(self) -> bool:
        """Return True if the tables, the flow and every document in the journal still exist."""
        written = ("documents.tsv", "left-out.tsv", "prisma.json", "prisma.svg", "README.md")
        return not self._deleted and all((self.root / name).is_file() for name in written)

    def begin_round(self) -> None:
        """Begin the next round, in which all searches are run again."""
        (self.state / "rounds" / str(self.round + 1)).mkdir(parents=True)

    def finish_round(self) -> None:
        """Record that the results of the round were written."""
        write_text(self.state / "rounds" / str(self.round) / "finished", "")

    # -- pages of searches ---------------------------------------------------------------------

    def pages(self, catalog: str, round_: int | None = None) -> list[Page]:
        """Read a catalog's pages in a round, in order, up to the first missing page."""
        folder = self._pages(catalog, round_ or self.round)
        found: list[Page] = []
        while (path := folder / f"{len(found) + 1:05}.json").is_file():
            found.append(read_model(path, Page))
        return found

    def add_page(self, catalog: str, number: int, page: Page) -> None:
        """Store a page; numbers begin at 1."""
        write_json(self._pages(catalog, self.round) / f"{number:05}.json", page)

    def drop_pages(self, catalog: str) -> None:
        """Delete this round's pages from a catalog whose cursor has expired."""
        shutil.rmtree(self._pages(catalog, self.round), ignore_errors=True)

    def records(self, catalog: str) -> list[Found]:
        """Return a catalog's records from all rounds, using the newest version of each paper."""
        found_: list[Found] = []
        known: set[str] = set()
        for number in range(self.round, 0, -1):
            new = [
                found
                for page in self.pages(catalog, number)
                for found in page.records
                if not known.intersection(found.identities())
            ]
            known.update(key for found in new for key in found.identities())
            found_ += new
        return found_

    def _pages(self, catalog: str, round_: int) -> Path:
        return self.state / "rounds" / str(round_) / catalog

    # -- what was learned of single papers -----------------------------------------------------

    def load_checked(self) -> dict[str, Found]:
        """Read the preprint statuses that servers returned in this round, by DOI."""
        path = self.state / "rounds" / str(self.round) / "settled.jsonl"
        found = [Found.model_validate(line) for line in _lines(path)]
        return {record.doi or "": record for record in found}

    def save_checked(self, found: Found) -> None:
        """Store a server's response about a preprint."""
        path = self.state / "rounds" / str(self.round) / "settled.jsonl"
        append_line(path, found.model_dump_json())

    # -- documents -----------------------------------------------------------------------------

    def find(self, found: Found) -> Kept | None:
        """Find a paper in the folder by any of its identifiers."""
        return next((self.kept[k] for k in found.identities() if k in self.kept), None)

    def merge_files(self, found: Found) -> None:
        """Merge the files of papers whose records turned out to describe the same paper."""
        held = [self.kept[key] for key in found.identities() if key in self.kept]
        files = list({kept.file: kept for kept in held if kept.file}.values())
        for other in files[1:]:
            self.remove(other, retracted=False)
            keys = tuple(dict.fromkeys((*files[0].keys, *other.keys)))
            self.keep(files[0].model_copy(update={"keys": keys}))

    def keep(self, kept: Kept) -> None:
        """Record in the journal what the folder now contains for a paper."""
        append_line(self._journal, kept.model_dump_json())
        self._know(kept)

    def remove(self, kept: Kept, *, retracted: bool) -> None:
        """Remove a paper's file from the corpus and record this in the journal."""
        if kept.file is not None:
            (self.root / kept.file).unlink(missing_ok=True)
        gone = {"file": None, "text": "none", "pending": False, "retracted": retracted}
        self.keep(kept.model_copy(update=gone))

    def entries(self) -> list[Kept]:
        """List the papers in the folder without duplicates."""
        return list({id(kept): kept for kept in self.kept.values()}.values())

    def _know(self, kept: Kept) -> None:
        for key in kept.keys:
            self.kept[key] = kept

    def _load_journal(self) -> None:
        self.kept = {}
        for line in _lines(self._journal):
            with contextlib.suppress(ValidationError):
                self._know(Kept.model_validate(line))
        self._deleted = {
            key
            for key, kept in self.kept.items()
            if kept.file is not None and not (self.root / kept.file).is_file()
        }
        for key in self._deleted:  # removed by hand, or between a removal and its journal entry
            del self.kept[key]

    # -- changes -------------------------------------------------------------------------------

    def change(self, change: Change) -> None:
        """Record a change in this round before it is made."""
        path = self.state / "rounds" / str(self.round) / "changes.jsonl"
        append_line(path, change.model_dump_json())

    def changes(self, round_: int | None = None) -> list[Change]:
        """List a round's changes without duplicates."""
        path = self.state / "rounds" / str(round_ or self.round) / "changes.jsonl"
        changes = [Change.model_validate(line) for line in _lines(path)]
        return list({(change.what, change.keys): change for change in changes}.values())


def _lines(path: Path) -> list[object]:
    """Return the lines in a journal, removing a truncated line and everything after it."""
    if not path.is_file():
        return []
    text = path.read_text(encoding="utf-8")
    whole, _, torn = text.rpartition("\n")
    if torn:
        write_text(path, f"{whole}\n" if whole else "")
    found = []
    for line in whole.splitlines():
        with contextlib.suppress(ValueError):
            found.append(json.loads(line))
    return found
