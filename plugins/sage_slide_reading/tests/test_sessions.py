"""Recorded sessions: the file under attack, appending, and actions against a second reading of the
paper."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from sage.core.errors import InputError
from sage_slide_reading.sessions import format as sessions
from sage_slide_reading.sessions.actions import (
    MOST_ACTIONS,
    Action,
    actions_of,
    merge_similar,
    segment,
)
from sage_slide_reading.sessions.format import Session, SessionHeader, ViewEvent
from sage_slide_reading.sessions.recording import Recordings

HEADER = SessionHeader(
    slide="node.svs", width=60_000, height=50_000, mpp=0.25, objective=40.0, screen=(1600, 1000),
    reader="reader-1", task="find all positive lymph nodes", started="2026-01-01T10:00:00+00:00",
)  # fmt: skip


def event(t: float, kind: str, x: float, y: float, magnification: float = 10.0) -> ViewEvent:
    """A view of the screen of `HEADER` at a magnification, by its upper left corner."""
    scale = 40.0 / magnification
    return ViewEvent.model_validate(
        {"t": t, "kind": kind, "x": x, "y": y, "w": 1600 * scale, "h": 1000 * scale,
         "magnification": magnification}
    )  # fmt: skip


def session(*events: ViewEvent) -> Session:
    return Session(header=HEADER, events=events)


# -- the file ---------------------------------------------------------------------------------


def test_a_session_comes_back_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "a.session.jsonl"
    kept = session(event(0, "open", -500, -20.5, 1), event(1.5, "close", -500, -20.5, 1))
    sessions.write_session(path, kept)
    assert sessions.read_session(path) == kept
    assert sessions.read_header(path) == HEADER
    assert json.loads(path.read_text().splitlines()[0])["format"] == "sage-session"


def lines(**changed: Any) -> list[str]:
    head = HEADER.model_dump(mode="json") | changed
    return [json.dumps(head), event(0, "open", 0, 0).model_dump_json()]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the file is empty"),
        ("\n\n", "line 1"),
        ("[" * 10_000 + "\n", "line 1"),
        ("\n".join(lines(version=2)), "line 1: version"),
        ("\n".join(lines(slide="../../etc/passwd")), "without folders"),
        ("\n".join(lines(width=0)), "line 1: width"),
        ("\n".join(lines(mpp=math.nan)), "line 1: mpp"),
        ("\n".join(lines(reader=" ")), "line 1: reader"),
        ("\n".join(lines(started="yesterday")), "line 1: started"),
        ("\n".join(lines(task="x" * 20_000)), "line 1 has"),
        ("\n".join(lines(password="x")), "line 1: password"),
        *(
            ("\n".join([*lines(), json.dumps(event(1, "pan", 0, 0).model_dump() | {key: value})]),
             f"line 3: {key}")
            for key, value in (("t", math.nan), ("t", 1e9), ("y", 1e300), ("w", 0),
                               ("magnification", 0), ("kind", "teleport"), ("extra", 1))
        ),
        ("\n".join([*lines(), event(5, "pan", 0, 0).model_dump_json(),
                    event(4, "pan", 0, 0).model_dump_json()]), "event 3 is at 4 s"),
    ],
)  # fmt: skip
def test_a_hostile_file_is_refused_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "a.session.jsonl"
    path.write_text(text + "\n" if text.strip("\n") else text)
    with pytest.raises(InputError, match=said) as refused:
        sessions.read_session(path)
    assert len(str(refused.value)) < 600


def test_a_huge_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.session.jsonl"
    with path.open("wb") as stream:
        stream.truncate(sessions.MAX_BYTES + 1)
    with pytest.raises(InputError, match="64 MiB"):
        sessions.read_session(path)
    path.write_bytes(HEADER.model_dump_json().encode() + b"\n" * (2 * sessions.MAX_EVENTS + 1))
    with pytest.raises(InputError, match="too many lines"):  # before they are cut apart
        sessions.read_session(path)


def test_appending_keeps_each_event_once_and_survives_a_torn_line(tmp_path: Path) -> None:
    kept = Recordings(tmp_path)
    kept.begin("a", HEADER)
    views = [event(k / 10, "pan", 10 * k, 0) for k in range(10)]
    assert kept.append("a", 0, views[:4]) == 4
    assert kept.append("a", 2, views[2:6]) == 6  # two of them came before
    assert kept.append("a", 0, views[:3]) == 6
    with pytest.raises(InputError, match="events 6 to 7 are missing"):
        kept.append("a", 8, views[8:])
    with pytest.raises(InputError, match="must not decrease"):
        kept.append("a", 6, [views[0]])
    with kept.path("a").open("ab") as stream:
        stream.write(b'{"t": 0.6, "kin')  # the power fails
    assert len(sessions.read_session(kept.path("a")).events) == 6
    again = Recordings(tmp_path)
    assert again.append("a", 6, views[6:]) == 10
    assert sessions.read_session(again.path("a")).events == tuple(views)
    again.delete("a")
    with pytest.raises(InputError, match="no such session"):
        again.append("a", 10, views)


def test_a_session_does_not_grow_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sage_slide_reading.sessions.recording.MAX_BYTES", 1500)
    kept = Recordings(tmp_path)
    kept.begin("a", HEADER)
    views = [event(k / 10, "pan", 10 * k, 0) for k in range(30)]
    with pytest.raises(InputError, match="is full"):
        kept.append("a", 0, views)
    assert kept.append("a", 0, views[:2]) == 2


# -- actions: the paper's rules, one by one ---------------------------------------------------


@pytest.mark.parametrize(
    ("start", "seconds", "reached", "found"),
    [(10, 0.8, 40, 1), (10, 0.8, 80, 1), (10, 8.0, 40, 0), (30, 0.8, 40, 0), (10, 0.8, 36, 0)],
)
def test_a_rapid_zoom_to_native_power_is_a_peek(
    start: float, seconds: float, reached: float, found: int
) -> None:
    way = [start * (reached / start) ** (k / 8) for k in range(9)]
    zooms = [
        event(5 + seconds * k / 8, "zoom", 30_000 - 800 * 40 / m, 25_000 - 500 * 40 / m, m)
        for k, m in enumerate(way) if k
    ]  # fmt: skip
    before = event(0, "open", 30_000 - 32_000 / start, 25_000 - 20_000 / start, start)
    after = event(5 + seconds + 0.4, "zoom", 0, 0, 5)
    held = event(5, "pan", before.x + 40, before.y, start)
    peeks = [a for a in segment(session(before, held, *zooms, after)) if a.kind == "peek"]
    assert len(peeks) == found
    if found:
        (peek,) = peeks
        assert (peek.w, peek.h) == (1024, 1024)
        assert peek.center == pytest.approx((30_000, 25_000))
        assert peek.command == ("<40x-peek>")


def box(
    x: float = 0, y: float = 0, w: float = 100, h: float = 100, start: float = 0, end: float = 1,
    magnification: float = 10.0,
) -> Action:  # fmt: skip
    return Action(
        kind="stay", x=x, y=y, w=w, h=h, start_s=start, end_s=end, magnification=magnification,
        bin=10.0, command="<10x-inspect>",
    )  # fmt: skip


# -- actions: a second, slow implementation, written from the paper's words --------------------


def slow_actions(events: list[dict[str, Any]], width: int, height: int) -> list[dict[str, Any]]:
    """A.1.3 to A.1.7 by plain loops over plain dictionaries, restarting after every merge."""
    raw: list[dict[str, Any]] = []
    n = len(events)
    stayed: set[int] = set()
    k = 0
    while k < n:  # stays
        if events[k]["kind"] == "close":
            k += 1
            continue
        stop = k + 1
        while (
            stop < n
            and events[stop]["kind"] not in ("open", "close")
            and max(abs(events[stop][c] - events[k][c]) for c in "xywh") <= 0.01 * events[k]["w"]
        ):
            stop += 1
        until = events[min(stop, n - 1)]["t"]
        if until - events[k]["t"] >= 1.0:
            raw.append({**events[k], "kind": "stay", "start": events[k]["t"], "end": until})
            stayed |= set(range(k, stop))
        k = stop
    k = 0
    while k < n:  # pans
        if events[k]["kind"] != "pan":
            k += 1
            continue
        stop = k
        while stop not in stayed and stop + 1 < n and events[stop + 1]["kind"] == "pan":
            stop += 1
        seen = events[k : stop + 1]
        if seen[-1]["t"] - seen[0]["t"] >= 2.0:
            x, y = min(e["x"] for e in seen), min(e["y"] for e in seen)
            raw.append({
                "kind": "pan", "x": x, "y": y, "w": max(e["x"] + e["w"] for e in seen) - x,
                "h": max(e["y"] + e["h"] for e in seen) - y, "start": seen[0]["t"],
                "end": seen[-1]["t"], "magnification": seen[0]["magnification"],
            })  # fmt: skip
        k = stop + 1
    for k in range(1, n):  # peeks
        if events[k]["kind"] != "zoom" or events[k]["magnification"] < 38.0:
            continue
        if events[k - 1]["magnification"] >= 38.0 or events[k - 1]["kind"] == "close":
            continue
        back = k - 1
        while back >= 0 and events[back]["magnification"] > 20.0:
            if events[back]["kind"] in ("open", "close"):
                back = -1
            back -= 1
        if back < 0 or events[back]["kind"] == "close":
            continue
        if events[k]["t"] - events[back + 1]["t"] <= 2.0:
            e = events[k]
            raw.append({
                "kind": "peek", "x": e["x"] + e["w"] / 2 - 512, "y": e["y"] + e["h"] / 2 - 512,
                "w": 1024.0, "h": 1024.0, "start": e["t"],
                "end": events[min(k + 1, n - 1)]["t"], "magnification": e["magnification"],
            })  # fmt: skip

    def order(a: dict[str, Any]) -> tuple[Any, ...]:
        return (a["start"], a["end"], a["kind"], a["x"], a["y"], a["w"], a["h"])

    def common(a: dict[str, Any], b: dict[str, Any]) -> float:
        w = min(a["x"] + a["w"], b["x"] + b["w"]) - max(a["x"], b["x"])
        h = min(a["y"] + a["h"], b["y"] + b["h"]) - max(a["y"], b["y"])
        return w * h if w > 0 and h > 0 else 0.0

    boxes = sorted((a for a in raw if not a["w"] > 0.4 * height), key=order)
    again = True
    while again:
        again = False
        for i, j in itertools.combinations(range(len(boxes)), 2):
            a, b = boxes[i], boxes[j]
            both = common(a, b)
            if both / (a["w"] * a["h"] + b["w"] * b["h"] - both) > 0.8:
                longer = b if b["end"] - b["start"] > a["end"] - a["start"] else a
                if b["end"] - b["start"] == a["end"] - a["start"] and b["start"] < a["start"]:
                    longer = b
                x, y = min(a["x"], b["x"]), min(a["y"], b["y"])
                boxes[i] = {
                    **longer, "x": x, "y": y,
                    "w": max(a["x"] + a["w"], b["x"] + b["w"]) - x,
                    "h": max(a["y"] + a["h"], b["y"] + b["h"]) - y,
                    "start": min(a["start"], b["start"]), "end": max(a["end"], b["end"]),
                }  # fmt: skip
                del boxes[j]
                again = True
                break
    redundant = set()
    for i, j in itertools.permutations(range(len(boxes)), 2):
        large, small = boxes[i]["w"] * boxes[i]["h"], boxes[j]["w"] * boxes[j]["h"]
        if small < large and common(boxes[i], boxes[j]) > 0.9 * small:
            redundant.add(i)
    found = []
    for i, a in enumerate(boxes):
        cx, cy = a["x"] + a["w"] / 2, a["y"] + a["h"] / 2
        if i in redundant or not (0 <= cx <= width and 0 <= cy <= height):
            continue
        if a["kind"] == "peek":
            side, command = 1024.0, "<40x-peek>"
        elif a["w"] * a["h"] >= (height / 5) * (height / 10):
            side, command = height / 5, "<5x-inspect>"
        else:
            side, command = height / 10, "<10x-inspect>"
        w, h = min(side, width), min(side, height)
        x = min(max(cx - w / 2, 0), width - w)
        y = min(max(cy - h / 2, 0), height - h)
        found.append({"x": x, "y": y, "w": w, "h": h, "command": command, "kind": a["kind"],
                      "start": a["start"], "end": a["end"]})  # fmt: skip
    return sorted(found, key=lambda a: (a["start"], a["end"], a["kind"], a["x"], a["y"]))


@st.composite
def walks(draw: st.DrawFn) -> Session:
    """A reader's walk: moves of a few kinds, halts of a few lengths, powers of a few sizes."""
    events: list[ViewEvent] = []
    t, x, y, power = 0.0, 20_000.0, 20_000.0, 5.0
    kind = "open"
    for _ in range(draw(st.integers(1, 40))):
        events.append(event(t, kind, x, y, power))
        t += draw(st.sampled_from([0.125, 0.125, 0.125, 0.25, 0.5, 1.0, 2.5]))
        kind = draw(st.sampled_from(["pan", "pan", "pan", "zoom", "zoom", "resize", "close"]))
        if kind == "close":
            events.append(event(t, "close", x, y, power))
            kind = "open"
        if kind == "pan":
            x += draw(st.sampled_from([-6400.0, -640.0, -16.0, 0.0, 16.0, 640.0, 4000.0]))
            y += draw(st.sampled_from([0.0, 0.0, -2000.0, 320.0]))
        elif kind == "zoom":
            before = power
            power = draw(st.sampled_from([1.25, 2.5, 5.0, 10.0, 20.0, 40.0]))
            x += 800 * (40 / before - 40 / power)
            y += 500 * (40 / before - 40 / power)
    return session(*events)


@examples(max_examples=150, deadline=None)
@given(walks())
def test_actions_are_those_of_the_slow_implementation(walk: Session) -> None:
    slow = slow_actions([e.model_dump() for e in walk.events], HEADER.width, HEADER.height)
    fast = sorted(actions_of(walk), key=lambda a: (a.start_s, a.end_s, a.kind, a.x, a.y))
    assert len(fast) == len(slow)
    for action, other in zip(fast, slow, strict=True):
        assert (action.kind, action.command) == (other["kind"], other["command"])
        assert (action.x, action.y, action.w, action.h, action.start_s, action.end_s) == (
            pytest.approx([other[k] for k in ("x", "y", "w", "h", "start", "end")])
        )


@examples(max_examples=100, deadline=None)
@given(st.data())
def test_the_order_of_boxes_does_not_matter_to_merging(data: st.DataObject) -> None:
    numbers = st.integers(0, 60).map(float)
    boxes = [
        box(data.draw(numbers), data.draw(numbers), 100, 100, start, start + 1)
        for start in range(data.draw(st.integers(1, 12)))
    ]
    merged = merge_similar(boxes)
    assert merge_similar(data.draw(st.permutations(boxes))) == merged
    for old in boxes:  # nothing that was looked at is lost
        assert any(
            new.x <= old.x and new.y <= old.y and old.x + old.w <= new.x + new.w
            and old.y + old.h <= new.y + new.h and new.start_s <= old.start_s
            for new in merged
        )  # fmt: skip


def test_a_session_made_to_take_forever_is_refused() -> None:
    views = [event(1.0 * k, "pan", 370.0 * k, 0) for k in range(MOST_ACTIONS + 50)]
    with pytest.raises(InputError, match="split it"):
        actions_of(session(*views))
