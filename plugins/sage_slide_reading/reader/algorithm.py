"""PathAgent's Algorithm 1 as moves in the turn loop, in which every step is a tool call.

The tools keep the state, and the moves only decide what comes next, so their trace can be
replayed without a slide, a model, or a person.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from typing import Annotated, Any, Literal, Protocol

from pydantic import Field

from agents.core.base import View
from sage.core.errors import InputError
from sage.core.llm.trace import Trace
from sage.core.llm.turns import Bounds, RulePolicy, Task, Tool, Use, take_turns
from sage.core.models import Name
from sage.core.printable import one_line
from sage.core.seeds import generator
from sage_slide_reading.reader.eyes import Eyes
from sage_slide_reading.reader.scope import Scope
from sage_slide_reading.reader.types import (
    Box,
    Described,
    Guidance,
    MissingInfo,
    O3Options,
    Options,
    Prediction,
    Question,
    Reading,
    Reflection,
    Region,
    State,
    Step,
)

AGENT = "slide_reader"
Stage = Literal["selected", "described", "missing"]


class Intervention(View):
    """A person's changes at a step, in any of four kinds."""

    region: Box | None = Field(
        default=None, description="Additional region to look at, in level-0 pixels"
    )
    edit: (
        tuple[Annotated[str, Field(max_length=80)], Annotated[str, Field(max_length=2000)]] | None
    ) = Field(default=None, description="Region ID and its description")
    missing_info: str | None = Field(default=None, min_length=1, max_length=500)
    magnification: float | None = Field(default=None, ge=1, le=80)
    by: Name = Field(
        default="", max_length=80, description="Name of the person, if people are identified"
    )

    def describe(self) -> str:
        """Describe the input as text for the trace."""
        said = []
        if (box := self.region) is not None:
            said.append(f"look at {box.x},{box.y},{box.width},{box.height}")
        if self.edit is not None:
            said.append(f"{self.edit[0]} reads: {self.edit[1]}")
        if self.missing_info is not None:
            said.append(f"look for: {self.missing_info}")
        if self.magnification is not None:
            said.append(f"magnification {self.magnification:g}x")
        return "; ".join(said) + (f" ({self.by})" if self.by else "")


class Person(Protocol):
    """Interface for a person who may intervene."""

    def intervene(
        self, stage: Stage, round_: int, seen: Sequence[Described], selected: Sequence[Region]
    ) -> list[Intervention]:
        """Return changes to make now; empty to continue. Rounds are counted from 1."""
        ...


class Select(View):
    """Arguments for `navigate`."""

    query: str
    among: Literal["unseen", "magnified"]
    k: int = Field(ge=1)


class Nothing(View):
    """Empty arguments."""


class Look(View):
    """Arguments for `describe`."""

    guided: int = Field(ge=0)


class Ask(View):
    """Arguments for `person`."""

    stage: Stage


class Magnified(View):
    """Arguments for `magnify`."""

    magnification: float | None


class Given(View):
    """Input for a reader; `guide` proposes regions to Pathologist-o3."""

    slide: str
    question: Question
    eyes: str
    options: Options | O3Options
    guide: str = ""


class ReaderSession:
    """State common to all slide-reading agents: the steps, and the prediction so far."""

    def __init__(self, scope: Scope, eyes: Eyes, question: Question) -> None:
        self.scope, self.eyes, self.question = scope, eyes, question
        self.steps: list[Step] = []
        self.prediction: Prediction | None = None

    def predict_from(self, seen: Sequence[Described], **known: Any) -> Prediction:
        """Ask the Executor for an answer based on the descriptions.

        Raises
        ------
        InputError
            If the answer rests on regions that were never seen, or is not one of the options.
        """
        return self.check_prediction(
            self.eyes.executor.predict(self.scope, self.state(seen, **known))
        )

    def state(self, seen: Sequence[Described], **known: Any) -> State:
        """Build S_t; `known` gives its round, and whether it is the last and was screened."""
        slide = self.scope.slide
        return State(
            question=self.question, slide=slide.name, size=(slide.width, slide.height),
            native=self.scope.native, seen=tuple(seen), **known,
        )  # fmt: skip

    def check_prediction(self, found: Prediction) -> Prediction:
        """Return the prediction, with its answer replaced by the option that it names."""
        known = self.described()
        unseen = [name for name in found.regions if name not in known]
        if unseen:
            raise InputError(f"the answer cites regions that were never seen: {unseen[:3]}")
        if found.answer is None:
            return found
        answer = self.question.chosen(found.answer)
        if answer is None:
            raise InputError(f"{found.answer[:80]!r} is not one of the options")
        return found.model_copy(update={"answer": answer})

    def described(self) -> set[str]:
        """Return the IDs of the regions described so far."""
        raise NotImplementedError

    def reading(
        self, steps: Sequence[Step], options: Options, guidance: Guidance | None = None,
        preface: str = "",
    ) -> Reading:  # fmt: skip
        """Build the complete reading; `preface` begins its statement."""
        assert self.prediction is not None
        slide, statement = self.scope.slide, (preface, self.eyes.statement, self.scope.doubt)
        return Reading(
            slide=slide.name,
            mpp=self.scope.mpp,
            size=(slide.width, slide.height),
            question=self.question,
            eyes=self.eyes.name,
            statement=" ".join(filter(None, statement)),
            options=options,
            guidance=guidance,
            answer=self.prediction.answer,
            reasoning=self.prediction.thinking_steps,
            rests_on=self.prediction.regions,
            steps=tuple(steps),
            read=self.scope.count_pixels(),
        )

    def tools(self) -> tuple[Tool[Any], ...]:
        """Return the tools in the form that the loop calls."""
        raise NotImplementedError

    def read(
        self, agent: str, given: Given, moves: Generator[Use, Any, Reading], turns: int,
        trace: Trace | None,
    ) -> Reading:  # fmt: skip
        """Call the tools in the order of the moves, and record every call in the trace."""
        task = Task(
            agent=agent, given=given, returns=Reading, check=reading_problems, tools=self.tools(),
            bounds=Bounds(turns=turns),
        )  # fmt: skip
        return take_turns(task, RulePolicy(agent, moves), trace or Trace(), given.eyes).output


class Session(ReaderSession):
    """State S_t of a reading, and the tools that change it."""

    def __init__(
        self, scope: Scope, eyes: Eyes, question: Question, options: Options, person: Person | None
    ) -> None:
        super().__init__(scope, eyes, question)
        self.options, self.person = options, person
        self.round = 0
        self.selected: list[tuple[Region, float]] = []
        self.visited: set[str] = set()
        self.merged: dict[str, Described] = {}
        self.current: dict[str, Described] = {}
        self.pool: list[Region] = []
        self.extra: list[Region] = []
        self.asked_info = ""
        self.asked_magnification: float | None = None
        self.looked_for = ""
        self.reflection: Reflection | None = None
        self.gap: MissingInfo | None = None
        self.notes: list[str] = []
        self.action: Literal["look", "zoom", "explore"] = "look"

    # -- tools --------------------------------------------------------------------------------

    def navigate(self, given: Select) -> dict[str, Any]:
        """Choose the k patches most relevant to a query among those not visited yet."""
        if given.among == "magnified":
            pool = self.pool
        else:
            pool = [patch for patch in self.scope.patches if patch.id not in self.visited]
        if not pool and not self.extra:
            self.selected = []
            return {"selected": [], "relevance": [], "of": 0}
        if self.options.random_navigator:
            rng = generator(self.options.seed, len(self.steps), len(pool))
            order = rng.permutation(len(pool)).tolist()
            ranked = [(pool[place], 0.0) for place in order]
        else:
            scores = self.eyes.navigator.relevance(self.scope, pool, self.question, given.query)
            if len(scores) != len(pool):
                raise InputError(
                    f"{self.eyes.navigator.name}: got {len(scores)} scores for {len(pool)} patches"
                )
            order = sorted(range(len(pool)), key=lambda place: (-scores[place], place))
            ranked = [(pool[place], round(float(scores[place]), 4)) for place in order]
        self.selected = [(region, 1.0) for region in self.extra] + ranked[: given.k]
        self.extra = []
        self.looked_for = one_line(given.query)[:1000]
        return {
            "selected": [region.id for region, _ in self.selected],
            "relevance": [score for _, score in self.selected],
            "of": len(pool),
        }

    def describe(self, given: Look) -> list[dict[str, Any]]:
        """Describe the selected patches, the first few with knowledge of the question."""
        self.current = {}
        for place, (region, _) in enumerate(self.selected):
            question = self.question if place < given.guided else None
            seen = self.eyes.perceptor.describe(self.scope, region, question)
            self.scope.note_described(region)
            self.visited.add(region.id)
            self.current[region.id] = seen
        self.merged |= self.current
        return [seen.model_dump(mode="json") for seen in self.current.values()]

    def described(self) -> set[str]:
        """See `ReaderSession.described`."""
        return set(self.merged)

    def _known(self) -> dict[str, Any]:
        return {
            "round": self.round,
            "screened": self.eyes.navigator.screens and not self.options.random_navigator,
            "last_round": self.round >= self.options.rounds,
        }

    def _current_state(self) -> State:
        return self.state(list(self.current.values()), **self._known())

    def predict(self, merged: bool) -> dict[str, Any]:
        """Answer from S_t or from all states; raises an error for regions that were never seen."""
        seen = list((self.merged if merged else self.current).values())
        self.prediction = self.predict_from(seen, **self._known())
        return self.prediction.model_dump(mode="json")

    def reflect(self, _: Nothing) -> dict[str, Any]:
        """Ask whether S_t is sufficient to support the answer."""
        assert self.prediction is not None
        self.reflection = self.eyes.executor.reflect(
            self.scope, self._current_state(), self.prediction
        )
        return self.reflection.model_dump(mode="json")

    def missing(self, _: Nothing) -> dict[str, Any]:
        """Ask which information is missing, and whether zooming in would reveal it."""
        self.gap = self.eyes.executor.missing(self.scope, self._current_state())
        return self._gap()

    def _gap(self) -> dict[str, Any]:
        assert self.gap is not None
        zoom = self.gap.zoom and self.scope.native > 1.05 * self._current_magnification()
        return {
            "zoom": zoom,
            "query": self.gap.query,
            "magnification": self.gap.magnification,
            "items": [item.model_dump(mode="json") for item in self.gap.items],
        }

    def at_once(self, _: Nothing) -> dict[str, Any]:
        """Ask the Executor for answer, sufficiency, and missing information in one request."""
        said = self.eyes.executor.at_once(self.scope, self._current_state())
        self.reflection, self.gap = said.reflection, said.missing
        self.prediction = self.check_prediction(said.prediction)
        return {
            "prediction": self.prediction.model_dump(mode="json"),
            "reflection": self.reflection.model_dump(mode="json"),
            "missing": self._gap(),
        }

    def _current_magnification(self) -> float:
        return max(
            (region.magnification for region, _ in self.selected),
            default=self.options.magnification,
        )

    def magnify(self, given: Magnified) -> dict[str, Any]:
        """Divide the regions in X_t into finer patches at the magnification M_t."""
        wanted = self.asked_magnification or given.magnification
        self.asked_magnification = None
        level = self.scope.zoom(wanted, self._current_magnification())
        parents = [region for region, _ in self.selected]
        self.pool = [
            part
            for parent in parents
            if parent.magnification < level
            for part in self.scope.divide(parent, level)
        ]
        self.extra = [self.scope.region(region.box, level, region.id) for region in self.extra]
        at_level = len(self.pool) / max(1, len(parents)) * len(self.scope.patches)
        return {"magnification": level, "patches": len(self.pool), "at_level": math.ceil(at_level)}

    def person_intervenes(self, given: Ask) -> list[str]:
        """Ask the person to intervene, and apply the person's changes."""
        if self.person is None:
            return []
        done = []
        selected = [region for region, _ in self.selected]
        seen = list(self.current.values())
        for change in self.person.intervene(given.stage, self.round, seen, selected):
            if change.region is not None:
                name = f"person-{len(self.visited) + len(self.extra)}"
                level = change.magnification or self._current_magnification()
                self.extra.append(self.scope.region(change.region, level, name))
            if change.edit is not None:
                name, text = change.edit
                if name not in self.merged:
                    raise InputError(
                        f"no region {name!r} to describe; viewed regions: {', '.join(self.merged)}"
                    )
                edited = self.merged[name].model_copy(update={"text": text, "edited": True})
                self.merged[name] = edited
                if name in self.current:
                    self.current[name] = edited
            if change.missing_info is not None:
                self.asked_info = change.missing_info
            if change.magnification is not None:
                self.asked_magnification = change.magnification
            done.append(change.describe())
        self.notes.extend(done)
        return done

    def has_request(self) -> bool:
        """Return True if a person requested a region that has not been viewed yet."""
        return bool(self.extra or self.asked_info or self.asked_magnification)

    def tools(self) -> tuple[Tool[Any], ...]:
        """Return the tools in the form that the loop calls."""
        return (
            Tool("navigate", "Choose the most relevant patches.", Select, self.navigate),
            Tool("describe", "Describe the chosen patches.", Look, self.describe),
            Tool("predict", "Predict from S_t.", Nothing, lambda _: self.predict(False)),
            Tool("synthesize", "Predict from all states.", Nothing, lambda _: self.predict(True)),
            Tool("reflect", "Judge sufficiency.", Nothing, self.reflect),
            Tool("missing", "State what is missing.", Nothing, self.missing),
            Tool("at_once", "All three at once.", Nothing, self.at_once),
            Tool("magnify", "Divide into finer patches.", Magnified, self.magnify),
            Tool("person", "Ask the person.", Ask, self.person_intervenes),
        )

    def close_step(self, why: str) -> None:
        """Record the round that ends here, with the reason why."""
        self.steps.append(
            Step(
                round=self.round,
                action=self.action,
                looked_for=self.looked_for,
                magnification=self._current_magnification(),
                seen=tuple(self.current.values()),
                relevance=tuple(score for _, score in self.selected),
                predicted=self.prediction,
                reflected=self.reflection,
                missing=self.gap,
                why_next=one_line(why)[:1000],
                interventions=tuple(self.notes),
            )
        )
        self.prediction = self.reflection = self.gap = None
        self.notes = []


def moves(session: Session) -> Generator[Use, Any, Reading]:
    """Yield the moves of Algorithm 1; a person's requests come first.

    The parameters are T = 5 rounds, k1 = ceil(0.1 N), and kt = ceil(0.05 N). The same
    fraction of the magnified patches is described: ceil(0.05 N) of the N patches that the
    slide has at that magnification.
    """
    options, question = session.options, session.question
    count = len(session.scope.patches)
    nothing = Nothing()

    def ask(stage: Stage) -> Generator[Use, Any, None]:
        if session.person is not None:
            yield Use("person", Ask(stage=stage))

    first = math.ceil(options.first_share * count)
    session.round = 1
    yield from ask("selected")
    yield Use("navigate", Select(query=question.text, among="unseen", k=first))  # 1
    yield Use("describe", Look(guided=options.guided))  # 2
    yield from ask("described")
    if options.look_once:
        yield Use("predict", nothing)
        final = session.prediction
        session.close_step("a look was requested")
        session.prediction = final
        return session.reading(session.steps, options)
    while True:  # 3
        if options.single_step:
            yield Use("at_once", nothing)
        else:
            yield Use("predict", nothing)  # 4
            if not options.no_reflection:
                yield Use("reflect", nothing)  # 5
        sufficient = session.reflection is not None and session.reflection.sufficient == "Yes"
        if sufficient and not session.has_request():  # 6
            assert session.reflection is not None
            session.close_step(f"sufficient: {session.reflection.reason}")
            break  # 7
        if not options.single_step:
            yield Use("missing", nothing)  # 9
        yield from ask("missing")
        gap = session.gap
        assert gap is not None
        query = session.asked_info or gap.query
        session.asked_info = ""
        zoom = session._gap()["zoom"] or session.asked_magnification is not None
        if zoom:  # 10
            magnification = gap.magnification
            why = next((i.zoom_reason for i in gap.items if i.zoom_reason), "")
            level = yield Use("magnify", Magnified(magnification=magnification))  # 11
            session.close_step(f"zoom in to {level['magnification']:.3g}x for {query}: {why}")
            session.action = "zoom"
            k = max(1, math.ceil(options.later_share * level["at_level"]))
            yield Use("navigate", Select(query=query, among="magnified", k=k))  # 12
            yield Use("describe", Look(guided=options.guided))  # 13, merged
            yield from ask("described")
            if session.has_request() and session.round < options.rounds:
                session.round += 1  # a person asks for more
                continue
            session.close_step("a closer look ends the search")
            break  # 14
        if session.round >= options.rounds:
            session.close_step("no round is left")
            break
        session.close_step(f"explore other patches for {query}")
        session.round += 1
        session.action = "explore"
        k = math.ceil(options.later_share * count)
        chosen = yield Use("navigate", Select(query=query, among="unseen", k=k))  # 16
        if not chosen["selected"]:
            break
        yield Use("describe", Look(guided=options.guided))  # 17
        yield from ask("described")
    yield Use("synthesize", nothing)  # 21
    return session.reading(session.steps, options)  # 22


def read_slide(
    scope: Scope,
    eyes: Eyes,
    question: Question,
    options: Options,
    *,
    trace: Trace | None = None,
    person: Person | None = None,
) -> Reading:
    """Answer a question about a slide by looking at it.

    Raises
    ------
    InputError
        If there is no tissue, a place is outside the slide, or an intervention refers to
        something that does not exist.
    FaultError
        If the model's replies remain unusable, or a limit is reached.
    """
    wide, high = scope.slide.width, scope.slide.height
    for name, box in question.places.items():
        if not box.is_within(wide, high):
            raise InputError(f'place "{name}" is outside the slide ({wide} × {high} pixels)')
    session = Session(scope, eyes, question, options, person)
    given = Given(slide=scope.slide.name, question=question, eyes=eyes.name, options=options)
    return session.read(AGENT, given, moves(session), 200, trace)


def reading_problems(reading: Reading) -> list[str]:
    """Check rules that apply to every reading, with any backend."""
    known = reading.regions()
    found = [
        f"it is based on {name}, which was not seen"
        for name in reading.rests_on
        if name not in known
    ]
    if (
        reading.answer is not None
        and reading.question.options
        and (reading.answer not in reading.question.options)
    ):
        found.append("its answer is not one of the options")
    return found
