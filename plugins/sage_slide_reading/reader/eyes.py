"""The three roles in a reading (Navigator, Perceptor, and Executor), and their backends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Protocol

from agents.core.base import Reasoner
from agents.core.chat import ChatReasoner
from sage.core.errors import InputError
from sage.core.llm.trace import Trace
from sage_slide_reading.reader import computed, model
from sage_slide_reading.reader.rules import RulesExecutor
from sage_slide_reading.reader.scope import Scope
from sage_slide_reading.reader.types import (
    Described,
    MissingInfo,
    Prediction,
    Question,
    Reflection,
    Region,
    State,
)

EyesName = Literal["computed", "clip", "model"]


class Navigator(Protocol):
    """Role that scores patches by relevance to a question or to missing information.

    `screens` means that absence may be concluded from the patches that it ranks highest.
    """

    name: str
    screens: bool

    def relevance(
        self, scope: Scope, regions: Sequence[Region], question: Question, query: str
    ) -> list[float]:
        """Score regions at one magnification; the highest-scoring region is visited first.

        `query` is the question's text, or the missing information.
        """


class Perceptor(Protocol):
    """Role that describes a patch."""

    def describe(self, scope: Scope, region: Region, question: Question | None) -> Described:
        """Describe a region, or only its relevant aspects if a question is given."""


class Executor(Protocol):
    """Role that predicts, reflects, and names missing information."""

    def predict(self, scope: Scope, state: State) -> Prediction:
        """Answer from the descriptions, or decline to answer."""

    def reflect(self, scope: Scope, state: State, prediction: Prediction) -> Reflection:
        """Judge whether the descriptions support the answer."""

    def missing(self, scope: Scope, state: State) -> MissingInfo:
        """Name the missing information, and judge whether zooming in would reveal it."""


@dataclass(frozen=True)
class Eyes:
    """Reader backend: Navigator, Perceptor, and Executor, with a short description.

    A `reasoner` sees a proposed region as a single image; measurements instead need patches
    of the finest size.
    """

    name: str
    statement: str
    navigator: Navigator
    perceptor: Perceptor
    executor: Executor
    reasoner: Reasoner | None = None


def computed_eyes() -> Eyes:
    """Build the default backend, which uses measurements and rules, for a reading."""
    sight = computed.Sight()
    return Eyes(
        name="computed",
        statement=computed.STATEMENT,
        navigator=computed.ComputedNavigator(sight),
        perceptor=computed.ComputedPerceptor(sight),
        executor=RulesExecutor(),
    )


def clip_eyes(weights: Path) -> Eyes:
    """Build a backend with a CLIP-type model to navigate, measurements to describe, and rules.

    The rules decide the answer.
    """
    from sage_slide_reading.reader.clip import ClipNavigator

    return replace(
        computed_eyes(),
        name="clip",
        statement=f"A CLIP-type model ({weights.name}) ranks patches. {computed.STATEMENT}",
        navigator=ClipNavigator(weights),
    )


def model_eyes(reasoner: Reasoner, weights: Path | None = None) -> Eyes:
    """Build a backend with a vision-language model for descriptions and a language model to decide.

    Patches are ranked by a CLIP-type model if weights are given, and by measurements
    otherwise.
    """
    ranks = clip_eyes(weights) if weights is not None else computed_eyes()
    return Eyes(
        name="model",
        statement=f"{model.STATEMENT} Patches were ranked by {ranks.navigator.name} relevance.",
        navigator=ranks.navigator,
        perceptor=model.ModelPerceptor(reasoner),
        executor=model.ModelExecutor(reasoner),
        reasoner=reasoner,
    )


def make_eyes(
    name: EyesName, weights: Path | None, folder: Path, budget_usd: float | None, trace: Trace
) -> Eyes:
    """Create the reader backend with this name.

    Parameters
    ----------
    weights : folder of a CLIP-type model, for clip and model
    folder : folder for a model's replies
    trace : receives a model's turns

    Raises `InputError` if weights are missing or not accepted, the settings name no model with
    vision, or the model does not see.
    """
    if name == "computed":
        if weights is not None:
            raise InputError("--weights requires --eyes clip or model")
        return computed_eyes()
    if name == "model":
        return model_eyes(connect_vision(folder, budget_usd, trace), weights)
    if weights is None:
        raise InputError(
            "--eyes clip requires --weights, the folder of a CLIP-style model such as PLIP"
        )
    return clip_eyes(weights)


def connect_vision(
    folder: Path, budget_usd: float | None, trace: Trace | None = None
) -> ChatReasoner:
    """Connect the settings' model, which keeps its replies in `folder`, and check that it sees.

    Raises `InputError` if the settings do not state that the model has vision, or it does not see.
    """
    from sage.run.wiring import make_chat
    from sage.settings import load

    reasoner = make_chat(load(reasoner="chat"), folder, budget_usd=budget_usd, trace=trace)
    if not reasoner.settings.vision:
        raise InputError(
            "--eyes model requires a vision model; set models.high, and vision = true at the "
            "top of sage.toml"
        )
    model.require_sight(reasoner)
    return reasoner
