"""Import of logs from other viewers: OpenSeadragon, QuPath, ASAP, and Aperio ImageScope.

If a file has times (numbers or ISO 8601), each view lasts until the next one. Annotations without
times are used in file order, each for the same nominal time, and the session records this.
Files are untrusted: their size and counts are bounded, XML may declare no entities, and every
number must be finite.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, cast, get_args

from pydantic import ValidationError

from sage.core.errors import InputError, explain_validation
from sage.core.printable import one_line
from sage_slide_reading.sessions.format import (
    FARTHEST,
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
"""Errors that reading a file with another structure can raise."""
Sides = tuple[float, float, float, float]
NOMINAL_S = 2.0
"""Nominal duration of a region in seconds if a file has no times."""
TIMES = ("t", "time", "timestamp", "ts", "created", "createdat", "creationtime", "date")


@dataclass(frozen=True)
class Seen:
    """A box in a log, in level-0 pixels, with time and magnification if given."""

    x: float
    y: float
    w: float
    h: float
    seconds: float | None = None
    magnification: float | None = None
    kind: str = ""


def read_log(
    path: Path, header: SessionHeader, kind: LogKind | None = None, second: float = 1000.0
) -> Session:
    """Convert a log of another viewer to a session.

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
    kind = kind or _kind(data)
    if kind is None:
        raise InputError(
            f"{path}: unknown log format; specify it with --format: {', '.join(get_args(LogKind))}"
        )
    if kind == "session":
        return read_session(path)
    try:
        return _session(READERS[kind](data, header, second), header)
    except ValidationError as error:
        raise InputError(f"{path}: {explain_validation(error)[:280]}") from None
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except UNFIT as error:
        raise InputError(f"{path}: not in the format of {kind}{_lacking(error)}") from None


def _each(
    entries: Iterable[Any], kind: LogKind, what: str, read: Callable[[Any], Seen | None]
) -> list[Seen]:
    """Parse the entries of a log; errors name the entry by its number, starting at 1."""
    found = []
    for number, entry in enumerate(entries, 1):
        try:
            seen = read(entry)
        except InputError as error:
            raise InputError(f"{what} {number}: {error}") from None
        except UNFIT as error:
            raise InputError(
                f"{what} {number} is not in the format of {kind}{_lacking(error)}"
            ) from None
        if seen is not None:
            where = f"{seen.x:g},{seen.y:g},{seen.w:g},{seen.h:g}"
            if (
                min(seen.w, seen.h) <= 0
                or max(map(abs, (seen.x, seen.y, seen.w, seen.h))) > FARTHEST
            ):
                raise InputError(f"{what} {number}: x,y,w,h = {where} is not a view of a slide")
            found.append(seen)
    return found


def _lacking(error: Exception) -> str:
    """Return the name of the missing field."""
    return f': "{one_line(str(error.args[0]))[:40]}" is missing' if type(error) is KeyError else ""


def _session(seen: Sequence[Seen], header: SessionHeader) -> Session:
    if not seen:
        raise InputError("the log contains no views")
    width, height = header.width, header.height
    if not any(v.x < width and v.y < height and v.x + v.w > 0 and v.y + v.h > 0 for v in seen):
        raise InputError(
            f"no view is on {header.slide} of {width} x {height} pixels; check that the log is "
            "of this slide"
        )
    if len(seen) >= MAX_EVENTS:
        raise InputError(f"{len(seen)} views; a session has at most {MAX_EVENTS}")
    timed = [view.seconds is not None for view in seen]
    if any(timed) and not all(timed):
        raise InputError(f"{timed.count(False)} of {len(seen)} views have no time")
    views = list(seen)
    if all(timed):
        views.sort(key=lambda view: view.seconds or 0.0)
        begun = views[0].seconds or 0.0
        times = [(view.seconds or 0.0) - begun for view in views]
    else:
        times = [NOMINAL_S * number for number in range(len(views))]
        note = (
            f"The log has no times: each region counts for {NOMINAL_S:g} s, in the order of "
            "the log."
        )
        header = header.model_copy(update={"note": f"{header.note or ''} {note}".strip()})
    events: list[ViewEvent] = []
    for time, view in zip(times, views, strict=True):
        power = view.magnification or min(header.magnification(view.w), header.native)
        kind = view.kind or kind_of(events[-1] if events else None, view.w)
        events.append(
            ViewEvent(t=round(time, 4), kind=cast(EventKind, kind), x=view.x, y=view.y, w=view.w,
                      h=view.h, magnification=power)
        )  # fmt: skip
    if not all(timed):
        last = events[-1]
        events.append(last.model_copy(update={"t": last.t + NOMINAL_S, "kind": "close"}))
    return Session(header=header, events=tuple(events))


def _kind(data: bytes) -> LogKind | None:
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


# -- numbers and times ------------------------------------------------------------------------


def _number(value: Any) -> float:
    if value is None:
        raise InputError("a number is missing")
    try:
        found = math.nan if isinstance(value, bool) else float(value)
    except (ValueError, TypeError, OverflowError):
        found = math.nan
    if not math.isfinite(found):
        raise InputError(f"{one_line(str(value))[:40]} is not a finite number")
    return found


def _seconds(value: Any, second: float) -> float | None:
    """Parse a time in seconds from a number in the log's unit or ISO 8601; None if missing."""
    if value is None or value == "":
        return None
    try:
        return _number(value) / second
    except InputError:
        if not isinstance(value, str):
            raise
    try:
        at = datetime.fromisoformat(value.strip()[:40])
        # without a zone, assume UTC, since this machine's zone may change its clock in between
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except ValueError:
        said = one_line(value)[:40]
        raise InputError(f"the time {said} is neither a number nor ISO 8601") from None


def _time_of(fields: Mapping[str, Any], second: float) -> float | None:
    named = {str(key).lower().replace("_", ""): value for key, value in fields.items()}
    return next((_seconds(named[key], second) for key in TIMES if key in named), None)


def _json(data: bytes) -> Any:
    def refuse(text: str) -> Any:
        raise InputError(f"{text} is not a finite number")

    return json.loads(data.decode("utf-8-sig"), parse_constant=refuse)


# -- OpenSeadragon ----------------------------------------------------------------------------


def _openseadragon(data: bytes, header: SessionHeader, second: float) -> list[Seen]:
    """Parse events as JSON (a list, or under `events`), or one per line.

    Each event has a time and a view: `imageBounds` in pixels, `bounds` in the viewer's coordinates
    (the slide is 1 wide), or `center` and `zoom` in the same. Other events are omitted.
    """
    text = data.strip()
    if text.startswith(b"{") and b"\n" in text and not text.startswith((b'{"events"', b"{\n")):
        entries = [_json(line) for line in text.split(b"\n") if line.strip()]
    else:
        read = _json(text)
        entries = read["events"] if isinstance(read, dict) else read

    def parse_entry(entry: Any) -> Seen | None:
        box = _osd_box(entry, header)
        if box is None:
            return None
        kind = str(entry.get("event") or entry.get("type") or "").lower()
        kind = kind if kind in ("open", "close", "resize", "peek") else ""
        return Seen(*box, seconds=_time_of(entry, second), kind=kind)

    return _each(entries, "openseadragon", "event", parse_entry)


def _osd_box(entry: Mapping[str, Any], header: SessionHeader) -> Sides | None:
    for key, unit in (("imageBounds", 1.0), ("bounds", float(header.width))):
        if isinstance(given := entry.get(key), Mapping):
            return _sides(given, unit)
    center, zoom = entry.get("center"), entry.get("zoom")
    if isinstance(center, Mapping) and zoom is not None:
        width = header.width / _number(zoom)
        height = width * header.screen[1] / header.screen[0]
        x, y = (header.width * _number(center[axis]) for axis in ("x", "y"))
        return x - width / 2, y - height / 2, width, height
    return None


def _sides(given: Mapping[str, Any], unit: float = 1.0) -> Sides:
    x, y, w, h = (unit * _number(given[side]) for side in ("x", "y", "width", "height"))
    return x, y, w, h


# -- QuPath -----------------------------------------------------------------------------------


def _qupath(data: bytes, header: SessionHeader, second: float) -> list[Seen]:
    """Parse a recording of QuPath's view tracker (tab-separated), or annotations as GeoJSON."""
    if data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"{", b"[")):
        return _geojson(data, second)
    rows = csv.DictReader(io.StringIO(data.decode("utf-8-sig")), delimiter="\t")

    def parse_entry(row: Mapping[str, Any]) -> Seen:
        named = {str(key).strip().lower(): value for key, value in row.items()}
        down = named.get("downsample factor") or named.get("downsample")
        power = header.native / _number(down) if down else None
        time = _seconds(named["timestamp"], second)
        return Seen(*_sides(named), seconds=time, magnification=power)

    return _each(rows, "qupath", "view", parse_entry)


def _geojson(data: bytes, second: float) -> list[Seen]:
    read = _json(data)
    features = read["features"] if isinstance(read, dict) else read

    def parse_entry(feature: Mapping[str, Any]) -> Seen:
        points = list(_points(feature["geometry"]["coordinates"]))
        said = feature.get("properties") or {}
        numbers = said.get("measurements") or said.get("metadata") or {}
        time = _time_of(said, second)
        time = _time_of(numbers, second) if time is None and isinstance(numbers, dict) else time
        return _around(points, time)

    return _each(features, "qupath", "feature", parse_entry)


def _points(coordinates: Any) -> Iterable[tuple[float, float]]:
    if coordinates and not isinstance(coordinates[0], list):
        yield _number(coordinates[0]), _number(coordinates[1])
        return
    for part in coordinates:
        yield from _points(part)


def _around(
    points: Sequence[tuple[float, float]], time: float | None, power: float | None = None
) -> Seen:
    xs, ys = [x for x, _ in points], [y for _, y in points]
    w, h = max(xs) - min(xs), max(ys) - min(ys)
    return Seen(min(xs), min(ys), max(w, 1.0), max(h, 1.0), time, power)


# -- annotations as XML -----------------------------------------------------------------------


def _xml(data: bytes) -> Any:
    from defusedxml.common import DefusedXmlException
    from defusedxml.ElementTree import ParseError, fromstring

    try:
        return fromstring(data, forbid_dtd=True)
    except (ParseError, DefusedXmlException) as error:
        raise InputError(f"unsupported XML: {one_line(str(error))[:120]}") from None


def _asap(data: bytes, header: SessionHeader, second: float) -> list[Seen]:
    """Parse ASAP's `Annotation`s with `Coordinate`s of X and Y, sorted by `Order`."""

    def parse_entry(annotation: Any) -> Seen | None:
        points = [
            (_number(point.get("X")), _number(point.get("Y")))
            for point in annotation.iter("Coordinate")
        ]
        return _around(points, _time_of(annotation.attrib, second)) if points else None

    return _each(_xml(data).iter("Annotation"), "asap", "annotation", parse_entry)


def _aperio(data: bytes, header: SessionHeader, second: float) -> list[Seen]:
    """Parse Aperio ImageScope's `Region`s of `Vertex`, with the `Zoom` at which they were drawn."""

    def parse_entry(region: Any) -> Seen | None:
        points = [
            (_number(point.get("X")), _number(point.get("Y"))) for point in region.iter("Vertex")
        ]
        if not points:
            return None
        zoom = _number(region.get("Zoom") or 0)
        power = zoom * header.native if zoom > 0 else None
        return _around(points, _time_of(region.attrib, second), power)

    return _each(_xml(data).iter("Region"), "aperio", "region", parse_entry)


READERS: Mapping[LogKind, Callable[[bytes, SessionHeader, float], list[Seen]]] = {
    "openseadragon": _openseadragon,
    "qupath": _qupath,
    "asap": _asap,
    "aperio": _aperio,
}
