"""The three roles in a reading (Navigator, Perceptor, and Executor), and who fills them."""

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
    """Scores patches by their relevance to a question or to what is missing.

    `screens` means that absence may be concluded from what it ranks highest.
    """

    name: str
    screens: bool

    def relevance(
        self, scope: Scope, regions: Sequence[Region], question: Question, query: str
    ) -> list[float]:
        """Score regions of one magnification; the highest is visited first.

        `query` is the question's text, or the missing information.
        """
        ...


class Perceptor(Protocol):
    """Describes a patch."""

    def describe(self, scope: Scope, region: Region, question: Question | None) -> Described:
        """Describe a region; with a question, describe what is relevant to it."""
        ...


class Executor(Protocol):
    """Predicts, reflects, and names missing information."""

    def predict(self, scope: Scope, state: State) -> Prediction:
        """Answer from the descriptions, or decline to answer."""
        ...

    def reflect(self, scope: Scope, state: State, prediction: Prediction) -> Reflection:
        """Judge whether the descriptions support the answer."""
        ...

    def missing(self, scope: Scope, state: State) -> MissingInfo:
        """Name the missing information, and whether zooming in would show it."""
        ...

    def at_once(self, scope: Scope, state: State) -> AtOnce:
        """Do all three at once."""
        ...


@dataclass(frozen=True)
class Eyes:
    """Navigator, Perceptor, and Executor, with a sentence or two about them.

    A `reasoner` sees a proposed region as one picture; measurements need patches of the finest
    size instead.
    """

    name: str
    statement: str
    navigator: Navigator
    perceptor: Perceptor
    executor: Executor
    reasoner: Reasoner | None = None


def computed_eyes(sight: computed.Sight | None = None) -> Eyes:
    """Return the built-in default: measurements and rules for a slide."""
    sight = sight or computed.Sight()
    return Eyes(
        name="computed",
        statement=computed.STATEMENT,
        navigator=computed.ComputedNavigator(sight),
        perceptor=computed.ComputedPerceptor(sight),
        executor=RulesExecutor(),
    )


def clip_eyes(weights: Path) -> Eyes:
    """Build eyes in which a CLIP-type model navigates, measurements describe, and rules decide."""
    from sage_slide_reading.reader.clip import ClipNavigator

    return Eyes(
        name="clip",
        statement=f"A CLIP-type model ({weights.name}) ranks patches. {computed.STATEMENT}",
        navigator=ClipNavigator(weights),
        perceptor=computed.ComputedPerceptor(computed.Sight()),
        executor=RulesExecutor(),
    )


def model_eyes(reasoner: ChatReasoner, weights: Path | None = None) -> Eyes:
    """Build eyes in which a vision-language model describes and a language model decides.

    Patches are ranked by a CLIP-type model if weights are given, and by measurements otherwise.

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
    """Check that the settings state that the model has vision.

    Raises
    ------
    InputError
        If they do not.
    """
    if not reasoner.settings.vision:
        raise InputError(
            "--eyes model requires a model with vision: set models.high and vision = true at the "
            "top of sage.toml"
        )
