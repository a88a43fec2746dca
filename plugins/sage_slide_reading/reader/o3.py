"""Pathologist-o3 as moves in the turn loop.

The steps are an impression of the thumbnail, a behavior chosen for the task, regions
where readers with that behavior would look, reasoning about each, and a summary.

Source: "Pathology-CoT: Learning Visual Chain-of-Thought Agent from Expert Whole Slide
Image Diagnosis Behavior", 4.5. Unlike in its training data, the agent need not explain
why it views a region.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Protocol

from pydantic import Field

from agents.core.base import Agent, Role, View, prompt_file
from mcp_servers.slides.slide import Slide
from sage.core.errors import InputError
from sage.core.llm.trace import Trace
from sage.core.llm.turns import Tool, Use
from sage.core.printable import count_noun, one_line
from sage.core.seeds import generator
from sage_slide_reading.reader.algorithm import Given, Nothing, ReaderSession
from sage_slide_reading.reader.eyes import Eyes
from sage_slide_reading.reader.model import refuse_without_model
from sage_slide_reading.reader.scope import ONE_UM, Scope
from sage_slide_reading.reader.types import (
    Box,
    Described,
    Guidance,
    O3Options,
    Options,
    Prediction,
    Proposed,
    Question,
    Reading,
    Region,
    Step,
)

AGENT = "pathologist_o3"
PURPOSE = 25
THUMBNAIL_PX = 1024
NOWHERE = (
    "Abstains: the behavior proposes no region of this slide, so nothing was looked at. Try "
    "another behavior (--task), another model (--behavior) or --agent pathagent."
)


class Guide(Protocol):
    """Proposes regions that readers with a behavior would visit."""

    @property
    def name(self) -> str:
        """Name of the guide."""
        ...

    @property
    def behaviors(self) -> tuple[str, ...]:
        """Tasks for which the guide has a behavior."""
        ...

    def predict(self, slide: Slide, task: str, most: int | None) -> list[Proposed]:
        """Propose at most `most` regions, best first; the guide decides the number if None."""
        ...


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


class Number(View):
    """Arguments for `look`."""

    number: int = Field(ge=1)


class Propose(View):
    """Arguments for `propose`."""

    behavior: str


class O3Session(ReaderSession):
    """State of a Pathologist-o3 reading, and the tools that change it."""

    def __init__(
        self, scope: Scope, eyes: Eyes, guide: Guide, question: Question, options: O3Options
    ) -> None:
        super().__init__(scope, eyes, question)
        self.guide, self.options = guide, options
        self.impressed: Described | None = None
        self.routed: Routed | None = None
        self.visits: list[tuple[str, Proposed]] = []
        self.seen: list[Described] = []

    def described(self) -> set[str]:
        """See `ReaderSession.described`."""
        return {seen.region.id for seen in self.seen}

    def impression(self, _: Nothing) -> dict[str, Any]:
        """View the thumbnail and describe the impression."""
        slide = self.scope.slide
        whole = Box(x=0, y=0, width=slide.width, height=slide.height)
        region = self.scope.region(whole, self.scope.options.magnification, "thumbnail")
        self.impressed = self.eyes.perceptor.describe(self.scope, region, self.question)
        return self.impressed.model_dump(mode="json")

    def route(self, _: Nothing) -> dict[str, Any]:
        """Choose a behavior from the bank for the task."""
        assert self.impressed is not None
        if self.options.behavior is not None:
            self.routed = Routed(behavior=self.options.behavior, why="it was requested")
        elif self.eyes.reasoner is None or len(self.guide.behaviors) == 1:
            self.routed = Routed(behavior=self.guide.behaviors[0], why="it is the bank's first")
        else:
            given = Routing(
                question=self.question.text, impression=self.impressed.text,
                behaviors=self.guide.behaviors,
            )  # fmt: skip
            self.routed = self.eyes.reasoner.ask(ROUTER, given).output
        return self.routed.model_dump(mode="json")

    def propose(self, given: Propose) -> list[dict[str, Any]]:
        """Propose regions that readers with the behavior would visit, in the requested order."""
        slide = self.scope.slide
        proposed = self.guide.predict(slide, given.behavior, self.options.most)
        on_slide = [
            region
            for region in proposed
            if 0 <= region.x + region.w / 2 < slide.width
            and 0 <= region.y + region.h / 2 < slide.height
        ]
        found = [(f"r{rank}", region) for rank, region in enumerate(on_slide, 1)]
        if self.options.order == "reverse":
            found.reverse()
        elif self.options.order == "random":
            rng = generator(self.options.seed, PURPOSE)
            found = [found[place] for place in rng.permutation(len(found)).tolist()]
        self.visits = found
        return [{"id": name, **visit.model_dump(mode="json")} for name, visit in found]

    def look(self, given: Number) -> dict[str, Any]:
        """Describe one region at higher power, and reason about it."""
        name, visit = self.visits[given.number - 1]
        power = min(self.options.magnification or self.scope.native, self.scope.native)
        region = self.scope.region(self._clip(visit), power, name)
        parts: Sequence[Region] = (region,)
        if self.eyes.reasoner is None:
            parts = self.scope.divide(region, power) or (region,)
        seen = []
        for part in parts:
            seen.append(self.eyes.perceptor.describe(self.scope, part, self.question))
            self.scope.note_described(part)
        self.seen += seen
        assert self.routed is not None
        self.steps.append(
            Step(
                round=given.number,
                action="zoom",
                looked_for=self.routed.behavior[:1000],
                magnification=region.magnification,
                seen=tuple(seen),
                relevance=tuple(visit.score for _ in seen),
                predicted=self.predict_from(
                    seen, round=given.number, screened=False, last_round=False
                ),
            )
        )
        return self.steps[-1].model_dump(mode="json")

    def _clip(self, visit: Proposed) -> Box:
        """Clip a region to the slide."""
        slide = self.scope.slide
        left, top = max(0, round(visit.x)), max(0, round(visit.y))
        right = min(slide.width, round(visit.x + visit.w))
        bottom = min(slide.height, round(visit.y + visit.h))
        return Box(x=left, y=top, width=max(1, right - left), height=max(1, bottom - top))

    def summarize(self, _: Nothing) -> dict[str, Any]:
        """Answer from all descriptions so far.

        Only the summary may conclude absence, since the guide ranked the slide.
        """
        self.prediction = Prediction(answer=None, thinking_steps=NOWHERE)
        if self.seen:
            self.prediction = self.predict_from(
                self.seen, round=len(self.steps) + 1, screened=True, last_round=True
            )
        return self.prediction.model_dump(mode="json")

    def tools(self) -> tuple[Tool[Any], ...]:
        """Return the tools in the form that the loop calls."""
        return (
            Tool("impression", "Look at the thumbnail.", Nothing, self.impression),
            Tool("route", "Choose a behavior of the bank.", Nothing, self.route),
            Tool("propose", "Regions of the behavior.", Propose, self.propose),
            Tool("look", "Describe a region and draw conclusions from it.", Number, self.look),
            Tool("summarize", "Answer from everything that was seen.", Nothing, self.summarize),
        )

    def finish(self) -> Reading:
        """Build the complete reading, which begins with the thumbnail."""
        assert self.impressed is not None
        assert self.routed is not None
        first = Step(
            round=0,
            action="look",
            looked_for=self.question.text,
            magnification=self.impressed.region.magnification,
            seen=(self.impressed,),
            relevance=(1.0,),
            why_next=one_line(
                f"{self.routed.behavior}: {self.routed.why};"
                f" {count_noun(len(self.visits), 'region')}"
            )[:1000],
        )
        guidance = Guidance(
            guide=self.guide.name, behavior=self.routed.behavior, why=self.routed.why,
            options=self.options, visits=tuple(visit for _, visit in self.visits),
        )  # fmt: skip
        preface = f"Regions were proposed by {self.guide.name}: they are places to look at, not"
        return self.reading(
            (first, *self.steps), self.scope.options, guidance, f"{preface} findings."
        )


def moves(session: O3Session) -> Generator[Use, Any, Reading]:
    """Yield the moves: thumbnail, router, behavior, regions one by one, and summary."""
    nothing = Nothing()
    yield Use("impression", nothing)
    yield Use("route", nothing)
    assert session.routed is not None
    yield Use("propose", Propose(behavior=session.routed.behavior))
    for number in range(1, len(session.visits) + 1):
        yield Use("look", Number(number=number))
    yield Use("summarize", nothing)
    return session.finish()


def o3_scope(slide: Slide) -> Scope:
    """Open a scope for Pathologist-o3, whose first magnification is the thumbnail's."""
    shrink = max(1.0, max(slide.width, slide.height) / THUMBNAIL_PX)
    power = min(40.0, ONE_UM / (slide.need_mpp() * shrink))
    return Scope(slide, Options(magnification=power, patch_px=128))


def read_guided(
    scope: Scope,
    eyes: Eyes,
    guide: Guide,
    question: Question,
    options: O3Options,
    *,
    trace: Trace | None = None,
) -> Reading:
    """Answer a question about a slide (`o3_scope`) from regions that a guide proposes.

    Raises
    ------
    InputError
        If the guide does not have the requested behavior.
    FaultError
        If the model's replies remain unusable, or a limit is reached.
    """
    if options.behavior is not None and options.behavior not in guide.behaviors:
        raise InputError(
            f'unknown behavior "{options.behavior[:80]}"; available: ' + "; ".join(guide.behaviors)
        )
    session = O3Session(scope, eyes, guide, question, options)
    given = Given(
        slide=scope.slide.name, question=question, eyes=eyes.name, guide=guide.name,
        options=options,
    )  # fmt: skip
    return session.read(AGENT, given, moves(session), (options.most or 200) + 10, trace)
