"""Rationales for a session's actions, drafted by a vision-language model (Pathology-CoT, 4.3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field

from agents.core.base import Agent, Role, View, prompt_file
from mcp_servers.slides.slide import MPP_TOLERANCE
from sage.core.errors import InputError
from sage_slide_reading.reader.model import encode_png, field_png, refuse_without_model
from sage_slide_reading.reader.scope import Scope
from sage_slide_reading.reader.types import Box
from sage_slide_reading.sessions.actions import PAN_S, STAY_S, Action, actions_of
from sage_slide_reading.sessions.drafts import (
    MAX_ROUNDS,
    Drafts,
    Rationale,
    Round,
    cytology_size,
    sentences,
)
from sage_slide_reading.sessions.format import Session

if TYPE_CHECKING:
    from agents.core.chat import ChatReasoner

THUMBNAIL_PX = 768
VERBS = {"stay": "stayed", "pan": "panned", "peek": "peeked"}
BY_MODEL = (
    "Drafted by a vision-language model from the thumbnail, the region and a crop of its center; "
    "not by a pathologist. Not for diagnosis."
)
BY_NOBODY = "No drafts: the reviewer wrote the text."
Text = Annotated[str, Field(min_length=10, max_length=3000)]


class Place(View):
    """Model input: an action by the reader, with the sides of its images in µm."""

    task: str
    doing: str
    command: str
    width_um: float
    height_um: float
    crop_um: float


class Drafted(View):
    """The model's draft of a rationale."""

    thumbnail_impression: Text
    why_zoom: Text
    findings: Text


def draft_problems(given: Place, output: Drafted) -> list[str]:
    """List panels that do not consist of sentences, which a reviewer can delete individually."""
    found = []
    for name, text in output:
        parts = sentences(text)
        if len(parts) > 12 or any(len(part) > 600 for part in parts):
            found.append(f"{name}: at most twelve sentences, each shorter than 600 characters")
    return found


RATIONALE = Agent(
    name="slide_rationale", role=Role.HIGH, reads=Place, returns=Drafted,
    prompt=prompt_file(__file__, "rationale.md"), rule=refuse_without_model, check=draft_problems,
)  # fmt: skip


def draft(
    session: Session,
    name: str,
    scope: Scope,
    reasoner: ChatReasoner | None = None,
    report: Callable[[str], None] = lambda line: None,
) -> Drafts:
    """Draft a rationale for every action in a session; panels are empty without a model.

    `report` receives a line per round.

    Raises `InputError` if the session's slide has another name, size, or pixel size, or if the
    session yields no actions or too many, and `FaultError` if the model's replies remain unusable.
    """
    _check_slide(session, scope)
    header = session.header
    actions = actions_of(session)
    if not actions:
        raise InputError(
            f"{name}: nothing to draft; no stay of at least {STAY_S:g} s, no pan of at"
            f" least {PAN_S:g} s and no peek"
        )
    if len(actions) > MAX_ROUNDS:
        raise InputError(f"{name}: {len(actions)} actions, but at most {MAX_ROUNDS} can be drafted")
    rounds = []
    for number, action in enumerate(actions, 1):
        rationale = Rationale()
        if reasoner is not None:
            turn = f"as number {number} of {len(actions)}"
            rationale = _ask(reasoner, scope, action, header.task, turn)
        rounds.append(Round(action=action, rationale=rationale))
        report(f"{number} of {len(actions)}: {action.command}, {rationale.words} words")
    return Drafts(
        session=name,
        header=header,
        drafted_by="model" if reasoner else "none",
        model=reasoner.settings.models[Role.HIGH].name if reasoner else None,
        statement=BY_MODEL if reasoner else BY_NOBODY,
        rounds=tuple(rounds),
    )


def _check_slide(session: Session, scope: Scope) -> None:
    header, slide = session.header, scope.slide
    if slide.path.name != header.slide:
        raise InputError(
            f"{slide.path}: the session was recorded on {header.slide}; if this is the same slide, "
            "rename it to match, because review and training look up slides by name"
        )
    if (header.width, header.height) != (slide.width, slide.height):
        raise InputError(
            f"{slide.path}: {slide.width} x {slide.height} pixels, but the session was recorded on "
            f"{header.slide} with {header.width} x {header.height}"
        )
    if header.mpp is not None and abs(header.mpp - scope.mpp) > MPP_TOLERANCE * scope.mpp:
        raise InputError(
            f"{slide.path}: {scope.mpp:g} µm per pixel, but the session was recorded on "
            f"{header.slide} with {header.mpp:g}. If this is the same slide, set its "
            f"pixel size with --mpp {header.mpp:g}"
        )


def _ask(reasoner: ChatReasoner, scope: Scope, action: Action, task: str, turn: str) -> Rationale:
    """Show the thumbnail, the region and its central crop to the model."""
    native = min(scope.slide.objective_power or scope.native, scope.native)
    box = _box_around(scope, action.center, (action.w, action.h))
    crop = _box_around(scope, action.center, cytology_size(action))
    region = scope.region(box, min(action.bin, native), "region")
    cytology = scope.region(crop, native, "cytology")
    given = Place(
        task=task or "not stated",
        doing=f"The reader {VERBS[action.kind]} here for {action.seconds:.1f} s at "
        f"{action.magnification:.2g}x, {turn}.",
        command=action.command,
        width_um=region.um[2],
        height_um=region.um[3],
        crop_um=cytology.um[2],
    )
    pictures = (
        _thumbnail_png(scope, box), field_png(scope, region), field_png(scope, cytology),
    )  # fmt: skip
    agent = replace(RATIONALE, images=lambda _: pictures)
    said = reasoner.ask(agent, given).output
    return Rationale(**{panel: sentences(text) for panel, text in said})


def _box_around(scope: Scope, center: tuple[float, float], sides: tuple[float, float]) -> Box:
    """Return a box around a point, shifted onto the slide, in level-0 pixels."""
    whole = (scope.slide.width, scope.slide.height)
    width, height = (min(round(side), most) for side, most in zip(sides, whole, strict=True))
    left = min(max(0, round(center[0] - width / 2)), whole[0] - width)
    top = min(max(0, round(center[1] - height / 2)), whole[1] - height)
    return Box(x=left, y=top, width=max(1, width), height=max(1, height))


def _thumbnail_png(scope: Scope, box: Box) -> str:
    """Render the slide with a box drawn on it, as base64 PNG."""
    import cv2

    image = np.ascontiguousarray(scope.slide.thumbnail(THUMBNAIL_PX))
    scale = image.shape[1] / scope.slide.width
    first, second = (
        (round(x * scale), round(y * scale))
        for x, y in ((box.x, box.y), (box.x + box.width, box.y + box.height))
    )
    cv2.rectangle(image, first, second, (216, 27, 96), 3)
    return encode_png(image)
