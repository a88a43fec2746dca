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
from sage_slide_reading.sessions.format import Session, SessionHeader
from sage_slide_reading.sessions.imports import read_log

HEADER = SessionHeader(
    slide="node.svs", width=40_000, height=30_000, mpp=0.25, objective=40.0, screen=(1600, 1200),
    reader="reader-1", task="find tumor", started="2026-01-01T10:00:00+00:00",
)  # fmt: skip
TRACKED = (
    "Timestamp\tX\tY\tWidth\tHeight\tCanvas width\tCanvas height\tDownsample factor\tRotation\n"
    "100\t0\t0\t16000\t12000\t1600\t1200\t10\t0\n"
    "1600\t500\t0\t16000\t12000\t1600\t1200\t10\t0\n"
    "2100\t4000\t3000\t1600\t1200\t1600\t1200\t1.0\t0\n"
)


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


def test_a_recording_of_qupaths_view_tracker(tmp_path: Path) -> None:
    tracked = import_text(tmp_path, TRACKED)
    assert boxes(tracked) == [(0, 0, 0, 16_000, 12_000, 4), (1.5, 500, 0, 16_000, 12_000, 4),
                              (2, 4000, 3000, 1600, 1200, 40)]  # fmt: skip
    assert [event.kind for event in tracked.events] == ["open", "pan", "zoom"]


@pytest.fixture
def tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Another time zone of this machine."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_times_without_a_zone_are_utc(tmp_path: Path, tokyo: None) -> None:
    box = {"x": 0, "y": 0, "width": 1, "height": 1}
    times = ("2026-01-01T10:00:00", "2026-01-01T10:00:04Z")
    log = json.dumps([{"time": time, "bounds": box} for time in times])
    assert [event.t for event in import_text(tmp_path, log).events] == [0, 4]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "contains no views"),
        ("MZ\x00\x01", "contains no views"),
        ("[" * 100_000, "not a log"),
        ('{"events": 5}', "not a log"),
        ('[{"timestamp": 1, "bounds": {"x": NaN}}]', "entry 1: bounds.x: .* finite number"),
        ('[{"timestamp": 1, "center": {"x": 0, "y": 0}, "zoom": 0}]', "entry 1: zoom"),
        (
            '[{"timestamp": "soon", "imageBounds": {"x":0,"y":0,"width":1,"height":1}}]',
            "entry 1: timestamp: expected a number",
        ),
        ('[{"imageBounds": {"x":0,"y":0,"width":1,"height":1}}]', "1 of 1 views have no time"),
        (TRACKED.replace("500\t0", "left\t0"), "entry 2: imagebounds.x"),
        (TRACKED.replace("500\t0", "1e12\t0"), "less than or equal"),
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


@examples(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.one_of(st.text(max_size=200), st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(
        st.sampled_from(["events", "bounds", "center",
                         "zoom", "t", "timestamp", "x", "y", "width"]),
        inner, max_size=5),
    max_leaves=20,
).map(json.dumps)))  # fmt: skip
@example("timestamp\twidth\n" + '"' * 200_000)
def test_whatever_a_file_holds_it_is_a_session_or_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "log"
    path.write_text(text, encoding="utf-8", errors="replace")
    with contextlib.suppress(InputError):
        assert isinstance(read_log(path, HEADER), Session)
