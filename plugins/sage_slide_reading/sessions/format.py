"""File format for a session: a header, then one view per line (`*.session.jsonl`).

Coordinates are level-0 pixels; a view may extend beyond the slide. Files are untrusted:
their size, line lengths and every number are limited when they are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self, TypeVar

from pydantic import AfterValidator, Field, ValidationError, field_validator, model_validator

from sage.core import clock
from sage.core.errors import InputError, explain_validation
from sage.core.files import write_text
from sage.core.models import Name, Passage, Strict

if TYPE_CHECKING:
    from mcp_servers.slides.slide import Slide

SUFFIX = ".session.jsonl"
MAX_BYTES = 64 << 20
MAX_LINE = 16_384
"""Maximum length of a line, in bytes."""
MAX_EVENTS = 500_000
LONGEST_S = 7 * 86_400.0
FARTHEST = 1e8
"""Maximum distance from the slide's corner, and maximum side, of a view in level-0 pixels."""
LARGEST_SIDE = 10_000_000
ONE_UM = 10.0
"""Product of µm per pixel and magnification: at 10x, a pixel is 1 µm."""
NATIVE_UNKNOWN = 40.0
"""Magnification assumed for level 0 if a slide states neither objective nor mpp."""

EventKind = Literal["open", "pan", "zoom", "resize", "peek", "close"]
Coordinate = Annotated[float, Field(ge=-FARTHEST, le=FARTHEST, allow_inf_nan=False)]
Side = Annotated[float, Field(gt=0, le=FARTHEST, allow_inf_nan=False)]
Pixels = Annotated[int, Field(ge=1, le=LARGEST_SIDE)]
M = TypeVar("M", bound=Strict)


def _require_text(text: str) -> str:
    if not text:
        raise ValueError("must not be empty")
    return text


def _check_time(text: str) -> str:
    datetime.fromisoformat(text)
    return text


Person = Annotated[Name, Field(max_length=80), AfterValidator(_require_text)]
"""A person's name or pseudonym, on one line."""
Moment = Annotated[
    str, Field(max_length=40, description="Time in ISO 8601"), AfterValidator(_check_time)
]


class SessionHeader(Strict):
    """First line of a session file: the slide, the screen, the reader and the task.

    `reader` is a pseudonym; `objective` and `mpp` are as stated by the slide, and null if it
    does not state them.
    """

    format: Literal["sage-session"] = "sage-session"
    version: Literal[1] = 1
    slide: str = Field(min_length=1, max_length=255, description="File name, without folders")
    slide_sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    width: Pixels
    height: Pixels
    mpp: float | None = Field(default=None, gt=0, le=1000, allow_inf_nan=False)
    objective: float | None = Field(default=None, gt=0, le=400, allow_inf_nan=False)
    screen: tuple[Pixels, Pixels]
    reader: Person = Field(description="Pseudonym")
    task: Passage = Field(max_length=500)
    started: Moment
    note: Annotated[Passage, Field(max_length=2000)] | None = None

    @field_validator("slide")
    @classmethod
    def _no_folders(cls, name: str) -> str:
        if re.search(r"[/\\\x00-\x1f\x7f]", name) or name in {".", ".."}:
            raise ValueError("the slide must be a file name, without folders")
        return name

    @property
    def native(self) -> float:
        """Magnification of level 0: the objective, else 10 µm over the pixel size, else 40."""
        if self.objective is not None:
            return self.objective
        return NATIVE_UNKNOWN if self.mpp is None else ONE_UM / self.mpp

    def magnification(self, view_width: float) -> float:
        """Return the magnification of a view that is `view_width` level-0 pixels wide."""
        return self.native * self.screen[0] / view_width


def describe_recording(
    slide: Slide, name: str, *, screen: tuple[int, int], reader: str, task: str,
    note: str | None = None,
) -> SessionHeader:  # fmt: skip
    """Build the header for a session that begins now on an open slide, given its file name."""
    return SessionHeader(
        slide=name, width=slide.width, height=slide.height, mpp=slide.mpp,
        objective=slide.objective_power, screen=screen, reader=reader, task=task,
        started=clock.stamp(), note=note,
    )  # fmt: skip


class ViewEvent(Strict):
    """View on the screen from `t` on: upper left corner and sides in level-0 pixels."""

    t: float = Field(ge=0, le=LONGEST_S, allow_inf_nan=False, description="Seconds since the start")
    kind: EventKind
    x: Coordinate
    y: Coordinate
    w: Side
    h: Side
    magnification: float = Field(gt=0, le=100_000, allow_inf_nan=False)


def kind_of(before: ViewEvent | None, width: float) -> EventKind:
    """Return the kind of event (open, zoom, or pan) that led to a view of this width."""
    if before is None or before.kind == "close":
        return "open"
    return "zoom" if abs(width / before.w - 1) > 1e-3 else "pan"


class Session(Strict):
    """A header and its events, whose times do not decrease."""

    header: SessionHeader
    events: tuple[ViewEvent, ...] = Field(max_length=MAX_EVENTS)

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        for number in range(1, len(self.events)):
            before, after = self.events[number - 1].t, self.events[number].t
            if after < before:
                raise ValueError(
                    f"event {number + 1} is at {after:g} s, but the previous event is at "
                    f"{before:g} s"
                )
        return self

    @property
    def seconds(self) -> float:
        """Seconds from the first event to the last."""
        return self.events[-1].t - self.events[0].t if self.events else 0.0


def read_session(path: Path) -> Session:
    """Read a session from its file.

    An incomplete last line, which a crash during recording can leave, is omitted.

    Raises `InputError` if the file is too large or is not a session, or a line is invalid; the
    message names the line.
    """
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise InputError(f"{path}: {size / 2**20:.0f} MiB; a session has at most 64 MiB")
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    if data.count(b"\n") > 2 * MAX_EVENTS:
        raise InputError(f"{path}: too many lines; a session has at most {MAX_EVENTS} events")
    whole, _, torn = data.rpartition(b"\n")
    lines = whole.split(b"\n") if whole else []
    if not lines:
        lines, torn = ([torn], b"") if torn else ([], b"")
    if not lines:
        raise InputError(f"{path}: the file is empty; a session starts with its header")
    header = _line(SessionHeader, lines[0], path, 1)
    filled = [(number, line) for number, line in enumerate(lines[1:], 2) if line.strip()]
    if len(filled) > MAX_EVENTS:
        raise InputError(f"{path}: {len(filled)} events; a session has at most {MAX_EVENTS}")
    events = [_line(ViewEvent, line, path, number) for number, line in filled]
    try:
        return Session(header=header, events=tuple(events))
    except ValidationError as error:
        raise InputError(f"{path}: {explain_validation(error)}") from None


def read_header(path: Path) -> SessionHeader:
    """Read only the header.

    Raises `InputError` if the first line is not a header.
    """
    try:
        with path.open("rb") as stream:
            line = stream.readline(MAX_LINE + 1)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    return _line(SessionHeader, line.rstrip(b"\n"), path, 1)


def _line(model: type[M], line: bytes, path: Path, number: int) -> M:
    if len(line) > MAX_LINE:
        raise InputError(
            f"{path}: line {number} has {len(line)} bytes, but the maximum is {MAX_LINE}"
        )
    try:
        return model.model_validate_json(line)
    except ValidationError as error:
        reason = explain_validation(error)[:280]
        raise InputError(f"{path}: line {number}: {reason}") from None


def write_session(path: Path, session: Session) -> None:
    """Write a session atomically."""
    lines = [session.header.model_dump_json(), *event_lines(session.events)]
    write_text(path, "\n".join(lines) + "\n")


def event_lines(events: Iterable[ViewEvent]) -> list[str]:
    """Format events as lines of a file, without line endings."""
    return [event.model_dump_json() for event in events]
