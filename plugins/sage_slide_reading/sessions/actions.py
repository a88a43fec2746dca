"""Conversion of a session to stays, pans, and peeks (Pathology-CoT, 4.2 and A.1).

The appendix (A.1.3 to A.1.7) is followed where it is more exact than the text (4.2). The
two disagree on the following:

- IoU above which actions are merged: "0.8" in 4.2, "e.g. 0.5-0.8" in A.1.5. Here it is
  0.8.
- Bins: the nearest standard objective to the view's magnification in 4.2, or one of two box
  sizes by area, with the bin reset to match, in A.1.7. Here it is the latter.
- Peeks appear only in 4.2, as the central 1024 x 1024 pixels at native power. They go
  through every step, but keep their size and the objective nearest to the slide's native
  power.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from mcp_servers.slides.arrays import F64
from sage.core.errors import InputError
from sage.core.models import Strict
from sage_slide_reading.behavior.scores import ious, overlaps
from sage_slide_reading.reader.types import Proposed
from sage_slide_reading.sessions.format import Coordinate, Session, SessionHeader, Side, ViewEvent

ActionKind = Literal["stay", "pan", "peek"]
MOST_ACTIONS = 4000
"""Maximum number of actions in a session before merging, since every pair is compared."""
STAY_S, PAN_S = 1.0, 2.0
"""Least duration of a view that is a stay, and of panning that is a pan."""
PEEK_PX = 1024
WIDEST = 0.4
"""Width of a box, in slide heights, above which it is an overview."""
MERGE_IOU, CONTAINED = 0.8, 0.9
SIZES = {5.0: 5.0, 10.0: 10.0}
"""Slide heights per side of a box, by bin (10 for 10x is by analogy: the paper gives 5 for 5x)."""
OBJECTIVES = (2.5, 5.0, 10.0, 20.0, 40.0)
STILL = 0.01
"""Share of a view's width below which another view is the same (not in the paper)."""
PEEK_ZOOM_S, PEEK_FROM, NATIVE_SHARE = 2.0, 0.5, 0.95
"""A rapid zoom: its time, and its start and end as shares of native power (not in the paper)."""


class Action(Strict):
    """An action: a box in level-0 pixels, its duration, magnification and command.

    `magnification` is the view's, `bin` is the standard magnification, and `command` is, for
    example, `<10x-inspect>`.
    """

    kind: ActionKind
    x: Coordinate
    y: Coordinate
    w: Side
    h: Side
    start_s: float = Field(ge=0, allow_inf_nan=False)
    end_s: float = Field(ge=0, allow_inf_nan=False)
    magnification: float = Field(gt=0, allow_inf_nan=False)
    bin: float = Field(gt=0, allow_inf_nan=False)
    command: str = Field(max_length=40)

    @property
    def seconds(self) -> float:
        """Seconds from the action's first start to its last end."""
        return self.end_s - self.start_s

    @property
    def area(self) -> float:
        """Area of the box in level-0 pixels."""
        return self.w * self.h

    @property
    def center(self) -> tuple[float, float]:
        """Center x and y in level-0 pixels."""
        return self.x + self.w / 2, self.y + self.h / 2


def actions_of(session: Session) -> list[Action]:
    """Return a session's normalized actions, sorted by start.

    Raises `InputError` if there are too many to compare.
    """
    small = remove_overviews(segment(session), session.header.height)
    pruned = prune_containing(merge_similar(small))
    normal = (normalize(action, session.header) for action in pruned)
    return [action for action in normal if action is not None]


# -- step 1: segmentation ---------------------------------------------------------------------


def segment(session: Session) -> list[Action]:
    """Find stays, pans, and peeks, sorted by start (A.1.3; peeks: 4.2).

    A view lasts until the next event; nothing is viewed after `close`. A pan is a run of
    `pan` events that is not interrupted by any other event or by a stay.
    """
    events = session.events
    found: list[Action] = []

    def add(kind: ActionKind, box: Sequence[float], start: float, end: float, power: float) -> None:
        x, y, w, h = box
        found.append(
            Action(kind=kind, x=x, y=y, w=w, h=h, start_s=start, end_s=end, magnification=power,
                   bin=nearest(power), command=command_of(kind, nearest(power)))
        )  # fmt: skip

    runs = views_of(events)
    for first, past in runs:
        event = events[first]
        end = events[past].t if past < len(events) else events[-1].t
        if end - event.t >= STAY_S:
            add("stay", (event.x, event.y, event.w, event.h), event.t, end, event.magnification)
    for pan in _pans(events, runs):
        start, end = pan[0].t, pan[-1].t
        if end - start >= PAN_S:
            add("pan", around(pan), start, end, pan[0].magnification)
    for number in _arrivals(events, session.header.native):
        event = events[number]
        end = events[number + 1].t if number + 1 < len(events) else event.t
        x, y, side = event.x + event.w / 2, event.y + event.h / 2, float(PEEK_PX)
        add("peek", (x - side / 2, y - side / 2, side, side), event.t, end, event.magnification)
    if len(found) > MOST_ACTIONS:
        raise InputError(
            f"the session for {session.header.slide} has {len(found)} actions, more than "
            f"{MOST_ACTIONS}; split it"
        )
    return sorted(found, key=_order)


def views_of(events: Sequence[ViewEvent]) -> list[tuple[int, int]]:
    """Return runs of events within the same view as (first, end); closed views yield none.

    Every view in a run is within `STILL` of its width from the first, so that a slow drift is
    not mistaken for a single view.
    """
    runs: list[tuple[int, int]] = []
    first: int | None = None
    for number, event in enumerate(events):
        if first is not None and (
            event.kind in ("open", "close") or not _same(events[first], event)
        ):
            runs.append((first, number))
            first = None
        if first is None and event.kind != "close":
            first = number
    if first is not None:
        runs.append((first, len(events)))
    return runs


def _same(first: ViewEvent, second: ViewEvent) -> bool:
    near = STILL * first.w
    return all(abs(getattr(first, side) - getattr(second, side)) <= near for side in "xywh")


def _pans(events: Sequence[ViewEvent], runs: Sequence[tuple[int, int]]) -> list[list[ViewEvent]]:
    """Return runs of pan events, split at any other event and after a view that was a stay."""
    stays = {
        number
        for first, past in runs
        if events[min(past, len(events) - 1)].t - events[first].t >= STAY_S
        for number in range(first, past)
    }
    found: list[list[ViewEvent]] = []
    going = False
    for number, event in enumerate(events):
        if event.kind == "pan":
            if not going:
                found.append([])
            found[-1].append(event)
        going = event.kind == "pan" and number not in stays
    return found


def _arrivals(events: Sequence[ViewEvent], native: float) -> list[int]:
    """Return events at which a rapid zoom reached native power, and events marked as peeks."""
    reached = NATIVE_SHARE * native
    found: list[int] = []
    low_s = -math.inf  # the last time at which the power was low enough for a zoom to start
    for number, event in enumerate(events):
        before = events[number - 1] if number else None
        if event.kind in ("open", "close"):
            low_s = -math.inf
        if before is not None and before.magnification <= PEEK_FROM * native:
            low_s = event.t if before.kind != "close" else -math.inf
        crossed = (
            event.kind == "zoom"
            and before is not None
            and before.kind != "close"
            and before.magnification < reached <= event.magnification
            and event.t - low_s <= PEEK_ZOOM_S
        )
        if event.kind == "peek" or crossed:
            found.append(number)
    return found


# -- steps 2 to 4: boxes ----------------------------------------------------------------------


def remove_overviews(actions: Sequence[Action], height: int) -> list[Action]:
    """Remove actions whose box is wider than a fraction of the slide's height (A.1.4)."""
    return [action for action in actions if action.w <= WIDEST * height]


def merge_similar(actions: Sequence[Action]) -> list[Action]:
    """Merge pairs whose IoU exceeds 0.8 until there are none left (A.1.5).

    In each pass, the first pair by start time is merged, so that the order of the list does
    not matter.
    """
    ordered = sorted(actions, key=_order)
    left: list[Action | None] = [*ordered]
    boxes = boxes_of(ordered)
    alike = np.zeros((len(left), len(left)), dtype=bool)
    for row in range(len(left)):
        alike[row, row + 1 :] = ious(boxes[row], boxes[row + 1 :])[0] > MERGE_IOU
    while alike.any():
        first, second = divmod(int(alike.argmax()), len(left))
        kept, gone = left[first], left[second]
        assert kept is not None and gone is not None
        merged = merge_two(kept, gone)
        left[first], left[second] = merged, None
        boxes[first] = boxes_of([merged])
        boxes[second] = np.nan  # missing box: overlaps nothing
        near = ious(boxes[first], boxes)[0] > MERGE_IOU
        alike[second], alike[:, second] = False, False
        alike[first, first + 1 :], alike[:first, first] = near[first + 1 :], near[:first]
    return sorted((action for action in left if action is not None), key=_order)


def boxes_of(actions: Sequence[Action] | Sequence[Proposed]) -> F64:
    """Return (n, 4) boxes as x, y, width, height in level-0 pixels."""
    return np.array([(a.x, a.y, a.w, a.h) for a in actions], dtype=np.float64).reshape(-1, 4)


def merge_two(first: Action, second: Action) -> Action:
    """Merge two actions into their bounding box, from the first start to the last end."""
    longer = max((first, second), key=lambda action: (action.seconds, -action.start_s))
    x, y, w, h = around((first, second))
    span = {"start_s": min(first.start_s, second.start_s), "end_s": max(first.end_s, second.end_s)}
    return longer.model_copy(update={"x": x, "y": y, "w": w, "h": h, **span})


def prune_containing(actions: Sequence[Action]) -> list[Action]:
    """Remove larger boxes that contain more than 90% of a smaller box (A.1.6)."""
    boxes = boxes_of(actions)
    areas = np.prod(boxes[:, 2:], axis=1)
    return [
        action
        for action, box, area in zip(actions, boxes, areas, strict=True)
        if not ((areas < area) & (overlaps(box, boxes)[0] > CONTAINED * areas)).any()
    ]


# -- step 5: normalization --------------------------------------------------------------------


def normalize(action: Action, header: SessionHeader) -> Action | None:
    """Fit an action into a standard-size box around its center (A.1.7), or return None.

    The size with the nearest side by ratio is used. A box that would extend beyond the slide
    is moved onto it, or shortened to the slide's side if that is smaller (not in the paper).
    """
    x, y = action.center
    if not (0 <= x <= header.width and 0 <= y <= header.height):
        return None
    side, bin_ = float(PEEK_PX), nearest(action.magnification)
    if action.kind != "peek":
        sides = {bin_: header.height / divisor for bin_, divisor in SIZES.items()}
        bin_ = min(sides, key=lambda k: abs(math.log(math.sqrt(action.area) / sides[k])))
        side = sides[bin_]
    w, h = min(side, header.width), min(side, header.height)
    placed = {
        "x": min(max(0.0, x - w / 2), header.width - w),
        "y": min(max(0.0, y - h / 2), header.height - h),
    }
    named = {"bin": bin_, "command": command_of(action.kind, bin_)}
    return action.model_copy(update={"w": w, "h": h, **placed, **named})


def nearest(magnification: float) -> float:
    """Return the nearest objective by ratio, or the lower of two that are equally near."""
    return min(OBJECTIVES, key=lambda power: (abs(math.log(magnification / power)), power))


def command_of(kind: ActionKind, bin_: float) -> str:
    """Format a command such as `<10x-inspect>` or `<40x-peek>`."""
    return f"<{bin_:g}x-{'peek' if kind == 'peek' else 'inspect'}>"


# -- boxes ------------------------------------------------------------------------------------


def around(boxes: Sequence[Action] | Sequence[ViewEvent]) -> tuple[float, float, float, float]:
    """Compute the bounding box of all boxes: x, y, width, height."""
    x, y = min(box.x for box in boxes), min(box.y for box in boxes)
    right, bottom = max(box.x + box.w for box in boxes), max(box.y + box.h for box in boxes)
    return x, y, right - x, bottom - y


def _order(action: Action) -> tuple[float, float, str, float, float, float, float]:
    return (action.start_s, action.end_s, action.kind, action.x, action.y, action.w, action.h)
