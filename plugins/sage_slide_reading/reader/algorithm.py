"""PathAgent's Algorithm 1: look, predict, reflect, then zoom in, explore, or answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sage.core.errors import FaultError
from sage.core.printable import one_line
from sage_slide_reading.reader.eyes import Eyes
from sage_slide_reading.reader.person import Person, Stage
from sage_slide_reading.reader.scope import Scope
from sage_slide_reading.reader.types import (
    Action,
    Described,
    Guidance,
    MissingInfo,
    Options,
    Prediction,
    Question,
    Reading,
    Region,
    State,
    Step,
)


@dataclass(frozen=True)
class Inquiry:
    """A question about a slide, and the backend that is to answer it."""

    scope: Scope
    eyes: Eyes
    question: Question

    def state(self, seen: Sequence[Described], round_: int, *, screened: bool, last: bool) -> State:
        """Build S_t from descriptions."""
        slide = self.scope.slide
        return State(
            question=self.question, slide=slide.name, size=(slide.width, slide.height),
            native=self.scope.native, round=round_, seen=tuple(seen), screened=screened,
            last_round=last,
        )  # fmt: skip

    def predict(self, state: State) -> Prediction:
        """Ask the Executor for an answer; one that names an option becomes that option.

        Raises `FaultError` if the answer rests on regions that were not described, or is not one
        of the options.
        """
        found = self.eyes.executor.predict(self.scope, state)
        unseen = set(found.regions) - {seen.region.id for seen in state.seen}
        if unseen:
            raise FaultError(f"the answer cites regions that were never seen: {min(unseen)}")
        answer = self.question.chosen(found.answer)
        if answer is None and found.answer is not None:
            raise FaultError(f"{found.answer[:80]!r} is not one of the options")
        return found.model_copy(update={"answer": answer})

    def describe(self, region: Region, *, guided: bool = True) -> Described:
        """Ask the Perceptor for a description, if `guided` with knowledge of the question."""
        self.scope.note_described(region)
        return self.eyes.perceptor.describe(self.scope, region, self.question if guided else None)

    def reading(
        self, steps: Sequence[Step], answer: Prediction, options: Options,
        guidance: Guidance | None = None, preface: str = "",
    ) -> Reading:  # fmt: skip
        """Build the complete reading; `preface` begins its statement."""
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
            answer=answer.answer,
            reasoning=answer.thinking_steps,
            rests_on=answer.regions,
            steps=tuple(steps),
            read=self.scope.count_pixels(),
        )


class _PathAgent:
    """A reading in progress: its steps, of which the last is open, and a person's requests."""

    def __init__(self, task: Inquiry, options: Options, person: Person | None) -> None:
        self.task, self.options, self.person = task, options, person
        self.steps: list[Step] = []
        self.extra: list[Region] = []
        self.wanted, self.power = "", 0.0
        self.notes: tuple[str, ...] = ()

    def read(self) -> Reading:
        """Follow Algorithm 1, whose line numbers are given; a person's requests come first.

        The parameters are T = 5 rounds, k1 = ceil(0.1 N), and kt = ceil(0.05 N). The same
        fraction of the magnified patches is described: ceil(0.05 N) of the N patches that the
        slide has at that magnification.
        """
        task, options = self.task, self.options
        scope, executor = task.scope, task.eyes.executor
        round_, query = 1, task.question.text
        action: Action = "look"
        pool = scope.patches
        k = math.ceil(options.first_share * len(scope.patches))
        self._intervene("selected")
        while self._look(action, round_, query, pool, k):  # 1, 2, 12, 13, 16, 17
            self._intervene("described")
            if action == "zoom":
                if not self._has_request() or round_ >= options.rounds:
                    self._note(why_next="a closer look ends the search")
                    break  # 14
                round_ += 1  # a person asks for more
            state = self._state(self.steps[-1].seen, round_)
            predicted = task.predict(state)  # 4
            reflected = executor.reflect(scope, state, predicted)  # 5
            self._note(predicted=predicted, reflected=reflected)
            if reflected.sufficient == "Yes" and not self._has_request():  # 6
                self._note(why_next=f"sufficient: {reflected.reason}")
                break  # 7
            gap = executor.missing(scope, state)  # 9
            self._note(missing=gap)
            self._intervene("missing")
            query, self.wanted = self.wanted or gap.query, ""
            current = self.steps[-1].magnification
            if self.power or (gap.zoom and scope.native > 1.05 * current):  # 10
                action = "zoom"
                pool, k = self._magnify(gap, current, query)  # 11
            elif round_ >= options.rounds:
                self._note(why_next="no round is left")
                break
            else:
                self._note(why_next=f"explore other patches for {query}")
                action, round_ = "explore", round_ + 1
                seen = {view.region.id for view in self._seen()}
                pool = tuple(patch for patch in scope.patches if patch.id not in seen)
                k = math.ceil(options.later_share * len(scope.patches))
        answer = task.predict(self._state(self._seen(), round_))  # 21
        return task.reading(self.steps, answer, options)  # 22

    def _look(
        self, action: Action, round_: int, query: str, pool: Sequence[Region], k: int
    ) -> bool:
        """Describe the requested regions and the k most relevant patches; False without any."""
        eyes, task = self.task.eyes, self.task
        scores = eyes.navigator.relevance(task.scope, pool, task.question, query)
        ranked = sorted(zip(pool, scores, strict=True), key=lambda pair: -pair[1])[:k]
        chosen = [(region, 1.0) for region in self.extra] + ranked
        self.extra = []
        if not chosen:
            return False
        self.steps.append(
            Step(
                round=round_,
                action=action,
                looked_for=one_line(query)[:1000],
                magnification=max(region.magnification for region, _ in chosen),
                seen=tuple(
                    task.describe(region, guided=place < self.options.guided)
                    for place, (region, _) in enumerate(chosen)
                ),
                relevance=tuple(round(float(score), 4) for _, score in chosen),
                interventions=self.notes,
            )
        )
        self.notes = ()
        return True

    def _magnify(
        self, gap: MissingInfo, current: float, query: str
    ) -> tuple[tuple[Region, ...], int]:
        """Divide the regions of the last look; return the finer patches and how many to see."""
        scope = self.task.scope
        level = scope.zoom(self.power or gap.magnification, current)
        self.power = 0.0
        why = next((item.zoom_reason for item in gap.items if item.zoom_reason), "")
        self._note(why_next=f"zoom in to {level:.3g}x for {query}: {why}")
        parents = [view.region for view in self.steps[-1].seen]
        parts = [scope.divide(old, level) for old in parents if old.magnification < level]
        pool = tuple(part for own in parts for part in own)
        self.extra = [scope.region(region.box, level, region.id) for region in self.extra]
        at_level = math.ceil(len(pool) / len(parents) * len(scope.patches))
        return pool, max(1, math.ceil(self.options.later_share * at_level))

    def _intervene(self, stage: Stage) -> None:
        """Ask the person to intervene, and apply the changes."""
        said = []
        for change in self.person.intervene(stage, self.steps) if self.person else ():
            level = self.steps[-1].magnification if self.steps else self.options.magnification
            if change.region is not None:
                name = f"person-{len(self._seen()) + len(self.extra)}"
                power = change.magnification or level
                self.extra.append(self.task.scope.region(change.region, power, name))
            if change.edit is not None:
                self._edit(*change.edit)
            self.wanted = change.missing_info or self.wanted
            self.power = change.magnification or self.power
            said.append(change.describe())
        if self.steps:
            self._note(interventions=(*self.steps[-1].interventions, *said))
        else:
            self.notes = tuple(said)

    def _edit(self, name: str, text: str) -> None:
        """Replace the description of a region."""
        new = {"text": text, "edited": True}
        self.steps = [
            step.model_copy(update={"seen": tuple(
                view.model_copy(update=new) if view.region.id == name else view
                for view in step.seen
            )})
            for step in self.steps
        ]  # fmt: skip

    def _has_request(self) -> bool:
        return bool(self.extra or self.wanted or self.power)

    def _seen(self) -> list[Described]:
        return [view for step in self.steps for view in step.seen]

    def _state(self, seen: Sequence[Described], round_: int) -> State:
        last = round_ >= self.options.rounds
        return self.task.state(seen, round_, screened=self.task.eyes.navigator.screens, last=last)

    def _note(self, *, why_next: str = "", **fields: object) -> None:
        """Add what was concluded to the open step."""
        if why_next:
            fields["why_next"] = one_line(why_next)[:1000]
        self.steps[-1] = self.steps[-1].model_copy(update=fields)


def read_slide(
    scope: Scope, eyes: Eyes, question: Question, options: Options, *, person: Person | None = None
) -> Reading:
    """Answer a question about a slide by looking at it.

    Raises `InputError` if there is no tissue, and `FaultError` if the Executor's answer cites what
    was never seen, or a model's replies remain unusable.
    """
    return _PathAgent(Inquiry(scope, eyes, question), options, person).read()
