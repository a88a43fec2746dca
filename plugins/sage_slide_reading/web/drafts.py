"""Drafted rationales: images of each region, and a reviewer's decisions, stored durably."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any, Literal

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import Field

from sage.core.errors import InputError
from sage.core.models import Strict
from sage.web.people import person
from sage.web.routes.slides import encode, list_below
from sage.web.site import NAME
from sage_slide_reading.sessions.drafts import (
    DRAFTS,
    PANELS,
    Drafts,
    Rationale,
    audit,
    cytology_size,
    decide,
    read_decisions,
    read_drafts,
)
from sage_slide_reading.sessions.format import SessionHeader
from sage_slide_reading.web.sessions import may_see, recordings

router = APIRouter(prefix="/drafts")

THUMBNAIL_PX = 720
REGION_PX = 900
MOST_LISTED = 500
Picture = Literal["thumbnail", "region", "cytology"]


def find_drafts(request: Request, name: str) -> tuple[Path, Drafts]:
    """Find the drafts with this name in the session folder.

    Raises `InputError` if there are no such drafts, or the person may not see them.
    """
    path = recordings(request).folder / f"{name}{DRAFTS}"
    there = NAME.fullmatch(name) and not path.is_symlink() and path.is_file()
    if not there or not may_see(request, name):
        raise InputError("drafts not found")
    return path, read_drafts(path)


def slide_of(request: Request, header: SessionHeader) -> Path:
    """Find a session's slide below the roots by name and size.

    Raises `InputError` if there is no such slide.
    """
    site, tiles = request.app.state.site, request.app.state.tiles
    tiles.prepare()
    for root in site.roots:
        for path in list_below(root)[0]:
            if path.name == header.slide:
                place: Path = path.resolve()
                slide = tiles.slide(place)
                if (slide.width, slide.height) == (header.width, header.height):
                    return place
    raise InputError(
        f'no slide "{header.slide}" with {header.width} x {header.height} pixels was found in '
        "the folders given with --root"
    )


@router.get("")
def list_drafts(request: Request) -> list[dict[str, Any]]:
    """List sessions with drafted rationales and their review progress."""
    folder = recordings(request).folder
    found = []
    paths = sorted(folder.glob(f"*{DRAFTS}"), reverse=True) if folder.is_dir() else []
    names = (path.name.removesuffix(DRAFTS) for path in paths)
    for name in islice((name for name in names if may_see(request, name)), MOST_LISTED):
        try:
            path, drafts = find_drafts(request, name)
            decided = read_decisions(path, drafts)
        except InputError:
            continue
        found.append({
            "name": name, "slide": drafts.header.slide, "reader": drafts.header.reader,
            "task": drafts.header.task, "drafted_by": drafts.drafted_by,
            "rounds": len(drafts.rounds), "decided": len(decided),
        })  # fmt: skip
    return found


@router.get("/{name}")
def show_drafts(name: str, request: Request) -> dict[str, Any]:
    """Show drafts with the last decision for each round, and the review's times so far."""
    path, drafts = find_drafts(request, name)
    decisions = read_decisions(path, drafts)
    return {
        "name": name,
        "panels": PANELS,
        "header": drafts.header.model_dump(mode="json"),
        "drafted_by": drafts.drafted_by,
        "statement": drafts.statement,
        "rounds": [round_.model_dump(mode="json") for round_ in drafts.rounds],
        "decisions": {n: made.model_dump(mode="json") for n, made in decisions.items()},
        "audit": audit(decisions),
    }


@router.get("/{name}/picture")
def picture(name: str, round: int, kind: Picture, request: Request) -> Response:
    """Send the slide's thumbnail, a round's region, or the crop at its center as JPEG.

    Raises `InputError` if there is no such round, or its slide is not below the roots; the
    response has status 422.
    """
    from mcp_servers.slides.slide import fit

    _, drafts = find_drafts(request, name)
    if not 0 <= round < len(drafts.rounds):
        raise InputError(f"no such round: {round}")
    with request.app.state.tiles.hold(slide_of(request, drafts.header)) as held:
        if kind == "thumbnail":
            image = held.thumbnail(THUMBNAIL_PX)
        else:
            action = drafts.rounds[round].action
            x, y = action.center
            w, h = (action.w, action.h) if kind == "region" else cytology_size(action)
            view = held.slide.scale_to(max(1.0, max(w, h) / REGION_PX))
            left, top = _pixel(x - w / 2, view.scale), _pixel(y - h / 2, view.scale)
            size = (max(1, int(w / view.scale)), max(1, int(h / view.scale)))
            image = fit(view.read(left, top, *size), REGION_PX)
    return Response(
        encode(image), media_type="image/jpeg", headers={"cache-control": "private, max-age=600"}
    )


def _pixel(position: float, scale: float) -> int:
    return int(position / scale + 0.5)


class Made(Strict):
    """A decision about a round, and the time since the round was shown."""

    round: int = Field(ge=0)
    accept: bool
    rationale: Rationale
    reviewer: str = Field(default="", max_length=80)
    seconds: float | None = Field(ge=0, le=86_400, allow_inf_nan=False)


@router.post("/{name}/decisions")
def store_decision(name: str, made: Made, request: Request) -> dict[str, Any]:
    """Store a decision: accepted, revised if the text was changed, or rejected.

    Raises `InputError` if there is no such round, a text is too long, or an accepted rationale is
    empty; the response has status 422.
    """
    path, drafts = find_drafts(request, name)
    if made.accept and not made.rationale.words:
        raise InputError("the rationale is empty; write a rationale, or reject the round")
    decision = decide(
        path, drafts, made.round, made.rationale if made.accept else None,
        person(request, made.reviewer), made.seconds,
    )  # fmt: skip
    return {"state": decision.state, "audit": audit(read_decisions(path, drafts))}
