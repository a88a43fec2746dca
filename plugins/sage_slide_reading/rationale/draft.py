"""Conversion of a session to rounds with drafted rationales (Pathology-CoT, 4.3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from mcp_servers.slides.slide import MPP_TOLERANCE
from sage.core.errors import InputError
from sage_slide_reading.reader.scope import Scope
from sage_slide_reading.reader.types import Box, Region
from sage_slide_reading.sessions.actions import Action, ActionSettings, actions_of
from sage_slide_reading.sessions.drafts import (
    MAX_ROUNDS,
    DraftedBy,
    Drafts,
    Rationale,
    Round,
    cytology_size,
)
from sage_slide_reading.sessions.format import Session

VERBS = {"stay": "stayed", "pan": "panned", "peek": "peeked"}


@dataclass(frozen=True)
class Place:
    """An action on its slide, with the region and the crop at its center."""

    action: Action
    number: int
    of: int
    region: Region
    cytology: Region

    @property
    def doing(self) -> str:
        """Describe what the reader did."""
        action = self.action
        return (
            f"The reader {VERBS[action.kind]} here for {action.seconds:.1f} s at "
            f"{action.magnification:.2g}x, as number {self.number} of {self.of}."
        )


class Writer(Protocol):
    """Drafts the rationale of each place of a slide."""

    drafted_by: DraftedBy
    statement: str
    model: str | None

    def write(self, scope: Scope, place: Place, task: str) -> Rationale:
        """Draft the thumbnail impression, the reason for zooming in, and the findings."""
        ...


class NoWriter:
    """Leaves every panel empty, to be written from scratch."""

    drafted_by: DraftedBy = "none"
    statement = "No drafts: the reviewer wrote the text."
    model: str | None = None

    def write(self, scope: Scope, place: Place, task: str) -> Rationale:
        """Return empty panels."""
        return Rationale()


def places_of(scope: Scope, actions: list[Action]) -> list[Place]:
    """Turn actions into regions at the magnification of their box, and crops at native power."""
    slide = scope.slide
    found = []
    for number, action in enumerate(actions, 1):
        x, y = action.center
        whole = box_around(scope, x, y, action.w, action.h)
        crop = box_around(scope, x, y, *cytology_size(action))
        power = min(slide.objective_power or scope.native, scope.native)
        found.append(
            Place(
                action,
                number,
                len(actions),
                scope.region(whole, min(action.bin, power), f"a{number}"),
                scope.region(crop, power, f"a{number}c"),
            )
        )
    return found


def box_around(scope: Scope, x: float, y: float, w: float, h: float) -> Box:
    """Return a box around a point, shifted onto the slide.

    Parameters
    ----------
    scope : the slide
    x, y : center of the box, level-0 pixels
    w, h : sides of the box, level-0 pixels
    """
    width, height = min(round(w), scope.slide.width), min(round(h), scope.slide.height)
    left = min(max(0, round(x - width / 2)), scope.slide.width - width)
    top = min(max(0, round(y - height / 2)), scope.slide.height - height)
    return Box(x=left, y=top, width=max(1, width), height=max(1, height))


def draft(
    session: Session,
    name: str,
    scope: Scope,
    writer: Writer,
    settings: ActionSettings,
    report: Callable[[str], None] = lambda line: None,
) -> Drafts:
    """Draft a rationale for every action of a session.

    Parameters
    ----------
    session : session recorded on this slide
    report : receives a line per round

    Raises
    ------
    InputError
        If the session's slide has another name, size, or pixel size, or if the session yields no
        actions or too many.
    """
    header, slide = session.header, scope.slide
    if slide.path.name != header.slide:
        raise InputError(
            f"{slide.path}: the session is of {header.slide}; if it is the same slide, rename it "
            "to that, since review and training search by name"
        )
    if (header.width, header.height) != (slide.width, slide.height):
        raise InputError(
            f"{slide.path}: {slide.width} x {slide.height} pixels, but the session is of "
            f"{header.slide} with {header.width} x {header.height}"
        )
    if header.mpp is not None and abs(header.mpp - scope.mpp) > MPP_TOLERANCE * scope.mpp:
        raise InputError(
            f"{slide.path}: {scope.mpp:g} µm per pixel, but the session is of {header.slide} "
            f"with {header.mpp:g}. If it is the same slide, set its pixel size with --mpp "
            f"{header.mpp:g}"
        )
    actions = actions_of(session, settings)
    if not actions:
        raise InputError(
            f"{name}: nothing to draft: no stay of at least {settings.stay_s:g} s, no pan of at"
            f" least {settings.pan_s:g} s and no peek"
        )
    if len(actions) > MAX_ROUNDS:
        raise InputError(f"{name}: {len(actions)} actions, but at most {MAX_ROUNDS} can be drafted")
    rounds, before = [], 0.0
    for place in places_of(scope, actions):
        rationale = writer.write(scope, place, header.task)
        moved = max(0.0, place.action.start_s - before)
        before = max(before, place.action.end_s)
        rounds.append(Round(action=place.action, rationale=rationale, navigation_s=moved))
        report(f"{place.number} of {place.of}: {place.action.command}, {rationale.words} words")
    return Drafts(
        session=name,
        header=header,
        settings=settings,
        drafted_by=writer.drafted_by,
        model=writer.model,
        statement=writer.statement,
        rounds=tuple(rounds),
    )
