"""Pathologist-o3 as moves of the turn loop.

The steps are an impression of the thumbnail, a behavior chosen for the task, regions where readers
of that behavior would look, reasoning on each, and a summary.

Source: "Pathology-CoT: Learning Visual Chain-of-Thought Agent from Expert Whole Slide Image
Diagnosis Behavior", 4.5: unlike its training data, the agent need not explain why a region is seen.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Protocol

from pydantic import Field

from agents.core.base import Agent, Reasoner, Resources, Role, View, prompt_file
from sage.core.errors import InputError
from sage.core.llm.trace import Trace
from sage.core.llm.turns import Bounds, RulePolicy, Task, Tool, Use, take_turns
from sage.core.printable import count_noun, one_line
from sage.core.seeds import generator
from sage_slide_reading.reader.algorithm import Nothing, reading_problems
from sage_slide_reading.reader.eyes import Eyes, State
from sage_slide_reading.reader.scope import ONE_UM, Scope
from sage_slide_reading.reader.types import (
    Box,
    Described,
    Guidance,
    O3Options,
    Options,
    Prediction,
    Question,
    Reading,
    Region,
    Step,
    Visit,
    plain,
)

AGENT = "pathologist_o3"
PURPOSE = 25
NOWHERE = (
    "Abstains: the behavior proposes no region of this slide, so nothing was looked at. Try "
    "another behavior (--task), another model (--behavior) or --agent pathagent."
)
SMALL_WORDS = frozenset(
    [
        "a",
        "an",
        "and",
        "any",
        "are",
        "at",
        "be",
        "by",
        "for",
        "in",
        "is",
        "it",
        "of",
        "on",
        "or",
        "that",
        "the",
        "this",
        "to",
    ]
)


class Guide(Protocol):
    """Proposes regions that readers with a behavior would visit."""

    @property
    def name(self) -> str:
        """Name of the guide."""
        ...

    @property
    def behaviors(self) -> tuple[str, ...]:
        """Tasks for which the guide has behaviors."""
        ...

    def visits(self, scope: Scope, behavior: str, most: int | None) -> list[Visit]:
        """Propose at most `most` regions, best first; the guide decides the number if None."""
        ...


class Routed(View):
    """Behavior of the bank that suits the task, with the reason."""

    behavior: str = Field(max_length=500)
    why: str = Field(max_length=500)


class Routing(View):
    """Input of a router."""

    question: str
    impression: str
    behaviors: tuple[str, ...]


class Router(Protocol):
    """Chooses a behavior from the bank."""

    def route(self, given: Routing) -> Routed:
        """Choose a behavior."""
        ...


def words_route(given: Routing, resources: Resources | None = None) -> Routed:
    """Choose the behavior whose task shares the largest share of its words with the question."""
    asked = set(plain(given.question).split()) - SMALL_WORDS

    def shared_words(behavior: str) -> set[str]:
        return (set(plain(behavior).split()) - SMALL_WORDS) & asked

    def weight(behavior: str) -> float:
        return len(shared_words(behavior)) / max(1, len(set(plain(behavior).split()) - SMALL_WORDS))

    best = max(given.behaviors, key=lambda behavior: (weight(behavior), -len(behavior)))
    common = ", ".join(sorted(shared_words(best)))
    why = (
        f"its task shares {common}"
        if common
        else ("no task shares a word, so the shortest is used")
    )
    return Routed(behavior=best, why=f"{why} with the question"[:500])


def routed_problems(given: Routing, output: Routed) -> list[str]:
    """List the problem if the bank does not have the chosen behavior."""
    if output.behavior in given.behaviors:
        return []
    return ["behavior: not one of those listed; repeat one word for word"]


ROUTER = Agent(
    name="slide_router", role=Role.MINI, reads=Routing, returns=Routed,
    prompt=prompt_file(__file__, "router.md"), rule=words_route, check=routed_problems,
)  # fmt: skip


class WordRouter:
    """Rule-based router by words that the question and a behavior's task share."""

    def route(self, given: Routing) -> Routed:
        """See `words_route`."""
        return words_route(given)


class ModelRouter:
    """Router that uses a language model."""

    def __init__(self, reasoner: Reasoner) -> None:
        self.reasoner = reasoner

    def route(self, given: Routing) -> Routed:
        """Return the model's choice; an unlisted choice is returned for correction."""
        return self.reasoner.ask(ROUTER, given).output


class Number(View):
    """Arguments of `look`."""

    number: int = Field(ge=1)


class Propose(View):
    """Arguments of `propose`."""

    behavior: str


class GivenO3(View):
    """Input of the agent."""

    slide: str
    question: Question
    eyes: str
    guide: str
    options: O3Options


class O3Session:
    """State of a reading, and the tools that change it."""

    def __init__(
        self, scope: Scope, eyes: Eyes, guide: Guide, router: Router, question: Question,
        options: O3Options,
    ) -> None:  # fmt: skip
        self.scope, self.eyes, self.guide, self.router = scope, eyes, guide, router
        self.question, self.options = question, options
        self.impressed: Described | None = None
        self.routed: Routed | None = None
        self.visits: list[tuple[str, Visit]] = []
        self.steps: list[Step] = []
        self.prediction: Prediction | None = None

    def impression(self, _: Nothing) -> dict[str, Any]:
        """Look at the thumbnail."""
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
        elif len(self.guide.behaviors) == 1:
            self.routed = Routed(behavior=self.guide.behaviors[0], why="it is the only one")
        else:
            given = Routing(
                question=self.question.text, impression=self.impressed.text,
                behaviors=self.guide.behaviors,
            )  # fmt: skip
            self.routed = self.router.route(given)
        return self.routed.model_dump(mode="json")

    def propose(self, given: Propose) -> list[dict[str, Any]]:
        """Propose regions that readers with the behavior would visit, in the requested order."""
        proposed = self.guide.visits(self.scope, given.behavior, self.options.most)
        ranked = [visit for visit in proposed if self._on_slide(visit) is not None]
        found = [(f"r{rank}", visit) for rank, visit in enumerate(ranked, 1)]
        if self.options.order == "reverse":
            found.reverse()
        elif self.options.order == "random":
            rng = generator(self.options.seed, PURPOSE)
            found = [found[place] for place in rng.permutation(len(found)).tolist()]
        self.visits = found
        return [{"id": name, **visit.model_dump(mode="json")} for name, visit in found]

    def look(self, given: Number) -> dict[str, Any]:
        """Describe one region at a higher power, and reason on it."""
        name, visit = self.visits[given.number - 1]
        power = min(self.options.magnification or self.scope.native, self.scope.native)
        box = self._on_slide(visit)
        assert box is not None
        region = self.scope.region(box, power, name)
        parts: Sequence[Region] = (region,)
        if self.eyes.in_parts:
            parts = self.scope.divide(region, power) or (region,)
        seen = []
        for part in parts:
            seen.append(self.eyes.perceptor.describe(self.scope, part, self.question))
            self.scope.note_described(part)
        found = self.eyes.executor.predict(self.scope, self._state(seen, False), self.question)
        assert self.routed is not None
        self.steps.append(
            Step(
                round=given.number,
                action="zoom",
                looked_for=self.routed.behavior[:1000],
                magnification=region.magnification,
                seen=tuple(seen),
                relevance=tuple(visit.score for _ in seen),
                predicted=self._check_prediction(found),
            )
        )
        return self.steps[-1].model_dump(mode="json")

    def _on_slide(self, visit: Visit) -> Box | None:
        """Clip a region to the slide."""
        slide = self.scope.slide
        left, top = max(0, round(visit.x)), max(0, round(visit.y))
        right = min(slide.width, round(visit.x + visit.w))
        bottom = min(slide.height, round(visit.y + visit.h))
        if right <= left or bottom <= top:
            return None
        return Box(x=left, y=top, width=right - left, height=bottom - top)

    def summarize(self, _: Nothing) -> dict[str, Any]:
        """Answer from everything that was seen."""
        seen = [described for step in self.steps for described in step.seen]
        if seen:
            state = self._state(seen, True)
            found = self.eyes.executor.predict(self.scope, state, self.question)
            self.prediction = self._check_prediction(found)
        else:
            self.prediction = Prediction(answer=None, thinking_steps=NOWHERE)
        return self.prediction.model_dump(mode="json")

    def _state(self, seen: Sequence[Described], last: bool) -> State:
        """Build the state; only the summary may claim absence, since the guide ranked the slide."""
        slide = self.scope.slide
        return State(
            slide=slide.name,
            size=(slide.width, slide.height),
            mpp=self.scope.mpp,
            round=len(self.steps) + 1,
            seen=tuple(seen),
            screened=last and bool(seen),
            last_round=last,
        )

    def _check_prediction(self, found: Prediction) -> Prediction:
        if found.answer is None or not self.question.options:
            return found
        answer = self.question.chosen(found.answer)
        if answer is None:
            raise InputError(f"{found.answer[:80]!r} is not one of the options")
        return found.model_copy(update={"answer": answer})

    def tools(self) -> tuple[Tool[Any], ...]:
        """Return the tools in the form that the loop calls."""
        return (
            Tool("impression", "Look at the thumbnail.", Nothing, self.impression),
            Tool("route", "Choose a behavior of the bank.", Nothing, self.route),
            Tool("propose", "Regions of the behavior.", Propose, self.propose),
            Tool("look", "Describe a region and draw conclusions from it.", Number, self.look),
            Tool("summarize", "Answer from everything that was seen.", Nothing, self.summarize),
        )

    def reading(self) -> Reading:
        """Build the complete reading."""
        assert self.prediction is not None
        assert self.impressed is not None
        assert self.routed is not None
        slide, final = self.scope.slide, self.prediction
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
        return Reading(
            slide=slide.name,
            mpp=self.scope.mpp,
            size=(slide.width, slide.height),
            question=self.question,
            eyes=self.eyes.name,
            statement=" ".join(
                part
                for part in (
                    f"Regions were proposed by {self.guide.name}: they are places to look at, "
                    "not findings.",
                    self.eyes.statement,
                    self.scope.doubt,
                )
                if part
            ),
            options=self.scope.options,
            guidance=Guidance(
                guide=self.guide.name, behavior=self.routed.behavior, why=self.routed.why,
                options=self.options, visits=tuple(visit for _, visit in self.visits),
            ),
            answer=final.answer,
            reasoning=final.thinking_steps,
            rests_on=final.regions,
            steps=(first, *self.steps),
            read=self.scope.count_pixels(),
        )  # fmt: skip


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
    return session.reading()


THUMBNAIL_PX = 1024


def o3_scope(slide: Any) -> Scope:
    """Open the microscope for this agent, with the thumbnail's as its first magnification."""
    shrink = max(1.0, max(slide.width, slide.height) / THUMBNAIL_PX)
    power = min(40.0, ONE_UM / (slide.need_mpp() * shrink))
    return Scope(slide, Options(magnification=power, patch_px=128))


def read_guided(
    scope: Scope,
    eyes: Eyes,
    guide: Guide,
    router: Router,
    question: Question,
    options: O3Options,
    *,
    trace: Trace | None = None,
    bounds: Bounds | None = None,
) -> Reading:
    """Answer a question about a slide from regions that a guide proposes.

    Parameters
    ----------
    scope : the slide (`o3_scope`)
    eyes : components that describe and decide
    router : chooses among the guide's behaviors
    question : open, or with options
    options : maximum number of regions, their order, and their magnification
    bounds : maximum turns, tokens, USD, and seconds; a turn per region plus ten if None

    Raises
    ------
    InputError
        If the guide does not have the requested behavior.
    FaultError
        If the model's replies remain unusable, or a bound is reached.
    """
    if options.behavior is not None and options.behavior not in guide.behaviors:
        raise InputError(
            f'no behavior "{options.behavior[:80]}"; available: ' + "; ".join(guide.behaviors)
        )
    session = O3Session(scope, eyes, guide, router, question, options)
    task = Task(
        agent=AGENT,
        given=GivenO3(
            slide=scope.slide.name, question=question, eyes=eyes.name, guide=guide.name,
            options=options,
        ),
        returns=Reading,
        check=reading_problems,
        tools=session.tools(),
        bounds=bounds or Bounds(turns=(options.most or 200) + 10),
    )  # fmt: skip
    policy = RulePolicy(AGENT, moves(session))
    return take_turns(task, policy, trace or Trace(), eyes.name).output
