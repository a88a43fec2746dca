"""Slide readings on the web pages: started, followed, interrupted, and replayed from a trace."""

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
from sage.core.files import write_json
from sage.core.models import Strict, read_model
from sage.core.printable import ForeignText
from sage.web.people import check_count, person
from sage.web.routes.slides import escape_glob, resolve_allowed, slide_file
from sage_slide_reading.reader.algorithm import Intervention
from sage_slide_reading.reader.types import make_question

if TYPE_CHECKING:
    from sage.web.site import Site

router = APIRouter(prefix="/slides/readings")
FOLDER = ".readings"
NAME = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{8}")
ASKED, TRACE = "asked.json", "trace.jsonl"
MOST_BYTES = 32 << 20
"""Maximum size of a trace, in bytes."""
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

    slide: str
    by: str
    at: str
    question: str
    answers: tuple[str, ...]


class Word(Intervention):
    """A person's message to a reader: changes, a pause, or permission to continue."""

    reading: str
    person: str = Field(default="", max_length=80)
    pause: bool | None = None
    go: bool = False


def _home(site: Site) -> Path:
    return site.settings.runs_dir / FOLDER


def _own(site: Site, name: str) -> Path:
    """Return the folder of a reading that was started from a page."""
    if not NAME.fullmatch(name) or not (_home(site) / name / ASKED).is_file():
        raise InputError("no such reading")
    return _home(site) / name


def _state(request: Request, folder: Path) -> str:
    """Return a reading's state as a single word."""
    from sage_slide_reading.reader.export import holder
    from sage_slide_reading.reader.person import NOW, Now

    begun = (folder / TRACE).is_file()
    if holder(folder) is not None:
        if (folder / NOW).is_file() and read_model(folder / NOW, Now).waiting:
            return "waiting"
        return "running" if begun else "starting"
    if request.app.state.commands.alive(f"reading-{folder.name}"):
        return "running" if begun else "starting"
    if (folder / "reading.json").is_file():
        return "finished"
    return "failed" if request.app.state.commands.failure(f"reading-{folder.name}") else "stopped"


@router.get("")
def list_readings(path: str, request: Request) -> list[dict[str, Any]]:
    """List a slide's readings, newest first, from this server and the `--root` folders."""
    from mcp_servers.slides.slide import slide_name
    from sage_slide_reading.reader.export import geojson_name

    site: Site = request.app.state.site
    slide = slide_file(request, path)
    found = []
    home = _home(site).resolve()
    for folder in sorted(home.iterdir(), reverse=True) if home.is_dir() else []:
        if NAME.fullmatch(folder.name) and (folder / ASKED).is_file():
            asked = read_model(folder / ASKED, Asked)
            if asked.slide == str(slide):
                said = asked.model_dump(exclude={"slide"})
                found.append({**said, "reading": folder.name, "state": _state(request, folder)})
        if len(found) >= MOST_LISTED:
            break
    for root in site.roots:
        for file in sorted(root.rglob(escape_glob(geojson_name(slide_name(slide)))))[:MOST_LISTED]:
            folder = file.parent
            real = folder.resolve()
            if (folder / TRACE).is_file() and real.is_relative_to(root) and real.parent != home:
                found.append({"by": "", "at": "", "question": "", "answers": (),
                              "reading": str(folder), "state": "finished"})  # fmt: skip
    return found


@router.get("/one")
def show_reading(path: str, reading: str, request: Request) -> dict[str, Any]:
    """Show a reading's path over its slide so far, and the reader's current activity.

    `reading` is its name if started from a page, or its folder below a `--root` folder.

    Raises
    ------
    InputError
        If there is no such reading, it is for another slide, or its trace does not fit; the
        response has status 422.
    """
    from sage.core.llm.trace import read_trace
    from sage_slide_reading.reader.path import path_of
    from sage_slide_reading.reader.person import NOW, Now

    site: Site = request.app.state.site
    slide = slide_file(request, path)
    own = bool(NAME.fullmatch(reading))
    if own:
        folder = _own(site, reading)
        asked = read_model(folder / ASKED, Asked)
        if asked.slide != str(slide):
            raise InputError("this reading is for another slide")
        said: dict[str, Any] = asked.model_dump(exclude={"slide"})
    else:
        folder = resolve_allowed(site, reading, lambda at: (at / TRACE).is_file())
        said = {"by": "", "at": "", "question": "", "answers": ()}
    state = _state(request, folder) if own else "finished"
    trace = folder / TRACE
    if not trace.is_file():
        lines = []
    elif trace.stat().st_size > MOST_BYTES:
        raise InputError(f"{folder.name}: this trace is too large to show")
    else:
        lines = read_trace(trace)
    way = path_of(lines) if lines else None
    final = way.reading if way else None
    if final is not None and not own:
        said |= {"question": final.question.text, "answers": final.question.options}
        opened = request.app.state.tiles.slide(slide)
        if (final.slide, final.size) != (opened.name, (opened.width, opened.height)):
            raise InputError("this reading is for another slide")
    now = read_model(folder / NOW, Now) if own and (folder / NOW).is_file() else None
    problem = request.app.state.commands.failure(f"reading-{folder.name}") if own else ""
    return {
        **said,
        "reading": reading,
        "own": own,
        "state": state,
        "problem": problem or (way.problem if way else ""),
        "now": now.model_dump(mode="json") if now and state in ("running", "waiting") else None,
        "before": way.before if way else (),
        "visits": [visit.model_dump(mode="json") for visit in way.visits] if way else [],
        "rests_on": final.rests_on if final else (),
        "answer": final.answer if final else None,
        "reasoning": final.reasoning if final else "",
        "statement": final.statement if final else "",
        "read": final.read.model_dump() if final else None,
    }


@router.post("")
def start(asking: Asking, request: Request) -> dict[str, str]:
    """Read a slide by running `sage reading read` in a separate process.

    Raises
    ------
    InputError
        If the question is invalid, the person's daily slide quota is used up, somebody
        already controls this slide's view, or too many readings are running; the response has
        status 422.
    """
    site: Site = request.app.state.site
    slide = slide_file(request, asking.slide)
    who = ForeignText(person(request, asking.person))
    check_count(request)
    question = make_question(asking.question, asking.answers)
    home = _home(site)
    with STARTING:
        running = [
            (folder, read_model(folder / ASKED, Asked))
            for folder in (sorted(home.iterdir()) if home.is_dir() else [])
            if (folder / ASKED).is_file()
            and _state(request, folder) in ("starting", "running", "waiting")
        ]
        for _, asked in running:
            if asked.slide == str(slide):
                raise InputError(
                    f"{asked.by} already started a reading of this slide ({asked.question}); "
                    "wait for it, or stop it"
                )
        if len(running) >= MOST_RUNNING:
            raise InputError(f"{len(running)} slides are being read; wait until a reading finishes")
        name = f"{clock.now():%Y%m%d-%H%M%S}-{secrets.token_hex(4)}"
        folder = home / name
        folder.mkdir(parents=True)
        asked = Asked(slide=str(slide), by=who, at=clock.stamp(), question=question.text,
                      answers=question.options)  # fmt: skip
        write_json(folder / ASKED, asked)
        request.app.state.commands.start(
            f"reading-{name}", "reading", "read", f"--out={folder}", "--replace",
            "--intervene-from-page",
            f"--by={who!s}", f"--magnification={asking.magnification}",
            f"--patch-px={asking.patch_px}", f"--rounds={asking.rounds}",
            *(f"--answer={answer}" for answer in asking.answers),
            *(["--pause"] if asking.pause else []), "--", str(slide), asking.question,
        )  # fmt: skip
    return {"reading": name}


@router.post("/say")
def say(word: Word, request: Request) -> dict[str, bool]:
    """Change, pause, or continue a running reading.

    Raises
    ------
    InputError
        If the reading is not running, or the change cannot be made; the response has status
        422.
    """
    from sage_slide_reading.reader.person import MOST_SAID, NOW, SAID, Said
    from sage_slide_reading.reader.person import say as leave

    folder = _own(request.app.state.site, word.reading)
    if _state(request, folder) not in ("running", "waiting") or not (folder / NOW).is_file():
        raise InputError("the reader is not running")
    file = folder / SAID
    if file.is_file() and file.stat().st_size > MOST_SAID - 8192:
        raise InputError("this reading has too many messages; start a new reading")
    change = Intervention(**{name: getattr(word, name) for name in Intervention.model_fields})
    changed = change != Intervention()
    if not changed and word.pause is None and not word.go:
        raise InputError("the message contains no change")
    if (box := word.region) is not None:
        slide = request.app.state.tiles.slide(Path(read_model(folder / ASKED, Asked).slide))
        if not box.is_within(slide.width, slide.height):
            raise InputError("the region is not on the slide")
    if word.edit is not None and not word.edit[1].strip():
        raise InputError("the description is empty")
    by = ForeignText(person(request, word.person), longest=80)
    said = Said(at=clock.stamp(), by=by, change=change if changed else None, pause=word.pause,
                go=word.go)  # fmt: skip
    leave(folder, said)
    return {"said": True}


class Named(Strict):
    """Request that names a reading."""

    reading: str


@router.post("/stop")
def stop(named: Named, request: Request) -> dict[str, bool]:
    """Interrupt the reader as with Ctrl-C, keeping its trace.

    Raises
    ------
    InputError
        If the reading is not running.
    """
    from sage_slide_reading.reader.export import holder

    folder = _own(request.app.state.site, named.reading)
    if request.app.state.commands.interrupt(f"reading-{folder.name}"):
        return {"stopped": True}
    held = holder(folder)
    if held is None or held[1] <= 1:
        raise InputError("the reader is not running")
    os.kill(held[1], signal.SIGINT)
    return {"stopped": True}
