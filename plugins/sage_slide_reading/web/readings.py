"""Slide readings on the web pages: started, followed, interrupted, and replayed."""

from __future__ import annotations

import os
import re
import secrets
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Request
from pydantic import Field

from sage.core import clock
from sage.core.errors import InputError
from sage.core.files import append_line, read_json, write_json
from sage.core.models import Strict, read_model
from sage.core.printable import ForeignText
from sage.web.people import check_count, person
from sage.web.routes.slides import escape_glob, resolve_allowed, slide_file
from sage_slide_reading.reader.export import READING, geojson_name, holder
from sage_slide_reading.reader.person import NOW, SAID, STEPS, Intervention, Now
from sage_slide_reading.reader.types import Reading, make_question

if TYPE_CHECKING:
    from sage.web.site import Site

router = APIRouter(prefix="/slides/readings")
FOLDER = ".readings"
NAME = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{8}")
ASKED = "asked.json"
MOST_BYTES = 32 << 20
"""Maximum size of a reading, in bytes."""
MOST_SAID = 1 << 20
"""Maximum size of a reading's interventions, in bytes."""
MOST_LISTED = 60
MOST_RUNNING = 2
STARTING = threading.Lock()

Option = Annotated[str, Field(min_length=1, max_length=200)]


class Asking(Strict):
    """A question about a slide, as the page sends it."""

    slide: str
    person: str = Field(default="", max_length=80)
    question: str = Field(min_length=3, max_length=1000)
    answers: tuple[Option, ...] = Field(default=(), max_length=26)
    magnification: float = Field(default=5.0, gt=0, le=40)
    patch_px: int = Field(default=256, ge=64, le=2048)
    rounds: int = Field(default=5, ge=1, le=20)
    pause: bool = Field(default=False, description="Pause at every step, starting with the first")


class Asked(Strict):
    """Content of `asked.json` for a reading started from a page."""

    slide: str = ""
    by: str = ""
    at: str = ""
    question: str = ""
    answers: tuple[str, ...] = ()


class Named(Strict):
    """Request that names a reading."""

    reading: str


class Word(Intervention, Named):
    """A person's message to a reader."""

    person: str = Field(default="", max_length=80)


def _home(site: Site) -> Path:
    return site.settings.runs_dir / FOLDER


def _own(site: Site, name: str) -> Path:
    """Return the folder of a reading that was started from a page."""
    if not NAME.fullmatch(name) or not (_home(site) / name / ASKED).is_file():
        raise InputError("no such reading")
    return _home(site) / name


def _state(request: Request, folder: Path) -> str:
    """Return a reading's state as a single word."""
    commands, name = request.app.state.commands, f"reading-{folder.name}"
    if holder(folder) is not None or commands.alive(name):
        if not (folder / NOW).is_file():
            return "starting"
        return "waiting" if read_model(folder / NOW, Now).waiting else "running"
    if (folder / READING).is_file():
        return "finished"
    return "failed" if commands.failure(name) else "stopped"


def _list_own(request: Request) -> list[tuple[Path, Asked, str]]:
    """List the readings that were started from pages, newest first, with their states."""
    home = _home(request.app.state.site).resolve()
    return [
        (folder, read_model(folder / ASKED, Asked), _state(request, folder))
        for folder in (sorted(home.iterdir(), reverse=True) if home.is_dir() else ())
        if NAME.fullmatch(folder.name) and (folder / ASKED).is_file()
    ]


@router.get("")
def list_readings(path: str, request: Request) -> list[dict[str, Any]]:
    """List a slide's readings, newest first, from this server and the `--root` folders."""
    from mcp_servers.slides.slide import slide_name

    site: Site = request.app.state.site
    slide = slide_file(request, path)
    found = [
        {**asked.model_dump(exclude={"slide"}), "reading": folder.name, "state": state}
        for folder, asked, state in _list_own(request)
        if asked.slide == str(slide)
    ][:MOST_LISTED]
    home = _home(site).resolve()
    for root in site.roots:
        for file in sorted(root.rglob(escape_glob(geojson_name(slide_name(slide)))))[:MOST_LISTED]:
            real = file.parent.resolve()
            if (real / READING).is_file() and real.is_relative_to(root) and real.parent != home:
                other = {"reading": str(file.parent), "state": "finished"}
                found.append(Asked().model_dump(exclude={"slide"}) | other)
    return found


@router.get("/one")
def show_reading(path: str, reading: str, request: Request) -> dict[str, Any]:
    """Show a reading's steps so far, and the reader's current activity.

    `reading` is its name if started from a page, or its folder below a `--root` folder.

    Raises `InputError` if there is no such reading, it is for another slide, or its file is
    damaged; the response has status 422.
    """
    site: Site = request.app.state.site
    slide = slide_file(request, path)
    own = bool(NAME.fullmatch(reading))
    if own:
        folder = _own(site, reading)
        asked, state = read_model(folder / ASKED, Asked), _state(request, folder)
        if asked.slide != str(slide):
            raise InputError("this reading is for another slide")
    else:
        folder = resolve_allowed(site, reading, lambda at: (at / READING).is_file())
        asked, state = Asked(), "finished"
    final, steps, now = None, [], None
    if state == "finished":
        if (folder / READING).stat().st_size > MOST_BYTES:
            raise InputError(f"{folder.name}: this reading is too large to show")
        final = read_model(folder / READING, Reading)
        opened = request.app.state.tiles.slide(slide)
        if (final.slide, final.size) != (opened.name, (opened.width, opened.height)):
            raise InputError("this reading is for another slide")
        kept = {"question": final.question.text, "answers": final.question.options}
        asked = asked.model_copy(update=kept)
        steps = [step.model_dump(mode="json") for step in final.steps]
    elif (folder / STEPS).is_file():
        steps = read_json(folder / STEPS)
    if state in ("running", "waiting"):
        now = read_json(folder / NOW)
    return {
        **asked.model_dump(exclude={"slide"}),
        "reading": reading,
        "own": own,
        "state": state,
        "problem": request.app.state.commands.failure(f"reading-{folder.name}") if own else "",
        "now": now,
        "steps": steps,
        "final": final and final.model_dump(mode="json", exclude={"steps"}),
    }


@router.post("")
def start(asking: Asking, request: Request) -> dict[str, str]:
    """Read a slide by running `sage reading read` in a separate process.

    Raises `InputError` if the question is invalid, the person's daily slide quota is used up,
    somebody already controls this slide's view, or too many readings are running; the response has
    status 422.
    """
    slide = slide_file(request, asking.slide)
    who = ForeignText(person(request, asking.person))
    check_count(request)
    question = make_question(asking.question, asking.answers)
    with STARTING:
        busy = ("starting", "running", "waiting")
        running = [asked for _, asked, state in _list_own(request) if state in busy]
        for asked in running:
            if asked.slide == str(slide):
                raise InputError(
                    f"{asked.by} already started a reading of this slide ({asked.question}); "
                    "wait for it, or stop it"
                )
        if len(running) >= MOST_RUNNING:
            raise InputError(f"{len(running)} slides are being read; wait until a reading finishes")
        name = f"{clock.now():%Y%m%d-%H%M%S}-{secrets.token_hex(4)}"
        folder = _home(request.app.state.site) / name
        folder.mkdir(parents=True)
        asked = Asked(slide=str(slide), by=who, at=clock.stamp(), question=question.text,
                      answers=question.options)  # fmt: skip
        write_json(folder / ASKED, asked)
        request.app.state.commands.start(
            f"reading-{name}", "reading", "read", f"--out={folder}", "--replace",
            "--intervene-from-page", f"--magnification={asking.magnification}",
            f"--patch-px={asking.patch_px}", f"--rounds={asking.rounds}",
            *(f"--answer={answer}" for answer in asking.answers),
            *(["--pause"] if asking.pause else []), "--", str(slide), asking.question,
        )  # fmt: skip
    return {"reading": name}


@router.post("/say")
def say(word: Word, request: Request) -> dict[str, bool]:
    """Change, pause, or continue a running reading.

    Raises `InputError` if the reading is not running, or the change cannot be made; the response
    has status 422.
    """
    folder = _own(request.app.state.site, word.reading)
    if _state(request, folder) not in ("running", "waiting"):
        raise InputError("the reader is not running")
    file = folder / SAID
    if file.is_file() and file.stat().st_size > MOST_SAID:
        raise InputError("this reading has too many messages; start a new reading")
    if not word.describe() and word.pause is None and not word.go:
        raise InputError("the message contains no change")
    if (box := word.region) is not None:
        slide = request.app.state.tiles.slide(Path(read_model(folder / ASKED, Asked).slide))
        if not box.is_within(slide.width, slide.height):
            raise InputError("the region is not on the slide")
    if word.edit is not None and not word.edit[1].strip():
        raise InputError("the description is empty")
    by = ForeignText(person(request, word.person), longest=80)
    said = word.model_dump(exclude={"reading", "person"}) | {"by": by}
    append_line(file, Intervention(**said).model_dump_json())
    return {"said": True}


@router.post("/stop")
def stop(named: Named, request: Request) -> dict[str, bool]:
    """Interrupt the reader as with Ctrl-C, keeping what it has seen.

    Raises `InputError` if the reading is not running.
    """
    folder = _own(request.app.state.site, named.reading)
    if request.app.state.commands.interrupt(f"reading-{folder.name}"):
        return {"stopped": True}
    held = holder(folder)
    if not held or held <= 1:
        raise InputError("the reader is not running")
    os.kill(held, signal.SIGINT)
    return {"stopped": True}
