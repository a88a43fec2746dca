"""Logs of other viewers: each comes to the views that it names; hostile files are refused."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from sage.core.errors import InputError
from sage_slide_reading.sessions.actions import actions_of
from sage_slide_reading.sessions.format import Session, SessionHeader, read_session, write_session
from sage_slide_reading.sessions.imports import NOMINAL_S, LogKind, read_log

HEADER = SessionHeader(
    slide="node.svs", width=40_000, height=30_000, mpp=0.25, objective=40.0, screen=(1600, 1200),
    reader="reader-1", task="find tumor", started="2026-01-01T10:00:00+00:00",
)  # fmt: skip
ASAP = """<?xml version="1.0"?><ASAP_Annotations><Annotations>
<Annotation Name="A" Type="Polygon"><Coordinates>
<Coordinate Order="0" X="1000" Y="2000"/><Coordinate Order="1" X="3000.5" Y="2000"/>
<Coordinate Order="2" X="3000.5" Y="2600"/></Coordinates></Annotation>
<Annotation Name="B" Type="Dot"><Coordinates><Coordinate Order="0" X="5" Y="6"/></Coordinates>
</Annotation></Annotations></ASAP_Annotations>"""
APERIO = """<Annotations MicronsPerPixel="0.25"><Annotation Id="1"><Regions>
<Region Id="1" Zoom="0.25" {0}><Vertices><Vertex X="100" Y="100" Z="0"/>
<Vertex X="900" Y="700" Z="0"/></Vertices></Region>
<Region Id="2" Zoom="1" {1}><Vertices><Vertex X="200" Y="200" Z="0"/>
<Vertex X="500" Y="500" Z="0"/></Vertices></Region></Regions></Annotation></Annotations>"""
TRACKED = (
    "Timestamp\tX\tY\tWidth\tHeight\tCanvas width\tCanvas height\tDownsample factor\tRotation\n"
    "100\t0\t0\t16000\t12000\t1600\t1200\t10\t0\n"
    "1600\t500\t0\t16000\t12000\t1600\t1200\t10\t0\n"
    "2100\t4000\t3000\t1600\t1200\t1600\t1200\t1.0\t0\n"
)


def feature(*corners: tuple[float, float], **properties: Any) -> dict[str, Any]:
    ring = [list(corner) for corner in (*corners, corners[0])]
    return {"type": "Feature", "geometry": {"type": "Polygon", "coordinates": [ring]},
            "properties": properties}  # fmt: skip


def import_text(tmp_path: Path, text: str, **more: Any) -> Session:
    path = tmp_path / "log"
    path.write_text(text)
    return read_log(path, HEADER, **more)


def boxes(session: Session) -> list[tuple[float, ...]]:
    return [(e.t, e.x, e.y, e.w, e.h, e.magnification) for e in session.events]


def test_openseadragon_by_bounds_pixels_or_center_comes_to_the_same(tmp_path: Path) -> None:
    by_bounds = [
        {"timestamp": 5000, "event": "open",
         "bounds": {"x": 0, "y": 0, "width": 0.5, "height": 0.375}},
        {"timestamp": 6500, "event": "zoom",
         "bounds": {"x": 0.1, "y": 0.1, "width": 0.05, "height": 0.0375}},
        {"timestamp": 6600, "event": "canvas-click"},
        {"timestamp": 9000, "event": "close",
         "bounds": {"x": 0.1, "y": 0.1, "width": 0.05, "height": 0.0375}},
    ]  # fmt: skip
    by_pixels = [
        {"t": e["timestamp"], "type": e["event"],
         "imageBounds": {k: 40_000 * v for k, v in e["bounds"].items()}}
        for e in by_bounds if "bounds" in e
    ]  # fmt: skip
    by_center = [
        {"time": e["timestamp"], "type": e["event"], "zoom": 1 / e["bounds"]["width"],
         "center": {"x": e["bounds"]["x"] + e["bounds"]["width"] / 2,
                    "y": e["bounds"]["y"] + e["bounds"]["height"] / 2}}
        for e in by_bounds if "bounds" in e
    ]  # fmt: skip
    first = import_text(tmp_path, json.dumps(by_bounds))
    assert boxes(first)[:2] == [(0, 0, 0, 20_000, 15_000, 3.2),
                                (1.5, 4000, 4000, 2000, 1500, 32)]  # fmt: skip
    assert [event.kind for event in first.events] == ["open", "zoom", "close"]
    for text in (
        json.dumps({"events": by_pixels}),
        "\n".join(json.dumps(e) for e in by_center),
        json.dumps(by_center, indent=1),
    ):
        again = import_text(tmp_path, text)
        assert boxes(again) == [pytest.approx(box) for box in boxes(first)]
    seconds = json.dumps([e | {"timestamp": e["timestamp"] / 1000} for e in by_bounds])
    assert boxes(import_text(tmp_path, seconds, second=1.0)) == boxes(first)
    assert [action.kind for action in actions_of(first)] == ["stay"]


def test_qupaths_recording_and_its_annotations(tmp_path: Path) -> None:
    tracked = import_text(tmp_path, TRACKED)
    assert boxes(tracked) == [(0, 0, 0, 16_000, 12_000, 4), (1.5, 500, 0, 16_000, 12_000, 4),
                              (2, 4000, 3000, 1600, 1200, 40)]  # fmt: skip
    assert [event.kind for event in tracked.events] == ["open", "pan", "zoom"]
    marked = [feature((0, 0), (100, 0), (100, 50), createdAt="2026-01-01T10:00:05+00:00"),
              feature((500, 500), (900, 900), createdAt="2026-01-01T10:00:00+00:00")]  # fmt: skip
    session = import_text(tmp_path, json.dumps({"type": "FeatureCollection", "features": marked}))
    assert [box[:5] for box in boxes(session)] == [(0, 500, 500, 400, 400), (5, 0, 0, 100, 50)]


@pytest.fixture
def tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Another time zone of this machine."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_times_without_a_zone_are_utc(tmp_path: Path, tokyo: None) -> None:
    mixed = ('Created="2026-01-01T10:00:00"', 'Created="2026-01-01T10:00:04Z"')
    assert [box[0] for box in boxes(import_text(tmp_path, APERIO.format(*mixed)))] == [0, 4]


def test_annotations_without_times_say_that_theirs_are_nominal(tmp_path: Path) -> None:
    session = import_text(tmp_path, ASAP)
    assert [box[:5] for box in boxes(session)] == [
        (0, 1000, 2000, 2000.5, 600), (NOMINAL_S, 5, 6, 1, 1), (2 * NOMINAL_S, 5, 6, 1, 1),
    ]  # fmt: skip
    assert "no times" in (session.header.note or "")
    aperio = import_text(tmp_path, APERIO.format("", ""))
    assert [box[5] for box in boxes(aperio)] == [10, 40, 40]
    times = ('Created="2026-01-01T10:00:00Z"', 'Created="2026-01-01T10:00:04Z"')
    timed = import_text(tmp_path, APERIO.format(*times))
    assert [box[0] for box in boxes(timed)] == [0, 4] and timed.header.note is None
    with pytest.raises(InputError, match="1 of 2 views have no time"):
        import_text(tmp_path, APERIO.format(times[0], ""))


def test_a_session_of_our_own_is_imported_as_it_is(tmp_path: Path) -> None:
    session = import_text(tmp_path, TRACKED)
    write_session(tmp_path / "a.session.jsonl", session)
    assert read_log(tmp_path / "a.session.jsonl", HEADER) == session
    assert read_session(tmp_path / "a.session.jsonl") == session


LAUGHS = '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]><ASAP_Annotations>&b;</x>'
OUTSIDE = '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><ASAP_Annotations>&a;</x>'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "unknown log"),
        ("MZ\x00\x01", "unknown log"),
        ("<html/>", "unknown log"),
        ("<ASAP_Annotations/>", "log contains no views"),
        (LAUGHS, "unsupported XML"),
        (OUTSIDE, "unsupported XML"),
        ("<ASAP_Annotations><x></ASAP_Annotations>", "unsupported XML"),
        (ASAP.replace('"1000"', '"nan"'), "entry 1: corners.0.0: .* finite number"),
        (ASAP.replace('"1000"', '"1e999"'), "finite number"),
        (ASAP.replace('"1000"', '"1e12"'), "less than or equal"),
        (ASAP.replace(' X="1000"', ""), "entry 1: corners.0.0"),
        ('<?xml version="1.0" encoding="foo"?><ASAP_Annotations/>', "not in the format of asap"),
        ("[" * 100_000, "not in the format of openseadragon"),
        ('{"events": 5}', "not in the format of openseadragon"),
        ('[{"timestamp": 1, "bounds": {"x": NaN}}]', "entry 1: bounds.x: .* finite number"),
        (
            '[{"t": 1, "bounds": {"x": 0, "y": 0, "width": 0, "height": 1}}]',
            "entry 1: bounds.width: .* greater than 0",
        ),
        (
            '[{"timestamp": 1, "center": {"x": 0, "y": 0}, "zoom": 0}]',
            "entry 1: zoom",
        ),
        ('[{"timestamp": 1, "bounds": {"x": ' + "9" * 400 + "}}]", "entry 1: bounds.x: .* number"),
        (
            '[{"timestamp": "soon", "imageBounds": {"x":0,"y":0,"width":1,"height":1}}]',
            "entry 1: timestamp: expected a number",
        ),
        (
            '{"type": "FeatureCollection", "features": [{"geometry": null}]}',
            "not in the format of qupath",
        ),
        ('{"type": "FeatureCollection"}', "not in the format of qupath"),
        (
            '[{"timestamp": 1, "bounds": {"x": 0, "y": 0, "width": 5}}]',
            "entry 1: bounds.height: Field required",
        ),
        ("[1]", "entry 1"),
        (TRACKED.replace("500\t0", "left\t0"), "entry 2: tracked.x"),
        (TRACKED.replace("500\t0", "inf\t0"), "finite number"),
        (TRACKED.replace("1600\t500", "99999999999\t500"), "604800"),
        (
            '[{"t": 1, "imageBounds": {"x": 99999, "y": 0, "width": 5, "height": 5}}]',
            "no views on .* is for this slide",
        ),
    ],
)
def test_a_hostile_log_is_refused_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as refused:
        import_text(tmp_path, text)
    assert "\n" not in str(refused.value) and "root:" not in str(refused.value)
    assert not re.search(r"float|NoneType|object|subscript|isoformat|arg ", str(refused.value))


KINDS: tuple[LogKind, ...] = ("openseadragon", "qupath", "asap", "aperio", "session")


@examples(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.sampled_from(KINDS), st.one_of(st.text(max_size=200), st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(
        st.sampled_from(["events", "features", "geometry", "coordinates", "bounds", "center",
                         "zoom", "t", "timestamp", "properties", "x", "y", "width"]),
        inner, max_size=5),
    max_leaves=20,
).map(json.dumps)))  # fmt: skip
@example("qupath", "timestamp\twidth\n" + '"' * 200_000)
def test_whatever_a_file_holds_it_is_a_session_or_refused(
    tmp_path: Path, kind: LogKind, text: str
) -> None:
    path = tmp_path / "log"
    path.write_text(text, encoding="utf-8", errors="replace")
    with contextlib.suppress(InputError):
        assert isinstance(read_log(path, HEADER, kind), Session)
