"""Import of logs from other viewers: OpenSeadragon, QuPath, ASAP, and Aperio ImageScope.

If a file has times (numbers or ISO 8601), each view lasts until the next view.
Annotations without times are used in file order, each for the same nominal time, and the
session records this. Files are untrusted: their size and counts are limited, XML may
declare no entities, and every number must be finite.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

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
from sage.core.printable import one_line
from sage_slide_reading.sessions.format import (
    MAX_BYTES,
    MAX_EVENTS,
    EventKind,
    Session,
    SessionHeader,
    ViewEvent,
    kind_of,
    read_session,
)

LogKind = Literal["session", "openseadragon", "qupath", "asap", "aperio"]
UNFIT = (ValueError, LookupError, TypeError, AttributeError, RecursionError, ArithmeticError,
         csv.Error)  # fmt: skip
"""Errors that reading a file with a different structure can raise."""
NOMINAL_S = 2.0
"""Nominal duration of a region in seconds if a file has no times."""
TIMES = ("t", "time", "timestamp", "ts", "created", "createdat", "creationtime", "date")


def _parse_time(value: Any) -> float | datetime | None:
    if value is None or value == "":
        return None
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
    """A log entry in any format, with keys matched regardless of case, spaces and underscores.

    It shows a view as `imageBounds` in pixels, as `bounds` in OpenSeadragon's coordinates
    (where the slide is 1 wide), as `center` and `zoom` in those coordinates, as the corners
    of an annotation, or as a row from QuPath's view tracker.
    """

    time: Annotated[float | datetime | None, PlainValidator(_parse_time)] = Field(
        default=None, validation_alias=AliasChoices(*TIMES)
    )
    kind: EventKind | None = Field(default=None, validation_alias=AliasChoices("event", "type"))
    imagebounds: Rectangle | None = None
    bounds: Rectangle | None = None
    center: Point | None = None
    zoom: Positive | None = None
    corners: list[tuple[Finite, Finite]] = []
    tracked: Rectangle | None = None
    downsample: Positive | None = Field(
        default=None, validation_alias=AliasChoices("downsamplefactor", "downsample")
    )

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

    @field_validator("zoom", mode="before")
    @classmethod
    def _known_zoom(cls, zoom: Any) -> Any:
        return None if zoom in ("", "0") else zoom

    def box(self, header: SessionHeader) -> tuple[float, float, float, float] | None:
        """Return x, y, width and height in level-0 pixels, or None if the entry shows no view."""
        if (box := self.imagebounds or self.tracked) is not None:
            return box.x, box.y, box.width, box.height
        scale = header.width
        if (box := self.bounds) is not None:
            return scale * box.x, scale * box.y, scale * box.width, scale * box.height
        if self.center is not None and self.zoom is not None:
            width = scale / self.zoom
            height = width * header.screen[1] / header.screen[0]
            return (
                scale * self.center.x - width / 2, scale * self.center.y - height / 2, width, height
            )  # fmt: skip
        if not self.corners:
            return None
        xs, ys = zip(*self.corners, strict=True)
        x, y = min(xs), min(ys)
        return x, y, max(max(xs) - x, 1.0), max(max(ys) - y, 1.0)

    def power(self, header: SessionHeader, width: float) -> float:
        """Return the view's magnification, by default derived from its width on the screen."""
        if self.downsample is not None:
            return header.native / self.downsample
        if self.corners and self.zoom is not None:
            return self.zoom * header.native
        return min(header.magnification(width), header.native)


def read_log(
    path: Path, header: SessionHeader, kind: LogKind | None = None, second: float = 1000.0
) -> Session:
    """Convert another viewer's log to a session.

    Parameters
    ----------
    header : header for the new session, with the slide's size
    kind : program that wrote the log; None to detect it from the content
    second : units of the log's numeric times in one second; 1000 for ms

    Raises
    ------
    InputError
        If the file is too large, is not such a log, or contains no views of the slide.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InputError(f"{path}: larger than {MAX_BYTES >> 20} MiB")
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    kind = kind or _detect_kind(data)
    if kind is None:
        raise InputError(
            f"{path}: unknown log format; specify it with --format: {', '.join(get_args(LogKind))}"
        )
    if kind == "session":
        return read_session(path)
    try:
        return _make_session(_parse_entries(READERS[kind](data)), header, second)
    except ValidationError as error:
        raise InputError(f"{path}: {explain_validation(error)[:280]}") from None
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except UNFIT:
        raise InputError(f"{path}: not in the format of {kind}") from None


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
    if len(seen) >= MAX_EVENTS:
        raise InputError(f"{len(seen)} views; a session has at most {MAX_EVENTS}")
    times = [
        entry.time.timestamp() if isinstance(entry.time, datetime) else entry.time / second
        for entry, _ in seen
        if entry.time is not None
    ]
    if times and len(times) < len(seen):
        raise InputError(f"{len(seen) - len(times)} of {len(seen)} views have no time")
    timed = bool(times)
    if timed:
        order = sorted(range(len(seen)), key=times.__getitem__)
        seen, times = [seen[at] for at in order], [times[at] - times[order[0]] for at in order]
    else:
        times = [NOMINAL_S * number for number in range(len(seen))]
        note = (
            f"The log has no times: each region counts for {NOMINAL_S:g} s, in the order of "
            "the log."
        )
        header = header.model_copy(update={"note": f"{header.note or ''} {note}".strip()})
    events: list[ViewEvent] = []
    for time, (entry, (x, y, w, h)) in zip(times, seen, strict=True):
        kind = entry.kind or kind_of(events[-1] if events else None, w)
        events.append(
            ViewEvent(t=round(time, 4), kind=kind, x=x, y=y, w=w, h=h,
                      magnification=entry.power(header, w))
        )  # fmt: skip
    if not timed:
        last = events[-1]
        events.append(last.model_copy(update={"t": last.t + NOMINAL_S, "kind": "close"}))
    return Session(header=header, events=tuple(events))


def _detect_kind(data: bytes) -> LogKind | None:
    head = data[:4096].lstrip(b"\xef\xbb\xbf \t\r\n")
    if head.startswith(b"<"):
        return (
            "asap" if b"ASAP_Annotations" in head else "aperio" if b"<Annotation" in head else None
        )
    if b'"sage-session"' in head.split(b"\n", 1)[0]:
        return "session"
    if head.startswith((b"{", b"[")):
        return "qupath" if b"FeatureCollection" in head or b'"Feature"' in head else "openseadragon"
    first = head.split(b"\n", 1)[0].lower()
    return "qupath" if b"timestamp" in first and b"width" in first else None


def _openseadragon(data: bytes) -> Iterable[Any]:
    """Read events from JSON (a list, or under `events`), or from one JSON object per line."""
    text = data.decode("utf-8-sig").strip()
    if text.startswith("{") and "\n" in text and not text.startswith(('{"events"', "{\n")):
        return [json.loads(line) for line in text.split("\n") if line.strip()]
    read: Any = json.loads(text)
    events: Iterable[Any] = read["events"] if isinstance(read, dict) else read
    return events


def _qupath(data: bytes) -> Iterable[Any]:
    """Read a recording from QuPath's view tracker (tab-separated), or annotations as GeoJSON."""
    text = data.decode("utf-8-sig")
    if text.lstrip().startswith(("{", "[")):
        read = json.loads(text)
        for feature in read["features"] if isinstance(read, dict) else read:
            said = feature.get("properties") or {}
            numbers = said.get("measurements") or said.get("metadata") or {}
            corners = list(_flatten(feature["geometry"]["coordinates"]))
            own = numbers if isinstance(numbers, dict) else {}
            yield {**own, **said, "type": None, "corners": corners}
        return
    for row in csv.DictReader(io.StringIO(text), delimiter="\t"):
        named = {str(key).strip().lower(): value for key, value in row.items()}
        yield {**named, "tracked": named}


def _flatten(coordinates: Any) -> Iterable[tuple[Any, Any]]:
    if coordinates and not isinstance(coordinates[0], list):
        yield coordinates[0], coordinates[1]
        return
    for part in coordinates:
        yield from _flatten(part)


def _read_xml(data: bytes, entry: str, point: str) -> Iterable[Any]:
    """Read elements whose corners are elements with X and Y.

    Aperio's `Region` elements have the `Zoom` at which they were drawn; ASAP uses
    `Annotation`.
    """
    from defusedxml.common import DefusedXmlException
    from defusedxml.ElementTree import ParseError, fromstring

    try:
        root = fromstring(data, forbid_dtd=True)
    except (ParseError, DefusedXmlException) as error:
        raise InputError(f"unsupported XML: {one_line(str(error))[:120]}") from None
    for element in root.iter(entry):
        corners = [(corner.get("X"), corner.get("Y")) for corner in element.iter(point)]
        yield {**element.attrib, "type": None, "corners": corners}


READERS: Mapping[LogKind, Callable[[bytes], Iterable[Any]]] = {
    "openseadragon": _openseadragon,
    "qupath": _qupath,
    "asap": lambda data: _read_xml(data, "Annotation", "Coordinate"),
    "aperio": lambda data: _read_xml(data, "Region", "Vertex"),
}
"""Reader for each log format, which returns the entries' keys and values."""
