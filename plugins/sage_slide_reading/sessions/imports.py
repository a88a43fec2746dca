"""Import of viewers' logs: OpenSeadragon's events, and recordings of QuPath's view tracker.

Times are numbers or ISO 8601; each view lasts until the next view. Files are untrusted:
their size and counts are limited, and every number must be finite.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AliasChoices,
    BaseModel,
    Field,
    PlainValidator,
    ValidationError,
    field_validator,
    model_validator,
)

from sage.core.errors import InputError, explain_validation
from sage_slide_reading.sessions.format import (
    MAX_BYTES,
    MAX_EVENTS,
    EventKind,
    Session,
    SessionHeader,
    ViewEvent,
    kind_of,
)

UNFIT = (ValueError, LookupError, TypeError, AttributeError, RecursionError, ArithmeticError,
         csv.Error)  # fmt: skip
"""Errors that reading a file with a different structure can raise."""
TIMES = ("t", "time", "timestamp", "ts", "date")


def _parse_time(value: Any) -> float | datetime:
    try:
        number = float(value)
    except (ValueError, TypeError):
        # without a zone, assume UTC, since this machine's zone may change its clock in between
        try:
            at = datetime.fromisoformat(str(value).strip()[:40])
        except ValueError:
            raise ValueError("expected a number or an ISO 8601 time") from None
        return at if at.tzinfo else at.replace(tzinfo=UTC)
    if not math.isfinite(number):
        raise ValueError("expected a finite number")
    return number


Finite = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Point(BaseModel):
    """A point, in the log's unit."""

    x: Finite
    y: Finite


class Rectangle(Point):
    """A box, in the log's unit."""

    width: Positive
    height: Positive


class Entry(BaseModel):
    """A log entry, with keys matched regardless of case, spaces and underscores.

    It shows a view as `imageBounds` in pixels (as the rows of QuPath's view tracker do), as
    `bounds` in OpenSeadragon's coordinates (where the slide is 1 wide), or as `center` and
    `zoom` in those coordinates.
    """

    time: Annotated[float | datetime | None, PlainValidator(_parse_time)] = Field(
        default=None, validation_alias=AliasChoices(*TIMES)
    )
    kind: EventKind | None = Field(default=None, validation_alias=AliasChoices("event", "type"))
    imagebounds: Rectangle | None = None
    bounds: Rectangle | None = None
    center: Point | None = None
    zoom: Positive | None = None
    downsamplefactor: Positive | None = None

    @model_validator(mode="before")
    @classmethod
    def _plain_keys(cls, entry: Any) -> Any:
        if not isinstance(entry, Mapping):
            return entry
        return {
            str(key).strip().lower().replace("_", "").replace(" ", ""): value
            for key, value in entry.items()
        }

    @field_validator("kind", mode="before")
    @classmethod
    def _known_kind(cls, kind: Any) -> Any:
        return kind if kind in ("open", "close", "resize", "peek") else None

    def box(self, header: SessionHeader) -> tuple[float, float, float, float] | None:
        """Return x, y, width and height in level-0 pixels, or None if the entry shows no view."""
        if (box := self.imagebounds) is not None:
            return box.x, box.y, box.width, box.height
        scale = header.width
        if (box := self.bounds) is not None:
            return scale * box.x, scale * box.y, scale * box.width, scale * box.height
        if self.center is None or self.zoom is None:
            return None
        width = scale / self.zoom
        height = width * header.screen[1] / header.screen[0]
        return scale * self.center.x - width / 2, scale * self.center.y - height / 2, width, height

    def power(self, header: SessionHeader, width: float) -> float:
        """Return the view's magnification, by default derived from its width on the screen."""
        if self.downsamplefactor is not None:
            return header.native / self.downsamplefactor
        return min(header.magnification(width), header.native)


def read_log(path: Path, header: SessionHeader, second: float = 1000.0) -> Session:
    """Convert another viewer's log to a session.

    Parameters
    ----------
    header : header for the new session, with the slide's size
    second : units of the log's numeric times in one second; 1000 for ms

    Raises `InputError` if the file is too large, is not such a log, or contains no views of the
    slide.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InputError(f"{path}: larger than {MAX_BYTES >> 20} MiB")
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    try:
        return _make_session(_parse_entries(_read(data.decode("utf-8-sig"))), header, second)
    except ValidationError as error:
        raise InputError(f"{path}: {explain_validation(error)[:280]}") from None
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except UNFIT:
        raise InputError(f"{path}: not a log of OpenSeadragon or QuPath's view tracker") from None


def _read(text: str) -> Iterable[Any]:
    """Read JSON (a list, or under `events`), one JSON object per line, or tab-separated rows."""
    text = text.strip()
    if text.startswith("{") and "\n" in text and not text.startswith(('{"events"', "{\n")):
        return [json.loads(line) for line in text.split("\n") if line.strip()]
    if text.startswith(("{", "[")):
        read: Any = json.loads(text)
        events: Iterable[Any] = read["events"] if isinstance(read, dict) else read
        return events
    rows = csv.DictReader(io.StringIO(text), delimiter="\t")
    named = ({str(key).strip().lower(): value for key, value in row.items()} for row in rows)
    return ({**row, "imagebounds": row} for row in named)


def _parse_entries(raw: Iterable[Any]) -> list[Entry]:
    """Parse a log's entries; errors give the entry's number, starting at 1."""
    found = []
    for number, entry in enumerate(raw, 1):
        try:
            found.append(Entry.model_validate(entry))
        except ValidationError as error:
            raise InputError(f"entry {number}: {explain_validation(error)[:200]}") from None
    return found


def _make_session(entries: Sequence[Entry], header: SessionHeader, second: float) -> Session:
    seen = [(entry, box) for entry in entries if (box := entry.box(header)) is not None]
    if not seen:
        raise InputError("the log contains no views")
    width, height = header.width, header.height
    if not any(x < width and y < height and x + w > 0 and y + h > 0 for _, (x, y, w, h) in seen):
        raise InputError(
            f"no views on {header.slide} ({width} x {height} pixels); check that the log is "
            "for this slide"
        )
    if len(seen) > MAX_EVENTS:
        raise InputError(f"{len(seen)} views; a session has at most {MAX_EVENTS}")
    times = [
        entry.time.timestamp() if isinstance(entry.time, datetime) else entry.time / second
        for entry, _ in seen
        if entry.time is not None
    ]
    if len(times) < len(seen):
        raise InputError(f"{len(seen) - len(times)} of {len(seen)} views have no time")
    start, events = min(times), list[ViewEvent]()
    for at in sorted(range(len(seen)), key=times.__getitem__):
        entry, (x, y, w, h) = seen[at]
        kind = entry.kind or kind_of(events[-1] if events else None, w)
        events.append(
            ViewEvent(t=round(times[at] - start, 4), kind=kind, x=x, y=y, w=w, h=h,
                      magnification=entry.power(header, w))
        )  # fmt: skip
    return Session(header=header, events=tuple(events))
