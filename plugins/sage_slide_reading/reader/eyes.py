"""The three roles in a reading (Navigator, Perceptor, and Executor), and their backends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from agents.core.base import Reasoner
from agents.core.chat import ChatReasoner
from sage.core.errors import InputError
from sage_slide_reading.reader import computed, model
from sage_slide_reading.reader.rules import RulesExecutor
from sage_slide_reading.reader.scope import Scope
from sage_slide_reading.reader.types import (
    AtOnce,
    Described,
    MissingInfo,
    Prediction,
    Question,
    Reflection,
    Region,
    State,
)


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
        ...


class Perceptor(Protocol):
    """Role that describes a patch."""

    def describe(self, scope: Scope, region: Region, question: Question | None) -> Described:
        """Describe a region, or only its relevant aspects if a question is given."""
        ...


class Executor(Protocol):
    """Role that predicts, reflects, and names missing information."""

    def predict(self, scope: Scope, state: State) -> Prediction:
        """Answer from the descriptions, or decline to answer."""
        ...

    def reflect(self, scope: Scope, state: State, prediction: Prediction) -> Reflection:
        """Judge whether the descriptions support the answer."""
        ...

    def missing(self, scope: Scope, state: State) -> MissingInfo:
        """Name the missing information, and judge whether zooming in would reveal it."""
        ...

    def at_once(self, scope: Scope, state: State) -> AtOnce:
        """Predict, reflect, and name missing information in a single call."""
        ...


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


def computed_eyes(sight: computed.Sight | None = None) -> Eyes:
    """Build the default backend, which uses measurements and rules, for a slide."""
    sight = sight or computed.Sight()
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

    return Eyes(
        name="clip",
        statement=f"A CLIP-type model ({weights.name}) ranks patches. {computed.STATEMENT}",
        navigator=ClipNavigator(weights),
        perceptor=computed.ComputedPerceptor(computed.Sight()),
        executor=RulesExecutor(),
    )


def model_eyes(reasoner: ChatReasoner, weights: Path | None = None) -> Eyes:
    """Build a backend with a vision-language model for descriptions and a language model to decide.

    Patches are ranked by a CLIP-type model if weights are given, and by measurements
    otherwise.

    Raises
    ------
    InputError
        If the settings do not state that the model has vision.
    """
    require_vision(reasoner)
    navigator: Navigator = computed.ComputedNavigator(computed.Sight())
    if weights is not None:
        from sage_slide_reading.reader.clip import ClipNavigator

        navigator = ClipNavigator(weights)
    return Eyes(
        name="model",
        statement=f"{model.STATEMENT} Patches were ranked by {navigator.name} relevance.",
        navigator=navigator,
        perceptor=model.ModelPerceptor(reasoner),
        executor=model.ModelExecutor(reasoner),
        reasoner=reasoner,
    )


def require_vision(reasoner: ChatReasoner) -> None:
    """Check that the settings declare the model as having vision.

    Raises
    ------
    InputError
        If they do not.
    """
    if not reasoner.settings.vision:
        raise InputError(
            "--eyes model requires a vision model; set models.high, and vision = true at the "
            "top of sage.toml"
        )
