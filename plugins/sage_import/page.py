"""Page that creates a cohort from uploaded files."""

from __future__ import annotations

import re
import secrets
import shutil
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from pydantic import Field
from starlette.concurrency import run_in_threadpool

from sage.core import clock
from sage.core.errors import InputError
from sage.core.models import Strict
from sage.core.printable import one_line
from sage.web.pages import Page
from sage.web.people import Role, Rule
from sage_import.intake import Proposal, propose, publish

if TYPE_CHECKING:
    from sage.web.site import Site

router = APIRouter(prefix="/import")

MOST_FILES = 20
MOST_HELD = 256 << 20
"""Maximum total size of waiting uploads by all users, in bytes."""
LASTS = 6 * 3600
"""Seconds after which an upload that was not imported is removed."""
FILE = re.compile(
    r"[\w()+,=@ -][\w()+,=@. -]{0,120}\.(csv|tsv|txt|tab|gz|xlsx|xlsm|"
    r"json|zip|gct|parquet|feather|arrow|dta|xpt|sas7bdat|sav|zsav)"
)
UPLOAD = re.compile(r"[0-9a-f]{32}")
HOME = Path("cohorts")
"""Folder that `sage cohort list` searches."""
writing = threading.Lock()


class Import(Strict):
    """Uploaded files and corrections to the guesses about them, in the form used by `--set`."""

    upload: str = Field(min_length=32, max_length=32)
    settings: tuple[str, ...] = Field(default=(), max_length=400)
    replace: bool = False


@router.post("/files")
async def upload(request: Request, name: str, to: str = "") -> dict[str, Any]:
    """Keep the request's body as a file until it is imported; `to` adds it to earlier files.

    Only the last part of the file name is kept, and only file types that the import reads are
    accepted.
    """
    content = await request.body()
    return await run_in_threadpool(_keep, request.app.state.site, name, to, content)


def _keep(site: Site, name: str, to: str, content: bytes) -> dict[str, Any]:
    if not FILE.fullmatch(name):
        raise InputError(
            f"{one_line(name)[:80]}: unsupported file type (supported: .csv, .tsv, .txt, "
            ".xlsx, .json, .zip, .parquet, .dta, .sav, or text with .gz) or unusual "
            "characters in the name"
        )
    home = _home(site)
    with writing:
        _clean(home)
        folder = _folder(site, to) if to else home / secrets.token_hex(16)
        held = sum(path.stat().st_size for path in home.rglob("*") if path.is_file())
        if held + len(content) > MOST_HELD:
            raise InputError(
                f"more than {MOST_HELD >> 20} MB of uploads are waiting to be imported; use "
                "`sage import` on the server itself"
            )
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if len(list(folder.iterdir())) >= MOST_FILES:
            raise InputError(
                f"at most {MOST_FILES} files are allowed; upload a study folder as .zip"
            )
        (folder / name).write_bytes(content)
    return {"upload": folder.name, "files": sorted(path.name for path in folder.iterdir())}


def _home(site: Site) -> Path:
    return site.settings.cache_dir.expanduser() / "uploads"


def _folder(site: Site, name: str) -> Path:
    folder = _home(site) / name
    if not UPLOAD.fullmatch(name) or not folder.is_dir():
        raise InputError("these uploads have expired; choose the files again")
    return folder


def _clean(home: Path) -> None:
    for folder in home.iterdir() if home.is_dir() else ():
        if UPLOAD.fullmatch(folder.name) and folder.stat().st_mtime < clock.seconds() - LASTS:
            shutil.rmtree(folder, ignore_errors=True)


@router.post("/look")
def look(asked: Import, request: Request) -> dict[str, Any]:
    """Return the import's guesses about the files without writing anything."""
    files = sorted(_folder(request.app.state.site, asked.upload).iterdir())
    return _plain(propose(files, asked.settings))


@router.post("/write")
def import_files(asked: Import, request: Request) -> dict[str, Any]:
    """Write the cohort, as `sage import` does, and report the findings from `check`."""
    site: Site = request.app.state.site
    folder = _folder(site, asked.upload)
    proposal = propose(sorted(folder.iterdir()), asked.settings)
    names = site.cohort_names()
    target = HOME / proposal.name
    if (
        proposal.name in names
        and Path(names[proposal.name].path or proposal.name).resolve() != target.resolve()
    ):
        raise InputError(
            f'a cohort named "{proposal.name}" already exists here; choose another name'
        )
    if target.is_dir() and any(target.iterdir()) and not asked.replace:
        raise InputError(
            f'a cohort named "{proposal.name}" was already imported; select "replace a cohort of '
            'this name", or choose another name'
        )
    with writing:
        findings = publish(proposal, target, force=asked.replace)
    site.forget_cohort(proposal.name)
    shutil.rmtree(folder, ignore_errors=True)
    return {
        "cohort": proposal.name,
        "folder": str(target),
        "findings": [finding.model_dump(mode="json") for finding in findings],
    }


def _plain(proposal: Proposal) -> dict[str, Any]:
    return {
        "name": proposal.name,
        "title": proposal.spec.title if proposal.spec else "",
        "guesses": [
            {**guess.model_dump(mode="json"), "settable": guess.settable}
            for guess in proposal.guesses
        ],
        "columns": [column.model_dump(mode="json") for column in proposal.columns],
        "questions": [
            {**guess.model_dump(mode="json"), "settable": True} for guess in proposal.questions
        ],
        "examples": proposal.examples,
        "left_out": [loss.model_dump(mode="json") for loss in proposal.losses],
        "open": [guess.key for guess in proposal.open],
    }


page = Page(
    path="/import",
    title="Import",
    scripts=Path(__file__).parent / "static",
    router=router,
    rules=(Rule(r"/api/import/files", Role.ADMINISTER, "uploaded", most_bytes=64 << 20),),
)
