"""Model-based reader backend: a vision-language Perceptor and an Executor using the chat client.

Replies are validated. A reply is sent back with the reason if a region was never seen, a
place is not on the slide, or an answer is not one of the options; if replies remain
unusable, the reading ends.
"""

from __future__ import annotations

import base64
import io
from dataclasses import replace
from typing import Annotated, Literal, NoReturn

import numpy as np
from pydantic import Field

from agents.core.base import Agent, Reasoner, Resources, Role, View, prompt_file
from mcp_servers.slides.arrays import U8
from sage.core.errors import InputError
from sage.core.llm.failures import ModelError
from sage.core.printable import one_line
from sage_slide_reading.reader.scope import Scope
from sage_slide_reading.reader.types import (
    NO_ANSWER,
    Described,
    MissingInfo,
    Prediction,
    Question,
    Reflection,
    Region,
    State,
)

IMAGE_PX = 1024
"""Maximum longest side of an image that is sent; larger fields are shrunk, others unchanged."""
STATEMENT = (
    "A vision-language model described fields, and a language model answered from its words alone;"
    " neither is a pathologist. Not for diagnosis."
)

Color = Literal["red", "orange", "yellow", "green", "blue", "purple", "white", "black"]
SHOWN: tuple[Color, Color, Color] = ("blue", "yellow", "red")
"""Colors of the stripes; who guesses is right once in 336."""


class Picture(View):
    """Input for the Perceptor about an image; `question` is empty if there is none."""

    region: Region
    question: str


class Perceived(View):
    """The Perceptor's reply about an image."""

    description: Annotated[str, Field(min_length=20, max_length=2000)]


class Nothing(View):
    """Input of a question that needs none."""


class Stripes(View):
    """Colors of the stripes of `sight_png`, from left to right."""

    colors: tuple[Color, Color, Color]


class Judged(View):
    """Input for a reflection."""

    state: State
    prediction: Prediction


def refuse_without_model(given: View, resources: Resources) -> NoReturn:
    """Raise an error, because no rule can interpret an image.

    Raises `InputError` always.
    """
    raise InputError("viewing images requires a model")


def answer_problems(given: State, output: Prediction) -> list[str]:
    """List regions that were not shown, and answers that are not among the options."""
    known = {seen.region.id for seen in given.seen}
    unknown = [name for name in output.regions if name not in known]
    found = [f"regions: {one_line(name)[:80]} is not one of the fields" for name in unknown[:5]]
    if output.answer is not None:
        if not output.regions:
            found.append("regions: list the fields on which the answer is based")
        if given.question.chosen(output.answer) is None:
            found.append("answer: not one of the options; repeat an option word for word, or null")
    return found


def gap_problems(given: State, output: MissingInfo) -> list[str]:
    """List places outside the slide, and magnifications that the slide does not have."""
    found = []
    for item in output.items:
        if item.location is not None and not (
            0 <= item.location[0] < given.size[0] and 0 <= item.location[1] < given.size[1]
        ):
            found.append(f"location: {item.location[0]}, {item.location[1]} is not on the slide")
        if item.zoom_recommendation == "Yes" and item.zoom_to is None:
            found.append("zoom_to: give the magnification of the recommended zoom")
        if not item.missing_info.strip():
            found.append("missing_info: must not be empty")
    return found


PERCEPTOR = Agent(
    name="slide_perceptor", role=Role.HIGH, reads=Picture, returns=Perceived,
    prompt=prompt_file(__file__, "perceptor.md"), rule=refuse_without_model,
)  # fmt: skip
PREDICT = Agent(
    name="slide_predict", role=Role.HIGH, reads=State, returns=Prediction,
    prompt=prompt_file(__file__, "predict.md"), rule=refuse_without_model, check=answer_problems,
)  # fmt: skip
REFLECT = Agent(
    name="slide_reflect", role=Role.MINI, reads=Judged, returns=Reflection,
    prompt=prompt_file(__file__, "reflect.md"), rule=refuse_without_model,
)  # fmt: skip
MISSING = Agent(
    name="slide_missing", role=Role.MINI, reads=State, returns=MissingInfo,
    prompt=prompt_file(__file__, "missing.md"), rule=refuse_without_model, check=gap_problems,
)  # fmt: skip
SIGHT = Agent(
    name="slide_sight", role=Role.HIGH, reads=Nothing, returns=Stripes,
    prompt=prompt_file(__file__, "sight.md"), rule=refuse_without_model,
    images=lambda _: (sight_png(),),
)  # fmt: skip


def require_sight(reasoner: Reasoner) -> None:
    """Ask the model for the colors of three stripes, before any work on a slide.

    A server may refuse pictures, and another drop them, so that the model describes what it never
    saw.

    Raises `InputError` if the model has no eyes.
    """
    way = "use a model with vision, or --eyes computed"
    try:
        named = reasoner.ask(SIGHT, Nothing()).output.colors
    except ModelError as error:
        raise InputError(f"--eyes model: the model sees no pictures ({error}); {way}") from None
    if named != SHOWN:
        raise InputError(
            f"--eyes model: shown stripes in {', '.join(SHOWN)}, the model named "
            f"{', '.join(named)}, so that it sees no pictures; {way}"
        )


def sight_png() -> str:
    """Draw three vertical stripes as base64 PNG."""
    from PIL import ImageColor

    stripes = np.array([ImageColor.getrgb(color) for color in SHOWN], dtype=np.uint8)
    return encode_png(np.broadcast_to(stripes.repeat(96, axis=0), (192, 288, 3)))


class ModelPerceptor:
    """Perceptor that shows each field to a model with vision."""

    def __init__(self, reasoner: Reasoner) -> None:
        self.reasoner = reasoner

    def describe(self, scope: Scope, region: Region, question: Question | None) -> Described:
        """Return the model's description of a region."""
        png = field_png(scope, region)
        agent = replace(PERCEPTOR, images=lambda _: (png,))
        given = Picture(region=region, question=question.text if question else "")
        said = self.reasoner.ask(agent, given).output
        return Described(region=region, text=said.description, guided=question is not None)


def field_png(scope: Scope, region: Region) -> str:
    """Render a field as base64 PNG with its longer side at most `IMAGE_PX`."""
    from mcp_servers.slides.slide import fit

    return encode_png(fit(scope.pixels(region), IMAGE_PX))


def encode_png(image: U8) -> str:
    """Encode an (H, W, 3) image as base64 PNG."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(image)).save(buffer, format="PNG")
    return base64.b64encode(buffer.getvalue()).decode("ascii")


class ModelExecutor:
    """Executor in which a language model predicts, reflects, and names missing information.

    Without an answer, the evidence is never sufficient, regardless of the model's reply.
    """

    def __init__(self, reasoner: Reasoner) -> None:
        self.reasoner = reasoner

    def predict(self, scope: Scope, state: State) -> Prediction:
        """Return the model's answer based on the descriptions so far."""
        return self.reasoner.ask(PREDICT, state).output

    def reflect(self, scope: Scope, state: State, prediction: Prediction) -> Reflection:
        """Ask the model whether the descriptions are sufficient."""
        if prediction.answer is None:
            return NO_ANSWER
        return self.reasoner.ask(REFLECT, Judged(state=state, prediction=prediction)).output

    def missing(self, scope: Scope, state: State) -> MissingInfo:
        """Ask the model which information is missing."""
        return self.reasoner.ask(MISSING, state).output
