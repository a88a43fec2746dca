"""Sessions: recording where a reader looks on a slide, listing, replay, and deletion."""

from __future__ import annotations

import secrets
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from pydantic import Field, ValidationError

from sage.core import clock
from sage.core.errors import InputError, explain_validation
from sage.core.files import write_text
from sage.core.models import Strict
from sage.web.people import Role, person, roles
from sage.web.routes.slides import slide_file
from sage.web.site import NAME
from sage_slide_reading.sessions.actions import actions_of
from sage_slide_reading.sessions.format import (
    SUFFIX,
    ViewEvent,
    describe_recording,
    read_header,
    read_session,
)
from sage_slide_reading.sessions.recording import FOLDER, Recordings

router = APIRouter(prefix="/sessions")

MOST_LISTED = 500
MOST_SENT = 5000
"""Maximum number of events that a page replays; longer sessions are thinned."""
BATCH = 2000
"""Maximum number of events per request."""
AGREED = "The reader agreed to be recorded."


class Begun(Strict):
    """Settings for a new recording: reader, slide, screen and task."""

    slide: str
    reader: str = Field(min_length=1, max_length=80)
    task: str = Field(max_length=500)
    consent: bool
    screen: tuple[int, int]


class Batch(Strict):
    """Events in order, starting at the number of the first event."""

    first: int = Field(ge=0)
    events: tuple[ViewEvent, ...] = Field(max_length=BATCH)


@cache
def _recordings(folder: Path) -> Recordings:
    return Recordings(folder)


def recordings(request: Request) -> Recordings:
    """Return the store of recorded sessions below the runs."""
    return _recordings(request.app.state.site.settings.runs_dir / FOLDER)


def find_session(request: Request, name: str) -> Path:
    """Find a session's file.

    Raises `InputError` if there is no session with this name.
    """
    path = recordings(request).path(name) if NAME.fullmatch(name) else None
    if path is None or path.is_symlink() or not path.is_file() or not may_see(request, name):
        raise InputError("no such session; it may have been deleted")
    return path


def may_see(request: Request, name: str) -> bool:
    """Return True if the person may see a session and its drafts.

    Reviewers and administrators see all sessions; others see only their own.
    """
    everything = {Role.REVIEW, Role.ADMINISTER} & roles(request)
    return (
        not request.app.state.site.people.identified or bool(everything) or _is_own(request, name)
    )


def _own(request: Request, name: str) -> None:
    """Refuse access to another person's session, if people are identified, except for admins."""
    if not request.app.state.site.people.identified or Role.ADMINISTER in roles(request):
        return
    if not _is_own(request, name):
        raise InputError("this session belongs to another person")


def _is_own(request: Request, name: str) -> bool:
    owner = _owner(request, name)
    return owner.is_file() and owner.read_text(encoding="utf-8") == person(request, "")


def _owner(request: Request, name: str) -> Path:
    """Return the file that names the person who recorded a session with a pseudonymous header."""
    return recordings(request).folder / f"{name}.owner"


@router.get("")
def list_sessions(request: Request) -> list[dict[str, Any]]:
    """List the latest sessions on this machine that the person may see."""
    folder = recordings(request).folder
    found = []
    names = sorted(
        (
            path.name.removesuffix(SUFFIX)
            for path in (folder.glob(f"*{SUFFIX}") if folder.is_dir() else ())
        ),
        reverse=True,
    )
    seen = (name for name in names if NAME.fullmatch(name) and may_see(request, name))
    for name in islice(seen, MOST_LISTED):
        try:
            header = read_header(find_session(request, name))
        except InputError:
            continue
        found.append({"name": name, **header.model_dump(mode="json")})
    return found


@router.post("")
def begin(begun: Begun, request: Request) -> dict[str, Any]:
    """Begin a session with the reader's consent, and return its name and native magnification.

    Raises `InputError` if consent is missing or the slide may not be shown; the response has
    status 422.
    """
    if not begun.consent:
        raise InputError("recording requires the reader's consent")
    place = slide_file(request, begun.slide)
    slide = request.app.state.tiles.slide(place)
    try:
        header = describe_recording(
            slide, place.name, screen=begun.screen, reader=begun.reader, task=begun.task,
            note=AGREED,
        )  # fmt: skip
    except ValidationError as error:
        raise InputError(explain_validation(error)) from None
    name = f"{clock.now():%Y%m%d-%H%M%S}-{secrets.token_hex(4)}"
    recordings(request).begin(name, header)
    if request.app.state.site.people.identified:
        write_text(_owner(request, name), person(request, ""))
    return {"name": name, "native": header.native}


@router.post("/{name}/events")
def append(name: str, batch: Batch, request: Request) -> dict[str, int]:
    """Store a session's events durably, and return its number of events.

    Raises `InputError` if there is no such session, an event is invalid, events before the batch
    are missing, or the session is full; the response has status 422, and nothing from the batch is
    kept.
    """
    find_session(request, name)
    _own(request, name)
    return {"kept": recordings(request).append(name, batch.first, batch.events)}


@router.get("/{name}")
def replay(name: str, request: Request) -> dict[str, Any]:
    """Return a session with its views, thinned if long, and its actions."""
    session = read_session(find_session(request, name))
    step = -(-len(session.events) // MOST_SENT) or 1
    return {
        "header": session.header.model_dump(mode="json"),
        "views": [event.model_dump() for event in session.events[::step]],
        "events": len(session.events),
        "actions": [action.model_dump() for action in actions_of(session)],
    }


@router.post("/{name}/delete")
def delete(name: str, request: Request) -> dict[str, bool]:
    """Delete a session permanently."""
    find_session(request, name)
    _own(request, name)
    recordings(request).delete(name)
    _owner(request, name).unlink(missing_ok=True)
    return {"deleted": True}
