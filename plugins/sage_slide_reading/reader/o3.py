"""Pathologist-o3: thumbnail, a behavior for the task, its regions one by one, and a summary.

Source: "Pathology-CoT: Learning Visual Chain-of-Thought Agent from Expert Whole Slide
Image Diagnosis Behavior", 4.5. Unlike in its training data, the agent need not explain
why it views a region.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pydantic import Field

from agents.core.base import Agent, Role, View, prompt_file
from mcp_servers.slides.slide import Slide
from sage.core.errors import InputError
from sage.core.printable import count_noun, one_line
from sage_slide_reading.reader.algorithm import Inquiry
from sage_slide_reading.reader.eyes import Eyes
from sage_slide_reading.reader.model import refuse_without_model
from sage_slide_reading.reader.scope import ONE_UM, Scope
from sage_slide_reading.reader.types import (
    Box,
    Described,
    Guidance,
    Options,
    Prediction,
    Proposed,
    Question,
    Reading,
    Region,
    Step,
)

THUMBNAIL_PX = 1024
POWER = 20.0
"""Magnification at which regions are viewed; native if that is lower."""
NOWHERE = (
    "Abstains: the behavior proposes no region of this slide, so nothing was looked at. Try "
    "another behavior (--task), another model (--behavior) or --agent pathagent."
)


class Guide(Protocol):
    """Proposes regions that readers with a behavior would visit."""

    @property
    def name(self) -> str:
        """Name of the guide."""

    @property
    def behaviors(self) -> tuple[str, ...]:
        """Tasks for which the guide has a behavior."""

    def predict(self, slide: Slide, task: str, most: int | None) -> list[Proposed]:
        """Propose at most `most` regions, best first; the guide decides the number if None."""


class Routed(View):
    """A behavior in the bank that suits the task, with the reason."""

    behavior: str = Field(max_length=500)
    why: str = Field(max_length=500)


class Routing(View):
    """Input for the router, a language model."""

    question: str
    impression: str
    behaviors: tuple[str, ...]


def routed_problems(given: Routing, output: Routed) -> list[str]:
    """List a problem if the chosen behavior is not in the bank."""
    if output.behavior in given.behaviors:
        return []
    return ["behavior: not one of those listed; repeat one word for word"]


ROUTER = Agent(
    name="slide_router", role=Role.MINI, reads=Routing, returns=Routed,
    prompt=prompt_file(__file__, "router.md"), rule=refuse_without_model, check=routed_problems,
)  # fmt: skip


def o3_scope(slide: Slide) -> Scope:
    """Open a scope for Pathologist-o3, whose first magnification is the thumbnail's."""
    shrink = max(1.0, max(slide.width, slide.height) / THUMBNAIL_PX)
    power = min(40.0, ONE_UM / (slide.need_mpp() * shrink))
    return Scope(slide, Options(magnification=power, patch_px=128))


def read_guided(
    scope: Scope, eyes: Eyes, guide: Guide, question: Question, *, behavior: str | None = None,
    most: int | None = None,
) -> Reading:  # fmt: skip
    """Answer a question about a slide (`o3_scope`) from at most `most` regions of a guide.

    Raises `InputError` if the guide does not have the requested behavior, and `FaultError` if a
    model's replies remain unusable.
    """
    if behavior is not None and behavior not in guide.behaviors:
        raise InputError(
            f'unknown behavior "{behavior[:80]}"; available: ' + "; ".join(guide.behaviors)
        )
    task, slide = Inquiry(scope, eyes, question), scope.slide
    whole = Box(x=0, y=0, width=slide.width, height=slide.height)
    thumbnail = scope.region(whole, scope.options.magnification, "thumbnail")
    impression = eyes.perceptor.describe(scope, thumbnail, question)
    routed = _route(eyes, guide, question, impression, behavior)
    visits = [
        visit
        for visit in guide.predict(slide, routed.behavior, most)
        if 0 <= visit.x + visit.w / 2 < slide.width and 0 <= visit.y + visit.h / 2 < slide.height
    ]
    why = f"{routed.behavior}: {routed.why}; {count_noun(len(visits), 'region')}"
    steps = [
        Step(round=0, action="look", looked_for=question.text, seen=(impression,), relevance=(1.0,),
             magnification=scope.options.magnification, why_next=one_line(why)[:1000])
    ]  # fmt: skip
    for number, visit in enumerate(visits, 1):
        steps.append(_look(task, visit, number, routed.behavior))
    answer = Prediction(answer=None, thinking_steps=NOWHERE)
    if visits:  # only the summary may conclude absence, since the guide ranked the slide
        seen = [view for step in steps[1:] for view in step.seen]
        answer = task.predict(task.state(seen, len(steps), screened=True, last=True))
    guidance = Guidance(
        guide=guide.name, behavior=routed.behavior, why=routed.why, visits=tuple(visits)
    )
    preface = f"Regions were proposed by {guide.name}: they are places to look at, not findings."
    return task.reading(steps, answer, scope.options, guidance, preface)


def _route(
    eyes: Eyes, guide: Guide, question: Question, impression: Described, behavior: str | None
) -> Routed:
    """Choose a behavior from the bank for the task."""
    if behavior is not None:
        return Routed(behavior=behavior, why="it was requested")
    if eyes.reasoner is None or len(guide.behaviors) == 1:
        return Routed(behavior=guide.behaviors[0], why="it is the bank's first")
    given = Routing(question=question.text, impression=impression.text, behaviors=guide.behaviors)
    return eyes.reasoner.ask(ROUTER, given).output


def _look(task: Inquiry, visit: Proposed, number: int, behavior: str) -> Step:
    """Describe a region at higher power, and reason about it."""
    scope = task.scope
    left, top = max(0, round(visit.x)), max(0, round(visit.y))
    right = min(scope.slide.width, round(visit.x + visit.w))
    bottom = min(scope.slide.height, round(visit.y + visit.h))
    box = Box(x=left, y=top, width=max(1, right - left), height=max(1, bottom - top))
    region = scope.region(box, POWER, f"r{number}")
    parts: Sequence[Region] = (region,)
    if task.eyes.reasoner is None:
        parts = scope.divide(region, region.magnification) or (region,)
    seen = tuple(map(task.describe, parts))
    return Step(
        round=number,
        action="zoom",
        looked_for=behavior[:1000],
        magnification=region.magnification,
        seen=seen,
        relevance=(visit.score,) * len(seen),
        predicted=task.predict(task.state(seen, number, screened=False, last=False)),
    )
