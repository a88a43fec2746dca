"""The `record_session` tool, which converts a reader's views to a session file."""

from __future__ import annotations

from pydantic import Field, ValidationError

from mcp_servers.context import ToolContext
from mcp_servers.pathology.common import Given, SlideInput, SlideResult, of_slide, open_slide
from mcp_servers.spec import OutputName, Resources, tool
from sage.core.errors import InputError, explain_validation
from sage_slide_reading.sessions.actions import Action, actions_of
from sage_slide_reading.sessions.format import (
    SUFFIX,
    Coordinate,
    EventKind,
    Pixels,
    Session,
    Side,
    ViewEvent,
    describe_recording,
    kind_of,
    write_session,
)

MOST_VIEWS = 20_000
MOST_SHOWN = 200


class ViewGiven(Given):
    """View on the screen from `t` until the next view."""

    t: float = Field(ge=0, allow_inf_nan=False, description="Seconds since the start")
    x: Coordinate
    y: Coordinate
    w: Side
    h: Side
    kind: EventKind | None = Field(
        default=None, description="Default: open, then zoom if the width changes, else pan"
    )


class RecordSessionInput(SlideInput):
    """A reading's views, in order, in level-0 pixels."""

    views: list[ViewGiven] = Field(min_length=1, max_length=MOST_VIEWS)
    reader: str = Field(min_length=1, max_length=80, description="Pseudonym, or the agent's name")
    task: str = Field(default="", max_length=500, description="Task of the reader")
    screen: tuple[Pixels, Pixels] = Field(
        default=(1024, 768), description="Size of the viewer, in pixels"
    )


class RecordSessionResult(SlideResult):
    """The session file, and the actions derived from it."""

    session: OutputName = Field(description="JSON lines: a header, then one view per line")
    views: int
    seconds: float
    actions: int
    first_actions: list[Action] = Field(description=f"The first {MOST_SHOWN} actions")


@tool(
    "record_session",
    "sessions",
    "2.0.0",
    "Record where a reader looked on a slide as a session, and return the derived actions.",
    resources=Resources(cpu=1, memory_mb=256, seconds_per_item=1.0),
    cacheable=False,
    title="Record a reading of a slide",
)
def record_session(given: RecordSessionInput, context: ToolContext) -> RecordSessionResult:
    """Record a slide reading as a session file."""
    slide = open_slide(given, context, "nothing")
    try:
        header = describe_recording(
            slide, slide.path.name, screen=given.screen, reader=given.reader, task=given.task,
            note="Given to the tool record_session.",
        )  # fmt: skip
        events: list[ViewEvent] = []
        for number, view in enumerate(given.views, 1):
            if view.x >= slide.width or view.y >= slide.height or min(
                view.x + view.w, view.y + view.h
            ) <= 0:  # fmt: skip
                raise InputError(f"view {number} does not show any part of the slide")
            events.append(
                ViewEvent(
                    **view.model_dump(exclude={"kind"}),
                    kind=view.kind or kind_of(events[-1] if events else None, view.w),
                    magnification=header.magnification(view.w),
                )
            )
        session = Session(header=header, events=tuple(events))
    except ValidationError as error:
        raise InputError(f"record_session: {explain_validation(error)}") from None
    actions = actions_of(session)
    name = f"{slide.name}{SUFFIX}"
    with context.writing(name) as path:
        write_session(path, session)
    return RecordSessionResult(
        **of_slide(slide),
        warnings=list(slide.warnings),
        session=name,
        views=len(events),
        seconds=session.seconds,
        actions=len(actions),
        first_actions=actions[:MOST_SHOWN],
    )
