"""Eyes with a model: a vision-language Perceptor and an Executor that use the chat client.

Replies are validated. They are returned with the reason if a region was never seen, a place is not
on the slide, or an answer is not one of the options; if they remain unusable, the reading ends.
"""

from __future__ import annotations

import base64
import io
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from agents.core.base import Agent, Reasoner, Resources, Role, View, prompt_file
from sage.core.printable import one_line
from sage_slide_reading.reader.eyes import State
from sage_slide_reading.reader.scope import Scope
from sage_slide_reading.reader.types import (
    Described,
    MissingInfo,
    Prediction,
    Question,
    Reflection,
    Region,
)

IMAGE_PX = 1024
"""Longest side of an image that is sent; larger fields are shrunk, smaller ones are unchanged."""
STATEMENT = (
    "A vision-language model described fields, and a language model answered from its words alone;"
    " neither is a pathologist. Not for diagnosis."
)


class FieldShown(View):
    """A field as presented to the Executor."""

    id: str
    magnification: float
    x: int
    y: int
    width: int
    height: int
    text: str


class Picture(View):
    """Input of the Perceptor about a picture."""

    width_um: float
    height_um: float
    magnification: float
    question: str


class Perceived(View):
    """The Perceptor's reply."""

    description: Annotated[str, Field(min_length=20, max_length=2000)]


class Shown(View):
    """Input of the Executor."""

    question: str
    options: tuple[str, ...]
    slide: str
    width: int
    height: int
    native: float
    last_round: bool
    fields: tuple[FieldShown, ...]


class Judged(View):
    """Input of a reflection."""

    question: str
    answer: str
    thinking_steps: str
    fields: tuple[FieldShown, ...]


class AtOnce(View):
    """Answer, sufficiency and gap in one reply."""

    prediction: Prediction
    reflection: Reflection
    missing: MissingInfo


def _no_picture(given: Picture, resources: Resources) -> Perceived:
    return Perceived(description="True if nothing was looked at, because no model was asked.")


def _no_prediction(given: Shown, resources: Resources) -> Prediction:
    return Prediction(answer=None, thinking_steps="No model was asked.")


def _no_reflection(given: Judged, resources: Resources) -> Reflection:
    return Reflection(sufficient="No", reason="No model was asked.")


def _no_missing(given: Shown, resources: Resources) -> MissingInfo:
    return MissingInfo.model_validate(
        {"items": [{"missing_info": given.question, "zoom_recommendation": "No"}]}
    )


def _nothing_at_once(given: Shown, resources: Resources) -> AtOnce:
    return AtOnce(
        prediction=_no_prediction(given, resources),
        reflection=Reflection(sufficient="No"),
        missing=_no_missing(given, resources),
    )


def answer_problems(given: Shown, output: Prediction) -> list[str]:
    """List regions that were not shown, and answers that are not among the options."""
    known = {field.id for field in given.fields}
    unknown = [name for name in dict.fromkeys(output.regions) if name not in known]
    found = [f"regions: {one_line(name)[:80]} is not one of the fields" for name in unknown[:5]]
    if output.answer is not None:
        if not output.regions:
            found.append("regions: list the fields on which the answer is based")
        if given.options and (
            Question(text=given.question, options=given.options).chosen(output.answer) is None
        ):
            found.append("answer: not one of the options; repeat an option word for word, or null")
    return found


def gap_problems(given: Shown, output: MissingInfo) -> list[str]:
    """List places off the slide, and magnifications that the slide does not have."""
    found = []
    for item in output.items:
        if item.location is not None and not (
            0 <= item.location[0] < given.width and 0 <= item.location[1] < given.height
        ):
            found.append(f"location: {item.location[0]}, {item.location[1]} is not on the slide")
        if item.zoom_recommendation == "Yes" and item.zoom_to is None:
            found.append("zoom_to: give the magnification of the recommended zoom")
        if not item.missing_info.strip():
            found.append("missing_info: must not be empty")
    return found


def at_once_problems(given: Shown, output: AtOnce) -> list[str]:
    """List the problems of the prediction and of the missing information."""
    return answer_problems(given, output.prediction) + gap_problems(given, output.missing)


PERCEPTOR = Agent(
    name="slide_perceptor", role=Role.HIGH, reads=Picture, returns=Perceived,
    prompt=prompt_file(__file__, "perceptor.md"), rule=_no_picture,
)  # fmt: skip
PREDICT = Agent(
    name="slide_predict", role=Role.HIGH, reads=Shown, returns=Prediction,
    prompt=prompt_file(__file__, "predict.md"), rule=_no_prediction, check=answer_problems,
)  # fmt: skip
REFLECT = Agent(
    name="slide_reflect", role=Role.MINI, reads=Judged, returns=Reflection,
    prompt=prompt_file(__file__, "reflect.md"), rule=_no_reflection,
)  # fmt: skip
MISSING = Agent(
    name="slide_missing", role=Role.MINI, reads=Shown, returns=MissingInfo,
    prompt=prompt_file(__file__, "missing.md"), rule=_no_missing, check=gap_problems,
)  # fmt: skip
AT_ONCE = Agent(
    name="slide_at_once", role=Role.HIGH, reads=Shown, returns=AtOnce,
    prompt=prompt_file(__file__, "at_once.md"), rule=_nothing_at_once, check=at_once_problems,
)  # fmt: skip


class ModelPerceptor:
    """Shows each field to a model with vision."""

    name = "model"

    def __init__(self, reasoner: Reasoner, image_px: int = IMAGE_PX) -> None:
        self.reasoner = reasoner
        self.image_px = image_px

    def describe(self, scope: Scope, region: Region, question: Question | None) -> Described:
        """Return the model's description."""
        png = field_png(scope, region, self.image_px)
        given = Picture(
            width_um=region.um[2],
            height_um=region.um[3],
            magnification=region.magnification,
            question=question.text if question else "",
        )
        agent = replace(PERCEPTOR, images=lambda _: (png,))
        said = self.reasoner.ask(agent, given).output
        return Described(region=region, text=said.description, guided=question is not None)


def field_png(scope: Scope, region: Region, longest_px: int) -> str:
    """Render a field as base64 PNG with its longer side at most `longest_px`."""
    from PIL import Image

    from mcp_servers.slides.slide import fit

    buffer = io.BytesIO()
    Image.fromarray(fit(scope.pixels(region), longest_px)).save(buffer, format="PNG")
    return base64.b64encode(buffer.getvalue()).decode("ascii")


class ModelExecutor:
    """Lets a language model predict, reflect, and name missing information."""

    name = "model"

    def __init__(self, reasoner: Reasoner) -> None:
        self.reasoner = reasoner

    def predict(self, scope: Scope, state: State, question: Question) -> Prediction:
        """Return the model's answer."""
        return self.reasoner.ask(PREDICT, _make_input(scope, state, question)).output

    def reflect(
        self, scope: Scope, state: State, question: Question, prediction: Prediction
    ) -> Reflection:
        """See `sage_slide_reading.reader.eyes.Executor`.

        Without an answer, the evidence is never sufficient, whatever the model says.
        """
        if prediction.answer is None:
            return Reflection(sufficient="No", reason="there is no answer yet")
        given = Judged(
            question=question.text,
            answer=prediction.answer,
            thinking_steps=prediction.thinking_steps,
            fields=_fields(state),
        )
        return self.reasoner.ask(REFLECT, given).output

    def missing(self, scope: Scope, state: State, question: Question) -> MissingInfo:
        """Ask the model what is missing."""
        return self.reasoner.ask(MISSING, _make_input(scope, state, question)).output

    def at_once(
        self, scope: Scope, state: State, question: Question
    ) -> tuple[Prediction, Reflection, MissingInfo]:
        """Ask all three questions in a single prompt."""
        said = self.reasoner.ask(AT_ONCE, _make_input(scope, state, question)).output
        reflection = said.reflection
        if said.prediction.answer is None:
            reflection = Reflection(sufficient="No", reason="there is no answer yet")
        return said.prediction, reflection, said.missing


def _fields(state: State) -> tuple[FieldShown, ...]:
    return tuple(
        FieldShown(
            id=seen.region.id,
            magnification=seen.region.magnification,
            x=seen.region.box.x,
            y=seen.region.box.y,
            width=seen.region.box.width,
            height=seen.region.box.height,
            text=seen.text,
        )
        for seen in state.seen
    )


def _make_input(scope: Scope, state: State, question: Question) -> Shown:
    return Shown(
        question=question.text,
        options=question.options,
        slide=state.slide,
        width=state.size[0],
        height=state.size[1],
        native=scope.native,
        last_round=state.last_round,
        fields=_fields(state),
    )
